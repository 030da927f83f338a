#!/usr/bin/python3
"""Speed-up of AutoHet over Megatron-LM and over Whale on each set of GPUs, and how far it moves as
one assumption at a time changes. Draws runs.csv; ratios only, computes no model."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
import style  # noqa: E402
from style import plt  # noqa: E402

BASE = (1.0, 1.0, 64.0)  # efficiency, network, batch
OTHER = ", H800 at 0.45"
KNOBS = [("Efficiency x 0.8 to 1.25", 0), ("Network x 0.5 to 2", 1), ("Batch 16 to 256", 2)]
BASELINES = [("megatron_grid", "AutoHet / Megatron-LM"), ("whale", "AutoHet / Whale")]


def system(row):
    options = str(row["planner_options"])
    if row["planner"] == "whale" and "layers" in options:
        return "whale, even layers"
    if row["planner"] == "autohet" and "every_count" in options:
        return "autohet, every count"
    return row["planner"]


def main():
    arguments = style.arguments()
    rate, cases = {}, []
    for row in style.finished(style.read(arguments.runs)):
        point = (row["hardware.scale_efficiency"], row["hardware.scale_network"],
                 row["global_batch"])
        rate[(row["case"], point, system(row))] = row["tokens_per_s"]
        if OTHER not in row["case"] and row["case"] not in cases:
            cases.append(row["case"])

    def ratio(case, point, over, of="autohet"):
        own, base = rate.get((case, point, of)), rate.get((case, point, over))
        return own / base if own and base else None

    style.use()
    figure, axes = plt.subplots(1, 2, figsize=(style.PAGE, 3.5), sharey=True)
    for side, (over, _) in enumerate(BASELINES):
        for y, case in enumerate(cases):
            base = ratio(case, BASE, over)
            for place, (knob, at) in enumerate(KNOBS):
                values = [ratio(case, point, over) for own, point, name in rate if own == case and
                          name == "autohet" and
                          all(point[i] == BASE[i] for i in range(3) if i != at)]
                values = [value for value in values if value]
                axes[side].plot([min(values), max(values)], [y + (place - 1.2) * 0.2] * 2,
                                color=style.COLORS[place], linewidth=2.6, marker="|",
                                markersize=5, label=knob if y == 0 else None)
            axes[side].plot([base] * 2, [y - 0.34, y + 0.44], color="black", linewidth=0.9,
                            label="As assumed" if y == 0 else None)
            other = ratio(case + OTHER, BASE, over)
            if other:
                axes[side].plot(other, y + 0.36, "D", color=style.COLORS[3], markersize=3.5,
                                label="H800 = 2.6 A100" if case.endswith("4H800") else None)
            every = ratio(case, BASE, over, "autohet, every count")
            if every:
                axes[side].plot(every, y + 0.36, "^", color="black", markersize=3.5,
                                markerfacecolor="white",
                                label="AutoHet, Eq. 1 for every count" if y == 0 else None)
            even = ratio(case, BASE, "whale, even layers")
            if side == 1 and even:
                axes[side].plot(even, y + 0.36, "o", color=style.COLORS[5], markersize=3.5,
                                markerfacecolor="white", zorder=1,
                                label="Whale with even layers" if y == 0 else None)
    names = [case.replace(" ", "\n", 1) if "BERT" in case else "\n".join(case.rsplit(" ", 1))
             for case in cases]
    style.close_speedups(figure, axes, names, [f"{label} (throughput)" for _, label in BASELINES],
                         handles_of=1, ncols=4)
    style.save(figure, arguments.out, "sensitivity")


if __name__ == "__main__":
    main()
