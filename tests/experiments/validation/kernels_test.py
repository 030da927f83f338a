#!/usr/bin/python3
"""Are the counted kernels of a GPT layer right (experiments/validation/a100/kernels.py)?"""

import unittest
from dataclasses import replace

import support  # noqa: F401  (finds the studies)
from a100 import kernels

DEVICE = kernels.Device(312e12, 2000e9)
BLOCK = kernels.Block(sequence=2048.0, hidden=12288.0, heads=96.0, vocabulary=51200.0, samples=1.0,
                      tp=8.0, accumulation_bytes=10.0)
ALONE = replace(BLOCK, accumulation_bytes=0.0)


class Products(unittest.TestCase):
    def test_full_waves_run_at_peak(self):
        # 12 x 9 tiles of 256 x 128: one wave on 108 multiprocessors.
        m, n, k = 12 * 256, 9 * 128, 8192
        self.assertEqual(DEVICE.product(m, n, k), 2 * m * n * k / 312e12)

    def test_one_tile_more_takes_another_wave(self):
        full = DEVICE.product(12 * 256, 9 * 128, 8192)
        more = DEVICE.product(12 * 256 + 1, 9 * 128, 8192)
        self.assertGreater(more, 1.05 * full)
        self.assertLessEqual(more, 2 * full)

    def test_thin_products_are_bound_by_memory(self):
        moved = 2.0 * (4096 * 8 + 8 * 4096 + 4096 * 4096)
        self.assertEqual(DEVICE.product(4096, 4096, 8), moved / 2000e9)

    def test_the_share_divides_the_rate(self):
        half = replace(DEVICE, gemm_share=0.5)
        self.assertEqual(half.product(3072, 1152, 8192), 2 * DEVICE.product(3072, 1152, 8192))


class Blocks(unittest.TestCase):
    def test_sequence_parallelism_divides_the_whole_tensors(self):
        split = replace(BLOCK, sequence_parallel=True)
        saved = kernels.layer(BLOCK, DEVICE).forward - kernels.layer(split, DEVICE).forward
        self.assertAlmostEqual(saved, 22.0 * 2048 * 12288 * (1 - 1 / 8) / 2000e9, delta=1e-12)

    def test_selective_recomputation_repeats_a_small_part(self):
        times = kernels.layer(BLOCK, DEVICE)
        self.assertGreater(times.attention_core, 0)
        self.assertLess(times.attention_core, 0.4 * times.forward)

    def test_backward_takes_about_twice_the_forward(self):
        times = kernels.layer(ALONE, DEVICE)
        self.assertGreater(times.backward, 1.8 * times.forward)
        self.assertLess(times.backward, 2.3 * times.forward)

    def test_sums_of_gradients_cost_their_bytes(self):
        added = kernels.layer(BLOCK, DEVICE).backward - kernels.layer(ALONE, DEVICE).backward
        self.assertAlmostEqual(added, 10 * (12.0 * 12288 * 12288 / 8) / 2000e9, delta=1e-12)

    def test_the_head_grows_with_the_vocabulary(self):
        wide = replace(BLOCK, vocabulary=2 * BLOCK.vocabulary)
        self.assertGreater(kernels.head(wide, DEVICE).forward,
                           1.8 * kernels.head(BLOCK, DEVICE).forward)

    def test_the_optimizer_moves_sixty_bytes_for_each_parameter(self):
        self.assertEqual(kernels.optimizer(1e9, DEVICE), 60e9 / 2000e9)


if __name__ == "__main__":
    unittest.main()
