#!/usr/bin/python3
"""Writes docs/accuracy.md: how far predictions are off, from the results on disk.

    tools/scripts/accuracy.py [--results results] [--out docs/accuracy.md] [--keep] [--check]

Reads results/twin/*/errors.csv and results/validation/*/errors.csv (columns experiment, set, metric,
rows, mean, median, max, bias, target, published_best; errors are relative; twins also have
disturbed_share), other_simulators.csv (the same of rivals on the same rows, where there are any),
twin.csv, parameters.csv and phases.csv next to them, and notes.md, which says in words what is
measured, what is assumed and what is known to be wrong (for validations the copy that the results
were written with, for twins that of the tree). Computes nothing. An experiment without results is
named as missing, or with --keep stands as the file on disk has it.
--check: exit code 1 if the file on disk is not what would be written."""

import argparse
import csv
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# (title, folder below results, notes in the tree, command)
EXPERIMENTS = [
    ("Twin: plans drawn before any of them ran", "twin/fresh", "experiments/twin/fresh/notes.md",
     "tools/orrery twin experiments/twin/fresh/manifest.yaml"),
    ("Twin: our own executor on emulated nodes", "twin/netlab", "experiments/twin/netlab/notes.md",
     "tools/orrery twin experiments/twin/netlab/manifest.yaml"),
    ("Sailor's measurements", "validation/sailor", "experiments/validation/sailor/notes.md",
     "tools/orrery run experiments/validation/sailor"),
    ("vTrain's measurements", "validation/vtrain", "experiments/validation/vtrain/notes.md",
     "tools/orrery run experiments/validation/vtrain"),
    ("Megatron's measurements", "validation/megatron", "experiments/validation/megatron/notes.md",
     "tools/orrery run experiments/validation/megatron"),
] + [(title, f"validation/{name}", f"experiments/validation/{name}/notes.md",
      f"tools/orrery run experiments/validation/{name}") for title, name in (
    ("MLPerf Training (not verified by MLCommons)", "mlperf"),
    ("NVIDIA's DGX Cloud benchmarks", "dgxc"),
    ("Megatron-Bridge", "megatron_bridge"),
    ("Megatron-LM's weak scaling on H100", "megatron_lm"),
    ("Megatron-LM's recorded memory", "golden_memory"),
    ("BLOOM's search for a plan", "bigscience"),
    ("llm-foundry", "llm_foundry"),
    ("torchtitan", "torchtitan"),
    ("NeMo's long sequences", "nemo"),
    ("NCCL's all-reduce", "nccl"))]
FIGURE = "images/accuracy.png"  # drawn by experiments/validation/plot.py
INTRODUCTION = """\
# How far predictions are off

Written by `tools/scripts/accuracy.py` from the results of the experiments below; do not edit. An
error is predicted / measured - 1. *mean*, *median* and *max* are of its absolute value; *bias* is its
signed mean, negative if predictions are too short. Targets that are missed stay in the table. *best
rival, same rows* is the smallest mean error of another simulator over exactly the rows of the line,
and says so where it is smaller than ours; *published, their rows* is the smallest that others print
for these measurements, over rows of their own choice, which is no comparison. Blank: nobody's
predictions of these rows are known to us.
"""
OVERVIEW = """\

## At a glance

![Predicted over measured against the number of GPUs]({figure})

*Predicted over measured step time of every measured row that no parameter was fitted on (of fitting
rows the prediction with the row left out, hollow), against the number of GPUs; the band is 5 %,
what is beyond the scale stands at its edge, and crosses are the best other simulator on Sailor's
rows, the only ones of which others' predictions are known one by one. Drawn by `experiments/validation/plot.py`. MLPerf is
a trademark of MLCommons; figures derived from its logs are not verified by MLCommons.*

What was aimed at and what was reached, over scored rows; what a miss owes to:

"""
# In other_simulators.csv, but no simulator: what a second measurement would say.
SECOND_RUN = "the earlier run"
# What the sets and metrics of a twin are.
TWIN = """\
Sets:

- *predict*: runs on which nothing was fitted.
- *seen*: runs on which nothing was fitted either, but whose results were known when the model or
  the lab changed. They meet no target.
- *fit*: runs on which the parameters below were fitted. They show how well the parameters fit, not
  how well they predict.
- *recovery*: training steps after a device was lost and, as *recovery total*, the recovery itself,
  from the failure to the end of the first step. Its phases have a table of their own; those of
  *recovery fit* gave the medians with which all phases are predicted.

A program that ran more than once counts once.

Metrics:

- *iteration*: time of a step.
- *iteration micro benchmarks only*: the same without the fitted parameters.
- *transfers*: time of all point-to-point messages and collectives, summed over ranks.
- *peak memory*: of the rank that held most.
- *X share of iteration*: by how much component X was predicted too long or too short, relative to the
  measured iteration, so that the shares of a run add up to its iteration error.
- *disturbed*: share of the compute ops that took longer than their device allows, because something
  else used the core.
"""
DISTURBED = 0.05  # share of disturbed ops above which a run says more about the machine


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", default=str(ROOT / "results"), help="folder of all results")
    parser.add_argument("--out", default=str(ROOT / "docs" / "accuracy.md"))
    parser.add_argument("--keep", action="store_true",
                        help="what is said of experiments without results stays as it is")
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
    if row["set"] in ("fit", "seen"):
        return "fitted on" if row["set"] == "fit" else "seen"
    return "met" if float(row["mean"]) <= float(row["target"]) else "**missed**"


def rivals(folder):
    """(mean error, name, rows) of other simulators by set and metric; the set of a line of theirs is
    "our set, their name"."""
    path = folder / "other_simulators.csv"
    found = {}
    for row in read(path) if path.exists() else []:
        name, rival = row["set"].rsplit(", ", 1)
        if rival != SECOND_RUN:
            found.setdefault((name, row["metric"]), []).append(
                (float(row["mean"]), rival, row["rows"]))
    return found


def best_rival(row, found):
    """The best of those that predict exactly our rows."""
    same = [(mean, name) for mean, name, rows in found.get((row["set"], row["metric"]), [])
            if rows == row["rows"]]
    if not same:
        return ""
    mean, name = min(same)
    return f"{percent(mean)} ({name})" + (", **better**" if mean < float(row["mean"]) else "")


def errors(folder):
    rows = [row for row in read(folder / "errors.csv") if row["rows"] not in ("", "0")]
    others = rivals(folder)
    head = ["set", "metric", "rows", "mean", "median", "max", "bias", "target", "",
            "best rival, same rows", "published, their rows"]
    cells = [[row["set"], row["metric"].replace("_", " "), row["rows"], percent(row["mean"]),
              percent(row["median"]), percent(row["max"]), percent(row["bias"], sign=True),
              percent(row["target"]), verdict(row), best_rival(row, others),
              percent(row["published_best"])] for row in rows]
    if any("disturbed_share" in row for row in rows):
        # Nobody has published errors of our own runs.
        head[-2:] = ["disturbed"]
        for row, line in zip(rows, cells):
            line[-2:] = [percent(row["disturbed_share"])]
    return table(head, cells)


def disturbed(rows):
    """A warning where the machine was not quiet."""
    over = [row for row in rows if float(row["disturbed_share"] or 0) > DISTURBED]
    if not over:
        return ""
    worst = max(over, key=lambda row: float(row["disturbed_share"]))
    return f"\n**More than {100 * DISTURBED:.0f} % of the ops were disturbed in {len(over)} of " \
           f"{len(rows)} runs** (at most {percent(worst['disturbed_share'])}: `{worst['run']}`): " \
           "they waited for a core that something else used, and the errors say more about " \
           "the machine than about the model.\n"


def in_short(fitted_on):
    """Ids of rows: the first and the last where there are many. A rule stays as it is."""
    ids = fitted_on.split()
    if len(ids) > 4 and all("-" in each for each in ids):
        return f"{ids[0]} to {ids[-1]}; all in parameters.csv"
    return fitted_on


def parameters(folder):
    path = folder / "parameters.csv"
    if not path.exists():
        return ""
    rows = read(path)
    if not rows:
        return "\nNo parameter was fitted.\n"
    cells = []
    for row in rows:
        fitted_on = in_short(row.get("fitted_on") or row.get("rule") or "")
        count = row.get("rows") or row.get("samples") or ""
        cells.append([row["name"], f"{float(row['value']):.4g} {row['unit']}".strip(), count,
                      fitted_on, percent(row.get("leave_one_out"))])
    return "\nFitted parameters:\n\n" + table(
        ["parameter", "value", "on", "rows or rule", "leave-one-out error"], cells)


def phases(folder):
    path = folder / "phases.csv"
    rows = read(path) if path.exists() else []
    if not rows:
        return ""
    def seconds(text):
        return f"{float(text):.3f}" if text else ""
    return "\nPhases of recoveries:\n\n" + table(
        ["run", "set", "policy", "phase", "predicted s", "measured s", "error"],
        [[row["run"], row["set"].replace("_", " "), row["policy"], row["phase"].replace("_", " "),
          seconds(row["predicted_s"]), seconds(row["measured_s"]),
          percent(row["error"], sign=True)] for row in rows])


def twin(folder):
    """Notes on a twin: its sets, the network if it was not the emulated one, whether the machine was
    quiet, and the runs that are not in the errors."""
    path = folder / "twin.csv"
    if not path.exists():
        return ""
    text = "\n" + TWIN
    rows = read(path)
    if any(row.get("network") == "loopback" for row in rows):
        text += "\nThese runs communicated over loopback, not over the emulated network.\n"
    text += disturbed([row for row in rows if row["status"] == "ok"])
    twice = [row for row in rows if row.get("same_program_as")]
    if twice:
        names = ", ".join(f"`{row['run']}` is the program of `{row['same_program_as']}`"
                          for row in twice)
        text += f"\nNot in the errors, since an equal program ran before: {names}.\n"
    without = [row for row in rows if row["status"] != "ok"]
    if without:
        why = "; ".join(f"`{row['run']}` ({row['status']}: {' '.join(row['problem'].split())})"
                        for row in without)
        text += f"\n{len(without)} of {len(rows)} runs are not in the errors: {why}.\n"
    return text


def below(text, level):
    """The text with its highest heading at `level`."""
    heading = re.compile(r"^(#+) ", re.MULTILINE)
    highest = min((len(found[1]) for found in heading.finditer(text)), default=level)
    return heading.sub(lambda found: "#" * (len(found[1]) + level - highest) + " ", text)


def notes(folder, of_tree):
    # A twin's results hold a copy of what the tree said when they were made.
    places = [folder / "notes.md", ROOT / of_tree]
    for path in reversed(places) if (folder / "twin.csv").exists() else places:
        if path.exists():
            return "\n" + below(path.read_text(encoding="utf-8").strip(), 3) + "\n"
    return ""


def section(document, title):
    """What stands below the heading, or None."""
    start = document.find(f"\n## {title}\n")
    end = document.find("\n## ", start + 1)
    return None if start < 0 else document[start:end if end > 0 else None]


def overview(results, old):
    """The figure, and all lines with a target in one table."""
    causes = {(row["experiment"], row["set"], row["metric"]): row["component"]
              for row in read(ROOT / "experiments" / "validation" / "misses.csv")}
    found = []
    kept = [[cell.strip() for cell in line.strip("|").split("|")]
            for line in (section(old, "At a glance") or "").splitlines() if line.startswith("| ")]
    for title, place, _, _ in EXPERIMENTS:
        path = results / place / "errors.csv"
        if not place.startswith("validation/"):
            continue
        if not path.exists():
            found += [row for row in kept if row[0] == title.partition(" (")[0]]
            continue
        for row in read(path):
            if row.get("target") and row["rows"] not in ("", "0"):
                missed = verdict(row) == "**missed**"
                cause = causes.get((place.partition("/")[2], row["set"], row["metric"]), "")
                found.append([title.partition(" (")[0], row["set"],
                              row["metric"].replace("_", " "), row["rows"], percent(row["target"]),
                              percent(row["mean"]), verdict(row), cause if missed else ""])
    if not found:
        return section(old, "At a glance") or ""
    return OVERVIEW.format(figure=FIGURE) + table(
        ["set", "rows of it", "metric", "rows", "target", "mean error", "", "what is wrong"], found)


def document(results, old):
    """`old`: the text from which sections of experiments without results are kept."""
    text = INTRODUCTION + overview(results, old)
    for title, place, of_tree, command in EXPERIMENTS:
        folder = results / place
        if not (folder / "errors.csv").exists() and section(old, title):
            text += section(old, title)
            continue
        text += f"\n## {title}\n\n"
        if not (folder / "errors.csv").exists():
            text += f"No results here yet: `{command}`. Errors that the notes below mention are of an " \
                    "earlier run.\n"
            text += notes(folder, of_tree)
            continue
        text += f"From `{command}`.\n\n"
        text += errors(folder) + twin(folder) + parameters(folder) + phases(folder)
        text += notes(folder, of_tree)
    return text


def main():
    options = arguments()
    out = Path(options.out)
    old = out.read_text(encoding="utf-8") if options.keep and out.exists() else ""
    text = document(Path(options.results), old)
    if options.check:
        same = out.exists() and out.read_text(encoding="utf-8") == text
        print("up to date" if same else f"{out} is not what the results say: tools/scripts/accuracy.py")
        sys.exit(0 if same else 1)
    partial = out.with_suffix(".tmp")
    partial.write_text(text, encoding="utf-8")
    partial.replace(out)
    print(out)


if __name__ == "__main__":
    main()
