#!/usr/bin/python3
"""How far utilization and the ratio to Galvatron move with efficiency, bandwidth and batch. Draws
runs.csv; computes ratios only."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import bars  # noqa: E402
import style  # noqa: E402
from style import plt  # noqa: E402

ROWS = {"7b_setting1": "7B, setting 1", "7b_setting2": "7B, setting 2",
        "30b_setting3": "30B, setting 3"}
CHANGES = [("base", "As assumed"), ("efficiency_0.8", "Efficiency × 0.8"),
           ("efficiency_1.25", "Efficiency × 1.25"), ("network_0.5", "Network × 0.5"),
           ("network_2", "Network × 2"), ("batch_0.5", "Batch × 0.5"), ("batch_2", "Batch × 2"),
           ("batch_8", "Batch × 8")]
MARKS = ["o", "s", "^"]


def main():
    arguments = style.arguments()
    cases = bars.by_case(style.finished(style.read(arguments.runs)))

    def mfu(setting, system, change):
        return bars.mfu(cases.get(f"{setting}_{system}_{change}"))
    style.compare(arguments, {})
    published = {row["row"]: row["value"] for row in style.read(arguments.published)
                 if isinstance(row["value"], float)}
    style.use()
    figure, (left, right) = plt.subplots(1, 2, figsize=(style.PAGE * 0.85, 2.0), sharey=True)
    for place, (key, row) in enumerate(ROWS.items()):
        shift = (place - 1) * 0.2
        for y, (change, _) in enumerate(CHANGES):
            ours, other = mfu(key, "hexiscale", change), mfu(key, "galvatron", change)
            look = {"marker": MARKS[place], "markersize": 4, "linestyle": "none",
                    "color": style.COLORS[[0, 1, 5][place]]}
            if ours is not None:
                left.plot(ours, y + shift, label=row if y == 0 else None, **look)
            if ours is not None and other is not None:
                right.plot(ours / other, y + shift, **look)
        if row in published:
            left.plot(published[row], shift, linestyle="none", marker="D", markersize=6,
                      markerfacecolor="none", markeredgecolor="black", markeredgewidth=0.7,
                      label="Paper" if place == 0 else None)
    left.set_yticks(range(len(CHANGES)), [label for _, label in CHANGES])
    left.invert_yaxis()
    left.set_xlim(left=0)
    left.set_xlabel("MFU of HexiScale (%)")
    mean = published["heterogeneous settings, mean"]
    right.axvline(mean, color="black", linewidth=0.8, linestyle=(0, (3, 1.5)))
    right.text(mean, -0.6, "paper's mean", fontsize=6, ha="right", va="bottom")
    right.set_xlim(left=0)
    right.set_xlabel("HexiScale over Galvatron (x)")
    for axes in (left, right):
        axes.grid()
    style.legend_above(left, 0.5, 4, last=("Paper",))
    figure.subplots_adjust(wspace=0.12)
    style.save(figure, arguments.out, "sensitivity")


if __name__ == "__main__":
    main()
