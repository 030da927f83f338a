#!/usr/bin/python3
"""Search times of Metis, Metis without pruning and Alpa by number of GPUs, beside those that the
paper prints, and nodes visited. Draws runs.csv, timings.csv (wall clock: other machines give other
seconds) and published.csv; computes no model."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from systems import style  # noqa: E402

plt = style.plt
GPUS = [4, 8, 16, 32, 64]
SYSTEMS = [("metis", "Metis", 2, "o"), ("full", "Metis, no pruning", 5, "^"), ("alpa", "Alpa", 1, "s")]


def main():
    arguments = style.arguments()
    rows = {row["case"]: row for row in style.finished(style.read(arguments.runs))}
    timings = {row["run"]: row["planning_s"]
               for row in style.read(os.path.join(os.path.dirname(arguments.runs), "timings.csv"))}

    def seconds(system, gpus):
        row = rows.get(f"{system} {gpus}")
        return timings.get(row["run"]) if row else None

    published = {(row["row"], row["quantity"]): row for row in style.read(arguments.published)}
    style.use()
    figure, axes = plt.subplots(1, 2, figsize=(style.PAGE, 1.9))
    for system, label, colour, marker in SYSTEMS:
        look = {"color": style.COLOURS[colour], "marker": marker, "markersize": 4, "linewidth": 1}
        points = [(gpus, seconds(system, gpus)) for gpus in GPUS]
        points = [(gpus, max(value, 1e-3)) for gpus, value in points if value is not None]
        axes[0].plot(*zip(*points), label=label, **look)
        paper = [(key[0], row["value"]) for key, row in published.items()
                 if key[1] == f"search, {label}"]
        if paper:
            axes[0].plot(*zip(*paper), label=f"{label}, paper", linestyle=(0, (3, 1.5)),
                         markerfacecolor="white", **look)
        if system != "alpa":
            found = [(gpus, rows[f"{system} {gpus}"]) for gpus in GPUS if f"{system} {gpus}" in rows]
            axes[1].plot([gpus for gpus, _ in found], [row["work"] for _, row in found], **look)
            cut = [(gpus, row["work"]) for gpus, row in found
                   if not style.is_true(row["search_complete"])]
            if cut:
                axes[1].plot(*zip(*cut), "x", color="black", markersize=7,
                             label="stopped at its budget" if system == "full" else None)
    for side, label in enumerate(("Search time (s)", "Nodes visited")):
        axes[side].set_xscale("log", base=2)
        axes[side].set_yscale("log")
        axes[side].set_xticks(GPUS, [str(gpus) for gpus in GPUS])
        axes[side].set_xlabel("GPUs, half T4 and half V100")
        axes[side].set_ylabel(label)
        axes[side].grid(axis="y")
    handles, labels = axes[0].get_legend_handles_labels()
    more, names = axes[1].get_legend_handles_labels()
    figure.legend(handles + more, labels + names, loc="lower center", bbox_to_anchor=(0.5, 0.92),
                  ncols=3)
    figure.subplots_adjust(wspace=0.28)
    style.save(figure, arguments.out, "table_4")
    ours = {}
    for row, quantity in published:
        if quantity in ("search, Metis", "search, Alpa"):
            ours[(f"{row:.0f}", quantity)] = seconds(quantity[8:].lower(), int(row))
    for gpus, oracle in ((4, "oracle"), (8, "full")):
        own, best = rows.get(f"metis {gpus}"), rows.get(f"{oracle} {gpus}")
        ours[(str(gpus), "Metis's plan / Oracle's")] = (
            own["tokens_per_s"] / best["tokens_per_s"] if own and best else None)
    style.compare(arguments, ours)


if __name__ == "__main__":
    main()
