#!/usr/bin/python3
"""What a study costs the second time, when the cache knows its iterations.

    tests/bench/second_call.py ORRERY [STUDY ...]

Runs each study (default: those below) twice into new folders with a new cache, and prints the CPU
seconds of both calls with all their children, against a tenth. Compares the results of both byte
for byte. Ends with 1 if a target is missed or a result differs.
"""

import filecmp
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
STUDIES = ["experiments/spot/bamboo", "experiments/hexiscale/table_2",
           "experiments/hexiscale/figure_8"]
TARGET = 0.1


def cpu_seconds():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def call(orrery, study, results, cache):
    before = cpu_seconds()
    subprocess.run([orrery, "run", study, "--results", results, "--cache", cache, "--no-figure",
                    "--quiet"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return cpu_seconds() - before


def files(folder):
    return {path.relative_to(folder): path for path in sorted(folder.rglob("*"))
            if path.is_file() and path.name not in ("timings.csv", "index.sqlite")}


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    orrery = str(Path(sys.argv[1]).resolve())
    missed = False
    print(f"{'second call of':44}{'first':>10}{'second':>10}{'ratio':>8}   CPU s")
    for study in sys.argv[2:] or STUDIES:
        with tempfile.TemporaryDirectory() as folder:
            folder = Path(folder)
            seconds = [call(orrery, study, folder / name, folder / "cache")
                       for name in ("first", "second")]
            first, second = files(folder / "first"), files(folder / "second")
            same = list(first) == list(second) and all(
                filecmp.cmp(path, second[name], shallow=False) for name, path in first.items())
        met = seconds[1] <= TARGET * seconds[0]
        missed |= not met or not same
        print(f"{study:44}{seconds[0]:10.2f}{seconds[1]:10.2f}{seconds[1] / seconds[0]:8.3f}"
              f"   {'met' if met else 'MISSED'}{'' if same else ', RESULTS DIFFER'}")
    return missed


if __name__ == "__main__":
    sys.exit(main())
