#!/usr/bin/python3
"""Utilization of HexiScale in all settings: our simulator against the measured values, the public
code's model against the simulated ones. Draws runs.csv; computes no model."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import bars  # noqa: E402
import style  # noqa: E402
from style import plt  # noqa: E402

WORDS = {"ethernet": "homogeneous, Ethernet", "rdma": "homogeneous, RDMA",
         "setting1": "setting 1", "setting2": "setting 2", "setting3": "setting 3"}
SHORT = {"ethernet": "Ethernet", "rdma": "RDMA", "setting1": "set. 1", "setting2": "set. 2",
         "setting3": "set. 3"}
ROWS = [(size, setting) for size in ("7b", "13b")
        for setting in ("ethernet", "rdma", "setting1", "setting2")] + \
       [("30b", "ethernet"), ("30b", "rdma"), ("30b", "setting3")]


def main():
    arguments = style.arguments()
    cases = bars.by_case(style.finished(style.read(arguments.runs)))
    published = {(row["row"], row["quantity"]): row["value"]
                 for row in style.read(arguments.published) if isinstance(row["value"], float)}
    names = [f"{size.upper()}, {WORDS[setting]}" for size, setting in ROWS]
    values = {kind: [bars.mfu(cases.get(f"{size}_{setting}_{kind}")) for size, setting in ROWS]
              for kind in ("real", "simulation")}
    style.compare(arguments, {(name, f"MFU ({kind})"): value for kind in values
                              for name, value in zip(names, values[kind])})
    style.use()
    marks = {(g, s): published[(name, f"MFU ({kind})")]
             for s, kind in enumerate(("real", "simulation")) for g, name in enumerate(names)
             if (name, f"MFU ({kind})") in published}
    series = [("Our simulator (paper: real)", style.COLORS[0], "", values["real"]),
              ("Public code (paper: simulation)", style.COLORS[1], "////", values["simulation"])]
    figure, axes = plt.subplots(figsize=(style.PAGE, 1.9))
    bars.grouped(axes, [f"{size.upper()}\n{SHORT[setting]}" for size, setting in ROWS], series,
                 marks)
    axes.set_ylabel("MFU (%)")
    style.legend_above(axes, 0.5, 3, last=("Paper",))
    style.save(figure, arguments.out, "table_3")


if __name__ == "__main__":
    main()
