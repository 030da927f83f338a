"""Pictures of plans for setting 3: a row for each pipeline, a box for each stage."""

import os
import re
import sys
from pathlib import Path

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import style  # noqa: E402

TYPES = [(0, 16, "RTX 3090", "#56B4E9", "...."), (16, 48, "RTX 4090", "#E69F00", "////"),
         (48, 56, "A800", "#FFFFFF", "")]  # devices of hexiscale_setting3


def numbers(listed):
    """Device numbers of a list like [0-1, 5]."""
    result = []
    for item in listed:
        first, _, last = str(item).partition("-")
        result += range(int(first), int(last or first) + 1)
    return result


def stages(plan):
    """[pipeline][stage] = (type, devices, tensor-parallel degree, layers); the first and the last of
    62 blocks are embedding and head."""
    pipelines = []
    for pipeline in plan["pipelines"]:
        pipelines.append([])
        for stage in pipeline["stages"]:
            segment = stage["segments"][0]
            first, _, last = str(segment["blocks"]).partition("-")
            first, last = int(first), int(last or first)
            layers = last - first + 1 - (first == 0) - (last == 61)
            groups = segment["groups"]
            devices = [d for group in groups for d in numbers(group["devices"])]
            kind = next(k for k in TYPES if k[0] <= devices[0] < k[1])
            pipelines[-1].append((kind, len(devices), groups[0].get("tensor_parallel", 1), layers))
    return pipelines


def of_run(arguments, row):
    path = os.path.join(os.path.dirname(arguments.runs), "runs", row["run"], "plan.yaml")
    with open(path, encoding="utf-8") as file:
        return stages(yaml.safe_load(file))


def draw(axes, pipelines, title, row):
    """Widths are layers; a box says how many GPUs, over their tensor-parallel degree, its layers. The
    title says of `row`, the run of the plan, what does not fit in memory."""
    seen = set()
    for y, pipeline in enumerate(pipelines):
        left = 0
        for (_, _, name, color, hatch), devices, degree, layers in pipeline:
            axes.barh(y, layers, 0.86, left=left, color=color, hatch=hatch, edgecolor="black",
                      linewidth=0.5, label=name if name not in seen else None)
            seen.add(name)
            axes.text(left + layers / 2, y, f"{devices}\n{degree}\n{layers}", ha="center",
                      va="center", fontsize=5.5, linespacing=0.95,
                      bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.1, "alpha": 0.9})
            left += layers
    axes.set_yticks(range(len(pipelines)), [f"Pipeline {y}" for y in range(len(pipelines))],
                    fontsize=6)
    axes.invert_yaxis()
    axes.set_xlim(0, 60)
    axes.set_title(title, loc="left", fontsize=7, pad=2)
    if not style.is_true(row["fits"]):
        found = re.search(r"needs ([\d.]+ GiB), (\w+)", row["memory_verdict"])
        axes.set_title(f"over memory: {found.group(1)} on {found.group(2).replace('RTX', 'RTX ')}"
                       if found else
                       f"over memory: {row['memory_verdict']}", loc="right", fontsize=6, pad=2,
                       color="#B00000")


def finish(figure, panels):
    """Axis label under the last panel and one legend for all."""
    panels[-1].set_xlabel("Layers (box: GPUs, tensor-parallel degree, layers)")
    found = {}
    for axes in panels:
        for handle, label in zip(*axes.get_legend_handles_labels()):
            found.setdefault(label, handle)
    figure.legend(found.values(), found.keys(), loc="lower center", bbox_to_anchor=(0.5, 0.92),
                  ncols=3, handlelength=1.6, fontsize=style.plt.rcParams["legend.fontsize"])
