#!/usr/bin/python3
"""Figures of a twin experiment.

    experiments/twin/plot.py --runs results/twin/NAME/twin.csv --out results/twin/NAME

Reads twin.csv, phases.csv next to it and runs/<run>/timeline.csv. Writes scatter (predicted against
measured iterations with the 10 % band), errors (by run, with the components they come from),
phases (of recoveries) and timeline (of the run with the median error), each as PDF and PNG."""

import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools" / "scripts"))
import plot_compare  # noqa: E402
import style  # noqa: E402
from style import plt  # noqa: E402

COMPONENTS = [
    ("forward", "Forward", "#0072B2", ""),
    ("backward", "Backward", "#009E73", ""),
    ("tensor_parallel", "Tensor parallel", "#56B4E9", "////"),
    ("zero", "ZeRO gathers", "#CC79A7", "----"),
    ("pipeline", "Pipeline transfer", "#E69F00", "...."),
    ("data_parallel", "Data parallel", "#D55E00", "xxxx"),
    ("optimizer", "Optimizer", "#000000", ""),
    ("bubble", "Idle (bubble)", "#FFFFFF", "\\\\\\\\"),
]
SETS = [("predict", "predicted", "o", "#0072B2"), ("seen", "seen before", "D", "#009E73"),
        ("fit", "used for fitting", "s", "#E69F00"),
        ("recovery", "after a recovery", "^", "#D55E00")]
BAND = 0.10


def scatter(rows, out):
    figure, axes = plt.subplots(figsize=(style.COLUMN, 0.86 * style.COLUMN))
    every = [row[key] for row in rows for key in ("iteration_predicted_s", "iteration_measured_s")]
    low, high = 0.8 * min(every), 1.25 * max(every)
    axes.fill_between([low, high], [low * (1 - BAND), high * (1 - BAND)],
                      [low * (1 + BAND), high * (1 + BAND)], color="#E6E6E6", linewidth=0,
                      label="± 10 %")
    axes.plot([low, high], [low, high], color="black", linewidth=0.6)
    for name, label, marker, color in SETS:
        mine = [row for row in rows if row["set"] == name]
        if mine:
            axes.plot([row["iteration_measured_s"] for row in mine],
                      [row["iteration_predicted_s"] for row in mine], marker, color=color,
                      markersize=3.5, markerfacecolor="none", markeredgewidth=0.9, label=label)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(low, high)
    axes.set_ylim(low, high)
    ticks = [t for t in (0.1, 0.2, 0.3, 0.5, 1, 2, 3, 5, 10) if low <= t <= high]
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_ticks(ticks, [f"{t:g}" for t in ticks])
        axis.set_ticks([], minor=True)
    axes.set_xlabel("Measured iteration (s)")
    axes.set_ylabel("Predicted iteration (s)")
    axes.legend(loc="upper left")
    style.save(figure, out, "scatter")


def errors(rows, out):
    """Signed errors as stacked shares of components, with a mark at their sum."""
    rows = sorted(rows, key=lambda row: row["iteration_error"])
    # Few twins have ZeRO's gathers.
    components = [one for one in COMPONENTS if f"{one[0]}_of_iteration" in rows[0]]
    figure, axes = plt.subplots(figsize=(style.PAGE, 2.6))
    for i, row in enumerate(rows):
        up, down = 0.0, 0.0
        for name, label, color, hatch in components:
            value = 100 * row[f"{name}_of_iteration"]
            base = up if value >= 0 else down
            axes.bar(i, value, 0.72, base, color=color, hatch=hatch, edgecolor="#606060",
                     linewidth=0.3, label=label if i == 0 else None)
            up, down = (up + value, down) if value >= 0 else (up, down + value)
    axes.plot(range(len(rows)), [100 * row["iteration_error"] for row in rows], "D", color="white",
              markeredgecolor="black", markersize=3.2, markeredgewidth=0.8, label="Sum")
    axes.axhline(0, color="black", linewidth=0.6)
    for edge in (-100 * BAND, 100 * BAND):
        axes.axhline(edge, color="#808080", linewidth=0.6, linestyle="--")
    axes.set_xticks(range(len(rows)), [row["run"] for row in rows], rotation=55, ha="right",
                    rotation_mode="anchor", fontsize=6)
    axes.set_xlim(-0.6, len(rows) - 0.4)
    axes.set_ylabel("Predicted − measured\n(% of the iteration)")
    style.legend_above(axes, 0.5, 4, last=("Sum",))
    style.save(figure, out, "errors")


def phases(rows, totals, out):
    """Phases one after the other; `totals`: error of their sum by run, where it was predicted."""
    runs = list(dict.fromkeys(row["run"] for row in rows))
    names = list(dict.fromkeys(row["phase"] for row in rows))
    colors = dict(zip(names, style.COLORS))
    hatches = dict(zip(names, style.HATCHES))
    figure, axes = plt.subplots(figsize=(style.PAGE, 0.55 + 0.5 * len(runs)))
    labels, ticks, shown = [], [], set()
    for i, run in enumerate(runs):
        for s, side in enumerate(("measured", "predicted")):
            y, at = -(2.4 * i + s), 0.0
            for row in rows:
                if row["run"] != run or row[f"{side}_s"] == "":
                    continue
                name = row["phase"]
                axes.barh(y, row[f"{side}_s"], 0.8, at, color=colors[name], hatch=hatches[name],
                          edgecolor="white", linewidth=0.3,
                          label=None if name in shown else name.replace("_", " "))
                shown.add(name)
                at += row[f"{side}_s"]
            if side == "predicted" and totals.get(run, "") != "":
                axes.annotate(f"{100 * totals[run]:+.0f} %", (at, y), xytext=(3, 0),
                              textcoords="offset points", va="center", fontsize=6)
            ticks.append(y)
            labels.append(f"{run}, {side}" if s == 0 else side)
    axes.set_yticks(ticks, labels)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("Time from the failure (s)")
    style.legend_above(axes, 0.45, 5)
    style.save(figure, out, "phases")


def timeline(rows, folder, out):
    middle = statistics.median_low([abs(row["iteration_error"]) for row in rows])
    run = next(row for row in rows if abs(row["iteration_error"]) == middle)
    path = folder / "runs" / run["run"] / "timeline.csv"
    if not path.exists():
        return
    spans = style.read(path)
    ranks = len({row["rank"] for row in spans})
    figure, axes = plt.subplots(figsize=(style.PAGE, 0.5 + 0.46 * ranks))
    plot_compare.draw(axes, spans)
    style.save(figure, out, "timeline")


def main():
    options = style.arguments()
    folder = Path(options.runs).parent
    rows = [row for row in style.read(options.runs) if row["status"] == "ok"]
    if not rows:
        sys.exit("no run has a comparison: nothing to draw")
    style.use()
    scatter(rows, options.out)
    errors([row for row in rows if row["set"] != "recovery_fit"], options.out)
    path = folder / "phases.csv"
    recoveries = style.read(path) if path.exists() else []
    if recoveries:
        phases([row for row in recoveries if row["phase"] != "total"],
               {row["run"]: row["error"] for row in recoveries if row["phase"] == "total"},
               options.out)
    predicted = [row for row in rows if row["set"] == "predict"]
    if predicted:
        timeline(predicted, folder, options.out)


if __name__ == "__main__":
    main()
