#!/usr/bin/python3
"""Time of one transfer between stages of two vendors against the paper's. Draws runs.csv and
published.csv; computes no model."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
import style  # noqa: E402

plt = style.plt
WAYS = {"intra": "inside a node", "inter": "between nodes"}
BANDWIDTHS = {"intra": "4.7 GB/s", "inter": "2.1 GB/s"}
MODELS = [("7b", "Llama-2 7B"), ("13b", "Llama-2 13B")]


def main():
    arguments = style.arguments()
    rows = {row["case"]: row for row in style.finished(style.read(arguments.runs))}
    published = {(row["row"], row["quantity"]): row["value"]
                 for row in style.read(arguments.published)}
    time = {}  # One transfer forward and one back make the difference.
    for model, _ in MODELS:
        free = rows[f"{model} free"]["iteration_time_s"]
        for way in WAYS:
            time[f"{model} {way}"] = 500 * (rows[f"{model} {way}"]["iteration_time_s"] - free)
    style.use()
    figure, axes = plt.subplots(figsize=(style.COLUMN, 1.9))
    for place, (model, name) in enumerate(MODELS):
        for x, way in enumerate(WAYS):
            at, value = x + (place - 0.5) * 0.32, time[f"{model} {way}"]
            axes.bar(at, value, 0.32, color=style.COLORS[place], hatch=style.HATCHES[place],
                     edgecolor="black", linewidth=0.5, label=name if x == 0 else None)
            axes.annotate(f"{value:.2f}", (at, value), xytext=(0, 2), textcoords="offset points",
                          ha="center", va="bottom", fontsize=6)
    for x, way in enumerate(WAYS.values()):
        paper = published[(way, "transfer of 13B")]
        axes.plot([x - 0.42, x + 0.42], [paper, paper], color="#B00000", linewidth=1.4,
                  label="paper, model not said" if x == 0 else None)
    axes.set_xticks(range(2), [f"{label}\n({BANDWIDTHS[way]})" for way, label in WAYS.items()])
    axes.set_ylabel("One transfer (ms)")
    axes.margins(y=0.14)
    axes.grid(axis="y")
    style.legend_above(axes, 0.45, 2, last=("paper, model not said",))
    style.save(figure, arguments.out, "communication")
    ours = {(label, "transfer of 13B"): time[f"13b {way}"] for way, label in WAYS.items()}
    ours.update({(label, "bandwidth"): published[(label, "bandwidth")] for label in WAYS.values()})
    style.compare(arguments, ours)


if __name__ == "__main__":
    main()
