#!/usr/bin/python3
"""Predicted against measured iteration time and peak memory of the public Sailor plans, and the
error of each time. Draws predictions.csv; computes no model."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
import style  # noqa: E402
from style import plt  # noqa: E402

SETS = [("gh200 OPT-350", "GH200, OPT-350M", "#0072B2", "o"),
        ("gh200 GPT-Neo-2.7", "GH200, GPT-Neo-2.7B", "#E69F00", "s"),
        ("rtx OPT-350", "Mixed RTX, OPT-350M", "#009E73", "^")]
TIME = ("iteration_s", "iteration [s]", 1.0, (1,))
MEMORY = ("peak_memory_bytes", "memory [GB]", 1e9, (1, 2, 3, 5))
BAND = 0.10


def measured(rows, metric):
    return [row for row in rows
            if row.get(f"{metric}_measured") not in ("", None) and row[f"{metric}_use"] != ""]


def marks(axes, rows, metric, unit, height):
    """Marks at (measured, height(row)); open ones do not count."""
    for name, text, color, marker in SETS:
        mine = [row for row in measured(rows, metric) if row["set"] == name]
        for use, face in (("scored", color), ("fitted", "white"), ("unscored", "white")):
            some = [row for row in mine if row[f"{metric}_use"] == use]
            axes.plot([row[f"{metric}_measured"] / unit for row in some],
                      [height(row) for row in some], marker, markersize=3.6, color=color,
                      markerfacecolor=face, markeredgewidth=0.8, linestyle="", zorder=3,
                      label=text if use == "scored" else None)


def scale(axis, low, high, steps):
    """Logarithmic axis with plain numbers."""
    ticks = [step * 10.0**power for power in range(-3, 4) for step in steps]
    axis.set_major_locator(plt.FixedLocator([tick for tick in ticks if low <= tick <= high]))
    axis.set_major_formatter(plt.FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_locator(plt.NullLocator())


def draw_values(axes, rows, metric, label, unit, steps):
    values = [row[f"{metric}_{side}"] / unit for row in measured(rows, metric)
              for side in ("measured", "predicted")]
    low, high = 0.75 * min(values), 1.3 * max(values)
    axes.fill_between([low, high], [(1 - BAND) * low, (1 - BAND) * high],
                      [(1 + BAND) * low, (1 + BAND) * high], color="#E4E4E4", linewidth=0,
                      label=f"within {100 * BAND:.0f} %")
    axes.plot([low, high], [low, high], color="black", linewidth=0.6)
    marks(axes, rows, metric, unit, lambda row: row[f"{metric}_predicted"] / unit)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(low, high)
    axes.set_ylim(low, high)
    axes.set_xlabel(f"Measured {label}")
    axes.set_ylabel(f"Predicted {label}")
    scale(axes.xaxis, low, high, steps)
    scale(axes.yaxis, low, high, steps)
    axes.grid(True)


def draw_errors(axes, rows, metric, label, unit, steps):
    values = [row[f"{metric}_measured"] / unit for row in measured(rows, metric)]
    low, high = 0.75 * min(values), 1.3 * max(values)
    axes.axhspan(-100 * BAND, 100 * BAND, color="#E4E4E4", linewidth=0)
    axes.axhline(0, color="black", linewidth=0.6)
    marks(axes, rows, metric, unit, lambda row: 100 * row[f"{metric}_error"])
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    axes.set_xlabel(f"Measured {label}")
    axes.set_ylabel("Error [%]")
    scale(axes.xaxis, low, high, steps)
    axes.grid(True)


def main():
    arguments = style.arguments()
    style.use()
    rows = style.read(style.table(arguments.runs, "predictions.csv"))
    if not measured(rows, "iteration_s"):
        sys.exit("no measured plan: nothing to draw")
    figure, (times, errors, memory) = plt.subplots(1, 3, figsize=(style.PAGE, 2.1),
                                                   gridspec_kw={"wspace": 0.42})
    draw_values(times, rows, *TIME)
    draw_errors(errors, rows, *TIME)
    draw_values(memory, rows, *MEMORY)
    handles, labels = times.get_legend_handles_labels()
    handles.append(plt.Line2D([], [], marker="o", linestyle="", color="black", markersize=3.6,
                              markerfacecolor="white"))
    labels.append("not scored (doubtful, or fitted)")
    figure.legend(handles, labels, loc="lower center", bbox_to_anchor=(0.5, 0.9), ncols=5,
                  handlelength=1.4, columnspacing=1.0)
    style.save(figure, arguments.out, "predicted_measured")


if __name__ == "__main__":
    main()
