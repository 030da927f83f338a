#!/usr/bin/python3
"""Timelines of a comparison: for each rank what was measured above what was predicted.

    tools/scripts/plot_compare.py --runs FOLDER/timeline-0.csv --out FOLDER

timeline-<g>.csv is what `orrery compare --out FOLDER` writes: the measured step of median length and
the simulated iteration, on one axis of time. Writes <name of the CSV>.pdf and .png into FOLDER."""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "experiments"))
import style  # noqa: E402
from style import plt  # noqa: E402

# (label, color, hatch) by what a span is; the order of the legend.
PARTS = {
    "forward": ("Forward", "#0072B2", ""),
    "backward": ("Backward", "#009E73", ""),
    "backward_input": ("Backward, input", "#009E73", ""),
    "backward_weight": ("Backward, weights", "#8FD3BC", ""),
    "tensor_parallel": ("Tensor parallel", "#56B4E9", "////"),
    "pipeline": ("Pipeline transfer", "#E69F00", ""),
    "data_parallel": ("Data parallel", "#D55E00", ""),
    "optimizer_step": ("Optimizer", "#000000", ""),
}
# The lower third of a row shows transfers, the rest the compute stream.
COMPUTE, TRANSFERS = (0.30, 0.58), (0.08, 0.20)
SIDES = ("measured", "predicted")


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", required=True, help="timeline-<g>.csv of a comparison")
    parser.add_argument("--out", required=True, help="folder for the figure")
    parser.add_argument("--stem", help="name of the figure; default: that of the CSV")
    return parser.parse_args()


def part_of(row):
    if row["kind"] in PARTS:
        return row["kind"]
    if row["kind"] == "collective" and row["purpose"] != "pipeline":
        return "data_parallel"
    return "pipeline"


def bars(rows, scale):
    """By (part, is transfer): (start, length) pairs."""
    out = {}
    for row in rows:
        start, end, inner = (row[key] * scale for key in ("start_s", "end_s", "inner_s"))
        transfer = row["stream"] != "compute"
        if row["kind"] == "send":
            continue  # its receiver shows the transfer
        out.setdefault((part_of(row), transfer), []).append((start, end - start - inner))
        if inner > 0:
            out.setdefault(("tensor_parallel", False), []).append((end - inner, inner))
    return out


def draw(axes, rows):
    ranks = sorted({int(row["rank"]) for row in rows})
    longest = max(row["end_s"] for row in rows)
    scale, unit = (1e3, "ms") if longest < 2 else (1, "s")
    labels, ticks, used = [], [], set()
    for i, rank in enumerate(ranks):
        mine = [row for row in rows if int(row["rank"]) == rank]
        device = int(mine[0]["device"])
        for s, side in enumerate(SIDES):
            base = -(2 * i + s)
            ticks.append(base + 0.45)
            labels.append(f"rank {rank} (device {device}) {side}" if s == 0 else side)
            found = bars([row for row in mine if row["side"] == side], scale)
            for (part, transfer), pairs in sorted(found.items()):
                low, height = TRANSFERS if transfer else COMPUTE
                _, color, hatch = PARTS[part]
                axes.broken_barh(pairs, (base + low, height), facecolors=color, hatch=hatch,
                                 edgecolor="white" if hatch else "none", linewidth=0)
                used.add(part)
        if i > 0:
            axes.axhline(-2 * i + 1.0, color="#C0C0C0", linewidth=0.5)
    for s, (side, line) in enumerate(zip(SIDES, ("--", ":"))):
        end = max((row["end_s"] for row in rows if row["side"] == side), default=0) * scale
        axes.axvline(end, color="black", linewidth=0.8, linestyle=line, label=f"end, {side}")
    axes.set_yticks(ticks, labels)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(f"Time from the start of the step ({unit})")
    axes.set_xlim(0, 1.01 * longest * scale)
    axes.set_ylim(-2 * len(ranks) + 0.9, 1.1)
    for part, (label, color, hatch) in PARTS.items():
        if part in used and not (part == "backward_input" and "backward" in used):
            axes.bar(0, 0, color=color, hatch=hatch, edgecolor="white", linewidth=0, label=label)
    style.legend_above(axes, 0.42, 4, last=("end, measured", "end, predicted"))
    return len(ranks)


def main():
    options = arguments()
    rows = style.read(options.runs)
    if not rows:
        sys.exit("no span: nothing to draw")
    style.use()
    ranks = len({row["rank"] for row in rows})
    figure, axes = plt.subplots(figsize=(style.PAGE, 0.5 + 0.46 * ranks))
    draw(axes, rows)
    style.save(figure, options.out, options.stem or Path(options.runs).stem)


if __name__ == "__main__":
    main()
