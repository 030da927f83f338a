#!/usr/bin/python3
"""Time of the largest minibatch that fits on one GPU, relative to a V100. Draws runs.csv and
published.csv; ratios only, computes no model."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from systems import style  # noqa: E402

plt = style.plt
GPUS = [("v100.yaml", "V100", 2), ("t4.yaml", "T4", 1), ("p100.yaml", "P100", 0)]
MODELS = ["GPT-3", "MoE", "Wide-ResNet"]


def main():
    arguments = style.arguments()
    time = {}
    for row in style.finished(style.read(arguments.runs)):
        if row["micro_batches"] == f"1x{row['global_batch']:.0f}":  # no accumulation
            time[(row["case"], row["cluster"], row["global_batch"])] = row["iteration_time_s"]
    batch = {model: max(size for size in {key[2] for key in time if key[0] == model}
                        if all((model, gpu, size) in time for gpu, _, _ in GPUS))
             for model in MODELS}

    def relative(model, gpu):
        return time[(model, gpu, batch[model])] / time[(model, "v100.yaml", batch[model])]

    published = {(row["row"], row["quantity"]): row["value"]
                 for row in style.read(arguments.published)}
    style.use()
    figure, axes = plt.subplots(figsize=(style.COLUMN, 1.8))
    for place, (gpu, name, color) in enumerate(GPUS):
        for x, model in enumerate(MODELS):
            at, value = x + (place - 1) * 0.27, relative(model, gpu)
            axes.bar(at, value, 0.27, color=style.COLORS[color], hatch=style.HATCHES[color],
                     edgecolor="black", linewidth=0.5, label=name if x == 0 else None)
            axes.annotate(f"{value:.1f}", (at, value), xytext=(0, 2), textcoords="offset points",
                          ha="center", va="bottom", fontsize=6)
    paper = published[("GPT-3", "P100 / V100")]
    axes.plot([0.13, 0.41], [paper, paper], color="#B00000", linewidth=1.4, label="P100, paper")
    axes.annotate(f"{paper:g}", (0.43, paper), xytext=(1, 0), textcoords="offset points",
                  ha="left", va="center", fontsize=6, color="#B00000")
    axes.set_xticks(range(3), [f"{model}\nbatch {batch[model]:.0f}" for model in MODELS])
    axes.set_ylabel("Time of a minibatch\n(V100 = 1)")
    axes.margins(y=0.12)
    axes.grid(axis="y")
    style.legend_above(axes, 0.45, 4, last=("P100, paper",))
    style.save(figure, arguments.out, "figure_1")
    style.compare(arguments, {("GPT-3", "P100 / V100"): relative("GPT-3", "p100.yaml")})


if __name__ == "__main__":
    main()
