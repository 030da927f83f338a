#!/usr/bin/python3
"""Throughput of Megatron-LM, Whale and AutoHet with equal numbers of GPUs of two types. Draws
runs.csv and published.csv; computes no model."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import throughput  # noqa: E402
from throughput import style  # noqa: E402

plt = style.plt
MODELS = ["BERT-Large", "GPT-3 6.7B"]

QUANTITIES = {"deepspeed": "AutoHet / Megatron-LM, full data parallelism",
              "megatron_grid": "AutoHet / Megatron-LM, best grid", "whale": "AutoHet / Whale"}


def main():
    arguments = style.arguments()
    cases = throughput.by_case(style.read(arguments.runs))
    paper = {(row["row"], row["quantity"]): row["value"]
             for row in style.read(arguments.published)}
    style.use()
    figure, axes = plt.subplots(2, 1, figsize=(style.COLUMN * 1.35, 3.9))
    ours = {}
    for place, model in enumerate(MODELS):
        own = {case[len(model) + 1:]: cell for case, cell in cases.items()
               if case.startswith(model)}
        row = f"{model}, mean of six"
        for planner, quantity in QUANTITIES.items():
            if (row, quantity) in paper:
                ours[(row, quantity)] = throughput.mean_ratio(own, planner)
        throughput.draw(axes[place], own, lambda case: case.replace("+", "+\n"), model,
                        paper[(row, QUANTITIES["megatron_grid"])])
    throughput.legend(figure, axes[0], 2, 0.93)
    figure.subplots_adjust(hspace=0.5)
    style.save(figure, arguments.out, "figure_7")
    style.compare(arguments, ours)


if __name__ == "__main__":
    main()
