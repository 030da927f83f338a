#!/usr/bin/python3
"""Utilization of each system in each setting, Llama 30B, with the published numbers of HexiScale.
Draws runs.csv; computes no model."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import bars  # noqa: E402
import style  # noqa: E402
from style import plt  # noqa: E402

SYSTEMS = ["megatron", "galvatron", "fsdp", "hexiscale"]
SETTINGS = {"ethernet": "30B, homogeneous, Ethernet", "rdma": "30B, homogeneous, RDMA",
            "setting3": "30B, setting 3"}


def main():
    arguments = style.arguments()
    cases = bars.by_case(style.finished(style.read(arguments.runs)))
    published = {row["row"]: row["value"] for row in style.read(arguments.published)
                 if row["quantity"] == "MFU of HexiScale" and isinstance(row["value"], float)}
    ours = {(row, "MFU of HexiScale"): bars.mfu(cases.get(f"30b_{setting}_hexiscale"))
            for setting, row in SETTINGS.items()}
    megatron = cases.get("30b_setting3_megatron")
    ours[("30B, setting 3", "settings in which Megatron fits in memory")] = \
        1 if megatron and style.is_true(megatron["fits"]) else 0
    style.compare(arguments, ours)
    style.use()
    series, marks = [], {}
    for system in SYSTEMS:
        label, color, hatch = bars.SYSTEMS[system]
        series.append((label, color, hatch, [
            Ellipsis if system == "fsdp" and setting == "setting3"
            else bars.mfu(cases.get(f"30b_{setting}_{system}")) for setting in SETTINGS]))
    for g, row in enumerate(SETTINGS.values()):
        if row in published:
            marks[(g, SYSTEMS.index("hexiscale"))] = published[row]
    figure, axes = plt.subplots(figsize=(style.COLUMN, 1.9))
    bars.grouped(axes, [bars.SETTINGS[s] for s in SETTINGS], series, marks)
    axes.set_ylabel("MFU (%)")
    style.legend_above(axes, 0.46, 3, last=("Paper",))
    style.save(figure, arguments.out, "figure_5")


if __name__ == "__main__":
    main()
