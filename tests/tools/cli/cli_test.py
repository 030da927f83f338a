#!/usr/bin/python3
"""Runs the binary as a user would, from the root of the repository.

    cli_test.py BINARY SOURCE_DIR [unittest arguments]
"""

import csv
import json
import os
import pty
import re
import resource
import shlex
import signal
import socket
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
COMMANDS = ["run", "plan", "simulate", "validate", "diff", "list", "schema", "mixed-length",
            "switch", "replay", "execute", "calibrate", "annotate"]


def orrery(*args, **kwargs):
    kwargs.setdefault("cwd", ROOT)
    kwargs.setdefault("stdout", subprocess.PIPE)
    return subprocess.run([BINARY, *args], stderr=subprocess.PIPE, text=True, timeout=300, **kwargs)


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
        if "ORRERY_TOKEN=" in line:
            words = shlex.split(line.split(": ", 2)[2])
            return words[1:], {**os.environ, "ORRERY_TOKEN": words[0].removeprefix("ORRERY_TOKEN=")}
    raise AssertionError(f"the launcher ended: {process.wait()}")


def rows_of(path):
    """Of a CSV file."""
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


def examples():
    """(command, words) of the example in each help."""
    for command in COMMANDS:
        lines = orrery(command, "--help").stdout.splitlines()
        example = lines[lines.index("EXAMPLE") + 1].split()
        assert example[0] == "orrery", example
        yield command, example[1:]


class Help(Case):
    def test_examples_work_from_the_root_of_the_repository(self):
        for command, words in examples():
            if command in ("run", "mixed-length", "replay"):
                words += ["--results", str(self.folder)]
            if command == "calibrate":
                words += ["--out", str(self.folder)]
            with self.subTest(command):
                self.assertTrue(self.succeed(*words).strip())

    def test_version_is_the_projects(self):
        self.assertRegex(self.succeed("--version"), r"^orrery \d+\.\d+\.\d+\+[0-9a-f]{8}\n$")

    def test_nothing_at_all_shows_the_help_and_fails(self):
        done = orrery()
        self.assertEqual(done.returncode, 2)
        self.assertIn("Commands:", done.stderr)

    def test_no_colors_in_a_pipe_nor_with_no_color(self):
        self.assertNotIn("\033", self.succeed("list", "clusters"))
        for extra, colored in (({}, True), ({"NO_COLOR": "1"}, False)):
            mine, theirs = pty.openpty()
            environment = {k: v for k, v in os.environ.items() if k != "NO_COLOR"}
            environment.update(TERM="xterm", **extra)
            done = orrery("list", "schedules", stdout=theirs, env=environment)
            os.close(theirs)
            shown = os.read(mine, 65536)
            os.close(mine)
            self.assertEqual(done.returncode, 0)
            self.assertEqual(b"\033" in shown, colored)


class Trace(Case):
    LINES = "# schema: orrery/trace/1\n# horizon: 100\n# nodes: a{0..1} x2\ntime,kind,scope\n"

    def generate(self, *args):
        return self.succeed("trace", "generate", "llama3", "--gpus", "1024", "--days", "20", *args)

    def test_examples_work_from_the_root_of_the_repository(self):
        for command in ([], ["generate"], ["stats"], ["import"]):
            with self.subTest(command):
                lines = self.succeed("trace", *command, "--help").splitlines()
                words = lines[lines.index("EXAMPLE") + 1].split()
                self.assertTrue(self.succeed(*words[1:]).strip())

    def test_help_and_errors_name_the_command_below(self):
        self.assertIn("Usage: orrery trace generate", self.succeed("trace", "generate", "--help"))
        self.refuse("trace", "stats", says=["trace is required", "See: orrery trace stats --help"])
        self.refuse("trace", says="See: orrery trace --help")
        self.refuse("trace", "stat", says="See: orrery trace --help")
        self.refuse("trace", "generate", "llama3", "--sed", "1", says="did you mean '--seed'?")

    def test_same_seed_same_bytes(self):
        self.assertEqual(self.generate("--seed", "3"), self.generate("--seed", "3"))
        self.assertNotEqual(self.generate("--seed", "3"), self.generate("--seed", "4"))

    def test_conditioned_trace_has_the_table_s_counts(self):
        path = str(self.folder / "t.csv")
        self.succeed("trace", "generate", "llama3", "--cluster", "llama3_16384", "--conditioned",
                     "-o", path)
        stats = self.document("trace", "stats", path)
        self.assertEqual(stats["failures"], 419)
        self.assertEqual(stats["announced"], 47)
        counts = {(row["kind"], row["cause"]): row["events"] for row in stats["counts"]}
        self.assertEqual(counts["fail", "Faulty GPU"], 148)
        self.assertEqual(counts["fail", "Network Switch/Cable"], 35)
        self.assertIn("unexpected: 419", self.succeed("trace", "stats", path))

    def test_bad_flags_are_named_together(self):
        self.refuse("trace", "generate", "lama3", "--days", "0", "--seed", "x", says=[
            "no trace generator 'lama3' (did you mean 'llama3'?)", "--days: '0' is not above 0",
            "--seed: ", "--gpus: is missing"])
        self.refuse("trace", "generate", "llama3", "--gpus", "12", says="12 GPUs in nodes of 8")
        self.refuse("trace", "generate", "llama3", "--gpus", "8", "--cluster", "a100_8",
                    says="--gpus: says what --cluster says")
        self.refuse("trace", "generate", "llama3", "--gpus", "8", "--set", "failures.rat=2",
                    says="rat")
        self.refuse("trace", "generate", "spot", "--gpus", "8", "--conditioned",
                    says="the generator has no failures")
        self.refuse("trace", "import", "bambo", "tests/traces/bamboo.csv",
                    says="unknown format 'bambo' (did you mean 'bamboo'?)")

    def test_bad_traces_are_named_with_their_place(self):
        path = self.write("t.csv", self.LINES + "1,fail,node:b\n0,leave,node:a0\n")
        self.refuse("trace", "stats", path, says=[f"{path}:5:8: unknown node 'b'",
                                                  f"{path}:6:1: time goes back"])
        self.refuse("trace", "stats", self.write("e.csv", ""), says=":1:1: the file is empty")
        self.refuse("trace", "stats", str(self.folder / "none.csv"), says="cannot read: No such file")
        self.refuse("trace", "import", "gcp", self.write("g.csv", "2021-01-01, 1\n"),
                    says=":1:1: 2 cells instead of 3")
        done = orrery("trace", "import", "aws", str(self.folder / "none.csv"))
        self.assertEqual((done.returncode, done.stderr.count("\n")), (2, 1), done.stderr)
        self.refuse("trace", "import", "gcp", "tests/traces/bamboo.csv",
                    says=":1:1: '0' is no date (looks like bamboo: ")
        self.refuse("trace", "stats", path, "--figure", "x.svg", says="--figure: 'x.svg'")

    def test_large_traces_and_nodes_are_refused_before_they_are_made(self):
        self.refuse("trace", "import", "bamboo", "tests/traces/bamboo.csv", "--days", "36525",
                    says="--days: repeats the trace to")
        for command in (["generate", "llama3", "--gpus", "8"],
                        ["import", "bamboo", "tests/traces/bamboo.csv"]):
            self.refuse("trace", *command, "--gpus-per-node", "99999999999",
                        says="--gpus-per-node: at most 1024")

    def test_the_curve_may_go_to_standard_output(self):
        shown = self.succeed("trace", "stats", "tests/traces/small.csv", "--csv", "-")
        self.assertTrue(shown.startswith("time,gpu_type,nodes,available\n0,A100-80GB,2,16\n"), shown)
        self.refuse("trace", "stats", "tests/traces/small.csv", "--csv", "-", "--json",
                    says="both write to standard output")
        self.assertEqual(self.generate("--seed", "3"), self.generate("--seed", "3", "-o", "-"))

    def test_import_combines_one_file_per_type_and_repeats(self):
        bamboo = "tests/traces/bamboo.csv"
        path = str(self.folder / "two.csv")
        self.succeed("trace", "import", "bamboo", bamboo, bamboo, "--gpu-type", "A", "--gpu-type",
                     "B", "--days", "1", "-o", path)
        stats = self.document("trace", "stats", path)
        self.assertEqual([row["gpu_type"] for row in stats["types"]], ["A", "B"])
        self.assertEqual(stats["horizon_hours"], 24)
        self.assertAlmostEqual(stats["types"][0]["mean_nodes"], 2 / 3, 3)
        self.refuse("trace", "import", "bamboo", bamboo, bamboo, "--gpu-type", "A",
                    says="--gpu-type: given 1 times for 2 files")

    def test_curve_and_figure_are_written(self):
        curve, figure = self.folder / "curve.csv", self.folder / "figure.png"
        self.succeed("trace", "stats", "tests/traces/small.csv", "--csv", str(curve), "--figure",
                     str(figure))
        rows = rows_of(curve)
        self.assertEqual(rows[0], {"time": "0", "gpu_type": "A100-80GB", "nodes": "2",
                                   "available": "16"})
        self.assertEqual(rows[-1]["time"], "36000")
        self.assertTrue(figure.read_bytes().startswith(b"\x89PNG"))

    def test_a_trace_may_come_through_a_pipe(self):
        with open(ROOT / "tests/traces/small.csv", encoding="utf-8") as file:
            piped = self.succeed("trace", "stats", "/dev/stdin", stdin=file)
        self.assertEqual(piped, self.succeed("trace", "stats", "tests/traces/small.csv"))

    def test_commands_of_the_guide_run(self):
        text = (ROOT / "docs/howto/import-a-trace.md").read_text(encoding="utf-8")
        commands = [line.strip() for line in text.splitlines() if line.startswith("    tools/")]
        self.assertGreaterEqual(len(commands), 6)
        for command in commands:
            words = shlex.split(command.replace("/tmp/", f"{self.folder}/"))
            with self.subTest(command):
                self.succeed(*words[1:])


HETU = "experiments/hetu/plans"
H20 = ["--cluster", "hetu_32h20", "--model", "hetu_32b", "--sequence-length", "4096"]


class Switch(Case):
    C1_C2 = [f"{HETU}/c1.yaml", f"{HETU}/c2.yaml", *H20]

    def test_the_busiest_nic_decides_the_simulated_time(self):
        found = self.document("switch", *self.C1_C2, "--lost", "31")
        # A NIC reaches 90 % of 400 Gb/s; nobody receives as much as the busiest one sends.
        busiest = max(device["sent_bytes"]["network"] for device in found["devices"])
        self.assertAlmostEqual(found["simulated_seconds"], busiest / 45e9, places=4)
        self.assertEqual(found["lost"], [])

    def test_variants_move_the_same_and_heuristics_are_faster(self):
        found = {name: self.document("switch", *self.C1_C2, "--lost", "31", "--variant", name)
                 for name in ("fused", "unfused", "no-heuristics")}
        totals = {sum(each["moved_bytes"].values()) for each in found.values()}
        self.assertEqual(len(totals), 1)
        self.assertLess(found["fused"]["messages"], found["unfused"]["messages"])
        self.assertLess(found["fused"]["simulated_seconds"],
                        found["no-heuristics"]["simulated_seconds"])

    def test_all_states_are_fourteen_bytes_instead_of_six(self):
        some, whole = (sum(self.document("switch", *self.C1_C2, "--state", state)["moved_bytes"].values())
                       for state in ("weights", "all"))
        self.assertAlmostEqual(whole / some, 14 / 6)

    def test_to_the_same_plan_nothing_moves_and_nothing_takes_time(self):
        found = self.document("switch", f"{HETU}/c1.yaml", f"{HETU}/c1.yaml", *H20)
        self.assertEqual((found["messages"], found["simulated_seconds"]), (0, 0))
        self.assertGreater(found["kept_bytes"], 0)

    def test_state_on_lost_devices_only_is_named_and_fails(self):
        args = ["switch", f"{HETU}/table5_32b_16h800_24h20.yaml", f"{HETU}/c6.yaml", "--cluster",
                "hetu", *H20[2:], "--lost", "15"]
        done = orrery(*args)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stdout, r"41-53 +attention.query +56-63 of 64 +optimizer states")
        lost = json.loads(orrery(*args, "--json").stdout)["lost"]
        self.assertEqual({each["held_by"] for each in lost}, {"15"})

    def test_text_says_the_unit_and_what_is_lost(self):
        text = self.succeed("switch", *self.C1_C2, "--lost", "31")
        for said in ("thousandth of a GiB", "lost state: none", "6 bytes per parameter"):
            self.assertIn(said, text)

    def test_bad_input(self):
        self.refuse("switch", *self.C1_C2, "--lost", "3x,5-2", "--state", "al", "--variant", "fuse",
                    says=["--lost: '3x' is no device and no range",
                          "--lost: '5-2' is no device and no range",
                          "--state: unknown value 'al' (did you mean 'all'?",
                          "--variant: unknown value 'fuse' (did you mean 'fused'?"])
        self.refuse("switch", *self.C1_C2, "--lost", "30,99",
                    says=["--lost: device 30 is lost, but the new plan uses it",
                          "--lost: no device 99"])
        self.refuse("switch", f"{HETU}/c1.yaml", *H20, says="to is required")


class BadInput(Case):
    def test_flags(self):
        self.refuse("plna", says="unknown command 'plna' (did you mean 'plan'?)")
        self.refuse("plan", "-p", "hexscale", "-c", "hexiscale_case_stud", "-m", "llama2_13", says=[
            "--planner: unknown planner 'hexscale' (did you mean 'hexiscale'?)",
            "--cluster: unknown cluster 'hexiscale_case_stud' "
            "(did you mean 'hexiscale_case_study'?)",
            "--model: unknown model 'llama2_13' (did you mean 'llama2_13b'?)"])
        self.refuse("simulate", HEXISCALE, "-c", "hexiscale_case_study", "-m", "llama2_13b",
                    says="--sequence-length: missing (give it, or a job file with --job; for example")
        self.refuse("plan", "-p", "hexiscale", *JOB, "--dtype", "bf61", "--recompute", "none,ful",
                    "--seed", "-1", "--straggler", "3", "-o", "x", "--cost", "simu", says=[
                        "--dtype: unknown value 'bf61' (did you mean 'bf16'?",
                        "--recompute: unknown value 'ful' (did you mean 'full'?",
                        "--seed: must be at least 0, is -1",
                        "--straggler: '3' is not DEVICE=FACTOR",
                        "--option: 'x' is not NAME=VALUE",
                        "--cost: unknown value 'simu' (did you mean 'simulator'?"])
        self.refuse("plan", "-p", "hexiscale", *JOB, "-o", "round=3",
                    says="--option: planner 'hexiscale' has no option 'round' "
                         "(did you mean 'rounds'?)")
        self.refuse("plan", "-p", "all", *JOB, "-o", "round=3", says="--option: planner")
        self.refuse("plan", "-p", "hexiscale", *WHERE, "-b", "0", says="--global-batch: must be")
        self.refuse("plan", "-p", "hexiscale", *WHERE, "-b", "many", says="--global-batch: ")
        self.refuse("simulate", HEXISCALE, *WHERE, "--straggler", "99=2", "--slow-link", "x=2",
                    says=["--straggler: no device 99", "--slow-link: no link 'x'"])
        self.refuse("run", MEGATRON, "--shard", "5/4", "--workers", "0",
                    says=["--shard: '5/4' is not I/N", "--workers: must be at least 1, is 0"])
        self.refuse("list", "planets", says="cannot list 'planets'")
        self.refuse("schema", "clusters", says="did you mean 'cluster'?")
        self.refuse("simulate", HEXISCALE, *WHERE, "-t", "a.svg", says="'a.svg' names no format")
        self.refuse("simulate", HEXISCALE, *WHERE, "-t", "a.json", "--cost", "hexiscale_paper",
                    says="--timeline: a closed form runs no program")
        self.refuse("simulate", HEXISCALE, MEGATRON, *WHERE, "-t", "a.json", says="2 plans")

    def test_a_job_file_with_mistakes(self):
        job = self.write("job.yaml", "schema: orrery/job/1\nglobal_batch: 24\n"
                                     "sequence_lenght: 4096\ndtype: bf17\nglobal_batch: 3\n")
        self.refuse("plan", "-p", "hexiscale", *WHERE[:4], "--job", job, says=f"{job}:5:1: ")
        job = self.write("job.yaml", "schema: orrery/job/1\nglobal_batch: 24\n"
                                     "sequence_lenght: 4096\ndtype: bf17\n")
        self.refuse("plan", "-p", "hexiscale", *WHERE[:4], "--job", job, says=[
            f"{job}:3:1: unknown key 'sequence_lenght' (did you mean 'sequence_length'?)",
            f"{job}:4:8: unknown value 'bf17'"])

    def test_flags_override_the_job_file(self):
        job = self.write("job.yaml", "schema: orrery/job/1\nglobal_batch: 25\n"
                                     "sequence_length: 4096\n"
                                     "allowed: {recompute: [none, full]}\n")
        where = [*WHERE[:4], "--job", job]
        self.refuse("simulate", HEXISCALE, *where,
                    says=f"{HEXISCALE}:7:3: pipelines: micro-batches")
        self.succeed("simulate", HEXISCALE, *where, "--global-batch", "24")

    def test_files_that_are_not_there(self):
        self.refuse("simulate", "nowhere.yaml", *WHERE, says="no such plan file 'nowhere.yaml'")
        self.refuse("validate", "nowhere.yaml", says="nowhere.yaml: no such file")
        self.refuse("run", "nowhere", says="no such file or folder 'nowhere'")
        self.refuse("plan", "-p", "hexiscale", *JOB, "--profile", "nowhere.yaml",
                    says="--profile: no such profile file 'nowhere.yaml'")

    def test_a_truncated_plan(self):
        text = (ROOT / HEXISCALE).read_text()
        for size in (len(text) // 3, len(text) // 2, len(text) - 20):
            path = self.write("plan.yaml", text[:size])
            self.refuse("simulate", path, *WHERE, says=f"{path}:")

    def test_a_plan_for_another_cluster(self):
        text = (ROOT / HEXISCALE).read_text()
        plan = self.write("plan.yaml", text + "\ncluster_hash: 0123456789abcdef\n")
        self.refuse("simulate", plan, *WHERE, says=f"{plan}:")
        self.refuse("validate", plan, *WHERE, says=f"{plan}:")

    def test_a_batch_that_does_not_divide(self):
        self.refuse("simulate", HEXISCALE, *WHERE, "-b", "25",
                    says=f"{HEXISCALE}:7:3: pipelines: micro-batches add up to 24 samples")

    def test_a_plan_too_large_to_simulate(self):
        text = (ROOT / HEXISCALE).read_text()
        plan = self.write("plan.yaml", text.replace("micro_batches: 14", "micro_batches: 1000000000"))
        self.refuse("simulate", plan, *WHERE, says=f"{plan}:7:3: pipelines: the plan has 3e+09 passes")

    def test_a_batch_too_large_to_search(self):
        for batch in ("1000000000", "9223372036854775807"):
            self.refuse("plan", "-p", "all", *WHERE, "-b", batch,
                        says=f"--global-batch: global batch {batch}: plans for llama2_13b on 8 GPUs "
                             "can be searched up to 1048576 samples")

    def test_iterations_longer_than_the_clock_counts(self):
        where = WHERE[:4]
        self.refuse("simulate", HEXISCALE, *where, "-s", "9223372036854775807",
                    says="an iteration could last")
        self.refuse("simulate", HEXISCALE, *WHERE, "--straggler", "0=1e308",
                    says="--straggler: on the slowest GPU and link")
        self.refuse("simulate", HEXISCALE, *WHERE, "--slow-link", "a800/nic0/up=1e300",
                    says="--slow-link: on the slowest GPU and link")
        profile = self.write("profile.yaml", "schema: orrery/profile/1\nname: x\nblock_times:\n"
                             "  - {gpu: A800-80GB-NVLink, pass: forward, sequence_length: 4096, "
                             "time: 1e300 s, provenance: x}\n")
        self.refuse("simulate", HEXISCALE, *WHERE, "--profile", profile, says="could last")
        self.succeed("simulate", HEXISCALE, *where, "-s", "10000000")

    def test_a_dtype_that_a_gpu_of_the_cluster_lacks(self):
        says = ("--cluster: RTX3090-24GB of cluster 'hexiscale_case_study' computes neither fp32 "
                "nor a substitute; it has fp16, bf16")
        self.refuse("simulate", HEXISCALE, *WHERE, "--dtype", "fp32", says=says)
        self.refuse("plan", "-p", "all", *JOB, "--dtype", "fp32", says=says)
        self.refuse("validate", HEXISCALE, *WHERE, "--dtype", "fp32", says=says)

    def test_outputs_that_would_overwrite_an_input_or_each_other(self):
        text = (ROOT / HEXISCALE).read_text()
        plan = self.write("plan.yaml", text)
        again = f"{self.folder}/./plan.yaml"
        self.refuse("simulate", plan, *WHERE, "--log", again,
                    says=f"--log: '{again}' would be overwritten")
        self.assertEqual(Path(plan).read_text(), text)
        cluster = self.write("c.yaml", (
            ROOT / "models/library/clusters/hexiscale_case_study.yaml").read_text())
        self.refuse("plan", "-p", "all", "-c", cluster, *JOB[2:], "--output", cluster,
                    says=f"--output: '{cluster}' would be overwritten")
        same = str(self.folder / "same")
        self.refuse("simulate", HEXISCALE, *WHERE, "--log", same, "--program", same,
                    says=f"--program: '{same}' is the file of --log too")
        self.refuse("simulate", HEXISCALE, *WHERE, "--log", "", says="--log: no file is named")

    def test_flags_and_options_given_twice(self):
        self.refuse("simulate", HEXISCALE, *WHERE, "-s", "1", says="--sequence-length is given twice")
        self.refuse("simulate", HEXISCALE, "-s", says="--sequence-length needs a value")
        self.refuse("plan", "-p", "all", *JOB, "-o", "rounds=1", "-o", "rounds=2",
                    says="--option: 'rounds' is given twice")
        done = self.refuse("simulate", HEXISCALE, *WHERE, "--seed", "x", says="--seed: expected")
        self.assertEqual(done.stderr.count("--seed"), 1)

    def test_problems_of_a_manifest_and_of_its_runs_are_named_together(self):
        manifest = self.write("bad.yaml", "schema: orrery/manifest/1\nname: x\nrun:\n"
                              "  cluster: hexiscale_24\n  model: llama_30\n"
                              "  planner: {name: hexiscal}\n"
                              "  job: {global_batch: 8, sequence_length: 2 K}\nnmae: y\n")
        self.refuse("run", manifest, says=[
            f"{manifest}:4:12: unknown cluster 'hexiscale_24'",
            f"{manifest}:5:10: unknown model 'llama_30'",
            f"{manifest}:6:19: unknown planner 'hexiscal' (did you mean 'hexiscale'?)",
            f"{manifest}:7:43: expected an integer, got '2 K'",
            f"{manifest}:8:1: unknown key 'nmae' (did you mean 'name'?)"])

    def test_a_manifest_with_an_empty_planner(self):
        manifest = self.write("manifest.yaml", (
            "schema: orrery/manifest/1\nname: x\nrun:\n  cluster: hexiscale_case_study\n"
            "  model: llama2_13b\n  job: {global_batch: 24, sequence_length: 4096}\n  planner:\n"))
        self.refuse("run", manifest, says=f"{manifest}:4:3: neither `planner` nor `plan` is given")
        self.refuse("run", manifest, "--results", "", says="--results: no folder is named")

    def test_a_gpu_that_the_library_lacks(self):
        cluster = self.write("cluster.yaml", "schema: orrery/cluster/1\nname: x\nnodes:\n"
                                             "  - name: a\n    gpus: {type: A100-81GB, count: 2}\n")
        self.refuse("plan", "-p", "hexiscale", "-c", cluster, *JOB[2:], says=f"{cluster}:5:18: ")
        self.refuse("validate", cluster, says=f"{cluster}:5:18: ")

    def test_an_empty_sweep(self):
        text = ("schema: orrery/manifest/1\nname: test/empty\nrun:\n"
                "  cluster: hexiscale_case_study\n  model: llama2_13b\n  planner: {name: hexiscale}\n"
                "  job: {global_batch: 24, sequence_length: 4096}\n"
                "sweep:\n  model: []\n")
        manifest = self.write("manifest.yaml", text)
        self.refuse("run", manifest, "--results", str(self.folder), says=f"{manifest}:9:10: ")
        self.refuse("validate", manifest, says=f"{manifest}:9:10: ")

    def test_wrong_units(self):
        text = (ROOT / "models/library/clusters/hexiscale_case_study.yaml").read_text()
        path = self.write("cluster.yaml", text.replace("936 GB/s", "936 GB"))
        self.refuse("validate", path, says=f"{path}:")

    def test_validate_names_the_problems_of_all_files(self):
        first = self.write("a.yaml", "schema: orrery/job/1\n")
        second = self.write("b.yaml", "schema: orrery/jbo/1\n")
        third = self.write("c.yaml", "global_batch: 1\n")
        done = self.refuse("validate", first, HEXISCALE, second, third,
                           says=[f"{first}:1:1: ", f"{second}:1:9: unknown schema 'orrery/jbo/1' "
                                 "(did you mean 'job'?)", f"{third}:1:1: no `schema` line"])
        self.assertIn(f"{HEXISCALE}: ok (plan, ", done.stdout)


class Output(Case):
    def test_a_full_disk_is_said_once(self):
        for args in (["list", "clusters"], ["list", "models", "--json"], ["--help"],
                     ["simulate", HEXISCALE, *WHERE], ["validate", HEXISCALE]):
            with self.subTest(args), open("/dev/full", "w", encoding="utf-8") as full:
                done = orrery(*args, stdout=full)
                self.assertEqual(done.returncode, 1)
                self.assertEqual(done.stderr, "orrery: cannot write to standard output: "
                                              "No space left on device\n")

    def test_a_closed_pipe_is_a_failure(self):
        read, write = os.pipe()
        os.close(read)
        done = orrery("list", "clusters", stdout=write)
        os.close(write)
        self.assertEqual(done.returncode, 1)
        self.assertIn("Broken pipe", done.stderr)

    def test_files_that_cannot_be_written(self):
        self.refuse("simulate", HEXISCALE, *WHERE, "--log", "/dev/full", status=1,
                    says="cannot write /dev/full: No space left on device")
        missing = str(self.folder / "missing" / "x.json")
        self.refuse("simulate", HEXISCALE, *WHERE, "-t", missing, status=1,
                    says=f"cannot write {missing}: No such file or directory")

    def test_a_file_size_limit_is_a_failure_that_leaves_nothing(self):
        limit = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500))}
        log, plan = str(self.folder / "log"), str(self.folder / "plan.yaml")
        for args in (["simulate", HEXISCALE, *WHERE, "--log", log],
                     ["plan", "-p", "hexiscale", *JOB, "-o", "rounds=1", "--output", plan]):
            done = orrery(*args, **limit)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn("File too large", done.stderr)
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_what_cannot_be_written_is_said_before_the_search(self):
        missing = str(self.folder / "missing" / "plan.yaml")
        done = self.refuse("plan", "-p", "all", *JOB, "--output", missing, status=1,
                           says=f"cannot write {missing}: No such file or directory")
        self.assertEqual(done.stdout, "")

    def test_json_is_one_document(self):
        lists = ("planners", "schedules", "gpus", "links", "models", "clusters", "experiments")
        for args in (["simulate", HEXISCALE, MEGATRON, *WHERE],
                     ["diff", HEXISCALE, MEGATRON, *WHERE],
                     ["plan", "-p", "all", *JOB, "-o", "rounds=5"],
                     ["run", "experiments/hexiscale/case_study", "--dry-run"],
                     *(["list", what] for what in lists)):
            with self.subTest(args):
                self.assertTrue(self.document(*args))

    def test_equal_commands_print_equal_bytes(self):
        args = ["plan", "-p", "all", *JOB, "-o", "rounds=5", "--json", "--jitter", "0.1",
                "--seed", "7"]
        self.assertEqual(self.succeed(*args), self.succeed(*args))

    def test_timelines_logs_and_programs_are_written(self):
        names = ["a.perfetto-trace", "a.json", "log", "program"]
        paths = [str(self.folder / name) for name in names]
        shown = self.succeed("simulate", HEXISCALE, *WHERE, "-t", paths[0], "--log", paths[2],
                             "--program", paths[3])
        self.assertIn("open it in https://ui.perfetto.dev", shown)
        self.succeed("simulate", HEXISCALE, *WHERE, "-t", paths[1])
        self.assertGreater(len(json.loads(Path(paths[1]).read_text())["traceEvents"]), 100)
        self.assertEqual(sorted(p.name for p in self.folder.iterdir()), sorted(names))
        for path in paths:
            self.assertGreater(os.path.getsize(path), 1000)


class Plan(Case):
    def test_a_plan_reads_back_and_simulates_to_the_same_time(self):
        plan = str(self.folder / "plan.yaml")
        made = self.document("plan", "-p", "hexiscale", *JOB, "--output", plan)
        self.succeed("validate", plan, *WHERE)
        again = self.document("simulate", plan, *WHERE)
        time_made = made["planners"][0]["evaluation"]["iteration_seconds"]
        time_again = again["plans"][0]["evaluation"]["iteration_seconds"]
        self.assertAlmostEqual(time_made, time_again, delta=1e-9 * time_made)

    def test_explain_names_bottleneck_rivals_and_constraints(self):
        text = self.succeed("plan", "-p", "megatron_grid,hexiscale,deepspeed", "--explain",
                            "-c", "a100_8", "-m", "llama2_7b", "-b", "32")
        for part in ("Why this plan", "Bottleneck: stage", "next best plans of this planner",
                     "Constraint: device memory forbade", "other planners"):
            self.assertIn(part, text)
        made = self.document("plan", "-p", "megatron_grid", "-c", "a100_8", "-m",
                                       "llama2_7b", "-b", "32")["planners"][0]
        best = made["evaluation"]["iteration_seconds"]
        rivals = made["search"]["runners_up"]
        self.assertGreater(len(rivals), 0)
        for rival in rivals:
            self.assertGreaterEqual(rival.get("evaluated_seconds", best), best)
        whole = max(s["compute_seconds"] + s["tensor_parallel_seconds"] for s in made["stages"])
        self.assertLess(whole, best)

    def test_plan_without_a_job_says_what_it_assumes(self):
        text = self.succeed("plan", "-p", "megatron_grid", "-c", "a100_8", "-m", "llama2_7b")
        self.assertIn("global batch 1024, sequence length 4096", text)

    def test_infeasible_names_constraint_and_witness_and_fails(self):
        done = orrery("plan", "-p", "megatron_grid", "-c", "hexiscale_case_study",
                      "-m", "llama_65b", "-b", "8", "-s", "4096")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("megatron_grid: no plan (", done.stdout)
        self.assertIn("needs", done.stdout)

    def start_endless_search(self, *args):
        process = start("plan", "-p", "hexiscale", "-c", "hexiscale_240", "-m", "llama_30b", "-b",
                        "512", "-s", "4096", "-o", "rounds=1000000", *args, start_new_session=True)
        wait_for(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text)
        time.sleep(1.5)
        return process

    def test_interrupt_ends_the_search_with_the_best_plan_so_far(self):
        with self.start_endless_search("--json") as process:
            os.killpg(process.pid, signal.SIGINT)
            out, err = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 130, err + out)
        self.assertIn("interrupted", err)
        shown = json.loads(out)["planners"][0]
        self.assertFalse(shown["search"]["complete"])
        self.assertIsNotNone(shown["plan"])

    def test_an_interrupt_of_the_parent_alone_ends_the_search(self):
        with self.start_endless_search() as process:
            self.interrupted(process)

    def test_a_search_ends_with_its_parent(self):
        with self.start_endless_search() as process:
            process.kill()
            process.communicate(timeout=60)  # until the child, too, has closed its output

    def test_equal_pipelines_share_their_rows(self):
        args = ["plan", "-p", "megatron_grid", "-c", "hexiscale_240", "-m", "llama_30b", "-b", "512",
                "-s", "4096", "--recompute", "full", "-o", "evaluate_top=1"]
        rows = r"\n +[0-9,-]* +(?:\d+ x \d+)? +\d+  \d+ x "
        short, full = (self.succeed(*args, *more) for more in ([], ["--full"]))
        self.assertIn("of equal pipelines the devices of the first are shown; --full shows all", short)
        self.assertNotIn("--full", full)
        self.assertLess(len(re.findall(rows, short)), len(re.findall(rows, full)))

    def test_several_planners_are_ranked_by_simulated_time(self):
        shown = self.document("plan", "-p", "megatron_grid,hexiscale", "-c", "a100_8", "-m",
                                        "gpt3_1.3b", "-b", "16", "-s", "1024")
        times = {p["name"]: p["evaluation"]["iteration_seconds"] for p in shown["planners"]}
        self.assertEqual(len(times), 2)
        self.assertEqual(shown["best"], min(times, key=times.get))


class MixedLength(Case):
    CASE = """schema: orrery/mixed_length/1
name: cli
title: A test
cluster: hetu_32h20
model: hetu_32b
tokens_per_step: 16384
steps: 2
cases:
  - name: short
    job: job.yaml
    systems:
      - name: HotSPa
        planner: hotspa
        strategies:
          - {longest: 2048, pipelines: [{count: 4, tensor_parallel: 4, stages: 2, sequence: megatron}]}
          - {longest: 8192, pipelines: [{count: 2, tensor_parallel: 8, stages: 2, sequence: megatron}]}
      - {name: searched, planner: hetu_b, strategies: search, search: {borders: [2048], max_kinds: 1,
          max_stages: 2, sample_steps: 2}}
"""
    JOB = ("schema: orrery/job/1\nglobal_batch: 8\nsequence_length: 8192\n"
           "lengths: github_like\n")

    def setUp(self):
        super().setUp()
        self.job = self.write("job.yaml", self.JOB)
        self.file = self.write("mixed_length.yaml", self.CASE)

    def test_a_second_call_finds_everything_done(self):
        results = ["--results", str(self.folder / "out"), "--quiet"]
        first = self.succeed("mixed-length", self.file, *results)
        self.assertIn("4 steps in", first)
        self.assertIn("searched: ", first)
        self.assertIn("0 of 2 runs to do", self.succeed("mixed-length", self.file, *results,
                                                        "--dry-run"))
        self.assertEqual(self.succeed("mixed-length", self.file, *results), first)
        steps = (self.folder / "out" / "cli" / "steps.csv").read_text(encoding="utf-8")
        self.assertEqual(len(steps.splitlines()), 5)

    def test_the_plan_of_a_step_is_saved_and_simulates_to_the_same_time(self):
        plan = str(self.folder / "step.yaml")
        made = self.succeed("mixed-length", self.file, "--plan", plan, "--of", "short/HotSPa/1")
        self.succeed("validate", plan)
        again = self.document("simulate", plan, "-c", "hetu_32h20", "-m", "hetu_32b")
        planned = float(made.splitlines()[0].rsplit(", ", 1)[1].split()[0])
        self.assertAlmostEqual(again["step_seconds"], planned, delta=6e-4)
        self.assertEqual(again["phases"], 2)

    def test_what_cannot_be(self):
        plan = str(self.folder / "step.yaml")
        at = [self.file, "--plan", plan, "--of"]
        self.refuse("mixed-length", *at, "long/HotSPa/0", says="--of: no case 'long'")
        self.refuse("mixed-length", *at, "short/Hotspa/0", says="did you mean 'HotSPa'")
        self.refuse("mixed-length", *at, "short/HotSPa", says="is not CASE/SYSTEM/STEP")
        self.refuse("mixed-length", self.file, "--of", "short/HotSPa/0", says="belongs to --plan")
        self.assertFalse(Path(plan).exists())

    def test_other_commands_refuse_jobs_with_lengths_at_their_place(self):
        case = ["-c", "hetu_32h20", "-m", "hetu_32b", "--job", self.job]
        says = [f"{self.job}:4:10: the job has `lengths`", "orrery mixed-length"]
        self.refuse("plan", "-p", "amp", *case, says=says)
        self.refuse("simulate", f"{HETU}/c1.yaml", *case, says=says)
        self.refuse("execute", f"{HETU}/c1.yaml", *case, says=says)
        self.refuse("replay", *case, "--generate", "llama3", "--days", "1", "--policy", "hot_spare",
                    says="the job has `lengths`")


class Simulate(Case):
    def seconds(self, *args):
        shown = self.document("simulate", *args, *WHERE)
        return shown["plans"][0]["evaluation"]["iteration_seconds"]

    def test_a_straggler_and_a_slow_link_cost_time(self):
        base = self.seconds(HEXISCALE)
        self.assertGreater(self.seconds(HEXISCALE, "--straggler", "2=2"), 1.05 * base)
        self.assertGreater(self.seconds(HEXISCALE, "--slow-link", "a800/nic0/up=20"), 1.05 * base)

    def test_jitter_depends_on_the_seed_alone(self):
        one = self.seconds(HEXISCALE, "--jitter", "0.2", "--seed", "1")
        self.assertEqual(one, self.seconds(HEXISCALE, "--jitter", "0.2", "--seed", "1"))
        self.assertNotEqual(one, self.seconds(HEXISCALE, "--jitter", "0.2", "--seed", "2"))

    def test_expanded_programs_have_a_rank_for_each_gpu(self):
        shown = self.document("simulate", HEXISCALE, *WHERE, "--expanded")
        self.assertEqual(shown["plans"][0]["ranks"], 8)

    def test_several_plans_are_compared(self):
        shown = self.succeed("simulate", MEGATRON, HEXISCALE, *WHERE)
        self.assertRegex(shown, r"\nplan +iteration s +tokens/s ")

    def test_a_hugging_face_config_is_a_model(self):
        config = self.write("config.json", json.dumps({
            "model_type": "llama", "hidden_size": 5120, "num_hidden_layers": 40,
            "num_attention_heads": 40, "intermediate_size": 13824, "vocab_size": 32000,
            "tie_word_embeddings": False}))
        self.succeed("validate", config)
        where = ["--cluster", "hexiscale_case_study", "--model", config, "--sequence-length", "4096"]
        shown = self.document("simulate", HEXISCALE, *where)
        self.assertEqual(shown["plans"][0]["evaluation"]["iteration_seconds"],
                         self.seconds(HEXISCALE))


class Annotate(Case):
    """The sharding annotations of a plan, and what its communication resolves to."""

    C2 = ["experiments/hetu/plans/c2.yaml", "--cluster", "hetu_32h20", "--model", "hetu_32b",
          "--sequence-length", "4096"]

    def test_the_operators_of_figure_17_come_from_the_plan(self):
        document = self.document("annotate", *self.C2)
        found = {}
        for one in document["communications"]:
            kinds = [step["kind"] for step in one["steps"] if step["kind"] != "identity"]
            found.setdefault((one["layers"], one["operator"]), kinds)
        self.assertEqual(found["15", "receive"], ["SR"])
        self.assertEqual(found["48", "receive"], ["BSR"])  # TP 4 to TP 2
        self.assertEqual(found["56", "receive"], ["BSR"])  # TP 2 to TP 1
        self.assertEqual(found["0-14", "mlp.down.gradient"], ["AR"])
        self.assertEqual(found["48-55", "mlp.down.gradient"], ["SplitAR"])
        self.assertEqual(found["48-55", "mlp.gain.gradient"], ["AR", "SplitAR"])
        self.assertEqual([len(p["stages"]) for p in document["pipelines"]], [4, 5])
        self.assertEqual(document["pipelines"][1]["stages"][-2:], ["28-29", "30"])

    def test_text_names_layers_groups_and_pipelines(self):
        text = self.succeed("annotate", *self.C2)
        self.assertRegex(text, r"48 +1 +BSR +4: 24 -> 28; ")
        self.assertRegex(text, r"48-55 +2 +SplitAR ")
        self.assertIn("1: 16-19 -> 20-23 -> 24-27 -> 28-29 -> 30", text)

    def test_what_a_graph_cannot_say_is_refused_with_the_reason(self):
        plan = (ROOT / "experiments/hetu/plans/c1.yaml").read_text()
        reroute = "    reroutes: [{stage: 1, micro_batch: 0, to_pipeline: 1}]\n"
        self.write("plan.yaml", plan.replace("    stages:\n", reroute + "    stages:\n", 1))
        done = orrery("annotate", str(self.folder / "plan.yaml"), *self.C2[1:])
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertRegex(done.stderr, r"plan.yaml: .*reroute")
        self.assertEqual(done.stdout, "")


class Diff(Case):
    def test_a_plan_does_not_differ_from_itself(self):
        shown = self.document("diff", HEXISCALE, HEXISCALE, *WHERE)
        self.assertEqual(shown["differences"], [])
        self.assertIn("The plans are the same.", self.succeed("diff", HEXISCALE, HEXISCALE, *WHERE))

    def test_each_changed_property_is_named(self):
        text = (ROOT / HEXISCALE).read_text()
        changed = self.write("plan.yaml", text.replace("recompute: full", "recompute: none"))
        shown = self.document("diff", HEXISCALE, changed, *WHERE)
        self.assertEqual({d["what"] for d in shown["differences"]}, {"recompute"})
        self.assertEqual(len(shown["differences"]), 7)


class Run(Case):
    MANIFEST = "experiments/hexiscale/case_study"

    def run_it(self, *args):
        return self.succeed("run", self.MANIFEST, "--results", str(self.folder), "--no-figure", *args)

    def test_a_second_call_finds_all_runs_present(self):
        first = self.run_it()
        rows = rows_of(self.folder / "hexiscale/case_study/runs.csv")
        self.assertIn(f"{len(rows)} runs done", first)
        self.assertIn(f"all runs present ({len(rows)})", self.run_it())

    def test_shards_add_up(self):
        total = json.loads(self.run_it("--dry-run", "--json"))["total"]
        done = [json.loads(self.run_it("--shard", f"{i}/2", "--json"))["done"] for i in (1, 2)]
        self.assertEqual(sum(done), total)
        self.assertIn("all runs present", self.run_it())

    def test_a_damaged_result_is_made_again(self):
        self.run_it()
        runs = self.folder / "hexiscale/case_study/runs"
        good = {path: path.read_text() for path in runs.glob("*/summary.json")}
        for text in ("", "[]", '{"schema"', '{"schema": "orrery/summary/1", "run": "x"}'):
            next(iter(good)).write_text(text)
            self.assertIn(f"1 run done, {len(good) - 1} were present", self.run_it())
            self.assertEqual(good, {path: path.read_text() for path in runs.glob("*/summary.json")})

    def test_a_shard_without_runs_says_so(self):
        self.assertIn("no run belongs to this shard", self.run_it("--shard", "99/99"))

    def test_a_dry_run_writes_nothing(self):
        self.assertIn("dry run: ", self.run_it("--dry-run"))
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_quiet_shows_no_progress(self):
        done = orrery("run", self.MANIFEST, "--results", str(self.folder), "--no-figure", "--quiet")
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_interrupt_keeps_results_and_says_how_to_go_on(self):
        self.write("manifest.yaml", "\n".join([
            "schema: orrery/manifest/1", "name: test/interrupt", "run:", "  cluster: hexiscale_240",
            "  model: llama2_70b", "  planner: {name: hexiscale}",
            "  job: {global_batch: 256, sequence_length: 4096}",
            "seeds: [" + ", ".join(str(i) for i in range(200)) + "]", ""]))
        with start("run", str(self.folder), "--results", str(self.folder)) as process:
            wait_for((self.folder / "test/interrupt").exists)
            time.sleep(0.5)
            self.interrupted(process, says="the same command goes on from there")


class Replay(Case):
    """Two policies on four GPUs and half an hour of restless spot nodes."""

    STUDY = "\n".join([
        "schema: orrery/replay/1", "name: test/replay", "title: A tiny study", "cases:",
        "  - name: quad", "    cluster: quad.yaml", "    model: gpt3_125m",
        "    job: {global_batch: 16, sequence_length: 512}",
        "    trace: {generator: restless.yaml}", "    horizon: 30 min",
        "policies: [checkpoint_restart, torchft]", "seeds: [1, 2]", ""])
    CLUSTER = "\n".join([
        "schema: orrery/cluster/1", "name: quad", "nodes:", "  - name: a", "    count: 2",
        "    gpus: {type: A100-80GB, count: 2}", "    domains: [{link: nvlink3}]",
        "    nics: [{link: ethernet-1GBps, count: 1}]",
        "storage: {bandwidth: 2 GB/s, scope: shared, latency: 10 ms}", ""])
    GENERATOR = "\n".join([
        "schema: orrery/trace_generator/1", "name: restless", "source: test", "spot:",
        '  - {gpu_type: "*", leaves_per_hour: 4, away: 5 min, notice: 0 s, start: 1, source: test}',
        ""])
    FLAGS = ["--cluster", "quad.yaml", "--model", "gpt3_125m", "--global-batch", "16",
             "--sequence-length", "512", "--generate", "restless.yaml", "--days", "0.02"]

    def setUp(self):
        super().setUp()
        self.write("replay.yaml", self.STUDY)
        self.write("quad.yaml", self.CLUSTER)
        self.write("restless.yaml", self.GENERATOR)

    def replay(self, *args):
        return self.succeed("replay", *args, cwd=self.folder)

    def replayed(self, *args):
        return self.document("replay", *args, "--quiet", cwd=self.folder)

    def refuse_replay(self, *args, says):
        return self.refuse("replay", *args, says=says, cwd=self.folder)

    def flags_but_the_trace(self):
        return [word for word in self.FLAGS if word not in ("--generate", "restless.yaml")]

    def test_run_and_replay_take_the_same_study(self):
        first = self.succeed("run", str(self.folder), "--results", str(self.folder / "r"))
        self.assertIn("Ranking, means over 2 seeds", first)
        self.assertIn("4 runs done", first)
        again = self.succeed("replay", str(self.folder / "replay.yaml"), "--results",
                             str(self.folder / "r"))
        self.assertIn("4 were present", again)

    def test_flags_and_file_give_the_same_tokens(self):
        by_file = self.replayed(".", "--days", "0.02", "--seeds", "1,2")
        by_flags = self.replayed(*self.FLAGS, "--policy", "checkpoint_restart,torchft", "--seeds",
                                 "1,2")
        tokens = [{each["policy"]: each["tokens"] for each in found["ranking"]}
                  for found in (by_file, by_flags)]
        self.assertEqual(len(tokens[0]), 2)
        self.assertEqual(tokens[0], tokens[1])

    def test_the_ranking_is_by_tokens_and_shares_add_up(self):
        found = self.replayed(*self.FLAGS, "--policy", "all", "--seeds", "2")
        rates = [each["tokens_per_second"]["mean"] for each in found["ranking"]]
        self.assertEqual(rates, sorted(rates, reverse=True))
        for each in found["ranking"]:
            self.assertAlmostEqual(sum(each["wall_share"].values()), 1)
            self.assertAlmostEqual(sum(each["gpu_hours"].values()), 4 * 24 * 0.02, places=6)
        for each in found["unable"]:
            self.assertTrue(each["reason"])

    def test_an_option_changes_a_policy(self):
        shares = []
        for restart in ("10", "200"):
            found = self.replayed(*self.FLAGS, "--policy", "checkpoint_restart", "--option",
                                  f"checkpoint_restart.reinitialize={restart}")
            shares.append(found["ranking"][0]["wall_share"]["reinitialize"])
        self.assertLess(shares[0], shares[1])

    def test_work_and_time_are_printed_apart(self):
        self.assertRegex(self.replay(".", "--results", "r"),
                         r"replay .*, planning .* \(\d+ search(es)?\), new iterations .* "
                         r"\(\d+ simulated of \d+ asked for\)")

    def test_shards_add_up(self):
        done = [self.replayed(".", "--shard", f"{i}/2")["done"] for i in (1, 2)]
        self.assertEqual(sum(done), 4)
        self.assertEqual(self.replayed(".")["present"], 4)

    def test_a_dry_run_writes_nothing(self):
        before = sorted(self.folder.iterdir())
        self.assertIn("dry run: 4 runs to do", self.replay(".", "--dry-run"))
        self.assertEqual(sorted(self.folder.iterdir()), before)

    def test_bad_flags_are_named_all_at_once(self):
        self.refuse("replay", "--policy", "oobleckk", "--seeds", "x", "--days", "-1",
                    "--planning-time", "fast", "--option", "parcae",
                    says=["--cluster: missing", "--model: missing",
                          "unknown policy 'oobleckk' (did you mean 'oobleck'?)",
                          "neither --trace nor --generate", "--seeds: ", "--days: ",
                          "--planning-time: ", "'parcae' is not POLICY.NAME=VALUE"])

    def test_options_of_all_go_to_those_that_have_them(self):
        shown = self.replay(*self.FLAGS, "--dry-run", "--option", "all.location=nvme", "--option",
                            "checkpoint_restart.location=cloud")
        self.assertRegex(shown, r"checkpoint_restart +location=cloud")
        self.assertRegex(shown, r"checkfreq +location=nvme")
        self.assertRegex(shown, r"option location=nvme of all: .*torchft.* have no such option")
        self.refuse_replay(*self.FLAGS, "--option", "all.locationn=nvme",
                           says="--option: no policy has an option 'locationn'")

    def test_a_trace_file_is_played_again_only_if_asked(self):
        self.write("short.csv", "# schema: orrery/trace/1\n# horizon: 10 min\n# nodes: a{0..1} "
                                "A100-80GB x2\ntime,kind,scope\n10,leave,node:a1\n"
                                "60,join,node:a1\n")
        flags = [*self.flags_but_the_trace(), "--trace", "short.csv", "--policy", "torchft",
                 "--seeds", "2"]
        self.refuse_replay(*flags, says="--repeat")
        self.assertIn("2 seeds of the policies' searches (one trace)",
                      self.replay(*flags, "--repeat"))
        self.refuse_replay(*self.FLAGS, "--repeat", says="--repeat: is for files")

    def test_cases_without_their_data_are_said_to_be_skipped(self):
        environment = {**os.environ, "ORRERY_DATA": str(self.folder / "nowhere")}
        for more in (["--dry-run"], ["--results", str(self.folder / "r")]):
            done = orrery("replay", "experiments/spot/bamboo", *more, env=environment)
            self.assertIn("case 'p3' is skipped", done.stdout)
            self.assertEqual(done.stderr, "")

    def test_bad_input_is_named_with_its_place(self):
        self.refuse_replay(*self.FLAGS, "--policy", "torchft", "--option", "torchft.quorumm=1",
                           says="--option: policy 'torchft' has no option 'quorumm'")
        self.write("replay.yaml", self.STUDY.replace("torchft", "torchfd"))
        self.refuse_replay(".", says="replay.yaml:11:32: unknown policy 'torchfd'")
        self.refuse_replay(".", "--cluster", "a100_8", says="--cluster: the file . says it")
        self.refuse("run", str(self.folder), "--timelines", says="has no timelines")

    def test_each_problem_is_named_once_and_truly(self):
        for days, says in (("1e9", "--days: '1e9' is not above 0 and at most 36525"),
                           ("1 h", "--days: '1 h' is not a number of days"),
                           ("nan", "--days: 'nan' is not a number of days")):
            done = self.refuse_replay(*self.FLAGS[:-1], days, says=says)
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        done = self.refuse_replay(*self.FLAGS, "--policy", "torchft", "--option",
                                  "torchft.nope=1", says="nope")
        self.assertEqual(done.stderr.count("nope"), 1, done.stderr)
        self.refuse_replay(*self.FLAGS, "--format", "bamboo", says="--format: is for files")
        self.refuse_replay(*self.flags_but_the_trace(), "--trace", str(self.folder),
                           says="is a folder, not a trace file")

    def test_what_a_killed_call_left_is_removed_even_if_its_number_lives(self):
        left = self.folder / "r/test/replay/.work/0123456789abcdef.1"
        left.mkdir(parents=True)
        (left / "log.txt").write_text("")
        self.succeed("replay", str(self.folder), "--results", str(self.folder / "r"))
        self.assertFalse(left.parent.exists())

    def test_results_that_cannot_be_written_are_not_named(self):
        done = self.refuse("replay", *self.FLAGS, "--policy", "torchft", "--results", "/proc/none",
                           status=1, says="cannot make folder /proc/none", cwd=self.folder)
        self.assertNotIn("runs.csv", done.stdout)

    def test_a_bad_trace_is_named_with_its_line(self):
        self.write("bad.csv", "# schema: orrery/trace/1\n# nodes: a{0..1} A100-80GB x2\n"
                              "time,kind,scope\n10,fail,node:b7\n")
        self.refuse_replay(*self.flags_but_the_trace(), "--trace", "bad.csv", says="bad.csv:4:")

    def test_a_study_validates_and_has_a_schema(self):
        self.assertIn("4 runs", self.succeed("validate", str(self.folder / "replay.yaml")))
        schema = json.loads(self.succeed("schema", "replay"))
        self.assertIn("cases", schema["properties"])

    def test_policies_are_listed_in_short_and_in_detail(self):
        short = self.succeed("list", "policies")
        self.assertIn("orrery list policies NAME shows", short)
        detail = self.succeed("list", "policies", "checkpoint_restart")
        self.assertIn("interval = ", detail)
        self.refuse("list", "policies", "oobleckk", says="did you mean 'oobleck'?")
        page = (ROOT / "docs/recovery.md").read_text()
        self.assertEqual(page, self.succeed("list", "policies", "--markdown"),
                         "make it again: tools/orrery list policies --markdown > docs/recovery.md")

    def test_studies_of_the_repository_validate(self):
        files = [str(p.relative_to(ROOT)) for p in sorted(ROOT.glob("experiments/**/replay.yaml"))]
        self.assertGreaterEqual(len(files), 4)
        self.assertEqual(self.succeed("validate", *files).count(" ok "), len(files))


class Paper(Case):
    def test_case_study_under_the_public_cost_model(self):
        """HexiScale's public code prints these times."""
        for plan, times in ((MEGATRON, ("31.6208", "32.1739")), (HEXISCALE, ("19.1412", "20.4797"))):
            shown = self.succeed("simulate", plan, *WHERE, "--cost", "hexiscale_public_code")
            for number, value in enumerate(times):
                self.assertRegex(shown, rf"\n +pipeline {number} +{value}  s\n")


class Import(Case):
    """Files of Metis's users become ours, and the planner uses their numbers."""

    LAYERS = 34  # of llama2_7b: 32, embedding and head

    def profile(self, name, milliseconds, memory=100.0, layers=LAYERS):
        text = json.dumps({
            "model": {"model_name": "any", "num_layers": layers,
                      "parameters": {"parameters_per_layer_bytes": [4 * 10**8] * layers}},
            "execution_time": {"forward_backward_time_ms": milliseconds * layers + 1,
                               "batch_generator_time_ms": 0.5, "optimizer_time_ms": 3.0,
                               "layer_compute_total_ms": [milliseconds] * layers},
            "execution_memory": {"layer_memory_total_mb": [memory] * layers}}, indent=1)
        return self.write(name, text)

    def test_imported_files_carry_metis_from_profile_to_plan(self):
        for tensor in (1, 2, 4):
            for size in (1, 2, 4):
                self.profile(f"DeviceType.A100_tp{tensor}_bs{size}.json", 10.0 * size / tensor)
                self.profile(f"DeviceType.T4_tp{tensor}_bs{size}.json", 40.0 * size / tensor)
        profile, cluster = str(self.folder / "p.yaml"), str(self.folder / "c.yaml")
        sample = "tests/calibration/metis"
        self.succeed("import", "metis-profile", str(self.folder), "-o", profile)
        self.succeed("import", "metis-cluster", f"{sample}/hostfile", f"{sample}/clusterfile.json",
                     "-o", cluster)
        self.succeed("validate", profile, cluster)
        job = ["-p", "metis", "-c", cluster, "-m", "llama2_7b", "-b", "16", "-s", "256", "--json"]
        with_profile = json.loads(orrery("plan", *job, "--profile", profile).stdout)
        without = json.loads(orrery("plan", *job).stdout)
        estimates = [made["planners"][0]["search"].get("estimate_seconds")
                     for made in (with_profile, without)]
        self.assertNotEqual(estimates[0], estimates[1])
        other = json.loads(orrery("plan", "-p", "metis", "-c", cluster, "-m", "llama2_13b", "-b", "16",
                                  "-s", "256", "--json", "--profile", profile).stdout)
        notes = " ".join(other["planners"][0]["search"]["notes"])
        self.assertIn("is not used: it has 34 layers, llama2_13b has 42", notes)

    def test_names_that_nothing_knows_are_refused(self):
        text = self.write("topo.txt", "\tGPU0\tGPU1\nGPU0\tX\tPIX\nGPU1\tPIX\tX\n")
        out = self.folder / "node.yaml"
        self.refuse("import", "nvidia-topo", text, "--gpu", "A100-80G", "--link", "pcie=pcie4-x61",
                    "-o", str(out),
                    says=["--gpu: unknown GPU type 'A100-80G' (did you mean 'A100-80GB'?",
                          "orrery list gpus", "--link: unknown link class 'pcie4-x61' (did you mean "
                          "'pcie4-x16'?", "orrery list links"])
        self.refuse("import", "nccl-tests", "none.txt", "--link", "fabrick",
                    says="--link: unknown link class 'fabrick'")
        self.refuse("import", "nccl-tests", "none.txt", "--link", "fabrick", "--cluster", "nowhere",
                    says="nowhere")
        self.assertFalse(out.exists())
        self.succeed("import", "nvidia-topo", text, "--gpu", "A100-80GB", "--link",
                     "pcie=pcie4-x16", "-o", str(out))
        own = self.write("own.yaml", out.read_text().replace("pcie4-x16", "slot") + """
links:
  slot: {bandwidth: 20 GB/s, latency: 4 us, source: a choice}
""")
        self.succeed("import", "nvidia-topo", text, "--gpu", "A100-80GB", "--link", "pcie=slot",
                     "--cluster", own, "-o", str(out))
        self.assertIn("link: slot", out.read_text())

    def test_bad_files_are_refused_with_their_place_and_leave_nothing_behind(self):
        self.write("DeviceType.A100_tp1_bs1.json", "{\"model\": {\"num_layers\": 1e400}}")
        out = self.folder / "p.yaml"
        self.refuse("import", "metis-profile", str(self.folder), "-o", str(out),
                    says="DeviceType.A100_tp1_bs1.json")
        self.assertFalse(out.exists())
        self.refuse("import", "metis-cluster", "tests/calibration/metis/hostfile",
                    self.write("c.json", "{\"10.0.0.1\": {}}"), says="c.json:1:")


class RunFolder(Case):
    STEPS = "\n".join([
        "schema: orrery/steps/1", "name: test/steps", "title: Two tables", "steps:",
        "  - {name: gpus, command: [orrery, list, gpus, --json], output: gpus.json}",
        "  - {name: links, command: [orrery, list, links, --json], output: links.json}", ""])
    MANIFEST = "\n".join([
        "schema: orrery/manifest/1", "name: test/one", "run:", "  cluster: a100_8",
        "  model: gpt3_125m", "  planner: {name: megatron_grid}",
        "  job: {global_batch: 8, sequence_length: 512}", ""])

    def experiment(self, text):
        (self.folder / "experiment").mkdir(exist_ok=True)
        return self.write("experiment/steps.yaml", text)

    def run_it(self, path, *args, status=0, says=()):
        """Returns stdout; with a status, it must fail with that and say `says` on stderr."""
        words = ["run", str(path), "--results", str(self.folder / "results"), *args]
        if status == 0:
            return self.succeed(*words)
        return self.refuse(*words, status=status, says=says)

    def rows(self):
        return rows_of(self.folder / "results/test/steps/runs.csv")

    def test_steps_keep_what_commands_print(self):
        self.run_it(self.experiment(self.STEPS))
        rows = self.rows()
        self.assertEqual([row["step"] for row in rows], ["gpus", "links"])
        output = (self.folder / "results/test/steps" / rows[0]["output"]).read_text()
        self.assertEqual(output, orrery("list", "gpus", "--json").stdout)

    def test_finished_steps_are_not_done_again_unless_something_changed(self):
        path = self.experiment(self.STEPS)
        self.run_it(path)
        before = [row["run"] for row in self.rows()]
        self.assertIn("dry run: 0 steps to do", self.run_it(path, "--dry-run"))
        self.experiment(self.STEPS.replace("links, --json", "links"))
        self.run_it(path)
        self.assertNotEqual(before, [row["run"] for row in self.rows()])

    def test_a_step_that_fails_is_named_and_the_other_stays(self):
        self.run_it(self.experiment(self.STEPS.replace("list, links", "list, linx")), status=1,
                    says="links")
        self.assertEqual([row["status"] for row in self.rows()], ["ok", "failed"])

    def test_programs_that_are_not_built_are_problems_of_the_file(self):
        done = self.run_it(self.experiment(self.STEPS.replace("[orrery", "[experiments/nothing", 1)),
                           status=2)
        self.assertRegex(done.stderr, r"steps.yaml:5:\d+: .*is not built")

    def test_data_that_is_not_there_skips_the_experiment(self):
        text = self.run_it(self.experiment(self.STEPS + "needs: [$ORRERY_DATA/no-such-data]\n"))
        self.assertIn("is skipped", text)

    def test_a_folder_runs_all_below_it_and_goes_on_after_a_failure(self):
        for name in ("a", "b"):
            (self.folder / "all" / name).mkdir(parents=True)
        (self.folder / "all/a/steps.yaml").write_text(self.STEPS.replace("list, links", "list, linx"))
        (self.folder / "all/b/manifest.yaml").write_text(self.MANIFEST)
        done = self.run_it(self.folder / "all", status=1)
        self.assertRegex(done.stdout, r"all/a +failed")
        self.assertRegex(done.stdout, r"all/b +done")
        self.assertTrue((self.folder / "results/test/one/runs.csv").exists())

    def test_two_experiments_of_one_name_are_refused(self):
        for name in ("a", "b"):
            (self.folder / "all" / name).mkdir(parents=True)
            (self.folder / "all" / name / "steps.yaml").write_text(self.STEPS)
        done = self.run_it(self.folder / "all", status=2)
        self.assertRegex(done.stderr, r"b/steps.yaml:2:\d+: the name 'test/steps' is also that of "
                                      r".*a/steps.yaml")

    def test_commands_stay_below_the_build_folder(self):
        for word in ("/bin/ls", "../../bin/ls", "''"):
            self.run_it(self.experiment(self.STEPS.replace("[orrery", f"[{word}", 1)), status=2,
                        says="no program below the build folder")
        self.run_it(self.experiment(self.STEPS.replace("gpus.json", "summary.json")), status=2)

    def test_a_folder_without_experiments_is_refused(self):
        (self.folder / "empty").mkdir()
        self.run_it(self.folder / "empty", status=2, says="no experiment")


class Library(Case):
    def test_planners_are_listed_in_short_and_in_detail(self):
        short = self.succeed("list", "planners")
        for name in ("autohet", "hethub", "metis", "hetu", "hexiscale_milp", "exhaustive", "piper"):
            self.assertIn(f"{name}\n  source", short)
        self.assertNotIn("options (", short)
        self.assertIn("options (", self.succeed("list", "planners", "metis"))
        self.refuse("list", "planners", "metsi", says="did you mean 'metis'?")
        self.refuse("list", "gpus", "metis", says="unexpected argument 'metis'")

    def test_step_planners_have_a_list_of_their_own(self):
        text = self.succeed("list", "step-planners")
        for name in ("hotspa", "hetu_a", "hetu_b", "packed_deepspeed", "packed_megatron"):
            self.assertIn(f"{name}\n  source", text)
        self.assertNotIn("hotspa", self.succeed("list", "step-planners", "hetu_b"))
        self.refuse("list", "step-planners", "hetu", says="no step planner is called 'hetu'")
        for command in (("list", "planners", "hetu_b"), ("plan", "--planner", "hetu_b", *JOB)):
            self.refuse(*command, says="orrery mixed-length")

    def test_the_page_of_planners_is_that_of_the_catalog(self):
        page = (ROOT / "docs/planners.md").read_text()
        self.assertEqual(page, self.succeed("list", "planners", "--markdown"),
                         "make it again: tools/orrery list planners --markdown > docs/planners.md")

    def test_everything_in_the_library_validates(self):
        files = [str(p.relative_to(ROOT)) for p in sorted(ROOT.glob("models/library/**/*.yaml"))]
        self.assertGreater(len(files), 50)
        lines = self.succeed("validate", *files).splitlines()
        self.assertEqual(len(lines), len(files))

    def test_every_experiment_validates(self):
        # Tables of an experiment's own script have no schema of ours; those of an experiment's own
        # program (experiments/autohet/recovery, experiments/hetu/elastic) are checked by it.
        own = ("autohet_recovery", "autohet_asymmetric_tp", "hetu_elastic")
        files = [str(p.relative_to(ROOT)) for p in sorted(ROOT.glob("experiments/**/*.yaml"))
                 if "schema: orrery/" in p.read_text()
                 and not any(f"schema: orrery/{kind}/" in p.read_text() for kind in own)]
        self.assertGreater(len(files), 30)
        self.succeed("validate", *files)

    def test_schemas_are_json_and_reference_pages_are_tables(self):
        for kind in ("cluster", "model", "job", "plan", "profile", "manifest", "gpus", "links"):
            self.assertIn("$schema", json.loads(self.succeed("schema", kind)))
            self.assertIn("| key |", self.succeed("schema", kind, "--reference"))


class Execute(Case):
    PLAN = "experiments/executor/two_replicas.yaml"
    PIPELINE = "experiments/executor/one_pipeline.yaml"
    WHERE = ["--cluster", "a100_8", "--model", "experiments/executor/tiny_llama.yaml",
             "--sequence-length", "16"]

    def execute(self, *args, plan=PLAN, **kwargs):
        return self.document("execute", plan, *self.WHERE, "--precision", "fp64", *args, **kwargs)

    @staticmethod
    def losses(document):
        """By step, of the last generation that computed it."""
        return {step["step"]: step["loss"] for step in document["steps"]}

    def expect_equal(self, document, expected):
        mine, theirs = self.losses(document), self.losses(expected)
        self.assertEqual(mine.keys(), theirs.keys())
        for step, loss in mine.items():
            self.assertLessEqual(abs(loss / theirs[step] - 1), 1e-12, step)

    def test_prints_steps_and_tables_and_writes_logs(self):
        text = self.succeed("execute", self.PLAN, *self.WHERE, "--steps", "3", "--out",
                            str(self.folder))
        for word in ("step     3  loss ", "tokens/s", "peak MiB", "clock offset us",
                     "Bytes between ranks"):
            self.assertIn(word, text)
        rows = rows_of(self.folder / "losses.csv")
        self.assertEqual([row["step"] for row in rows], ["1", "2", "3"])
        for name in ("run.log", "program.pb", "timeline.perfetto-trace"):
            self.assertGreater((self.folder / "generation-0" / name).stat().st_size, 1000)

    def test_goes_on_without_a_killed_rank_and_over_to_another_plan(self):
        expected = self.execute("--steps", "6")
        killed = self.execute("--steps", "6", "--elastic", "hetu", "--kill", "3@4")
        self.assertEqual(len(killed["generations"]), 2)
        self.expect_equal(killed, expected)
        kinds = [event["kind"] for event in killed["generations"][1]["events"]]
        for kind in ("t_fail", "t_detect", "t_plan", "t_spawn", "t_comm", "t_load",
                     "t_first_step"):
            self.assertIn(kind, kinds)
        switched = self.execute("--steps", "6", "--switch-to", f"{self.PIPELINE}@2")
        self.assertEqual(len(switched["generations"]), 2)
        self.expect_equal(switched, expected)

    def test_a_policy_knows_the_plan_that_a_switch_has_brought(self):
        expected = self.execute("--steps", "6", plan=self.PIPELINE)
        # Device 3 is in the second plan alone, whose other replica has all of its state.
        both = self.execute("--steps", "6", "--switch-to", f"{self.PLAN}@2", "--elastic", "hetu",
                            "--kill", "3@5", plan=self.PIPELINE)
        self.assertEqual(len(both["generations"]), 3)
        self.assertEqual([step["generation"] for step in both["steps"]], [0, 0, 1, 1, 2, 2])
        self.expect_equal(both, expected)

    def test_hosts_are_agents_that_know_the_token(self):
        with start("execute", self.PLAN, *self.WHERE, "--steps", "2", "--json", "--hosts",
                 "127.0.0.1:2,localhost:2", "--listen", "127.0.0.1:0") as launcher:
            agents = []
            for _ in range(2):
                words, environment = agent_of(launcher)
                if not agents:
                    stranger = subprocess.run(words, env={**environment, "ORRERY_TOKEN": "guess"},
                                              capture_output=True, text=True, timeout=60)
                    self.assertEqual(stranger.returncode, 1)
                    self.assertIn("wrong token", stranger.stderr)
                agents.append(subprocess.Popen(words, env=environment))
            out, err = launcher.communicate(timeout=120)
            self.assertEqual(launcher.returncode, 0, err)
            self.assertEqual([agent.wait(timeout=30) for agent in agents], [0, 0])
            self.assertEqual(len(json.loads(out)["steps"]), 2)

    def test_interrupt_keeps_the_log(self):
        with start("execute", self.PLAN, *self.WHERE, "--steps", "1000000", "--out",
                 str(self.folder)) as launcher:
            next(line for line in launcher.stdout if "step     2" in line)
            self.interrupted(launcher, says="interrupted")
        self.assertTrue((self.folder / "generation-0" / "run.log").exists())

    def test_every_bad_flag_is_named(self):
        self.refuse("execute", self.PLAN, *self.WHERE, "--backend", "gpu", "--precision", "bf61",
                    "--steps", "0", "--hosts", "a", "--elastic", "hetuu", "--kill", "3",
                    "--checkpoint-every", "3",
                    says=["--backend: unknown value 'gpu'", "--precision: unknown value 'bf61'",
                          "--steps: must be at least 1", "--hosts: 'a' is not NAME:DEVICES",
                          "did you mean 'hetu'", "--kill: '3' is not RANK@STEP",
                          "--checkpoint-every: no folder is named"])
        self.refuse("execute", self.PLAN, *self.WHERE, "--kill", "9@1",
                    says="--kill: rank 9 of 4 (0 to 3)")
        self.refuse("execute", self.PLAN, *self.WHERE, "--slowdown", "8=2",
                    says="--slowdown: device 8 of 8 (0 to 7)")
        self.refuse("execute", self.PLAN, *self.WHERE, "--advertise", "here", "--dtype", "fp16",
                    "--precision", "fp64",
                    says=["--advertise: no --hosts are named",
                          "--dtype: fp16, where the ranks compute in fp64 (leave it out"])
        self.refuse("execute", says="a plan file, or --planner NAME")
        self.refuse("execute", f"{PLANS}/megatron.yaml", "--cluster", "hexiscale_case_study",
                    "--model", "bert_large", "--sequence-length", "512", status=2, says=PLANS)

    def test_places_ports_and_limits_are_checked_before_anything_starts(self):
        short = self.write("short", "too short")
        self.refuse("execute", self.PLAN, *self.WHERE, "--data", short, "--checkpoint-every", "1",
                    "--checkpoints", "/proc/checkpoints",
                    says=[f"--data: {short}: 9 bytes, a sample needs 17",
                          "--checkpoints: /proc/checkpoints: cannot be made"])
        self.refuse("execute", self.PLAN, *self.WHERE, "--silence", "0.2", "--prune-checkpoints",
                    "--kill", "1@2:after", "--netlab", "--hosts", "a:8",
                    says=["--silence: 0.2 s is not between 1 and 3600 s",
                          "--prune-checkpoints: this run has no checkpoints",
                          "--kill: expected an integer, got '2:after'", "--netlab: names the hosts itself"])
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            self.refuse("execute", self.PLAN, *self.WHERE, "--listen", f"127.0.0.1:{port}",
                        says=[f"--listen: cannot listen on 127.0.0.1:{port}", "name another port"])

    def test_refused_runs_leave_nothing_behind(self):
        self.refuse("execute", self.PLAN, *self.WHERE, "--hosts", "a:99999999999", "--slowdown",
                    "1=0.5", says=["--hosts: 'a' has more than", "--slowdown: 0.5 is below 1"])
        self.refuse("execute", self.PLAN, *self.WHERE, "--hosts", "a:9",
                    says="--hosts: the hosts have 9 devices, the cluster has 8")
        self.refuse("execute", self.PIPELINE, *self.WHERE, "--elastic", "bamboo", "--out",
                    str(self.folder / "out"), says="redundant copies of a stage")
        with socket.create_server(("127.0.0.1", 0)) as taken:
            self.refuse("execute", self.PLAN, *self.WHERE, "--listen",
                        f"127.0.0.1:{taken.getsockname()[1]}", "--out", str(self.folder / "out"),
                        says="--listen: cannot listen")
        # Agents refuse after the run's inputs are written.
        with start("execute", self.PLAN, *self.WHERE, "--hosts", "127.0.0.1:4", "--data",
                 "/nope", "--listen", "127.0.0.1:0", "--out", str(self.folder / "a/b/out")) as launcher:
            words, environment = agent_of(launcher)
            agent = subprocess.run(words, env=environment, text=True, capture_output=True,
                                   timeout=60)
            _, err = launcher.communicate(timeout=60)
            self.assertEqual(launcher.returncode, 2, err)
            self.assertIn("nothing was started: 127.0.0.1: /nope", err)
            self.assertRegex(agent.stderr, "orrery: joined the run of 127.0.0.1:[0-9]+ as "
                                           "127.0.0.1; ranks will listen on 127.0.0.1\n")
        self.assertEqual(list(self.folder.rglob("*")), [])

    def test_a_folder_that_holds_a_run_is_not_written_over(self):
        run = ["execute", self.PLAN, *self.WHERE, "--steps", "1", "--quiet", "--out",
               str(self.folder / "out")]
        self.succeed(*run)
        before = (self.folder / "out/losses.csv").read_bytes()
        self.refuse(*run, says="out' holds a run (name another folder, or remove it)")
        self.assertEqual((self.folder / "out/losses.csv").read_bytes(), before)

    def job_of(self, *args, says):
        """inputs/job.yaml of a run of one step, whose first line says `says`."""
        out = self.folder / f"out{len(list(self.folder.iterdir()))}"
        text = self.succeed("execute", self.PLAN, *self.WHERE, "--steps", "1", "--quiet", "--out",
                            str(out), *args)
        self.assertIn(says, text.splitlines()[0])
        return (out / "inputs/job.yaml").read_text()

    def test_the_job_is_that_of_the_ranks(self):
        # fp32 weights are their own master copy. [executor/model/shard.h]
        for precision, size in ("fp32", 4), ("fp64", 8):
            job = self.job_of("--precision", precision, says=f", {precision}")
            self.assertIn(f"dtype: {precision}\n", job)
            for name, bytes_each in (("weight", size), ("gradient", size), ("master", 0),
                                     ("moments", 2 * size)):
                self.assertIn(f"{name}: {bytes_each}\n", job)
        file = self.write("job.yaml", "schema: orrery/job/1\nglobal_batch: 16\n"
                          "sequence_length: 16\ndtype: bf16\nallowed: {schedules: [1f1b]}\n"
                          "state_bytes: {weight: 2, gradient: 2, master: 4, moments: 8}\n")
        job = self.job_of("--job", file, says=", bf16")
        for line in ("dtype: bf16", "weight: 2", "gradient: 2", "master: 4", "moments: 8"):
            self.assertIn(line + "\n", job)

    def test_a_diverged_loss_is_nan_without_a_sign(self):
        done = orrery("execute", self.PLAN, *self.WHERE, "--steps", "4", "--learning-rate", "1e12",
                      "--out", str(self.folder / "out"))
        self.assertEqual(done.returncode, 1, done.stderr)
        losses = (self.folder / "out/losses.csv").read_text()
        self.assertIn(",nan,", losses)
        self.assertNotIn("-nan", losses + done.stdout)

    def test_faults_that_did_not_strike_are_named(self):
        done = orrery("execute", self.PLAN, *self.WHERE, "--steps", "5", "--quiet", "--elastic",
                      "hetu", "--kill", "1@2", "--kill", "1@4")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("a fault asked for did not strike: device 1 in step 4", done.stderr)
        self.assertIn("generation 1 goes on with the state after step 1: slices", done.stderr)

    def test_checkpoint_folders_are_the_storage_of_policies(self):
        where = ["--cluster", "experiments/executor/netlab_4.yaml", *self.WHERE[2:]]
        run = ["execute", self.PLAN, *where, "--steps", "6", "--quiet", "--elastic",
               "checkpoint_restart"]
        self.refuse(*run, says=["--elastic: checkpoint_restart: checkpoint location",
                                "has no object storage", "--cloud FOLDER", "`storage:`"])
        for flag in "--cloud", "--checkpoints":
            done = orrery(*run, "--checkpoint-every", "2", flag, str(self.folder / flag), "--kill",
                          "3@5")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(f"counts {flag} as 1 GB/s", done.stderr)
            self.assertNotIn("none of the checkpoints", done.stderr)
            self.assertRegex(done.stderr, "generation 1 goes on with the state after step [2-4]: ")

    def test_a_loss_that_the_policy_has_no_plan_for_is_refused_before_the_first_step(self):
        flags = ["--steps", "6", "--quiet", "--elastic", "checkpoint_restart",
                 "--checkpoint-every", "2", "--cloud", str(self.folder / "cloud"), "--out",
                 str(self.folder / "out")]
        self.refuse("execute", self.PLAN, *self.WHERE, *flags, "--kill", "3@5",
                    says=["--kill: without device 3 from step 5 on: checkpoint_restart has no plan",
                          "as all 1 nodes that are left do"])
        # Four nodes outlive one of them, which is lost once, but not all.
        run = ["execute", self.PLAN, "--cluster", "experiments/executor/netlab_4.yaml",
               *self.WHERE[2:], *flags]
        kills = [word for rank in range(4) for word in ("--kill", f"{rank}@3")]
        self.refuse(*run, *kills, says="--kill: without devices 0, 1, 2, 3 from step 3 on: ")
        for left in "out", "cloud":
            self.assertFalse((self.folder / left).exists())
        self.succeed(*run, "--kill", "3@3", "--kill", "3@5")

    def test_a_plan_among_the_inputs_of_a_run_brings_them(self):
        self.succeed("execute", self.PLAN, *self.WHERE, "--steps", "3", "--quiet", "--out",
                     str(self.folder))
        plan = str(self.folder / "inputs/plan.yaml")
        again = orrery("execute", plan, "--backend", "cpu", "--transport", "tcp", "--steps", "3",
                       "--quiet", "--out", str(self.folder / "again"))
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertIn(f"cluster, model, job of the run that {self.folder}/inputs/run.yaml",
                      again.stderr)
        self.assertEqual(losses_of(self.folder), losses_of(self.folder / "again"))
        for name in "cluster.yaml", "model.yaml", "job.yaml", "plan.yaml":
            self.assertEqual((self.folder / "inputs" / name).read_bytes(),
                             (self.folder / "again/inputs" / name).read_bytes(), name)
        # Flags win.
        self.refuse("execute", plan, "--cluster", "a100_88", says="--cluster: ")
        whole = orrery("execute", plan, *self.WHERE, "--steps", "1", "--quiet")
        self.assertEqual(whole.returncode, 0, whole.stderr)
        self.assertNotIn("of the run that", whole.stderr)
        # What is wrong with the file is named; another file of that name is none.
        file = self.folder / "inputs/run.yaml"
        file.write_text(file.read_text().replace("backend: cpu", "backend: gpu"))
        self.refuse("execute", plan, says=f"{file}:")
        file.write_text("schema: orrery/job/1\n")
        self.refuse("execute", plan, says=["--cluster: missing", "--model: missing"])

    def test_a_rank_that_dies_between_update_and_end_costs_nothing(self):
        expected = self.execute("--steps", "5")
        killed = self.execute("--steps", "5", "--elastic", "hetu", "--kill", "2@3:after_update")
        self.expect_equal(killed, expected)
        self.assertEqual(min(step["step"] for step in killed["steps"] if step["generation"] == 1),
                         3)

    def test_a_planned_run_on_an_emulated_network_is_one_command(self):
        cluster = "experiments/executor/netlab_4.yaml"
        where = ["--cluster", cluster, *self.WHERE[2:]]
        plan = str(self.folder / "plan.yaml")
        self.succeed("plan", "--planner", "metis", *where, "--global-batch", "16", "--output",
                     plan)
        run = orrery("execute", plan, *where, "--steps", "2", "--netlab", "--json", "--out",
                     str(self.folder))
        if run.returncode == 1 and re.search("namespace|/dev/net/tun", run.stderr):
            self.skipTest(run.stderr)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual(len(json.loads(run.stdout)["steps"]), 2)
        self.assertGreater(
            (self.folder / "generation-0" / "timeline.perfetto-trace").stat().st_size, 1000)
        self.assertIn("lab netlab_4: ", run.stderr)
        self.assertIn("plan.yaml was made for bf16: the job stays bf16, the ranks compute in fp32 "
                      "(make plans with --dtype fp32)", run.stderr)
        if "that were up" not in run.stderr:
            self.assertIn("lab netlab_4: removed", run.stderr)

    def test_what_the_executor_cannot_run_is_said(self):
        plan = self.write("plan.yaml", (ROOT / self.PLAN).read_text().replace(
            "groups:", "zero: {stage: 3}, groups:"))
        self.refuse("execute", plan, *self.WHERE,
                    says=["the executor cannot run ZeRO-3 with tensor parallelism",
                          "the executor cannot run ZeRO-3 among ranks whose"])


class Threads(Case):
    """Ranks as threads of one process."""
    RUN = ["execute", Execute.PLAN, *Execute.WHERE]
    FLAG = ["--ranks", "threads"]

    def test_losses_are_those_of_processes_to_the_bit(self):
        for precision in "fp32", "fp64":
            run = [*self.RUN, "--precision", precision, "--steps", "4"]
            threads, processes = (self.document(*run, *flags) for flags in (self.FLAG, []))
            self.assertEqual(Execute.losses(threads), Execute.losses(processes))
            self.assertEqual(len(Execute.losses(threads)), 4)
            for mine, theirs in zip(threads["generations"][0]["ranks"],
                                    processes["generations"][0]["ranks"]):
                # Processes send the readings of their clocks, too.
                for what in "rank", "device", "peak_bytes":
                    self.assertEqual(mine[what], theirs[what], what)

    def test_writes_the_files_of_processes_which_compare_takes(self):
        threads, processes = self.folder / "threads", self.folder / "processes"
        text = self.succeed(*self.RUN, *self.FLAG, "--steps", "4", "--out", str(threads))
        self.assertIn("step     4  loss ", text)
        self.succeed(*self.RUN, "--steps", "4", "--quiet", "--out", str(processes))
        names = lambda folder: sorted(str(f.relative_to(folder)) for f in folder.rglob("*"))
        self.assertEqual(names(threads), names(processes))
        self.assertEqual(losses_of(threads), losses_of(processes))
        self.assertIn("ranks: threads\n", (threads / "inputs/run.yaml").read_text())
        compared = [self.document("compare", str(folder))
                    for folder in (threads, processes)]
        predicted = [[(time["name"], time["predicted"])
                      for time in document["generations"][0]["times"]] for document in compared]
        self.assertEqual(predicted[0], predicted[1])

    def test_interrupt_keeps_the_log(self):
        with start(*self.RUN, *self.FLAG, "--steps", "1000000", "--out", str(self.folder)) as run:
            next(line for line in run.stdout if "step     2" in line)
            self.interrupted(run, says="interrupted after")
        self.succeed("compare", str(self.folder), "--warm-up", "0")

    def test_what_needs_processes_is_refused(self):
        flags = {"--hosts": "a:8", "--listen": "127.0.0.1:0", "--transport": "nccl",
                 "--elastic": "hetu", "--kill": "1@2", "--switch-to": f"{Execute.PIPELINE}@2",
                 "--checkpoint-every": "2"}
        words = [word for item in flags.items() for word in item]
        self.refuse(*self.RUN, *self.FLAG, *words, "--steps", "4", "--cloud", str(self.folder),
                    says=[f"{flag}: ranks are threads: " for flag in flags])
        self.refuse(*self.RUN, *self.FLAG, "--netlab", says="--netlab: ranks are threads: ")
        self.refuse(*self.RUN, "--ranks", "thread", says="did you mean 'threads'")

    def test_wrong_shares_are_named_and_leave_nothing_behind(self):
        out = self.folder / "out"
        gpu = [*self.RUN, "--backend", "cuda", "--out", str(out)]
        self.refuse(*gpu, "--shares", "0=50,1=60",
                    says="--shares: 2 devices have 110 % of the card together (100 at most")
        self.refuse(*gpu, "--shares", "0=50,x=1,1,2=0",
                    says=["--shares: expected an integer, got 'x'",
                          "--shares: '1' is not DEVICE=PERCENT", "--shares: must be at least 1"])
        self.refuse(*gpu, "--shares", "20", "--ranks", "processes",
                    says="--ranks: parts of one card are disjoint only in one process")
        self.refuse(*self.RUN, "--shares", "20", "--out", str(out),
                    says="--shares: shares are of a GPU's multiprocessors (--backend cuda")
        self.refuse(*gpu, "--shares", "20", "--checkpoint-every", "2", "--cloud", str(out),
                    says="--checkpoint-every: ranks are threads: they write no checkpoints (leave")
        self.assertFalse(out.exists())

    def test_a_comparison_says_that_parts_of_a_gpu_share_its_memory(self):
        self.succeed(*self.RUN, *self.FLAG, "--steps", "2", "--quiet", "--out", str(self.folder))
        file = self.folder / "inputs/run.yaml"
        file.write_text(file.read_text().replace("shares: {}\n", 'shares: {"0": 50, "1": 25}\n'))
        self.assertIn("parts of one GPU (device 0: 50 %, device 1: 25 %)",
                      self.succeed("compare", str(self.folder), "--warm-up", "0"))


class OneCard(Case):
    """Parts of one GPU; skipped where there is none."""
    WHERE = ["--cluster", "experiments/executor/one_card.yaml", *Execute.WHERE[2:]]

    def test_a_plan_on_unequal_parts_trains_as_on_the_cpu_and_can_be_compared(self):
        run = ["execute", "experiments/executor/three_parts.yaml", *self.WHERE, "--precision",
               "fp64", "--steps", "5", "--json"]
        done = orrery(*run, "--backend", "cuda", "--shares", "0=50,1=25,2=25", "--out",
                      str(self.folder))
        if done.returncode == 2 and "--backend: cuda: " in done.stderr:
            self.skipTest(done.stderr)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr, r"device 0: \d+ of the \d+ multiprocessors of ")
        on_parts = Execute.losses(json.loads(done.stdout))
        on_cpu = Execute.losses(json.loads(self.succeed(*run)))
        self.assertEqual(on_parts.keys(), on_cpu.keys())
        for step, loss in on_cpu.items():
            self.assertLessEqual(abs(on_parts[step] / loss - 1), 1e-9, step)
        self.assertIn("parts of one GPU (device 0: 50 %, device 1: 25 %, device 2: 25 %)",
                      self.succeed("compare", str(self.folder)))

    def test_calibrate_measures_parts_under_the_types_of_the_cluster(self):
        done = orrery("calibrate", "--quick", "--backend", "cuda", "--precision", "fp32", "--model",
                      Execute.WHERE[3], "--sequence-length", "16", *self.WHERE[:2], "--gpu-type",
                      "H100-80GB", "--shares", "50,25", "--only", "block", "--no-figure", "--out",
                      str(self.folder))
        if done.returncode == 2 and "--backend: cuda: " in done.stderr:
            self.skipTest(done.stderr)
        self.assertEqual(done.returncode, 0, done.stderr)
        profile = (self.folder / "profile.yaml").read_text()
        for name in "H100-80GB 50%", "H100-80GB 25%":
            self.assertIn(name, profile)


class Calibrate(Case):
    KINDS = "block,gemm,memory_bandwidth,optimizer,memory,op_overhead,checkpoint_write," \
            "checkpoint_read,point_to_point,collective"

    def calibrate(self, *args):
        return self.succeed("calibrate", "--quick", "--sequence-length", "8", "--no-figure",
                            "--out", str(self.folder), *args)

    def samples(self):
        lines = (self.folder / "samples.csv").read_text().splitlines()
        header = dict(line[2:].split(": ", 1) for line in lines if line.startswith("# "))
        return header, list(csv.DictReader(line for line in lines if not line.startswith("# ")))

    def keys(self):
        _, rows = self.samples()
        results = ("wall_seconds", "cpu_seconds", "disturbed", "flops")
        return [tuple(v for k, v in row.items() if k not in results) for row in rows]

    def test_measures_all_kinds_and_fits_a_profile_that_is_valid(self):
        text = self.calibrate()
        for word in ("Fits", "held out %", "profile.yaml"):
            self.assertIn(word, text)
        header, rows = self.samples()
        self.assertEqual(header["schema"], "orrery/samples/1")
        self.assertIn("cpu", header["libraries"])
        self.assertRegex(header["date"], r"^\d{4}-\d\d-\d\dT")
        self.assertEqual({row["kind"] for row in rows}, set(self.KINDS.split(",")))
        self.assertEqual({row["link_class"] for row in rows if row["kind"] == "point_to_point"},
                         {"loopback"})
        self.assertTrue(all(float(row["wall_seconds"]) > 0 for row in rows
                            if row["kind"] != "memory"))
        self.succeed("validate", str(self.folder / "profile.yaml"))
        for name in ("entries.csv", "fits.csv"):
            self.assertGreater(len((self.folder / name).read_text().splitlines()), 5)
        keys = self.keys()
        self.assertEqual(len(keys), len(set(keys)))
        # All is there: nothing is measured again, and the fit is the same.
        before = (self.folder / "samples.csv").read_bytes()
        profile = (self.folder / "profile.yaml").read_bytes()
        self.calibrate()
        self.assertEqual((self.folder / "samples.csv").read_bytes(), before)
        self.assertEqual((self.folder / "profile.yaml").read_bytes(), profile)
        document = json.loads(self.calibrate("--fit-only", "--json"))
        self.assertEqual(document["samples"], len(keys))

    def test_goes_on_after_an_interruption_without_doubles(self):
        with start("calibrate", "--quick", "--sequence-length", "8", "--no-figure",
                 "--out", str(self.folder), "--only", "gemm,point_to_point") as process:
            path = self.folder / "samples.csv"
            wait_for(lambda: path.exists() and len(path.read_text().splitlines()) > 20, every=0.01)
            out, _ = self.interrupted(process, says="samples are kept")
            self.assertEqual(out, "")
        part = self.samples()[1]
        self.assertFalse((self.folder / "profile.yaml").exists())
        # As if it had been killed while it wrote.
        text = (self.folder / "samples.csv").read_text()
        (self.folder / "samples.csv").write_text(text + "gemm,cpu,trans")
        self.calibrate("--only", "gemm,point_to_point")
        keys = self.keys()
        self.assertEqual(len(keys), len(set(keys)))
        self.assertGreater(len(keys), len(part))
        self.assertEqual(self.samples()[1][:len(part)], part)

    def test_hosts_have_agents(self):
        cluster = self.write("pair.yaml", """
schema: orrery/cluster/1
name: pair
nodes:
  - {name: a, gpus: {type: core, count: 1}, nics: [{link: wire, count: 1}]}
  - {name: b, gpus: {type: core, count: 1}, nics: [{link: wire, count: 1}]}
gpus:
  core: {vendor: cpu, peak: {fp32: 50 GFLOPS}, memory: 1 GiB, memory_bandwidth: 5 GB/s,
         source: a choice}
links:
  wire: {bandwidth: 1 Gbps, latency: 50 us, source: a choice}
""")
        with start("calibrate", "--quick", "--no-figure", "--out", str(self.folder),
                 "--cluster", cluster, "--only", "op_overhead,point_to_point",
                 "--hosts", "127.0.0.1:1,localhost:1", "--listen", "127.0.0.1:0") as driver:
            agents = []
            for _ in range(2):
                words, environment = agent_of(driver)
                agents.append(subprocess.Popen(words, env=environment))
            _, err = driver.communicate(timeout=120)
            self.assertEqual(driver.returncode, 0, err)
            self.assertEqual([agent.wait(timeout=30) for agent in agents], [0, 0])
        _, rows = self.samples()
        self.assertEqual({row["device_type"] for row in rows if row["kind"] == "op_overhead"},
                         {"core"})
        self.assertEqual({(row["source"], row["destination"], row["link_class"])
                          for row in rows if row["kind"] == "point_to_point"},
                         {("0", "1", "wire"), ("1", "0", "wire")})

    def test_a_cluster_that_is_not_there_gives_its_names_to_nothing(self):
        text = self.calibrate("--cluster", "experiments/executor/netlab_4.yaml", "--only",
                              "op_overhead,point_to_point,collective")
        self.assertIn("netlab_4 is not there without --netlab or --hosts", text)
        _, rows = self.samples()
        self.assertEqual({row["device_type"] for row in rows if row["kind"] == "op_overhead"},
                         {"cpu"})
        links = [row for row in rows if row["kind"] in ("point_to_point", "collective")]
        self.assertEqual({row["link_class"] for row in links}, {"loopback"})
        self.assertEqual({row["ranks"] for row in links if row["kind"] == "collective"},
                         {"2", "4"})
        profile = (self.folder / "profile.yaml").read_text()
        self.assertNotIn("emulated-", profile)
        self.assertNotIn("cpu_core", profile)
        self.refuse("calibrate", "--cluster", "a100_8", "--ranks", "2", "--out", str(self.folder),
                    says="--ranks: the cluster says how many there are")

    def test_counts_of_the_text_add_up(self):
        text = self.calibrate("--only", "op_overhead,gemm")
        _, rows = self.samples()
        disturbed = sum(int(row["disturbed"]) for row in rows)
        self.assertIn(f"{len(rows)} samples, {disturbed} of them disturbed and used in no fit",
                      text)
        self.assertRegex(text, r"kind +entries +used +disturbed")

    def test_samples_of_another_model_are_not_mixed(self):
        self.calibrate("--only", "op_overhead")
        model = self.write("other.yaml", (ROOT / "experiments/executor/tiny_llama.yaml")
                           .read_text().replace("tiny_llama", "other"))
        self.refuse("calibrate", "--quick", "--sequence-length", "8", "--no-figure", "--model",
                    model, "--out", str(self.folder),
                    says=["samples.csv: its model is 'tiny_llama', this calibration's 'other'",
                          "name another folder"])

    def test_a_quick_profile_says_that_it_is_quick_until_all_is_measured(self):
        # Messages only wait: no load of the machine leaves them out of the fits.
        self.assertIn("Taken with --quick", self.calibrate("--only", "point_to_point"))
        self.assertEqual(self.samples()[0]["sampling"], "quick")
        profile = self.folder / "profile.yaml"
        self.assertIn("calibrate --quick: not for use", profile.read_text())
        # Also when the samples are fitted later.
        profile.unlink()
        flags = ["calibrate", "--sequence-length", "8", "--no-figure", "--out", str(self.folder)]
        self.assertEqual(self.document(*flags, "--fit-only")["sampling"],
                         "quick")
        self.assertIn("calibrate --quick: not for use", profile.read_text())
        # A part in full does not make the rest of it full.
        self.succeed(*flags, "--only", "op_overhead", "--quiet")
        self.assertIn("calibrate --quick: not for use", profile.read_text())
        text = (self.folder / "samples.csv").read_text()
        (self.folder / "samples.csv").write_text(text.replace("# sampling: quick", "# sampling: x"))
        self.refuse(*flags, "--fit-only", says="samples.csv:7:13: sampling 'x'")

    def test_interrupted_while_it_draws_it_stops_and_says_what_is_there(self):
        self.calibrate("--only", "op_overhead,memory_bandwidth")
        (self.folder / "fits.csv").unlink()
        with start("calibrate", "--sequence-length", "8", "--out", str(self.folder),
                 "--fit-only") as process:
            wait_for((self.folder / "fits.csv").exists, every=0.005)
            self.interrupted(process, says="interrupted; the profile is written, figures are not")
        self.assertEqual([path.name for path in self.folder.glob("*.tmp")], [])
        self.assertTrue((self.folder / "profile.yaml").exists())

    def test_without_namespaces_an_emulated_network_is_refused_before_the_work(self):
        before = []
        if os.geteuid() == 0:
            before = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"]
        try:
            tried = subprocess.run([*before, "unshare", "--net", "true"], capture_output=True)
        except FileNotFoundError as error:
            self.skipTest(str(error))
        if tried.returncode == 0:
            self.skipTest("namespaces cannot be taken away here")
        out = self.folder / "out"
        done = subprocess.run(
            [*before, BINARY, "calibrate", "--quick", "--no-figure", "--cluster",
             "experiments/executor/netlab_4.yaml", "--netlab", "--out", str(out)], cwd=ROOT,
            capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("--netlab: network namespaces are not permitted here", done.stderr)
        self.assertIn("or name the cluster's machines with --hosts", done.stderr)
        self.assertFalse((out / "samples.csv").exists())

    def test_every_bad_flag_is_named(self):
        self.refuse("calibrate", "--out", str(self.folder), "--gpu-type", "",
                    says="--gpu-type: names no type")
        self.refuse("calibrate", "--out", str(self.folder), "--only", ",",
                    says="--only: names no kind")
        self.refuse("calibrate", "--out", str(self.folder), "--backend", "gpu", "--precision",
                    "fp99", "--only", "gem", "--hosts", "a", "--ranks", "0", "--model", "llama_7c",
                    "--shares", "50",
                    says=["--backend: unknown value 'gpu'", "--precision: unknown value 'fp99'",
                          "--only: unknown kind 'gem' (did you mean 'gemm'?)",
                          "--hosts: 'a' is not NAME:DEVICES", "--ranks: must be at least 1",
                          "did you mean 'llama_7b'"])
        self.refuse("calibrate", "--out", str(self.folder), "--shares", "50",
                    says="--shares: needs a GPU of this machine")
        self.refuse("calibrate", "--out", str(self.folder), "--model", "gpt3_125m",
                    says="--model: the executor cannot run layer norm")
        self.refuse("calibrate", "--out", "/dev/null/x", says="--out: cannot write into")
        self.refuse("calibrate", "--out", str(self.folder), "--fit-only",
                    says="samples.csv: cannot")
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_cuda_without_a_device_is_refused_with_the_reason(self):
        done = orrery("calibrate", "--backend", "cuda", "--quick", "--only", "op_overhead",
                      "--out", str(self.folder), "--no-figure")
        if done.returncode == 0:
            self.skipTest("there is a GPU")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("--backend: cuda: ", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
