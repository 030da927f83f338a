#!/usr/bin/python3
"""Laws of AutoHet's Figure 3, and the counts of its Figure 1.

    autohet_figures_test.py SOURCE_DIR      with the package orrery on the path
"""

import csv
import importlib.util
import io
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(sys.argv[1])


def figure_1():
    path = ROOT / "experiments/autohet/figure_1/plot.py"
    spec = importlib.util.spec_from_file_location("figure_1", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class AsymmetricTp(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        script = ROOT / "experiments/autohet/figure_3/asymmetric_tp.py"
        done = subprocess.run([sys.executable, "-B", script], capture_output=True, text=True,
                              timeout=60)
        assert done.returncode == 0, done.stderr
        cls.rows = list(csv.DictReader(io.StringIO(done.stdout)))

    def test_row_split_gradients_are_five_squares_of_the_hidden_size_a_layer(self):
        shapes = {"1.3B": (24, 2048), "2.7B": (32, 2560), "6.7B": (32, 4096), "13B": (40, 5120)}
        for row in self.rows:
            layers, hidden = shapes[row["model"]]
            expected = layers * 5 * hidden**2 * 2 / (2 * int(row["tensor_parallel"])) / 1e9
            self.assertAlmostEqual(float(row["row_split_gb"]), expected, delta=6e-5)

    def test_transposes_take_two_reads_and_two_writes_of_an_a100s_memory(self):
        for row in self.rows:
            streamed = 4 * float(row["row_split_gb"]) / (2039 * 0.8)
            self.assertAlmostEqual(float(row["transpose_tiled_s"]) / streamed, 1, delta=1e-3)
            # Two bytes written as a sector of 32 cost sixteen times as much.
            self.assertAlmostEqual(float(row["transpose_by_element_s"]) / streamed, 17 / 2,
                                   delta=1e-2)

    def test_the_larger_degree_alone_does_not_change_the_throughput(self):
        for row in self.rows:
            self.assertEqual(row["fits"], "true")
            ratio = float(row["asymmetric_s"]) / float(row["symmetric_s"])
            self.assertAlmostEqual(ratio, 1, delta=2e-3)


class Availability(unittest.TestCase):
    TRACE = "\n".join([
        "# schema: orrery/trace/1", "# horizon: 100", "# nodes: a-{0..1} A100-80GB x8",
        "# nodes: h H800-80GB x4", "time,kind,scope,cause,notice,detection,factor,price",
        "10,join,node:a-1,spot", "30,notice,node:h,spot,5", "35,leave,node:h,spot", ""])

    def test_nodes_whose_first_event_is_a_join_are_absent_before_it(self):
        module = figure_1()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "trace.csv"
            path.write_text(self.TRACE)
            times, counts = module.curves(*module.load(path))
        self.assertEqual(times, [0, 10, 35, 100])
        self.assertEqual(counts, {"A100-80GB": [8, 16, 16], "H800-80GB": [4, 4, 0]})
        self.assertAlmostEqual(module.share(times, counts["A100-80GB"], 16), 0.9)
        self.assertAlmostEqual(module.share(times, counts["H800-80GB"], 4), 0.35)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
