"""What the figures of Metis share: names and looks of the systems, rates by case, layers on each GPU
type of a plan that a run kept. Ratios and means only; computes no model."""

import os
import sys
from pathlib import Path

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import style  # noqa: E402

SYSTEMS = {"amp": ("AMP", 0), "alpa": ("Alpa", 1), "metis": ("Metis", 2)}


def look(planner):
    """Name, and color, hatch and edge of a bar."""
    name, place = SYSTEMS[planner]
    return name, {"color": style.COLORS[place], "hatch": style.HATCHES[place],
                  "edgecolor": "black", "linewidth": 0.5}


def by_case(rows):
    """{case: {planner: row}} in the order of the file, without runs that found no plan."""
    found = {}
    for row in rows:
        cell = found.setdefault(row["case"], {})
        if row["status"] == "ok":
            cell[row["planner"]] = row
    return found


def ratio(cell, over, of="metis"):
    """Throughput of `of` over that of `over` in one case; None without both."""
    if of not in cell or over not in cell:
        return None
    return cell[of]["tokens_per_s"] / cell[over]["tokens_per_s"]


def mean(values):
    """Mean of the numbers among `values`; None without any."""
    values = [value for value in values if value is not None]
    return sum(values) / len(values) if values else None


def plan_of(runs_csv, row):
    path = os.path.join(os.path.dirname(runs_csv), "runs", row["run"], "plan.yaml")
    with open(path, encoding="utf-8") as file:
        return yaml.safe_load(file)


def ends(text):
    """First and last number of '3-7' or '3'."""
    parts = str(text).split("-")
    return int(parts[0]), int(parts[-1])


def share_of_layers(plan, first, last):
    """Percent of the layers (blocks without the first, embedding, and the last, head) whose stage
    has only devices from `first` to `last`."""
    stages = []
    for stage in plan["pipelines"][0]["stages"]:
        for segment in stage["segments"]:
            devices = [ends(cell) for group in segment["groups"] for cell in group["devices"]]
            stages.append((ends(segment["blocks"]),
                           all(first <= a and b <= last for a, b in devices)))
    head = max(blocks[1] for blocks, _ in stages)
    count = {True: 0, False: 0}
    for (low, high), inside in stages:
        count[inside] += min(high, head - 1) - max(low, 1) + 1
    return 100 * count[True] / (count[True] + count[False])


def layers_per_stage(plan):
    """Mean layers (blocks without embedding and head) of the stages of the first pipeline."""
    stages = plan["pipelines"][0]["stages"]
    return (max(ends(segment["blocks"])[1] for stage in stages for segment in stage["segments"])
            - 1) / len(stages)
