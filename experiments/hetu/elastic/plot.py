#!/usr/bin/python3
"""Both elastic traces: step time of each configuration and time of each transition, by system; plans
that do not fit in memory are marked. Draws what the steps printed; computes no model."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
import style  # noqa: E402
from style import plt  # noqa: E402
from matplotlib.patches import Patch  # noqa: E402

SYSTEMS = ["DeepSpeed", "Megatron", "Oobleck", "Hetu"]
WIDTH = 0.2


def place(configuration, system):
    return configuration + (SYSTEMS.index(system) - (len(SYSTEMS) - 1) / 2) * WIDTH


def bar(axes, x, height, system, **more):
    number = SYSTEMS.index(system)
    axes.bar(x, height, WIDTH, color=style.COLORS[number], hatch=style.HATCHES[number],
             edgecolor="black", linewidth=0.5, **more)


def note(axes, x, y, text):
    axes.annotate(text, (x, y), xytext=(0, 1.5), textcoords="offset points", ha="center",
                  va="bottom", fontsize=5.5, rotation=90)


def of_system(rows, trace, system):
    return [row for row in rows if row["trace"] == trace and row["system"] == system]


def draw_steps(axes, rows, trace):
    names = []
    for system in SYSTEMS:
        for c, row in enumerate(of_system(rows, trace, system)):
            if len(names) <= c:
                names.append(f"{row['configuration']}\n" + row["devices"].replace(", ", ",\n"))
            x = place(c, system)
            if not isinstance(row["step_s"], float):
                note(axes, x, 0, "no plan")
                continue
            bar(axes, x, row["step_s"], system)
            text = f"{row['step_s']:.1f}" + ("" if row["fits"] == "yes" else " (too large)")
            note(axes, x, row["step_s"], text)
    axes.set_xticks(range(len(names)), names)
    axes.set_ylim(0, 1.2 * axes.get_ylim()[1])
    axes.set_title(f"{trace} cluster")
    axes.grid(axis="y")


def draw_transitions(axes, rows, trace):
    names = []
    for system in SYSTEMS:
        own = of_system(rows, trace, system)
        for c in range(1, len(own)):
            row = own[c]
            if len(names) < c:
                names.append(f"{own[c - 1]['configuration']} to {row['configuration']}")
            x = place(c - 1, system)
            if row["transition_s"] == 0:
                note(axes, x, 0, "none")
                continue
            bar(axes, x, row["fixed_s"], system)
            axes.bar(x, row["move_s"], WIDTH, bottom=row["fixed_s"], color="black", linewidth=0.5,
                     edgecolor="black")
            note(axes, x, row["transition_s"], f"{row['transition_s']:.1f}")
    axes.set_xticks(range(len(names)), names)
    axes.set_ylim(0, 1.2 * axes.get_ylim()[1])
    axes.grid(axis="y")


def values(arguments, rows):
    """Ours, for each row of published.csv."""
    ours = {}
    for row in rows:
        if row["system"] not in SYSTEMS:
            continue
        name = f"{row['configuration']}, {row['system']}"
        ours[(name, "step time")] = row["step_s"]
        if row["note"] != "start":
            ours[(name, "transition time")] = row["transition_s"]
        if name == "C2, Hetu":
            ours[(name, "graph specialization")] = row["fixed_s"]
    with open(style.step_output(arguments, "zero1"), encoding="utf-8") as file:
        zero1 = json.load(file)["plans"][0]["evaluation"]["iteration_seconds"]
    ours[("C4, Hetu", "growth of the step time without ZeRO-1")] = \
        100 * (ours[("C4, Hetu", "step time")] / zero1 - 1)
    return ours


def main():
    arguments = style.arguments()
    rows = style.read(style.step_output(arguments, "elastic"))
    style.use()
    traces = list(dict.fromkeys(row["trace"] for row in rows))
    counts = [len(of_system(rows, trace, SYSTEMS[0])) for trace in traces]
    figure, axes = plt.subplots(2, len(traces), figsize=(style.PAGE, 4.0), squeeze=False,
                                gridspec_kw={"width_ratios": counts, "hspace": 0.5,
                                             "wspace": 0.14})
    for column, trace in enumerate(traces):
        draw_steps(axes[0][column], rows, trace)
        draw_transitions(axes[1][column], rows, trace)
    axes[0][0].set_ylabel("Step time (s)")
    axes[1][0].set_ylabel("Transition (s)")
    handles = [Patch(facecolor=style.COLORS[i], hatch=style.HATCHES[i], edgecolor="black",
                     linewidth=0.5, label=system) for i, system in enumerate(SYSTEMS)]
    handles.append(Patch(color="black", label="of which moving state"))
    figure.legend(handles=handles, loc="lower center", bbox_to_anchor=(0.5, 0.95), ncols=5)
    style.save(figure, arguments.out, "elastic")
    style.compare(arguments, values(arguments, rows))


if __name__ == "__main__":
    main()
