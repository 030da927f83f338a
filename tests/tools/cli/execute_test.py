#!/usr/bin/python3
"""Real runs: orrery execute with ranks as processes, as threads, and on parts of one GPU.

    execute_test.py BINARY SOURCE_DIR [unittest arguments]
"""

import json
import os
import re
import socket
import subprocess
import sys
import unittest

from support import PLANS, ROOT, Case, agent_of, losses_of, orrery, rows_of, start


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

    def test_a_report_shows_what_was_measured_and_what_was_predicted(self):
        run = self.folder / "run"
        self.succeed("execute", self.PLAN, *self.WHERE, "--steps", "4", "--switch-to",
                     f"{self.PIPELINE}@2", "--out", str(run))
        report = self.folder / "report.html"
        # The page as it stands in the tree, without the script that draws it.
        page = {**os.environ, "ORRERY_REPORT_PAGE": str(ROOT / "tools/report/page.html")}
        shown = self.document("report", str(run), "-o", str(report), env=page)["page"]
        self.assertEqual([plan["name"] for plan in shown["plans"]],
                         ["generation 0, measured", "generation 1, measured"])
        for plan, replicas in zip(shown["plans"], (2, 1)):
            self.assertRegex(" ".join(plan["sentences"]),
                             "A step took .* s where the simulator says .* s")
            self.assertGreater(plan["timeline"]["spans"], 0)
            pipelines = {gpu.get("pipeline") for node in plan["nodes"] for gpu in node["gpus"]}
            self.assertEqual(len(pipelines - {None}), replicas)
        html = report.read_text()
        self.assertIn("generation 1, measured", html)
        self.assertNotIn('{"orrery":"data"}', html)
        self.refuse("report", str(self.folder), "-o", str(report), env=page,
                    says="no executed run")

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

    def test_a_reader_that_leaves_does_not_end_the_training(self):
        with start("execute", self.PLAN, *self.WHERE, "--steps", "20", "--out",
                   str(self.folder / "out")) as launcher:
            next(line for line in launcher.stdout if "step     1" in line)
            launcher.stdout.close()
            self.assertEqual(launcher.wait(timeout=60), 0, launcher.stderr.read())
        self.assertEqual(len((self.folder / "out/losses.csv").read_text().splitlines()), 21)
        self.assertTrue((self.folder / "out/generation-0/run.log").exists())

    def test_of_calls_into_one_folder_one_runs(self):
        calls = [start("execute", self.PLAN, *self.WHERE, "--steps", str(steps), "--quiet",
                       "--out", str(self.folder / "out")) for steps in range(2, 8)]
        ended = {steps: (call.communicate(timeout=120), call.returncode)
                 for steps, call in enumerate(calls, 2)}
        ran = [steps for steps, (_, status) in ended.items() if status == 0]
        self.assertEqual(len(ran), 1, ended)
        for (_, err), status in ended.values():
            if status != 0:
                self.assertEqual(status, 2, err)
                self.assertRegex(err, "--out: (another run writes into|.* holds a run)")
        inputs = (self.folder / "out/inputs/run.yaml").read_text()
        self.assertIn(f"steps: {ran[0]}\n", inputs)
        self.assertEqual(len((self.folder / "out/losses.csv").read_text().splitlines()), 1 + ran[0])

    def test_the_token_may_be_handed_over_as_a_file(self):
        secret = self.folder / "token"
        with start("execute", self.PLAN, *self.WHERE, "--steps", "1", "--json", "--hosts",
                   "127.0.0.1:4", "--listen", "127.0.0.1:0", "--token-file",
                   str(secret)) as launcher:
            words, environment = agent_of(launcher)
            self.assertNotIn("ORRERY_TOKEN", environment)
            self.assertEqual(secret.stat().st_mode & 0o777, 0o600)
            self.assertEqual(subprocess.run(words, env=environment, timeout=60).returncode, 0)
            _, err = launcher.communicate(timeout=60)
            self.assertEqual(launcher.returncode, 0, err)
            self.assertNotIn(secret.read_text().strip(), err)
        for name in ("-oProxyCommand=x", "..", "a/b"):
            self.refuse("execute", self.PLAN, *self.WHERE, "--hosts", f"{name}:1",
                        says=f"'{name}' is no name or address of a machine")

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
                    says=["--silence: must be from 1 to 3600, is 0.2",
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

    def test_experts_and_sequences_that_are_divided_train_as_on_one_device(self):
        whole = self.write("plan.yaml", """\
schema: orrery/plan/1
schedule: 1f1b
pipelines:
  - micro_batches: 4
    micro_batch_size: 2
    stages: [{segments: [{blocks: 0-5, groups: [{devices: [0], samples: 2}]}]}]
""")
        where = ["--cluster", "a100_8", "--model", "experiments/executor/tiny_experts.yaml",
                 "--sequence-length", "16", "--precision", "fp64", "--steps", "4"]
        divided = self.document("execute", "experiments/executor/experts.yaml", *where)
        self.expect_equal(divided, self.document("execute", whole, *where))
        # States of experts go from plan to plan.
        switched = self.document("execute", "experiments/executor/experts.yaml", *where,
                                 "--switch-to", f"{whole}@2")
        self.expect_equal(switched, divided)

    def test_gathers_in_front_of_the_next_forward_pass_change_no_loss_and_no_switch(self):
        sharded = (ROOT / self.PLAN).read_text().replace("groups:", "zero: {stage: 1}, groups:")
        after = self.write("after.yaml", sharded)
        before = self.write("before.yaml", sharded.replace(
            "pipelines:", "communication: {gradient_overlap: true, parameter_overlap: true}\n"
            "pipelines:"))
        expected = self.execute("--steps", "4")
        for plan, more in ((before, []), (before, ["--switch-to", f"{after}@2"]),
                           (after, ["--switch-to", f"{before}@2"])):
            self.expect_equal(self.execute("--steps", "4", *more, plan=plan), expected)

    def test_what_the_executor_cannot_run_is_said(self):
        plan = self.write("plan.yaml", (ROOT / self.PLAN).read_text().replace(
            "groups:", "zero: {stage: 3}, groups:").replace(
            "tensor_parallel: 2", "sequence: ulysses, sequence_degree: 2"))
        self.refuse("execute", plan, *self.WHERE,
                    says=["the executor cannot run Ulysses' or ring sequence parallelism",
                          "the executor cannot run ZeRO-3 among ranks whose"])
        self.refuse("execute", self.PLAN, *self.WHERE, "--hidden-collectives", "tensor_parallel",
                    says=["hidden_collectives"])


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
        self.refuse(*gpu, "--shares", "0=50,x=1,2=0",
                    says=["--shares: expected an integer, got 'x'", "--shares: must be at least 1"])
        self.refuse(*gpu, "--shares", "0=50,1", says="--shares: '1' is not DEVICE=PERCENT")
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


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
