#!/usr/bin/python3
"""Draws the four pictures of docs/sharding.md from sharding.json, which the code wrote.

  docs/images/sharding.py [FOLDER]

Writes sharding_annotation.svg, sharding_deduction.svg, sharding_resolution.svg and
sharding_switching.svg next to this file, or into FOLDER.
"""
import argparse
import json
import pathlib

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.patches import FancyArrowPatch, Rectangle

HERE = pathlib.Path(__file__).resolve().parent
COLORS = ["#c6dbef", "#fdd0a2", "#c7e9c0"]  # Of the subgroups.
INK = "#222222"
plt.rcParams.update({"font.size": 11, "svg.hashsalt": "orrery", "svg.fonttype": "path",
                     "font.family": "DejaVu Sans"})


def rectangle(ax, left, top, width, height, color, text, **style):
    """A box with its text in the middle; y grows downwards."""
    ax.add_patch(Rectangle((left, top), width, height, facecolor=color, edgecolor=INK,
                           linewidth=1.2, **style))
    ax.text(left + width / 2, top + height / 2, text, ha="center", va="center", color=INK)


def finish(fig, ax, name, folder, width, height):
    ax.set_xlim(0, width)
    ax.set_ylim(height, 0)
    ax.set_aspect("equal")
    ax.axis("off")
    fig.savefig(folder / f"sharding_{name}.svg", metadata={"Date": None}, bbox_inches="tight",
                pad_inches=0.05, facecolor="white")
    plt.close(fig)


def by_box(subgroup):
    """Devices of each box, in order; summands are joined by a plus, copies by a comma."""
    boxes = {}
    for piece in subgroup:
        boxes.setdefault(tuple(map(tuple, piece["box"])), []).append(piece)
    for box, held in boxes.items():
        summands = {piece["summand"] for piece in held}
        yield box, (" + " if len(summands) > 1 else ", ").join(str(p["device"]) for p in held)


def draw_tensor(ax, tensor, left, top, scale, which=None):
    for i, subgroup in enumerate(tensor["subgroups"]):
        if which is not None and i != which:
            continue
        for (rows, columns), label in by_box(subgroup):
            rectangle(ax, left + columns[0] * scale, top + rows[0] * scale,
                      (columns[1] - columns[0]) * scale, (rows[1] - rows[0]) * scale, COLORS[i],
                      label)


def annotation(data, folder):
    fig, ax = plt.subplots(figsize=(7, 4))
    draw_tensor(ax, data, 2.2, 0.6, 0.6)
    ax.text(2.2 + 2.4, 0.3, "dimension 1", ha="center", va="center")
    ax.text(1.9, 0.6 + 3, "dimension 0 = HDim", ha="center", va="center", rotation=90)
    names = data["text"].split("; ")[0].split(" | ")
    for i, (subgroup, name) in enumerate(zip(data["subgroups"], names)):
        rows = [row for piece in subgroup for row in piece["box"][0]]
        middle = 0.6 + 0.6 * (min(rows) + max(rows)) / 2
        ax.text(7.4, middle, f"subgroup {i}\n{name}", va="center")
    finish(fig, ax, "annotation", folder, 11, 6.8)


def deduction(data, folder):
    fig, ax = plt.subplots(figsize=(7, 3.4))
    scale = 0.34
    draw_tensor(ax, data["x"], 0.3, 1.6, scale)
    ax.text(0.3 + 4 * scale, 1.2, "X", ha="center", va="center")
    ax.text(0.3 + 4 * scale, 1.6 + 6 * scale + 0.35, "HDim 0", ha="center", va="center")
    ax.text(3.4, 2.6, "·", ha="center", va="center", fontsize=18)
    for i in range(len(data["w"]["subgroups"])):
        draw_tensor(ax, data["w"], 3.8 + 2.5 * i, 1.2, scale, which=i)
    ax.text(3.8 + 2.3, 0.8, "W, a copy in each subgroup", ha="center", va="center")
    ax.text(3.8 + 2.3, 1.2 + 8 * scale + 0.35, "HDim -1", ha="center", va="center")
    ax.text(8.75, 2.6, "=", ha="center", va="center", fontsize=18)
    draw_tensor(ax, data["y"], 9.1, 1.6, scale)
    ax.text(9.1 + 3 * scale, 1.2, "Y", ha="center", va="center")
    ax.text(9.1 + 3 * scale, 1.6 + 6 * scale + 0.35, "HDim 0", ha="center", va="center")
    finish(fig, ax, "deduction", folder, 11.4, 4.6)


def bar(ax, subgroup, color, left, top, scale, height, label):
    for (_, columns), text in by_box(subgroup):
        rectangle(ax, left + columns[0] * scale, top, (columns[1] - columns[0]) * scale, height,
                  color, text)
    ax.text(left - 0.2, top + height / 2, label, ha="right", va="center")


def resolution(data, folder):
    fig, ax = plt.subplots(figsize=(7, 3.6))
    left, scale = 2.9, 1.0
    for i, subgroup in enumerate(data["from"]["subgroups"]):
        bar(ax, subgroup, COLORS[i], left, 0.3 + i, scale, 0.7, f"subgroup {i}")
    for move in data["moves"]:
        begin, end = move["box"][1]
        rectangle(ax, left + begin * scale, 3.0, (end - begin) * scale, 0.9, "#eeeeee",
                  f"{move['kind']}\n{' + '.join(map(str, move['devices']))}")
        for x in (begin, end):
            ax.plot([left + x * scale] * 2, [0.3, 3.9], color=INK, linewidth=0.7, linestyle=":",
                    zorder=0)
    ax.text(left - 0.2, 3.45, "finest slices", ha="right", va="center")
    ax.text(left + 4 * scale, 4.3, "dimension 1 of the gradient", ha="center", va="center")
    finish(fig, ax, "resolution", folder, 11.2, 4.6)


def switching(data, folder):
    fig, ax = plt.subplots(figsize=(7, 4))
    left, scale = 0.5, 0.62
    rows = [(0.8, "from", "before"), (3.6, "to", "after")]
    offsets = [0, 8 * scale + 0.5]
    for top, side, name in rows:
        for i, subgroup in enumerate(data[side]["subgroups"]):
            for (_, columns), text in by_box(subgroup):
                rectangle(ax, left + offsets[i] + columns[0] * scale, top,
                          (columns[1] - columns[0]) * scale, 0.8, COLORS[i], text)
        ax.text(left - 0.15, top + 0.4, name, ha="right", va="center", rotation=90)
    for i in range(2):
        ax.text(left + offsets[i] + 4 * scale, 0.45, f"pipeline {i}", ha="center", va="center")
    home = {piece["device"]: i for i, subgroup in enumerate(data["from"]["subgroups"])
            for piece in subgroup}
    goal = {piece["device"]: i for i, subgroup in enumerate(data["to"]["subgroups"])
            for piece in subgroup}
    for move in data["moves"]:
        source, destination = move["devices"]
        begin, end = move["box"][1]
        middle = left + (begin + end) / 2 * scale
        ax.add_patch(FancyArrowPatch((middle + offsets[home[source]], 1.6),
                                     (middle + offsets[goal[destination]], 3.6),
                                     arrowstyle="-|>", mutation_scale=14, color="#b2182b",
                                     linewidth=1.5, shrinkA=0, shrinkB=0))
        ax.text(middle + (offsets[home[source]] + offsets[goal[destination]]) / 2 + 0.08, 2.6,
                f"{source}→{destination}", va="center", color="#b2182b", fontsize=10)
    finish(fig, ax, "switching", folder, 11.2, 4.6)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("folder", nargs="?", type=pathlib.Path, default=HERE,
                        help="where the pictures go (default: next to this file)")
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    data = json.loads((HERE / "sharding.json").read_text())
    annotation(data["annotation"], folder)
    deduction(data["deduction"], folder)
    resolution(data["resolution"], folder)
    switching(data["switching"], folder)


if __name__ == "__main__":
    main()
