#!/usr/bin/python3
"""Speed-up of Hetu over Megatron and over HexiScale on each heterogeneous cluster of Figure 13, and
how far it moves as one assumption at a time changes. Draws runs.csv; ratios only, no model."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
import style  # noqa: E402
from style import plt  # noqa: E402

BASE = (1.0, 1.0, "64")  # efficiency, network, batch
KNOBS = [("Efficiency x 0.8 to 1.25", 0), ("Network x 0.5 to 2", 1),
         ("Batch 32 to 256, both searched", 2)]
# Baseline, its plans, knobs that change it.
PANELS = [("Megatron", "printed", "Megatron / Hetu (step time)"),
          ("HexiScale", "searched", "HexiScale / Hetu (step time)")]


def main():
    arguments = style.arguments()
    time, names = {}, []
    for row in style.finished(style.read(arguments.runs)):
        name, system, batch, plans = row["case"].split(" / ")
        names += [name] if name not in names else []
        point = (row["hardware.scale_efficiency"], row["hardware.scale_network"], batch)
        time[(name, point, system, plans)] = row["iteration_time_s"]

    def ratio(name, point, over, plans, own):
        slow, fast = time.get((name, point, over, plans)), time.get((name, point, "Hetu", own))
        return slow / fast if slow and fast else None

    points = sorted({key[1] for key in time}, key=str)
    style.use()
    figure, axes = plt.subplots(1, 2, figsize=(style.PAGE, 2.3), sharey=True)
    for side, (over, plans, _) in enumerate(PANELS):
        for y, name in enumerate(names):
            for place, (knob, at) in enumerate(KNOBS):
                if at == 2 and over == "HexiScale":
                    continue
                kinds = ("searched", "searched") if at == 2 else (plans, "printed")
                values = [ratio(name, point, over, *kinds) for point in points
                          if all(point[i] == BASE[i] for i in range(3) if i != at)]
                values = [value for value in values if value]
                axes[side].plot([min(values), max(values)], [y + (place - 1) * 0.22] * 2,
                                color=style.COLORS[place], linewidth=2.6, marker="|",
                                markersize=5, label=knob if y == 0 else None)
            base = ratio(name, BASE, over, plans, "printed")
            axes[side].plot([base] * 2, [y - 0.34, y + 0.12], color="black", linewidth=0.9,
                            label="As assumed, printed strategies" if y == 0 else None)
    style.close_speedups(figure, axes, names, [label for *_, label in PANELS], center=0.45,
                         ncols=4, spacing=1.2)
    style.save(figure, arguments.out, "sensitivity")


if __name__ == "__main__":
    main()
