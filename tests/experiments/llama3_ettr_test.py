"""Effective training time and interruptions by replay and generator against the values that papers
publish and the exact forms behind them.

    llama3_ettr_test.py SOURCE_DIR      with the package orrery on the path
"""

import sys
import unittest
from pathlib import Path

ROOT = Path(sys.argv[1])
sys.path.insert(0, str(ROOT / "experiments/llama3/ettr"))

import ettr  # noqa: E402
import orrery  # noqa: E402

SEEDS, FAILURES = 12, 400


class PublishedEttr(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        at, seed = ettr.one_gpu(), 0
        cls.replayed = []  # (point, mean, half of the 99 % interval), with seeds of its own each
        for point in ettr.points():
            values = [ettr.replayed(at, point, seed + i, FAILURES) for i in range(1, SEEDS + 1)]
            seed += SEEDS
            cls.replayed.append((point, *orrery.confidence(values, 0.99)))

    def test_exact_form_lies_in_the_confidence_interval_of_replay(self):
        for point, mean, half in self.replayed:
            self.assertAlmostEqual(mean, point.exact(), delta=half, msg=point.name)
            self.assertLess(half, 0.04, point.name)

    def test_replay_is_near_the_published_values(self):
        for point, mean, _ in self.replayed:
            if point.published is None:
                continue
            if point.published_is == "at least":
                self.assertGreaterEqual(mean, point.published, point.name)
            else:  # What was measured has more losses than the one that we count.
                near = 0.04 if point.published_is == "measured" else 0.025
                self.assertAlmostEqual(mean, point.published, delta=near, msg=point.name)

    def test_additive_form_gives_the_digits_computed_by_it(self):
        for (point, _, _), digits in zip(self.replayed,
                                         (0.68, 0.93, 0.92, 0.90, 0.94, 0.445, 0.83)):
            unit = 0.001 if digits == 0.445 else 0.01
            self.assertAlmostEqual(point.additive(), digits, delta=0.5 * unit, msg=point.name)

    def test_additive_form_is_within_six_percent_of_the_exact_one(self):
        for point, _, _ in self.replayed:
            if point.recovery != "from_scratch":
                self.assertAlmostEqual(point.additive() / point.exact(), 1, delta=0.06,
                                       msg=point.name)


class Llama3(unittest.TestCase):
    def test_interruptions_over_54_days_have_419_in_their_confidence_interval(self):
        cluster = ettr.llama3_cluster()
        mean, half = orrery.confidence(
            [float(ettr.llama3_interruptions(cluster, seed)) for seed in range(1, 31)], 0.99)
        self.assertAlmostEqual(mean, 419, delta=half)
        # For a Poisson number: 2.756 sqrt(419 / 30) = 10.3.
        self.assertLess(half, 15)
        self.assertGreater(half, 6)


class Confidence(unittest.TestCase):
    def test_it_is_students_for_two_values(self):
        mean, half = orrery.confidence([1.0, 3.0], 0.99)
        self.assertEqual(mean, 2)
        self.assertAlmostEqual(half, 63.657, delta=1e-3)  # t of one degree, two-sided 99 %


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
