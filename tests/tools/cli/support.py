"""What the tests of the command line share: they run the binary as a user would, from the root of the
repository. The first two arguments of each test are the binary and that root."""

import csv
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

BINARY = sys.argv[1]
ROOT = Path(sys.argv[2])
PLANS = "experiments/hexiscale/case_study/plans"
MEGATRON = f"{PLANS}/megatron.yaml"
HEXISCALE = f"{PLANS}/hexiscale.yaml"
WHERE = ["--cluster", "hexiscale_case_study", "--model", "llama2_13b", "--sequence-length", "4096"]
JOB = [*WHERE, "--global-batch", "24"]
HETU = "experiments/hetu/plans"
H20 = ["--cluster", "hetu_32h20", "--model", "hetu_32b", "--sequence-length", "4096"]


def orrery(*args, **kwargs):
    kwargs.setdefault("cwd", ROOT)
    kwargs.setdefault("stdout", subprocess.PIPE)
    return subprocess.run([BINARY, *args], stderr=subprocess.PIPE, text=True, **kwargs)


def start(*args, **kwargs):
    """The binary under way; a context manager."""
    return subprocess.Popen([BINARY, *args], cwd=ROOT, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, **kwargs)


def wait_for(condition, every=0.02):
    """Until it holds, or a minute has passed."""
    deadline = time.monotonic() + 60
    while not condition() and time.monotonic() < deadline:
        time.sleep(every)


def agent_of(process):
    """The (words, environment) of the next agent that a launcher asks for."""
    for line in process.stderr:
        if " execute-agent " in line:
            words = shlex.split(line.split(": ", 2)[2])
            secret = [words.pop(0)] if words[0].startswith("ORRERY_TOKEN=") else []
            return words, {**os.environ, **dict(word.split("=", 1) for word in secret)}
    raise AssertionError(f"the launcher ended: {process.wait()}")


def rows_of(path):
    """Rows of a CSV file, by column."""
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def losses_of(folder):
    return [row["loss"] for row in rows_of(folder / "losses.csv")]


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def succeed(self, *args, **kwargs):
        done = orrery(*args, **kwargs)
        self.assertEqual(done.returncode, 0, f"{args}: {done.stderr}{done.stdout}")
        return done.stdout

    def document(self, *args, **kwargs):
        """What the command prints with --json."""
        return json.loads(self.succeed(*args, "--json", **kwargs))

    def refuse(self, *args, says, status=2, **kwargs):
        """The command fails with `status` and says each text of `says` on stderr."""
        done = orrery(*args, **kwargs)
        self.assertEqual(done.returncode, status, f"{args}: {done.stderr}{done.stdout}")
        for text in [says] if isinstance(says, str) else says:
            self.assertIn(text, done.stderr)
        return done

    def interrupted(self, process, says=""):
        """Ctrl-C: the process ends with 130 and says `says`. Returns (stdout, stderr)."""
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 130, err + out)
        self.assertIn(says, err)
        return out, err

    def write(self, name, text):
        path = self.folder / name
        path.write_text(text)
        return str(path)
