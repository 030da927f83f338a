#!/usr/bin/python3
"""Breakdown of an iteration in the heterogeneous settings, HexiScale and Galvatron. Draws runs.csv;
computes sums only."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import bars  # noqa: E402
import style  # noqa: E402
from style import plt  # noqa: E402

SETTINGS = [("7b", "setting1"), ("7b", "setting2"), ("13b", "setting1"), ("13b", "setting2"),
            ("30b", "setting3")]


def communication(row):
    return sum(row[column] for column in
               ("tensor_parallel_s", "zero_s", "pipeline_s", "data_parallel_s"))


def main():
    arguments = style.arguments()
    cases = bars.by_case(style.finished(style.read(arguments.runs)))
    pairs = [(cases.get(f"{size}_{setting}_hexiscale"), cases.get(f"{size}_{setting}_galvatron"))
             for size, setting in SETTINGS]
    known = [(ours, other) for ours, other in pairs if ours is not None and other is not None]
    style.compare(arguments, {
        ("all five", "settings in which HexiScale has less bubble time than Galvatron"):
            sum(ours["bubble_s"] < other["bubble_s"] for ours, other in known),
        ("all five", "settings in which HexiScale communicates less than Galvatron"):
            sum(communication(ours) < communication(other) for ours, other in known),
    })
    style.use()
    stack, place = [], 0.0
    for (size, setting), pair in zip(SETTINGS, pairs):
        for system, row in zip(("HexiScale", "Galvatron"), pair):
            if row is not None:
                name = f"{size.upper()}, {bars.SETTINGS[setting].lower()}, {system}"
                stack.append((place, name, row))
            place += 1
        place += 0.4
    figure, axes = plt.subplots(figsize=(style.COLUMN - 0.75, 2.7))
    bars.breakdown(axes, stack)
    style.legend_above(axes, 0.22, 3)
    style.save(figure, arguments.out, "figure_7")


if __name__ == "__main__":
    main()
