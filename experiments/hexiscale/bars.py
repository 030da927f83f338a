"""Drawing that the figures of this paper share: groups of bars and stacked breakdowns."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import style  # noqa: E402

SYSTEMS = {  # key in names of cases: label, color, hatch
    "megatron": ("Megatron", style.COLORS[1], style.HATCHES[1]),
    "galvatron": ("Galvatron", style.COLORS[2], style.HATCHES[2]),
    "fsdp": ("FSDP", style.COLORS[3], style.HATCHES[3]),
    "metis": ("Metis", style.COLORS[4], style.HATCHES[4]),
    "hexiscale": ("HexiScale", style.COLORS[0], style.HATCHES[0]),
}
SETTINGS = {"ethernet": "A800 PCIe,\nEthernet", "rdma": "A800 PCIe,\nRDMA",
            "setting1": "Setting 1", "setting2": "Setting 2", "setting3": "Setting 3"}
OVER, MARKED = "\nover\nmemory", "#B00000"  # of plans that do not fit in memory
MODELS = {"7b": "Llama-2 7B", "13b": "Llama-2 13B", "30b": "Llama 30B"}


def by_case(rows):
    """Rows by case; rows without a plan are left out."""
    return {row["case"]: row for row in rows if row["status"] == "ok"}


def mfu(row):
    """The paper's MFU in per cent, which counts the recomputed forward pass; None without a row."""
    return None if row is None else 100 * row["hfu"]


def fits(row):
    """Whether the plan of a row fits in the memory of its GPUs; a row without a plan does."""
    return row is None or style.is_true(row["fits"])


def grouped(axes, labels, series, marks=None, digits=0, over=()):
    """Bars side by side in groups. `series`: [(label, color, hatch, values)], a value None
    reads "no plan", a missing bar is Ellipsis. `marks`: {(group, series): published value}. `over`:
    the (group, series) whose plans do not fit in memory, which the bar says."""
    labeled = set()
    marked = False
    for g in range(len(labels)):
        present = [s for s in range(len(series)) if series[s][3][g] is not Ellipsis]
        width = 0.84 / max(1, max(len([s for s in series if s[3][k] is not Ellipsis])
                                  for k in range(len(labels))))
        for place, s in enumerate(present):
            label, color, hatch, values = series[s]
            x = g + (place - (len(present) - 1) / 2) * width
            if values[g] is None:
                axes.text(x, 0, " no plan", rotation=90, ha="center", va="bottom", fontsize=6)
                continue
            axes.bar(x, values[g], width * 0.94, color=color, hatch=hatch, edgecolor="black",
                     linewidth=0.5, label=label if label not in labeled else None)
            labeled.add(label)
            top = values[g]
            if marks and (g, s) in marks:
                axes.plot(x, marks[(g, s)], linestyle="none", marker="D", markersize=3.5,
                          color="white", markeredgecolor="black", markeredgewidth=0.8,
                          label=None if marked else "Paper")
                marked = True
                top = max(top, marks[(g, s)] + 0.4)
            text = f"{values[g]:.{digits}f}" + (OVER if (g, s) in over else "")
            axes.annotate(text, (x, top), xytext=(0, 2), textcoords="offset points", ha="center",
                          va="bottom", fontsize=5.5, linespacing=0.95,
                          color=MARKED if (g, s) in over else "black")
    axes.set_xticks(range(len(labels)), labels)
    axes.grid(axis="y")
    axes.margins(y=0.1)


def breakdown(axes, bars, unit="Iteration time, mean over GPUs (s)"):
    """Stacked horizontal bars; `bars`: [(place, label, row)]."""
    left = [0.0] * len(bars)
    places = [place for place, _, _ in bars]
    for column, label, color, hatch in style.parts_of([row for _, _, row in bars]):
        values = [row[column] for _, _, row in bars]
        axes.barh(places, values, 0.8, left=left, color=color, hatch=hatch, edgecolor="black",
                  linewidth=0.5, label=label)
        left = [a + b for a, b in zip(left, values)]
    for (place, _, row), end in zip(bars, left):
        axes.annotate(f"{end:.1f}" + ("" if fits(row) else OVER), (end, place), xytext=(2, 0),
                      textcoords="offset points", va="center", fontsize=6, linespacing=0.95,
                      color="black" if fits(row) else MARKED)
    axes.set_yticks(places, [label for _, label, _ in bars], fontsize=6.5)
    axes.invert_yaxis()
    axes.margins(x=0.1)
    axes.set_xlabel(unit)
    axes.grid(axis="x")
