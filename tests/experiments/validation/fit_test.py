#!/usr/bin/python3
"""Does the fit of the A100 studies find what made the rows (experiments/validation/a100/fit.py)?"""

import math
import unittest

import support  # noqa: F401  (finds the studies)
from a100 import fit


def two_rates(point):
    """Row i: x_i / a + y_i / b, as time is work by rate."""
    return [(1 + i) / point[0] + (10 - i * i % 7) / point[1] for i in range(10)]


def model(points):
    return [two_rates(point) for point in points]


def space(**more):
    loose = {"start": [0.8, 0.8], "least": [0.1, 0.1], "most": [1.0, 1.0],
             "prior_deviation": 100.0, "iterations": 30}
    return fit.Space(**(loose | more))


class FitRows(unittest.TestCase):
    def test_finds_the_parameters_that_made_the_rows(self):
        fitted = fit.fit_rows(two_rates([0.55, 0.35]), space(), model)
        self.assertAlmostEqual(fitted.point[0], 0.55, delta=1e-3)
        self.assertAlmostEqual(fitted.point[1], 0.35, delta=1e-3)
        for residual in fitted.residuals:
            self.assertAlmostEqual(residual, 0, delta=1e-3)

    def test_one_odd_row_moves_little(self):
        measured = two_rates([0.55, 0.35])
        measured[4] *= 2
        fitted = fit.fit_rows(measured, space(), model)
        self.assertAlmostEqual(fitted.point[0], 0.55, delta=0.06)
        self.assertAlmostEqual(fitted.point[1], 0.35, delta=0.06)

    def test_stays_inside_its_limits(self):
        # Rows that ask for a rate above the limit: the other one is fitted as if this were fixed.
        measured = two_rates([2.0, 0.4])
        both = fit.fit_rows(measured, space(most=[0.9, 1.0]), model)
        self.assertEqual(both.point[0], 0.9)
        one = fit.fit_rows(measured, space(start=[0.8], least=[0.1], most=[1.0]),
                           lambda points: [two_rates([0.9, point[0]]) for point in points])
        self.assertAlmostEqual(both.point[1], one.point[0], delta=1e-3)

    def test_parameters_without_evidence_stay_where_they_start(self):
        fitted = fit.fit_rows([2.0] * 5, space(prior_deviation=0.5, iterations=8),
                              lambda points: [[1 / point[0]] * 5 for point in points])
        self.assertAlmostEqual(fitted.point[0], 0.5, delta=0.01)
        self.assertAlmostEqual(fitted.point[1], 0.8, delta=1e-9)

    def test_tries_other_starts_of_parameters_that_do_not_matter_at_first(self):
        # A floor that lies below the rows at the start and has no slope there.
        fitted = fit.fit_rows(
            [4.0, 4.0], space(start=[0.1], least=[0.01], most=[10.0], tried=[[3.0]]),
            lambda points: [[max(1.0, point[0]), max(2.0, point[0])] for point in points])
        self.assertAlmostEqual(fitted.point[0], 4.0, delta=1e-2)


class PointWithout(unittest.TestCase):
    def test_agrees_with_a_fit_on_the_other_rows(self):
        measured = [time * (1 + 0.01 * math.sin(3.0 * i))
                    for i, time in enumerate(two_rates([0.55, 0.35]))]
        left_out = 3

        def without(rows):
            return rows[:left_out] + rows[left_out + 1:]

        fitted = fit.fit_rows(measured, space(), model)
        refit = fit.fit_rows(without(measured), space(),
                             lambda points: [without(rows) for rows in model(points)])
        point = fit.point_without(fitted, left_out, space())
        self.assertAlmostEqual(point[0], refit.point[0], delta=3e-3)
        self.assertAlmostEqual(point[1], refit.point[1], delta=3e-3)


if __name__ == "__main__":
    unittest.main()
