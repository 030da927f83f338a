#!/usr/bin/python3
"""Writes docs/results.md and docs/gallery.md from the results of `tools/orrery run experiments/...`:
every published value of the five papers beside ours, and the pictures.

    tools/results.py [--results results] [--check]

Reads results/<paper>/<figure>/figures/{comparison.csv,*.png}. A difference of more than 10 % must have
a reason in published.csv (`why`). With --check nothing is written: it fails where the documents are
not what would be written."""

import argparse
import csv
import re
import shutil
import statistics
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAPERS = [("autohet", "AutoHet"), ("hethub", "HetHub"), ("hexiscale", "HexiScale"),
          ("hetu", "Hetu v2"), ("metis", "Metis")]
LIMIT = 0.10  # of difference without a reason


def titles(folder):
    """Title of an experiment, from its file."""
    for name in ("manifest.yaml", "replay.yaml", "steps.yaml", "mixed_length.yaml"):
        path = folder / name
        if path.exists():
            found = re.search(r"^title: *(.*)$", path.read_text(encoding="utf-8"), re.M)
            return found.group(1).strip("\"'") if found else folder.name
    return folder.name


def figures(results, paper):
    """(experiment folder, folder of its figures) of a paper, by name."""
    for folder in sorted((ROOT / "experiments" / paper).glob("*")):
        drawn = results / paper / folder.name / "figures"
        if folder.is_dir() and drawn.is_dir():
            yield folder, drawn


def rows_of(drawn):
    path = drawn / "comparison.csv"
    if not path.exists():
        return []
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def shown(text):
    if not text:
        return ""
    try:
        return f"{float(text):.4g}"
    except ValueError:
        return text


def cell(text):
    return text.replace("|", "\\|").replace("\n", " ")


def row_line(row):
    paper = {"withheld": "withheld"}.get(row["status"], shown(row["value"]))
    difference = f"{100 * float(row['difference']):+.1f} %" if row["difference"] else ""
    if row["status"] == "bound":
        difference = "bound"
    if row["status"] == "contradiction":
        difference = "contradiction"
    if row["status"] == "input":
        difference = "input"
    ours = shown(row["ours"]) or ("not computed" if row["status"] == "not computed" else "no plan")
    cells = [row["row"], row["quantity"], paper, ours, row["unit"], difference, row["assumption"],
             row["why"], row["source"]]
    return "| " + " | ".join(cell(each) for each in cells) + " |"


def summary(name, rows):
    compared = [row for row in rows if row["difference"]]
    text = f"| {name} | {len(rows)} | {len(compared)} | "
    if not compared:
        return text + "| | |"
    sizes = [abs(float(row["difference"])) for row in compared]
    worst = max(compared, key=lambda row: abs(float(row["difference"])))
    within = sum(size <= LIMIT for size in sizes)
    return (text + f"{100 * statistics.median(sizes):.1f} % | {within} | {cell(worst['row'])}, "
            f"{cell(worst['quantity'])}: {100 * float(worst['difference']):+.0f} %. "
            f"{cell(worst['why'])} |")


def check_reasons(folder, rows):
    return [f"{folder.relative_to(ROOT)}/published.csv: {row['row']}, {row['quantity']}: differs by "
            f"{100 * float(row['difference']):+.0f} % and has no `why`"
            for row in rows
            if row["difference"] and abs(float(row["difference"])) > LIMIT and not row["why"]]


def results_page(results, problems):
    papers = []
    for key, name in PAPERS:
        found = [(folder, rows) for folder, drawn in figures(results, key)
                 if (rows := rows_of(drawn))]
        if found:
            papers.append((name, found))
        for folder, rows in found:
            problems += check_reasons(folder, rows)
    lines = ["# Results beside the papers' own", "",
             "Written by `tools/results.py` from `tools/orrery run experiments/<paper>`; do not edit.",
             "Differences are ours over the paper's, less one. Withheld values are predicted only.",
             "An *input* was used to get our number; of a *bound* the paper says only that its value is",
             "greater; a *contradiction* is a value that no consistent model can give, with the reason",
             "beside it. What each number hangs on is in the",
             "`assumptions.yaml` of the paper and in the last columns.", "",
             "| paper | rows | compared | median difference | within 10 % | worst row, and why |",
             "|---|---|---|---|---|---|"]
    for name, found in papers:
        lines.append(summary(name, [row for _, rows in found for row in rows]))
    for name, found in papers:
        lines += ["", f"## {name}"]
        for folder, rows in found:
            lines += ["", f"### {titles(folder)}", "",
                      f"`tools/orrery run {folder.relative_to(ROOT)}`", "",
                      "| row | quantity | paper | ours | unit | difference | hangs on | why | source |",
                      "|---|---|---|---|---|---|---|---|---|"]
            lines += [row_line(row) for row in rows]
    return "\n".join(lines) + "\n"


def shrink(source, target):
    """A picture of at most 1,200 pixels' width."""
    try:
        from PIL import Image
    except ImportError:
        shutil.copyfile(source, target)
        return
    with Image.open(source) as image:
        width = min(1200, image.width)
        small = image.convert("RGB").resize((width, round(image.height * width / image.width)))
        small.quantize(128).save(target, optimize=True)


def gallery_page(results, write):
    lines = ["# Gallery", "",
             "Written by `tools/results.py`; every picture is drawn by the `plot.py` of its experiment.",
             ""]
    images = ROOT / "docs" / "images" / "gallery"
    for key, name in PAPERS:
        section = []
        for folder, drawn in figures(results, key):
            for picture in sorted(drawn.glob("*.png")):
                target = images / f"{key}_{folder.name}_{picture.name}"
                if write:
                    images.mkdir(parents=True, exist_ok=True)
                    shrink(picture, target)
                section += [f"### {titles(folder)}", "",
                            f"`tools/orrery run {folder.relative_to(ROOT)}`", "",
                            f"![{titles(folder)}](images/gallery/{target.name})", ""]
        if section:
            lines += [f"## {name}", ""] + section
    return "\n".join(lines).rstrip("\n") + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    problems = []
    pages = {ROOT / "docs" / "results.md": results_page(arguments.results, problems),
             ROOT / "docs" / "gallery.md": gallery_page(arguments.results, not arguments.check)}
    for path, text in pages.items():
        if not arguments.check:
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            problems.append(f"{path.relative_to(ROOT)} is not what the results say")
    if problems:
        sys.exit("\n".join(problems))


if __name__ == "__main__":
    main()
