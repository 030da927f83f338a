#!/usr/bin/python3
"""Effective training time of each published point: by replay with its 99 % confidence interval, exact
and additive closed form, and as published; and Llama 3's interruptions in 54 days. Draws
runs.csv; computes no model."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
import style  # noqa: E402
from style import plt  # noqa: E402


def draw_values(axes, rows, scale):
    for y, row in enumerate(rows):
        first = y == 0
        axes.plot(scale * row["exact"], y, "|", color="#009E73", markersize=11,
                  markeredgewidth=1.6, label="Exact form" if first else None)
        if row["additive"] != "":
            axes.plot(scale * row["additive"], y, "D", color="white", markersize=4,
                      markeredgecolor="#CC79A7", label="Additive form" if first else None)
        if row["published"] != "":
            axes.plot(scale * row["published"], y, "x", color="#D55E00", markersize=5,
                      markeredgewidth=1.2, label="Published" if first else None)
        axes.errorbar(scale * row["mean"], y, xerr=scale * row["half_width"], fmt="o",
                      markersize=2.6, color="#0072B2", linewidth=1, capsize=2,
                      label="Replay, 99 % interval" if first else None)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.grid(axis="x")


def main():
    arguments = style.arguments()
    style.use()
    rows = style.read(style.table(arguments.runs, "table.csv"))
    ettr = [row for row in rows if row["quantity"] == "ettr"]
    counts = [row for row in rows if row["quantity"] == "interruptions"]
    if not ettr:
        sys.exit("no run: nothing to draw")
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(style.PAGE, 2.5), gridspec_kw={"width_ratios": [2.2, 1], "wspace": 0.42})
    draw_values(left, ettr, 100)
    left.set_yticks(range(len(ettr)), [row["point"] for row in ettr])
    left.set_xlabel("Effective training time (%)")
    style.legend_above(left, 0.4, 4)
    draw_values(right, counts, 1)
    right.set_yticks(range(len(counts)), [row["point"].replace(", ", ",\n") for row in counts])
    right.set_xlabel("Unexpected interruptions")
    style.save(figure, arguments.out, "ettr")


if __name__ == "__main__":
    main()
