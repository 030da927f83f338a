#!/usr/bin/python3
"""The figure that docs/accuracy.md opens with: predicted over measured step times of all sets
against the number of GPUs, from the results on disk.

    experiments/validation/plot.py [--results results] [--out docs/images]
"""

import argparse
import csv
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "experiments"), str(ROOT / "experiments" / "validation")]
import style  # noqa: E402
from today import plot  # noqa: E402
from matplotlib import pyplot as plt  # noqa: E402

SETS = {"mlperf": "MLPerf", "dgxc": "DGX Cloud", "megatron_bridge": "Megatron-Bridge",
        "megatron_lm": "Megatron-LM, H100", "bigscience": "BLOOM", "llm_foundry": "llm-foundry",
        "torchtitan": "torchtitan", "nemo": "NeMo, long sequences", "megatron": "Megatron, A100",
        "vtrain": "vTrain"}


def rows_of(folder, name):
    """Measured rows of a set. Tables of A100 studies have degrees in place of GPUs."""
    with open(folder / "breakdown.csv", newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file)
                if row["error"] and row["use"] != "unscored"]
    for row in rows:
        row["set"] = SETS[name]
        if "gpus" not in row:
            row["gpus"] = int(row["tp"]) * int(row["pp"]) * int(row["dp"])
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", default=str(ROOT / "results"))
    parser.add_argument("--out", default=str(ROOT / "docs" / "images"))
    options = parser.parse_args()
    folder = Path(options.results) / "validation"
    rows = [row for name in SETS if (folder / name / "breakdown.csv").exists()
            for row in rows_of(folder / name, name)]
    if not rows:
        sys.exit("no results: tools/orrery run experiments/validation/mlperf")
    style.use()
    figure, axes = plt.subplots(figsize=(style.PAGE, 2.9))
    looks = plot.looks_of(rows)
    plot.draw(axes, rows, looks)
    plot.legend(axes, looks)
    style.save(figure, options.out, "accuracy")
    (Path(options.out) / "accuracy.pdf").unlink()


if __name__ == "__main__":
    main()
