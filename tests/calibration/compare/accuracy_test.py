#!/usr/bin/python3
"""What tools/scripts/accuracy.py says about a twin: the share of disturbed ops, programs that ran twice, and
notes of the tree.

    accuracy_test.py ROOT
"""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
ERRORS = """experiment,set,metric,rows,mean,median,max,bias,target,published_best,disturbed_share
twin/netlab,predict,iteration,2,0.05,0.05,0.06,-0.01,0.1,,{share}
twin/netlab,seen,iteration,1,0.5,0.5,0.5,0.5,0.1,,0
"""
TWIN = """run,set,network,status,problem,same_program_as,disturbed_share
a,predict,netlab,ok,,,{share}
b,predict,netlab,ok,,,0.01
c,predict,netlab,ok,,a,0.01
"""


class Accuracy(unittest.TestCase):
    def document(self, share):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name) / "results" / "twin" / "netlab"
            folder.mkdir(parents=True)
            (folder / "errors.csv").write_text(ERRORS.format(share=share))
            (folder / "twin.csv").write_text(TWIN.format(share=share))
            (folder / "notes.md").write_text("### Of an earlier run\n")
            out = Path(name) / "accuracy.md"
            subprocess.run([sys.executable, "-B", ROOT / "tools" / "scripts" / "accuracy.py", "--results",
                            folder.parents[1], "--out", out], check=True, capture_output=True)
            return out.read_text(encoding="utf-8")

    def test_disturbed_ops_stand_beside_errors_and_are_warned_of(self):
        text = self.document(0.123)
        self.assertIn("| predict | iteration | 2 | 5.0 % | 5.0 % | 6.0 % | -1.0 % | 10.0 % | met "
                      "| 12.3 % |", text)
        self.assertIn("More than 5 % of the ops were disturbed in 1 of 3 runs** (at most 12.3 %: "
                      "`a`)", text)
        self.assertNotIn("More than 5 %", self.document(0.05))

    def test_rivals_are_compared_on_the_same_rows(self):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name) / "results" / "validation" / "sailor"
            folder.mkdir(parents=True)
            header = ERRORS.splitlines()[0].removesuffix(",disturbed_share") + "\n"
            (folder / "errors.csv").write_text(
                header + "s,a,time,8,0.07,0.06,0.2,0,0.06,\ns,b,time,6,0.07,0.06,0.2,0,,0.111\n")
            (folder / "other_simulators.csv").write_text(header + "".join(
                f's,"a, {rival}",time,{rows},{mean},0,0,0,,\n' for rival, rows, mean in (
                    ("Near", 8, 0.062), ("Far", 8, 0.5), ("Few", 7, 0.01),
                    ("the earlier run", 8, 0.02))) + 's,"b, Far",time,6,0.08,0,0,0,,\n')
            out = Path(name) / "accuracy.md"
            out.write_text("x\n\n## At a glance\n\n| set | rows of it |\n|---|---|\n"
                           "| Megatron's measurements | of before |\n"
                           "| Sailor's measurements | of before |\n"
                           "\n## Megatron's measurements\n\nOf before.\n")
            command = [sys.executable, "-B", ROOT / "tools" / "scripts" / "accuracy.py",
                       "--results", Path(name) / "results", "--out", out]
            subprocess.run([*command, "--keep"], check=True, capture_output=True)
            text = out.read_text(encoding="utf-8")
            self.assertIn("| **missed** | 6.2 % (Near), **better** |  |", text)
            self.assertIn("|  |  | 8.0 % (Far) | 11.1 % |", text)
            self.assertIn("## Megatron's measurements\n\nOf before.\n", text)
            self.assertIn("| Megatron's measurements | of before |\n", text)
            self.assertNotIn("| Sailor's measurements | of before |", text)
            subprocess.run(command, check=True, capture_output=True)
            self.assertNotIn("Of before.", out.read_text(encoding="utf-8"))

    def test_what_was_seen_meets_no_target(self):
        self.assertRegex(self.document(0), r"\| seen \| iteration .* \| 10.0 % \| seen \|")

    def test_a_program_that_ran_twice_is_named(self):
        self.assertIn("Not in the errors, since an equal program ran before: `c` is the program of `a`.",
                      self.document(0))

    def test_notes_of_a_twin_are_those_of_the_tree(self):
        text = self.document(0)
        self.assertNotIn("Of an earlier run", text)
        self.assertIn("### Known misses", text)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
