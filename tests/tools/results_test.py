#!/usr/bin/python3
"""Values of ours beside published ones: what style.compare refuses, and what tools/results.py writes.

results_test.py ROOT"""

import csv
import importlib.util
import subprocess
import sys
import tempfile
import types
import unittest
from pathlib import Path

ROOT = Path(sys.argv.pop(1)).resolve()
sys.path.insert(0, str(ROOT / "experiments"))
import style  # noqa: E402

SPEC = importlib.util.spec_from_file_location("results", ROOT / "tools" / "results.py")
results = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(results)

HEAD = "row,quantity,value,unit,source,status,assumption,why\n"


class Compare(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.out = Path(self.folder.name)

    def compare(self, published, ours):
        path = self.out / "published.csv"
        path.write_text(HEAD + published, encoding="utf-8")
        style.compare(types.SimpleNamespace(published=str(path), out=str(self.out)), ours)
        with open(self.out / "comparison.csv", newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))

    def test_differences_are_ours_over_theirs_less_one(self):
        rows = self.compare("a,time,2,s,p. 1,published,,\nb,time,,s,p. 1,withheld,,\n",
                            {("a", "time"): 2.5, ("b", "time"): 3})
        self.assertEqual([row["difference"] for row in rows], ["0.25", ""])
        self.assertEqual([row["ours"] for row in rows], ["2.5", "3"])

    def test_no_plan_is_no_difference(self):
        rows = self.compare("a,time,2,s,p. 1,published,,\n", {("a", "time"): None})
        self.assertEqual((rows[0]["ours"], rows[0]["difference"]), ("", ""))

    def test_rows_without_ours_and_values_without_rows_are_refused(self):
        for published, ours in (("a,time,2,s,p. 1,published,,\n", {}),
                                ("", {("a", "time"): 1}),
                                ("a,time,2,s,p. 1,withheld,,\n", {("a", "time"): 1}),
                                ("a,time,2,s,p. 1,maybe,,\n", {("a", "time"): 1}),
                                ("a,time,2,s,p,published,,\na,time,3,s,p,published,,\n",
                                 {("a", "time"): 1})):
            with self.assertRaises(SystemExit):
                self.compare(published, ours)
            self.assertFalse((self.out / "comparison.csv").exists())

    def test_rows_that_are_not_computed_need_no_value(self):
        rows = self.compare("a,minutes,2,min,p. 1,not computed,,no profiler\n", {})
        self.assertEqual(rows[0]["ours"], "")


class Read(unittest.TestCase):
    def test_hashes_stay_text_though_they_look_like_numbers(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "runs.csv"
            path.write_text("run,cluster_hash,time\n12e4567890123456,0000000000000001,2.5\n",
                            encoding="utf-8")
            self.assertEqual(style.read(path), [{"run": "12e4567890123456",
                                                 "cluster_hash": "0000000000000001", "time": 2.5}])


class Page(unittest.TestCase):
    ROW = {"row": "a", "quantity": "time", "value": "2", "unit": "s", "source": "p. 1",
           "status": "published", "assumption": "", "why": "", "ours": "2.5", "difference": "0.25"}

    def test_a_large_difference_needs_a_reason(self):
        folder = ROOT / "experiments" / "x"
        self.assertEqual(len(results.check_reasons(folder, [self.ROW])), 1)
        self.assertEqual(results.check_reasons(folder, [{**self.ROW, "why": "because"}]), [])
        self.assertEqual(results.check_reasons(folder, [{**self.ROW, "difference": "0.1"}]), [])

    def test_the_summary_names_median_and_worst(self):
        rows = [{**self.ROW, "row": name, "difference": str(d), "why": name}
                for name, d in (("near", 0.01), ("middle", -0.2), ("far", 0.5))]
        line = results.summary("Paper", rows)
        self.assertIn("| 3 | 3 | 20.0 % | 1 | far, time: +50 %. far |", line)

    def test_the_pages_that_are_committed_are_written_by_the_tool(self):
        for name in ("results.md", "gallery.md"):
            text = (ROOT / "docs" / name).read_text(encoding="utf-8")
            self.assertIn("Written by `tools/results.py`", text)
        for line in (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8").splitlines():
            if line.startswith("!["):
                picture = line.split("(")[-1].rstrip(")")
                self.assertTrue((ROOT / "docs" / picture).is_file(), picture)

    def test_every_published_row_of_the_papers_says_where_it_stands(self):
        checked = 0
        for paper, _ in results.PAPERS:
            for path in (ROOT / "experiments" / paper).glob("*/published.csv"):
                with open(path, newline="", encoding="utf-8") as file:
                    rows = list(csv.DictReader(file))
                for row in rows:
                    self.assertEqual(list(row), style.PUBLISHED, path)
                    self.assertIn(row["status"], style.STATUSES, path)
                    self.assertTrue(row["source"], f"{path}: {row['row']}")
                    if row["status"] == "withheld":
                        self.assertEqual(row["value"], "", path)
                    checked += 1
        self.assertGreater(checked, 100)

    def test_help_says_what_it_reads(self):
        done = subprocess.run([str(ROOT / "tools/results.py"), "--help"], capture_output=True,
                              text=True, check=False)
        self.assertEqual(done.returncode, 0)
        self.assertIn("--check", done.stdout)


if __name__ == "__main__":
    unittest.main()
