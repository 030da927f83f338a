#!/usr/bin/python3
"""Slow-down of two jobs by each other against the oversubscription of the uplinks of their racks. Draws runs.csv;
computes nothing but ratios."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import style  # noqa: E402

plt = style.plt
PLACEMENTS = ["packed", "striped", "scattered"]
PAIRS = {"dense_and_moe": ["Llama 3 70B", "Qwen3 30B-A3B"],
         "two_moe": ["Qwen3 30B-A3B", "another of its kind"]}


def main():
    arguments = style.arguments()
    points = {}
    for row in style.read(arguments.runs):
        pair, placement = row["case"].split()
        points[(pair, placement, float(row["oversubscription"]))] = row
    style.use()
    panels = [(pair, job) for pair in PAIRS for job in (0, 1)][:3]
    figure, all_axes = plt.subplots(1, 3, figsize=(style.PAGE, 2.2), sharey=True)
    for axes, (pair, job) in zip(all_axes, panels):
        for color, marker, placement in zip(style.COLORS, "os^", PLACEMENTS):
            xs = sorted(x for p, q, x in points if (p, q) == (pair, placement))
            rows = [points[(pair, placement, x)] for x in xs]

            def column(name):
                return [float(row.get(f"jobs.{job}.{name}") or row[f"jobs.{job}.together_seconds"])
                        / float(row[f"jobs.{job}.alone_seconds"]) for row in rows]

            middle = column("together_seconds")
            low, high = column("fastest_seconds"), column("slowest_seconds")
            axes.fill_between(xs, low, high, color=color, alpha=0.2, linewidth=0)
            axes.plot(xs, middle, color=color, marker=marker, markersize=3.5, linewidth=1.2,
                      label=placement)
        names = PAIRS[pair]
        axes.set_title(f"{names[job]}\nbeside {names[1 - job]}")
        axes.set_xscale("log", base=2)
        axes.set_xticks([1, 2, 4, 8], ["1:1", "2:1", "4:1", "8:1"])
        axes.set_xlabel("oversubscription of racks")
    all_axes[0].set_ylabel("iteration beside the other\nover iteration alone")
    all_axes[0].legend(frameon=False, loc="upper left")
    style.save(figure, arguments.out, "jobs")


if __name__ == "__main__":
    main()
