#!/usr/bin/python3
"""GPUs that are there over the days, stacked by GPU type, in the manner of AutoHet's Fig. 1.

    tools/scripts/plot_availability.py --runs curve.csv --out FOLDER

curve.csv is what `orrery trace stats TRACE --csv curve.csv` writes: time in seconds, GPU type, nodes
and GPUs that are there from then on. Writes availability.pdf and .png into FOLDER."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "experiments"))
import style  # noqa: E402
from style import plt  # noqa: E402

DAY = 86400
MOST_POINTS = 20_000  # of a curve; more than a figure can show


def curves(rows):
    """GPU types in order, and for each the points (time, GPUs)."""
    points = {}
    for row in rows:
        points.setdefault(str(row["gpu_type"]), []).append((row["time"], row["available"]))
    return points


def sample(points, times):
    """The step function at each time."""
    values = []
    at = 0
    for time in times:
        while at + 1 < len(points) and points[at + 1][0] <= time:
            at += 1
        values.append(points[at][1])
    return values


def unit_of(seconds):
    for name, length in (("days", DAY), ("hours", 3600)):
        if seconds >= 2 * length:
            return name, length
    return "minutes", 60


def draw(axes, points):
    times = sorted({time for curve in points.values() for time, _ in curve})
    step = -(-len(times) // MOST_POINTS)
    times = times[::step] + times[-1:] * (step > 1)
    name, length = unit_of(times[-1])
    scaled = [time / length for time in times]
    below = [0.0] * len(times)
    for i, (gpu_type, curve) in enumerate(points.items()):
        top = [a + b for a, b in zip(below, sample(curve, times))]
        axes.fill_between(scaled, below, top, step="post", linewidth=0, alpha=0.85,
                          color=style.COLORS[i % len(style.COLORS)], label=gpu_type)
        axes.step(scaled, top, where="post", color="black", linewidth=0.5)
        below = top
    axes.set_xlim(scaled[0], scaled[-1])
    axes.set_ylim(0, 1.05 * max(max(below), 1))
    axes.set_xlabel(f"Time ({name})")
    axes.set_ylabel("Available GPUs")
    axes.grid(axis="y")


def main():
    arguments = style.arguments()
    points = curves(style.read(arguments.runs))
    style.use()
    figure, axes = plt.subplots(figsize=(style.PAGE, 2.2))
    draw(axes, points)
    style.legend_above(axes, 0.5, min(4, len(points)))
    style.save(figure, arguments.out, "availability")


if __name__ == "__main__":
    main()
