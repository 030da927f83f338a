#!/usr/bin/python3
"""Fits of a calibration: a panel for each, figures by kind, and one figure of all their errors.
Entries with one measurement have no fit to draw: one figure shows their repetitions.

    calibration/plot_fits.py --runs fits.csv --out FOLDER [--only link]

fits.csv is what points_csv() of calibration/fit writes: entry, kind, x_name, x, x_unit, y_name,
measured, fitted, curve, y_unit, held_out, repetition. A panel shows measured medians over the fit;
samples that the fit did not see are squares, and the error of theirs (else of the fit) stands in the
panel. Writes fit_KIND.pdf and .png (fit_KIND_2 ... where there are many), repetitions.pdf and .png
(repetitions_2 ...), and errors.pdf and .png, which has no entries with one measurement."""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "experiments"))
import style  # noqa: E402
from style import plt  # noqa: E402

from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter  # noqa: E402

FITTED, SEEN, HELD_OUT = "#000000", "#0072B2", "#D55E00"
COLUMNS, ROWS = 3, 4  # panels of a figure
LINES = 50  # entries of a figure with a line for each
FAR = 50  # percent off the median; repetitions beyond it are named at the edge
PREFIXES = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1, ""), (1e-3, "m"), (1e-6, "µ"),
            (1e-9, "n")]
BYTES = [(2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B")]


def arguments():
    parser = argparse.ArgumentParser(description="Figures of the fits of a calibration.")
    parser.add_argument("--runs", required=True, help="fits.csv of a calibration")
    parser.add_argument("--published", help="ignored: nothing was published about this machine")
    parser.add_argument("--out", required=True, help="folder for the figures")
    parser.add_argument("--only", help="entries of this kind only: link, block, gemm, ...")
    return parser.parse_args()


def entries(rows):
    """Points by entry, in the order of the file, each in the order of x."""
    out = {}
    for row in rows:
        out.setdefault((row["kind"], str(row["entry"])), []).append(row)
    return [(kind, name, sorted(points, key=lambda row: row["x"]))
            for (kind, name), points in out.items()]


def scale(values, unit):
    """Factor and unit in which the values between smallest and largest read well."""
    middle = (max(min(values), 0) * max(values)) ** 0.5
    if unit == "" or middle <= 0:
        return 1, unit
    table = BYTES if unit == "B" else [(size, prefix + unit) for size, prefix in PREFIXES]
    for size, name in table:
        if middle >= size:
            return size, name
    return table[-1]


def short(x, unit):
    """A number on a tick: 64 Ki, 1 M."""
    table = [(2**30, "Gi"), (2**20, "Mi"), (2**10, "Ki")] if unit == "B" else PREFIXES[:4]
    for size, name in table:
        if abs(x) >= size:
            return f"{x / size:g} {name}"
    return f"{x:g}"


def wide(values):
    """Whether a logarithmic axis shows them better."""
    return min(values) > 0 and max(values) > 20 * min(values)


def error(row):
    return 100 * (row["fitted"] / row["measured"] - 1)


def label(name, unit):
    text = (name or "sample").capitalize()
    return f"{text} ({unit})" if unit else text


def set_x(axes, points):
    xs = [row["x"] for row in points]
    unit = points[0]["x_unit"]
    if not wide(xs):
        axes.xaxis.set_major_locator(MaxNLocator(integer=not unit, nbins=6))
        if max(xs) >= 1e4:
            axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: short(x, unit)))
        return
    base = 2 if unit == "B" else 10
    axes.set_xscale("log", base=base)
    if unit == "B":
        ticks, step = [], 1
        while step <= max(xs):
            if step >= min(xs) / 2:
                ticks.append(step)
            step *= 32
        axes.set_xticks(ticks)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: short(x, unit)))
    axes.xaxis.set_minor_formatter(NullFormatter())


def errors(points):
    """Relative errors in percent of what was held out, else of the fit; and whether held out."""
    held = [abs(error(row)) for row in points if row["held_out"] == 1]
    return (held or [abs(error(row)) for row in points]), bool(held)


def draw_panel(axes, name, points):
    factor, unit = scale([row["measured"] for row in points], points[0]["y_unit"])
    axes.plot([row["x"] for row in points], [row["curve"] / factor for row in points],
              color=FITTED, linewidth=0.8, zorder=1)
    for held, color, marker in ((0, SEEN, "o"), (1, HELD_OUT, "s")):
        rows = [row for row in points if row["held_out"] == held]
        axes.plot([row["x"] for row in rows], [row["measured"] / factor for row in rows],
                  linewidth=0, marker=marker, markersize=2.8, markerfacecolor="none",
                  markeredgewidth=0.8, color=color)
    if wide([row["measured"] for row in points]):
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
    else:
        axes.set_ylim(0, 1.15 * max(max(row["measured"], row["curve"]) for row in points) / factor)
    set_x(axes, points)
    axes.set_ylabel(label(points[0]["y_name"], unit), fontsize=6.5)
    axes.set_xlabel(label(points[0]["x_name"], points[0]["x_unit"]), fontsize=6.5)
    axes.tick_params(labelsize=6)
    found, held = errors(points)
    what = "held out" if held else "fit"
    axes.set_title(f"{wrapped(name)}\n{what}: {sum(found) / len(found):.1f} %, "
                   f"at most {max(found):.1f} %", fontsize=5.5, loc="left")
    axes.grid(True, which="major")


def legend_on_top(figure, handles, labels):
    """Arranges the figure with a line for the legend above everything else."""
    height = figure.get_size_inches()[1]
    figure.tight_layout(rect=(0, 0, 1, 1 - 0.22 / height), w_pad=1.2, h_pad=1.0)
    figure.legend(handles, labels, loc="upper center", ncols=len(labels),
                  bbox_to_anchor=(0.5, 1.0), borderaxespad=0)


def draw(stem, panels, folder):
    columns = min(COLUMNS, len(panels))
    rows = (len(panels) + columns - 1) // columns
    width = max(style.COLUMN, style.PAGE * columns / COLUMNS)
    figure, grid = plt.subplots(rows, columns, figsize=(width, 0.3 + 1.75 * rows),
                                squeeze=False)
    for axes in grid.flat[len(panels):]:
        axes.set_visible(False)
    for axes, (name, points) in zip(grid.flat, panels):
        draw_panel(axes, name, points)
    handles = [plt.Line2D([], [], color=FITTED, linewidth=0.8)]
    handles += [plt.Line2D([], [], color=color, marker=marker, linewidth=0, markersize=3.2,
                           markerfacecolor="none") for color, marker in ((SEEN, "o"), (HELD_OUT, "s"))]
    legend_on_top(figure, handles, ["fit", "measured", "measured, not seen by the fit"])
    style.save(figure, folder, stem)


def wrapped(name, width=44):
    """At most two lines, broken at a space."""
    if len(name) <= width:
        return name
    cut = name.rfind(" ", 0, width)
    return name[:cut] + "\n" + name[cut + 1:]


def draw_errors(all_entries, folder):
    """Mean and largest error of each entry; of very many the worst."""
    lines = []
    for _, name, points in all_entries:
        found, held = errors(points)
        lines.append((name, sum(found) / len(found), max(found), held))
    left_out = len(lines) - LINES
    if left_out > 0:
        lines = sorted(lines, key=lambda line: -line[1])[:LINES]
    figure, axes = plt.subplots(figsize=(style.PAGE, 0.9 + 0.14 * len(lines)))
    for i, (_, mean, largest, held) in enumerate(lines):
        color = HELD_OUT if held else SEEN
        axes.plot([mean, largest], [i, i], color=color, linewidth=0.8, zorder=1)
        axes.plot(mean, i, marker="o", markersize=3.2, color=color)
        axes.plot(largest, i, marker="|", markersize=5, color=color)
    handles = [plt.Line2D([], [], color=color, marker="o", markersize=3.2, linewidth=0.8)
               for color in (HELD_OUT, SEEN)]
    axes.set_yticks(range(len(lines)), [name for name, _, _, _ in lines], fontsize=5.5)
    axes.set_ylim(len(lines) - 0.4, -0.6)
    axes.set_xlim(left=0)
    more = f"; {left_out} better entries are left out" if left_out > 0 else ""
    axes.set_xlabel("Relative error (%)" + more)
    axes.grid(True, axis="x")
    legend_on_top(figure, handles, ["not seen by the fit: mean (dot) and largest (bar)",
                                    "of the fit"])
    style.save(figure, folder, "errors")


def draw_repetitions(stem, lines, folder):
    """A line for each entry with one measurement: its repetitions, relative to what the profile
    says, from the fastest to the slowest."""
    figure, axes = plt.subplots(figsize=(style.PAGE, 0.9 + 0.14 * len(lines)))
    for i, (_, points) in enumerate(lines):
        off = [100 * (row["measured"] / row["curve"] - 1) for row in points]
        near = [value for value in off if value <= FAR]
        far = [value for value in off if value > FAR]
        axes.plot([min(off), min(max(off), FAR)], [i, i], color=SEEN, linewidth=0.8, zorder=1)
        axes.plot(near, [i] * len(near), linewidth=0, marker="o", markersize=2.8, color=SEEN,
                  markerfacecolor="none", markeredgewidth=0.7)
        if far:
            axes.plot(FAR, i, marker=">", markersize=3.2, color=SEEN, clip_on=False)
            axes.annotate(", ".join(f"+{value:.0f} %" for value in sorted(far)[-2:]), (FAR, i),
                          xytext=(4, 0), textcoords="offset points", va="center", fontsize=5.5,
                          annotation_clip=False)
    axes.axvline(0, color=FITTED, linewidth=0.8, zorder=0)
    if max(row["measured"] / row["curve"] for _, points in lines for row in points) > 1 + FAR / 100:
        axes.set_xlim(right=FAR)
    labels = []
    for name, points in lines:
        factor, unit = scale([points[0]["curve"]], points[0]["y_unit"])
        labels.append(f"{name}: {points[0]['curve'] / factor:.3g} {unit}")
    axes.set_yticks(range(len(lines)), labels, fontsize=5.5)
    axes.set_ylim(len(lines) - 0.4, -0.6)
    axes.set_xlabel("Repetition against the profile, their median (%)")
    axes.grid(True, axis="x")
    handles = [plt.Line2D([], [], color=FITTED, linewidth=0.8),
               plt.Line2D([], [], color=SEEN, linewidth=0.8, marker="o", markersize=3.2,
                          markerfacecolor="none")]
    legend_on_top(figure, handles, ["profile", "repetitions, fastest to slowest"])
    style.save(figure, folder, stem)


def main():
    args = arguments()
    rows = style.read(args.runs)
    found = [entry for entry in entries(rows) if args.only in (None, entry[0])]
    if not found:
        sys.exit(f"{args.runs}: no points" + (f" of kind {args.only}" if args.only else ""))
    style.use()
    once = [(name, points) for _, name, points in found if points[0]["repetition"] == 1]
    found = [entry for entry in found if entry[2][0]["repetition"] != 1]
    pages = -(-len(once) // LINES)
    for page in range(pages):
        lines = once[len(once) * page // pages:len(once) * (page + 1) // pages]
        draw_repetitions("repetitions" if page == 0 else f"repetitions_{page + 1}", lines, args.out)
    kinds = {}
    for kind, name, points in found:
        kinds.setdefault(kind, []).append((name, points))
    for kind, panels in kinds.items():
        for page, first in enumerate(range(0, len(panels), COLUMNS * ROWS), start=1):
            stem = f"fit_{kind}" if page == 1 else f"fit_{kind}_{page}"
            draw(stem, panels[first:first + COLUMNS * ROWS], args.out)
    if found:
        draw_errors(found, args.out)


if __name__ == "__main__":
    main()
