#!/usr/bin/python3
"""Gain of non-uniform over uniform slicing for each pair, and of free degrees over those of Table 1,
and how far they move as one assumption at a time changes. Draws runs.csv; ratios only, computes no
model."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
import style  # noqa: E402

plt = style.plt
BASE = (1.0, 1.0, 1024.0)  # efficiency, network, batch
OTHER = ", efficiency = MFU"
KNOBS = [("Efficiency x 0.8 to 1.1", 0), ("Network x 0.5 to 2", 1), ("Batch 256 to 4096", 2)]
PANELS = [("printed degrees", "uniform", "Non-uniform / uniform"),
          ("free degrees", "printed degrees", "Any degrees / TP 2, PP 2, DP 4")]


def system(row):
    options = str(row["planner_options"])
    if "even" in options:
        return "uniform"
    return "printed degrees" if "tensor_parallel" in options else "free degrees"


def main():
    arguments = style.arguments()
    rate, cases = {}, []
    for row in style.finished(style.read(arguments.runs)):
        point = (row["hardware.scale_efficiency"], row["hardware.scale_network"],
                 row["global_batch"])
        rate[(row["case"], point, system(row))] = row["tokens_per_s"]
        if OTHER not in row["case"] and row["case"] not in cases:
            cases.append(row["case"])

    def ratio(case, point, of, over):
        own, other = rate.get((case, point, of)), rate.get((case, point, over))
        return own / other if own and other else None

    style.use()
    figure, axes = plt.subplots(1, 2, figsize=(style.PAGE, 1.7), sharey=True)
    for side, (of, over, _) in enumerate(PANELS):
        for y, case in enumerate(cases):
            for place, (knob, at) in enumerate(KNOBS):
                points = {point for own, point, _ in rate if own == case and
                          all(point[i] == BASE[i] for i in range(3) if i != at)}
                values = [value for value in (ratio(case, point, of, over) for point in points)
                          if value]
                axes[side].plot([min(values), max(values)], [y + (place - 1) * 0.22] * 2,
                                color=style.COLORS[place], linewidth=2.4, marker="|",
                                markersize=4.5, label=knob if y == 0 else None)
            axes[side].plot([ratio(case, BASE, of, over)] * 2, [y - 0.36, y + 0.36],
                            color="black", linewidth=0.9, label="As assumed" if y == 0 else None)
            axes[side].plot(ratio(case + OTHER, BASE, of, over), y, "D", color="black",
                            markerfacecolor="white", markersize=3.5, zorder=5,
                            label="Efficiency = printed MFU" if y == 0 else None)
    style.close_speedups(figure, axes, cases, [f"{label} (throughput)" for *_, label in PANELS])
    style.save(figure, arguments.out, "sensitivity")


if __name__ == "__main__":
    main()
