#!/usr/bin/env python3
"""Times one iteration, from plan to iteration time, on 8 to 1,048,576 GPUs, folded and not: writes
scaling.csv, the table of targets in README.md, and the figure (plot.py).

    experiments/scaling/run.py [BENCH]    some minutes; BENCH: tests/bench/folding_bench of a build
"""

import csv
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
BENCH = os.path.join(HERE, "../../build/release/tests/bench/folding_bench")
SIZES = [8, 32, 128, 512, 2048, 8192, 16384, 32768, 131072, 524288, 1048576]
LARGEST_WHOLE = 16384  # Twice as many GPUs take a minute where pipelines differ.
KINDS = ["symmetric", "slow", "short", "mixed", "pods"]
TARGETS = [  # GPUs, kind, seconds, MB (0: none)
    (16384, "symmetric", 0.05, 50), (16384, "slow", 0.15, 0), (16384, "short", 0.15, 0),
    (131072, "pods", 0.1, 0), (1048576, "pods", 1, 512)]
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
    write_targets(rows)
    with open(os.path.join(HERE, "scaling.csv"), "w", newline="") as file:
        table = csv.DictWriter(file, FIELDS, lineterminator="\n")
        table.writeheader()
        table.writerows(rows)
    subprocess.run([sys.executable, os.path.join(HERE, "plot.py")], check=True)


def write_targets(rows):
    """The lines of README.md between its two marks."""
    known = {(int(row["gpus"]), row["kind"], row["fold"]): row for row in rows}

    def seconds(row):
        return float(row["lower_s"]) + float(row["run_s"])

    lines = ["| GPUs | job | target | measured | whole program |", "|---|---|---|---|---|"]
    for gpus, kind, most, memory in TARGETS:
        folded = known[gpus, kind, "automatic"]
        target = f"{most:g} s" + (f", {memory} MB" if memory else "")
        measured = f"{seconds(folded):.3f} s, {float(folded['peak_mb']):.0f} MB"
        whole = known.get((gpus, kind, "off"))
        ratio = "-"
        if whole is not None:
            ratio = f"{seconds(whole):.2f} s, {float(whole['peak_mb']):.0f} MB, "
            ratio += f"{seconds(whole) / seconds(folded):.0f} times"
        lines.append(f"| {gpus:,} | `{kind}` | {target} | {measured} | {ratio} |")
    path = os.path.join(HERE, "README.md")
    with open(path) as file:
        text = file.read()
    begin, end = "<!-- targets: written by run.py -->\n", "<!-- end of targets -->"
    text = re.sub(f"{begin}.*{end}", begin + "\n".join(lines) + "\n" + end, text, flags=re.S)
    with open(path, "w") as file:
        file.write(text)


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
