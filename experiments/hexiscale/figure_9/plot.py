#!/usr/bin/python3
"""Seconds of the search and estimated utilization by number of GPUs. Draws runs.csv and the timings
next to it; computes no model."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import bars  # noqa: E402
import style  # noqa: E402
from style import plt  # noqa: E402

LIMIT = 120  # seconds, as the paper says


def main():
    arguments = style.arguments()
    rows = sorted(style.finished(style.read(arguments.runs)), key=lambda row: int(row["case"]))
    seconds = {row["run"]: row["planning_s"] for row in
               style.read(os.path.join(os.path.dirname(arguments.runs), "timings.csv"))}
    rows = [row for row in rows if row["run"] in seconds]
    style.compare(arguments, {
        ("64 to 320 GPUs", "cluster sizes whose search takes less than two minutes"):
            sum(seconds[row["run"]] < LIMIT for row in rows)})
    style.use()
    figure, (left, right) = plt.subplots(1, 2, figsize=(style.COLUMN + 0.2, 1.6))
    sizes = [int(row["case"]) for row in rows]
    left.plot(sizes, [seconds[row["run"]] for row in rows], "o-", markersize=3, linewidth=1,
              color=style.COLORS[0])
    left.set_ylabel("Search (s)")
    right.plot(sizes, [bars.mfu(row) for row in rows], "s-", markersize=3, linewidth=1,
               color=style.COLORS[5])
    right.set_ylabel("Estimated MFU (%)")
    for axes in (left, right):
        axes.set_xlabel("GPUs")
        axes.set_xticks(sizes)
        axes.set_ylim(bottom=0)
        axes.grid()
    figure.subplots_adjust(wspace=0.45)
    style.save(figure, arguments.out, "figure_9")


if __name__ == "__main__":
    main()
