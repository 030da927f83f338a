#!/usr/bin/python3
"""Throughput of Megatron-LM, Whale and AutoHet with unequal numbers of GPUs of two types. Draws
runs.csv and published.csv; computes no model."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import throughput  # noqa: E402
from throughput import style  # noqa: E402

plt = style.plt
NAMES = {"megatron_grid": "Megatron-LM", "whale": "Whale"}
GROUPS = [("H800", "H800+A100, mean"), ("H20", "A100+H20, mean")]


def main():
    arguments = style.arguments()
    cases = throughput.by_case(style.read(arguments.runs))
    paper = {(row["row"], row["quantity"]): row["value"]
             for row in style.read(arguments.published)}
    style.use()
    figure, axes = plt.subplots(1, 2, figsize=(style.COLUMN * 1.55, 1.75), sharey=True,
                                gridspec_kw={"width_ratios": [4.6, 2.6]})
    ours = {}
    for place, (gpu, row) in enumerate(GROUPS):
        own = {case: cell for case, cell in cases.items() if case.endswith(gpu)}
        for planner in NAMES:
            ours[(row, f"AutoHet / {NAMES[planner]}")] = \
                throughput.mean_ratio(own, planner)
        throughput.draw(axes[place], own, lambda case: case.replace("+", "+\n"),
                        f"LLaMA 6.7B, {'H800 + A100' if gpu == 'H800' else 'A100 + H20'}",
                        paper[(row, "AutoHet / Megatron-LM")])
    axes[1].set_ylabel("")
    for panel in axes:
        panel.tick_params(axis="x", labelsize=6.5)
    axes[1].tick_params(labelleft=True)
    throughput.legend(figure, axes[0], 2, 0.99)
    figure.subplots_adjust(wspace=0.2)
    style.save(figure, arguments.out, "figure_8")
    style.compare(arguments, ours)


if __name__ == "__main__":
    main()
