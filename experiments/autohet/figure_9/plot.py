#!/usr/bin/python3
"""Throughput of GPT-3 6.7B relative to one even pipeline as AutoHet's modules are added. Draws
runs.csv and published.csv; computes no model."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
import style  # noqa: E402
from style import plt  # noqa: E402

STEPS = ["baseline", "device grouping", "node and stage mapping", "load balance"]
LABELS = ["Baseline", "+ device grouping", "+ node and stage mapping", "+ load balance"]
CLUSTERS = {"autohet_4a100_4h800": "4A100+4H800", "autohet_8a100_8h800": "8A100+8H800"}
HEADLINE = 64  # sequences per batch; the other one is swept too


def main():
    arguments = style.arguments()
    rows = style.finished(style.read(arguments.runs))
    rate = {(row["cluster"], row["global_batch"], row["case"]): row["tokens_per_s"] for row in rows}
    batches = sorted({row["global_batch"] for row in rows}, reverse=True)
    groups = [(cluster, batch) for cluster in CLUSTERS for batch in batches]
    style.use()
    figure, axes = plt.subplots(figsize=(style.COLUMN, 1.9))
    ours = {}
    for place, (step, label) in enumerate(zip(STEPS, LABELS)):
        for x, (cluster, batch) in enumerate(groups):
            base = rate.get((cluster, batch, "baseline"))
            own = rate.get((cluster, batch, step))
            ratio = own / base if own and base else None
            if cluster == "autohet_4a100_4h800" and batch == HEADLINE and step != "baseline":
                ours[(CLUSTERS[cluster], step)] = ratio
            if ratio is None:
                continue
            at = x + (place - 1.5) * 0.21
            axes.bar(at, ratio, 0.21, color=style.COLORS[place], hatch=style.HATCHES[place],
                     edgecolor="black", linewidth=0.5, label=label if x == 0 else None)
            axes.annotate(f"{ratio:.2f}", (at, ratio), xytext=(0, 2), textcoords="offset points",
                          ha="center", va="bottom", fontsize=6, rotation=90)
    axes.set_xticks(range(len(groups)), [CLUSTERS[cluster].replace("+", "+\n") + f"\nbatch {batch:.0f}"
                                         for cluster, batch in groups], fontsize=6.5)
    axes.set_ylabel("Throughput relative\nto the baseline")
    axes.margins(y=0.18)
    axes.grid(axis="y")
    style.legend_above(axes, 0.45, 2)
    style.save(figure, arguments.out, "figure_9")
    style.compare(arguments, ours)


if __name__ == "__main__":
    main()
