#!/usr/bin/python3
"""Utilization of each system in each setting, Llama-2 7B and 13B, with the published numbers of
HexiScale. Draws runs.csv; computes ratios and means only."""

import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import bars  # noqa: E402
import style  # noqa: E402
from style import plt  # noqa: E402

SYSTEMS = ["megatron", "galvatron", "fsdp", "hexiscale"]
SETTINGS = ["ethernet", "rdma", "setting1", "setting2"]
WORDS = {"ethernet": "homogeneous, Ethernet", "rdma": "homogeneous, RDMA",
         "setting1": "setting 1", "setting2": "setting 2"}
HETEROGENEOUS = [("7b", "setting1"), ("7b", "setting2"), ("13b", "setting1"),
                 ("13b", "setting2"), ("30b", "setting3")]


def values(cases):
    """Ours by (row, quantity) of published.csv."""
    def mfu(size, setting, system):
        return bars.mfu(cases.get(f"{size}_{setting}_{system}"))
    ours = {(f"{size.upper()}, {WORDS[setting]}", "MFU of HexiScale"):
            mfu(size, setting, "hexiscale") for size in ("7b", "13b") for setting in SETTINGS}
    ratios, gaps = [], []
    for size, setting in HETEROGENEOUS:
        hexiscale, galvatron = mfu(size, setting, "hexiscale"), mfu(size, setting, "galvatron")
        others = [value for system in ("megatron", "galvatron", "fsdp")
                  if (value := mfu(size, "ethernet", system))]
        if hexiscale and galvatron:
            ratios.append(hexiscale / galvatron)
        if hexiscale and others:
            gaps.append(max(others) - hexiscale)
    row = "heterogeneous settings, Figures 4 and 5"
    gap = "gap of HexiScale to the best other system on homogeneous Ethernet"
    ours[(row, "HexiScale over Galvatron, largest")] = max(ratios, default=None)
    ours[(row, "HexiScale over Galvatron, mean")] = statistics.mean(ratios) if ratios else None
    ours[(row, f"smallest {gap}")] = min(gaps, default=None)
    ours[(row, f"mean {gap}")] = statistics.mean(gaps) if gaps else None
    return ours


def main():
    arguments = style.arguments()
    cases = bars.by_case(style.finished(style.read(arguments.runs)))
    published = {row["row"]: row["value"] for row in style.read(arguments.published)
                 if isinstance(row["value"], float)}
    style.compare(arguments, values(cases))
    style.use()
    figure, panels = plt.subplots(2, 1, figsize=(style.COLUMN, 3.5), sharex=True, sharey=True)
    for axes, size in zip(panels, ("7b", "13b")):
        series, marks = [], {}
        for s, system in enumerate(SYSTEMS):
            label, color, hatch = bars.SYSTEMS[system]
            series.append((label, color, hatch, [
                Ellipsis if system == "fsdp" and setting.startswith("setting")
                else bars.mfu(cases.get(f"{size}_{setting}_{system}")) for setting in SETTINGS]))
        for g, setting in enumerate(SETTINGS):
            value = published.get(f"{size.upper()}, {WORDS[setting]}")
            if value:
                marks[(g, SYSTEMS.index("hexiscale"))] = value
        bars.grouped(axes, [bars.SETTINGS[s] for s in SETTINGS], series, marks)
        axes.set_ylabel("MFU (%)")
        axes.text(0.99, 0.97, bars.MODELS[size], transform=axes.transAxes, ha="right", va="top",
                  fontsize=7)
    style.legend_above(panels[0], 0.46, 3, last=("Paper",))
    figure.subplots_adjust(hspace=0.12)
    style.save(figure, arguments.out, "figure_4")


if __name__ == "__main__":
    main()
