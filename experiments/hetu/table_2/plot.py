#!/usr/bin/python3
"""Volume that each rank sends over NVLink and InfiniBand from C1 to C2, by how the send-receive is
planned. Draws what the steps printed; sums only, computes no model."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
import style  # noqa: E402
from style import plt  # noqa: E402

GIB = 1 << 30
BYTES = {2: "fused_2_bytes", 6: "fused", 14: "fused_14_bytes"}  # that move for each parameter
VARIANTS = [("no_heuristics", "Unfused, no heuristics"), ("unfused", "Unfused"),
            ("fused_by_tensor", "Fused by tensor (ours)"), ("fused", "Fused (whole layers)")]
LINKS = [("nvlink", "NVLink", 4), ("network", "InfiniBand", 1)]
PAPER = {"no_heuristics": "Unfused BSR w/o Heuristics", "fused": "Fused BSR"}


def main():
    arguments = style.arguments()
    plans = {}
    for step, _ in VARIANTS:
        with open(style.step_output(arguments, step), encoding="utf-8") as file:
            plans[step] = json.load(file)
    swept = {}
    for size, step in BYTES.items():
        with open(style.step_output(arguments, step), encoding="utf-8") as file:
            swept[size] = json.load(file)
    sent = {step: {device["device"]: device["sent_bytes"] for device in plan["devices"]}
            for step, plan in plans.items()}
    ranks = sorted({rank for devices in sent.values() for rank, volumes in devices.items()
                    if sum(volumes.values())})
    places = []
    for number, rank in enumerate(ranks):  # a gap where ranks are left out
        places.append(places[-1] + (1 if rank == ranks[number - 1] + 1 else 2) if places else 0)
    style.use()
    figure, axes = plt.subplots(len(VARIANTS), 1, figsize=(style.COLUMN, 3.7), sharex=True,
                                sharey=True)
    for row, (step, title) in enumerate(VARIANTS):
        bottom = [0.0] * len(ranks)
        for link, label, color in LINKS:
            own = [sent[step].get(rank, {}).get(link, 0) / GIB for rank in ranks]
            axes[row].bar(places, own, 0.75, bottom=bottom,
                          color=style.COLORS[color], edgecolor="black", linewidth=0.5,
                          hatch="////" if link == "network" else "", label=label)
            bottom = [a + b for a, b in zip(bottom, own)]
        text = f"{title}: {plans[step]['simulated_seconds']:.3f} s"
        if step == "fused":
            text += " (" + "; ".join(f"{size} bytes: {plan['simulated_seconds']:.2f} s"
                                     for size, plan in swept.items() if size != 6) + ")"
        axes[row].set_title(text, fontsize=7, loc="left", pad=2)
        axes[row].set_ylim(0, 13)
        axes[row].grid(axis="y")
    axes[1].set_ylabel("Sent (GiB)")
    axes[-1].set_xticks(places, [("\n" if place % 2 else "") + str(rank)
                                  for place, rank in enumerate(ranks)], fontsize=5.5)
    for number, (one, other) in enumerate(zip(ranks, ranks[1:])):
        for panel in axes if other > one + 1 else []:  # ranks between them send nothing
            panel.annotate("//", ((places[number] + places[number + 1]) / 2, 0), fontsize=7,
                           xytext=(0, -0.5), textcoords="offset points", ha="center",
                           va="center", annotation_clip=False)
    axes[-1].set_xlabel("Rank that sends")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", bbox_to_anchor=(0.52, 0.93), ncols=2)
    figure.subplots_adjust(hspace=0.3)
    style.save(figure, arguments.out, "table_2")
    ours = {("all ranks", "volume"): sum(plans["fused"]["moved_bytes"].values()) / GIB}
    for size in (2, 14):
        ours[(f"all ranks, {size} bytes per parameter", "volume")] = \
            sum(swept[size]["moved_bytes"].values()) / GIB
    for step, name in PAPER.items():
        for rank in ranks:
            for link, label, _ in LINKS:
                value = sent[step].get(rank, {}).get(link, 0)
                if sum(sent[step].get(rank, {"none": 0}).values()):
                    # The paper's MB are thousandths of a GiB: its volumes sum up only so.
                    ours[(f"{name}, rank {rank}", f"{label} volume")] = value / GIB * 1000
    style.compare(arguments, ours)


if __name__ == "__main__":
    main()
