#!/usr/bin/python3
"""HexiScale without asymmetric tensor parallelism and without gradient accumulation. Draws
runs.csv; computes ratios and means only."""

import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import bars  # noqa: E402
import style  # noqa: E402
from style import plt  # noqa: E402

ROWS = {"7b": "7B,\nsetting 1", "13b": "13B,\nsetting 1", "30b": "30B,\nsetting 3"}
DEGREES = [1, 2, 4, 8]


def main():
    arguments = style.arguments()
    cases = bars.by_case(style.finished(style.read(arguments.runs)))
    full = {size: bars.mfu(cases.get(f"{size}_full")) for size in ROWS}
    symmetric = {size: max((bars.mfu(cases[key]) for t in DEGREES
                            if (key := f"{size}_symmetric_tp{t}") in cases), default=None)
                 for size in ROWS}
    single, rounds2, rounds4, half = ({size: bars.mfu(cases.get(f"{size}_{name}")) for size in ROWS}
                                      for name in ("no_accumulation", "rounds2", "rounds4",
                                                   "half_batch"))
    ours = {}
    for row, values in (("without asymmetric tensor parallelism", symmetric),
                        ("without gradient accumulation", single)):
        shares = [values[size] / full[size] for size in ROWS
                  if values[size] and full[size]]
        ours[(row, "least MFU over that of HexiScale")] = min(shares, default=None)
        ours[(row, "mean MFU over that of HexiScale")] = \
            statistics.mean(shares) if shares else None
    style.compare(arguments, ours)
    style.use()
    series = [("HexiScale", style.COLORS[0], "", list(full.values())),
              ("One TP degree", style.COLORS[1], "////", list(symmetric.values())),
              ("2 rounds a step", style.COLORS[4], "", list(rounds2.values())),
              ("4 rounds", style.COLORS[4], "\\\\\\\\", list(rounds4.values())),
              ("No accumulation", style.COLORS[2], "....", list(single.values())),
              ("Half of the batch", style.COLORS[3], "xxxx", list(half.values()))]
    figure, axes = plt.subplots(figsize=(style.PAGE, 1.8))
    bars.grouped(axes, list(ROWS.values()), series, digits=1)
    axes.set_ylabel("MFU (%)")
    style.legend_above(axes, 0.5, 6)
    style.save(figure, arguments.out, "figure_6")


if __name__ == "__main__":
    main()
