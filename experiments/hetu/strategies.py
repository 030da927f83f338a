"""What the tables of strategies share: reads the plan of each run, puts equal pipelines together,
and draws printed strategies against those that the planners choose. Counts and means, no model."""

import os
import re
import sys
from pathlib import Path

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import style  # noqa: E402

plt = style.plt
COLORS = {"H800": style.COLORS[4], "H20": style.COLORS[1]}


def interval(text):
    """First and last of "0-5" or "7"."""
    ends = str(text).split("-")
    return int(ends[0]), int(ends[-1])


def first_h20(cluster):
    """Device id of the first H20: H800 come first in every cluster of the paper."""
    found = re.search(r"(\d+)h800", str(cluster))
    return int(found.group(1)) if found else 16 if str(cluster) == "hetu" else 0


def stage(segments, last_block, h20):
    """(GPU type, tensor parallel, sequence parallel, decoder layers) of a stage."""
    group = segments[0]["groups"][0]
    device = interval(group["devices"][0])[0]
    layers = 0
    for segment in segments:
        first, last = interval(segment["blocks"])
        layers += last - first + 1 - (first == 0) - (last == last_block)
    return ("H20" if device >= h20 else "H800", group.get("tensor_parallel", 1),
            group.get("sequence_degree", 1), layers)


def strategy(arguments, row):
    """A run's plan: {"time": s, "pipelines": [[count, micro-batches, size, stages]], "recompute":
    whether full}, pipelines with most samples first."""
    path = os.path.join(os.path.dirname(arguments.runs), "runs", row["run"], "plan.yaml")
    with open(path, encoding="utf-8") as file:
        plan = yaml.safe_load(file)
    last = max(interval(segment["blocks"])[1] for pipeline in plan["pipelines"]
               for one in pipeline["stages"] for segment in one["segments"])
    found = []
    for pipeline in plan["pipelines"]:
        own = [pipeline["micro_batches"], pipeline["micro_batch_size"],
               [stage(one["segments"], last, first_h20(row["cluster"]))
                for one in pipeline["stages"]]]
        same = [other for other in found if other[1:] == own]
        if same:
            same[0][0] += 1
        else:
            found.append([1] + own)
    found.sort(key=lambda one: -one[1] * one[2])
    full = any(segment.get("recompute") == "full" for pipeline in plan["pipelines"]
               for one in pipeline["stages"] for segment in one["segments"])
    return {"time": row["iteration_time_s"], "pipelines": found, "recompute": full}


def read(arguments):
    """{configuration: {kind: strategy}} of the runs that have a plan, from case names
    "configuration / kind"."""
    found = {}
    for row in style.finished(style.read(arguments.runs)):
        name, kind = row["case"].rsplit(" / ", 1)
        found.setdefault(name, {})[kind] = strategy(arguments, row)
    return found


def mean(one, value):
    """Mean of value(pipeline) over the pipelines of a strategy."""
    total = sum(pipeline[0] for pipeline in one["pipelines"])
    return sum(pipeline[0] * value(pipeline) for pipeline in one["pipelines"]) / total


def shape(one):
    """The numbers of a strategy that the tables print."""
    types = {own[0] for pipeline in one["pipelines"] for own in pipeline[3]}
    numbers = {"stages of a pipeline": mean(one, lambda pipeline: len(pipeline[3])),
               "micro-batches of the largest pipeline": one["pipelines"][0][1],
               "micro-batch size": one["pipelines"][0][2],
               "layers of the largest stage": max(own[3] for pipeline in one["pipelines"]
                                                  for own in pipeline[3])}
    if len(types) > 1:
        numbers["layers of a pipeline on H800"] = mean(
            one, lambda pipeline: sum(own[3] for own in pipeline[3] if own[0] == "H800"))
    return numbers


def draw(axes, name, kinds, between):
    """Stages as boxes as wide as their layers; one line for equal pipelines. `between` a stage's
    layers and its tensor-parallel degree, where that is not the first stage's."""
    y, ticks, labels = 0, [], []
    total = sum(own[3] for own in next(iter(kinds.values()))["pipelines"][0][3])
    for kind, one in kinds.items():
        for number, (count, micro_batches, size, stages) in enumerate(one["pipelines"]):
            left, first = 0, stages[0][1]
            for gpu, tensor, _, layers in stages:
                axes.barh(y, layers, 0.8, left=left, color=COLORS[gpu], edgecolor="black",
                          linewidth=0.5, hatch="" if gpu == "H800" else "....", alpha=0.9)
                text = f"{layers}" + (f"{between}TP{tensor}" if tensor != first else "")
                axes.annotate(text, (left + layers / 2, y), ha="center", va="center",
                              fontsize=5.5, linespacing=0.85,
                              bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.1})
                left += layers
            text = f"{count} x {micro_batches} bs{size} TP{first}"
            axes.annotate(text + (f", {one['time']:.2f} s" if number == 0 else ""),
                          (total, y), xytext=(3, 0), textcoords="offset points", va="center",
                          fontsize=5.5)
            ticks.append(y)
            labels.append(kind if number == 0 else "")
            y += 1
        y += 0.25
    axes.set_yticks(ticks, labels, fontsize=6)
    axes.tick_params(axis="y", length=0)
    axes.invert_yaxis()
    axes.set_xlim(0, total)
    axes.set_xticks([])
    axes.spines["bottom"].set_visible(False)
    axes.spines["left"].set_visible(False)
    axes.set_title(name, fontsize=7, pad=2, loc="left")
    return y


def draw_all(arguments, found, columns, stem):
    style.use()
    names = list(found)
    lines = [sum(len(one["pipelines"]) for one in found[name].values()) for name in names]
    rows = [list(range(first, min(first + columns, len(names))))
            for first in range(0, len(names), columns)]
    heights = [max(lines[i] for i in row) + 0.8 for row in rows]
    figure, axes = plt.subplots(len(rows), columns, squeeze=False,
                                figsize=(style.PAGE, (0.26 if columns > 1 else 0.21) * sum(heights)
                                         + 0.1 * len(rows)),
                                gridspec_kw={"height_ratios": heights, "hspace": 0.35,
                                             "wspace": 0.85})
    for line, row in enumerate(rows):
        for column in range(columns):
            if column < len(row):
                draw(axes[line][column], names[row[column]], found[names[row[column]]],
                     "\n" if columns > 1 else " ")
            else:
                axes[line][column].axis("off")
    types = sorted({own[0] for kinds in found.values() for one in kinds.values()
                    for pipeline in one["pipelines"] for own in pipeline[3]}, reverse=True)
    figure.legend(handles=[plt.Rectangle((0, 0), 1, 1, facecolor=COLORS[gpu], linewidth=0.5,
                                         edgecolor="black", hatch="" if gpu == "H800" else "....",
                                         label=f"{gpu}, decoder layers of a stage")
                           for gpu in types], loc="lower center",
                  bbox_to_anchor=(0.5, 0.88 + 0.16 / figure.get_figheight()), ncols=2)
    style.save(figure, arguments.out, stem)


def compare(arguments, found, kind):
    """Numbers of `kind`, and the printed ones."""
    style.compare(arguments, {(row["row"], row["quantity"]):
                              shape(found[row["row"]][kind])[row["quantity"]]
                              for row in style.read(arguments.published)})


def degrees(one):
    """Numbers of a strategy with equal pipelines, as Tables 4 and 6 print them."""
    _, tensor, sequence, _ = one["pipelines"][0][3][0]
    return {"data-parallel degree": sum(pipeline[0] for pipeline in one["pipelines"]),
            "sequence-parallel degree": sequence, "tensor-parallel degree": tensor,
            "pipeline stages": len(one["pipelines"][0][3]),
            "micro-batch size": max(pipeline[2] for pipeline in one["pipelines"])}


def code(one):
    """DP2TP4PP4, bs2."""
    own = degrees(one)
    parts = [("DP", "data-parallel degree"), ("SP", "sequence-parallel degree"),
             ("TP", "tensor-parallel degree"), ("PP", "pipeline stages")]
    text = "".join(f"{short}{own[name]}" for short, name in parts if own[name] > 1)
    return text + ("AC" if one["recompute"] else "") + f", bs{own['micro-batch size']}"


def draw_degrees(arguments, found, stem):
    """Step times of printed and found strategies of DeepSpeed and Megatron, with their codes."""
    style.use()
    names = list(dict.fromkeys(key.split(" / ")[0] for key in found))
    figure, axes = plt.subplots(1, 2, figsize=(style.PAGE, 0.42 * len(names) + 0.4), sharey=True)
    for side, system in enumerate(("DeepSpeed", "Megatron")):
        longest = 0
        for y, name in enumerate(names):
            for place, kind in enumerate(("printed", "searched")):
                one = found[f"{name} / {system}"].get(kind)
                if not one:
                    continue
                at = y + (place - 0.5) * 0.4
                axes[side].barh(at, one["time"], 0.4, color=style.COLORS[place * 2],
                                hatch="" if place == 0 else "....", edgecolor="black",
                                linewidth=0.5,
                                label=("Printed", "Found by our planner")[place]
                                if y == 0 else None)
                axes[side].annotate(f"{one['time']:.1f} s, {code(one)}", (one["time"], at),
                                    xytext=(2, 0), textcoords="offset points", va="center",
                                    fontsize=5.5)
                longest = max(longest, one["time"])
        axes[side].set_xlim(0, 1.55 * longest)
        axes[side].set_title(system)
        axes[side].set_xlabel("Step time (s)")
        axes[side].grid(axis="x")
    axes[0].set_yticks(range(len(names)), names)
    axes[0].invert_yaxis()
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=2,
                  bbox_to_anchor=(0.5, 0.88 + 0.2 / figure.get_figheight()))
    figure.subplots_adjust(wspace=0.05)
    style.save(figure, arguments.out, stem)


def compare_degrees(arguments, found):
    ours = {}
    for row in style.read(arguments.published):
        one = found[row["row"]].get("searched")
        ours[(row["row"], row["quantity"])] = degrees(one)[row["quantity"]] if one else None
    style.compare(arguments, ours)
