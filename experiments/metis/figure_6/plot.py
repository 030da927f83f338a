#!/usr/bin/python3
"""Throughput of two stages of mixed GPUs without balance, with balance of samples, and with balance
of samples and layers. Draws runs.csv and published.csv; computes no model."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from systems import style  # noqa: E402

plt = style.plt
CASES = {"uniform": "None\n(as Alpa)", "data": "Samples\n(as Whale)",
         "both": "Samples,\nlayers (Metis)", "free": "Metis, free\nstages"}
RATES = [(0.423, "V100 = 7.9 P100 (paper)"), (0.6, "V100 = 5.6 P100 (library)")]


def main():
    arguments = style.arguments()
    rate = {(row["case"], row["hardware.efficiency.P100-16GB-PCIe"]): row["tokens_per_s"]
            for row in style.finished(style.read(arguments.runs))}

    def ratio(of, over, efficiency=RATES[0][0]):
        own, base = rate.get((of, efficiency)), rate.get((over, efficiency))
        return own / base if own and base else None

    style.use()
    figure, axes = plt.subplots(figsize=(style.COLUMN, 1.9))
    for place, (efficiency, label) in enumerate(RATES):
        for x, case in enumerate(CASES):
            value = ratio(case, "uniform", efficiency)
            if value is None:
                continue
            at = x + (place - 0.5) * 0.38
            axes.bar(at, value, 0.38, color=style.COLORS[place], hatch=style.HATCHES[place],
                     edgecolor="black", linewidth=0.5, label=label if x == 0 else None)
            axes.annotate(f"{value:.2f}", (at, value), xytext=(0, 2), textcoords="offset points",
                          ha="center", va="bottom", fontsize=6)
    axes.set_xticks(range(len(CASES)), list(CASES.values()), fontsize=6.5)
    axes.set_ylabel("Throughput\n(no balance = 1)")
    axes.margins(y=0.12)
    axes.grid(axis="y")
    style.legend_above(axes, 0.42, 2)
    style.save(figure, arguments.out, "figure_6")
    style.compare(arguments, {("GPT-3 350M", "Metis / Whale"): ratio("both", "data"),
                              ("GPT-3 350M", "Metis / Alpa"): ratio("both", "uniform")})


if __name__ == "__main__":
    main()
