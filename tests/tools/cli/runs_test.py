#!/usr/bin/python3
"""Commands about many runs: run, replay, and trace, which makes what is replayed.

    runs_test.py BINARY SOURCE_DIR [unittest arguments]
"""

import json
import os
import shlex
import sys
import time
import unittest

from support import ROOT, Case, orrery, rows_of, start, wait_for


class Run(Case):
    MANIFEST = "experiments/hexiscale/case_study"

    def run_it(self, *args):
        return self.succeed("run", self.MANIFEST, "--results", str(self.folder), "--no-figure", *args)

    def test_a_second_call_finds_all_runs_present(self):
        first = self.run_it()
        rows = rows_of(self.folder / "hexiscale/case_study/runs.csv")
        self.assertIn(f"{len(rows)} runs done", first)
        self.assertIn(f"all runs present ({len(rows)})", self.run_it())

    def test_results_that_cannot_be_written_are_not_named(self):
        done = self.refuse("run", self.MANIFEST, "--results", "/proc/none", "--no-figure",
                           status=1, says="cannot make folder /proc/none")
        self.assertNotIn("runs.csv", done.stdout)

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

    def test_the_table_has_a_column_for_every_axis_of_any_run(self):
        for planners in ("{name: megatron_grid}, {name: hexiscale}",
                         "{name: hexiscale}, {name: megatron_grid}"):
            path = self.write("manifest.yaml", "\n".join([
                "schema: orrery/study/1", "name: test/axes", "command: plan", "settings:",
                "  cluster: a100_8", "  model: gpt3_125m",
                "  job: {global_batch: 8, sequence_length: 512}", "axes:",
                f"  planner: [{planners}]", "  hexiscale.rounds: [2, 3]", ""]))
            text = self.succeed("run", path, "--results", str(self.folder), "--dry-run")
            self.assertRegex(text, r"planner +rounds +status")
            self.assertRegex(text, r"megatron_grid\} {3,}missing")
            self.assertRegex(text, r"hexiscale\} +3 +missing")

    def test_quiet_shows_no_progress(self):
        done = orrery("run", self.MANIFEST, "--results", str(self.folder), "--no-figure", "--quiet")
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_interrupt_keeps_results_and_says_how_to_go_on(self):
        self.write("manifest.yaml", "\n".join([
            "schema: orrery/study/1", "name: test/interrupt", "command: plan", "settings:",
            "  cluster: hexiscale_240",
            "  model: llama2_70b", "  planner: {name: hexiscale}",
            "  job: {global_batch: 256, sequence_length: 4096}",
            "seeds: [" + ", ".join(str(i) for i in range(200)) + "]", ""]))
        with start("run", str(self.folder), "--results", str(self.folder)) as process:
            wait_for((self.folder / "test/interrupt").exists)
            time.sleep(0.5)
            self.interrupted(process, says="the same command goes on from there")


class RunFolder(Case):
    STEPS = "\n".join([
        "schema: orrery/study/1", "name: test/steps", "title: Two tables", "command: program",
        "axes:", "  step:",
        "    - {name: gpus, program: [orrery, list, gpus, --json], output: gpus.json}",
        "    - {name: links, program: [orrery, list, links, --json], output: links.json}", ""])
    MANIFEST = "\n".join([
        "schema: orrery/study/1", "name: test/one", "command: plan", "settings:",
        "  cluster: a100_8",
        "  model: gpt3_125m", "  planner: {name: megatron_grid}",
        "  job: {global_batch: 8, sequence_length: 512}", ""])

    def experiment(self, text):
        (self.folder / "experiment").mkdir(exist_ok=True)
        return self.write("experiment/manifest.yaml", text)

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
        self.assertRegex(done.stderr, r"manifest.yaml:7:\d+: .*is not built")

    def test_data_that_is_not_there_skips_the_experiment(self):
        text = self.run_it(self.experiment(self.STEPS + "needs: [$ORRERY_DATA/no-such-data]\n"))
        self.assertIn("is skipped", text)

    def test_a_folder_runs_all_below_it_and_goes_on_after_a_failure(self):
        for name in ("a", "b"):
            (self.folder / "all" / name).mkdir(parents=True)
        (self.folder / "all/a/manifest.yaml").write_text(self.STEPS.replace("list, links", "list, linx"))
        (self.folder / "all/b/manifest.yaml").write_text(self.MANIFEST)
        done = self.run_it(self.folder / "all", status=1)
        self.assertRegex(done.stdout, r"all/a +failed")
        self.assertRegex(done.stdout, r"all/b +done")
        self.assertTrue((self.folder / "results/test/one/runs.csv").exists())

    def test_two_experiments_of_one_name_are_refused(self):
        for name in ("a", "b"):
            (self.folder / "all" / name).mkdir(parents=True)
            (self.folder / "all" / name / "manifest.yaml").write_text(self.STEPS)
        done = self.run_it(self.folder / "all", status=2)
        self.assertRegex(done.stderr, r"b/manifest.yaml:2:\d+: the name 'test/steps' is also that of "
                                      r".*a/manifest.yaml")

    def test_commands_stay_below_the_build_folder(self):
        for word in ("/bin/ls", "../../bin/ls", "''"):
            self.run_it(self.experiment(self.STEPS.replace("[orrery", f"[{word}", 1)), status=2,
                        says="no program below the build folder")
        self.run_it(self.experiment(self.STEPS.replace("gpus.json", "summary.json")), status=2)

    def test_a_folder_without_experiments_is_refused(self):
        (self.folder / "empty").mkdir()
        self.run_it(self.folder / "empty", status=2, says="no experiment")


class Replay(Case):
    """Two policies on four GPUs and half an hour of restless spot nodes."""

    STUDY = "\n".join([
        "schema: orrery/study/1", "name: test/replay", "title: A tiny study", "command: replay",
        "settings:", "  job: {global_batch: 16, sequence_length: 512}",
        "  trace: {generator: restless.yaml}", "  horizon: 30 min",
        "axes:", "  case: [{name: quad, cluster: quad.yaml, model: gpt3_125m}]",
        "  policy: [checkpoint_restart, torchft]", "seeds: [1, 2]", ""])
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
        self.write("manifest.yaml", self.STUDY)
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
        self.assertIn("Ranking, means over 2 seeds, least to most\n", first)
        self.assertIn("4 runs done", first)
        again = self.succeed("replay", str(self.folder / "manifest.yaml"), "--results",
                             str(self.folder / "r"))
        self.assertIn("4 were present", again)

    def test_flags_and_file_give_the_same_tokens(self):
        by_file = self.replayed(".", "--days", "0.02", "--seeds", "1,2")
        by_flags = self.replayed(*self.FLAGS, "--policy", "checkpoint_restart,torchft", "--planner",
                                 "own", "--seeds", "1,2")
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
            lost = sum(each["losses"][name]["mean"] for name in each["losses"])
            first = sum(found["ranking"][0]["losses"][name]["mean"] for name in each["losses"])
            self.assertAlmostEqual(sum(owed["mean"] for owed in each["owed"].values()),
                                   lost - first)
            self.assertAlmostEqual(lost - first, (1 - first) * (
                1 - each["tokens_per_second"]["mean"] / rates[0]))
        for each in found["unable"]:
            self.assertTrue(each["reason"])

    def test_five_seeds_have_a_confidence_interval(self):
        shown = self.replay(*self.FLAGS, "--policy", "torchft", "--seeds", "5")
        self.assertIn("Ranking, means over 5 seeds, ± 95 % confidence\n", shown)

    def test_policies_that_are_compared_begin_with_one_plan(self):
        """Bamboo, whose shadows need a next stage, cannot begin with plans of one stage."""
        def runs(*args):
            found = self.replayed(*self.FLAGS, "--seeds", "1", *args)
            return {row["policy"]: row for row in rows_of(self.folder / found["runs_csv"])}
        grid = runs("--policy", "parcae,torchft")
        self.assertEqual({row["planner"] for row in grid.values()}, {"megatron_grid"})
        self.assertEqual(grid["parcae"]["plan_hash"], grid["torchft"]["plan_hash"])
        both = runs("--policy", "checkpoint_restart,parcae,bamboo", "--planner", "deepspeed")
        self.assertEqual({row["planner"] for row in both.values()}, {"deepspeed"})
        self.assertEqual({policy: bool(row["own_plan"]) for policy, row in both.items()},
                         {"checkpoint_restart": False, "parcae": False, "bamboo": True})
        for row in (runs("--policy", "parcae")["parcae"],
                    runs("--policy", "parcae,torchft", "--planner", "own")["parcae"]):
            self.assertEqual((row["planner"], row["plan_hash"], row["own_plan"]), ("", "", ""))
        shown = self.replay(*self.FLAGS, "--seeds", "1", "--policy", "parcae,bamboo", "--planner",
                            "deepspeed")
        self.assertIn("policies begin with deepspeed's plan", shown)
        self.assertIn("bamboo begins with a plan of its own: ", shown)
        none = self.replay(*self.FLAGS, "--seeds", "1", "--policy", "gemini", "--planner", "fsdp")
        self.assertIn("policies begin with plans of their own (fsdp finds none: ", none)
        self.refuse_replay(*self.FLAGS, "--planner", "metiss", says="unknown planner 'metiss'")
        self.refuse_replay(*self.FLAGS, "--planner", "metis", "--plan", "plan.yaml",
                           says="`plan` and `planner` exclude each other")
        self.refuse_replay(".", "--planner", "metis", says="--planner: the file . says it")

    def test_all_policies_have_the_runtime_that_the_flags_name(self):
        tokens = []
        for start in ("1 s", "900 s"):
            found = self.replayed(*self.FLAGS, "--policy", "checkpoint_restart,gemini", "--runtime",
                                  f"start_process={start}")
            tokens.append({each["policy"]: each["tokens"] for each in found["ranking"]})
        for policy, count in tokens[0].items():
            self.assertGreater(count, tokens[1][policy], policy)
        self.refuse_replay(*self.FLAGS, "--policy", "gemini", "--runtime", "start_proces=1 s",
                           says="start_process")

    def test_an_option_changes_a_policy(self):
        shares = []
        for restart in ("10", "200"):
            found = self.replayed(*self.FLAGS, "--policy", "checkpoint_restart", "--option",
                                  f"checkpoint_restart.reinitialize={restart}")
            shares.append(found["ranking"][0]["wall_share"]["reinitialize"])
        self.assertLess(shares[0], shares[1])

    def test_named_policies_keep_what_the_study_says_of_them(self):
        study = self.STUDY.replace(
            "  policy: [checkpoint_restart, torchft]",
            "  policy:\n    - {name: checkpoint_restart, options: {interval: 300}}\n"
            "    - {name: torchft, label: short, options: {spares: take}}\n    - {name: torchft}")
        self.write("manifest.yaml", study)
        def options(*args):
            found = self.replayed(".", "--seeds", "1", "--results", str(self.folder / "r"), *args)
            runs = next((self.folder / "r").rglob("runs.csv"))
            shown = {each["policy"] for each in found["ranking"]}
            return {row["policy"]: row["options"] for row in rows_of(runs) if row["policy"] in shown}
        self.assertEqual(options("-p", "checkpoint_restart"),
                         {"checkpoint_restart": "interval=300"})
        self.assertEqual(options("-p", "torchft,hetu"),
                         {"short": "spares=take", "torchft": "", "hetu": ""})
        self.assertEqual(options("-p", "checkpoint_restart", "-o", "all.interval=600"),
                         {"checkpoint_restart": "interval=600"})

    def test_work_and_time_are_printed_apart(self):
        self.assertRegex(self.replay(".", "--results", "r"),
                         r"took .* to plan \(\d+ search(es)?\), .* to simulate \d+ iterations? "
                         r"\(\d+ asked for\), .* to replay")

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
                          "--planning-time: ", "'parcae' is not NAME=VALUE"])
        self.refuse("replay", "--policy", "oobleck", "--option", "interval=3",
                    says="'interval=3' is not POLICY.NAME=VALUE")

    def test_one_mistake_is_named_once(self):
        for flag, value, says in (("--seeds", "0", "must be at least 1"),
                                  ("--seeds", "1,1", "1 appears twice"),
                                  ("--policy", "torchft,torchft", "'torchft' appears twice"),
                                  ("--expected-mtbf", "0", "missing unit"),
                                  ("--expected-mtbf", "0 s", "must be from 1 ms to")):
            done = self.refuse_replay(*self.FLAGS, flag, value, says=f"{flag}: {says}")
            self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)

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
        self.write("manifest.yaml", self.STUDY.replace("torchft", "torchfd"))
        self.refuse_replay(".", says="manifest.yaml:11:32: unknown policy 'torchfd'")
        self.refuse_replay(".", "--cluster", "a100_8", says="--cluster: the file . says it")
        self.refuse("run", str(self.folder), "--timelines", says="has no timelines")

    def test_each_problem_is_named_once_and_truly(self):
        for days, says in (("1e9", "--days: '1e9' is not from 1e-05 to 36525"),
                           ("1e-15", "--days: '1e-15' is not from 1e-05 to 36525"),
                           ("1 hour", "--days: '1 hour' is not a number of days"),
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
        before = time.time() - 120  # One that was written just now may be about to begin.
        os.utime(left, (before, before))
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
        self.assertIn("4 runs", self.succeed("validate", str(self.folder / "manifest.yaml")))
        schema = json.loads(self.succeed("schema", "study"))
        self.assertIn("axes", schema["properties"])

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
        files = [str(p.relative_to(ROOT)) for p in sorted(ROOT.glob("experiments/**/manifest.yaml"))
                 if "\ncommand: replay\n" in p.read_text()]
        self.assertGreaterEqual(len(files), 4)
        self.assertEqual(self.succeed("validate", *files).count(" ok "), len(files))


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
            "no trace generator 'lama3' (did you mean 'llama3'?)", "--days: '0' is not from 1e-05",
            "--seed: ", "--gpus: is missing"])
        cluster = (ROOT / "models/library/clusters/a100_8.yaml").read_text()
        path = self.write("cluster.yaml", cluster.replace("A100-80GB", "A100-80000GB"))
        self.refuse("trace", "generate", "llama3", "--cluster", path,
                    says="unknown GPU type 'A100-80000GB' (did you mean 'A100-80GB'?)")
        self.refuse("trace", "generate", "llama3", "--gpus", "1024", "--set",
                    "failures.rate=1e6", says="events, at most 5000000 are kept")
        self.refuse("trace", "generate", "llama3", "--gpus", "12", says="12 GPUs in nodes of 8")
        self.refuse("trace", "generate", "llama3", "--gpus", "8", "--cluster", "a100_8",
                    says="--gpus: says what --cluster says")
        self.refuse("trace", "generate", "llama3", "--gpus", "8", "--set", "failures.rat=2",
                    says="rat")
        self.refuse("trace", "generate", "spot", "--gpus", "8", "--conditioned",
                    says="the generator has no failures")
        self.refuse("trace", "import", "bambo", "tests/traces/bamboo.csv",
                    says="unknown format 'bambo' (did you mean 'bamboo'?)")
        columns = ("--time", "when", "--node", "host", "--event", "what",
                   "--map", "NODE_DOWN=fail", "--map", "NODE_UP=repair")
        for after in ("-2 h", "0 s", "1e300 h"):
            self.refuse("trace", "import", "csv", "tests/traces/incidents.csv", *columns,
                        f"--repair-after={after}", says="--repair-after: must be from ")
        self.refuse("trace", "import", "csv", "tests/traces/incidents.csv", *columns,
                    "--nodes", "1", says="nodes, more than the 1 that there are")

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
                        says="--gpus-per-node: must be from 1 to 1024")

    def test_the_curve_may_go_to_standard_output(self):
        shown = self.succeed("trace", "stats", "tests/traces/small.csv", "--csv", "-")
        self.assertTrue(shown.startswith("time,gpu_type,nodes,available\n0,A100-80GB,2,16\n"), shown)
        document = json.loads(self.succeed("trace", "stats", "tests/traces/small.csv", "--csv", "-",
                                           "--json"))
        self.assertEqual(document["curve"], shown)
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

    def run_guide(self, name, least):
        text = (ROOT / "docs/howto" / name).read_text(encoding="utf-8")
        commands = [line.strip() for line in text.splitlines() if line.startswith("    tools/")]
        self.assertGreaterEqual(len(commands), least)
        for command in commands:
            words = shlex.split(command.replace("/tmp/", f"{self.folder}/"))
            with self.subTest(command):
                self.succeed(*words[1:])

    def test_commands_of_the_guides_run(self):
        self.run_guide("import-a-trace.md", 6)
        self.run_guide("limit-a-plan.md", 4)
        self.run_guide("robust-planning.md", 3)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
