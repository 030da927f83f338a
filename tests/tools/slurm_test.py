"""Studies in job arrays of a real Slurm of one node: the same bytes as without, no run twice, and
nothing lost whatever ends an array, a task or the call. Exits with 77 where Slurm cannot run: it
needs root, and Debian's slurmctld, slurmd, slurm-client and munge, which the build does not install.

    slurm_test.py SOURCE_FOLDER ORRERY
"""
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import slurm_cluster

SOURCE, ORRERY = pathlib.Path(sys.argv.pop(1)).resolve(), pathlib.Path(sys.argv.pop(1)).resolve()
CLUSTER = None

PAIR = """\
schema: orrery/cluster/1
name: pair
nodes:
  - name: a
    gpus: {type: A100-80GB, count: 2}
    domains: [{link: nvlink3}]
    nics: [{link: ethernet-1GBps, count: 1}]
"""
PLANS = """\
schema: orrery/study/1
name: tests/plans
command: plan
settings:
  cluster: pair.yaml
  model: gpt3_125m
  planner: {name: megatron_grid, options: {evaluate_top: 1}}
  job: {global_batch: 4, sequence_length: 512}
axes:
  job.sequence_length: [512, 1024]
  simulation.jitter: [0, 0.1]
seeds: [1, 2]
"""
STEPS = """\
schema: orrery/study/1
name: tests/steps
command: program
axes:
  step:
"""
# Says who runs it, and takes its time.
STEP = """\
import os, sys, time
with open("{folder}/ran", "a") as ran:
    ran.write(sys.argv[1] + " " + os.environ.get("SLURM_ARRAY_TASK_ID", "none") + "\\n")
time.sleep(float(open("{folder}/pace").read()))
print("step," + sys.argv[1])"""


def contents(folder):
    """All files below a folder but for measured times."""
    return {str(path.relative_to(folder)): path.read_bytes()
            for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "timings.csv"}


class Slurm(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)
        study = self.folder / "study"  # whose files all decide the results of programs
        study.mkdir()
        (study / "pair.yaml").write_text(PAIR)
        (study / "plans.yaml").write_text(PLANS)
        (study / "steps.yaml").write_text(STEPS + "".join(
            f"    - {{name: s{i}, program: [bin/step, '{i}'], output: out.csv}}\n"
            for i in range(8)))
        # A build folder with a program of known pace, which says who ran it.
        for name in ("tools", "bin"):
            (self.folder / name).mkdir()
        self.script("tools/orrery", f'exec {ORRERY} "$@"')
        self.script("bin/step", STEP.format(folder=self.folder), "/usr/bin/python3")
        self.pace(0.3)
        self.environment = dict(CLUSTER.environment, XDG_CACHE_HOME=str(self.folder / "cache"),
                                ORRERY_PROGRAM=str(self.folder / "tools/orrery"))

    def script(self, name, text, program="/bin/sh"):
        path = self.folder / name
        path.write_text(f"#!{program}\n{text}\n")
        path.chmod(0o755)

    def pace(self, seconds):
        (self.folder / "pace").write_text(str(seconds))

    def start(self, study, results, *flags):
        return subprocess.Popen(
            [ORRERY, "run", self.folder / "study" / study, "--results", self.folder / results, "--workers",
             "1", *flags], env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, start_new_session=True)

    def run_study(self, study, results, *flags):
        call = self.start(study, results, *flags)
        out, _ = call.communicate(timeout=200)
        return call.returncode, out

    def ran(self):
        path = self.folder / "ran"
        return path.read_text().split("\n")[:-1] if path.exists() else []

    def wait_for(self, what, ready):
        end = time.monotonic() + 60
        while not ready():
            self.assertLess(time.monotonic(), end, f"{what} did not come")
            time.sleep(0.05)

    def job(self, results="r", name="tests/steps"):
        path = self.folder / results / name / "slurm/job"
        return path.read_text().strip() if path.exists() else ""

    def queue(self):
        return CLUSTER.command("squeue", "-h").strip()

    def expect_whole(self, results="r"):
        """What is left to do is done without Slurm, to the bytes of a study that never saw it."""
        self.pace(0)
        status, out = self.run_study("steps.yaml", results)
        self.assertEqual(status, 0, out)
        self.run_study("steps.yaml", "whole")
        got = contents(self.folder / results)
        logs = [name for name in got if "/slurm/" in name]
        self.assertEqual({name: text for name, text in got.items() if name not in logs},
                         contents(self.folder / "whole"))

    def test_gives_the_bytes_of_a_call_without_slurm(self):
        status, out = self.run_study("plans.yaml", "local")
        self.assertEqual(status, 0, out)
        status, out = self.run_study("plans.yaml", "slurm", "--slurm", "--nodes", "2",
                                     "--cache", "off")
        self.assertEqual(status, 0, out)
        self.assertIn("8 runs done", out)
        self.assertEqual(contents(self.folder / "slurm"), contents(self.folder / "local"))
        times = (self.folder / "slurm/tests/plans/timings.csv").read_text()
        self.assertEqual(len(times.splitlines()), 9, times)

    def test_tasks_share_the_runs(self):
        status, out = self.run_study("steps.yaml", "r", "--slurm", "--nodes", "2", "--time", "5",
                                     "--partition", "main", "--sbatch=--comment=test")
        self.assertEqual(status, 0, out)
        self.assertEqual(sorted(line.split()[0] for line in self.ran()), [str(i) for i in range(8)])
        self.assertEqual({line.split()[1] for line in self.ran()}, {"1", "2"})
        self.expect_whole()
        self.assertFalse((self.folder / "r/tests/steps/slurm").exists())
        status, out = self.run_study("steps.yaml", "r", "--slurm")
        self.assertEqual(status, 0, out)
        self.assertEqual(self.queue(), "")

    def test_scancel_loses_nothing(self):
        self.pace(1)
        call = self.start("steps.yaml", "r", "--slurm", "--nodes", "2")
        self.wait_for("a result", lambda: list(self.folder.glob("r/tests/steps/runs/*")))
        CLUSTER.command("scancel", self.job())
        out, _ = call.communicate(timeout=100)
        self.assertEqual(call.returncode, 1, out)
        self.assertRegex(out, r"task 1 of Slurm's job \d+ on \S+ was canceled")
        self.assertRegex(out, r"has ended with \d of 8 runs undone; the same command goes on")
        self.expect_whole()

    def test_ctrl_c_cancels_the_array(self):
        self.pace(1)
        call = self.start("steps.yaml", "r", "--slurm", "--nodes", "2")
        self.wait_for("a result", lambda: list(self.folder.glob("r/tests/steps/runs/*")))
        call.send_signal(signal.SIGINT)
        out, _ = call.communicate(timeout=100)
        self.assertEqual(call.returncode, 130, out)
        self.assertIn("interrupted", out)
        self.assertEqual(self.queue(), "")
        self.expect_whole()

    def test_a_call_that_dies_leaves_its_array_to_the_next(self):
        self.pace(1)
        call = self.start("steps.yaml", "r", "--slurm", "--nodes", "2")
        self.wait_for("a task", self.ran)
        job = self.job()
        call.kill()
        call.communicate()
        self.pace(0.1)
        status, out = self.run_study("steps.yaml", "r", "--slurm", "--nodes", "2")
        self.assertEqual(status, 0, out)
        self.assertEqual(len(self.ran()), 8)
        known = CLUSTER.command("scontrol", "show", "job", str(int(job) + 2))
        self.assertNotIn("ArrayTaskId=1", known)  # two tasks, two numbers, no second array
        self.expect_whole()

    def test_a_task_that_is_killed_leaves_its_runs_to_the_others(self):
        self.pace(1)
        call = self.start("steps.yaml", "r", "--slurm", "--nodes", "2")
        self.wait_for("both tasks", lambda: len({line.split()[1] for line in self.ran()}) == 2)
        CLUSTER.command("scancel", "--signal=KILL", "--full", self.job() + "_1")
        out, _ = call.communicate(timeout=100)
        self.assertEqual(call.returncode, 0, out)
        self.expect_whole()

    def test_a_time_limit_that_is_too_short_says_so(self):
        self.pace(600)
        call = self.start("steps.yaml", "r", "--slurm", "--time", "1")
        out, _ = call.communicate(timeout=240)
        self.assertEqual(call.returncode, 1, out)
        self.assertRegex(out, r"ran into its time limit of 1:00 \(--time sets it\)")
        self.assertIn("8 of 8 runs undone", out)
        self.expect_whole()

    def test_problems_are_said_as_slurm_says_them(self):
        status, out = self.run_study("steps.yaml", "r", "--slurm", "--partition", "nowhere")
        self.assertEqual(status, 1, out)
        self.assertIn("invalid partition", out)
        status, out = self.run_study("steps.yaml", "r", "--slurm",
                                     "--sbatch=--export=ALL,ORRERY_LIBRARY=/nowhere")
        self.assertEqual(status, 1, out)
        self.assertRegex(out, r"task 1 of Slurm's job \d+ .*ended with status 2: .*nowhere")
        status, out = self.run_study("steps.yaml", "r", "--slurm", "--time", "soon")
        self.assertEqual(status, 2, out)
        self.assertIn("--time: 'soon' is no time of Slurm", out)
        status, out = self.run_study("steps.yaml", "r", "--nodes", "2")
        self.assertEqual(status, 2, out)
        self.assertIn("--nodes: says nothing without slurm", out)
        self.expect_whole()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        try:
            with slurm_cluster.Cluster(place) as CLUSTER:
                done = unittest.main(exit=False)
        except slurm_cluster.Unavailable as reason:
            print("skipped:", reason)
            sys.exit(77)
    sys.exit(not done.result.wasSuccessful())
