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
MANIFEST = """schema: orrery/study/1
name: twin/small
command: twin
settings:
  cluster: {cluster}
  model: {model}
  job: job.yaml
  profile: profile.yaml
  steps: 4
  warm_up: 1
axes:
  run:
    - {{name: first, plan: {plan}, fit: true}}
    - {{name: again, planner: {{name: {planner}}}}}
    - {{name: same, planner: {{name: {planner}}}}}
    - {{name: loss, from: first, policy: hetu, kill: 3@3}}
"""
STORAGE = """schema: orrery/profile/1
name: slow_disk
storage:
  - {location: nvme, write: true, latency: 1 s, bandwidth: 1 GB/s, provenance: made up}
"""
BLOCKS = """schema: orrery/profile/1
name: other_length
block_times:
  - {gpu: A100-80GB, pass: forward, sequence_length: 64, dtype: fp32, time: 1 ms,
     provenance: made up}
"""
PHASES = """schema: orrery/profile/1
name: phases
phases:
  - {phase: detect, time: 10 ms, provenance: made up}
  - {phase: decide, time: 20 ms, provenance: made up}
  - {phase: reinitialize, time: 30 ms, provenance: made up}
  - {phase: move_state, time: 40 ms, provenance: made up}
"""


def twin_manifest(name, *plans):
    """With {root} left to fill in."""
    return "\n".join([
        "schema: orrery/study/1", f"name: twin/{name}", "command: twin", "settings:",
        "  cluster: {root}/experiments/executor/netlab_4.yaml",
        "  model: {root}/experiments/executor/tiny_llama.yaml", "  job: job.yaml",
        "  profile: profile.yaml", "  steps: 4", "  warm_up: 1", "axes:", "  run:",
        *(f"    - {{{{{plan}}}}}" for plan in plans), ""])


JOBS = twin_manifest("jobs", "name: plain, planner: {{name: fsdp}}",
                     "name: sharded, planner: {{name: fsdp}}, job: zero3.yaml, seen: a reason")
SMALL = twin_manifest(
    "small", "name: first, plan: {root}/experiments/executor/two_replicas.yaml, fit: true")
# Cells of a measurement that nothing was said about, by column of samples.csv.
DEFAULTS = "block,,transformer,forward,0,1,0,0,none,fp32,0,0,0,0,-1,-1,0,,all_reduce,0,none,0,0,0,0,0,0"
COMPONENTS = ["forward", "backward", "tensor_parallel", "pipeline", "data_parallel", "optimizer",
              "bubble"]


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def run_orrery(self, *words, before=(), **options):
        return subprocess.run([*before, ORRERY, *words], cwd=ROOT, text=True, capture_output=True,
                              env={**os.environ, "NO_COLOR": "1"}, **options)

    def succeed(self, *words):
        done = self.run_orrery(*words)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def refuse(self, *words):
        done = self.run_orrery(*words)
        self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
        return done.stderr

    def execute(self, *words, steps="5", name="run"):
        out = str(self.folder / name)
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

    def test_checkpoints_are_a_row_apart_from_the_iteration(self):
        plain = self.execute(steps="4")
        self.assertRegex(self.succeed("compare", plain), r"checkpoint +- +- +- +none written")
        none = json.loads(self.succeed("compare", plain, "--json"))["generations"][0]
        self.assertEqual((none["checkpoint"]["checkpoints"], none["checkpoint"]["problem"]), (0, ""))
        run = self.execute("--checkpoint-every", "2", "--checkpoints", str(self.folder / "saved"),
                           steps="7", name="saving")
        self.assertIn("checkpoint_places: [nvme]",
                      (Path(run) / "inputs" / "run.yaml").read_text())
        first = json.loads(self.succeed("compare", run, "--json"))["generations"][0]
        parts = first["checkpoint"]
        if "rank=R" in parts["problem"]:
            self.skipTest("this executor's checkpoint events carry no times: " + parts["problem"])
        self.assertEqual(parts["checkpoints"], 3)
        self.assertGreaterEqual(parts["parts"], 3)  # Of replicas one rank writes.
        self.assertGreater(parts["bytes"], 0)
        self.assertGreater(parts["measured_seconds"], 0)
        self.assertGreaterEqual(parts["longest_seconds"], parts["measured_seconds"])
        # Those of steps 3 to 6 that follow a checkpoint do not count.
        self.assertEqual(first["steps"], 2)
        times = {row["name"]: row for row in first["times"]}
        self.assertAlmostEqual(sum(times[name]["measured"] for name in COMPONENTS),
                               times["iteration"]["measured"], places=9)
        self.assertEqual(parts["problem"], "")
        self.assertIn("checkpoint: cluster: writing to nvme", first["prices"])
        self.assertGreater(parts["predicted_seconds"], 0)
        profile = self.folder / "profile.yaml"
        profile.write_text(STORAGE)
        priced = json.loads(self.succeed("compare", run, "--profile", str(profile), "--json"))
        parts = priced["generations"][0]["checkpoint"]
        self.assertEqual(parts["problem"], "")
        # The second write and the third wait for one that takes longer than two steps.
        self.assertGreater(parts["predicted_seconds"], 0.1)
        self.assertIn("checkpoint: profile: writing to nvme", priced["generations"][0]["prices"])

    def test_changed_inputs_are_told(self):
        run = self.execute(steps="4")
        generation = json.loads(self.succeed("compare", run, "--json"))["generations"][0]
        self.assertEqual(generation["notes"], [])
        plan = Path(run) / "inputs" / "plan.yaml"
        text = plan.read_text()
        plan.write_text(text.replace("blocks: 0-2", "blocks: 0-1").replace("3-5", "2-5"))
        self.assertNotEqual(plan.read_text(), text)
        self.assertIn("inputs/plan.yaml and the files next to it do not give the program that ran",
                      self.succeed("compare", run))
        notes = json.loads(self.succeed("compare", run, "--json"))["generations"][0]["notes"]
        self.assertEqual(len(notes), 1)
        plan.write_text(text)
        again = json.loads(self.succeed("compare", run, "--json"))["generations"][0]
        self.assertEqual(again["notes"], [])

    def test_changed_files_are_named_and_folders_without_hashes_are_not(self):
        run = self.execute("--elastic", "hetu", "--kill", "3@3", steps="6")

        def changed():
            notes = json.loads(self.succeed("compare", run, "--json"))["notes"]
            return [note for note in notes if note.startswith("Changed since the run")]

        self.assertEqual(changed(), [])
        inputs = Path(run) / "inputs"
        for name in ("cluster.yaml", "plan-1.yaml"):
            with open(inputs / name, "a") as file:
                file.write("# changed\n")
        self.assertEqual(changed(), [
            "Changed since the run: inputs/cluster.yaml, inputs/plan-1.yaml. Prices come from the "
            "changed files, not from what the run was given."])
        self.assertIn("Changed since the run: inputs/cluster.yaml", self.succeed("compare", run))
        text = (inputs / "run.yaml").read_text()
        (inputs / "run.yaml").write_text(text.replace("seed: 0", "seed: 1"))
        self.assertIn("inputs/run.yaml", changed()[0])
        (inputs / "run.yaml").write_text(text[:text.index("hashes:")])
        self.assertEqual(changed(), [])
        (inputs / "run.yaml").write_text(text.replace("precision: fp32", "precision: bf17"))
        self.assertRegex(self.refuse("compare", run),
                         r"run\.yaml:\d+:\d+: precision: unknown value 'bf17' "
                         r"\(did you mean 'bf16'\?\)")

    def test_what_the_profile_does_not_price_is_said(self):
        run = self.execute(steps="4")
        profile = self.folder / "profile.yaml"
        profile.write_text(BLOCKS)
        document = json.loads(self.succeed("compare", run, "--profile", str(profile), "--json"))
        self.assertEqual(document["generations"][0]["notes"],
                         ["profile: A100-80GB: no block time for sequence 16, only for 64: "
                          "roofline"])
        # Without links of class loopback, also of one node.
        self.assertIn("The ranks talked over loopback: links of 'a100_8' were not there",
                      document["notes"][0])
        profile.write_text(BLOCKS.replace("length: 64", "length: 16"))
        notes = json.loads(self.succeed("compare", run, "--profile", str(profile),
                                        "--json"))["generations"][0]["notes"]
        self.assertEqual(notes, ["profile: A100-80GB: no block time for 2 samples, only for 1 to 1:"
                                 " roofline",
                                 "profile: A100-80GB: no block time for tensor parallelism 2, only "
                                 "for 1: roofline"])

    def test_a_profile_of_this_machine_fits_the_cluster_of_this_machine(self):
        out = str(self.folder / "run")
        self.succeed("execute", "experiments/executor/two_stages.yaml", "--cluster",
                     "experiments/executor/this_machine.yaml", "--model", MODEL, "--dtype", "fp32",
                     "--sequence-length", "32", "--steps", "4", "--quiet", "--out", out)
        profile = self.folder / "machine"
        self.succeed("calibrate", "--quick", "--no-figure", "--quiet", "--only",
                     "block,point_to_point", "--sequence-length", "32", "--out", str(profile))
        document = json.loads(self.succeed("compare", out, "--profile",
                                           str(profile / "profile.yaml"), "--json"))
        self.assertEqual(document["notes"], [])
        self.assertEqual(document["generations"][0]["notes"], [])
        prices = document["generations"][0]["prices"]
        self.assertTrue([line for line in prices if line.startswith(
            "profile: links of class loopback")], prices)
        self.assertFalse([line for line in prices if line.startswith("roofline")], prices)

    def test_a_folder_that_cannot_be_written_is_refused_before_the_work(self):
        # There is no run: that is not looked at.
        for out in ("/dev/null/x", ""):
            text = self.refuse("compare", str(self.folder / "none"), "--out", out)
            self.assertIn("--out:", text)
        blocked = self.folder / "file"
        blocked.write_text("")
        self.assertIn("not a folder", self.refuse("compare", str(self.folder), "--out",
                                                  str(blocked)))
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["file"])

    def test_a_quick_profile_says_so_in_the_prices(self):
        run = self.execute(steps="4")
        out = self.folder / "quick"
        text = self.succeed("calibrate", "--quick", "--no-figure", "--quiet", "--only", "block",
                            "--sequence-length", "16", "--gpu-type", "A100-80GB", "--out", str(out))
        self.assertIn("Taken with --quick", text)
        document = json.loads(self.succeed("compare", run, "--profile", str(out / "profile.yaml"),
                                           "--json"))
        prices = [line for line in document["generations"][0]["prices"]
                  if line.startswith("profile:")]
        self.assertTrue(prices)
        for line in prices:
            self.assertIn("calibrate --quick: not for use", line)

    def test_a_recovery_has_phases_and_the_plan_that_followed(self):
        run = self.execute("--elastic", "hetu", "--kill", "3@3", steps="6")
        self.assertTrue((Path(run) / "inputs" / "plan-1.yaml").exists())
        document = json.loads(self.succeed("compare", run, "--json"))
        self.assertEqual([one["notes"] for one in document["generations"]], [[], []])
        second = document["generations"][1]
        phases = [row["phase"] for row in second["phases"]]
        self.assertEqual(phases, ["detect", "decide", "reinitialize", "move_state", "first_step"])
        measured = sum(row["measured_seconds"] for row in second["phases"])
        self.assertAlmostEqual(second["recovery"]["measured_seconds"], measured, places=9)
        # Without a profile only the first step is predicted: the reason is below the table.
        self.assertIsNone(second["recovery"]["predicted_seconds"])
        why = "not predicted: detect, decide, reinitialize, move_state: the profile has no such " \
              "phases"
        self.assertIn(why, second["phases_problem"])
        text = self.succeed("compare", run)
        self.assertIn(why, text)
        self.assertRegex(text, r"total +- +\d")
        profile = self.folder / "profile.yaml"
        profile.write_text(PHASES)
        document = json.loads(self.succeed("compare", run, "--profile", str(profile), "--json"))
        second = document["generations"][1]
        self.assertEqual(second["phases_problem"], "")
        self.assertAlmostEqual(second["recovery"]["predicted_seconds"],
                               sum(row["predicted_seconds"] for row in second["phases"]), places=9)
        self.assertIsNone(document["generations"][0]["recovery"])
        text = self.succeed("compare", run, "--profile", str(profile))
        self.assertNotIn("not predicted: detect", text)
        self.assertRegex(text, r"total +\d")

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


class Calibration(Case):
    def test_without_samples_there_is_nothing_to_fit(self):
        out = self.folder / "nope"
        said = self.refuse("calibrate", "--fit-only", "--out", str(out))
        self.assertEqual(said.count("nope"), 1, said)
        self.assertIn("samples.csv: cannot read: No such file", said)
        self.assertFalse(out.exists())

    def test_entries_with_one_measurement_have_held_out_repetitions_and_no_error_of_zero(self):
        out = self.folder / "profile"
        text = self.succeed("calibrate", "--quick", "--quiet", "--only", "block,op_overhead",
                            "--sequence-length", "16", "--out", str(out))
        self.assertRegex(text, r"fit error % +held out % +worst held out % +repetitions %")
        self.assertIn("repetitions: entries with one measurement", text)
        rows = list(csv.DictReader((out / "entries.csv").read_text().splitlines()))
        once = [row for row in rows if row["held_out"] == "repetitions"]
        self.assertTrue([row for row in once if " head " in row["entry"]])
        for row in once:
            self.assertGreaterEqual(float(row["held_out_max_error"]), 0)
            self.assertTrue(row["fit_mean_error"] == "" or float(row["fit_mean_error"]) > 1e-9, row)
        self.assertTrue([row for row in rows if row["held_out"] == "measurements"])
        for name in ("repetitions.png", "repetitions.pdf", "errors.png"):
            self.assertGreater((out / name).stat().st_size, 1000, name)
        samples = [line for line in (out / "samples.csv").read_text().splitlines()
                   if not line.startswith("#")]
        for row in csv.DictReader(samples):
            self.assertEqual(row["collective"], "")
            self.assertEqual(row["block"] == "", row["kind"] == "op_overhead")
        # Samples that were written with defaults in those cells give the same fit.
        before = (out / "entries.csv").read_bytes()
        full = [samples[0]]
        defaults = dict(zip(samples[0].split(","), DEFAULTS.split(",")))
        for row in csv.DictReader(samples):
            full.append(",".join(cell or defaults[name] for name, cell in row.items()))
        head = [line for line in (out / "samples.csv").read_text().splitlines()
                if line.startswith("#")]
        (out / "samples.csv").write_text("\n".join(head + full) + "\n")
        self.succeed("calibrate", "--quick", "--quiet", "--no-figure", "--fit-only",
                     "--sequence-length", "16", "--out", str(out))
        self.assertEqual((out / "entries.csv").read_bytes(), before)


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
        dry = self.twin(manifest, "--dry-run")
        self.assertRegex(dry, r"first .* to run")
        self.assertRegex(dry, r"again .* to plan and run")
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
        self.assertEqual([row["phase"] for row in self.rows("phases.csv")][-1], "total")
        self.assertIn("detect", {row["phase"] for row in self.rows("phases.csv")})
        for row in self.rows("errors.csv"):
            self.assertGreaterEqual(float(row["disturbed_share"]), 0)
        self.assertRegex(text, r"target +disturbed +worst")
        metrics = {(row["set"], row["metric"]) for row in self.rows("errors.csv")}
        self.assertIn(("predict", "iteration"), metrics)
        # A second start executes nothing.
        before = {path: path.stat().st_mtime_ns for path in self.folder.glob("out/runs/*/twin.key")}
        self.assertEqual(len(before), 3)
        self.assertNotIn("to run", self.twin(manifest, "--dry-run", "--only", "first"))
        dry = self.twin(manifest, "--dry-run")
        self.assertNotIn("to run", dry)
        self.assertRegex(dry, r"same .* skipped: the plan of again")
        # What a killed call was writing an hour ago goes; what a call writes now stays.
        left = self.folder / "out" / "runs" / "first" / "timeline.csv.tmp.99999999.0"
        new = self.folder / "out" / "plans" / "again.yaml.tmp.99999999.0"
        for path in (left, new):
            path.write_text("half")
        os.utime(left, (time.time() - 3600,) * 2)
        self.twin(manifest)
        self.assertEqual(before, {path: path.stat().st_mtime_ns for path in before})
        self.assertFalse(left.exists())
        self.assertTrue(new.exists())

    def test_a_quick_calibration_does_not_stand_in_for_the_full_one(self):
        manifest = Path(self.manifest(planner="fsdp"))
        manifest.write_text(manifest.read_text().replace("  profile: profile.yaml\n", ""))
        self.twin(str(manifest), "--only", "again", "--quick")
        folder = self.folder / "out" / "calibration" / "compute"
        samples, last = folder / "samples.csv", folder / "calibrate.json"
        self.assertIn("# sampling: quick", samples.read_text())
        self.assertTrue(last.exists())
        # The full one takes long: it is enough that it begins.
        full = subprocess.Popen([ORRERY, "twin", str(manifest), "--results",
                                 str(self.folder / "out"), "--loopback", "--no-figure", "--only",
                                 "again"], cwd=ROOT, stdout=subprocess.DEVNULL,
                                stderr=subprocess.DEVNULL)
        for _ in range(600):
            if full.poll() is not None or (not last.exists() and samples.exists()):
                break
            time.sleep(0.05)
        full.send_signal(signal.SIGINT)
        self.assertEqual(full.wait(60), 130)
        self.assertFalse(last.exists())
        self.assertNotIn("# sampling: quick", samples.read_text())

    def test_a_planner_without_a_plan_is_skipped_with_the_reason(self):
        manifest = self.manifest(planner="fsdp")
        (self.folder / "notes.md").write_text("### What is measured\n")
        self.twin(manifest, "--only", "again")
        rows = {row["run"]: row for row in self.rows("twin.csv")}
        self.assertEqual(rows["again"]["status"], "skipped")
        self.assertRegex(rows["again"]["problem"], r"^no plan \(ZeRO stage\): for example \S")
        self.assertEqual(rows["again"]["problem"].count("no plan"), 1)
        self.assertRegex(self.twin(manifest, "--dry-run", "--only", "again"),
                         r"again .* skipped: no plan \(ZeRO stage\)")
        notes = (self.folder / "out" / "notes.md").read_text()
        self.assertTrue(notes.startswith("Network: loopback."), notes)
        self.assertIn("### What is measured", notes)

    def test_a_plan_may_have_a_job_of_its_own(self):
        (self.folder / "job.yaml").write_text(JOB)
        allowed = "allowed: {zero_stages: [3]}\n"
        (self.folder / "zero3.yaml").write_text(JOB + allowed)
        (self.folder / "profile.yaml").write_text("schema: orrery/profile/1\nname: none\n")
        manifest = self.folder / "manifest.yaml"
        manifest.write_text(JOBS.format(root=Path(ROOT).resolve()))
        self.twin(str(manifest))
        rows = {row["run"]: row for row in self.rows("twin.csv")}
        self.assertEqual(rows["plain"]["status"], "skipped")
        self.assertEqual((rows["sharded"]["status"], rows["sharded"]["set"]), ("ok", "seen"))
        plan = (self.folder / "out" / "plans" / "sharded.yaml").read_text()
        self.assertRegex(plan, r"stage: 3")
        key = self.folder / "out" / "runs" / "sharded" / "twin.key"
        before = key.stat().st_mtime_ns
        self.assertNotIn("to run", self.twin(str(manifest), "--dry-run"))
        # Another job is another run.
        (self.folder / "zero3.yaml").write_text(JOB + allowed + "# changed\n")
        self.assertRegex(self.twin(str(manifest), "--dry-run"), r"sharded .* to run")
        self.assertEqual(key.stat().st_mtime_ns, before)

    def test_jobs_of_plans_must_be_there_and_of_the_same_lengths(self):
        (self.folder / "job.yaml").write_text(JOB)
        (self.folder / "profile.yaml").write_text("schema: orrery/profile/1\nname: none\n")
        (self.folder / "zero3.yaml").write_text(
            JOB.replace("sequence_length: 16", "sequence_length: 32")
               .replace("dtype: fp32", "dtype: bf16"))
        manifest = self.folder / "manifest.yaml"
        text = JOBS.format(root=Path(ROOT).resolve())
        manifest.write_text(text)
        said = self.refuse("twin", str(manifest), "--dry-run")
        self.assertRegex(said, r"manifest\.yaml:14:\d+: job: sequence length 32, the manifest's job "
                               r"has 16")
        self.assertRegex(said, r"manifest\.yaml:14:\d+: job: dtype bf16, the manifest's job has fp32")
        manifest.write_text(text.replace("zero3.yaml", "none.yaml"))
        self.assertRegex(self.refuse("twin", str(manifest), "--dry-run"),
                         r"manifest\.yaml:14:\d+: no such job")
        manifest.write_text(text.replace("seen: a reason", "seen: a reason, fit: true")
                            .replace("job: zero3.yaml, ", ""))
        self.assertIn("seen: a run for fitting is none of the predicted ones",
                      self.refuse("twin", str(manifest), "--dry-run"))

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

    def without_namespaces(self):
        """Words before a command that may not make namespaces, or skips."""
        before = []
        if os.geteuid() == 0:
            before = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"]
        try:
            tried = subprocess.run([*before, "unshare", "--net", "true"], capture_output=True,
                                   text=True)
        except FileNotFoundError as error:
            self.skipTest(str(error))
        if tried.returncode == 0 or "unshare" not in tried.stderr:
            self.skipTest(f"namespaces cannot be taken away here: {tried.stderr}")
        return before

    def test_without_namespaces_ranks_talk_over_loopback_and_it_is_said(self):
        before = self.without_namespaces()
        (self.folder / "job.yaml").write_text(JOB)
        (self.folder / "profile.yaml").write_text("schema: orrery/profile/1\nname: none\n")
        manifest = self.folder / "manifest.yaml"
        manifest.write_text(SMALL.format(root=Path(ROOT).resolve()))
        done = self.run_orrery("twin", str(manifest), "--results", str(self.folder / "out"),
                               "--no-figure", before=before)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("no emulated network: network namespaces are not permitted here", done.stderr)
        self.assertIn("ranks talk over loopback instead", done.stderr)
        self.assertIn("over loopback: the network is not the cluster's", done.stdout)
        self.assertEqual([row["network"] for row in self.rows("twin.csv")], ["loopback"])
        compared = self.run_orrery("compare", str(self.folder / "out" / "runs" / "first"),
                                   before=before)
        self.assertEqual(compared.returncode, 0, compared.stderr)
        self.assertIn("The ranks talked over loopback", compared.stdout)

    def test_flags_that_do_not_fit_the_manifest_are_refused(self):
        manifest = self.manifest()
        results = ("--results", str(self.folder / "out"))
        self.assertIn("--only: no run has 'agian' in its name (did you mean 'again'?)",
                      self.refuse("twin", manifest, *results, "--only", "agian"))
        self.assertIn("--only", self.refuse("twin", manifest, *results, "--only", ""))
        self.assertIn("--only: no run has 'agian' in its name",
                      self.refuse("twin", manifest, *results, "--only", "same,agian"))
        listed = self.succeed("twin", manifest, *results, "--dry-run", "--only", "same,los")
        self.assertEqual([line.split()[0] for line in listed.splitlines()[1:]],
                         ["first", "same", "loss"])
        self.assertIn("--steps: 'loss' kills a rank in step 3 of 2",
                      self.refuse("twin", manifest, *results, "--steps", "2"))
        blocked = self.folder / "blocked"
        blocked.write_text("")
        self.assertIn("--results: cannot write into",
                      self.refuse("twin", manifest, "--results", str(blocked)))
        self.assertFalse((self.folder / "out").exists())

    def test_kills_must_be_of_ranks_and_steps_that_there_are(self):
        path = Path(self.manifest())
        text = path.read_text()
        path.write_text(text.replace("3@3", "4@3"))
        self.assertRegex(self.refuse("twin", str(path), "--dry-run"),
                         r"manifest\.yaml:16:\d+: kill: rank 4 of 4, of plan 'first'")
        path.write_text(text.replace("3@3", "3@5"))
        self.assertRegex(self.refuse("twin", str(path), "--dry-run"),
                         r"manifest\.yaml:16:\d+: kill: step 5 of 4")
        path.write_text(text.replace("3@3", "x"))
        self.assertRegex(self.refuse("twin", str(path), "--dry-run"),
                         r"manifest\.yaml:16:\d+: 'x' is not RANK@STEP")
        path.write_text(text.replace("profile: profile.yaml", "profile: none.yaml"))
        self.assertRegex(self.refuse("twin", str(path), "--dry-run"),
                         r"manifest\.yaml:8:\d+: no such profile")

    def test_all_problems_of_a_manifest_are_named(self):
        text = self.refuse("twin", self.manifest(planner="deepsped", plan="none.yaml"))
        self.assertIn("deepsped", text)
        self.assertIn("did you mean 'deepspeed'", text)
        self.assertIn("no such plan", text)
        self.assertIn("manifest.yaml:13:", text)
        self.assertFalse((self.folder / "out").exists())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
