#!/usr/bin/python3
"""Predicted over measured step times against the number of GPUs, with a band of 5 %: filled if
scored, hollow if parameters were fitted on the row (its error is then the leave-one-out error).

    plot.py --runs results/validation/mlperf/breakdown.csv --out results/validation/mlperf
"""

import argparse
import csv
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
import style  # noqa: E402
from matplotlib import pyplot as plt  # noqa: E402

MARKERS = ["o", "s", "^", "D", "X", "v", "P", "<"]
BAND = 0.05
LOW, HIGH = 0.6, 1.4  # what is beyond stands at the edge


def rows_of(path):
    """Measured rows of a breakdown.csv."""
    with open(path, newline="", encoding="utf-8") as file:
        return [row for row in csv.DictReader(file)
                if row["error"] and row["use"] != "unscored"]


def draw(axes, rows, looks):
    """Rows with gpus, error, use and set; `looks`: color and marker by set."""
    axes.axhspan(1 - BAND, 1 + BAND, color="#E4E4E4", linewidth=0)
    axes.axhline(1, color="#606060", linewidth=0.7)
    sets = list(looks)
    for row in rows:
        color, marker = looks[row["set"]]
        hollow = row["use"] == "fitted"
        # Sets stand side by side where they have as many GPUs.
        place = float(row["gpus"]) * 2 ** (0.09 * (sets.index(row["set"]) - (len(sets) - 1) / 2))
        ratio = min(max(1 + float(row["error"]), LOW), HIGH)
        axes.plot(place, ratio, marker=marker, markersize=3.2,
                  linestyle="none", color=color, markerfacecolor="white" if hollow else color,
                  markeredgewidth=0.7, zorder=3, clip_on=False)
    axes.set_xscale("log", base=2)
    counts = [2 ** power for power in range(0, 15, 2)]
    axes.set_xticks(counts, [f"{count:,}" for count in counts])
    axes.set_xlim(min(float(row["gpus"]) for row in rows) / 1.5,
                  max(float(row["gpus"]) for row in rows) * 1.5)
    axes.set_ylim(LOW, HIGH)
    axes.set_xlabel("GPUs")
    axes.set_ylabel("predicted / measured")
    axes.grid(axis="y")


def looks_of(rows):
    sets = list(dict.fromkeys(row["set"] for row in rows))
    colors, markers = len(style.COLORS), len(MARKERS)
    return {name: (style.COLORS[place % colors], MARKERS[(place + 3 * (place // colors)) % markers])
            for place, name in enumerate(sets)}


def legend(axes, looks, columns=5):
    axes.legend(handles=[plt.Line2D([], [], color=color, marker=marker, linestyle="none",
                                    markersize=3.6, label=name)
                         for name, (color, marker) in looks.items()],
                loc="upper center", bbox_to_anchor=(0.5, 1.3), ncols=min(columns, len(looks)),
                handletextpad=0.1, columnspacing=1.0)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", required=True, help="breakdown.csv")
    parser.add_argument("--out", required=True, help="folder for the figure")
    options = parser.parse_args()
    style.use()
    rows = rows_of(style.table(options.runs, "breakdown.csv"))
    if not rows:
        sys.exit("no row is measured: nothing to draw")
    figure, axes = plt.subplots(figsize=(style.PAGE * 0.7, 2.4))
    looks = looks_of(rows)
    draw(axes, rows, looks)
    legend(axes, looks)
    style.save(figure, options.out, "errors")


if __name__ == "__main__":
    main()
