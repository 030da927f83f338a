#!/usr/bin/python3
"""Loss over steps and over time of a run that was executed, generation by generation.

    tools/scripts/plot_losses.py --runs DIR/losses.csv --out FOLDER [--reference OTHER/losses.csv]

losses.csv is what `orrery execute --out DIR` writes. The reference (the same run without failures) is
drawn as a thin line below. Writes losses.pdf and .png into FOLDER."""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "experiments"))
import style  # noqa: E402
from style import plt  # noqa: E402

MARKERS = "os^Dv"


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", required=True, help="losses.csv of the run")
    parser.add_argument("--reference", help="losses.csv of the run to compare with")
    parser.add_argument("--out", required=True, help="folder for the figures")
    return parser.parse_args()


def generations(rows):
    """Rows by generation, in order."""
    out = {}
    for row in rows:
        out.setdefault(int(row["generation"]), []).append(row)
    return sorted(out.items())


def end(row):
    return row["start_seconds"] + row["step_seconds"]


def draw_steps(axes, parts, reference):
    if reference:
        axes.plot([row["step"] for row in reference], [row["loss"] for row in reference],
                  color="black", linewidth=0.6, label="without failure")
    for i, (generation, rows) in enumerate(parts):
        axes.plot([row["step"] for row in rows], [row["loss"] for row in rows], linewidth=0,
                  marker=MARKERS[i % len(MARKERS)], markersize=3, markerfacecolor="none",
                  markeredgewidth=0.8, color=style.COLORS[i % len(style.COLORS)],
                  label=f"generation {generation}")
    for (_, before), (_, after) in zip(parts, parts[1:]):
        axes.axvline(before[-1]["step"] + 0.5, color="#D55E00", linestyle="--", linewidth=0.8)
        repeated = before[-1]["step"] - after[0]["step"] + 1
        text = f"{repeated:.0f} steps repeated" if repeated > 0 else "no finished step lost"
        axes.annotate(text, (before[-1]["step"] + 0.5, 1), xycoords=("data", "axes fraction"),
                      xytext=(3, -8), textcoords="offset points", fontsize=6)
    axes.set_xlabel("Step")
    axes.set_ylabel("Loss (nats per token)")


def draw_time(axes, parts):
    for i, (_, rows) in enumerate(parts):
        axes.plot([end(row) for row in rows], [row["loss"] for row in rows], linewidth=0.8,
                  marker=MARKERS[i % len(MARKERS)], markersize=2.5,
                  color=style.COLORS[i % len(style.COLORS)])
    for (_, before), (_, after) in zip(parts, parts[1:]):
        axes.axvspan(end(before[-1]), after[0]["start_seconds"], color="#D55E00", alpha=0.2,
                     linewidth=0)
        stall = after[0]["start_seconds"] - end(before[-1])
        axes.annotate(f"{stall:.2f} s", ((end(before[-1]) + after[0]["start_seconds"]) / 2, 1),
                      xycoords=("data", "axes fraction"), xytext=(0, -8),
                      textcoords="offset points", ha="center", fontsize=6)
    axes.set_xlabel("Time (s)")


def main():
    options = arguments()
    rows = style.read(options.runs)
    if not rows:
        sys.exit(f"{options.runs}: no steps")
    parts = generations(rows)
    style.use()
    figure, (left, right) = plt.subplots(1, 2, figsize=(style.PAGE, 2.2), sharey=True)
    draw_steps(left, parts, style.read(options.reference) if options.reference else [])
    draw_time(right, parts)
    for axes in (left, right):
        axes.grid(axis="y")
    style.legend_above(left, 0.5, len(parts) + bool(options.reference))
    style.save(figure, options.out, "losses")


if __name__ == "__main__":
    main()
