#!/usr/bin/python3
"""Predicted against measured iteration times of runs on A100 clusters, and the errors by degree of
tensor and of pipeline parallelism. Draws breakdown.csv of vtrain or megatron: measured rows only,
each predicted without having been fitted on (the error of a fitting row is its leave-one-out error).

    plot.py --runs results/validation/vtrain/breakdown.csv --out results/validation/vtrain
"""

import argparse
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", ".."))
import style  # noqa: E402
from matplotlib import pyplot as plt  # noqa: E402
from matplotlib.ticker import NullFormatter  # noqa: E402

MARKERS = ["o", "s", "^", "D", "X", "v"]
BAND = 0.10  # of the shaded error band


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", required=True, help="breakdown.csv")
    parser.add_argument("--out", required=True, help="folder for the figure")
    return parser.parse_args()


def looks(rows):
    """Color and marker of each set, in the order of the file."""
    sets = list(dict.fromkeys(row["set"] for row in rows))
    return {name: (style.COLORS[i], MARKERS[i]) for i, name in enumerate(sets)}


def mark(axes, x, y, row, look):
    """One row: filled if scored, hollow if the parameters were fitted on it."""
    color, marker = look[row["set"]]
    hollow = row["use"] == "fitted"
    axes.plot(x, y, marker=marker, markersize=3.6, linestyle="none", color=color,
              markerfacecolor="white" if hollow else color, markeredgewidth=0.8, zorder=3)


def scatter(axes, rows, look):
    times = [row["measured_s"] for row in rows]
    low, high = min(times) / 1.35, max(times) * 1.35
    axes.fill_between([low, high], [low * (1 - BAND), high * (1 - BAND)],
                      [low * (1 + BAND), high * (1 + BAND)], color="#E4E4E4", linewidth=0)
    axes.plot([low, high], [low, high], color="#606060", linewidth=0.7)
    for row in rows:
        mark(axes, row["measured_s"], row["measured_s"] * (1 + row["error"]), row, look)
    axes.set_xscale("log")
    axes.set_yscale("log")
    ticks = [t for t in (1, 2, 5, 10, 20, 50, 100) if low <= t <= high]
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_ticks(ticks, [str(t) for t in ticks])
        axis.set_minor_formatter(NullFormatter())
    axes.set_xlim(low, high)
    axes.set_ylim(low, high)
    axes.set_aspect("equal")
    axes.set_xlabel("Measured iteration (s)")
    axes.set_ylabel("Predicted iteration (s)")


def residuals(axes, rows, look, key, label):
    values = sorted({int(row[key]) for row in rows})
    place = {value: i for i, value in enumerate(values)}
    axes.axhspan(-100 * BAND, 100 * BAND, color="#E4E4E4", linewidth=0)
    axes.axhline(0, color="#606060", linewidth=0.7)
    names = list(look)
    for row in rows:
        shift = (names.index(row["set"]) - (len(names) - 1) / 2) * 0.11
        mark(axes, place[int(row[key])] + shift, 100 * row["error"], row, look)
    axes.set_xticks(range(len(values)), [str(value) for value in values])
    axes.set_xlim(-0.6, len(values) - 0.4)
    axes.set_xlabel(label)
    axes.set_ylabel("Error (%)")


def main():
    options = arguments()
    rows = [row for row in style.read(style.table(options.runs, "breakdown.csv")) if row["measured_s"] != ""]
    if not rows:
        sys.exit("no row is measured: nothing to draw")
    style.use()
    look = looks(rows)
    figure, (left, middle, right) = plt.subplots(
        1, 3, figsize=(style.PAGE, 2.35), gridspec_kw={"width_ratios": [1.15, 1, 1]})
    scatter(left, rows, look)
    residuals(middle, rows, look, "tp", "Tensor parallel degree")
    residuals(right, rows, look, "pp", "Pipeline stages")
    handles = [plt.Line2D([], [], marker=marker, color=color, linestyle="none", markersize=3.6,
                          label=name) for name, (color, marker) in look.items()]
    handles.append(plt.Line2D([], [], marker="o", color="black", markerfacecolor="white",
                              linestyle="none", markersize=3.6, markeredgewidth=0.8,
                              label="hollow: fitted on, left out here"))
    handles.append(plt.Rectangle((0, 0), 1, 1, color="#E4E4E4", label="±10 %"))
    figure.tight_layout(w_pad=1.2, rect=(0, 0, 1, 0.92))
    figure.legend(handles=handles, loc="upper center", ncols=len(handles), handlelength=1.2,
                  columnspacing=1.1)
    style.save(figure, options.out, "errors")


if __name__ == "__main__":
    main()
