#!/usr/bin/python3
"""orrery compare and orrery twin as a user runs them. Asserts no times: the machine may be busy.

    cli_test.py ORRERY ROOT
"""

import csv
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
PLAN = "experiments/executor/two_replicas.yaml"
MODEL = "experiments/executor/tiny_llama.yaml"
JOB = """schema: orrery/job/1
global_batch: 16
sequence_length: 16
dtype: fp32
state_bytes: {weight: 4, gradient: 4, master: 0, moments: 8}
"""
MANIFEST = """schema: orrery/twin/1
name: small
cluster: {cluster}
model: {model}
job: job.yaml
profile: profile.yaml
steps: 4
warm_up: 1
plans:
  - {{name: first, plan: {plan}, fit: true}}
  - {{name: again, planner: {planner}}}
  - {{name: same, planner: {planner}}}
recoveries:
  - {{name: loss, plan: first, policy: hetu, kill: 3@3}}
"""
COMPONENTS = ["forward", "backward", "tensor_parallel", "pipeline", "data_parallel", "optimizer",
              "bubble"]


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def run_orrery(self, *words, **options):
        return subprocess.run([ORRERY, *words], cwd=ROOT, text=True, capture_output=True,
                              env={**os.environ, "NO_COLOR": "1"}, **options)

    def succeed(self, *words):
        done = self.run_orrery(*words)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def refuse(self, *words):
        done = self.run_orrery(*words)
        self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
        return done.stderr

    def execute(self, *words, steps="5"):
        out = str(self.folder / "run")
        (self.folder / "job.yaml").write_text(JOB)
        self.succeed("execute", PLAN, "--cluster", "a100_8", "--model", MODEL, "--job",
                     str(self.folder / "job.yaml"), "--steps", steps, "--quiet", "--out", out,
                     *words)
        return out


class Compare(Case):
    def test_components_add_up_and_memory_and_ops_are_there(self):
        run = self.execute("--slowdown", "1=1.5")
        document = json.loads(self.succeed("compare", run, "--json"))
        generation = document["generations"][0]
        self.assertEqual(generation["problem"], "")
        times = {row["name"]: row for row in generation["times"]}
        for side in ("predicted", "measured"):
            parts = sum(times[name][side] for name in COMPONENTS)
            self.assertAlmostEqual(parts, times["iteration"][side], places=9)
        self.assertEqual([row["rank"] for row in generation["memory"]], [0, 1, 2, 3])
        for row in generation["memory"]:
            self.assertGreater(row["predicted_bytes"], 0)
            self.assertGreater(row["measured_bytes"], 0)
        self.assertEqual(len(generation["worst_ops"]), 10)
        self.assertGreater(generation["compute_ops"], 0)
        self.assertTrue(generation["prices"])

    def test_slowdowns_of_the_run_are_simulated(self):
        run = self.execute("--slowdown", "0=1.25", steps="2")
        fast = json.loads(self.succeed("compare", run, "--json"))["generations"][0]
        inputs = Path(run) / "inputs" / "run.yaml"
        inputs.write_text(inputs.read_text().replace("1.25", "100000"))
        slow = json.loads(self.succeed("compare", run, "--json"))["generations"][0]
        self.assertGreater(slow["times"][0]["predicted"], 10 * fast["times"][0]["predicted"])

    def test_writes_timelines_and_a_figure(self):
        run = self.execute()
        out = self.folder / "compared"
        text = self.succeed("compare", run, "--out", str(out))
        self.assertIn("Ops that are furthest off", text)
        self.assertIn("Peak memory", text)
        for name in ("comparison.json", "timeline-0.csv", "timeline-0.png", "timeline-0.pdf"):
            self.assertGreater((out / name).stat().st_size, 100, name)
        lines = (out / "timeline-0.csv").read_text().splitlines()
        sides = {row["side"] for row in csv.DictReader(lines)}
        self.assertEqual(sides, {"predicted", "measured"})

    def test_a_recovery_has_phases_and_the_plan_that_followed(self):
        run = self.execute("--elastic", "hetu", "--kill", "3@3", steps="6")
        self.assertTrue((Path(run) / "inputs" / "plan-1.yaml").exists())
        document = json.loads(self.succeed("compare", run, "--json"))
        phases = [row["phase"] for row in document["generations"][1]["phases"]]
        self.assertEqual(phases, ["detect", "decide", "reinitialise", "move_state", "first_step"])

    def test_bad_input_is_named(self):
        self.assertIn("no such run", self.refuse("compare", str(self.folder / "none")))
        self.assertIn("holds no generation", self.refuse("compare", str(self.folder)))
        run = self.execute(steps="2")
        self.assertIn("none is left", self.refuse("compare", run, "--warm-up", "1000"))
        log = Path(run) / "generation-0" / "run.log"
        log.write_bytes(log.read_bytes()[:-7])
        self.assertIn("run.log", self.refuse("compare", run))
        self.assertIn("did you mean 'a100_8'", self.refuse("compare", run, "--cluster", "a100_8x"))
        self.assertIn("--warm-up", self.refuse("compare", run, "--warm-up", "-1"))


class Twin(Case):
    def manifest(self, planner="deepspeed", **more):
        (self.folder / "job.yaml").write_text(JOB)
        (self.folder / "profile.yaml").write_text("schema: orrery/profile/1\nname: none\n")
        path = self.folder / "manifest.yaml"
        names = {"cluster": "a100_8", "model": str(Path(ROOT).resolve() / MODEL),
                 "plan": str(Path(ROOT).resolve() / PLAN), "planner": planner, **more}
        path.write_text(MANIFEST.format(**names))
        return str(path)

    def twin(self, manifest, *words):
        return self.succeed("twin", manifest, "--results", str(self.folder / "out"), "--loopback",
                            "--no-figure", *words)

    def rows(self, name):
        return list(csv.DictReader((self.folder / "out" / name).read_text().splitlines()))

    def test_runs_fits_predicts_and_goes_on(self):
        manifest = self.manifest()
        self.assertIn("to run", self.twin(manifest, "--dry-run"))
        text = self.twin(manifest)
        self.assertIn("over loopback", text)
        rows = {row["run"]: row for row in self.rows("twin.csv")}
        self.assertEqual(rows["first"]["set"], "fit")
        self.assertEqual(rows["first"]["status"], "ok")
        self.assertEqual(rows["again"]["set"], "predict")
        self.assertEqual(rows["same"]["status"], "skipped")
        self.assertIn("the plan of again", rows["same"]["problem"])
        self.assertEqual(rows["loss"]["set"], "recovery")
        for row in rows.values():
            self.assertEqual(None in row, False, "columns of the header and of the row differ")
        parts = sum(float(rows["again"][f"{name}_of_iteration"]) for name in COMPONENTS)
        self.assertAlmostEqual(parts, float(rows["again"]["iteration_error"]), places=6)
        self.assertIn("detect", {row["phase"] for row in self.rows("phases.csv")})
        metrics = {(row["set"], row["metric"]) for row in self.rows("errors.csv")}
        self.assertIn(("predict", "iteration"), metrics)
        # A second start executes nothing.
        before = {path: path.stat().st_mtime_ns for path in self.folder.glob("out/runs/*/twin.key")}
        self.assertEqual(len(before), 3)
        self.assertNotIn("to run", self.twin(manifest, "--dry-run", "--only", "first"))
        self.twin(manifest)
        self.assertEqual(before, {path: path.stat().st_mtime_ns for path in before})

    def test_interrupted_it_keeps_what_is_finished(self):
        manifest = self.manifest()
        process = subprocess.Popen(
            [ORRERY, "twin", manifest, "--results", str(self.folder / "out"), "--loopback",
             "--steps", "3000"], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            text=True)
        for _ in range(600):
            if (self.folder / "out" / "runs" / "first.part" / "inputs").exists():
                break
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130, err)
        self.assertIn("interrupted", err)
        self.assertFalse((self.folder / "out" / "runs" / "first").exists())

    def test_all_problems_of_a_manifest_are_named(self):
        text = self.refuse("twin", self.manifest(planner="deepsped", plan="none.yaml"))
        self.assertIn("deepsped", text)
        self.assertIn("did you mean 'deepspeed'", text)
        self.assertIn("no such plan", text)
        self.assertIn("manifest.yaml:10:", text)
        self.assertFalse((self.folder / "out").exists())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
