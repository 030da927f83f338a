#!/usr/bin/python3
"""Step time of HotSPa and Hetu-B with the printed strategies and with those that a search finds, by
lengths and context (mean, 10 % to 90 % of the steps). Draws steps.csv; computes no model."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
import style  # noqa: E402
from style import plt  # noqa: E402

SYSTEMS = ["HotSPa", "Hetu-B"]


def quantile(values, share):
    return sorted(values)[int(share * (len(values) - 1) + 0.5)]


def main():
    arguments = style.arguments()
    found = {}
    for row in style.read(arguments.runs):
        system, kind = row["system"].split(", ")
        found.setdefault((row["case"], system, "printed" if "Table" in kind else kind),
                         []).append(row)
    cases = list(dict.fromkeys(key[0] for key in found))
    style.use()
    figure, axes = plt.subplots(figsize=(style.COLUMN, 1.9))
    for x, case in enumerate(cases):
        for place, (system, kind) in enumerate((system, kind) for system in SYSTEMS
                                               for kind in ("printed", "searched")):
            times = [row["step_s"] for row in found[(case, system, kind)]]
            at, mean = x + (place - 1.5) * 0.2, sum(times) / len(times)
            axes.bar(at, mean, 0.2, color=style.COLOURS[2 + 2 * SYSTEMS.index(system)],
                     hatch="" if kind == "printed" else "////", edgecolor="black", linewidth=0.5,
                     label=f"{system}, {kind}" if x == 0 else None)
            low, high = quantile(times, 0.1), quantile(times, 0.9)
            axes.errorbar(at, mean, yerr=[[max(mean - low, 0)], [max(high - mean, 0)]],
                          color="black", linewidth=0.7, capsize=1.5)
            axes.annotate(f"{mean:.1f}", (at, high), xytext=(0, 2), rotation=90, ha="center",
                          textcoords="offset points", va="bottom", fontsize=5.5)
    labels = [case.replace("CommonCrawl", "Common-\nCrawl").replace(" ", "\n") for case in cases]
    axes.set_xticks(range(len(cases)), labels, fontsize=6)
    axes.set_ylabel("Step time (s)")
    axes.set_ylim(0, 1.15 * axes.get_ylim()[1])
    axes.grid(axis="y")
    style.legend_above(axes, 0.47, 2)
    style.save(figure, arguments.out, "tables_9_to_12")
    ours = {}
    for case in cases:
        hotspa, hetu = (found[(case, system, "searched")] for system in SYSTEMS)
        ours[(f"{case}, HotSPa", "strategies")] = max(row["phases"] for row in hotspa)
        ours[(f"{case}, Hetu-B", "strategies")] = len({row["strategy"] for row in hetu})
    style.compare(arguments, ours)


if __name__ == "__main__":
    main()
