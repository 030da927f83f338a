#!/usr/bin/python3
"""Commands about one plan: plan, simulate, switch, annotate, export, diff, mixed-length, import.

    plans_test.py BINARY SOURCE_DIR [unittest arguments]
"""

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
import unittest
from pathlib import Path

import yaml

from support import BINARY, H20, HETU, HEXISCALE, JOB, MEGATRON, ROOT, WHERE, Case, orrery, start, wait_for


def ranges(devices):
    """[3, "0-2"] as [3, 0, 1, 2]."""
    for one in devices:
        first, _, last = str(one).partition("-")
        yield from range(int(first), int(last or first) + 1)


class Plan(Case):
    def test_a_plan_remembers_what_it_was_made_for(self):
        cluster = self.folder / "clusters" / "mine.yaml"
        cluster.parent.mkdir()
        library = ROOT / "models" / "library" / "clusters" / "a100_8.yaml"
        cluster.write_text(library.read_text())
        plan = self.folder / "plans" / "plan.yaml"
        plan.parent.mkdir()
        made = self.document("plan", "-p", "megatron_grid", "-c", str(cluster), "-m", "llama2_7b",
                             "-b", "32", "-s", "2K", "--zero-stages", "1", "--output", str(plan))
        origin = yaml.safe_load(plan.read_text())["made_for"]
        self.assertEqual((origin["cluster"], origin["model"]),
                         ("../clusters/mine.yaml", "llama2_7b"))
        again = self.document("simulate", str(plan))  # From another folder than that of the plan.
        self.assertEqual(made["planners"][0]["evaluation"]["iteration_seconds"],
                         again["plans"][0]["evaluation"]["iteration_seconds"])
        self.assertIn("fits", self.succeed("validate", str(plan)))
        self.assertIn("torchrun", self.succeed("export", str(plan), "--to", "megatron"))
        moved = self.document("switch", str(plan), str(plan))
        self.assertEqual(moved["messages"], 0)
        broken = self.write("broken.yaml", plan.read_text().replace("pipelines:", "pipes:"))
        self.refuse("simulate", broken, says=":11:1: unknown key 'pipes'")
        self.refuse("simulate", self.write("no.yaml", "schema: [\n"), says="no.yaml:2:1:")
        cluster.rename(cluster.with_name("other.yaml"))
        self.refuse("simulate", str(plan), says=["plan.yaml:", "mine.yaml"])
        self.succeed("simulate", str(plan), "--cluster", str(cluster.with_name("other.yaml")))

    def test_flags_that_would_help_and_batches_that_divide_badly_are_named(self):
        ask = ["plan", "-p", "deepspeed", "-c", "a100_8", "-m", "llama2_7b", "-b", "32", "-s", "4K"]
        limited = orrery(*ask, "--zero-stages", "0", "--recompute", "none")
        self.assertEqual(limited.returncode, 1)
        found = re.search(r"would find a plan of ([0-9.]+) s with (--[-a-z0-9, ]+)", limited.stdout)
        self.assertIsNotNone(found, limited.stdout)
        args = ["--zero-stages", "0", "--recompute", "none"]
        flags = found.group(2).split()
        for flag, value in zip(flags[::2], flags[1::2]):
            args[args.index(flag) + 1] = value
        made = self.document(*ask, *args)["planners"][0]["evaluation"]["iteration_seconds"]
        self.assertAlmostEqual(made, float(found.group(1)), delta=1e-3 * made)
        odd = orrery(*ask[:-4], "-b", "33", "-s", "4K")
        self.assertIn("33 has no divisor in common with 8 GPUs", odd.stderr)
        self.assertIn("32 or 40 would divide well", odd.stderr)
        self.assertNotIn("divisor", orrery(*ask).stderr)

    def test_a_plan_of_other_gpus_is_carried_over_where_asked(self):
        plan = str(self.folder / "plan.yaml")
        self.succeed("plan", "-p", "megatron_grid", "-c", "hetu_32h20", "-m", "llama2_7b", "-b",
                     "32", "-s", "2K", "--output", plan)
        self.refuse("simulate", plan, "-c", "autohet_4a100_4h800", says="--any-cluster")
        done = orrery("simulate", plan, "-c", "hetu", "--any-cluster", "--without", "16-47")
        self.assertEqual(done.returncode, 2, done.stdout)
        self.assertIn("no node is left for", done.stderr)
        done = orrery("simulate", plan, "-c", "hetu_16h800_16h20", "--any-cluster")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr, r"8 x H20\S* each\) -> ")

    def test_a_plan_reads_back_and_simulates_to_the_same_time(self):
        plan = str(self.folder / "plan.yaml")
        made = self.document("plan", "-p", "hexiscale", *JOB, "--output", plan)
        self.succeed("validate", plan, *WHERE)
        again = self.document("simulate", plan, *WHERE)
        time_made = made["planners"][0]["evaluation"]["iteration_seconds"]
        time_again = again["plans"][0]["evaluation"]["iteration_seconds"]
        self.assertAlmostEqual(time_made, time_again, delta=1e-9 * time_made)

    def test_steps_differ_by_declared_noise_and_say_their_quantiles(self):
        ask = ("simulate", HEXISCALE, *WHERE, "--steps", "20", "--step-jitter", "0.01")
        found = self.document(*ask)
        steps = found["steps"][0]
        self.assertEqual(steps["steps"], 20)
        self.assertLess(steps["p5"], steps["median"])
        self.assertLess(steps["median"], steps["p95"])
        self.assertLess(steps["p95"] / steps["p5"], 1.1)
        self.assertEqual(steps, self.document(*ask)["steps"][0])
        self.assertNotEqual(steps, self.document(*ask, "--seed", "100")["steps"][0])
        self.refuse("simulate", HEXISCALE, *WHERE, "--steps", "2", says="are all equal")
        self.refuse("simulate", HEXISCALE, *WHERE, "--steps", "2", "--jitter", "0.1",
                    "--cost", "hexiscale_paper", says="a closed form has no noise")

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
        whole = max(s["compute_seconds"] + s["tensor_parallel_seconds"] + s["zero_seconds"] for s in made["stages"])
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

    def start_on_a_terminal(self, *args):
        """The process, and a function that reads what its standard error showed so far."""
        ours, theirs = pty.openpty()
        self.addCleanup(os.close, ours)
        process = subprocess.Popen([BINARY, *args], cwd=ROOT, stdout=subprocess.PIPE,
                                   stderr=theirs, text=True, env={**os.environ, "TERM": "xterm"})
        os.close(theirs)
        fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 160, 0, 0))
        shown = bytearray()

        def read():
            while select.select([ours], [], [], 0.1)[0]:
                try:
                    shown.extend(os.read(ours, 65536))
                except OSError:
                    break
            return shown.decode()
        return process, read

    def test_a_terminal_shows_the_best_so_far_and_an_interrupt_keeps_it(self):
        process, read = self.start_on_a_terminal(
            "plan", "-p", "orrery", "-c", "hexiscale_case_study", "-m", "llama2_13b", "-b", "24",
            "-o", "budget=1000000", "-o", "seeds=own", "--cache", "off")
        with process:
            wait_for(lambda: "gap" in read(), every=0.1)
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130)
        self.assertRegex(read(), r"\d+/10000\d\d simulations, .*orrery: [0-9.]+ s, bound [0-9.]+ s, "
                                 r"gap [0-9.]+ %")
        self.assertIn("the search ended early", out)
        self.assertIn("Plan", out)

    def test_most_gpus_of_a_type(self):
        limit = ("--at-most", "A800-80GB-NVLink=1")
        plan = str(self.folder / "plan.yaml")
        ask = ("plan", "-p", "hexiscale", "-c", "hexiscale_case_study", "-m", "gpt3_2.7b", "-b",
               "24", "-s", "2048", "--output", plan)
        where = ("-c", "hexiscale_case_study", "-m", "gpt3_2.7b", "-s", "2048")

        def used():
            """A800 of the plan; devices 0 to 2 of the cluster."""
            groups = [group for pipeline in yaml.safe_load(Path(plan).read_text())["pipelines"]
                      for stage in pipeline["stages"] for segment in stage["segments"]
                      for group in segment["groups"]]
            words = [str(word) for group in groups for word in group["devices"]]
            ends = [(int(word.split("-")[0]), int(word.split("-")[-1])) for word in words]
            return {0, 1, 2} & {d for first, last in ends for d in range(first, last + 1)}

        self.succeed(*ask)
        self.assertEqual(used(), {0, 1, 2})
        self.refuse("simulate", plan, *where, *limit,
                    says="3 A800-80GB-NVLink, of which --at-most allows 1")
        self.succeed(*ask, *limit)
        self.assertEqual(len(used()), 1)
        self.succeed("simulate", plan, *where, *limit)
        self.refuse(*ask, "--at-most", "A100=8", "--at-most", "V100=-1",
                    says="--at-most: V100: must be at least 0")
        self.refuse(*ask, "--at-most", "A800-80GB=1",
                    says="--at-most: cluster 'hexiscale_case_study' has no GPU type 'A800-80GB'")

    def test_a_plan_that_its_runner_cannot_run_is_refused_by_name(self):
        where = ("-c", "hexiscale_case_study", "-m", "gpt3_2.7b", "-s", "2048")
        ask = ("plan", "-p", "hexiscale,orrery", *where, "-b", "24", "-o", "budget=40",
               "--executable-by", "megatron")
        made = {each["name"]: each for each in self.document(*ask)["planners"]}
        self.assertEqual(made["hexiscale"]["infeasible"]["constraint"], "executable by megatron")
        self.assertIn("tensor-parallel degrees", made["hexiscale"]["infeasible"]["witness"])
        plan = self.folder / "plan.yaml"
        self.succeed(*ask, "--output", str(plan))
        self.succeed("export", str(plan), "--to", "megatron", "-o", str(self.folder / "out"),
                     *where)

    def test_near_a_plan_moves_less(self):
        def moved(to):
            return sum(self.document("switch", HEXISCALE, to, *WHERE)["moved_bytes"].values())
        far, near = str(self.folder / "far.yaml"), str(self.folder / "near.yaml")
        ask = ("plan", "-p", "orrery", *JOB, "-o", "budget=60", "-o", "seeds=own")
        best = self.document(*ask, "--output", far)["planners"][0]
        kept = self.document(*ask, "--output", near, "--near", HEXISCALE, "--within",
                             "0.3")["planners"][0]
        self.assertLess(moved(near), moved(far))
        self.assertLessEqual(kept["evaluation"]["iteration_seconds"],
                             1.3 * best["evaluation"]["iteration_seconds"])
        self.refuse("plan", "-p", "amp", *JOB, "--near", HEXISCALE,
                    says="--near: planner 'amp' keeps near no plan")
        self.refuse("plan", "-p", "orrery", *JOB, "--within", "0.1", says="--within: is for --near")

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


class Jobs(Case):
    CLUSTER = """\
schema: orrery/cluster/1
name: four_nodes
nodes:
  - name: node
    count: 4
    gpus: {type: A100-80GB, count: 2}
    domains: {link: nvlink3}
    nics: {link: ethernet-10g}
fabric: {leaf_latency: 1 us, spine_latency: 1 us}
storage: {bandwidth: 10 GB/s}
"""

    def setUp(self):
        super().setUp()
        self.cluster = self.write("cluster.yaml", self.CLUSTER)
        self.where = ["-c", self.cluster, "-m", "gpt3_125m", "-s", "1024"]

    def plan(self, name, without):
        """A plan of data parallelism on the GPUs that are not left out."""
        path = str(self.folder / name)
        self.succeed("plan", "-p", "megatron_grid", *self.where, "-b", "16", "--without", without,
                     "--max-tensor-parallel", "1", "--output", path)
        return path

    def jobs(self, *entries):
        lines = ["schema: orrery/jobs/1", "cluster: cluster.yaml", "jobs:"]
        for name, rest in entries:
            lines += [f"  - name: {name}", "    model: gpt3_125m",
                      f"    job: {{sequence_length: 1024{'' if 'plan:' in rest else ', global_batch: 16'}}}",
                      f"    {rest}"]
        return self.write("jobs.yaml", "\n".join(lines) + "\n")

    def test_jobs_on_one_link_slow_each_other_and_start_from_their_times_alone(self):
        even, odd = self.plan("even.yaml", "1,3,5,7"), self.plan("odd.yaml", "0,2,4,6")
        file = self.jobs(("even", "plan: even.yaml"), ("odd", "plan: odd.yaml"))
        self.assertIn("jobs, 2 jobs on", self.succeed("validate", file))
        both = self.document("simulate", file)
        for job, plan in zip(both["jobs"], (even, odd)):
            alone = self.document("simulate", plan, *self.where)["plans"][0]["evaluation"]
            self.assertEqual(job["alone_seconds"], alone["iteration_seconds"])
            self.assertGreater(job["slowdown"], 1.05)
            self.assertEqual(job["devices"], 4)
        self.assertAlmostEqual(both["jobs"][0]["together_seconds"],
                               both["jobs"][1]["together_seconds"], delta=1e-6)
        self.assertEqual(both["jobs"][0]["shares_links_with"], ["odd"])
        self.assertEqual(both["shared_links"], 8)  # four NICs, both ways
        self.assertLess(both["tokens_per_second"], both["tokens_per_second_alone"])
        for link in both["links"]:
            self.assertAlmostEqual(link["busy"], sum(link["by_job"].values()))
            self.assertLessEqual(link["busy"], 1.0001)
        self.assertEqual(both, self.document("simulate", file))
        text = self.succeed("simulate", file, "--phases", "4")
        self.assertIn("median of 4 phases", text)
        self.assertIn("node-0/nic0/up", text)

    def test_jobs_apart_take_exactly_as_long_as_alone(self):
        self.plan("left.yaml", "node-2,node-3")
        file = self.jobs(("left", "plan: left.yaml"),
                         ("right", "planner: {name: megatron_grid}\n    nodes: [node-2, node-3]"))
        both = self.document("simulate", file)
        self.assertEqual(both["shared_links"], 0)
        for job in both["jobs"]:
            self.assertEqual(job["together_seconds"], job["alone_seconds"])
            self.assertEqual(job["slowdown"], 1)
        self.assertIn("No link is shared.", self.succeed("simulate", file))

    def test_problems_have_their_places(self):
        self.plan("left.yaml", "node-2,node-3")
        self.plan("wide.yaml", "1,3,5,7")
        file = self.jobs(("left", "plan: left.yaml"), ("wide", "plan: wide.yaml"))
        self.refuse("simulate", file, says=[str(self.folder / "wide.yaml") + ":",
                                            "device 0 of job 'wide' belongs to job 'left', too"])
        self.refuse("validate", file, says="", status=2)
        file = self.jobs(("left", "plan: left.yaml\n    nodes: [node-1]"))
        self.refuse("simulate", file, says="is not of the nodes of job 'left'")
        file = self.jobs(("left", "plan: left.yaml"), ("left", "plan: wide.yaml"))
        self.refuse("simulate", file, says="two jobs are called 'left'")
        file = self.jobs(("left", "nodes: [node-1]"), ("right", "planner: {name: metis}"),
                         ("far", "planner: {name: metis}\n    nodes: [node-9]"))
        self.refuse("simulate", file, says=["neither `planner` nor `plan` is given",
                                            "jobs.yaml:11:14: `nodes` is missing"])
        file = self.jobs(("far", "planner: {name: megatron_grid}\n    nodes: [node-9]"))
        self.refuse("simulate", file, says="jobs.yaml:8:13: 'node-9' is neither a node nor a device")
        file = self.jobs(("left", "plan: left.yaml"))
        self.refuse("simulate", file, "-m", "gpt3_125m", "--steps", "3", "-b", "4",
                    says=["--model: has no meaning", "--steps: has no", "--global-batch: has no"])
        self.refuse("simulate", str(self.folder / "left.yaml"), *self.where, "--phases", "2",
                    says="has a meaning for files of jobs only")

    def test_jobs_fail_together_and_slow_each_other_while_they_train(self):
        self.plan("even.yaml", "1,3,5,7"), self.plan("odd.yaml", "0,2,4,6")
        self.plan("left.yaml", "node-2,node-3"), self.plan("right.yaml", "node-0,node-1")
        ask = ("--generate", "llama3", "--set", "failures.gpus=8", "--days", "2",
               "--seeds", "3")

        def replayed(*entries):
            return self.document("replay", self.jobs(*entries), *ask, "-p", "checkpoint_restart")

        both = replayed(("even", "plan: even.yaml"),
                        ("odd", "plan: odd.yaml\n    policy: {name: checkpoint_restart, "
                                "options: {interval: 600}}"))
        self.assertEqual([job["job"] for job in both["policies"][0]["jobs"]], ["even", "odd"])
        total = 0
        for job in both["policies"][0]["jobs"]:
            total += job["tokens_per_second"]["mean"]
            self.assertGreater(job["interruptions"], 0)
            self.assertGreater(job["downtime"]["mean"], 0)
            self.assertLess(job["downtime"]["mean"], 1)
            self.assertGreater(job["lost_to_others"]["mean"], 0.02)
        self.assertAlmostEqual(both["policies"][0]["tokens_per_second"]["mean"], total, delta=1e-6 * total)
        apart = replayed(("left", "plan: left.yaml"), ("right", "plan: right.yaml"))
        for job in apart["policies"][0]["jobs"]:
            self.assertEqual(job["lost_to_others"]["mean"], 0)
            self.assertGreater(job["interruptions"], 0)
        text = self.succeed("replay", self.jobs(("left", "plan: left.yaml")), *ask, "-p",
                            "checkpoint_restart,oobleck")
        self.assertIn("lost to other jobs %", text)
        self.assertIn("all jobs", text)
        file = self.jobs(("left", "plan: left.yaml\n    policy: nothing"))
        self.refuse("replay", file, *ask, "-m", "gpt3_125m",
                    says=["--model: the file says it of each job", "unknown policy 'nothing'"])
        for policy, says in (("nothing", "jobs.yaml:8:13: unknown policy 'nothing'"),
                             ("all", "jobs.yaml:8:13: a job has one policy"),
                             ("{name: oobleck, options: {pace: 3}}", "has no option 'pace'"),
                             ("{name: checkpoint_restart, options: {interval: often}}",
                              "option 'interval': 'often' is none of")):
            file = self.jobs(("left", f"plan: left.yaml\n    policy: {policy}"))
            self.refuse("validate", file, says=says)
            self.refuse("replay", file, *ask, says=says)
        self.refuse("replay", self.jobs(("left", "plan: left.yaml")), *ask, "-p",
                    "checkpoint_restart", "--option", "checkpoint_restart.interval=often",
                    says="option 'interval': 'often' is none of")

    def test_a_job_without_a_plan_is_left_out_and_says_why(self):
        self.plan("left.yaml", "node-2,node-3")
        file = self.jobs(("left", "plan: left.yaml"),
                         ("big", "planner: {name: megatron_grid}\n    nodes: [node-2]"))
        text = Path(file).read_text().replace("gpt3_125m", "llama2_70b").replace(
            "llama2_70b", "gpt3_125m", 1)
        done = orrery("simulate", self.write("jobs.yaml", text))
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("megatron_grid: no plan", done.stdout)
        self.assertIn("left", done.stdout)


class Simulate(Case):
    def seconds(self, *args):
        shown = self.document("simulate", *args, *WHERE)
        return shown["plans"][0]["evaluation"]["iteration_seconds"]

    def test_a_straggler_and_a_slow_link_cost_time(self):
        base = self.seconds(HEXISCALE)
        self.assertGreater(self.seconds(HEXISCALE, "--straggler", "2=2"), 1.05 * base)
        self.assertGreater(self.seconds(HEXISCALE, "--slow-link", "a800/nic0/up=20"), 1.05 * base)

    def test_gathers_of_zero_3_are_a_part_of_their_own(self):
        plan = {"schema": "orrery/plan/1", "pipelines": [
            {"micro_batches": 2, "micro_batch_size": 1, "stages": [{"segments": [
                {"blocks": "0-33", "zero": {"stage": 3},
                 "groups": [{"devices": [device], "tensor_parallel": 1, "samples": 1}]}]}]}
            for device in range(8)]}
        path = self.write("sharded.yaml", yaml.safe_dump(plan))
        for mode in ("closed_form", "aggregated", "per_block"):
            found = self.document("simulate", path, "-c", "a100_8", "-m", "llama2_7b", "-s", "4K",
                                  "--inner", mode)
            parts = found["plans"][0]["evaluation"]
            self.assertEqual(parts["tensor_parallel_seconds"], 0)
            self.assertGreater(parts["zero_seconds"], 0.1)
        text = self.succeed("simulate", path, "-c", "a100_8", "-m", "llama2_7b", "-s", "4096")
        self.assertIn("gathers of parameters (ZeRO-3)", text)
        self.assertIn("per million tokens (list prices)", text)

    def test_fp8_is_said_to_be_missing_and_stores_bf16(self):
        job = ["-c", "a100_8", "-m", "llama2_7b", "-s", "4096", "-b", "32", "-p", "megatron_grid"]
        made = orrery("plan", *job, "--dtype", "fp8", "--json")
        self.assertEqual(made.returncode, 0, made.stderr)
        self.assertIn("A100-80GB has no fp8: its layers are computed in bf16", made.stderr)
        parts = [json.loads(text)["planners"][0]["evaluation"]
                 for text in (made.stdout, self.succeed("plan", *job, "--json"))]
        self.assertEqual(parts[0]["memory"], parts[1]["memory"])
        self.assertEqual(parts[0]["iteration_seconds"], parts[1]["iteration_seconds"])

    def test_what_if_the_hardware_were_other(self):
        base = self.seconds(HEXISCALE)
        self.assertGreater(self.seconds(HEXISCALE, "--scale-network", "0.1"), 1.05 * base)
        self.assertLess(self.seconds(HEXISCALE, "--scale-compute", "2"), base)
        self.assertGreater(self.seconds(HEXISCALE, "--link", "ethernet-1GBps=10 Mbps",
                                        "--scale-latency", "2"), base)
        dollars = []
        for price in (1, 2):
            prices = [word for gpu in ("A800-80GB-NVLink", "RTX4090-24GB", "RTX3090-24GB")
                      for word in ("--price", f"{gpu}={price}")]
            shown = self.document("simulate", HEXISCALE, *WHERE, *prices)["plans"][0]
            dollars.append(shown["evaluation"]["dollars_per_million_tokens"])
        self.assertAlmostEqual(dollars[1], 2 * dollars[0])
        self.assertIn("(no price of A800-80GB-NVLink, RTX4090-24GB: --price",
                      self.succeed("simulate", HEXISCALE, *WHERE, "--price", "RTX3090-24GB=1"))
        prices = prices[2:] + ["--price", "A800-80GB-NVLink=1"]
        self.assertIn("(given for A800-80GB-NVLink, RTX3090-24GB, RTX4090-24GB)",
                      self.succeed("simulate", HEXISCALE, *WHERE, *prices))
        self.refuse("simulate", HEXISCALE, *WHERE, "--without", "0", "--price", "A800=1",
                    "--link", "nvlink9=1 GB/s",
                    says=["--price: cluster 'hexiscale_case_study' has no GPU type 'A800'",
                          "--link: cluster 'hexiscale_case_study' has no link class 'nvlink9'"])
        self.refuse("simulate", HEXISCALE, *WHERE, "--without", "0",
                    says="the plan uses device 0, which --without leaves out (plan again)")
        self.refuse("simulate", HEXISCALE, *WHERE, "--without", "a801",
                    says="--without: 'a801' is neither a node nor a device")

    def test_a_plan_fits_whatever_its_links_and_prices(self):
        plan = str(self.folder / "plan.yaml")
        self.succeed("plan", "-p", "hexiscale", *JOB, "-o", "rounds=1", "--output", plan)
        self.succeed("simulate", plan, *WHERE, "--scale-network", "0.5", "--price",
                     "RTX3090-24GB=1")
        self.refuse("simulate", plan, "--cluster", "a100_8", "--model", "bert_large",
                    "--sequence-length", "512", says="whose nodes have other GPUs")

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
        for said in ("network MiB", "lost state: none", "6 bytes per parameter"):
            self.assertIn(said, text)

    def test_bad_input(self):
        self.refuse("switch", *self.C1_C2, "--state", "al", "--variant", "fuse",
                    says=["--state: unknown value 'al' (did you mean 'all'?",
                          "--variant: unknown value 'fuse' (did you mean 'fused'?"])
        self.refuse("switch", *self.C1_C2, "--lost", "30,99,3x,5-2",
                    says=["--lost: device 30 is lost, but the new plan uses it",
                          "--lost: '99' is neither a node nor a device", "--lost: '3x'",
                          "--lost: '5-2'"])
        self.refuse("switch", f"{HETU}/c1.yaml", *H20,
                    says="neither a plan file nor a planner is given")
        self.refuse("switch", *self.C1_C2, "--planner", "orrery", says="exclude each other")
        self.refuse("switch", *self.C1_C2, "--output", "p.yaml", says="--output: is for --planner")
        self.refuse("switch", f"{HETU}/c1.yaml", *H20, "--planner", "hettu",
                    says="--planner: unknown planner 'hettu' (did you mean 'hetu'?")

    def test_a_planner_makes_the_plan_of_what_is_left(self):
        rest = str(self.folder / "rest.yaml")
        ask = ["switch", f"{HETU}/c1.yaml", *H20, "--lost", "h20-3", "--planner", "megatron_grid"]
        found = self.document(*ask, "--output", rest)
        self.assertEqual(found["lost_devices"], list(range(24, 32)))
        text = self.succeed(*ask)
        self.assertIn("an iteration of the new plan:", text)
        used = {device for pipeline in yaml.safe_load(Path(rest).read_text())["pipelines"]
                for stage in pipeline["stages"] for segment in stage["segments"]
                for group in segment["groups"] for device in ranges(group["devices"])}
        self.assertTrue(used.isdisjoint(range(24, 32)))
        by_file = self.document("switch", f"{HETU}/c1.yaml", rest, *H20, "--lost", "24-31")
        for key in ("moved_bytes", "simulated_seconds", "messages"):
            self.assertEqual(found[key], by_file[key])
        again = self.document("simulate", rest)  # It says itself what it was made for.
        self.assertEqual(again["plans"][0]["evaluation"]["iteration_seconds"],
                         found["made"]["evaluation"]["iteration_seconds"])

    def test_no_plan_of_what_is_left_is_an_answer(self):
        done = orrery("switch", f"{HETU}/c1.yaml", *H20, "--lost", "1-31", "--planner",
                      "megatron_grid")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("no plan of the devices that are left", done.stdout)


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


class Export(Case):
    H20 = ["--cluster", "hetu_32h20", "--model", "llama_7b", "--sequence-length", "4096"]
    PAIR = ["--cluster", "hethub_pair2", "--model", "llama2_7b", "--sequence-length", "4096"]

    def plan(self, planner, where):
        path = str(self.folder / f"{planner}.yaml")
        self.succeed("plan", "-p", planner, *where, "--global-batch", "64", "--output", path)
        return path

    def calls_of(self, script, nodes):
        """What torchrun is called with on each node."""
        torchrun = self.folder / "torchrun"
        torchrun.write_text('#!/bin/sh\necho "$CUDA_VISIBLE_DEVICES" "$@"\n')
        torchrun.chmod(0o755)
        environment = {**os.environ, "PATH": f"{self.folder}:{os.environ['PATH']}",
                       "MASTER_ADDR": "head"}
        return [subprocess.run(["bash", script, "--mock-data"], env={**environment, "NODE": node},
                               check=True, capture_output=True, text=True).stdout.split()
                for node in nodes]

    def test_megatron_gets_every_degree_and_uneven_layers(self):
        script = str(self.folder / "megatron.sh")
        path = self.plan("hethub", self.PAIR)
        self.succeed("export", path, "--to", "megatron", *self.PAIR, "-o", script)
        stages = yaml.safe_load(Path(path).read_text())["pipelines"][0]["stages"]
        ends = [[int(end) for end in stage["segments"][0]["blocks"].split("-")] for stage in stages]
        # Block 0 is the embedding, block 33 the head.
        layers = [min(last, 32) - max(first, 1) + 1 for first, last in ends]
        self.assertEqual(sum(layers), 32)
        calls = self.calls_of(script, ["first", "second"])
        self.assertEqual(sorted(call[call.index("--node-rank") + 1] for call in calls), ["0", "1"])
        for call in calls:
            self.assertEqual(call[0], "0,1,2,3,4,5,6,7")
            value = dict(zip(call, call[1:]))
            self.assertEqual(value["--pipeline-model-parallel-layout"],
                             f"Et*{layers[0]}|t*{layers[1]}L")
            degrees = [int(value[f"--{kind}-model-parallel-size"]) for kind in ("tensor", "pipeline")]
            group = stages[0]["segments"][0]["groups"][0]
            self.assertEqual(degrees, [group.get("tensor_parallel", 1), 2])
            self.assertEqual((value["--global-batch-size"], value["--num-layers"]), ("64", "32"))
            self.assertEqual(call[-1], "--mock-data")

    def test_flagscale_gets_a_mesh_for_each_kind_of_gpu(self):
        text = self.succeed("export", self.plan("hethub", self.PAIR), "--to", "flagscale", *self.PAIR)
        hetero = yaml.safe_load(text)["system"]["hetero"]
        meshes = hetero["hetero_process_meshes"]
        self.assertEqual(len(meshes), 5 * len(hetero["hetero_device_types"]))
        ranks = sum(meshes[i] * meshes[i + 1] * meshes[i + 3] * meshes[i + 4]
                    for i in range(0, len(meshes), 5))
        self.assertEqual(ranks, 16)
        self.assertEqual(sum(hetero["hetero_pipeline_layer_split"]), 32)

    def test_what_a_trainer_cannot_do_is_named(self):
        done = orrery("export", HEXISCALE, "--to", "megatron", *WHERE)
        self.assertEqual(done.returncode, 1)
        for reason in ("megatron cannot run this plan:", "different numbers of stages",
                       "tensor-parallel degrees that differ by stage"):
            self.assertIn(reason, done.stderr)
        self.refuse("export", HEXISCALE, "--to", "megatorn", *WHERE, says="did you mean 'megatron'")


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

    def test_plans_of_different_clusters_models_or_jobs_are_refused(self):
        """And so does switch, unless flags say what holds for both."""
        def made(name, *args):
            path = str(self.folder / name)
            self.succeed("plan", "-p", "megatron_grid", "--output", path, *args)
            return path
        a100 = ["-c", "a100_8", "-m", "gpt3_125m"]
        small = made("small.yaml", *a100, "-s", "512", "-b", "16")
        other = made("other.yaml", "-c", "hetu_32h20", "-m", "llama2_7b", "-s", "512", "-b", "32")
        longer = made("longer.yaml", *a100, "-s", "1024", "-b", "16")
        batch = made("batch.yaml", *a100, "-s", "512", "-b", "32", "--zero-stages", "1")
        for command in ("diff", "switch"):
            done = self.refuse(command, small, other,
                               says=["cluster 'hetu_32h20', but 'a100_8' for " + small,
                                     "--cluster says which holds for both",
                                     "model 'llama2_7b', but 'gpt3_125m' for " + small])
            self.assertRegex(done.stderr, r"other\.yaml:\d+:\d+: cluster")
            self.refuse(command, other, small, says="cluster 'a100_8', but 'hetu_32h20' for")
            self.refuse(command, small, longer,
                        says=f"{longer}: made for a job that differs in sequence_length from")
            self.refuse(command, small, other, "-c", "a100_8",
                        says="the plan was made for cluster")
        shown = self.document("diff", small, batch)  # A batch is the plan's own.
        self.assertIn({"where": "plan", "what": "global batch", "first": "16", "second": "32"},
                      shown["differences"])
        self.document("switch", small, batch)


class MixedLength(Case):
    CASE = """schema: orrery/study/1
name: cli
title: A test
command: mixed_length
settings: {cluster: hetu_32h20, model: hetu_32b, tokens_per_step: 16384, steps: 2}
axes:
  case:
    - {name: short, job: job.yaml}
  system:
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
        self.file = self.write("manifest.yaml", self.CASE)

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


class Paper(Case):
    def test_case_study_under_the_public_cost_model(self):
        """HexiScale's public code prints these times."""
        for plan, times in ((MEGATRON, ("31.6208", "32.1739")), (HEXISCALE, ("19.1412", "20.4797"))):
            shown = self.succeed("simulate", plan, *WHERE, "--cost", "hexiscale_public_code")
            for number, value in enumerate(times):
                self.assertRegex(shown, rf"\n +pipeline {number} +{value}  s\n")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
