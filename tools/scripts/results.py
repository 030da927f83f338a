#!/usr/bin/python3
"""Compares our results with every published value of the five papers: writes docs/results.md, the
full table experiments/<paper>/results.csv of each paper, and docs/gallery.md with the pictures.

    tools/scripts/results.py [--results results] [--check]

Reads results/<paper>/<figure>/figures/{comparison.csv,*.png}, which `tools/orrery run
experiments/<paper>` writes, and experiments/<paper>/README.md, the summary in words. A difference of
more than 10 % must have a reason in published.csv (`why`). Where a figure leaves a table.md next to its
pictures, that table replaces the text between the two markers `<!-- results -->` of the experiment's
README; that of experiments/planners also stands in docs/planners.md. With --check nothing is written: it fails where documents, tables or pictures are not what
would be written."""

import argparse
import csv
import io
import math
import re
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAPERS = [("autohet", "AutoHet"), ("hethub", "HetHub"), ("hexiscale", "HexiScale"),
          ("hetu", "Hetu v2"), ("metis", "Metis")]
# Of rows whose difference counts, as in experiments/style.py.
COMPARED = ("published", "assumption")
LIMIT = 0.10  # of a difference that needs no reason
WORST = 10  # rows of a paper that the page shows
MARK = "<!-- results -->"
# Kind of a row, by the first pattern that "quantity [unit]" has. Medians are taken over one kind of
# one paper: seconds of a search on another machine say nothing on simulated speed.
KINDS = [("claim", r"\[yes\]$|^(settings in which|cluster sizes whose)"),
         ("clock", r"^(planning|profiling|search|graph specialization)"),
         ("gap", r"\[points\]$"),
         ("setting", r"^(bandwidth|cloud bandwidth|NVMe bandwidth|length|share of sequences|"
                     r"GPUs by type)"),
         ("shape", r"\[(stages|replicas|GPUs|samples|layers|micro-batches|strategies|count)\]$|"
                   r"^layers on"),
         ("volume", r"\[(GB|GiB|MB)\]$"),
         ("speed", r"\[(%|x|times|times the baseline|ratio|s|ms|tokens/s per GPU)\]$")]


def kind(row):
    """speed, shape, clock, volume, claim, gap or setting; None where no pattern fits."""
    text = f"{row['quantity']} [{row['unit']}]"
    return next((name for name, pattern in KINDS if re.search(pattern, text)), None)


def titles(folder):
    """Title of an experiment, from its file."""
    path = folder / "manifest.yaml"
    if not path.exists():
        return folder.name
    found = re.search(r"^title: *(.*)$", path.read_text(encoding="utf-8"), re.M)
    return found.group(1).strip("\"'") if found else folder.name


def paper_order(folder):
    """Sort key of the order in the paper: figures, tables, what only the text has, our own sweeps."""
    found = re.search(r"(Figure|Table)s? (\d+)", titles(folder))
    if folder.name in ("sensitivity", "assumptions_fit"):
        return (3, 0, folder.name)
    if found:
        return (("Figure", "Table").index(found.group(1)), int(found.group(2)), folder.name)
    return (2, 0, folder.name)


def figures(results, paper):
    """(experiment folder, folder of its figures) of a paper, in the order of the paper."""
    folders = [each for each in (ROOT / "experiments" / paper).glob("*") if each.is_dir()]
    for folder in sorted(folders, key=paper_order):
        drawn = results / paper / folder.name / "figures"
        if drawn.is_dir():
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


def agrees(row):
    """Whether a claim of the paper holds here; None where there is nothing to compare."""
    if row["status"] not in COMPARED or not row["value"] or not row["ours"]:
        return None
    return float(row["value"]) == float(row["ours"])


def factor(row):
    """Ours over the paper's."""
    return 1 + float(row["difference"])


def times(ratio):
    """A factor, as a quotient where it is small."""
    if 0 < ratio < 0.1:
        return f"1/{1 / ratio:,.0f}"
    return f"x {ratio:,.0f}" if ratio >= 10 else f"x {ratio:.2g}"


def difference(row):
    """What the difference between paper and us reads like; for rows that hang on an assumption
    which the paper's value may not share, that too."""
    text = plain_difference(row)
    hangs = row["status"] == "assumption" and text and text not in ("equal", "agrees")
    return f"{text}, under the assumption" if hangs else text


def plain_difference(row):
    """The difference by the kind of the row."""
    if row["status"] in ("bound", "contradiction", "input"):
        return row["status"]
    which = kind(row)
    if which == "claim":
        return {True: "agrees", False: "differs", None: ""}[agrees(row)]
    if not row["difference"]:
        return ""
    if which == "gap":
        return f"{float(row['ours']) - float(row['value']):+.1f} points"
    if which == "clock":
        return times(factor(row))
    if which == "shape" and float(row["difference"]) == 0:
        return "equal"
    return f"{100 * float(row['difference']):+.1f} %"


def paper_value(row):
    return "withheld" if row["status"] == "withheld" else row["value"]


def our_value(row):
    return row["ours"] or ("not computed" if row["status"] == "not computed" else "no plan")


COLUMNS = ["experiment", "row", "quantity", "paper", "ours", "unit", "difference", "verdict", "kind",
           "status", "depends on", "why", "source"]


def csv_table(found):
    """Every row of a paper's [(folder, rows)]; `difference` is ours over the paper's, less one."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for folder, rows in found:
        for row in rows:
            writer.writerow([folder.name, row["row"], row["quantity"], paper_value(row),
                             our_value(row), row["unit"], row["difference"], difference(row),
                             kind(row) or "", row["status"], row["assumption"], row["why"],
                             row["source"]])
    return text.getvalue()


def line(cells):
    return "| " + " | ".join(cell(each) for each in cells) + " |"


def once(found):
    """Rows of a paper's [(folder, rows)] without those that stand in another folder already: the same
    number of the paper and the same of ours; shapes and claims, which are small integers, must
    also have the same name."""
    seen, kept = {}, []
    for folder, rows in found:
        for row in rows:
            key = (row["value"], row["ours"], row["unit"])
            if kind(row) in ("shape", "claim"):
                key += (row["row"], row["quantity"])
            compared = row["difference"] or agrees(row) is not None
            if not compared or seen.setdefault(key, folder) == folder:
                kept.append(row)
    return kept


def compared(rows):
    """{kind: rows with a difference}, and for claims the rows that agree or do not."""
    of = {which: [row for row in rows if kind(row) == which and row["difference"]]
          for which, _ in KINDS}
    of["claim"] = [row for row in rows if kind(row) == "claim" and agrees(row) is not None]
    return of


def medians(of):
    """Cells of a summary: speed, shape, volume, claims, clock."""
    def median(which):
        return statistics.median(abs(float(row["difference"])) for row in of[which])

    def within(which):
        near = sum(abs(float(row["difference"])) <= LIMIT for row in of[which])
        return f"{100 * median(which):.1f} %; {near} of {len(of[which])} within 10 %"

    equal = sum(float(row["difference"]) == 0 for row in of["shape"])
    ratios = [max(factor(row), 1 / factor(row)) if factor(row) else math.inf
              for row in of["clock"]]
    return [within("speed") if of["speed"] else "",
            f"{100 * median('shape'):.1f} %; {equal} of {len(of['shape'])} equal"
            if of["shape"] else "",
            within("volume") if of["volume"] else "",
            f"{sum(map(agrees, of['claim']))} of {len(of['claim'])} agree" if of["claim"] else "",
            f"{times(statistics.median(ratios))} over {len(ratios)}" if ratios else ""]


def summary(name, found):
    """Row of a paper in the first table, or of an experiment in the table of its paper."""
    of = compared(once(found))
    count = sum(len(of[which]) for which in ("speed", "shape", "clock", "volume", "gap", "claim"))
    return [name, str(sum(len(rows) for _, rows in found)), str(count), *medians(of)]


def reasons(rows):
    """[(row, why)] of a folder; a why that only says "as above" is written out."""
    named, above = [], ""
    for row in rows:
        why = row["why"]
        found = re.match(r"as above\.?(.*)", why, re.I | re.S)
        if found:
            why = above.rstrip(".") + (found.group(1) or ".") if above else why
        else:
            above = why
        named.append((row, why))
    return named


def distance(row):
    """How far ours is from the paper's: the larger of the two over the smaller."""
    return max(factor(row), 1 / factor(row)) if factor(row) > 0 else math.inf


def worst(found):
    """Rows of the largest differences of a paper: of speed and volume, then of shape."""
    kept = {id(row) for row in once(found)}
    rows = [(kind(row) == "shape", -distance(row), row, why) for _, rows in found
            for row, why in reasons(rows)
            if id(row) in kept and kind(row) in ("speed", "volume", "shape") and row["difference"]
            and abs(float(row["difference"])) > LIMIT]
    rows.sort(key=lambda each: each[:2])
    return [[row["row"], row["quantity"], shown(row["value"]), shown(row["ours"]), row["unit"],
             difference(row), why] for _, _, row, why in rows[:WORST]]


def broken_claims(found):
    """Rows of the sentences of a paper that do not hold here."""
    kept = {id(row) for row in once(found)}
    return [[row["row"], row["quantity"], shown(row["value"]), shown(row["ours"]), why]
            for _, rows in found for row, why in reasons(rows)
            if id(row) in kept and kind(row) == "claim" and agrees(row) is False]


def check_reasons(folder, rows):
    """Problems of the rows of a folder: differences without a reason, rows without a kind."""
    where = f"{folder.relative_to(ROOT)}/published.csv"
    problems = [f"{where}: {row['row']}, {row['quantity']}: differs ({difference(row)}) and has no "
                "`why`"
                for row in rows if not row["why"] and (
                    agrees(row) is False if kind(row) == "claim" else
                    row["difference"] and abs(float(row["difference"])) > LIMIT)]
    return problems + [f"{where}: {row['row']}, {row['quantity']}: no kind fits; see KINDS of "
                       "tools/scripts/results.py" for row in rows if kind(row) is None]


INTRODUCTION = """# Results compared with the papers

Written by `tools/scripts/results.py` from `tools/orrery run experiments/<paper>` and the README of
each paper's folder; do not edit. Every published value is a row of the paper's `results.csv`, with
our value, what it depends on, why it differs, and where the paper has it. This page summarizes them.

A difference is ours over the paper's, less one. Rows are of one kind each, and kinds are never mixed
in a median:

- *speed*: times, rates, utilizations and their ratios.
- *shape*: stages, layers, degrees and batches of a plan. Many are equal; where they are not, the
  plan may be as good.
- *volume*: bytes.
- *claim*: a sentence of the paper that holds here or does not, in one setting or in several.
- *clock*: seconds and numbers of plans of a search, ours over theirs as a factor. These are other
  programs on other machines: no test of the simulator.
- *gap*: the difference of two utilizations, in points; in no median.
- *setting*: a bandwidth, a length or a share that describes the experiment.

In `results.csv`, a *withheld* value is predicted only. An *input* was used to get our number. Of a
*bound* the paper says only that its value is greater. An *assumption* marks a value that nothing
gives under what we assume beside it (`depends on`); its difference counts as any other. A
*contradiction* is impossible by arithmetic alone, as 20 replicas of 4 samples in a batch of 64, and
only such a value is not compared. A number that appears in several experiments counts once.

"""
HEADINGS = ["rows", "compared", "speed: median difference", "shape: median difference",
            "volume: median difference", "claims", "clock: median factor"]


def table(head, rows):
    """Lines of a table of rows of cells, without the columns that have none."""
    full = [i for i in range(len(head)) if any(row[i] for row in rows)]
    lines = [line([row[i] for i in full]) for row in [head, *rows]]
    return [lines[0], "|" + "---|" * len(full), *lines[1:]]


def in_words(paper):
    """README.md of a paper's folder as it stands in docs/."""
    return linked_from_docs((ROOT / "experiments" / paper / "README.md").read_text(encoding="utf-8"),
                            paper)


def linked_from_docs(readme, paper):
    """The README of experiments/<paper> without its title; links lead there from docs/."""
    text = readme.split("\n", 1)[1].strip()
    return re.sub(r"\]\((?!https?:|#)", f"](../experiments/{paper}/", text)


def rows_of_papers(results):
    """[(key, name, [(folder, rows)])] of the papers that have results."""
    papers = []
    for key, name in PAPERS:
        found = [(folder, rows) for folder, drawn in figures(results, key)
                 if (rows := rows_of(drawn))]
        if found:
            papers.append((key, name, found))
    return papers


def results_page(papers):
    lines = table(["paper", *HEADINGS],
                  [summary(f"[{name}](#{name.lower().replace(' ', '-')})", found)
                   for _, name, found in papers])
    for key, name, found in papers:
        lines += ["", f"## {name}", "", in_words(key), "",
                  f"All {sum(len(rows) for _, rows in found)} rows: "
                  f"[results.csv](../experiments/{key}/results.csv). "
                  f"`tools/orrery run experiments/{key}` computes them.", ""]
        lines += table(["experiment", *HEADINGS],
                       [summary(f"[{titles(folder)}](../{folder.relative_to(ROOT)}/)",
                                [(folder, rows)]) for folder, rows in found])
        if far := worst(found):
            lines += ["", f"The {len(far)} largest differences: of speed and volume first, then of "
                      "shape.", ""]
            lines += table(["row", "quantity", "paper", "ours", "unit", "difference", "why"], far)
        if claims := broken_claims(found):
            lines += ["", "Claims that do not hold here:", ""]
            lines += table(["setting", "claim", "paper", "ours", "why"], claims)
    return INTRODUCTION + "\n".join(lines) + "\n"


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
        small.quantize(128).save(target, format="PNG", optimize=True)


def put_picture(source, target, write, problems):
    """Writes `target` from `source`, or compares it with what would be written."""
    if write:
        target.parent.mkdir(parents=True, exist_ok=True)
        shrink(source, target)
        return
    with tempfile.TemporaryDirectory() as folder:
        small = Path(folder) / target.name
        shrink(source, small)
        # Without PIL whole pictures were written.
        same = (small.read_bytes(), source.read_bytes())
        if not target.exists() or target.read_bytes() not in same:
            problems.append(f"{target.relative_to(ROOT)} is not the picture of the results")


def gallery_page(results, write, problems):
    lines = ["# Gallery", "",
             "Written by `tools/scripts/results.py`; every picture is drawn by the `plot.py` of its experiment.",
             ""]
    images = ROOT / "docs" / "images" / "gallery"
    for key, name in PAPERS:
        section = []
        for folder, drawn in figures(results, key):
            for picture in sorted(drawn.glob("*.png")):
                target = images / f"{key}_{folder.name}_{picture.name}"
                put_picture(picture, target, write, problems)
                section += [f"### {titles(folder)}", "",
                            f"`tools/orrery run {folder.relative_to(ROOT)}`", "",
                            f"![{titles(folder)}](images/gallery/{target.name})", ""]
        if section:
            lines += [f"## {name}", ""] + section
    return "\n".join(lines).rstrip("\n") + "\n"


def spliced(readme, table):
    """`readme` with `table` between its two markers; None where these are not there."""
    parts = readme.split(MARK)
    if len(parts) != 3:
        return None
    return f"{parts[0]}{MARK}\n{table.strip()}\n{MARK}{parts[2]}"


def readmes(results, problems):
    """{path: text} of the READMEs that hold a table of their results."""
    pages = {}
    for key, _ in PAPERS:
        for folder, drawn in figures(results, key):
            if not (drawn / "table.md").exists():
                continue
            path = folder / "README.md"
            text = spliced(path.read_text(encoding="utf-8"),
                           (drawn / "table.md").read_text(encoding="utf-8"))
            if text is None:
                problems.append(f"{path.relative_to(ROOT)}: has not two markers {MARK}")
            else:
                pages[path] = text
    return pages


def planners_pages(results, write, problems):
    """{path: text} of experiments/planners/README.md and, with its words, docs/planners.md; writes or
    compares their picture."""
    table = results / "planners" / "clusters" / "figures" / "table.md"
    if not table.exists():
        return {}
    put_picture(table.with_name("clusters.png"), ROOT / "docs" / "images" / "planners_clusters.png",
                write, problems)
    readme, page = ROOT / "experiments" / "planners" / "README.md", ROOT / "docs" / "planners.md"
    filled = spliced(readme.read_text(encoding="utf-8"), table.read_text(encoding="utf-8"))
    if filled is None:
        problems.append(f"{readme.relative_to(ROOT)}: has not two markers {MARK}")
        return {}
    words = linked_from_docs(filled, "planners").replace(MARK, "").strip()
    whole = spliced(page.read_text(encoding="utf-8"), words)
    if whole is None:
        problems.append(f"{page.relative_to(ROOT)}: has not two markers {MARK}")
        return {}
    return {readme: filled, page: whole}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--results", type=Path, default=Path("results"),
                        help="folder of the results (default: %(default)s)")
    parser.add_argument("--check", action="store_true",
                        help="write nothing; fail where documents are not what the results say")
    arguments = parser.parse_args()
    problems = []
    papers = rows_of_papers(arguments.results)
    for _, _, found in papers:
        for folder, rows in found:
            problems += check_reasons(folder, rows)
    pages = {ROOT / "docs" / "results.md": results_page(papers),
             **{ROOT / "experiments" / key / "results.csv": csv_table(found)
                for key, _, found in papers},
             ROOT / "docs" / "gallery.md": gallery_page(arguments.results, not arguments.check,
                                                        problems),
             **readmes(arguments.results, problems),
             **planners_pages(arguments.results, not arguments.check, problems)}
    for path, text in pages.items():
        if not arguments.check:
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            problems.append(f"{path.relative_to(ROOT)} is not what the results say")
    if problems:
        sys.exit("\n".join(problems))


if __name__ == "__main__":
    main()
