#!/usr/bin/python3
"""Effective training time (ETTR, mean over seeds) over checkpoint interval and restart time, with
the contour of 90 %. Draws runs.csv; computes no model."""

import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
import style  # noqa: E402
from style import plt  # noqa: E402

INTERVAL = "checkpoint_restart.interval"
RESTART = "checkpoint_restart.reinitialize"
LEVEL = 90  # %: what Llama 3 reports to exceed.


def main():
    arguments = style.arguments()
    rows = style.finished(style.read(arguments.runs))
    style.use()
    intervals = sorted({row[INTERVAL] for row in rows})
    restarts = sorted({row[RESTART] for row in rows})
    table = []
    for restart in restarts:
        line = []
        for interval in intervals:
            values = [100 * row["ettr"] for row in rows
                      if row[INTERVAL] == interval and row[RESTART] == restart]
            line.append(statistics.mean(values) if values else float("nan"))
        table.append(line)
    figure, axes = plt.subplots(figsize=(style.COLUMN, 2.5))
    image = axes.imshow(table, origin="lower", aspect="auto", cmap="cividis")
    middle = (image.norm.vmin + image.norm.vmax) / 2
    for y, line in enumerate(table):
        for x, value in enumerate(line):
            axes.text(x, y, f"{value:.1f}", ha="center", va="center", fontsize=6,
                      color="black" if value > middle else "white")
    if min(map(min, table)) < LEVEL < max(map(max, table)):
        axes.contour(table, levels=[LEVEL], colors="#D55E00", linewidths=1.6)
        axes.plot([], [], color="#D55E00", linewidth=1.6, label=f"{LEVEL} %")
        style.legend_above(axes, 0.5, 1)
    axes.set_xticks(range(len(intervals)), [f"{value / 60:g}" for value in intervals])
    axes.set_yticks(range(len(restarts)), [f"{value / 60:g}" for value in restarts])
    axes.set_xlabel("Checkpoint interval (min)")
    axes.set_ylabel("Restart time (min)")
    bar = figure.colorbar(image, ax=axes, pad=0.02)
    bar.set_label("Effective training time (%)")
    bar.outline.set_linewidth(0.6)
    style.save(figure, arguments.out, "effective_time")


if __name__ == "__main__":
    main()
