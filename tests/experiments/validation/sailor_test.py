#!/usr/bin/python3
"""Sailor's measurements: is the public data read right, and are DeepSpeed's order and memory what
they are by hand (experiments/validation/sailor)? How far predictions are from measurements is a
finding, not a test.

Plans of a toy model by hand: two layers of 1 s forward and 2 s backward, activations of 2048 bytes
over links of 4096 B/s, so that a transfer takes 0.5 s."""

import json
import unittest
import unittest.mock

import support
import tables
from sailor import cases, data as sailor_data, deepspeed, own_formula, predict

FORWARD, BACKWARD, TRANSFER = 1.0, 2.0, 0.5
SMALL = 0.01  # optimizer, the embedding's backward pass and latencies, not counted by hand
TIMES = """model,gpu,tp,micro_batch,first_layer,last_layer,forward_s,backward_s
toy,GH-96,1,1,0,0,0,2e-06
toy,GH-96,1,1,1,1,0.9,2.2
toy,GH-96,1,1,2,2,1.1,1.8
toy,GH-96,1,1,3,3,0,0
"""
OPTIMIZER = """model,gpu,tp,micro_batch,optimizer_step_s,profiled_params_per_gpu
toy,GH-96,1,1,0.0018,2000000
toy,GH-96,1,2,0.0022,2000000
toy,GH-96,2,1,0.0015,1000000
"""
MEMORY = """model,tp,first_layer,last_layer,params_per_gpu,params_bytes_per_gpu,input_bytes,\
output_bytes,saved_activation_bytes
toy,1,0,0,8704,34816,64,2048,1000
toy,1,1,2,49984,199936,2048,2048,7000
toy,1,3,3,8320,33280,2048,4096,3000
"""
NETWORK = """link,sender_gpu,sender_pairs,receiver_gpu,receiver_pairs,c2,c1,c0,\
max_measured_bytes_per_s,fit_positive_from_bytes,same_numbers_as
intra_node,GH-96,1,GH-96,1,0,0,100,100000000000,65536,
intra_node,GH-96,2,GH-96,2,0,0,150,150000000000,65536,
inter_node,GH-96,1,GH-96,1,0,0,4.096e-06,4096,65536,
"""
MODELS = {"models": {"toy": {"transformer_layers": 2, "hidden": 64, "ffn_hidden": 256, "heads": 4,
                             "head_dim": 16, "sequence": 8, "positions": 8,
                             "vocab_unpadded": 100}}}


def plan_of(micro_batches, replicas, cuts, tp=1, **more):
    """A plan whose stages end after the layers `cuts`, and after the last one."""
    firsts = [0] + [cut + 1 for cut in cuts]
    stages = [{"first_layer": first, "last_layer": last,
               "replicas": [{"gpu": "GH-96", "tp": tp, "count": replicas}]}
              for first, last in zip(firsts, [*cuts, 3])]
    return {"id": "p", "cluster": "gh200", "model": "toy", "micro_batch": 1,
            "global_batch": micro_batches * replicas, "micro_batches_per_pipeline": micro_batches,
            "pipelines": [{"data_parallel": replicas, "stages": stages}]} | more


class Toy(support.Folder):
    def setUp(self):
        super().setUp()
        for name, text in (("layer_times.csv", TIMES), ("optimizer_times.csv", OPTIMIZER),
                           ("layer_memory.csv", MEMORY), ("network_bandwidth.csv", NETWORK),
                           ("models.json", json.dumps(MODELS))):
            self.write(name, text)
        self.set_gpus(1)

    def set_gpus(self, count):
        self.write("clusters.json", json.dumps({"clusters": {"gh200": {
            "gpu": "GH-96", "gpus_per_node": count, "memory_bytes_per_gpu": 1e11}}}))

    def read(self, plan):
        self.write("measured.json", json.dumps({"plans": [plan]}))
        self.write("unmeasured_plans.json", json.dumps(
            {"plans": [plan_of(1, 1, (), id="u")]}))
        self.problems = tables.Problems()
        return sailor_data.read(self.folder, self.problems)

    def predict(self, plan):
        data = self.read(plan)
        self.assertEqual(self.problems.found, [])
        profiles = cases.Profiles(data, self.folder)
        return cases.predict(data.plans[0], data, 0.0, profiles.completed)[0]

    def assert_takes(self, plan, seconds):
        prediction = self.predict(plan)
        self.assertAlmostEqual(prediction.iteration, seconds, delta=SMALL)
        return prediction


class DeepSpeed(Toy):
    def test_one_micro_batch_is_forwards_transfers_backwards(self):
        self.assert_takes(plan_of(1, 1, (1,)), 2 * (FORWARD + BACKWARD) + 2 * TRANSFER)

    def test_sends_block_their_stage(self):
        # Stage 0: F0 S F1 | R S B0 | R B1; its second send and both receives wait for nothing else.
        found = self.assert_takes(plan_of(2, 1, (1,)), 3 * (FORWARD + BACKWARD) + 4 * TRANSFER)
        self.assertLess(found.overlapped, found.iteration - TRANSFER / 2)

    def test_each_further_micro_batch_takes_its_passes_and_two_transfers(self):
        more = self.predict(plan_of(6, 1, (1,))).iteration
        self.assertAlmostEqual(more - self.predict(plan_of(5, 1, (1,))).iteration,
                               FORWARD + BACKWARD + 2 * TRANSFER, delta=SMALL)

    def test_a_send_that_fits_the_buffer_frees_its_sender(self):
        # All layers on stage 0: what each further micro-batch takes is its own.
        def further():
            return (self.predict(plan_of(6, 1, (2,))).iteration -
                    self.predict(plan_of(5, 1, (2,))).iteration)

        self.assertAlmostEqual(further(), 2 * (FORWARD + BACKWARD), delta=SMALL)
        with unittest.mock.patch.object(deepspeed, "BUFFER", 1000):
            self.assertAlmostEqual(further(), 2 * (FORWARD + BACKWARD) + 2 * TRANSFER,
                                   delta=SMALL)

    def test_one_stage_sends_nothing(self):
        self.assert_takes(plan_of(3, 1, ()), 3 * 2 * (FORWARD + BACKWARD))

    def test_slices_are_gathered_once_forward_and_twice_backward(self):
        self.write("layer_times.csv", TIMES.replace("96,1,1,1,1,0.9,2.2", "96,2,1,1,2,1,2")
                   .replace("toy,GH-96,1,1,2,2,1.1,1.8\n", "").replace("96,1,1,", "96,2,1,"))
        self.write("layer_memory.csv", MEMORY.splitlines()[0] + """
toy,2,0,0,8704,34816,64,2048,1000
toy,2,1,2,25088,100352,2048,2048,4000
toy,2,3,3,8320,33280,2048,8192,3000
""")
        self.set_gpus(2)
        # Each of two GPUs sends 1024 bytes over its own NIC, 0.25 s, and again inside its node,
        # 0.5 s.
        self.write("network_bandwidth.csv", NETWORK.splitlines()[0] + """
intra_node,GH-96,1,GH-96,1,0,0,2.048e-06,2048,65536,
inter_node,GH-96,1,GH-96,1,0,0,4.096e-06,4096,65536,
""")
        piece, gather = 0.25, 0.5
        self.assert_takes(plan_of(1, 1, (1,), tp=2),
                          2 * (FORWARD + BACKWARD) + 2 * piece + 3 * gather)

    def test_gradients_are_reduced_after_the_last_backward_pass(self):
        # Two replicas: each sends and receives the whole gradient once.
        parameters = 8704 + 2 * 49984 + 8320
        self.assert_takes(plan_of(1, 2, ()), 2 * (FORWARD + BACKWARD) + 4 * parameters / 4096)

    def test_holds_states_flat_gradients_activations_and_staging(self):
        # Stage 0: embedding and a layer, two micro-batches in flight, one activation to send.
        first = (8704 + 49984) * 20.0 + 2 * (1000 + 7000) + 2048
        # Stage 1: a layer and the head, one in flight, one activation received, gradient of logits.
        second = (49984 + 8320) * 20.0 + (7000 + 3000) + 2048 + 8 * 128 * 4
        self.assertEqual(self.predict(plan_of(3, 1, (1,))).held, max(first, second))


class Data(Toy):
    def test_a_head_is_added_only_where_the_data_has_none(self):
        data = self.read(plan_of(1, 1, ()))
        self.assertTrue(cases.head_is_profiled(data, "toy", 1))
        self.write("layer_memory.csv", MEMORY.replace("8320,33280", "128,512"))
        data = self.read(plan_of(1, 1, ()))
        self.assertFalse(cases.head_is_profiled(data, "toy", 1))
        blocks = cases.make_workload(data.plans[0], data).blocks
        ratio = blocks[-1].forward_flops / blocks[1].forward_flops
        profiles = cases.Profiles(data, self.folder)

        def head_time(profile):
            return sum(entry.time for entry in profile.block_times if entry.block == "head")

        self.assertEqual(head_time(profiles.published), 0)
        self.assertAlmostEqual(head_time(profiles.completed), ratio * (FORWARD + BACKWARD),
                               delta=1e-12)

    def test_the_report_is_the_same_each_time(self):
        data = self.read(plan_of(2, 2, (1,), measured={"iteration_s": 11.0,
                                                       "peak_memory_bytes": 2e6}))
        once, again = (predict.make_report(data, self.folder) for _ in range(2))
        self.assertEqual(predict.errors.predictions_csv(once.predictions),
                         predict.errors.predictions_csv(again.predictions))
        self.assertEqual(predict.notes.text_of(once), predict.notes.text_of(again))
        self.assertEqual(len(once.rows), 2)

    def test_plans_that_do_not_fit_together_are_problems(self):
        plan = plan_of(2, 1, (1,))
        plan["pipelines"][0]["stages"][0]["last_layer"] = 2
        self.read(plan)
        first = self.problems.found[0]
        self.assertTrue(first.file.endswith("measured.json"))
        self.assertEqual((first.line, first.column > 1), (1, True))
        self.assertEqual(first.what, "p: layer 3 is missing or twice")


class PublishedData(unittest.TestCase):
    """The public data."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tables.measurements("sailor")
        problems = tables.Problems()
        cls.data = sailor_data.read(cls.folder, problems)
        assert not problems.found, problems.found

    def test_has_18_plans_with_values_and_16_without(self):
        measured = [plan for plan in self.data.plans if plan.measured.iteration_s is not None]
        self.assertEqual((len(measured), len({plan.id for plan in self.data.plans})), (18, 34))

    def test_sailors_own_formula_reproduces_its_estimates(self):
        times = memories = 0
        for plan in self.data.plans:
            sailor = plan.others.get("SAILOR", sailor_data.Values())
            if sailor.iteration_s is not None:
                self.assertAlmostEqual(own_formula.time(plan, self.data) / sailor.iteration_s, 1,
                                       delta=1e-6, msg=plan.id)
                times += 1
            if sailor.peak_memory_bytes is not None:
                self.assertAlmostEqual(
                    own_formula.memory(plan, self.data) / sailor.peak_memory_bytes, 1, delta=1e-6,
                    msg=plan.id)
                memories += 1
        self.assertEqual((times, memories), (18, 14))

    def test_our_workload_has_its_parameters_and_activations(self):
        for plan in self.data.plans:
            degree = plan.tensor_parallel
            profiled = cases.head_is_profiled(self.data, plan.model, degree)
            self.assertEqual(profiled, plan.model == "OPT-350")
            blocks = cases.make_workload(plan, self.data).blocks
            for layer, block in enumerate(blocks):
                row = self.data.layer_memory(plan.model, degree, layer)
                head = layer + 1 == len(blocks)
                if head and not profiled:
                    continue
                self.assertEqual(sum(one.elements / (degree if one.split_length else 1)
                                     for one in block.parameters), row.parameters)
                if not head:
                    self.assertEqual(block.output_bytes, row.output)

    def test_every_plan_is_predicted(self):
        report = predict.make_report(self.data, self.folder)
        for row in report.rows:
            one = row.prediction
            self.assertGreater(one.iteration, one.slowest_compute, row.plan.id)
            self.assertLessEqual(one.overlapped, one.iteration * (1 + 1e-9), row.plan.id)
            gpu = row.plan.stages[0].replicas[0].gpu
            self.assertLess(one.held, self.data.nodes[gpu].memory, row.plan.id)


if __name__ == "__main__":
    unittest.main()
