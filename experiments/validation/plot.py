#!/usr/bin/python3
"""The figure that docs/accuracy.md opens with: predicted over measured step times of all sets
against the number of GPUs, from the results on disk, with the points of the best other simulator
where others' predictions of the same rows are known (Sailor's measurements).

    experiments/validation/plot.py [--results results] [--out docs/images]
"""

import argparse
import csv
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "experiments"), str(ROOT / "experiments" / "validation")]
import style  # noqa: E402
from today import plot  # noqa: E402
from matplotlib import pyplot as plt  # noqa: E402

SETS = {"mlperf": "MLPerf", "dgxc": "DGX Cloud", "megatron_bridge": "Megatron-Bridge",
        "megatron_lm": "Megatron-LM, H100", "bigscience": "BLOOM", "llm_foundry": "llm-foundry",
        "torchtitan": "torchtitan", "nemo": "NeMo, long sequences", "megatron": "Megatron, A100",
        "vtrain": "vTrain"}
SAILOR, RIVAL = "Sailor", "best rival on Sailor's rows"
MEASURED = ROOT / "experiments/validation/sailor/measurements/measured.json"
SECOND_RUN = "the earlier run"  # no rival: the same plans, measured twice


def rows_of(folder, name):
    """Measured rows of a set. Tables of A100 studies have degrees in place of GPUs."""
    with open(folder / "breakdown.csv", newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file)
                if row["error"] and row["use"] != "unscored"]
    for row in rows:
        row["set"] = SETS[name]
        if "gpus" not in row:
            row["gpus"] = int(row["tp"]) * int(row["pp"]) * int(row["dp"])
    return rows


def lines_of(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def best_rivals(folder):
    """By set: the simulator with the smallest mean error of all that predict our rows of it."""
    rows = {line["set"]: line["rows"] for line in lines_of(folder / "errors.csv")
            if line["metric"] == "iteration_s"}
    found = {}
    for line in lines_of(folder / "other_simulators.csv"):
        name, rival = line["set"].rsplit(", ", 1)
        ours = rows.get(name, rows.get(name + ", leave one out"))
        if line["metric"] == "iteration_s" and rival != SECOND_RUN and line["rows"] == ours:
            found.setdefault(name, []).append((float(line["mean"]), rival))
    return {name: min(rivals)[1] for name, rivals in found.items()}


def rows_of_sailor(folder):
    """Sailor's rows as breakdown.csv has those of other sets, and the best rival's."""
    plans = {plan["id"]: plan for plan in json.loads(MEASURED.read_text(encoding="utf-8"))["plans"]}
    rivals = best_rivals(folder)
    rows = []
    for line in lines_of(folder / "predictions.csv"):
        if line["scored"] != "true" or not line["iteration_s_error"]:
            continue
        plan = plans[line["id"]]
        gpus = sum(replica["tp"] * replica["count"] for pipeline in plan["pipelines"]
                   for stage in pipeline["stages"] for replica in stage["replicas"])
        rows.append({"set": SAILOR, "gpus": gpus, "error": line["iteration_s_error"],
                     "use": line["iteration_s_use"]})
        other = plan.get("other_simulators", {}).get(rivals.get(line["set"]))
        if other is not None:
            error = other["iteration_s"] / float(line["iteration_s_measured"]) - 1
            rows.append({"set": RIVAL, "gpus": gpus, "error": error, "use": "scored"})
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", default=str(ROOT / "results"))
    parser.add_argument("--out", default=str(ROOT / "docs" / "images"))
    options = parser.parse_args()
    folder = Path(options.results) / "validation"
    rows = [row for name in SETS if (folder / name / "breakdown.csv").exists()
            for row in rows_of(folder / name, name)]
    if (folder / "sailor" / "predictions.csv").exists():
        rows += sorted(rows_of_sailor(folder / "sailor"), key=lambda row: row["set"] == RIVAL)
    if not rows:
        sys.exit("no results: tools/orrery run experiments/validation/mlperf")
    style.use()
    figure, axes = plt.subplots(figsize=(style.PAGE, 2.9))
    looks = plot.looks_of(rows)
    if RIVAL in looks:
        looks[SAILOR], looks[RIVAL] = ("#000000", "*"), ("#707070", "x")
    plot.draw(axes, rows, looks)
    plot.legend(axes, looks, columns=4)
    style.save(figure, options.out, "accuracy")
    (Path(options.out) / "accuracy.pdf").unlink()


if __name__ == "__main__":
    main()
