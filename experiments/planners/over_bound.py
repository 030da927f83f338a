"""Simulated times of plans over the lower bound that the Orrery planner proves: what the figures and
tables of studies share that compare it with the others."""

import re

import style
from style import plt

OWN = "orrery"

# Marks of the other planners' times, of the Orrery planner's, and of its times with less allowed.
OTHERS = {"marker": "o", "markersize": 2, "color": style.COLORS[0], "alpha": 0.4}
OWN_ALL = {"marker": "D", "markersize": 3.2, "color": style.COLORS[1], "zorder": 4}
OWN_LESS = {**OWN_ALL, "markerfacecolor": "white", "markeredgewidth": 0.8, "zorder": 3}


def percent(share):
    """With one digit, and never -0.0."""
    return f"{round(100 * share, 1) + 0:.1f}"


def seconds(row):
    """Of the plan of a row of runs.csv; None: it has none, or it does not fit."""
    fits = row is not None and row["status"] == "ok" and style.is_true(row["fits"])
    return row["iteration_time_s"] if fits else None


def lower_bound(folder, row):
    """Seconds, from the notes of a run of the Orrery planner in the `folder` of runs.csv."""
    log = folder / "runs" / row["run"] / "log.txt"
    found = re.search(r"lower bound ([0-9.e+-]+) s", log.read_text(encoding="utf-8"))
    if not found:
        raise SystemExit(f"{log} has no lower bound")
    return float(found[1])


def frame(axes, places, ticks):
    """Axes from the first to the last of `ticks` over the bound, with a place for each cluster."""
    axes.set_yscale("log")
    axes.set_ylim(ticks[0], ticks[-1])
    axes.set_yticks(ticks, list(map(str, ticks)))
    axes.minorticks_off()
    axes.set_xlim(-0.7, places - 0.3)
    axes.set_ylabel("Time over the bound")
    axes.grid(axis="y")


def handles(labeled):
    """Of a legend, from (mark, label)."""
    return [plt.Line2D([], [], linestyle="none", label=label, **mark) for mark, label in labeled]
