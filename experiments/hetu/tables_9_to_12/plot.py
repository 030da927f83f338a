#!/usr/bin/python3
"""Step time of the systems with the printed strategies and with those that a search finds, by
lengths and context (mean, 10 % to 90 % of the steps). Draws steps.csv and reads the searched
strategies that the runs kept; computes no model."""

import sys
from pathlib import Path

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
import style  # noqa: E402
from style import plt  # noqa: E402

COLORS = {"DeepSpeed": 0, "Megatron": 1, "HotSPa": 2, "Hetu-B": 4}
SYSTEMS = list(COLORS)
# Rows of Table 9, which does not tell the corpora apart; windows of packing hardly differ.
PACKED = {"32K": "CommonCrawl-like 32K", "16K": "CommonCrawl-like 16K"}


def quantile(values, share):
    return sorted(values)[int(share * (len(values) - 1) + 0.5)]


def searched(runs_csv):
    """{(case, system): pipelines of the longest strategy} of the runs that searched."""
    folder = Path(runs_csv).parent
    found = {}
    for row in style.read(folder / "runs.csv"):
        path = folder / "runs" / row["run"] / "strategies.yaml"
        if path.exists():
            strategies = yaml.safe_load(path.read_text(encoding="utf-8"))["strategies"]
            found[(row["case"], row["system"].split(",")[0])] = strategies[-1]["pipelines"]
    return found


def degrees(pipelines):
    """The degrees of one kind of pipeline under the names of Table 9."""
    kind = pipelines[0]
    return {"data-parallel degree": kind["count"], "tensor-parallel degree": kind["tensor_parallel"],
            "sequence-parallel degree": kind["sequence_degree"],
            "context-parallel degree": kind["sequence_degree"], "pipeline stages": kind["stages"]}


def main():
    arguments = style.arguments()
    found = {}
    for row in style.read(arguments.runs):
        system, kind = row["system"].split(", ")
        found.setdefault((row["case"], system, "printed" if "Table" in kind else kind),
                         []).append(row)
    cases = list(dict.fromkeys(key[0] for key in found))
    style.use()
    figure, axes = plt.subplots(figsize=(style.PAGE, 2.1))
    for x, case in enumerate(cases):
        for place, (system, kind) in enumerate((system, kind) for system in SYSTEMS
                                               for kind in ("printed", "searched")):
            times = [row["step_s"] for row in found[(case, system, kind)]]
            at, mean = x + (place - 3.5) * 0.11, sum(times) / len(times)
            axes.bar(at, mean, 0.11, color=style.COLORS[COLORS[system]],
                     hatch="" if kind == "printed" else "////", edgecolor="black", linewidth=0.5,
                     label=f"{system}, {kind}" if x == 0 else None)
            low, high = quantile(times, 0.1), quantile(times, 0.9)
            axes.errorbar(at, mean, yerr=[[max(mean - low, 0)], [max(high - mean, 0)]],
                          color="black", linewidth=0.7, capsize=1.5)
            axes.annotate(f"{mean:.1f}", (at, high), xytext=(0, 2), rotation=90, ha="center",
                          textcoords="offset points", va="bottom", fontsize=5.5)
    axes.set_xticks(range(len(cases)), cases)
    axes.set_ylabel("Step time (s)")
    axes.set_ylim(0, 1.15 * axes.get_ylim()[1])
    axes.grid(axis="y")
    style.legend_above(axes, 0.5, 4)
    style.save(figure, arguments.out, "tables_9_to_12")
    ours = {}
    for case in cases:
        hotspa, hetu = (found[(case, system, "searched")] for system in ("HotSPa", "Hetu-B"))
        ours[(f"{case}, HotSPa", "strategies")] = max(row["phases"] for row in hotspa)
        ours[(f"{case}, Hetu-B", "strategies")] = len({row["strategy"] for row in hetu})
    pipelines = searched(arguments.runs)
    for row in style.read(arguments.published):
        context, _, system = str(row["row"]).partition(", ")
        if context in PACKED:
            ours[(row["row"], row["quantity"])] = degrees(
                pipelines[(PACKED[context], system)])[row["quantity"]]
    style.compare(arguments, ours)


if __name__ == "__main__":
    main()
