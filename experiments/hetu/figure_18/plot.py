#!/usr/bin/python3
"""Parts of a step of C1 and C2 on ranks 0 and 29, and time of the send-receive from C1 to C2. Draws
what the steps printed; differences only, computes no model."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
import style  # noqa: E402
from style import plt  # noqa: E402

PARTS = [("compute_seconds", "Compute", "#0072B2", ""),
         ("tensor_parallel_seconds", "AG and RS (tensor parallel)", "#56B4E9", "////"),
         ("transfer_seconds", "SR, BSR, AR, SplitAR", "#D55E00", "xxxx"),
         ("bubble_seconds", "Idle (bubble)", "#FFFFFF", "\\\\\\\\")]
RANKS = [("rank 0", 0, 0), ("rank 29", 1, 3)]  # name, pipeline, stage in C1 and in C2
VARIANTS = [("no_heuristics", "Unfused,\nno heuristics", "unfused without heuristics"),
            ("unfused", "Unfused", "unfused"), ("fused", "Fused", "fused")]


def load(arguments, step):
    with open(style.step_output(arguments, step), encoding="utf-8") as file:
        return json.load(file)


def main():
    arguments = style.arguments()
    style.use()
    figure, (left, right) = plt.subplots(1, 2, figsize=(style.COLUMN * 1.35, 2.0),
                                         gridspec_kw={"width_ratios": [1.25, 1], "wspace": 0.42})
    ours, labels = {}, []
    for configuration in ("C1", "C2"):
        stages = load(arguments, configuration.lower())["plans"][0]["stages"]
        for name, pipeline, stage in RANKS:
            own = next(one for one in stages
                       if (one["pipeline"], one["stage"]) == (pipeline, stage))
            bottom = 0.0
            for key, label, color, hatch in PARTS:
                left.bar(len(labels), own[key], 0.7, bottom=bottom, color=color, hatch=hatch,
                         edgecolor="black", linewidth=0.5, label=None if labels else label)
                bottom += own[key]
            ours[(f"{configuration}, {name}", "computation")] = own["compute_seconds"]
            ours[(f"{configuration}, {name}", "communication")] = \
                own["tensor_parallel_seconds"] + own["zero_seconds"] + own["transfer_seconds"]
            labels.append(f"{configuration}\n{name}")
    left.set_xticks(range(len(labels)), labels, fontsize=6)
    left.set_ylabel("Time in a step (s)")
    left.grid(axis="y")
    for place, (step, label, row) in enumerate(VARIANTS):
        time = load(arguments, step)["simulated_seconds"]
        right.bar(place, time, 0.6, color=style.COLORS[1], hatch=style.HATCHES[place],
                  edgecolor="black", linewidth=0.5)
        right.annotate(f"{time:.3f}", (place, time), xytext=(0, 2), ha="center",
                       textcoords="offset points", fontsize=6)
        ours[("C1 to C2", f"graph switching, {row}")] = time
    right.set_xticks(range(len(VARIANTS)), [label for _, label, _ in VARIANTS], fontsize=6)
    right.set_ylabel("Graph switching (s)")
    right.set_ylim(0, 1.15 * right.get_ylim()[1])
    right.grid(axis="y")
    handles, names = left.get_legend_handles_labels()
    figure.legend(handles, names, loc="lower center", bbox_to_anchor=(0.5, 0.92), ncols=2)
    style.save(figure, arguments.out, "figure_18")
    style.compare(arguments, ours)


if __name__ == "__main__":
    main()
