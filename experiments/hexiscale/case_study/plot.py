#!/usr/bin/python3
"""Iteration time of both published plans: the paper's numbers, its public code, our simulation with
breakdown, and peak memory by GPU type. Draws runs.csv and published.csv; computes no model."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
import style  # noqa: E402
from style import plt  # noqa: E402

PLANS = {"plans/megatron.yaml": "megatron", "plans/hexiscale.yaml": "hexiscale",
         "plans/megatron_plan_1.yaml": "plan 1"}
TITLES = {"megatron": "Megatron", "hexiscale": "HexiScale"}
MEMORY = {"A800-80GB-NVLink": 80, "RTX4090-24GB": 24, "RTX3090-24GB": 24}  # GiB
PIPELINE = "#999999"
SYNCHRONIZATION = "#D55E00"


def find(rows, cost, plan):
    for row in rows:
        if row["cost"] == cost and PLANS[row["plan"]] == plan:
            return row
    return None


def published_value(published, plan, quantity):
    return next(row["value"] for row in published
                if row["row"] == TITLES[plan] and row["quantity"].startswith(quantity))


def values(rows):
    """Ours by (row, quantity) of published.csv; computes ratios only."""
    ours, totals, synchronization = {}, {}, {}
    for plan, title in TITLES.items():
        code, simulated = find(rows, "hexiscale_public_code", plan), find(rows, "simulator", plan)
        pipelines = str(code["pipeline_times_s"]).split(";") if code else [None, None]
        for number, time in enumerate(pipelines):
            ours[(title, f"pipeline {number} under the public code")] = time and float(time)
        ours[(title, "gradient synchronization under the public code")] = \
            code and code["synchronization_s"]
        ours[(title, "iteration under the public code")] = code and code["iteration_time_s"]
        if plan == "hexiscale":
            ours[(title, "difference of its pipelines under the public code")] = \
                pipelines[0] and 100 * (float(pipelines[1]) / float(pipelines[0]) - 1)
        synchronization[plan] = code and code["synchronization_s"]
        totals[plan] = (code and code["iteration_time_s"],
                        simulated and simulated["iteration_time_s"])
    for place, kind in enumerate(("ratio under the public code", "ratio simulated")):
        megatron, hexiscale = totals["megatron"][place], totals["hexiscale"][place]
        ours[("Megatron over HexiScale", kind)] = \
            megatron / hexiscale if megatron and hexiscale else None
    ours[("Megatron over HexiScale", "gradient synchronization under the public code")] = \
        synchronization["megatron"] / synchronization["hexiscale"] \
        if all(synchronization.values()) else None
    eight = find(rows, "simulator", "plan 1")
    ours[("Megatron, plan 1", "bubble of the iteration, simulated")] = \
        eight and 100 * eight["bubble_s"] / eight["iteration_time_s"]
    return ours


def two_parts(axes, y, total, synchronization, labeled):
    pipeline = total - synchronization
    axes.barh(y, pipeline, 0.7, color=PIPELINE, edgecolor="black", linewidth=0.5,
              label="Pipeline (no breakdown)" if labeled else None)
    axes.barh(y, synchronization, 0.7, left=pipeline, color=SYNCHRONIZATION, hatch="xxxx",
              edgecolor="black", linewidth=0.5)
    return total


def draw_times(axes, rows, published):
    places, labels = [], []
    seen = set()
    y = 0.0
    for plan, title in TITLES.items():
        bars = [("paper", f"{title}\npaper"), ("code", f"{title}\npublic code"),
                ("simulator", f"{title}\nsimulated")]
        for kind, label in bars:
            if kind == "paper":
                end = two_parts(axes, y, published_value(published, plan, "iteration"),
                                published_value(published, plan, "gradient"),
                                "two" not in seen)
                seen.add("two")
            elif kind == "code":
                row = find(rows, "hexiscale_public_code", plan)
                if row is None:
                    continue
                end = two_parts(axes, y, row["iteration_time_s"], row["synchronization_s"], False)
            else:
                row = find(rows, "simulator", plan)
                if row is None:
                    continue
                end = 0.0
                for column, part, color, hatch in style.parts_of(rows):
                    axes.barh(y, row[column], 0.7, left=end, color=color, hatch=hatch,
                              edgecolor="black", linewidth=0.5,
                              label=part if column not in seen else None)
                    seen.add(column)
                    end += row[column]
            axes.annotate(f"{end:.1f}", (end, y), xytext=(2, 0), textcoords="offset points",
                          va="center", fontsize=7)
            places.append(y)
            labels.append(label)
            y += 1.0
        y += 0.5
    axes.set_yticks(places, labels)
    axes.invert_yaxis()
    axes.margins(x=0.1)
    axes.set_xlabel("Iteration time (s)")
    axes.grid(axis="x")
    style.legend_above(axes, 0.4, 3)


def draw_memory(axes, rows):
    gpus = [gpu for gpu in MEMORY
            if any(isinstance(row.get("peak_gib." + gpu), float) for row in rows)]
    width = 0.38
    for p, (plan, title) in enumerate(TITLES.items()):
        row = find(rows, "simulator", plan)
        if row is None:
            continue
        for g, gpu in enumerate(gpus):
            need = row["peak_gib." + gpu]
            x = g + (p - 0.5) * width
            axes.bar(x, need, width * 0.92, color=style.COLORS[p], hatch=style.HATCHES[p],
                     edgecolor="black", linewidth=0.5, label=title if g == 0 else None)
            fits = style.is_true(row["fits." + gpu])
            axes.annotate(f"{need:.0f}" + ("" if fits else "\nover"), (x, need), xytext=(0, 2),
                          textcoords="offset points", ha="center", va="bottom", fontsize=7,
                          color="black" if fits else "#B00000")
    for g, gpu in enumerate(gpus):
        axes.plot([g - 0.46, g + 0.46], [MEMORY[gpu]] * 2, color="black", linewidth=1.2,
                  linestyle=(0, (3, 1.5)), label="Memory of the GPU" if g == 0 else None)
    axes.set_xticks(range(len(gpus)), [gpu.split("-")[0].replace("RTX", "RTX ") for gpu in gpus])
    axes.set_ylabel("Peak memory (GiB)")
    axes.margins(y=0.16)
    axes.grid(axis="y")
    style.legend_above(axes, 0.45, 2, last=("Memory of the GPU",))


def main():
    arguments = style.arguments()
    rows = style.finished(style.read(arguments.runs))
    published = style.read(arguments.published)
    style.compare(arguments, values(rows))
    style.use()
    figure, (left, right) = plt.subplots(1, 2, figsize=(style.PAGE, 2.5),
                                         gridspec_kw={"width_ratios": [1.5, 1]})
    draw_times(left, rows, published)
    draw_memory(right, rows)
    figure.subplots_adjust(wspace=0.25)
    style.save(figure, arguments.out, "case_study")


if __name__ == "__main__":
    main()
