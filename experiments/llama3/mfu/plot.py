#!/usr/bin/python3
"""Parts of an iteration of the report's plan and of the one with whole replicas, MFU beside them.
Draws runs.csv; computes no model."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
import style  # noqa: E402
from style import plt  # noqa: E402


def main():
    arguments = style.arguments()
    rows = style.finished(style.read(arguments.runs))
    style.use()
    figure, axes = plt.subplots(figsize=(style.COLUMN, 0.8 + 0.35 * len(rows)))
    ours = {}
    for y, row in enumerate(rows):
        left = 0.0
        for column, label, color, hatch in style.parts_of(rows):
            axes.barh(y, row[column], 0.6, left=left, color=color, hatch=hatch, edgecolor="black",
                      linewidth=0.3, label=label if y == 0 else None)
            left += row[column]
        axes.text(left, y, f"  MFU {100 * row['mfu']:.1f} %", va="center", fontsize=7)
        case, plan = row["case"].split(" / ")
        if plan == "as reported":
            ours[(case, "MFU")] = 100 * row["mfu"]
    axes.set_yticks(range(len(rows)), [row["case"].split(" / ")[1] for row in rows])
    axes.invert_yaxis()
    axes.set_xlim(0, 1.3 * max(row["iteration_time_s"] for row in rows))
    axes.set_xlabel("Seconds of an iteration, mean over GPUs")
    style.legend_above(axes, 0.4, 3)
    style.save(figure, arguments.out, "mfu")
    style.compare(arguments, ours)


if __name__ == "__main__":
    main()
