"""What the figures of AutoHet, section V-A share: throughput of the three systems, relative to
Megatron-LM, for each set of GPUs. Ratios and means of runs.csv; computes no model."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import style  # noqa: E402

# Planner: name, place in the palette. Full data parallelism is drawn where it has a plan.
SYSTEMS = {"deepspeed": ("Megatron-LM, full data parallelism", 3),
           "megatron_grid": ("Megatron-LM, best grid", 0), "whale": ("Whale", 1),
           "autohet": ("AutoHet", 2)}


def by_case(rows):
    """{case: {planner: tokens per second}} in the order of the file, without runs that found none."""
    found = {}
    for row in rows:
        cell = found.setdefault(row["case"], {})
        if row["status"] == "ok":
            cell[row["planner"]] = row["tokens_per_s"]
    return found


def mean_ratio(cases, over):
    """Mean over the cases of AutoHet / `over`; None where one of them has no plan."""
    ratios = [cell["autohet"] / cell[over] for cell in cases.values()
              if "autohet" in cell and over in cell]
    return sum(ratios) / len(ratios) if ratios and len(ratios) == len(cases) else None


def rate(tokens):
    return f"{tokens / 1000:.{1 if tokens < 99950 else 0}f}k"


def written(axes, x, text):
    """Text at the foot of a bar."""
    axes.annotate(text, (x, 0.05), ha="center", va="bottom", rotation=90, fontsize=5.5,
                  bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.3})


def legend(figure, axes, columns, y):
    """Legend above the figure, the paper's mark last."""
    handles, labels = axes.get_legend_handles_labels()
    order = sorted(range(len(labels)), key=lambda i: "paper" in labels[i])
    figure.legend([handles[i] for i in order], [labels[i] for i in order], loc="lower center",
                  bbox_to_anchor=(0.5, y), ncols=columns, columnspacing=1.2, handlelength=1.8)


def draw(axes, cases, label, title, published):
    """Bars relative to Megatron-LM's best grid, tokens per second inside; means, the paper's too."""
    systems = [planner for planner in SYSTEMS if any(planner in cell for cell in cases.values())]
    width = 0.82 / len(systems)
    x = len(cases) + 0.15
    for place, planner in enumerate(systems):
        name, color = SYSTEMS[planner]
        look = {"color": style.COLORS[color], "hatch": style.HATCHES[color],
                "edgecolor": "black", "linewidth": 0.5}
        shift = (place - (len(systems) - 1) / 2) * width
        ratios = []
        for at, cell in enumerate(cases.values()):
            if planner not in cell or "megatron_grid" not in cell:
                continue
            ratios.append(cell[planner] / cell["megatron_grid"])
            axes.bar(at + shift, ratios[-1], width, label=name if at == 0 else None, **look)
            written(axes, at + shift, rate(cell[planner]))
        mean = sum(ratios) / len(ratios)
        axes.bar(x + shift, mean, width, **look)
        written(axes, x + shift, f"{mean:.2f}")
    if published is not None:
        axes.plot([x + 0.43 - width, x + 0.43], [published] * 2, color="#B00000", linewidth=1.4,
                  label="AutoHet over Megatron-LM, paper")
        axes.annotate(f"{published:.2f}", (x + 0.46, published), xytext=(1, 0), fontsize=6,
                      textcoords="offset points", ha="left", va="center", color="#B00000")
    axes.axvline(len(cases) - 0.45, color="#808080", linewidth=0.5)
    axes.set_xticks(list(range(len(cases))) + [x], [label(case) for case in cases] + ["mean"])
    axes.set_xlim(-0.55, x + (0.95 if published is not None else 0.5))
    axes.set_title(title, pad=4)
    axes.grid(axis="y")
    axes.set_ylabel("Throughput\n(best grid = 1)")
