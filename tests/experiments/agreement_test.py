#!/usr/bin/python3
"""Tests the comparison of plans and the verdicts of experiments/agreement/agreement.py.

    agreement_test.py SOURCE_DIR
"""

import copy
import sys
import unittest
from pathlib import Path

ROOT = Path(sys.argv[1])
sys.path.insert(0, str(ROOT / "experiments" / "agreement"))

import agreement  # noqa: E402

TYPES = ["A", "A", "B", "B"]


def stage(blocks, device, degree=1):
    devices = [f"{device}-{device + degree - 1}"] if degree > 1 else [device]
    return {"segments": [{"blocks": blocks,
                          "groups": [{"devices": devices, "tensor_parallel": degree}]}]}


def plan(*pipelines):
    return {"pipelines": [{"micro_batches": 4, "micro_batch_size": 1, "stages": list(stages)}
                          for stages in pipelines]}


PLAN = plan([stage("0-3", 0), stage("4-9", 2)], [stage("0-4", 1), stage("5-9", 3)])


class Comparison(unittest.TestCase):
    def same(self, other, level):
        return agreement.matches(PLAN, TYPES, other, TYPES, level)

    def test_order_of_pipelines_and_names_of_devices_do_not_count(self):
        other = plan([stage("0-4", 0), stage("5-9", 2)], [stage("0-3", 1), stage("4-9", 3)])
        self.assertTrue(self.same(other, "all"))

    def test_layers_count_only_where_they_are_printed(self):
        other = plan([stage("0-2", 0), stage("3-9", 2)], [stage("0-4", 1), stage("5-9", 3)])
        self.assertTrue(self.same(other, "groups"))
        self.assertFalse(self.same(other, "layers"))

    def test_micro_batches_count_only_at_all(self):
        other = copy.deepcopy(PLAN)
        other["pipelines"][0]["micro_batches"] = 5
        self.assertTrue(self.same(other, "layers"))
        self.assertFalse(self.same(other, "all"))

    def test_gpu_types_stage_order_and_degrees_always_count(self):
        swapped = plan([stage("0-3", 2), stage("4-9", 0)], [stage("0-4", 1), stage("5-9", 3)])
        self.assertFalse(self.same(swapped, "groups"))
        wide = plan([stage("0-3", 0, 2), stage("4-9", 2, 2)])
        self.assertFalse(self.same(wide, "groups"))

    def test_a_range_of_one_block_is_one_block(self):
        single = plan([stage("0-8", 0), stage("9", 2)])
        self.assertEqual([s[1] for s in agreement.signature(single, TYPES, "layers")[0][0]], [9, 1])


class Verdicts(unittest.TestCase):
    def test_half_a_per_cent_is_a_tie(self):
        self.assertEqual(agreement.relation(99.6, 100), "tied")
        self.assertEqual(agreement.relation(100.4, 100), "tied")

    def test_beyond_it_the_sign_decides(self):
        self.assertEqual(agreement.relation(90, 100), "beaten by 10.0 %")
        self.assertEqual(agreement.relation(110, 100), "not reached: 10.0 % slower")


class Files(unittest.TestCase):
    def test_every_library_cluster_has_as_many_types_as_devices(self):
        types = agreement.gpu_types("hetu")
        self.assertEqual((types.count("H800-80GB"), types.count("H20-96GB")), (16, 32))
        self.assertEqual(len(agreement.gpu_types("experiments/agreement/clusters/hetu_31h20.yaml")), 31)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
