#!/usr/bin/env python3
"""Times one iteration, from plan to iteration time, on 8 to 1,048,576 GPUs, folded and not, and
writes scaling.csv; plot.py draws it.

    experiments/scaling/run.py [BENCH]    some minutes; BENCH: tests/bench/folding_bench of a build
"""

import csv
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
BENCH = os.path.join(HERE, "../../build/release/tests/bench/folding_bench")
SIZES = [8 * 4**n for n in range(9)] + [1048576]  # 8 to 524,288, and a million
LARGEST_WHOLE = 32768  # A whole program of four times as many GPUs takes more than a minute.
KINDS = ["symmetric", "slow", "short", "mixed"]
FIELDS = ["gpus", "kind", "fold", "inputs_s", "lower_s", "run_s", "iteration_s", "pipelines",
          "inputs_mb", "peak_mb"]


def main():
    bench = sys.argv[1] if len(sys.argv) > 1 else BENCH
    rows = []
    for kind in KINDS:
        for fold in ("automatic", "off"):
            for gpus in SIZES:
                if fold == "off" and gpus > LARGEST_WHOLE:
                    continue
                if kind != "symmetric" and gpus < 128:  # Needs two pipelines of two stages.
                    continue
                line = subprocess.run([bench, str(gpus), kind, fold], check=True,
                                      capture_output=True, text=True).stdout
                rows.append(dict(zip(FIELDS, line.strip().split(","))))
                print(line, end="", flush=True)
    check(rows)
    with open(os.path.join(HERE, "scaling.csv"), "w", newline="") as file:
        table = csv.DictWriter(file, FIELDS, lineterminator="\n")
        table.writeheader()
        table.writerows(rows)


def check(rows):
    """Folded and whole iterations take the same time."""
    whole = {(row["gpus"], row["kind"]): float(row["iteration_s"])
             for row in rows if row["fold"] == "off"}
    for row in rows:
        known = whole.get((row["gpus"], row["kind"]))
        if known is not None and abs(float(row["iteration_s"]) / known - 1) > 1e-9:
            sys.exit(f"{row['gpus']} GPUs, {row['kind']}: {row['iteration_s']} s folded, {known} s")


if __name__ == "__main__":
    main()
