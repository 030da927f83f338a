#!/usr/bin/python3
"""Model FLOPs utilization of Llama-2 7B on one type and on two types of GPUs. Draws runs.csv and
published.csv; computes no model."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import rates  # noqa: E402
from rates import style  # noqa: E402

plt = style.plt


def main():
    arguments = style.arguments()
    rows = rates.by_case(style.read(arguments.runs))
    published = {(row["row"], row["quantity"]): row["value"]
                 for row in style.read(arguments.published)}
    values, paper, ours = {}, {}, {}
    for pair in rates.PAIRS:
        for bar, _, _ in rates.BARS:
            row = rows.get(f"{pair} {bar}")
            if row is not None:
                values[(pair, bar)] = 100 * row["mfu"]
                paper[(pair, bar)] = published.get((f"pair {pair}", f"MFU, {bar}"), "")
                if (f"pair {pair}", f"MFU, {bar}") in published:
                    ours[(f"pair {pair}", f"MFU, {bar}")] = values[(pair, bar)]
    style.use()
    figure, axes = plt.subplots(figsize=(style.COLUMN * 1.3, 2.2))
    rates.draw(axes, values, paper, {key: f"{value:.1f}" for key, value in values.items()},
               "Model FLOPs\nutilization (%)")
    style.legend_above(axes, 0.42, 3, last=("paper",))
    style.save(figure, arguments.out, "figure_7")
    style.compare(arguments, ours)


if __name__ == "__main__":
    main()
