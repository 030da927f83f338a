#!/usr/bin/python3
"""Throughput of AMP, Alpa and Metis on 4 to 32 GPUs of two types, relative to AMP, and the mean
speed-ups of Metis against those that the paper prints. Draws runs.csv and published.csv; computes no
model."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import systems  # noqa: E402
from systems import mean, ratio, style  # noqa: E402

plt = style.plt
MODELS = ["GPT-3", "MoE", "Wide-ResNet"]
PAIRS = ["P100+T4", "T4+V100", "P100+V100"]
GPUS = [4, 8, 16, 32]


def select(cases, model=None, pair=None):
    return [cell for case, cell in cases.items()
            if (model is None or case.startswith(model + " ")) and
            (pair is None or f" {pair} " in case)]


def values(arguments, cases):
    """Ours for published.csv."""
    both = ("amp", "alpa")
    found = {("all", "Metis / AMP, mean"): mean(ratio(cell, "amp") for cell in cases.values()),
             ("all", "Metis / Alpa, mean"): mean(ratio(cell, "alpa") for cell in cases.values())}
    every = [ratio(cell, over) for cell in cases.values() for over in both]
    every = [value for value in every if value is not None]
    found[("all", "Metis / baseline, least")] = min(every)
    found[("all", "Metis / baseline, most")] = max(every)
    for pair in PAIRS:
        found[(pair, "Metis / Alpa, mean")] = mean(ratio(cell, "alpa")
                                                   for cell in select(cases, pair=pair))
    for model in MODELS:
        found[(model, "Metis / baselines, mean")] = mean(
            ratio(cell, over) for cell in select(cases, model) for over in both)
    for pair in ("P100+T4", "P100+V100"):
        found[("GPT-3", f"T4+V100 / {pair}, Metis")] = mean(
            own["metis"]["tokens_per_s"] / other["metis"]["tokens_per_s"]
            for own, other in zip(select(cases, "GPT-3", "T4+V100"), select(cases, "GPT-3", pair))
            if "metis" in own and "metis" in other)
    gpt, moe = cases["GPT-3 T4+V100 16"], cases["MoE T4+V100 16"]
    resnet = cases["Wide-ResNet T4+V100 8"]
    found[("MoE T4+V100 16", "Metis / Alpa")] = ratio(moe, "alpa")
    for over, name in (("amp", "AMP"), ("alpa", "Alpa")):
        found[("Wide-ResNet T4+V100 8", f"Metis / {name}")] = ratio(resnet, over)
    for row, cell, planners in (("GPT-3 T4+V100 16", gpt, ("alpa", "metis")),
                                ("MoE T4+V100 16", moe, ("alpa", "metis")),
                                ("Wide-ResNet T4+V100 8", resnet, ("amp", "metis"))):
        for planner in planners:
            found[(row, f"stages, {systems.SYSTEMS[planner][0]}")] = (
                cell[planner]["stages"] if planner in cell else None)
    found[("GPT-3 T4+V100 16", "layers per stage, Alpa")] = systems.layers_per_stage(
        systems.plan_of(arguments.runs, gpt["alpa"])) if "alpa" in gpt else None
    found[("GPT-3 T4+V100 16", "layers on T4, Metis")] = systems.share_of_layers(
        systems.plan_of(arguments.runs, gpt["metis"]), 0, 7)
    found[("MoE T4+V100 16", "layers on V100, Metis")] = systems.share_of_layers(
        systems.plan_of(arguments.runs, moe["metis"]), 8, 15)
    return found


def draw_model(axes, cases, model):
    x, ticks = 0.0, []
    for pair in PAIRS:
        start = x
        for gpus in GPUS:
            cell = cases.get(f"{model} {pair} {gpus}", {})
            for place, planner in enumerate(systems.SYSTEMS):
                name, looks = systems.look(planner)
                at = x + (place - 1) * 0.28
                value = ratio(cell, "amp", planner)
                if value is None:
                    if planner not in cell:
                        axes.plot(at, 0.12, "x", color="black", markersize=4)
                    continue
                axes.bar(at, value, 0.28, label=name if x == 0 else None, **looks)
                if planner == "metis":
                    axes.annotate(f"{value:.2f}", (at, value), xytext=(0, 2), ha="center",
                                  textcoords="offset points", va="bottom", fontsize=5.5)
            ticks.append((x, str(gpus)))
            x += 1
        axes.annotate(pair, ((start + x - 1) / 2, 1.0), xycoords=("data", "axes fraction"),
                      xytext=(0, 1), textcoords="offset points", ha="center", va="bottom",
                      fontsize=6.5)
        x += 0.4
    axes.set_xticks([tick for tick, _ in ticks], [label for _, label in ticks])
    axes.set_ylabel(f"{model}\n(AMP = 1)")
    axes.set_ylim(0, 1.08 * axes.get_ylim()[1])
    axes.set_xlim(-0.6, x - 0.8)
    axes.grid(axis="y")


def draw_means(axes, ours, published):
    rows = [(("all", "Metis / AMP, mean"), "over AMP, all"),
            (("all", "Metis / Alpa, mean"), "over Alpa, all")]
    rows += [((pair, "Metis / Alpa, mean"), f"over Alpa, {pair}") for pair in PAIRS]
    rows += [((model, "Metis / baselines, mean"), f"over both, {model}") for model in MODELS]
    for y, (key, _) in enumerate(rows):
        axes.plot([published[key], ours[key]], [y, y], color="#A0A0A0", linewidth=0.8, zorder=1)
        axes.plot(published[key], y, "D", color="#B00000", markersize=4,
                  label="paper" if y == 0 else None)
        axes.plot(ours[key], y, "o", color="black", markersize=4.5, markerfacecolor="white",
                  label="ours" if y == 0 else None)
    axes.set_yticks(range(len(rows)), [label.replace(", ", ",\n") for _, label in rows],
                    fontsize=6.5)
    axes.invert_yaxis()
    axes.axvline(1, color="#808080", linewidth=0.6)
    axes.set_xlim(0.8, None)
    axes.set_xlabel("Mean speed-up of Metis")
    axes.grid(axis="x")
    style.legend_above(axes, 0.4, 2)


def main():
    arguments = style.arguments()
    cases = systems.by_case(style.read(arguments.runs))
    published = {(row["row"], row["quantity"]): row["value"]
                 for row in style.read(arguments.published)}
    ours = values(arguments, cases)
    style.use()
    figure = plt.figure(figsize=(style.PAGE, 4.4))
    grid = figure.add_gridspec(3, 2, width_ratios=[2.6, 1], wspace=0.32, hspace=0.26)
    first = None
    for place, model in enumerate(MODELS):
        axes = figure.add_subplot(grid[place, 0])
        draw_model(axes, cases, model)
        first = first or axes
        if place < 2:
            axes.tick_params(labelbottom=False)
    axes.set_xlabel("GPUs, half of each type")
    handles, labels = first.get_legend_handles_labels()
    first.legend(handles, labels, loc="lower center", bbox_to_anchor=(0.5, 1.07), ncols=3)
    draw_means(figure.add_subplot(grid[:, 1]), ours, published)
    style.save(figure, arguments.out, "figure_4")
    style.compare(arguments, ours)


if __name__ == "__main__":
    main()
