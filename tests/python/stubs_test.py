"""The type stubs next to the package are those of the descriptions, and mypy accepts what they
promise and refuses what they do not."""

import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

from orrery import stubs

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "tools" / "python" / "orrery"

GOOD = """
import orrery
result = orrery.plan(cluster="hexiscale_240", model="llama_30b", planner="all")
best: "str | None" = result.best
plan = orrery.Plan(schedule="1f1b", pipelines=[orrery.Pipeline(micro_batches=4)])
seconds: float = orrery.Training("a", "b", global_batch=4).simulate(plan).iteration_time
"""
BAD = """
import orrery
orrery.plan(cluster="hexiscale_240", modle="llama_30b")
orrery.Plan(schedule="2f2b")
orrery.Plan().pipeline
seconds: str = orrery.Training("a", "b").simulate("p.yaml").iteration_time
"""


def mypy(path: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "mypy", "--cache-dir", "/dev/null", "--no-error-summary", path],
        capture_output=True, text=True, env={"MYPYPATH": str(PACKAGE.parent), "PATH": "/usr/bin"})


class Stubs(unittest.TestCase):
    def test_they_are_up_to_date(self):
        for name, text in stubs.all_stubs().items():
            self.assertEqual((PACKAGE / name).read_text(encoding="utf-8"), text,
                             f"{name}: tools/orrery python -m orrery.stubs tools/python/orrery")

    @unittest.skipUnless(shutil.which("mypy", path="/usr/bin"), "mypy is not installed")
    def test_mypy_agrees(self):
        with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
            file.write(GOOD)
            file.flush()
            good = mypy(file.name)
            self.assertEqual(good.returncode, 0, good.stdout)
        with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
            file.write(BAD)
            file.flush()
            found = {line.split(":")[1] for line in mypy(file.name).stdout.splitlines()
                     if ": error:" in line}
            self.assertEqual(found, {"3", "4", "5", "6"})


if __name__ == "__main__":
    unittest.main()
