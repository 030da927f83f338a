#!/usr/bin/python3
"""Recovery times of AutoHet and Varuna by model size for each scenario and reading (first inputs of
the file), and the speed-up of all readings under other inputs. Draws what the step printed and
published.csv; ratios and means only, computes no model."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
import style  # noqa: E402
from style import plt  # noqa: E402

SYSTEMS = [("Varuna", "cloud only", "#E69F00", "////"),
           ("AutoHet", "own disk, peers, cloud", "#0072B2", "")]
SPEEDUP = "speed-up over Varuna"
MARKERS = ["o", "s", "^", "D"]


def readings(rows):
    """(scenario, reading) in the order of the file."""
    found = []
    for row in rows:
        key = (row["scenario"], row["reading"])
        if key not in found:
            found.append(key)
    return found


def short(reading):
    reading = reading.replace("two new nodes, 4 to 5 groups, running ones keep their state",
                              "4 to 5 groups,\nonly new one loads")
    return reading.replace("two of four groups are preempted", "4 to 2 groups,\n8 GPUs leave") \
        .replace("the A100 node is preempted", "A100 node lost,\nTP 2 to 4") \
        .replace("two new nodes, ", "new nodes,\n").replace("in the same nodes, ", "same nodes,\n")


def draw_times(axes, rows, key, base):
    own = [row for row in rows
           if (row["scenario"], row["reading"]) == key and row["variant"] == base]
    models = list(dict.fromkeys(row["model"] for row in own))
    for place, (system, label, color, hatch) in enumerate(SYSTEMS):
        part = [row for row in own if row["system"] == system]
        xs = [i + (place - 0.5) * 0.4 for i in range(len(part))]
        axes.bar(xs, [row["time_s"] for row in part], 0.4, color=color, hatch=hatch,
                 edgecolor="black", linewidth=0.5, label=f"{system} ({label})")
        if system == "AutoHet":
            for x, row in zip(xs, part):
                axes.annotate(f"{row['speedup']:.2f}x", (x, row["time_s"]), xytext=(0.5, 2),
                              textcoords="offset points", ha="center", va="bottom", fontsize=6,
                              rotation=90)
    axes.set_xticks(range(len(models)), models, rotation=60, fontsize=6.5)
    axes.set_title(f"{key[0]}: {short(key[1])}", fontsize=6.5)
    axes.grid(axis="y")


def draw_speedups(axes, rows, published):
    keys = readings(rows)
    variants = list(dict.fromkeys(row["variant"] for row in rows))
    for v, variant in enumerate(variants):
        for k, key in enumerate(keys):
            own = [row["speedup"] for row in rows
                   if (row["scenario"], row["reading"]) == key and row["variant"] == variant
                   and row["system"] == "AutoHet"]
            x = k + (v - (len(variants) - 1) / 2) * 0.17
            axes.plot([x, x], [min(own), max(own)], color=style.COLORS[v], linewidth=1)
            axes.plot(x, sum(own) / len(own), MARKERS[v], color=style.COLORS[v], markersize=4,
                      label="as inferred from A" if v == 0 and k == 0 else
                      variant if k == 0 else None)
    for k, key in enumerate(keys):
        value = next((row["value"] for row in published
                      if row["row"] == key[0] and row["quantity"] == SPEEDUP), "")
        if isinstance(value, float):
            axes.plot([k - 0.42, k + 0.42], [value, value], color="black", linewidth=1.2,
                      linestyle=(0, (4, 1.5)), label="paper" if k == 0 else None)
        else:
            axes.annotate("paper: withheld", (k, 0.965), xycoords=("data", "axes fraction"),
                          ha="center", va="top", fontsize=6, color="#606060")
    axes.set_xticks(range(len(keys)), [f"{s}: {short(r)}" for s, r in keys], fontsize=6.5)
    axes.set_xlim(-0.5, len(keys) - 0.5)
    axes.set_yscale("log")
    axes.set_ylim(1, 1.6 * axes.get_ylim()[1])
    axes.set_yticks([1, 2, 5, 10, 20], ["1", "2", "5", "10", "20"])
    axes.minorticks_off()
    axes.set_ylabel("Varuna / AutoHet")
    axes.grid(axis="y")
    style.legend_above(axes, 0.5, 5)


def values(rows, published):
    """Ours for published.csv: means over the sizes of the first reading of each scenario, and of
    the one in which running groups keep their state; what was an input is given back."""
    base = rows[0]["variant"]
    first = {}
    for scenario, reading in readings(rows):
        first.setdefault(scenario, reading)
        if "keep their state" in reading:
            first[f"{scenario}, running groups keep their state"] = reading

    def mean(scenario, reading):
        own = [row["speedup"] for row in rows
               if (row["scenario"], row["reading"], row["variant"], row["system"]) ==
               (scenario, reading, base, "AutoHet")]
        return sum(own) / len(own) if own else None

    found = {(row, SPEEDUP): mean(row[0], reading) for row, reading in first.items()}
    for row in published:
        if row["status"] == "input" and row["quantity"] != SPEEDUP:
            found[(row["row"], row["quantity"])] = row["value"]
        if row["quantity"] == "state":
            found[(row["row"], "state")] = next(
                (own["state_gb"] for own in rows if own["model"] == row["row"]), None)
    return found


def main():
    arguments = style.arguments()
    rows = style.read(style.step_output(arguments, "recovery"))
    published = style.read(arguments.published)
    style.use()
    keys = readings(rows)
    figure = plt.figure(figsize=(style.PAGE, 4.4))
    grid = figure.add_gridspec(2, 1, height_ratios=[1, 1], hspace=0.75)
    top = grid[0].subgridspec(1, len(keys), wspace=0.12)
    first = None
    for place, key in enumerate(keys):
        axes = figure.add_subplot(top[place], sharey=first)
        draw_times(axes, rows, key, rows[0]["variant"])
        if first is None:
            first = axes
            axes.set_ylabel("Recovery time (s)")
        else:
            axes.tick_params(labelleft=False)
    first.set_ylim(0, 1.08 * max(row["time_s"] for row in rows
                                 if row["variant"] == rows[0]["variant"]))
    handles, labels = first.get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", bbox_to_anchor=(0.5, 0.955), ncols=2)
    draw_speedups(figure.add_subplot(grid[1]), rows, published)
    style.save(figure, arguments.out, "recovery")
    style.compare(arguments, values(rows, published))


if __name__ == "__main__":
    main()
