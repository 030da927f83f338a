#!/usr/bin/python3
"""The studies of today's GPUs (experiments/validation/today and those who use it): are published
rows read and split as their READMEs say, do kernels follow their shapes, and do the shortenings of
a run change its time?"""

import importlib.util
import random
import unittest
from dataclasses import replace

import support
import errors
import orrery
import tables
from today import cases, jitter, memory, study
from today.gpus import GPUS, KERNELS, kernels_of
from today.models import model
from today.runs import DECLARED, Run, chunk_layers


def script(name):
    """predict.py of a study."""
    spec = importlib.util.spec_from_file_location(name, support.VALIDATION / name / "predict.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# Rows, measured ones, and those that are fitted on.
COUNTS = {"mlperf": (36, 20, 15), "dgxc": (399, 195, 69), "megatron_bridge": (278, 180, 65),
          "llm_foundry": (216, 132, 33), "torchtitan": (28, 28, 13), "nemo": (17, 17, 7),
          "megatron_lm": (9, 9, 5)}


class Rules(unittest.TestCase):
    def test_rows_are_split_as_said_and_enough_for_the_parameters(self):
        for name, (rows, measured, fitted) in COUNTS.items():
            with self.subTest(name):
                study = script(name)
                problems = tables.Problems()
                runs = study.read(tables.measurements(name), problems)
                self.assertEqual(problems.found, [])
                self.assertEqual((len({run.id for run in runs}),
                                  sum(run.measured is not None for run in runs),
                                  sum(run.fitted for run in runs)), (rows, measured, fitted))
                self.assertFalse(any(run.fitted and run.measured is None for run in runs))
                free = study.free(runs)
                self.assertTrue(errors.enough_rows(len(free), fitted))
                for one in free:
                    self.assertTrue(any(one.takes(run) for run in runs if run.fitted), one.name)

    def test_mlperf_is_fitted_on_small_systems_alone(self):
        runs = script("mlperf").read(tables.measurements("mlperf"), tables.Problems())
        self.assertEqual(max(run.gpus for run in runs if run.fitted), 1024)
        self.assertEqual(min(run.gpus for run in runs if run.use() == "scored"), 1536)


def toy(**more):
    return Run(**({"id": "toy", "set": "toy", "model": model("llama3_8b", 16), "gpu": "H100",
                   "gpus": 64, "sequence": 2048, "global_batch": 128, "tp": 4, "pp": 4,
                   "virtual_stages": 2} | more))


class Kernels(unittest.TestCase):
    def test_the_library_has_what_dgxc_gave(self):
        """What models/library/profiles/today.yaml says of kernels are the parameters that the
        studies start from."""
        found = study.read_parameters(support.VALIDATION / "mlperf" / "parameters_of_dgxc.csv",
                                      tables.Problems())
        like = {"H200": "H100", "B200": "GB200", "B300": "GB200", "GB300": "GB200"}
        for gpu, known in GPUS.items():
            with self.subTest(gpu):
                values = DECLARED | study.taken_from(found, like.get(gpu, gpu))
                self.assertEqual(kernels_of(gpu, values).model(), KERNELS[known.library])

    def test_latent_attention_has_its_own_projections(self):
        at = orrery.KernelDegrees(sequence=4096, tensor_parallel=8)
        kernels = kernels_of("H100", DECLARED)
        layer = model("deepseek_v3").layers[0]
        alone = layer.replace(projections=[], experts=0, ffn=0)
        sums = [kernels.linear(4096, *divided, at).forward
                for divided in ((1536 + 512 + 64, 7168), (128 * 192 / 8, 1536),
                                (128 * 256 / 8, 512), (7168, 128 * 128 / 8))]
        both = layer.replace(experts=0, ffn=0)
        self.assertAlmostEqual(kernels.layer(both, at).forward,
                               kernels.layer(alone, at).forward + sum(sums), delta=1e-12)

    def test_numbers_that_kernels_do_not_know_are_refused(self):
        with self.assertRaisesRegex(ValueError, "no products in fp8"):
            kernels_of("A100", DECLARED).product(128, 128, 128, "fp8")


class Cases(unittest.TestCase):
    def test_chunks_have_all_layers_and_ends_count_as_one(self):
        run = toy(model=model("llama3_405b"), pp=8, virtual_stages=8, ends_count=True)
        counts = chunk_layers(run)
        self.assertEqual((sum(counts), counts[0], counts[1], counts[-1]), (126, 1, 2, 1))
        self.assertEqual(sum(chunk_layers(toy(model=model("deepseek_v3"), pp=16))), 61)

    def test_groups_of_micro_batches_that_are_left_out_take_their_time(self):
        run = toy(global_batch=4 * 32)  # 32 micro-batches, of which 12 and 16 are simulated
        whole = cases.simulate_part(run, run.micro_batches, DECLARED).iteration_time
        short = cases.simulate(run, {}).step - DECLARED["step"]
        self.assertAlmostEqual(short / whole, 1, delta=2e-3)

    def test_two_replicas_take_the_time_of_all(self):
        # But for how latencies of unequal edges of a long ring overlap.
        run = toy(gpus=128, global_batch=8 * 8)

        def all_of(run):
            return cases.Fold(run.dp, GPUS[run.gpu].domain, 1)

        two = cases.simulate_part(run, run.micro_batches, DECLARED).iteration_time
        known, cases.fold_of = cases.fold_of, all_of
        try:
            whole = cases.simulate_part(run, run.micro_batches, DECLARED).iteration_time
        finally:
            cases.fold_of = known
        self.assertAlmostEqual(two / whole, 1, delta=0.02)

    def test_the_closed_form_of_the_fit_moves_like_the_simulation(self):
        run = toy()
        for name, value in (("products", 0.7), ("exposed", 1.0), ("memory", 0.5)):
            with self.subTest(name):
                other = {name: value}
                simulated = cases.simulate(run, other).step / cases.simulate(run, {}).step
                estimated = cases.estimate(run, other) / cases.estimate(run, {})
                self.assertAlmostEqual(simulated / estimated, 1, delta=0.04)


class Experts(unittest.TestCase):
    def run_of(self, **more):
        return toy(**({"model": model("qwen3_30b_a3b"), "tp": 1, "pp": 1, "virtual_stages": 1,
                       "whole_experts": True} | more))

    def test_gradients_of_experts_travel_among_the_ranks_that_hold_them(self):
        # 64 GPUs on nodes of eight. Spread over a node, each expert is once on every node: eight
        # ranks, each behind its own adapter. What is left is on all 64, in eight rings.
        run = self.run_of(ep=8)
        experts = cases.share_of_experts(run)
        layer = run.model.layers[0]
        held = 128 / 8 * 3 * layer.hidden * layer.expert_ffn * 48
        self.assertAlmostEqual(experts, held / cases.parameters_of_rank(run), delta=1e-12)
        self.assertAlmostEqual(cases.ring_share(run, 64, 8),
                               (1 - experts) * 63 / 64 / 8 + experts * 7 / 8, delta=1e-12)
        # Spread over all, nobody else has them.
        run = self.run_of(ep=64)
        rest = 1 - cases.share_of_experts(run)
        self.assertAlmostEqual(cases.ring_share(run, 64, 8), rest * 63 / 64 / 8, delta=1e-12)
        # Without experts all ranks sum everything.
        self.assertAlmostEqual(cases.ring_share(toy(), 4, 2), 3 / 4 / 2, delta=1e-12)

    def test_exchanges_leave_the_node_where_its_gpus_do_not_hold_all_experts(self):
        layer = self.run_of().model.layers[0]
        links = orrery.library()["links"]
        near, far = (links[GPUS["H100"].scale_up], links[GPUS["H100"].network])
        rate = {link.name: link.bandwidth * link.efficiency for link in (near, far)}
        sent = 2 * 2048 * layer.hidden * layer.top_k
        for ep, tp, away in ((8, 1, 0), (32, 1, 24 / 32), (32, 2, 24 / 32)):
            run = self.run_of(ep=ep, tp=tp)
            inside = sent / tp * (min(ep, 8) - 1) / ep / rate[near.name]
            outside = sent / tp * away / rate[far.name]
            found = cases.experts_exchange(run, layer, DECLARED | {"exposed_experts": 1.0})
            self.assertAlmostEqual(found, 2 * (max(inside, outside) + near.latency), delta=1e-12)

    def test_a_second_predicted_token_costs_a_layer_a_projection_and_a_head(self):
        known = model("deepseek_v3")
        run = toy(model=known, tp=1, pp=4)
        two = toy(model=replace(known, predicted=1), tp=1, pp=4)
        one, more = (cases.Prices(each, DECLARED) for each in (run, two))
        end = known.shape.layers + 1
        kernels, at = one.kernels, cases.degrees_of(run)
        added = (one.ends[end].forward + one.layers[0].forward +
                 kernels.linear(2048, 7168, 2 * 7168, at).forward)
        self.assertAlmostEqual(more.ends[end].forward, one.ends[end].forward + added, delta=1e-12)

    def test_layouts_hold_all_layers(self):
        study = script("megatron_bridge")
        for layout in study.LAYOUTS:
            run = toy(model=study.model_of("deepseek_v3"), pp=len(layout), virtual_stages=1)
            self.assertEqual((sum(layout), chunk_layers(run)), (61, list(layout)))

    def test_gathers_hide_behind_the_passes_ahead_of_the_last_chunk(self):
        # 16 layers in four stages of two chunks: the last chunk follows four micro-batches.
        run = toy(gpus=4096, micro_batch=1, global_batch=256 * 32)
        traffic = cases.gather_time(run)
        passes = 16 / 8 * cases.Prices(run, DECLARED).layers[0].forward
        left = cases.hidden_gathers(run, DECLARED)
        self.assertAlmostEqual(left, 1 - 5 * passes / traffic, delta=1e-12)
        self.assertGreater(left, 1 / 8)


class Bloom(unittest.TestCase):
    def test_heads_divide_the_width(self):
        problems = tables.Problems()
        rows = list(tables.Table(f"{tables.measurements('bigscience')}/throughput.csv",
                                 ["id", "hidden", "heads"], problems))
        heads = {row.text("id"): script("bigscience").heads_of(row) for row in rows[:60:7]}
        self.assertTrue(heads)
        self.assertEqual(script("bigscience").heads_of(
            next(row for row in rows if row.text("id") == "bloom-048")), 112)
        for row in rows:
            if row.count("hidden") % row.count("heads") == 0:
                self.assertEqual(script("bigscience").heads_of(row), row.count("heads"))


class Jitter(unittest.TestCase):
    def test_the_slowest_of_many_is_drawn(self):
        draw, gpus, deviation = random.Random(1), 64, 0.01
        steps = sorted(max(draw.gauss(1, deviation) for _ in range(gpus)) for _ in range(4000))
        median = steps[2000]
        for share in jitter.TAILS:
            self.assertAlmostEqual(steps[int(4000 * share)] / median,
                                   jitter.over_median(gpus, share, deviation), delta=5e-4)

    def test_the_fit_finds_what_was_put_in(self):
        series = [(gpus, *(jitter.over_median(gpus, share, 0.02) for share in jitter.TAILS))
                  for gpus in (8, 512, 10000)]
        self.assertAlmostEqual(jitter.fit(series + [(64, 0.5, 1.5)]), 0.02, delta=1e-9)


class Memory(unittest.TestCase):
    def test_the_line_ignores_one_wrong_point(self):
        pairs = [(x, 3.0 + 2.0 * x) for x in range(6)] + [(6.0, 90.0)]
        constant, slope = memory.theil_sen(pairs)
        self.assertAlmostEqual(slope, 2.0)
        self.assertAlmostEqual(constant, 3.0)


class GoldenMemory(unittest.TestCase):
    def read(self):
        problems = tables.Problems()
        cases, left = script("golden_memory").read(tables.measurements("golden_memory"), problems)
        self.assertEqual(problems.found, [])
        return cases, left

    def test_fits_small_models_and_scores_large_ones(self):
        found, left = self.read()
        script("golden_memory").mark_doubtful(found)
        self.assertEqual(len(found) + len(left), 837)
        self.assertLess(max(case.parameters for case in found if case.fitted), 1e9)
        doubtful = {case.id for case in found if not case.scored}
        self.assertEqual(doubtful, {"golden-036", "golden-037", "golden-038", "golden-603",
                                    "golden-604"})

    def test_layouts_of_chunks(self):
        layers = script("golden_memory").layout_layers
        self.assertEqual(layers("Et*3|(tt|)*6mL"), [3, 2, 2, 2, 2, 2, 2, 0])
        self.assertEqual(layers("Et*2|(tt|)*5t|tmL"), [2, 2, 2, 2, 2, 2, 1, 1])

    def test_counts_by_hand(self):
        """A stage of 8 layers of 4h with tied matrices in full: states by 18 bytes a parameter."""
        study = script("golden_memory")
        case = next(case for case in self.read()[0] if case.id == "golden-128")
        case.flags["distributed_optimizer"] = ""
        parts = study.count(case)
        layers, hidden, vocabulary = 3, 512, 50304
        of_layer = 12 * hidden**2 + 4 * hidden  # matrices and gains of norms with their biases
        expected = 18 * (layers * of_layer + vocabulary * hidden + 2 * hidden)
        self.assertAlmostEqual(parts.states / expected, 1, delta=1e-6)


class Nccl(unittest.TestCase):
    def test_the_profile_makes_the_choice_that_was_fitted(self):
        study = script("nccl")
        flags_start, flags, switch_start, switch = study.START
        topology = orrery.Topology(study.cluster(1), study.profile(study.START))
        for power in range(3, 35):
            size = 2.0**power
            time = min(flags_start + size / flags, switch_start + size / switch)
            found = topology.collective_time("all_reduce", "ring", range(study.NODE), size)
            self.assertAlmostEqual(found / time, 1, delta=1e-9)
            # As flows, which the simulator runs: bytes over the wire, and the rest as latency.
            edge = topology.collective_flows("all_reduce", range(study.NODE), size)[0]
            path = topology.path(edge.source, edge.destination)
            flow = edge.bytes / path["bandwidth"] + path["latency"] + edge.extra_latency
            self.assertAlmostEqual(flow / time, 1, delta=1e-9)

    def test_nodes_reduce_in_chunks(self):
        """Five stages of 92 us and a loop over 400 GB/s each: chunks of 128, 256 and 512 KiB on 16
        channels of eight GPUs."""
        study = script("nccl")
        topology = orrery.Topology(study.cluster(2), study.profile(study.START))
        for mib, kib in ((64, 128), (256, 128), (512, 256), (1024, 256), (2048, 512)):
            size, loop = mib * 2.0**20, 128 * kib * 1024
            time = (size / loop + 4) * (92e-6 + loop / 400e9)
            found = topology.collective_time("all_reduce", "ring", range(16), size)
            self.assertAlmostEqual(found / time, 1, delta=1e-9)
            for edge in topology.collective_flows("all_reduce", range(16), size):
                path = topology.path(edge.source, edge.destination)
                alone = edge.bytes / path["bandwidth"] + path["latency"] + edge.extra_latency
                self.assertLessEqual(alone / time, 1 + 1e-9)


if __name__ == "__main__":
    unittest.main()
