#!/usr/bin/python3
"""Our values compared with published ones: what style.compare refuses, and what
tools/scripts/results.py writes.

results_test.py ROOT"""

import csv
import importlib.util
import re
import subprocess
import sys
import tempfile
import types
import unittest
from pathlib import Path

ROOT = Path(sys.argv.pop(1)).resolve()
sys.path.insert(0, str(ROOT / "experiments"))
import style  # noqa: E402

SPEC = importlib.util.spec_from_file_location("results", ROOT / "tools" / "scripts" / "results.py")
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

    def test_a_value_that_an_assumption_excludes_is_compared_and_an_impossible_one_is_not(self):
        rows = self.compare("a,time,2,s,p. 1,assumption,batch 64,none gives it\n"
                            "b,time,2,s,p. 1,contradiction,,20 x 4 is not 64\n",
                            {("a", "time"): 3, ("b", "time"): 3})
        self.assertEqual([row["difference"] for row in rows], ["0.5", ""])
        self.assertEqual(results.difference(rows[0]), "+50.0 %, under the assumption")
        self.assertEqual(results.difference(rows[1]), "contradiction")
        self.assertEqual(len(results.compared(rows)["speed"]), 1)
        self.assertEqual(results.COMPARED, style.COMPARED)

    def test_no_plan_is_no_difference(self):
        rows = self.compare("a,time,2,s,p. 1,published,,\n", {("a", "time"): None})
        self.assertEqual((rows[0]["ours"], rows[0]["difference"]), ("", ""))

    def test_rows_without_ours_and_values_without_rows_are_refused(self):
        for published, ours in (("a,time,2,s,p. 1,published,,\n", {}),
                                ("", {("a", "time"): 1}),
                                ("a,time,2,s,p. 1,withheld,,\n", {("a", "time"): 1}),
                                ("a,time,2,s,p. 1,maybe,,\n", {("a", "time"): 1}),
                                ("a,time,2,s,p,assumption,,none gives it\n", {("a", "time"): 1}),
                                ("a,time,2,s,p,assumption,batch 64,\n", {("a", "time"): 1}),
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


def row(**changed):
    """A row of comparison.csv."""
    return {"row": "a", "quantity": "time", "value": "2", "unit": "s", "source": "p. 1",
            "status": "published", "assumption": "", "why": "", "ours": "2.5", "difference": "0.25",
            **changed}


class Rows(unittest.TestCase):
    def test_units_and_quantities_give_the_kind(self):
        for quantity, unit, kind in (("step time", "s", "speed"), ("MFU", "%", "speed"),
                                     ("search, Metis", "s", "clock"),
                                     ("search, Oracle / Metis", "times", "clock"),
                                     ("layers on T4, Metis", "%", "shape"),
                                     ("pipeline stages", "stages", "shape"),
                                     ("settings in which Megatron fits", "count", "claim"),
                                     ("1 is yes", "yes", "claim"), ("gap", "points", "gap"),
                                     ("volume", "GiB", "volume"), ("bandwidth", "GB/s", "setting"),
                                     ("size", "apples", None)):
            self.assertEqual(results.kind(row(quantity=quantity, unit=unit)), kind, quantity)

    def test_claims_agree_or_differ_and_have_no_percentage(self):
        claim = row(quantity="1 is yes", unit="yes", value="1", ours="0", difference="-1")
        self.assertEqual(results.difference(claim), "differs")
        self.assertEqual(results.difference({**claim, "ours": "1", "difference": "0"}), "agrees")
        no = {**claim, "value": "0", "ours": "0", "difference": ""}
        self.assertEqual(results.difference(no), "agrees")
        self.assertEqual(results.difference({**no, "ours": ""}), "")

    def test_clocks_are_factors_gaps_are_points_and_equal_shapes_equal(self):
        self.assertEqual(results.difference(row(quantity="search, Metis")), "x 1.2")
        fast = row(quantity="search, Metis", difference="-0.999")
        self.assertEqual(results.difference(fast), "1/1,000")
        self.assertEqual(results.difference(row(unit="points")), "+0.5 points")
        shape = row(unit="stages", value="4", ours="4", difference="0")
        self.assertEqual(results.difference(shape), "equal")
        self.assertEqual(results.difference(row()), "+25.0 %")
        self.assertEqual(results.difference(row(status="input")), "input")


class Page(unittest.TestCase):
    def test_a_large_difference_needs_a_reason(self):
        folder = ROOT / "experiments" / "x"
        self.assertEqual(len(results.check_reasons(folder, [row()])), 1)
        self.assertEqual(results.check_reasons(folder, [row(why="because")]), [])
        self.assertEqual(results.check_reasons(folder, [row(difference="0.1")]), [])

    def test_a_claim_that_differs_needs_a_reason_where_the_paper_says_no_too(self):
        folder = ROOT / "experiments" / "x"
        no = row(quantity="1 is yes", unit="yes", value="0", ours="1", difference="")
        self.assertEqual(len(results.check_reasons(folder, [no])), 1)
        self.assertEqual(results.check_reasons(folder, [{**no, "ours": "0"}]), [])

    def test_a_row_without_a_kind_is_a_problem(self):
        found = results.check_reasons(ROOT / "experiments" / "x", [row(unit="apples", why="w")])
        self.assertEqual(len(found), 1)
        self.assertIn("no kind", found[0])

    def test_the_summary_has_a_median_for_each_kind(self):
        rows = [row(row=name, ours=ours, difference=str(d), why=name)
                for name, ours, d in (("near", "2.02", 0.01), ("middle", "1.6", -0.2),
                                      ("far", "3", 0.5))]
        rows += [row(row="plan", unit="stages", value="4", ours="4", difference="0"),
                 row(row="plan", unit="layers", value="4", ours="6", difference="0.5"),
                 row(quantity="search, Metis", ours="0.02", difference="-0.99"),
                 row(quantity="1 is yes", unit="yes", value="1", ours="1", difference="0")]
        self.assertEqual(results.summary("Paper", [("folder", rows)]),
                         ["Paper", "7", "7", "20.0 %; 1 of 3 within 10 %", "25.0 %; 1 of 2 equal",
                          "", "1 of 1 agree", "x 100 over 1"])

    def test_the_largest_differences_are_factors_and_shapes_come_last(self):
        rows = [row(row="near", ours="2.1", difference="0.05"),
                row(row="half", ours="1", difference="-0.5", why="because"),
                row(row="more", ours="3", difference="0.5", why="As above: more."),
                row(row="plan", unit="stages", ours="20", difference="9", why="many")]
        found = [("folder", rows)]
        self.assertEqual([(each[0], each[-1]) for each in results.worst(found)],
                         [("half", "because"), ("more", "because: more."), ("plan", "many")])
        claim = row(quantity="1 is yes", unit="yes", value="1", ours="0", difference="-1", why="w")
        self.assertEqual(results.broken_claims([("folder", [claim, {**claim, "ours": "1"}])]),
                         [["a", "1 is yes", "1", "0", "w"]])

    def test_columns_without_a_cell_are_left_out(self):
        self.assertEqual(results.table(["a", "b", "c"], [["1", "", ""], ["2", "", "3"]]),
                         ["| a | c |", "|---|---|", "| 1 |  |", "| 2 | 3 |"])

    def test_links_of_a_summary_lead_there_from_the_page(self):
        text = results.in_words("metis")
        for link in re.findall(r"\]\(([^)]*)\)", text):
            self.assertTrue((ROOT / "docs" / link).exists(), link)

    def test_a_number_in_several_folders_counts_once(self):
        again = row(row="b", quantity="time of b")
        self.assertEqual(len(results.once([("x", [row()]), ("y", [again])])), 1)
        self.assertEqual(len(results.once([("x", [row(), again])])), 2)
        stages = row(unit="stages", value="4", ours="4", difference="0")
        other = {**stages, "row": "b"}
        self.assertEqual(len(results.once([("x", [stages]), ("y", [stages])])), 1)
        self.assertEqual(len(results.once([("x", [stages]), ("y", [other])])), 2)

    def test_folders_come_in_the_order_of_the_paper(self):
        names = [folder.name for folder in
                 sorted((folder for folder in (ROOT / "experiments" / "hexiscale").glob("*/")
                         if (folder / "plot.py").exists()), key=results.paper_order)]
        self.assertLess(names.index("figure_4"), names.index("figure_10"))
        self.assertEqual(names[0], "case_study")
        self.assertLess(names.index("large_scale"), names.index("table_2"))
        self.assertLess(names.index("table_6"), names.index("appendix_e"))
        self.assertLess(names.index("appendix_e"), names.index("sensitivity"))

    def test_titles_say_where_the_paper_has_it(self):
        for paper, name in (("hexiscale", "case_study"), ("hexiscale", "large_scale"),
                            ("hetu", "elastic"), ("hetu", "mixed_length"), ("autohet", "planning"),
                            ("autohet", "recovery")):
            self.assertRegex(results.titles(ROOT / "experiments" / paper / name),
                             r"Figure \d+|V-B", name)

    def test_a_table_of_results_goes_between_the_markers(self):
        mark = results.MARK
        self.assertEqual(results.spliced(f"a\n{mark}\nold\n{mark}\nb\n", "new\n"),
                         f"a\n{mark}\nnew\n{mark}\nb\n")
        self.assertIsNone(results.spliced("a\n", "new\n"))
        readme = (ROOT / "experiments/hexiscale/large_scale/README.md").read_text(encoding="utf-8")
        self.assertIsNotNone(results.spliced(readme, "new"))

    def test_pictures_of_the_readme_are_there_and_those_of_papers_in_the_gallery(self):
        gallery = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
        for picture in re.findall(r"!\[[^]]*\]\(([^)]*)\)",
                                  (ROOT / "README.md").read_text(encoding="utf-8")):
            self.assertTrue((ROOT / picture).is_file(), picture)
            if picture.startswith("docs/images/gallery/"):
                self.assertIn(picture.removeprefix("docs/"), gallery)

    def test_the_pages_that_are_committed_are_written_by_the_tool(self):
        for name in ("results.md", "gallery.md"):
            text = (ROOT / "docs" / name).read_text(encoding="utf-8")
            self.assertIn("Written by `tools/scripts/results.py`", text)
        for line in (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8").splitlines():
            if line.startswith("!["):
                picture = line.split("(")[-1].rstrip(")")
                self.assertTrue((ROOT / "docs" / picture).is_file(), picture)

    def test_every_published_row_has_its_source_and_is_in_the_full_table(self):
        for paper, _ in results.PAPERS:
            with open(ROOT / "experiments" / paper / "results.csv", newline="",
                      encoding="utf-8") as file:
                table = list(csv.DictReader(file))
            published = []
            folders = (ROOT / "experiments" / paper).glob("*/published.csv")
            for path in sorted(folders, key=lambda path: results.paper_order(path.parent)):
                with open(path, newline="", encoding="utf-8") as file:
                    rows = list(csv.DictReader(file))
                for each in rows:
                    self.assertEqual(list(each), style.PUBLISHED, path)
                    self.assertIn(each["status"], style.STATUSES, path)
                    self.assertTrue(each["source"], f"{path}: {each['row']}")
                    self.assertIsNotNone(results.kind(each), f"{path}: {each['quantity']}")
                    if each["status"] == "withheld":
                        self.assertEqual(each["value"], "", path)
                    published.append([path.parent.name, each["row"], each["quantity"],
                                      results.paper_value(each), each["status"], each["why"]])
            self.assertEqual(published, [[each[column] for column in
                                          ("experiment", "row", "quantity", "paper", "status",
                                           "why")] for each in table], paper)
            self.assertGreater(len(table), 10)

    def test_help_says_what_it_reads(self):
        done = subprocess.run([str(ROOT / "tools/scripts/results.py"), "--help"], capture_output=True,
                              text=True, check=False)
        self.assertEqual(done.returncode, 0)
        self.assertIn("--check", done.stdout)


if __name__ == "__main__":
    unittest.main()
