#!/usr/bin/python3
"""Tokens per second and GPU of Llama-2 7B on one type and on two types of GPUs, with the sum of the
homogeneous rates (Eq. 3). Draws runs.csv and published.csv; ratios only, computes no model."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import rates  # noqa: E402
from rates import style  # noqa: E402

plt = style.plt
GPUS = {"first": 8, "second": 8, "uniform": 16, "non-uniform": 16, "printed": 16}


def main():
    arguments = style.arguments()
    rows = rates.by_case(style.read(arguments.runs))
    published = {(row["row"], row["quantity"]): row["value"]
                 for row in style.read(arguments.published)}
    values, texts, paper, ours = {}, {}, {}, {}
    for pair in rates.PAIRS:
        for bar, _, _ in rates.BARS:
            row = rows.get(f"{pair} {bar}")
            if row is None:
                continue
            values[(pair, bar)] = row["tokens_per_s"] / GPUS[bar]
            text = f"{values[(pair, bar)]:.0f}"
            if GPUS[bar] == 16:
                split = rates.layers(arguments.runs, row)
                text += f" ({split[0]}:{split[1]})"
                if bar == "non-uniform":
                    ours[(f"pair {pair}", "layers on the first type, non-uniform")] = split[0]
            texts[(pair, bar)] = text
            ours[(f"pair {pair}", f"throughput, {bar}")] = values[(pair, bar)]
            paper[(pair, bar)] = published.get((f"pair {pair}", f"throughput, {bar}"), "")
        both = (values[(pair, "first")] + values[(pair, "second")]) / 2  # Eq. 3, equal numbers
        for bar in ("uniform", "non-uniform"):
            ours[(f"pair {pair}", f"loss, {bar}")] = 100 * (1 - values[(pair, bar)] / both)
    ours = {key: value for key, value in ours.items() if key in published}
    style.use()
    figure, axes = plt.subplots(figsize=(style.COLUMN * 1.3, 2.8))
    lines = {pair: (values[(pair, "first")] + values[(pair, "second")]) / 2 for pair in rates.PAIRS}
    rates.draw(axes, values, paper, texts, "Throughput\n(tokens/s per GPU)", lines)
    for pair, both in lines.items():
        axes.plot([pair - 0.46, pair + 0.46], [both, both], color="black", linewidth=0.8,
                  linestyle=(0, (3, 2)), zorder=5, label="Eq. 3, ours" if pair == 1 else None)
    style.legend_above(axes, 0.42, 3, last=("paper", "Eq. 3, ours"))
    style.save(figure, arguments.out, "figure_6")
    style.compare(arguments, ours)


if __name__ == "__main__":
    main()
