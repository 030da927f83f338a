#!/usr/bin/env python3
"""Draws scaling.csv: CPU seconds and memory of one iteration over the number of GPUs, folded and
not. Writes scaling.pdf and scaling.png next to it, or into the folder that is its argument."""

import csv
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, ".."))
import style  # noqa: E402
from style import plt  # noqa: E402

KINDS = [("symmetric", "all alike", "o"), ("slow", "one slow GPU", "s"),
         ("short", "one short of a node", "^"), ("mixed", "two GPU types", "D"),
         ("pods", "three-level fabric", "v")]


def main():
    out = sys.argv[1] if len(sys.argv) > 1 else HERE
    with open(os.path.join(HERE, "scaling.csv")) as file:
        rows = list(csv.DictReader(file))
    style.use()
    figure, axes = plt.subplots(1, 2, figsize=(style.PAGE, 2.4))
    for (kind, label, marker), color in zip(KINDS, style.COLORS):
        for fold, line in (("automatic", "-"), ("off", "--")):
            own = sorted((row for row in rows if (row["kind"], row["fold"]) == (kind, fold)),
                         key=lambda row: int(row["gpus"]))
            gpus = [int(row["gpus"]) for row in own]
            options = dict(color=color, linestyle=line, marker=marker, markersize=3, linewidth=1,
                           label=label if fold == "automatic" else None)
            axes[0].plot(gpus, [float(row["lower_s"]) + float(row["run_s"]) for row in own],
                         **options)
            axes[1].plot(gpus, [float(row["peak_mb"]) for row in own], **options)
    axes[0].set_ylabel("CPU seconds of one iteration")
    axes[1].set_ylabel("Peak memory (MB)")
    for axis in axes:
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        axis.set_xlabel("GPUs")
        axis.grid(True, axis="y")
    axes[0].plot([], [], color="black", linestyle="-", linewidth=1, label="folded")
    axes[0].plot([], [], color="black", linestyle="--", linewidth=1, label="whole")
    axes[0].legend()
    figure.tight_layout()
    style.save(figure, out, "scaling")


if __name__ == "__main__":
    main()
