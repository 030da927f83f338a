"""What Figures 6 and 7 of HetHub share: bars of a quantity for each pair, with the paper's values.
Draws runs.csv and published.csv; computes no model."""

import sys
from pathlib import Path

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import style  # noqa: E402

BARS = [("first", "first GPU alone", 0), ("second", "second GPU alone", 1),
        ("uniform", "both, uniform", 4), ("non-uniform", "both, non-uniform", 2),
        ("printed", "both, 28:4", 3)]
PAIRS = {1: "Pair 1\n8 AMD + 8 other", 2: "Pair 2\n8 AMD + 8 other", 3: "Pair 3\n8 NVIDIA + 8 other"}


def by_case(rows):
    return {row["case"]: row for row in rows if row["status"] == "ok"}


def layers(runs_csv, row):
    """'28:4': layers of the stages on the first and on the second node, from the plan that the run
    kept. Blocks 0 and 33 are embedding and head; devices of the first node have numbers below 8."""
    path = Path(runs_csv).parent / "runs" / row["run"] / "plan.yaml"
    with open(path, encoding="utf-8") as file:
        stages = yaml.safe_load(file)["pipelines"][0]["stages"]
    count = [0, 0]
    for stage in stages:
        for segment in stage["segments"]:
            ends = [int(part) for part in str(segment["blocks"]).split("-")]
            device = int(str(segment["groups"][0]["devices"][0]).split("-")[0])
            count[device >= 8] += min(ends[-1], 32) - max(ends[0], 1) + 1
    return count


def draw(axes, values, published, texts, label, lines=()):
    """Bars of `values`, {(pair, bar): number}; the paper's marks; `texts` above the bars, and above
    the line {pair: number} of `lines` where that would cut them."""
    lines = dict(lines)
    limit = 1.32 * max(values.values())
    axes.set_ylim(0, limit)
    point = limit / (72 * axes.get_position().height * axes.figure.get_figheight())
    for pair in PAIRS:
        bars = [bar for bar in BARS if (pair, bar[0]) in values]
        for place, (bar, name, color) in enumerate(bars):
            x = pair + (place - (len(bars) - 1) / 2) * 0.19
            value = values[(pair, bar)]
            axes.bar(x, value, 0.19, color=style.COLORS[color], hatch=style.HATCHES[color],
                     edgecolor="black", linewidth=0.5, label=name if pair == 1 else None)
            paper = published.get((pair, bar), "")
            top = value
            if isinstance(paper, float):
                axes.plot([x - 0.09, x + 0.09], [paper, paper], color="#B00000", linewidth=1.4,
                          label="paper" if (pair, bar) == (1, "first") else None)
                top = max(top, paper)
            line = lines.get(pair, 0)
            if top < line + 4 * point and line < top + (4 + 3.6 * len(texts[(pair, bar)])) * point:
                top = max(top, line)
            axes.annotate(texts[(pair, bar)], (x, top), xytext=(0.5, 2), rotation=90, fontsize=5.5,
                          textcoords="offset points", ha="center", va="bottom", zorder=6,
                          bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.2})
    axes.set_xticks(list(PAIRS), list(PAIRS.values()), fontsize=6.5)
    axes.set_ylabel(label)
    axes.grid(axis="y")
    style.legend_above(axes, 0.42, 2, last=("paper",))
