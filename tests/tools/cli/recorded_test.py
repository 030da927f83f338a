#!/usr/bin/python3
"""Runs that others recorded, and plans for others: import chakra and kineto, simulate of what they
give, export to Chakra, ASTRA-sim, torchrun and HexiScale.

    recorded_test.py BINARY SOURCE_DIR [unittest arguments]
"""

import json
import os
import subprocess
import sys
import unittest
from pathlib import Path

import yaml

from support import HEXISCALE, ROOT, WHERE, Case, orrery

CLUSTER = """schema: orrery/cluster/1
name: four
nodes:
  - {name: n, count: 2, gpus: {type: A100-80GB, count: 2}, domains: {link: nvlink3},
     nics: {link: infiniband-200, count: 1}}
"""


def group(devices, tensor_parallel, samples):
    return {"devices": devices, "tensor_parallel": tensor_parallel, "samples": samples}


def stage(first, last, devices, tensor_parallel, samples=1, **more):
    """gpt3_125m has 12 layers between an embedding (block 0) and a head (13)."""
    return {"segments": [{"blocks": f"{first}-{last}",
                          "groups": [group(devices, tensor_parallel, samples)], **more}]}


def pipelines(*stages, micro_batches=4):
    return {"schema": "orrery/plan/1",
            "pipelines": [{"micro_batches": micro_batches, "micro_batch_size": 1,
                           "stages": list(one)} for one in stages]}


TENSOR = pipelines([stage(0, 13, [0, 1], 2)], [stage(0, 13, [2, 3], 2)])
UNEVEN = pipelines([stage(0, 4, [0], 1), stage(5, 13, [2, 3], 2)])
SHARDED = pipelines(*([stage(0, 13, [device], 1, zero={"stage": 3})] for device in range(4)))


class Recorded(Case):
    def setUp(self):
        super().setUp()
        self.cluster = self.write("four.yaml", CLUSTER)
        self.job = ["-c", self.cluster, "-m", "gpt3_125m", "-s", "512"]

    def plan(self, plan):
        return self.write("plan.yaml", yaml.safe_dump(plan))

    def recorded(self, plan):
        """The plan's traces, imported."""
        self.traces = self.folder / f"traces{len(list(self.folder.iterdir()))}"
        run = f"{self.traces}-run"
        self.succeed("export", self.plan(plan), *self.job, "--to", "chakra", "-o", str(self.traces))
        self.succeed("import", "chakra", str(self.traces), "-c", self.cluster, "-o", run)
        return run

    def seconds(self, plan, *more):
        """Of the plan, simulated as the traces say it."""
        found = self.document("simulate", self.plan(plan), *self.job, "--expanded", "--inner",
                              "per_block", *more)
        return found["plans"][0]["evaluation"]["iteration_seconds"]

    def test_a_plan_comes_back_from_its_traces_with_its_time(self):
        for name, plan, tolerance in (("tensor", TENSOR, 1e-6), ("uneven", UNEVEN, 1e-6),
                                      ("sharded", SHARDED, 2e-2)):
            with self.subTest(name):
                again = self.document("simulate", self.recorded(plan))
                self.assertIsNone(again["recorded_seconds"])
                here = self.seconds(plan)
                self.assertAlmostEqual(again["simulated"]["seconds"], here, delta=tolerance * here)

    def test_what_if_is_the_plans_own(self):
        run = self.recorded(TENSOR)
        base = self.seconds(TENSOR)
        for flags in (["--scale-network", "0.25"], ["--scale-node", "0.5"],
                      ["--link", "nvlink3=50 GB/s"], ["--straggler", "2=1.5"]):
            with self.subTest(" ".join(flags)):
                found = self.document("simulate", run, *flags)
                change = self.seconds(TENSOR, *flags) / base - 1
                self.assertGreater(change, 1e-3)
                self.assertAlmostEqual(found["change"], change, delta=1e-5)

    def test_kernels_scale_with_the_gpu_and_overlap_can_be_taken_away(self):
        run = self.recorded(TENSOR)
        found = self.document("simulate", run, "--scale-compute", "2")
        self.assertAlmostEqual(found["what_if"]["parts"]["compute_seconds"],
                               found["simulated"]["parts"]["compute_seconds"] / 2, delta=1e-8)
        serial = self.document("simulate", run, "--overlap", "none")
        self.assertGreaterEqual(serial["change"], 0)
        text = self.succeed("simulate", run, "--scale-network", "2")
        self.assertIn("with what you changed (on four)", text)

    def test_settings_without_a_meaning_are_refused(self):
        run = self.recorded(TENSOR)
        self.refuse("simulate", run, "-m", "gpt3_125m", says="has no meaning for a recorded run")
        self.refuse("simulate", run, "--steps", "3", says="has no meaning for a recorded run")
        self.refuse("simulate", run, "--without", "n-0", says="has no meaning for a recorded run")
        self.refuse("simulate", HEXISCALE, *WHERE, "--overlap", "none", says="recorded runs only")
        small = self.write("two.yaml", CLUSTER.replace("count: 2, gpus", "count: 1, gpus"))
        self.refuse("simulate", run, "-c", small, says="the run used device 2, four has 2")
        self.refuse("import", "chakra", str(self.traces), "-c", small, "-o",
                    str(self.folder / "other"), says="is on device 2 of a cluster of 2")
        self.refuse("import", "chakra", str(self.traces), says="--cluster: missing")
        Path(run, "run.log").write_bytes(b"")
        self.refuse("simulate", run, says="run.log: is empty")

    def test_astra_sim_gets_the_network(self):
        out = self.folder / "astra"
        self.succeed("export", self.plan(TENSOR), *self.job, "--to", "astra-sim", "-o", str(out))
        network = yaml.safe_load((out / "network.yml").read_text())
        self.assertEqual(network["topology"], ["Switch", "Switch"])
        self.assertEqual(network["npus_count"], [2, 2])
        # One NIC of 25 GB/s for two GPUs, in 2^30 bytes.
        library = yaml.safe_load((ROOT / "models/library/links.yaml").read_text())
        self.assertIn("infiniband-200", str(library))
        self.assertLess(network["bandwidth"][1], 12.5e9 / 2**30 + 1e-6)
        self.assertGreater(network["bandwidth"][0], 100)
        system = json.loads((out / "system.json").read_text())
        self.assertEqual(system["all-reduce-implementation"], ["ring", "ring"])
        groups = json.loads((out / "comm_groups.json").read_text())
        self.assertIn([0, 1], groups.values())
        self.assertIn("--comm-group-configuration=comm_groups.json", (out / "run.sh").read_text())
        self.assertEqual(sorted(path.name for path in out.glob("*.et")),
                         [f"chakra.{rank}.et" for rank in range(4)])

    def test_what_astra_sim_cannot_say_is_named(self):
        done = orrery("export", self.plan(UNEVEN), *self.job, "--to", "astra-sim", "-o",
                      str(self.folder / "astra"))
        self.assertEqual(done.returncode, 1)
        self.assertIn("2 GPUs of n-1, 1 of n-0: every node has as many", done.stderr)
        self.refuse("export", self.plan(TENSOR), *self.job, "--to", "chakra",
                    says="--output: missing")
        self.recorded(TENSOR)
        self.refuse("export", self.plan(UNEVEN), *self.job, "--to", "chakra", "-o",
                    str(self.traces), says="has chakra.3.et of another export")

    def test_torchrun_starts_any_plan(self):
        script = str(self.folder / "launch.sh")
        self.succeed("export", self.plan(UNEVEN), *self.job, "--to", "torchrun", "-o", script)
        torchrun = self.folder / "torchrun"
        torchrun.write_text('#!/bin/sh\necho "$CUDA_VISIBLE_DEVICES|$PLAN_RANKS|$@"\n')
        torchrun.chmod(0o755)
        environment = {**os.environ, "PATH": f"{self.folder}:{os.environ['PATH']}",
                       "MASTER_ADDR": "head"}
        calls = [subprocess.run(["bash", script, "train.py", "--mine"],
                                env={**environment, "NODE": node}, check=True,
                                capture_output=True, text=True).stdout.strip().split("|")
                 for node in ("n-0", "n-1")]
        self.assertEqual([call[0] for call in calls], ["0", "0,1"])
        for number, (_, ranks, words) in enumerate(calls):
            self.assertEqual(ranks, "0:0:0:0 0:1:0:0 0:1:0:1")
            self.assertIn(f"--nnodes 2 --node-rank {number} --nproc-per-node {number + 1}", words)
            self.assertTrue(words.endswith("train.py --mine"), words)

    def test_hexiscale_gets_uneven_pipelines(self):
        script = str(self.folder / "hexiscale.sh")
        where = ["--cluster", "hexiscale_case_study", "-m", "llama2_13b", "-s", "4096"]
        plan = yaml.safe_load((ROOT / HEXISCALE).read_text())
        done = orrery("export", HEXISCALE, *where, "--to", "hexiscale", "-o", script)
        self.assertEqual(done.returncode, 0, done.stderr)
        text = Path(script).read_text()
        degrees = [[one["segments"][0]["groups"][0].get("tensor_parallel", 1)
                    for one in pipeline["stages"]]
                   for pipeline in plan["pipelines"]]
        self.assertIn(f'--hetero_configs "{degrees}"', text)
        self.assertIn("--total-layer-num 40", text)
        self.assertIn("--model_size llama-13b", text)
        flags = [line.split()[0] for line in text.splitlines() if line.startswith("  --")]
        # As its parser names them (llama/arguments.py, third_party/megatron/arguments.py).
        known = {"--model_size", "--fp16", "--bf16", "--use-flash-attn", "--total-layer-num",
                 "--hetero_configs", "--layer_partitions", "--global_bsz_size", "--chunks",
                 "--pipeline-type", "--default_dp_type", "--checkpoint-layers", "--seq-parallel"}
        self.assertLessEqual(set(flags), known)
        refused = orrery("export", self.plan(TENSOR), *self.job, "--to", "hexiscale")
        self.assertEqual(refused.returncode, 1)
        self.assertIn("configurations of Llama 7B, 13B, 30B and 70B", refused.stderr)

    def test_a_profiled_run_is_replayed(self):
        def event(cat, name, start, length, **args):
            return {"ph": "X", "cat": cat, "name": name, "pid": 0, "tid": 1, "ts": start,
                    "dur": length, "args": args}

        traces = self.folder / "traces"
        traces.mkdir()
        collective = {"Collective name": "allreduce", "In msg nelems": 25_000_000,
                      "Out msg nelems": 25_000_000, "dtype": "Float", "Group size": 4,
                      "Process Group Name": "0", "Process Group Ranks": "[0, 1, 2, 3]"}
        for rank in range(4):
            events = [event("cuda_runtime", "cudaLaunchKernel", 0, 5, correlation=1),
                      event("kernel", "gemm", 10, 20_000, stream=7, correlation=1),
                      event("cuda_runtime", "cudaLaunchKernel", 10, 5, correlation=2),
                      event("kernel", "ncclDevKernel_AllReduce", 20_010, 9_000, stream=20,
                            correlation=2, **collective)]
            (traces / f"trace_{rank}.json").write_text(json.dumps(
                {"distributedInfo": {"rank": rank}, "traceEvents": events}))
        run = str(self.folder / "run")
        said = self.succeed("import", "kineto", str(traces), "-c", self.cluster, "-o", run)
        self.assertIn("4 ranks, 4 kernels, 1 collectives", said)
        self.assertIn("recorded 0.029010 s; replayed with everything as long as it was 0.029010 s",
                      said)
        found = self.document("simulate", run, "--scale-network", "0.5")
        self.assertAlmostEqual(found["recorded_seconds"], 29_010e-6, delta=1e-9)
        self.assertAlmostEqual(found["as_recorded_error"], 0, delta=1e-6)
        # 100 MB over four GPUs, two of them behind one NIC: 1.5 times that at its bandwidth.
        self.assertGreater(found["change"], 0.2)
        self.assertAlmostEqual(found["expected_seconds"],
                               (1 + found["change"]) * found["recorded_seconds"], delta=1e-9)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
