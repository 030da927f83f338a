#!/usr/bin/python3
"""Loss of throughput by asymmetric tensor parallelism, by model size and batch, with transposes
through tiles and element by element. Draws what the step printed; quotients only, no model."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
import style  # noqa: E402
from style import plt  # noqa: E402

KINDS = [("transpose_tiled_s", "Transposed through tiles"),
         ("transpose_by_element_s", "Element by element")]
SMALL = ["1.3B", "2.7B", "6.7B"]  # "models up to 10B parameters"


def loss(row, kind):
    """Per cent of the symmetric throughput that is lost."""
    return 100 * (1 - row["symmetric_s"] / (row["asymmetric_s"] + row[kind]))


def main():
    arguments = style.arguments()
    rows = style.read(style.step_output(arguments, "asymmetric_tp"))
    paper = {(row["row"], row["quantity"]): row["value"]
             for row in style.read(arguments.published)}
    models = list(dict.fromkeys(row["model"] for row in rows))
    batches = sorted({row["micro_batches"] for row in rows})
    style.use()
    figure, panels = plt.subplots(1, len(batches), figsize=(style.COLUMN, 1.8), sharey=True)
    for axes, batch in zip(panels, batches):
        for place, (kind, label) in enumerate(KINDS):
            own = [loss(row, kind) for row in rows if row["micro_batches"] == batch]
            axes.bar([i + (place - 0.5) * 0.4 for i in range(len(own))], own, 0.4,
                     color=style.COLORS[place], hatch=style.HATCHES[place], edgecolor="black",
                     linewidth=0.5, label=label)
        low = paper[("up to 10B", "least loss of throughput")]
        high = paper[("up to 10B", "largest loss of throughput")]
        axes.axhspan(low, high, xmax=0.75, color="#808080", alpha=0.25, linewidth=0,
                     label=f"Paper, up to 10B: {low:g} to {high:g} %")
        axes.set_yscale("log")
        axes.set_ylim(0.01, 100)
        axes.set_yticks([0.01, 0.1, 1, 10, 100], ["0.01", "0.1", "1", "10", "100"])
        axes.minorticks_off()
        axes.set_xticks(range(len(models)), models, rotation=60, fontsize=6.5)
        axes.set_title(f"{batch:.0f} sequence{'s' if batch > 1 else ''}\nper replica", fontsize=7)
        axes.grid(axis="y")
    panels[0].set_ylabel("Loss of throughput (%)")
    handles, labels = panels[0].get_legend_handles_labels()
    order = sorted(range(len(labels)), key=lambda i: "Paper" in labels[i])
    figure.legend([handles[i] for i in order], [labels[i] for i in order], loc="lower center",
                  bbox_to_anchor=(0.5, 1.05), ncols=2, columnspacing=1.0, handlelength=1.6)
    figure.subplots_adjust(wspace=0.1)
    style.save(figure, arguments.out, "figure_3")
    worst = [loss(row, "transpose_by_element_s") for row in rows if row["model"] in SMALL]
    style.compare(arguments, {("up to 10B", "least loss of throughput"): min(worst),
                              ("up to 10B", "largest loss of throughput"): max(worst)})


if __name__ == "__main__":
    main()
