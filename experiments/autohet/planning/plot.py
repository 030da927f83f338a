#!/usr/bin/python3
"""Planning time of AutoHet and Alpa by number of GPUs, against the seconds that the paper prints.
Draws runs.csv, timings.csv (wall clock: other machines give other seconds) and published.csv;
computes no model."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
import style  # noqa: E402
from style import plt  # noqa: E402

GPUS = {"autohet_4a100_4h800": 8, "autohet_8a100_8h800": 16, "autohet": 32, "autohet_64": 64}
PLANNERS = [("autohet", "AutoHet", "o"), ("alpa", "Alpa", "s")]


def main():
    arguments = style.arguments()
    rows = style.finished(style.read(arguments.runs))
    timings = {row["run"]: row["planning_s"]
               for row in style.read(os.path.join(os.path.dirname(arguments.runs), "timings.csv"))}
    seconds = {(row["planner"], GPUS[row["cluster"]]): timings[row["run"]] for row in rows
               if row["run"] in timings}
    paper = {(row["row"], row["quantity"]): row["value"]
             for row in style.read(arguments.published)}
    style.use()
    figure, axes = plt.subplots(figsize=(style.COLUMN, 2.0))
    for place, (planner, name, marker) in enumerate(PLANNERS):
        points = sorted((gpus, value) for (own, gpus), value in seconds.items() if own == planner)
        axes.plot([point[0] for point in points], [max(point[1], 1e-3) for point in points],
                  color=style.COLORS[place], marker=marker, markersize=4, linewidth=1,
                  label=f"{name} (ours)")
    low = paper[("AutoHet", "planning, fewest GPUs")]
    high = paper[("AutoHet", "planning, 64 GPUs")]
    alpa = paper[("Alpa", "planning, 64 GPUs")]
    axes.axhspan(low, high, color=style.COLORS[0], alpha=0.18, linewidth=0,
                 label=f"AutoHet, paper: {low:g} to {high:g} s")
    axes.axhline(alpa, color=style.COLORS[1], linestyle=(0, (4, 1.5)), linewidth=1.2,
                 label=f"Alpa, paper: {alpa / 60:.0f} min")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(list(GPUS.values()), [str(gpus) for gpus in GPUS.values()])
    axes.set_xlabel("GPUs")
    axes.set_ylabel("Planning time (s)")
    axes.grid(axis="y")
    style.legend_above(axes, 0.42, 2)
    style.save(figure, arguments.out, "planning")
    ours = {("AutoHet", "planning, fewest GPUs"): seconds.get(("autohet", 8)),
            ("AutoHet", "planning, 64 GPUs"): seconds.get(("autohet", 64)),
            ("Alpa", "planning, 64 GPUs"): seconds.get(("alpa", 64)),
            ("Alpa / AutoHet", "profiling"):
                paper[("Alpa", "profiling")] / paper[("AutoHet", "profiling, 64 GPUs")]}
    style.compare(arguments, ours)


if __name__ == "__main__":
    main()
