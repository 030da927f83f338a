#!/usr/bin/python3
"""Step times of all systems (mean, 10 % to 90 % of the steps, part that switches strategies), and
step by step for the 32K CommonCrawl-like case: the longest sequence, and HotSPa and Hetu-B.
Draws steps.csv and published.csv; computes no model."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
import style  # noqa: E402
from style import plt  # noqa: E402
from matplotlib.lines import Line2D  # noqa: E402
from matplotlib.patches import Patch  # noqa: E402

SYSTEMS = ["DeepSpeed", "Megatron", "HotSPa", "Hetu-A", "Hetu-B"]
LENGTHS = [("commoncrawl_like", "CommonCrawl-like"), ("github_like", "GitHub-like")]
STEP_BY_STEP = ("commoncrawl_like", 32768.0)
STEPS_SHOWN = 40


def case(rows, lengths, context, system):
    return [row for row in rows
            if (row["lengths"], row["context"], row["system"]) == (lengths, context, system)]


def quantile(values, share):
    return sorted(values)[int(share * (len(values) - 1) + 0.5)]


def draw_means(axes, rows, lengths, context):
    for x, system in enumerate(SYSTEMS):
        own = case(rows, lengths, context, system)
        if not own:
            axes.annotate("no plan\nfits", (x, 0), xytext=(0, 3), textcoords="offset points",
                          ha="center", fontsize=6)
            continue
        times = [row["step_s"] for row in own]
        mean = sum(times) / len(times)
        switching = sum(row["switch_s"] for row in own) / len(own)
        axes.bar(x, mean - switching, 0.72, color=style.COLORS[x], hatch=style.HATCHES[x],
                 edgecolor="black", linewidth=0.5)
        axes.bar(x, switching, 0.72, bottom=mean - switching, color="black", linewidth=0.5)
        low, high = quantile(times, 0.1), quantile(times, 0.9)
        axes.errorbar(x, mean, yerr=[[max(mean - low, 0)], [max(high - mean, 0)]], color="black",
                      linewidth=0.8, capsize=2)
        axes.annotate(f"{mean:.1f}", (x, high), xytext=(0, 2), textcoords="offset points",
                      ha="center", fontsize=6.5)
    axes.set_xticks(range(len(SYSTEMS)), SYSTEMS, rotation=40, ha="right",
                    rotation_mode="anchor")
    axes.set_ylim(0, 1.12 * axes.get_ylim()[1])
    axes.grid(axis="y")


def draw_steps(lengths_axes, times_axes, rows):
    lengths, context = STEP_BY_STEP
    for system in ("HotSPa", "Hetu-B"):
        own = case(rows, lengths, context, system)[:STEPS_SHOWN]
        color = style.COLORS[SYSTEMS.index(system)]
        times_axes.step([row["step"] for row in own], [row["step_s"] for row in own],
                        where="mid", color=color, label=system,
                        linestyle="-" if system == "Hetu-B" else (0, (3, 1)))
    own = case(rows, lengths, context, "Hetu-B")[:STEPS_SHOWN]
    # Strategies are numbered as in the file, ascending: the last one is the paper's Strategy 1.
    last = max((row["strategy"] for row in own), default=0)
    for strategy in sorted({row["strategy"] for row in own}):
        part = [row for row in own if row["strategy"] == strategy]
        long = strategy == last
        lengths_axes.bar([row["step"] for row in part], [row["longest"] / 1024 for row in part],
                         0.8, color="#D55E00" if long else "#56B4E9",
                         hatch="" if long else "////", edgecolor="black", linewidth=0.3,
                         label="Strategy 1 (long)" if long else "Strategy 2 (short)")
    lengths_axes.set_ylabel("Longest (K)")
    lengths_axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
    times_axes.set_ylabel("Step time (s)")
    times_axes.set_xlabel("Step (32K, CommonCrawl-like)")
    times_axes.set_ylim(bottom=0)
    times_axes.legend(loc="lower right", ncols=2, borderaxespad=0.2)
    times_axes.set_xlim(-0.8, STEPS_SHOWN - 0.2)
    figure_align(lengths_axes, times_axes)
    times_axes.grid(axis="y")


def figure_align(*axes):
    for one in axes:
        one.yaxis.set_label_coords(-0.055, 0.5)


def values(rows):
    """Ours, for each row of published.csv: means over the steps."""
    found = {}
    for row in rows:
        found.setdefault((row["case"], row["system"]), []).append(row)
    ours = {(f"{name}, {system}", "mean step time"):
            sum(row["step_s"] for row in own) / len(own) for (name, system), own in found.items()}
    own = found[("CommonCrawl-like 32K", "Hetu-B")]
    ours[("CommonCrawl-like 32K", "share of sequences under 8K")] = \
        100 * sum(row["share_under_8k"] * row["sequences"] for row in own) / \
        sum(row["sequences"] for row in own)
    return ours


def main():
    arguments = style.arguments()
    rows = style.read(arguments.runs)
    style.use()
    contexts = sorted({row["context"] for row in rows}, reverse=True)
    figure = plt.figure(figsize=(style.PAGE, 5.2))
    grid = figure.add_gridspec(2, 1, height_ratios=[1, 1.15], hspace=0.55)
    top = grid[0].subgridspec(1, len(LENGTHS) * len(contexts), wspace=0.3)
    place = 0
    for lengths, title in LENGTHS:
        for context in contexts:
            axes = figure.add_subplot(top[place])
            draw_means(axes, rows, lengths, context)
            axes.set_title(f"{title}\n{context / 1024:.0f}K context")
            if place == 0:
                axes.set_ylabel("Step time (s)")
            place += 1
    figure.legend(handles=[Patch(color="black", label="of which switching strategies (mean)"),
                           Line2D([], [], color="black", marker="_", linewidth=0.8,
                                  label="10 % to 90 % of the steps")],
                  loc="lower center", bbox_to_anchor=(0.5, 0.935), ncols=2)
    bottom = grid[1].subgridspec(2, 1, height_ratios=[1, 1.3], hspace=0.2)
    upper = figure.add_subplot(bottom[0])
    lower = figure.add_subplot(bottom[1], sharex=upper)
    upper.tick_params(labelbottom=False)
    draw_steps(upper, lower, rows)
    style.save(figure, arguments.out, "mixed_length")
    style.compare(arguments, values(rows))


if __name__ == "__main__":
    main()
