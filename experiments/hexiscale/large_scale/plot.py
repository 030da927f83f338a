#!/usr/bin/python3
"""Throughput and breakdown of both planners' plans on 240 GPUs. Draws runs.csv; computes no model.

The published ratios compare against Metis and Galvatron and are not drawn (published.csv)."""

import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
import style  # noqa: E402
from style import plt  # noqa: E402

PLANNERS = ["megatron_grid", "hexiscale"]
MODELS = ["llama_30b", "llama2_70b"]


def of(rows, model, planner):
    return [row for row in rows if row["model"] == model and row["planner"] == planner]


def draw_mfu(axes, rows, models, planners):
    """Mean over seeds, bars from the least to the greatest; the verdict on memory stands inside."""
    width = 0.8 / len(planners)
    labels = [style.name(planner) for planner in planners]
    for p, planner in enumerate(planners):
        for m, model in enumerate(models):
            runs = of(rows, model, planner)
            x = m + (p - (len(planners) - 1) / 2) * width
            if not runs:
                axes.text(x, 0.3, "no plan", rotation=90, ha="center", va="bottom", fontsize=7)
                continue
            if len(runs) > 1:
                labels[p] = f"{style.name(planner)} ({len(runs)} seeds: mean, range)"
            values = [100 * row["mfu"] for row in runs]
            mean = statistics.mean(values)
            error = [[mean - min(values)], [max(values) - mean]] if len(values) > 1 else None
            axes.bar(x, mean, width * 0.92, yerr=error, color=style.COLOURS[p],
                     hatch=style.HATCHES[p], edgecolor="black", linewidth=0.5, capsize=2,
                     error_kw={"linewidth": 0.7})
            axes.annotate(f"{mean:.1f}", (x, max(values)), xytext=(0, 2),
                          textcoords="offset points", ha="center", va="bottom", fontsize=7)
            fits = all(style.is_true(row["fits"]) for row in runs)
            axes.annotate("fits" if fits else "out of\nmemory", (x, 0), xytext=(0, 4),
                          textcoords="offset points", ha="center", va="bottom", fontsize=6,
                          color="black" if fits else "#B00000",
                          bbox={"boxstyle": "round,pad=0.2", "facecolor": "white",
                                "linewidth": 0.4})
    axes.set_xticks(range(len(models)), [style.name(model) for model in models])
    axes.set_ylabel("Model FLOPs utilisation (%)")
    axes.margins(y=0.14)
    axes.grid(axis="y")
    handles = [plt.Rectangle((0, 0), 1, 1, facecolor=style.COLOURS[p], hatch=style.HATCHES[p],
                             edgecolor="black", linewidth=0.5) for p in range(len(planners))]
    axes.legend(handles, labels, loc="lower center", bbox_to_anchor=(0.5, 1.01), ncols=1,
                handlelength=1.6)


def draw_breakdown(axes, rows, models, planners):
    """Mean over seeds of the mean over GPUs; the diamond is the time that the planner believed."""
    bars = [(model, planner) for model in models for planner in planners
            if of(rows, model, planner)]
    places = [i + 0.5 * models.index(model) for i, (model, _) in enumerate(bars)]
    left = [0.0] * len(bars)
    for column, label, colour, hatch in style.BREAKDOWN:
        values = [statistics.mean(row[column] for row in of(rows, *bar)) for bar in bars]
        axes.barh(places, values, 0.72, left=left, color=colour, hatch=hatch, edgecolor="black",
                  linewidth=0.5, label=label)
        left = [a + b for a, b in zip(left, values)]
    believed = [(statistics.mean(estimates), place) for bar, place in zip(bars, places)
                if (estimates := [row["planner_estimate_s"] for row in of(rows, *bar)
                                  if isinstance(row["planner_estimate_s"], float)])]
    axes.plot([time for time, _ in believed], [place for _, place in believed], linestyle="none", marker="D", markersize=4.5, color="white",
              markeredgecolor="black", markeredgewidth=0.9, label="Planner's estimate")
    axes.set_yticks(places, [f"{style.name(model)}\n{style.name(planner)}"
                             for model, planner in bars])
    axes.invert_yaxis()
    axes.set_xlabel("Simulated iteration time, mean over GPUs (s)")
    axes.grid(axis="x")
    style.legend_above(axes, 0.4, 3, last=("Planner's estimate",))


def main():
    arguments = style.arguments()
    rows = style.finished(style.read(arguments.runs))
    models = [model for model in MODELS if any(row["model"] == model for row in rows)]
    planners = [name for name in PLANNERS if any(row["planner"] == name for row in rows)]
    style.use()
    figure, (left, right) = plt.subplots(1, 2, figsize=(style.PAGE, 2.3),
                                         gridspec_kw={"width_ratios": [1, 1.35]})
    draw_mfu(left, rows, models, planners)
    draw_breakdown(right, rows, models, planners)
    figure.subplots_adjust(wspace=0.42)
    style.save(figure, arguments.out, "large_scale")


if __name__ == "__main__":
    main()
