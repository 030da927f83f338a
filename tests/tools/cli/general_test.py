#!/usr/bin/python3
"""Help, wrong input, what goes wrong with output, and the library that the commands read.

    general_test.py BINARY SOURCE_DIR [unittest arguments]
"""

import json
import os
import pty
import resource
import select
import subprocess
import sys
import unittest
from pathlib import Path

from support import BINARY, HEXISCALE, JOB, MEGATRON, ROOT, WHERE, Case, orrery


COMMANDS = ["run", "plan", "simulate", "validate", "diff", "list", "schema", "mixed-length",
            "switch", "replay", "execute", "calibrate", "annotate", "advise"]


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

    def test_bash_completes_commands_flags_and_names(self):
        script = self.succeed("completion", "bash")

        def completed(*words):
            line = f"{script}\nCOMP_WORDS=({' '.join(words)} '')\nCOMP_CWORD={len(words)}\n"
            if words[-1].startswith("?"):
                line = line.replace(f"{words[-1]} ''", words[-1][1:])
                line = line.replace(f"COMP_CWORD={len(words)}", f"COMP_CWORD={len(words) - 1}")
            done = subprocess.run(["bash", "-c", line + '_orrery; printf "%s\\n" "${COMPREPLY[@]}"'],
                                  capture_output=True, text=True, check=True, cwd=ROOT)
            return done.stdout.split()

        self.assertEqual(completed(BINARY, "?pl"), ["plan"])
        self.assertEqual(completed(BINARY, "plan", "?--scale-n"), ["--scale-network", "--scale-node"])
        self.assertEqual(completed(BINARY, "trace", "?imp"), ["import"])
        self.assertEqual(completed(BINARY, "trace", "import", "?--repair"), ["--repair-after"])
        self.assertIn("hexiscale_240", completed(BINARY, "plan", "--cluster", "?hexiscale_2"))
        self.assertIn("README.md", completed(BINARY, "validate", "?READ"))

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
        plans = [self.write(name, f"schema: orrery/plan/1\n{name}: 1\n") for name in "ab"]
        self.refuse("simulate", *plans, *WHERE[:4], says=[
            "--sequence-length: missing", f"{plans[0]}:2:1: unknown key 'a'",
            f"{plans[1]}:2:1: unknown key 'b'"])
        self.refuse("plan", "-p", "hexiscale", *JOB, "--dtype", "bf61", "--recompute", "none,ful",
                    "--seed", "-1", "--straggler", "3", "-o", "x", "--cost", "simu", says=[
                        "--dtype: unknown value 'bf61' (did you mean 'bf16'?",
                        "--recompute: unknown value 'ful' (did you mean 'full'?",
                        "--seed: must be zero or more, is -1",
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
        self.refuse("simulate", HEXISCALE, *WHERE, "--scale-network", "1e300", "--scale-node",
                    "1e300", "--scale-latency", "1e-300", "--oversubscription", "1e-300",
                    "--link", "nvlink3=1e299 GB/s",
                    says=["--scale-network: must be from 1e-06 to 1000000, is 1e+300",
                          "--scale-node: must be", "--scale-latency: must be",
                          "--oversubscription: must be",
                          "--link: nvlink3: must be above 0 and at most "])
        self.refuse("simulate", HEXISCALE, *WHERE, "--slow-link", "a800/nic0/up=1e-300",
                    says="--slow-link: slowdown 1e-300 of link 'a800/nic0/up', must be at least")
        self.refuse("simulate", HEXISCALE, *WHERE, "--link", "foo=1 GB/s", says="(link classes: ")
        hidden = self.refuse("simulate", HEXISCALE, *WHERE, "--hidden-collectives", "foo",
                             says="(one of: tensor_parallel, sequence_parallel, expert_parallel, zero)")
        self.assertNotIn("pipeline", hidden.stderr)
        self.refuse("run", MEGATRON, "--shard", "5/4", "--workers", "0",
                    says=["--shard: '5/4' is not I/N", "--workers: must be at least 1, is 0"])
        self.refuse("list", "planets", says="cannot list 'planets'")
        self.refuse("schema", "clusters", says="did you mean 'cluster'?")
        self.refuse("simulate", HEXISCALE, *WHERE, "-t", "a.svg", says="'a.svg' names no format")
        self.refuse("simulate", HEXISCALE, *WHERE, "-t", "a.json", "--cost", "hexiscale_paper",
                    says="--timeline: a closed form runs no program")
        ignored = ["--straggler", "0=2", "--slow-link", "a800/nic0/up=2", "--jitter", "0.1",
                   "--step-jitter", "0.1", "--link-jitter", "0.1", "--inner", "per_block", "--ring",
                   "stepwise", "--expanded"]
        flags = [word for word in ignored if word.startswith("--")]
        for ask in (["simulate", HEXISCALE, *WHERE], ["plan", "-p", "hexiscale", *JOB]):
            self.refuse(*ask, "--cost", "hexiscale_paper", *ignored,
                        says=[f"{flag}: a closed form simulates nothing" for flag in flags])
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
        # Costs of each op and message: an hour is within their range, a batch of hours is not.
        cluster = (ROOT / "models/library/clusters/hexiscale_case_study.yaml").read_text()
        for slow in (cluster.replace("launch: 15 us", "launch: 1 h"),
                     cluster + "overrides: [{between: [a800, rtx3090], latency: 1 h}]\n"):
            path = self.write("slow.yaml", slow)
            self.succeed("simulate", HEXISCALE, "-c", path, *WHERE[2:])
            self.refuse("plan", "-p", "hexiscale", "-c", path, *WHERE[2:], "-b", "100000",
                        says="--global-batch: on the slowest GPU and link")

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
        manifest = self.write("bad.yaml", "schema: orrery/study/1\nname: x\ncommand: plan\nsettings:\n"
                              "  cluster: hexiscale_24\n  model: llama_30\n"
                              "  planner: {name: hexiscal}\n"
                              "  job: {global_batch: 8, sequence_length: 2 K}\nnmae: y\n")
        self.refuse("run", manifest, says=[
            f"{manifest}:5:12: unknown cluster 'hexiscale_24'",
            f"{manifest}:6:10: unknown model 'llama_30'",
            f"{manifest}:7:19: unknown planner 'hexiscal' (did you mean 'hexiscale'?)",
            f"{manifest}:8:43: expected an integer, got '2 K'",
            f"{manifest}:9:1: unknown key 'nmae' (did you mean 'name'?)"])

    def test_a_manifest_with_an_empty_planner(self):
        manifest = self.write("manifest.yaml", (
            "schema: orrery/study/1\nname: x\ncommand: plan\nsettings:\n"
            "  cluster: hexiscale_case_study\n"
            "  model: llama2_13b\n  job: {global_batch: 24, sequence_length: 4096}\n  planner:\n"))
        self.refuse("run", manifest, says=f"{manifest}:5:3: neither `planner` nor `plan` is given")
        self.refuse("run", manifest, "--results", "", says="--results: no folder is named")

    def test_a_gpu_that_the_library_lacks(self):
        cluster = self.write("cluster.yaml", "schema: orrery/cluster/1\nname: x\nnodes:\n"
                                             "  - name: a\n    gpus: {type: A100-81GB, count: 2}\n")
        self.refuse("plan", "-p", "hexiscale", "-c", cluster, *JOB[2:], says=f"{cluster}:5:18: ")
        self.refuse("validate", cluster, says=f"{cluster}:5:18: ")

    def test_an_empty_sweep(self):
        text = ("schema: orrery/study/1\nname: test/empty\ncommand: plan\nsettings:\n"
                "  cluster: hexiscale_case_study\n  model: llama2_13b\n  planner: {name: hexiscale}\n"
                "  job: {global_batch: 24, sequence_length: 4096}\n"
                "axes:\n  model: []\n")
        manifest = self.write("manifest.yaml", text)
        self.refuse("run", manifest, "--results", str(self.folder), says=f"{manifest}:10:10: ")
        self.refuse("validate", manifest, says=f"{manifest}:10:10: ")

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


class Init(Case):
    """orrery init, asked on a terminal."""

    def answer(self, *answers, arguments=()):
        """What it printed, after these lines were typed."""
        ours, theirs = pty.openpty()
        with os.fdopen(ours, "r+b", buffering=0) as terminal:
            process = subprocess.Popen([BINARY, "init", *arguments], cwd=self.folder, stdin=theirs,
                                       stdout=theirs, stderr=subprocess.PIPE, text=True)
            os.close(theirs)
            for line in answers:
                terminal.write(line.encode() + b"\n")
            _, err = process.communicate(timeout=60)
            shown = b""
            while select.select([terminal], [], [], 0)[0]:
                try:
                    shown += terminal.read(65536)
                except OSError:  # The other side is closed.
                    break
        return process.returncode, shown.decode(), err

    def test_answers_make_the_cluster_that_flags_make(self):
        status, shown, err = self.answer("4x8xH100", "infiniband-400", "", "2x4xL40S", "", "1", "",
                                         "mine", "asked.yaml")
        self.assertEqual(status, 0, err)
        for question in ("nodes: ", "link class of their NICs", "NICs of a node [usual]",
                         "name of the cluster [my_cluster]", "file [mine.yaml]",
                         "cluster: asked.yaml"):
            self.assertIn(question, shown)
        self.succeed("init", "--nodes", "4x8xH100,2x4xL40S", "--network", "H100=infiniband-400",
                     "--nics", "L40S=1", "--name", "mine", "-o", "given.yaml", cwd=self.folder)
        self.assertEqual((self.folder / "asked.yaml").read_text(),
                         (self.folder / "given.yaml").read_text())
        self.succeed("validate", str(self.folder / "asked.yaml"))

    def test_a_wrong_answer_is_named_and_nothing_is_written(self):
        status, _, err = self.answer("4x8xH1000", "", "", "", "", "asked.yaml")
        self.assertEqual(status, 2)
        self.assertIn("H1000", err)
        self.assertFalse((self.folder / "asked.yaml").exists())

    def test_without_a_terminal_nothing_is_asked(self):
        self.refuse("init", stdin=subprocess.DEVNULL, says="--nodes")


class Output(Case):
    def test_a_full_disk_is_said_once(self):
        for args in (["list", "clusters"], ["list", "models", "--json"], ["--help"],
                     ["simulate", HEXISCALE, *WHERE], ["validate", HEXISCALE]):
            with self.subTest(args), open("/dev/full", "w", encoding="utf-8") as full:
                done = orrery(*args, stdout=full)
                self.assertEqual(done.returncode, 1)
                self.assertEqual(done.stderr, "orrery: cannot write to standard output: "
                                              "No space left on device\n")

    def test_a_reader_that_leaves_is_no_failure(self):
        for args in (["list", "clusters"], ["simulate", HEXISCALE, *WHERE, "--json"], ["--help"]):
            with self.subTest(args):
                read, write = os.pipe()
                os.close(read)
                done = orrery(*args, stdout=write)
                os.close(write)
                self.assertEqual((done.returncode, done.stderr), (0, ""))

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
        lists = ("planners", "schedules", "gpus", "links", "models", "clusters", "profiles",
                 "experiments")
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
        mark = "<!-- results -->\n"  # Between two of them stands what results.py writes.
        before, _, after = page.split(mark)
        page = before + mark + mark + after
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
        for kind in ("cluster", "model", "job", "plan", "profile", "study", "gpus", "links"):
            self.assertIn("$schema", json.loads(self.succeed("schema", kind)))
            self.assertIn("| key |", self.succeed("schema", kind, "--reference"))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
