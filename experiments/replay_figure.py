"""What figures of replay studies share: GPU-hours by bucket, ETTR and goodput with confidence
intervals, dollars per million tokens, tokens over time. Draws runs.csv and the points.csv of its
runs; computes no model."""

import math
import os
import statistics

import style
from style import plt
from matplotlib.lines import Line2D

# Buckets of sim/replay/replay.h and what is outside of the plan: column, label, color, hatch.
BUCKETS = [
    ("productive", "Productive", "#0072B2", ""),
    ("degraded", "Degraded", "#56B4E9", "////"),
    ("rolled_back", "Rolled back", "#D55E00", ""),
    ("checkpoint", "Checkpoint", "#E69F00", "...."),
    ("detect", "Detect", "#F0E442", ""),
    ("decide", "Decide", "#CC79A7", "xxxx"),
    ("move_state", "Move state", "#009E73", ""),
    ("reinitialize", "Re-initialize", "#000000", ""),
    ("idle", "Idle", "#FFFFFF", "\\\\\\\\"),
    ("spare", "Spare", "#BBBBBB", ""),
    ("absent", "Absent", "#FFFFFF", "...."),
]

# What throughput is lost to (Loss of experiments/study/replay_ranking.h): label, color, hatch, and
# the columns whose share of the horizon it is; the plan's loss is what they leave over.
LOSSES = [
    ("Detection", "#F0E442", "", ("detect_ns",)),
    ("Restart", "#000000", "", ("decide_ns", "reinitialize_ns")),
    ("State", "#009E73", "", ("move_state_ns",)),
    ("Lost work", "#D55E00", "", ("rolled_back_ns",)),
    ("Saves", "#E69F00", "....", ("checkpoint_ns",)),
    ("Copies", "#CC79A7", "xxxx", ("background_ns",)),
    ("Spares", "#56B4E9", "////", ("degraded_ns", "idle_ns", "-background_ns")),
    ("Plan", "#0072B2", "", None),
]

# Two-sided 95 % quantiles of Student's t by degrees of freedom; beyond the table the normal one.
T95 = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
       2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
       2.052, 2.048, 2.045, 2.042]

NANOSECONDS_PER_HOUR = 3600e9


def half_width(values):
    """Half of the 95 % confidence interval of the mean; 0 for one value."""
    if len(values) < 2:
        return 0.0
    t = T95[len(values) - 2] if len(values) - 2 < len(T95) else 1.960
    return t * statistics.stdev(values) / math.sqrt(len(values))


def mean(rows, column):
    return statistics.mean(row[column] for row in rows)


def ranked(rows):
    """[(policy, its rows)], most tokens first."""
    policies = {}
    for row in rows:
        policies.setdefault(row["policy"], []).append(row)
    return sorted(policies.items(), key=lambda item: -mean(item[1], "tokens"))


def points(arguments, row):
    """Curve of one run: (hours, tokens, live GPUs)."""
    folder = os.path.join(os.path.dirname(arguments.runs), "runs", str(row["run"]))
    curve = style.read(os.path.join(folder, "points.csv"))
    return ([point["at_ns"] / NANOSECONDS_PER_HOUR for point in curve],
            [point["tokens"] for point in curve], [point["live"] for point in curve])


def draw_hours(axes, policies):
    """Stacked bars, share of all GPU-hours of the cluster."""
    for y, (_, rows) in enumerate(policies):
        total = sum(mean(rows, f"gpu_hours.{bucket}") for bucket, _, _, _ in BUCKETS)
        left = 0.0
        for bucket, label, color, hatch in BUCKETS:
            share = 100 * mean(rows, f"gpu_hours.{bucket}") / total if total > 0 else 0
            axes.barh(y, share, 0.74, left=left, color=color, hatch=hatch, edgecolor="black",
                      linewidth=0.3, label=label if y == 0 else None)
            left += share
    axes.set_yticks(range(len(policies)), [name.replace("_", " ") for name, _ in policies])
    axes.invert_yaxis()
    axes.set_xlim(0, 100)
    axes.set_xlabel("GPU-hours (%)")


def draw_interval(axes, y, values, most=math.inf, **look):
    """Mean and confidence interval, which ends at what the values can be at most."""
    center, half = statistics.mean(values), half_width(values)
    right = max(min(half, most - center), 0)
    axes.errorbar(center, y, xerr=[[half], [right]], linewidth=0.8, capsize=2, color="black", **look)


def limit(axes, means, highest=math.inf):
    """Room for the means and a margin; wider intervals extend beyond the frame."""
    margin = 0.3 * (max(means) - min(means)) or 0.1 * max(means) or 1
    axes.set_xlim(max(min(means) - margin, 0), min(max(means) + margin, highest))


def draw_ratios(axes, policies):
    """ETTR, and goodput a little below it."""
    for y, (_, rows) in enumerate(policies):
        draw_interval(axes, y - 0.15, [100 * row["ettr"] for row in rows], 100, fmt="o",
                      markersize=3.5, label="ETTR" if y == 0 else None)
        draw_interval(axes, y + 0.15, [100 * row["goodput"] for row in rows], 100, fmt="D",
                      markersize=3.2, markerfacecolor="white", label="Goodput" if y == 0 else None)
    axes.set_xlabel("Share (%)")
    limit(axes, [100 * mean(rows, column) for _, rows in policies for column in ("ettr", "goodput")],
          101)
    axes.grid(axis="x")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.01), ncols=2, handletextpad=0.2,
                columnspacing=0.8)


def draw_dollars(axes, policies):
    """Per million tokens that count; nothing where a GPU type has no price."""
    means = []
    for y, (_, rows) in enumerate(policies):
        values = [row["dollars_per_million_tokens"] for row in rows
                  if isinstance(row.get("dollars_per_million_tokens"), (int, float))]
        if values:
            draw_interval(axes, y, values, fmt="s", markersize=3.2)
            means.append(statistics.mean(values))
    if means:
        limit(axes, means)
    axes.set_xlabel("$ per M tokens")
    axes.grid(axis="x")


def unit_of(tokens):
    for scale, name in ((1e12, "trillion"), (1e9, "billion"), (1e6, "million")):
        if tokens >= scale:
            return scale, name
    return 1, ""


def draw_tokens(axes, arguments, policies):
    """One seed, the first: policies see the same trace. Behind them the GPUs that are there."""
    seed = min(row["seed"] for _, rows in policies for row in rows)
    curves = []
    for name, rows in policies:
        row = next(row for row in rows if row["seed"] == seed)
        curves.append((name, points(arguments, row)))
    scale, unit = unit_of(max(max(tokens) for _, (_, tokens, _) in curves))
    live = axes.twinx()
    hours, _, gpus = max((curve for _, curve in curves), key=lambda curve: len(curve[0]))
    step, time = (24, "Day") if max(hours) > 72 else (1, "Hour")
    live.fill_between([hour / step for hour in hours], gpus, step="post", color="#E8E8E8", linewidth=0)
    live.set_ylim(0, 1.05 * max(gpus))
    live.set_ylabel("GPUs there")
    live.spines["right"].set_visible(True)
    axes.set_zorder(live.get_zorder() + 1)
    axes.patch.set_visible(False)
    dashes = ["-", (0, (4, 1)), (0, (1, 1)), (0, (4, 1, 1, 1))]
    handles = []
    for place, (name, (times, tokens, _)) in enumerate(curves):
        look = {"color": style.COLORS[place % len(style.COLORS)],
                "linestyle": dashes[place // len(style.COLORS) % len(dashes)], "linewidth": 1.1}
        axes.plot([hour / step for hour in times], [count / scale for count in tokens], **look)
        handles.append(Line2D([], [], label=name.replace("_", " "), **look))
    axes.set_xlim(0, max(hours) / step)
    axes.set_ylim(bottom=0)
    axes.set_xlabel(f"{time} (seed {seed:.0f})")
    axes.set_ylabel(f"Tokens ({unit})")
    axes.legend(handles=handles, loc="center left", bbox_to_anchor=(1.14, 0.5), labelspacing=0.3,
                handlelength=2.4)


def losses(row, fastest):
    """Shares of what the fastest undisturbed plan would train, in the order of LOSSES."""
    parts = [sum((-1 if column[0] == "-" else 1) * row[column.lstrip("-")] for column in columns)
             / row["horizon_ns"] for _, _, _, columns in LOSSES if columns]
    return parts + [1 - row["tokens"] / (row["horizon_ns"] * 1e-9) / fastest - sum(parts)]


def draw_owed(arguments, rows, case, stem):
    """Why each is behind the first: losses less those of the first, stacked, with the interval of their
    sum over seeds."""
    policies = ranked([row for row in rows if row["case"] == case])
    if len(policies) < 2 or "background_ns" not in policies[0][1][0]:
        return
    fastest = max(row["tokens"] / row["iterations"] / row["reference_s"]
                  for _, each in policies for row in each if row["iterations"] > 0)
    first = {row["seed"]: losses(row, fastest) for row in policies[0][1]}
    figure, axes = plt.subplots(figsize=(style.PAGE, 0.9 + 0.19 * len(policies)))
    for y, (_, own) in enumerate(policies):
        behind = [[100 * (a - b) for a, b in zip(losses(row, fastest), first[row["seed"]])]
                  for row in own if row["seed"] in first]
        if not behind:
            continue
        right = left = 0.0
        for place, (label, color, hatch, _) in enumerate(LOSSES):
            width = statistics.mean(parts[place] for parts in behind)
            axes.barh(y, width, 0.74, left=right if width > 0 else left, color=color, hatch=hatch,
                      edgecolor="black", linewidth=0.3, label=label if y == 0 else None)
            right, left = right + max(width, 0), left + min(width, 0)
        draw_interval(axes, y, [sum(parts) for parts in behind], fmt="D", markersize=3,
                      markerfacecolor="white")
    axes.axvline(0, color="black", linewidth=0.6)
    axes.set_yticks(range(len(policies)), [name.replace("_", " ") for name, _ in policies])
    axes.invert_yaxis()
    axes.set_xlabel("Behind the first (% of the fastest undisturbed plan)")
    axes.grid(axis="x")
    axes.legend(loc="lower left", bbox_to_anchor=(-0.02, 1.01), ncols=len(LOSSES), handlelength=1.4,
                columnspacing=1.0)
    style.save(figure, arguments.out, stem)


def draw_case(arguments, rows, case, stem):
    """One figure for a case; nothing if none of its runs has a result."""
    policies = ranked([row for row in rows if row["case"] == case])
    if not policies:
        return
    tall = 0.19 * len(policies)
    figure = plt.figure(figsize=(style.PAGE, 2.6 + tall))
    grid = figure.add_gridspec(2, 3, height_ratios=[tall + 0.25, 1.5], width_ratios=[2.4, 1.1, 0.9],
                               hspace=0.42, wspace=0.14)
    hours = figure.add_subplot(grid[0, 0])
    draw_hours(hours, policies)
    for column, draw in ((1, draw_ratios), (2, draw_dollars)):
        axes = figure.add_subplot(grid[0, column], sharey=hours)
        draw(axes, policies)
        axes.tick_params(labelleft=False)
    handles, labels = hours.get_legend_handles_labels()
    hours.legend(handles, labels, loc="lower left", bbox_to_anchor=(-0.02, 1.01), ncols=4,
                 handlelength=1.4, columnspacing=1.0)
    below = grid[1, :].subgridspec(1, 2, width_ratios=[4.2, 1])
    draw_tokens(figure.add_subplot(below[0, 0]), arguments, policies)
    style.save(figure, arguments.out, stem)


def draw_cases():
    """main() of a study: a figure for each of its cases."""
    arguments = style.arguments()
    rows = style.finished(style.read(arguments.runs))
    style.use()
    cases = []
    for row in rows:
        if row["case"] not in cases:
            cases.append(row["case"])
    for case in cases:
        draw_case(arguments, rows, case, str(case))
        draw_owed(arguments, rows, case, f"{case}_owed")
