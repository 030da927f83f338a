#!/usr/bin/python3
"""Throughput of GPT-3 on unequal numbers of P100 and V100: AMP and Alpa on nodes of one GPU, Metis
on nodes of several, and each on the other's nodes. Draws runs.csv and published.csv; computes no
model."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import systems  # noqa: E402
from systems import mean, style  # noqa: E402

plt = style.plt
SETS = {"a": "(a) 1 V100\n3 P100", "b": "(b) 3 V100\n1 P100",
        "c": "(c) 1 V100\n7 P100", "d": "(d) 7 V100\n1 P100"}
NODES = {"amp": "single", "alpa": "single", "metis": "mixed"}  # as the paper has them
OTHER = {"single": "mixed", "mixed": "single"}


def main():
    arguments = style.arguments()
    rows = {row["case"]: row for row in style.read(arguments.runs) if row["status"] == "ok"}

    def rate(name, planner, nodes):
        row = rows.get(f"{name} {planner} {nodes}")
        return row["tokens_per_s"] if row else None

    def speedup(name, planner, nodes):
        own, base = rate(name, "metis", "mixed"), rate(name, planner, nodes)
        return own / base if own and base else None

    style.use()
    figure, axes = plt.subplots(figsize=(style.COLUMN, 2.1))
    for place, (planner, nodes) in enumerate(NODES.items()):
        name, looks = systems.look(planner)
        for x, key in enumerate(SETS):
            at = x + (place - 1) * 0.27
            value = rate(key, planner, nodes)
            if value is None:
                axes.plot(at, 400, "x", color="black", markersize=4)
                continue
            axes.bar(at, value / 1000, 0.27, label=name if x == 0 else None, **looks)
            other = rate(key, planner, OTHER[nodes])
            top = value / 1000
            if other:
                axes.plot(at, other / 1000, "D", color="black", markerfacecolor="white",
                          markersize=3, label="on the other nodes" if (x, place) == (0, 2) else None)
                if other / 1000 < top + 1.5:
                    top = max(top, other / 1000)
            if planner != "metis":
                axes.annotate(f"{speedup(key, planner, nodes):.1f}x", (at, top), xytext=(0.5, 4),
                              textcoords="offset points", ha="center", va="bottom", fontsize=5.5,
                              rotation=90)
    axes.set_xticks(range(len(SETS)), list(SETS.values()), fontsize=6.5)
    axes.set_ylabel("Throughput (1000 tokens/s)")
    axes.grid(axis="y")
    style.legend_above(axes, 0.45, 2, last=("on the other nodes",))
    style.save(figure, arguments.out, "figure_5")

    def stages(name, planner):
        row = rows.get(f"{name} {planner} {NODES[planner]}")
        return float(str(row["stages"]).split(";")[0]) if row else None

    ours = {}
    for planner, label in (("amp", "AMP"), ("alpa", "Alpa")):
        ours[("mean of four", f"Metis / {label}")] = mean(
            speedup(key, planner, "single") for key in SETS)
    for key, planner in (("a", "amp"), ("b", "amp"), ("c", "amp"), ("d", "amp"), ("b", "alpa"),
                         ("d", "alpa")):
        ours[(f"({key})", f"stages, {systems.SYSTEMS[planner][0]}")] = stages(key, planner)
    style.compare(arguments, ours)


if __name__ == "__main__":
    main()
