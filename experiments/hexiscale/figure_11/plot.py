#!/usr/bin/python3
"""Breakdown of an iteration of Llama 30B in setting 3: HexiScale, Metis. Draws runs.csv; computes
sums only."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import bars  # noqa: E402
import style  # noqa: E402
from style import plt  # noqa: E402

BARS = [("hexiscale", "HexiScale,\nour search"), ("metis_printed", "Metis,\nTable 5"),
        ("metis", "Metis,\nour search")]


def communication(row):
    return sum(row[column] for column in
               ("tensor_parallel_s", "zero_s", "pipeline_s", "data_parallel_s"))


def main():
    arguments = style.arguments()
    cases = bars.by_case(style.finished(style.read(arguments.runs)))
    rows = {key: cases.get(f"30b_setting3_{key}") for key, _ in BARS}
    metis = rows["metis_printed"]
    ours = {}
    for plan, row in (("our search", rows["hexiscale"]),
                      ("Table 2", cases.get("30b_setting3_hexiscale_printed"))):
        both = row is not None and metis is not None
        name = f"HexiScale's plan of {plan}"
        ours[(f"{name} has less bubble time than Metis's of Table 5", "1 is yes")] = \
            int(row["bubble_s"] < metis["bubble_s"]) if both else None
        ours[(f"{name} communicates more than Metis's of Table 5", "1 is yes")] = \
            int(communication(row) > communication(metis)) if both else None
    style.compare(arguments, ours)
    style.use()
    figure, axes = plt.subplots(figsize=(style.COLUMN - 0.25, 1.4))
    bars.breakdown(axes, [(place, label, rows[key]) for place, (key, label) in enumerate(BARS)
                          if rows[key] is not None])
    style.legend_above(axes, 0.38, 3)
    style.save(figure, arguments.out, "figure_11")


if __name__ == "__main__":
    main()
