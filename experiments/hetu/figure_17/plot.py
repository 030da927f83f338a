#!/usr/bin/python3
"""Communication of each stage of C2 by kind: inside the stage, to the next and the previous stage,
and with the other pipeline. Adds up the simulated timeline; the kinds are those that orrery annotate
resolves."""

import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
import style  # noqa: E402
from style import plt  # noqa: E402

KINDS = [("tensor", "AG and RS in the stage"), ("stage", "SR or BSR between stages"),
         ("pipeline", "AR or SplitAR between pipelines")]


def stages_of(plan):
    """[(pipeline, ranks, first block, last block, TP degree)]"""
    found = []
    for number, pipeline in enumerate(plan["pipelines"]):
        for stage in pipeline["stages"]:
            group = stage["segments"][0]["groups"][0]
            ends = [int(end) for end in str(stage["segments"][0]["blocks"]).split("-")]
            devices = [int(end) for text in group["devices"] for end in str(text).split("-")]
            found.append((number, devices, ends[0], ends[-1], group["tensor_parallel"]))
    return found


def devices_of(text):
    """Of "0-3,16" or "0 -> 4"."""
    found = set()
    for part in text.replace(" -> ", ",").split(","):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


def kinds_of(annotated, devices):
    """What the communication operators resolve to on these devices: in the stage, to neighboring
    stages, and for the gradients, where an operator's phases are joined by a plus."""
    kinds = {"tensor": [], "stage": [], "pipeline": []}
    for one in annotated["communications"]:
        where = ("pipeline" if one["frequency"] == "step" else
                 "stage" if one["operator"] == "receive" else "tensor")
        phases = [step["kind"] for step in one["steps"] if step["kind"] != "identity" and
                  any(devices_of(group) & devices for group in step["groups"])]
        if phases and "+".join(phases) not in kinds[where]:
            kinds[where].append("+".join(phases))
    return [" ".join(sorted(kinds["tensor"])) or "-", " ".join(sorted(kinds["stage"])),
            *sorted(kinds["pipeline"], key=len)]


def main():
    arguments = style.arguments()
    with open(style.step_output(arguments, "c2"), encoding="utf-8") as file:
        stages = stages_of(json.load(file)["plans"][0]["plan"])
    with open(style.step_output(arguments, "c2_annotated"), encoding="utf-8") as file:
        annotated = json.load(file)
    path = os.path.join(os.path.dirname(style.step_output(arguments, "c2_timeline")),
                        "c2_timeline.json")
    with open(path, encoding="utf-8") as file:
        events = json.load(file)
    events = events["traceEvents"] if isinstance(events, dict) else events
    seconds = [dict.fromkeys((kind for kind, _ in KINDS), 0.0) for _ in stages]
    for event in events:
        if event.get("ph") != "X" or not 1 <= event["pid"] <= len(stages):
            continue
        own = seconds[event["pid"] - 1]  # processes are ranks, stage by stage
        own["tensor"] += event["args"]["inner_collectives_us"] / 1e6
        if event["cat"] == "pipeline" and event["name"].startswith("send"):
            own["stage"] += event["dur"] / 1e6
        if event["cat"] == "data_parallel":
            own["pipeline"] += event["dur"] / 1e6
    style.use()
    figure, axes = plt.subplots(figsize=(style.PAGE, 2.5))
    for place, (kind, label) in enumerate(KINDS):
        axes.bar([i + (place - 1) * 0.27 for i in range(len(stages))],
                 [1000 * own[kind] for own in seconds], 0.27, color=style.COLORS[place],
                 hatch=style.HATCHES[place], edgecolor="black", linewidth=0.5, label=label)
    labels = []
    for _, ranks, first, last, tensor in stages:
        devices = set(range(ranks[0], ranks[-1] + 1))
        shown = f"R{ranks[0]}-{ranks[-1]}" if len(devices) > 1 else f"R{ranks[0]}"
        labels.append("\n".join([f"{shown}, TP{tensor}", f"blocks {first}-{last}"] +
                                 kinds_of(annotated, devices)))
    axes.axvline(sum(1 for one in stages if one[0] == 0) - 0.5, color="#808080", linewidth=0.6)
    axes.set_xticks(range(len(stages)), labels, fontsize=6)
    axes.set_yscale("log")
    axes.set_ylim(1, 1000)
    axes.set_ylabel("Time in a step (ms)")
    axes.grid(axis="y")
    style.legend_above(axes, 0.5, 3)
    style.save(figure, arguments.out, "figure_17")
    built = [len(pipeline["stages"]) for pipeline in annotated["pipelines"]]
    style.compare(arguments, {("C2", "stages of pipeline 1"): built[0],
                              ("C2", "stages of pipeline 2"): built[1]})


if __name__ == "__main__":
    main()
