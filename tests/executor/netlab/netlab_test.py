#!/usr/bin/python3
"""orrery netlab as a user runs it.

    netlab_test.py ORRERY ROOT

Ends with 77 and the reason where namespaces are not permitted.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

ORRERY, ROOT = sys.argv[1:3] if len(sys.argv) > 2 else ("orrery", ".")
NAME = f"cli-{os.getpid()}"
CLUSTER = """schema: orrery/cluster/1
name: {name}
source: test
nodes:
  - {{name: a, gpus: {{type: A100-80GB, count: 1}}, nics: [{{link: slow, count: 1}}]}}
  - {{name: b, gpus: {{type: A100-80GB, count: 1}}, nics: [{{link: slow, count: 1}}]}}
links:
  slow: {{bandwidth: {rate} Mbps, latency: 1 ms, source: test}}
"""


def has_ended(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


class Netlab(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        os.chmod(folder.name, 0o755)
        self.folder = Path(folder.name)
        self.environment = {**os.environ, "XDG_RUNTIME_DIR": folder.name, "NO_COLOR": "1"}
        self.file = self.write(100)
        self.addCleanup(self.netlab, "down")

    def write(self, rate):
        path = self.folder / f"cluster-{rate}.yaml"
        path.write_text(CLUSTER.format(name=NAME, rate=rate))
        return str(path)

    def netlab(self, action, *more, file=None, **options):
        return subprocess.run([ORRERY, "netlab", action, file or self.file, *more], cwd=ROOT,
                              env=self.environment, text=True, capture_output=True, **options)

    def succeed(self, action, *more, **options):
        done = self.netlab(action, *more, **options)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr, "")
        return done.stdout

    def status(self):
        return json.loads(self.succeed("status", "--json"))

    def namespaces(self):
        folder = Path("/var/run/netns")
        return sorted(p.name for p in folder.glob(f"orrery-{NAME}-*")) if folder.is_dir() else []

    def test_up_status_down(self):
        self.assertEqual(self.status()["state"], "down")
        text = self.succeed("up")
        self.assertIn(f"ip netns exec orrery-{NAME}-a COMMAND", text)
        self.assertIn("--hosts 10.77.0.1:1,10.77.0.2:1", text)
        self.assertEqual(self.namespaces(), [f"orrery-{NAME}-a", f"orrery-{NAME}-b"])
        pid = self.status()["switch_pid"]
        self.succeed("up")
        self.assertEqual(self.status()["switch_pid"], pid)
        command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        self.assertEqual(command[1], b"netlab-switch")
        self.assertIn("removed 2 namespaces and the switch", self.succeed("down"))
        self.assertEqual(self.namespaces(), [])
        self.assertTrue(has_ended(pid))
        self.assertEqual(list((self.folder / "orrery").iterdir()), [])
        self.assertIn("nothing was there", self.succeed("down"))

    def test_a_killed_switch_is_broken_until_up_or_down(self):
        self.succeed("up")
        os.kill(self.status()["switch_pid"], signal.SIGKILL)
        for _ in range(100):
            if self.status()["state"] == "broken":
                break
            time.sleep(0.05)
        self.assertEqual(self.status()["state"], "broken")
        self.succeed("up")
        self.assertEqual(self.status()["state"], "up")

    def test_an_up_that_is_killed_leaves_nothing_after_down(self):
        for delay in (0.01, 0.03, 0.06, 0.1, 0.15):
            process = subprocess.Popen([ORRERY, "netlab", "up", self.file], cwd=ROOT,
                                       env=self.environment, stdout=subprocess.DEVNULL,
                                       stderr=subprocess.DEVNULL)
            time.sleep(delay)
            process.kill()
            process.wait()
            self.succeed("down")
            self.assertEqual(self.namespaces(), [])
            self.assertEqual(self.status()["state"], "down")

    def test_other_settings_of_a_lab_that_is_up_are_refused(self):
        self.succeed("up")
        done = self.netlab("up", file=self.write(200))
        self.assertEqual(done.returncode, 1)
        self.assertIn("is up with other settings", done.stderr)

    def test_disturb_until_told_otherwise(self):
        done = self.netlab("disturb", "--loss", "0.1")
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"no lab '{NAME}' with these settings is up", done.stderr)
        self.succeed("up")
        text = self.succeed("disturb", "--loss", "0.02", "--late", "0.1", "--cut", "a:b")
        self.assertIn("Disturbed: 2.0 % of the frames are lost, 10.0 % come 10.0 ms late, nothing "
                      "that a sends comes to b", text)
        status = self.status()
        self.assertEqual((status["loss"], status["late"], status["cuts"]), (0.02, 0.1, ["a:b"]))
        self.assertNotIn("Disturbed", self.succeed("disturb"))
        for action, flags, says in (("disturb", ["--cut", "a:c"], "'a:c' is not FROM:TO"),
                                    ("disturb", ["--loss", "2"], "--loss: must be from 0 to 1"),
                                    ("up", ["--late", "0.1"], "--late: belongs to disturb")):
            done = self.netlab(action, *flags)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(says, done.stderr)

    def test_a_calibration_that_is_ended_takes_its_network_along(self):
        # SIGHUP: the terminal was closed. Under nohup it would be ignored.
        words = [ORRERY, "calibrate", "--netlab", "--cluster", self.file, "--only",
                 "point_to_point", "--no-figure", "--quiet", "--out", str(self.folder / "samples")]
        for number in (signal.SIGHUP, signal.SIGTERM):
            process = subprocess.Popen(words, cwd=ROOT, env=self.environment,
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                       preexec_fn=lambda: signal.signal(signal.SIGHUP,
                                                                        signal.SIG_DFL))
            for _ in range(600):
                if self.namespaces() or process.poll() is not None:
                    break
                time.sleep(0.05)
            process.send_signal(number)
            self.assertEqual(process.wait(60), 130)
            self.assertEqual(self.namespaces(), [])

    def test_bad_input(self):
        for words in (["upp", self.file], ["up", "no_such_cluster"], ["up", "hetu_32h20/x"]):
            done = subprocess.run([ORRERY, "netlab", *words], cwd=ROOT, env=self.environment,
                                  text=True, capture_output=True)
            self.assertEqual(done.returncode, 2, done.stderr)
        done = self.netlab("up", file="llama3_16384")
        self.assertEqual(done.returncode, 2)
        self.assertIn("1 to 64 can be emulated", done.stderr)

    def test_where_it_is_not_permitted_it_says_so(self):
        nobody = 65534
        if not all(os.stat(p).st_mode & 1 for p in (ORRERY, *Path(ORRERY).resolve().parents)):
            self.skipTest("others may not run this binary")
        environment = {**self.environment, "XDG_RUNTIME_DIR": ""}
        done = subprocess.run([ORRERY, "netlab", "up", self.file], cwd=ROOT, env=environment,
                              text=True, capture_output=True, user=nobody, group=nobody,
                              extra_groups=[])
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertRegex(done.stderr, "not permitted|cannot open /dev/net/tun")


def reason_to_skip():
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cluster.yaml"
        path.write_text(CLUSTER.format(name=f"probe-{os.getpid()}", rate=1))
        environment = {**os.environ, "XDG_RUNTIME_DIR": folder}
        done = subprocess.run([ORRERY, "netlab", "up", str(path)], cwd=ROOT, env=environment,
                              text=True, capture_output=True)
        subprocess.run([ORRERY, "netlab", "down", str(path)], cwd=ROOT, env=environment,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        permitted = "not permitted" not in done.stderr and "/dev/net/tun" not in done.stderr
        return "" if permitted else done.stderr.strip()


if __name__ == "__main__":
    reason = reason_to_skip()
    if reason:
        print(f"SKIP: {reason}")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])
