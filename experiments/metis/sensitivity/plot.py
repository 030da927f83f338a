#!/usr/bin/python3
"""Speed-up of Metis over AMP and over Alpa in cases of Figure 4, and how far it moves as one
assumption at a time changes. Draws runs.csv; ratios only, computes no model."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from systems import style  # noqa: E402

plt = style.plt
OTHER = ", P100 at 0.6"
KNOBS = [("Efficiency x 0.8 to 1.25", 0), ("Network x 0.5 to 2", 1), ("Batch 32 to 1024", 2),
         ("State 16 to 6 bytes", 3)]
BASELINES = [("amp", "Metis / AMP"), ("alpa", "Metis / Alpa")]


def main():
    arguments = style.arguments()
    rate, cases, states = {}, [], []
    for row in style.read(arguments.runs):
        state = str(row["job.state_bytes"])
        if state not in states:
            states.append(state)
        if row["case"] not in cases and OTHER not in row["case"]:
            cases.append(row["case"])
        if row["status"] == "ok":
            point = (row["hardware.scale_efficiency"], row["hardware.scale_network"],
                     row["global_batch"], state)
            rate[(row["case"], point, row["planner"])] = row["tokens_per_s"]
    base = (1.0, 1.0, 128.0, next(state for state in states if "8" in state))

    def ratio(case, point, over):
        own, other = rate.get((case, point, "metis")), rate.get((case, point, over))
        return own / other if own and other else None

    style.use()
    figure, axes = plt.subplots(1, 2, figsize=(style.PAGE, 3.2), sharey=True)
    for side, (over, _) in enumerate(BASELINES):
        for y, case in enumerate(cases):
            for place, (knob, at) in enumerate(KNOBS):
                points = {point for own, point, _ in rate if own == case and
                          all(point[i] == base[i] for i in range(4) if i != at)}
                values = [value for value in (ratio(case, point, over) for point in points)
                          if value]
                if values:
                    axes[side].plot([min(values), max(values)], [y + (place - 1.5) * 0.18] * 2,
                                    color=style.COLORS[place], linewidth=2.4, marker="|",
                                    markersize=4.5, label=knob if y == 0 else None)
            here = ratio(case, base, over)
            if here:
                axes[side].plot([here] * 2, [y - 0.36, y + 0.36], color="black", linewidth=0.9,
                                label="As assumed" if y == 0 else None)
            other = ratio(case + OTHER, base, over)
            if other:
                axes[side].plot(other, y, "D", color="black", markerfacecolor="white",
                                markersize=3.5, zorder=5,
                                label="V100 = 5.6 P100" if y == 0 else None)
    names = ["\n".join(case.split(" ", 1)) for case in cases]
    style.close_speedups(figure, axes, names, [f"{label} (throughput)" for _, label in BASELINES])
    style.save(figure, arguments.out, "sensitivity")


if __name__ == "__main__":
    main()
