#!/usr/bin/python3
"""Writes docs/accuracy.md: how far predictions are off, from the results that lie on disk.

    tools/accuracy.py [--results results] [--out docs/accuracy.md] [--check]

Reads results/twin/*/errors.csv and results/validation/*/errors.csv (columns experiment, set, metric,
rows, mean, median, max, bias, target, published_best; errors are relative), parameters.csv and
phases.csv beside them, and notes.md, which says in words what is measured, what is assumed and
what is known to be wrong. Computes nothing. An experiment without results is named as missing.
--check: exit code 1 if the file on disk is not what would be written."""

import argparse
import csv
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# (title, folder below results, notes in the tree, command)
EXPERIMENTS = [
    ("Twin: our own executor on emulated nodes", "twin/netlab", "experiments/twin/netlab/notes.md",
     "tools/orrery twin experiments/twin/netlab/manifest.yaml"),
    ("Sailor's measurements", "validation/sailor", "experiments/validation/sailor/notes.md",
     "tools/orrery run experiments/validation/sailor"),
    ("vTrain's measurements", "validation/vtrain", "experiments/validation/vtrain/notes.md",
     "tools/orrery run experiments/validation/vtrain"),
    ("Megatron's measurements", "validation/megatron", "experiments/validation/megatron/notes.md",
     "tools/orrery run experiments/validation/megatron"),
]
INTRODUCTION = """\
# How far predictions are off

Written by `tools/accuracy.py` from the results of the experiments below; do not edit it. Errors are
predicted / measured - 1; *mean*, *median* and *max* are of its absolute value, *bias* is its mean
with sign: negative where predictions are too short. A target that is missed stays in the table.
"""


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", default=str(ROOT / "results"), help="folder of all results")
    parser.add_argument("--out", default=str(ROOT / "docs" / "accuracy.md"))
    parser.add_argument("--check", action="store_true", help="write nothing; 1 if it differs")
    return parser.parse_args()


def read(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def percent(text, sign=False):
    if text in ("", None):
        return ""
    value = 100 * float(text)
    return f"{value:+.1f} %" if sign else f"{value:.1f} %"


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def verdict(row):
    if not row.get("target") or not row.get("mean"):
        return ""
    return "met" if float(row["mean"]) <= float(row["target"]) else "**missed**"


def errors(folder):
    rows = [row for row in read(folder / "errors.csv") if row["rows"] not in ("", "0")]
    head = ["set", "metric", "rows", "mean", "median", "max", "bias", "target", "",
            "best published"]
    return table(head, [[row["set"], row["metric"].replace("_", " "), row["rows"],
                         percent(row["mean"]), percent(row["median"]), percent(row["max"]),
                         percent(row["bias"], sign=True), percent(row["target"]), verdict(row),
                         percent(row["published_best"])] for row in rows])


def parameters(folder):
    path = folder / "parameters.csv"
    if not path.exists():
        return ""
    rows = read(path)
    if not rows:
        return "\nNo parameter was fitted.\n"
    cells = []
    for row in rows:
        fitted_on = row.get("fitted_on") or row.get("rule") or ""
        count = row.get("rows") or row.get("samples") or ""
        cells.append([row["name"], f"{float(row['value']):.4g} {row['unit']}".strip(), count,
                      fitted_on, percent(row.get("leave_one_out"))])
    return "\nFitted parameters:\n\n" + table(
        ["parameter", "value", "fitted on", "", "leave-one-out error"], cells)


def phases(folder):
    path = folder / "phases.csv"
    rows = read(path) if path.exists() else []
    if not rows:
        return ""
    def seconds(text):
        return f"{float(text):.3f}" if text else ""
    return "\nPhases of recoveries:\n\n" + table(
        ["run", "set", "policy", "phase", "predicted s", "measured s", "error"],
        [[row["run"], row["set"], row["policy"], row["phase"].replace("_", " "),
          seconds(row["predicted_s"]), seconds(row["measured_s"]),
          percent(row["error"], sign=True)] for row in rows])


def network(folder):
    """What a twin ran on, where that is not the emulated network."""
    path = folder / "twin.csv"
    if path.exists() and any(row.get("network") == "loopback" for row in read(path)):
        return "\nThese runs talked over loopback, not over the emulated network.\n"
    return ""


def notes(folder, of_tree):
    for path in (folder / "notes.md", ROOT / of_tree):
        if path.exists():
            return "\n" + path.read_text(encoding="utf-8").strip() + "\n"
    return ""


def document(results):
    text = INTRODUCTION
    for title, place, of_tree, command in EXPERIMENTS:
        folder = results / place
        text += f"\n## {title}\n\n"
        if not (folder / "errors.csv").exists():
            text += f"No results yet: `{command}`\n"
            text += notes(folder, of_tree)
            continue
        text += f"From `{command}`.\n\n"
        text += errors(folder) + network(folder) + parameters(folder) + phases(folder)
        text += notes(folder, of_tree)
    return text


def main():
    options = arguments()
    text = document(Path(options.results))
    out = Path(options.out)
    if options.check:
        same = out.exists() and out.read_text(encoding="utf-8") == text
        print("up to date" if same else f"{out} is not what the results say: tools/accuracy.py")
        sys.exit(0 if same else 1)
    partial = out.with_suffix(".tmp")
    partial.write_text(text, encoding="utf-8")
    partial.replace(out)
    print(out)


if __name__ == "__main__":
    main()
