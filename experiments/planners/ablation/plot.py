#!/usr/bin/python3
"""What the Orrery planner loses without a kind of move, and gains by other planners' plans: draws
the times of each variant over the mean of the whole search from its own seeds, seed by seed, and
writes table.md."""

import statistics
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "experiments"))
import style  # noqa: E402
from style import plt  # noqa: E402

WHOLE = "all moves, own seeds"
MARKERS = ["o", "s", "^"]


def variant(row):
    """In words, from the planner's options."""
    options = dict(word.split("=", 1) for word in row["planner_options"].split())
    if "without" in options:
        return f"without {options['without']}"
    return WHOLE if options["seeds"] == "own" else "and quick planners' plans"


def percent(ratio):
    """Of change, signed, with one digit, and never -0.0."""
    return f"{round(100 * (ratio - 1), 1) + 0:+.1f} %"


class Ablation:
    def __init__(self, runs):
        self.times = {}  # (case, variant) -> seconds by seed
        self.shown = {}  # case -> cluster, model
        for row in style.read(runs):
            if row["status"] != "ok":
                raise SystemExit(f"{row['case']}, {row['planner_options']}: {row['status']}")
            self.times.setdefault((row["case"], variant(row)), []).append(
                float(row["iteration_time_s"]))
            self.shown[row["case"]] = (row["cluster"], row["model"])
        self.cases = list(self.shown)
        self.variants = list(dict.fromkeys(key[1] for key in self.times))

    def over(self, case, name):
        """Times over the mean of the whole search, by seed."""
        reference = statistics.mean(self.times[case, WHOLE])
        return [time / reference for time in self.times[case, name]]

    def mean(self, name):
        """Over clusters and seeds."""
        return statistics.mean(ratio for case in self.cases for ratio in self.over(case, name))

    def text(self):
        head = ["search", *(f"`{cluster}`, {model}" for cluster, model in self.shown.values()),
                "mean"]
        rows = []
        for name in self.variants:
            cells = []
            for case in self.cases:
                times = self.times[case, name]
                change = percent(statistics.mean(self.over(case, name)))
                spread = f"{min(times):.4g} to {max(times):.4g} s"
                cells.append(f"{statistics.mean(times):.4g} s" if name == WHOLE
                             else f"{change} ({spread})")
            rows.append([name, *cells, "" if name == WHOLE else percent(self.mean(name))])
        return style.markdown(head, rows)


def draw(found, out):
    style.use()
    figure, axes = plt.subplots(figsize=(style.PAGE, 2.6))
    order = sorted(found.variants, key=lambda name: (name != WHOLE, -found.mean(name)))
    for place, name in enumerate(order):
        for number, case in enumerate(found.cases):
            ratios = found.over(case, name)
            where = place + 0.2 * (number - (len(found.cases) - 1) / 2)
            axes.plot([where] * len(ratios), ratios, linestyle="none", marker=MARKERS[number],
                      markersize=3.5, color=style.COLORS[number], alpha=0.8)
        axes.plot([place - 0.35, place + 0.35], [found.mean(name)] * 2, color="#000000",
                  linewidth=1)
    axes.axhline(1, color="#808080", linewidth=0.6, linestyle="--")
    axes.set_xticks(range(len(order)), order, rotation=30, ha="right")
    axes.set_ylabel("Simulated time over\nthe whole search's mean")
    axes.grid(axis="y")
    handles = [plt.Line2D([], [], linestyle="none", marker=MARKERS[i], markersize=4,
                          color=style.COLORS[i], label=", ".join(found.shown[case]))
               for i, case in enumerate(found.cases)]
    handles.append(plt.Line2D([], [], color="#000000", linewidth=1, label="Mean"))
    axes.legend(handles=handles, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncol=4)
    style.save(figure, out, "ablation")


def main():
    arguments = style.arguments()
    found = Ablation(arguments.runs)
    Path(arguments.out).mkdir(parents=True, exist_ok=True)
    Path(arguments.out, "table.md").write_text(found.text(), encoding="utf-8")
    draw(found, arguments.out)


if __name__ == "__main__":
    main()
