"""Figure style that all experiments share: small serif type, embedded fonts, colors and hatches
that survive color blindness and grey printers, files without dates."""

import argparse
import csv
import os
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

COLUMN = 3.33  # inches: one column of a two-column paper
PAGE = 7.0     # both columns

# Okabe and Ito's palette (2008), in an order whose greys differ.
COLORS = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#000000"]
HATCHES = ["", "////", "....", "xxxx", "\\\\\\\\", "++++", "oooo", "----"]

# Parts of an iteration: column of runs.csv, label, color, hatch.
BREAKDOWN = [
    ("compute_s", "Compute", "#0072B2", ""),
    ("tensor_parallel_s", "Tensor parallel", "#56B4E9", "////"),
    ("zero_s", "Gathers (ZeRO-3)", "#009E73", "++++"),
    ("pipeline_s", "Pipeline transfer", "#E69F00", "...."),
    ("data_parallel_s", "Data parallel", "#D55E00", "xxxx"),
    ("optimizer_s", "Optimizer", "#000000", ""),
    ("bubble_s", "Idle (bubble)", "#FFFFFF", "\\\\\\\\"),
]


def parts_of(rows):
    """The parts of BREAKDOWN that are drawn for these rows: few runs shard parameters."""
    return [part for part in BREAKDOWN
            if part[0] != "zero_s" or any(row.get("zero_s") for row in rows)]


NAMES = {
    "megatron_grid": "Megatron grid",
    "hexiscale": "HexiScale",
    "llama_30b": "Llama 30B",
    "llama2_13b": "Llama-2 13B",
    "llama2_70b": "Llama-2 70B",
}


def use():
    """Sets the style; call it once before drawing."""
    matplotlib.rcParams.update({
        "font.family": "serif",
        "font.serif": ["DejaVu Serif"],
        "font.size": 8,
        "axes.titlesize": 8,
        "axes.labelsize": 8,
        "xtick.labelsize": 7,
        "ytick.labelsize": 7,
        "legend.fontsize": 7,
        "axes.linewidth": 0.6,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.axisbelow": True,
        "grid.linewidth": 0.4,
        "grid.color": "#D0D0D0",
        "hatch.linewidth": 0.5,
        "xtick.major.width": 0.6,
        "ytick.major.width": 0.6,
        "legend.frameon": False,
        "pdf.fonttype": 42,
        "ps.fonttype": 42,
        "svg.hashsalt": "orrery",
    })


def arguments():
    """The command line of every plot.py."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", required=True, help="runs.csv of the sweep")
    parser.add_argument("--published", help="published.csv of the experiment")
    parser.add_argument("--out", required=True, help="folder for the figures")
    return parser.parse_args()


def value_of(column, text):
    """A number where the cell reads as one. Hashes stay text: some of them do too (12e4...)."""
    if column in ("run", "version") or column.endswith("_hash"):
        return text
    try:
        return float(text)
    except (TypeError, ValueError):
        return text


def read(path):
    """Rows of a CSV file as dicts; cells that read as numbers are floats."""
    with open(path, newline="", encoding="utf-8") as file:
        return [{column: value_of(column, text) for column, text in row.items()}
                for row in csv.DictReader(file)]


def finished(rows):
    """Rows with a result; ends the script if there are none."""
    rows = [row for row in rows if row["status"] == "ok"]
    if not rows:
        sys.exit("no run has a result: nothing to draw")
    return rows


def is_true(cell):
    return str(cell).lower() == "true"


def markdown(head, rows):
    """A table in Markdown."""
    line = lambda cells: "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |\n"
    return line(head) + "|" + "---|" * len(head) + "\n" + "".join(map(line, rows))


def legend_above(axes, x, columns, last=()):
    """Legend above the axes, centerd at `x` of their width; labels of `last` come last."""
    handles, labels = axes.get_legend_handles_labels()
    order = sorted(range(len(labels)), key=lambda i: labels[i] in last)
    axes.legend([handles[i] for i in order], [labels[i] for i in order], loc="lower center",
                bbox_to_anchor=(x, 1.01), ncols=columns, handlelength=1.6, columnspacing=1.2)


def name(key):
    return NAMES.get(key, key)


def save(figure, folder, stem):
    """Writes PDF and PNG (300 dpi) without dates and prints their paths."""
    os.makedirs(folder, exist_ok=True)
    for ending, metadata in (("pdf", {"CreationDate": None, "ModDate": None, "Producer": None}),
                             ("png", {"Software": None})):
        path = os.path.join(folder, f"{stem}.{ending}")
        partial = path + ".tmp"
        try:
            figure.savefig(partial, format=ending, dpi=300, bbox_inches="tight", pad_inches=0.03,
                           metadata=metadata)
            os.replace(partial, path)
        finally:
            if os.path.exists(partial):
                os.remove(partial)
        print(path)
    plt.close(figure)


PUBLISHED = ["row", "quantity", "value", "unit", "source", "status", "assumption", "why"]
STATUSES = ["published", "assumption", "bound", "withheld", "contradiction", "input",
            "not computed"]
COMPARED = ("published", "assumption")  # Those whose difference counts.


def compare(arguments, ours):
    """Joins published.csv with our values, {(row, quantity): number or None}, and writes
    comparison.csv into the folder of the figures.

    published.csv has the columns PUBLISHED. `status` is one of STATUSES: of a `bound` the paper
    says only that its value is greater, so that no difference is taken; `withheld` values are
    empty and only predicted; a value is an `assumption` where no plan or rate that we assume gives
    it, so that the difference, which counts, may be that of the assumption; a `contradiction` is
    impossible by arithmetic alone (TP 8 of 52 heads), whatever one assumes; an `input` was used to get our number, so that it proves nothing; `not computed` rows say in
    `why` what is missing. `assumption` names what our value hangs on, `why` explains a difference
    in one line. Every row needs a value of ours, None where we have no plan, unless it is not
    computed; every value needs a row."""
    with open(arguments.published, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    problems = []
    if rows and list(rows[0]) != PUBLISHED:
        sys.exit(f"{arguments.published}: columns must be {','.join(PUBLISHED)}")
    known = {(row["row"], row["quantity"]) for row in rows}
    problems += [f"no row {key} for a value of ours" for key in ours if key not in known]
    if len(known) < len(rows):
        problems.append("a row appears twice")
    lines = []
    for row in rows:
        key = (row["row"], row["quantity"])
        if row["status"] not in STATUSES:
            problems.append(f"{key}: unknown status '{row['status']}'")
        if row["status"] == "withheld" and row["value"]:
            problems.append(f"{key}: a withheld row has a value")
        if row["status"] != "not computed" and key not in ours:
            problems.append(f"{key}: no value of ours")
        if row["status"] == "assumption" and not (row["assumption"] and row["why"]):
            problems.append(f"{key}: says neither what is assumed nor why that differs")
        value = ours.get(key)
        paper = float(row["value"]) if row["value"] else None
        comparable = value is not None and paper and row["status"] in COMPARED
        lines.append({**row, "ours": "" if value is None else f"{value:.6g}",
                      "difference": f"{value / paper - 1:.6g}" if comparable else ""})
    if problems:
        sys.exit("\n".join(f"{arguments.published}: {problem}" for problem in problems))
    os.makedirs(arguments.out, exist_ok=True)
    path = os.path.join(arguments.out, "comparison.csv")
    with open(path + ".tmp", "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, PUBLISHED + ["ours", "difference"], lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)
    os.replace(path + ".tmp", path)
    print(path)


def close_speedups(figure, axes, cases, labels, handles_of=0, center=0.5, ncols=3, spacing=1.4):
    """Frame of two panels of speed-ups that share their rows: the line at 1, `labels` of the
    x axes, `cases` from the top, and one legend above, with the handles of panel `handles_of`."""
    for panel, label in zip(axes, labels):
        panel.axvline(1, color="#808080", linewidth=0.6)
        panel.set_xlabel(label)
        panel.grid(axis="x")
    axes[0].set_yticks(range(len(cases)), cases)
    axes[0].invert_yaxis()
    handles, names = axes[handles_of].get_legend_handles_labels()
    figure.legend(handles, names, loc="lower center", bbox_to_anchor=(center, 0.9), ncols=ncols,
                  columnspacing=spacing)
    figure.subplots_adjust(wspace=0.06)


def step_output(arguments, step):
    """Path of what a step of a steps file wrote; runs.csv has them."""
    for row in read(arguments.runs):
        if row["step"] == step:
            if row["status"] != "ok":
                sys.exit(f"step {step} has no result: {row['reason']}")
            return os.path.join(os.path.dirname(arguments.runs), row["output"])
    sys.exit(f"no step {step} in {arguments.runs}")


def table(path, name):
    """`path` itself, or, where that is the runs.csv of a steps file of one step, the file `name`
    that the step wrote."""
    rows = read(path)
    if not rows or "step" not in rows[0]:
        return path
    if rows[0]["status"] != "ok":
        sys.exit(f"step {rows[0]['step']} has no result: {rows[0]['reason']}")
    return os.path.join(os.path.dirname(path), os.path.dirname(rows[0]["output"]), name)
