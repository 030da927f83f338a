#!/usr/bin/python3
"""Samples per second of Bamboo, Varuna and Oobleck for each model of Figure 9 (losses at fixed
intervals) and of Figure 10 (spot traces): as the artifact counts (bars), by replay (dots) and as
published (crosses). Draws runs.csv and published.csv; computes no model."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
import style  # noqa: E402
from style import plt  # noqa: E402

SYSTEMS = [("bamboo", "Bamboo", "#009E73", "...."), ("varuna", "Varuna", "#E69F00", "////"),
           ("oobleck", "Oobleck", "#0072B2", "")]
TRACES = {9: ["6h", "1h", "30m", "10m"], 10: ["p3", "gcp"]}
TITLES = {9: "Time between losses", 10: "Spot trace"}
WIDTH = 0.26


def draw(axes, figure, model, rows, published):
    for place, (system, label, color, hatch) in enumerate(SYSTEMS):
        for x, trace in enumerate(TRACES[figure]):
            at = x + (place - 1) * WIDTH
            key = (figure, trace, model, system)
            first = place == 0 and x == 0
            if (*key, "compat") in rows:
                axes.bar(at, rows[(*key, "compat")], WIDTH, color=color, hatch=hatch,
                         edgecolor="black", linewidth=0.4)
                axes.plot(at, rows[(*key, "honest")], "o", markersize=2.8, color="white",
                          markeredgecolor="black", markeredgewidth=0.7)
            elif first:
                axes.text(at, 0, "OOM", rotation=90, fontsize=6, ha="center", va="bottom")
            if key in published:
                axes.plot(at, published[key], "x", markersize=3.2, color="#D55E00",
                          markeredgewidth=0.9)
    axes.set_xticks(range(len(TRACES[figure])), TRACES[figure], fontsize=6.5)
    axes.set_xlim(-0.5, len(TRACES[figure]) - 0.5)
    axes.set_ylim(bottom=0)
    axes.grid(axis="y")


def legend(figure):
    handles = [plt.Rectangle((0, 0), 1, 1, facecolor=color, hatch=hatch, edgecolor="black",
                             linewidth=0.4, label=label) for _, label, color, hatch in SYSTEMS]
    handles.append(plt.Line2D([], [], marker="x", linestyle="", color="#D55E00", markersize=3.2,
                              markeredgewidth=0.9, label="Published"))
    handles.append(plt.Line2D([], [], marker="o", linestyle="", color="white", markersize=2.8,
                              markeredgecolor="black", label="Replay (each second booked once)"))
    figure.legend(handles=handles, loc="lower center", bbox_to_anchor=(0.5, 0.93), ncols=5)


def main():
    arguments = style.arguments()
    style.use()
    table = style.read(style.table(arguments.runs, "table.csv"))
    if not table:
        sys.exit("no run: nothing to draw")
    rows = {(row["figure"], str(row["trace"]), row["model"], row["system"], row["accounting"]):
            row["samples_per_second"] for row in table}
    published = {(row["figure"], str(row["trace"]), row["model"], row["system"]): row["value"]
                 for row in style.read(arguments.published)
                 if row["quantity"] == "samples_per_second"}
    models = list(dict.fromkeys(row["model"] for row in table))
    figure, grid = plt.subplots(2, len(models), figsize=(style.PAGE, 3.4),
                                gridspec_kw={"hspace": 0.42, "wspace": 0.34})
    for line, number in enumerate(TRACES):
        for column, model in enumerate(models):
            axes = grid[line][column]
            draw(axes, number, model, rows, published)
            if line == 0:
                axes.set_title(model)
            if column == 0:
                axes.set_ylabel("Samples / s")
        grid[line][len(models) // 2].set_xlabel(f"{TITLES[number]} (Figure {number})")
    legend(figure)
    style.save(figure, arguments.out, "throughput")


if __name__ == "__main__":
    main()
