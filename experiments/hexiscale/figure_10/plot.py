#!/usr/bin/python3
"""Utilization of Llama 30B in setting 3: plans of our searches and printed plans of the same
systems. Draws runs.csv; computes ratios only."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import bars  # noqa: E402
import style  # noqa: E402
from style import plt  # noqa: E402

SYSTEMS = ["hexiscale", "metis", "galvatron"]
KINDS = ("", "_alone", "_printed")  # Of cases: judged search, search alone, plan of the paper.


def main():
    arguments = style.arguments()
    cases = bars.by_case(style.finished(style.read(arguments.runs)))

    def mfu(system, kind=""):
        return bars.mfu(cases.get(f"30b_setting3_{system}{kind}"))

    def ratio(of, over):
        return mfu("hexiscale", of) / mfu("metis", over) \
            if mfu("hexiscale", of) and mfu("metis", over) else None
    style.compare(arguments, {
        ("Metis, plan of Table 5", "MFU"): mfu("metis", "_printed"),
        ("HexiScale's plan of our search over Metis's plan of Table 5", "ratio"):
            ratio("", "_printed"),
        ("HexiScale's plan of Table 2 over Metis's plan of Table 5", "ratio"):
            ratio("_printed", "_printed"),
        ("Metis, plan of our search", "MFU"): mfu("metis"),
        ("HexiScale's over Metis's plan, both of our search", "ratio"): ratio("", ""),
        ("HexiScale", "MFU"): mfu("hexiscale"),
    })
    published = {row["row"]: row["value"] for row in style.read(arguments.published)}
    style.use()
    series = [("Our search, 8 plans judged", style.COLORS[0], "", [mfu(s) for s in SYSTEMS]),
              ("Our search, its own choice", style.COLORS[2], "....",
               [mfu(s, "_alone") for s in SYSTEMS]),
              ("Printed plan", style.COLORS[1], "////", [mfu(s, "_printed") for s in SYSTEMS])]
    over = {(group, place) for group, system in enumerate(SYSTEMS)
            for place, kind in enumerate(KINDS)
            if not bars.fits(cases.get(f"30b_setting3_{system}{kind}"))}
    figure, axes = plt.subplots(figsize=(style.COLUMN, 1.8))
    bars.grouped(axes, [bars.SYSTEMS[s][0] for s in SYSTEMS], series,
                 {(1, 2): published["Metis, plan of Table 5"]}, digits=1, over=over)
    axes.set_ylabel("MFU (%)")
    style.legend_above(axes, 0.46, 2, last=("Paper",))
    style.save(figure, arguments.out, "figure_10")


if __name__ == "__main__":
    main()
