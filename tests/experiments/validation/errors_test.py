#!/usr/bin/python3
"""What counts in an error table, and the form of predictions.csv
(experiments/validation/errors.py); and whether each published value has a source."""

import csv
import unittest

import support  # noqa: F401  (finds the studies)
import errors
import tables


def rows():
    """Errors +10 %, -20 %, +60 %."""
    return [errors.Row(name, "a", "iteration_s", predicted, measured)
            for name, predicted, measured in (("x", 1.1, 1.0), ("y", 1.6, 2.0), ("z", 6.4, 4.0))]


class Summaries(unittest.TestCase):
    def test_doubtful_fitted_and_unmeasured_rows_do_not_count(self):
        some = rows() + [errors.Row("w", "a", "iteration_s", 1.0)]
        some[0].scored = False
        some[1].fitted = True
        line = errors.summarize_rows(some, "a", "iteration_s")
        self.assertEqual((line.rows, line.worst), (1, "z"))
        self.assertAlmostEqual(line.mean, 0.6)

    def test_other_sets_and_metrics_do_not_count(self):
        some = rows()
        some[0].set = "b"
        some[1].metric = "peak_memory_bytes"
        self.assertEqual(errors.summarize_rows(some, "a", "iteration_s").rows, 1)

    def test_a_parameter_needs_five_rows(self):
        self.assertTrue(errors.enough_rows(1, 5))
        self.assertFalse(errors.enough_rows(1, 4))
        self.assertFalse(errors.enough_rows(2, 9))


class Sources(unittest.TestCase):
    def test_every_file_of_measurements_has_its_source(self):
        for name in ("sailor", "vtrain", "megatron"):
            folder = tables.measurements(name)
            with open(folder / "sources.csv", newline="", encoding="utf-8") as file:
                sources = list(csv.DictReader(file))
            files = {path.name for path in folder.iterdir()} - {"README.md", "sources.csv"}
            self.assertEqual({row["file"] for row in sources}, files, msg=name)
            for row in sources:
                for column in ("repository", "path", "license"):
                    self.assertTrue(row[column], msg=f"{name} {row}")
                self.assertTrue(row["commit"] or "arxiv.org" in row["repository"], msg=row)


class Predictions(unittest.TestCase):
    def test_have_a_line_for_each_case_measured_or_not(self):
        some = [errors.Row("x", "a", "iteration_s", 1.5, 1.0),
                errors.Row("y, z", "a", "iteration_s", 2.0),
                errors.Row("x", "a", "bytes", 1.5, 1.0, fitted=True)]
        self.assertEqual(
            errors.predictions_csv(some),
            "id,set,scored,iteration_s_predicted,iteration_s_measured,iteration_s_error,"
            "iteration_s_use,bytes_predicted,bytes_measured,bytes_error,bytes_use\n"
            "x,a,true,1.5,1,0.5,scored,1.5,1,0.5,fitted\n"
            '"y, z",a,true,2,,,unmeasured,,,,\n')


if __name__ == "__main__":
    unittest.main()
