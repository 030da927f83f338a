#!/usr/bin/python3
"""Estimated utilization of the best plan by rounds: graph partition and random partition, 20
searches each. Draws runs.csv; computes means and ratios only."""

import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import bars  # noqa: E402
import style  # noqa: E402
from style import plt  # noqa: E402

PANELS = {"7b": ("Llama-2 7B, setting 1", "7B, setting 1"),
          "30b": ("Llama 30B, setting 3", "30B, setting 3")}
KINDS = {"graph": ("Graph partition", style.COLORS[0], "o", "-"),
         "random": ("Random partition", style.COLORS[5], "s", "--")}


def main():
    arguments = style.arguments()
    rows = style.finished(style.read(arguments.runs))

    def series(case, kind):
        """[(rounds, values over seeds)]"""
        result = {}
        for row in rows:
            if row["case"] == case and row["planner.options.partition"] == kind:
                result.setdefault(int(row["planner.options.rounds"]), []).append(bars.mfu(row))
        return sorted(result.items())
    ours = {}
    for case, (_, row) in PANELS.items():
        last = [statistics.mean(points[-1][1]) if (points := series(case, kind)) else None
                for kind in KINDS]
        ours[(row, "estimate of graph partition over random")] = \
            last[0] / last[1] if all(last) else None
    style.compare(arguments, ours)
    style.use()
    figure, panels = plt.subplots(1, 2, figsize=(style.COLUMN + 0.2, 1.7), sharey=True)
    for axes, (case, (title, _)) in zip(panels, PANELS.items()):
        for kind, (label, color, marker, line) in KINDS.items():
            points = series(case, kind)
            rounds = [r for r, _ in points]
            axes.plot(rounds, [statistics.mean(v) for _, v in points], line, color=color,
                      marker=marker, markersize=3, linewidth=1, label=label)
            axes.fill_between(rounds, [min(v) for _, v in points], [max(v) for _, v in points],
                              color=color, alpha=0.25, linewidth=0)
        axes.set_title(title, fontsize=7)
        axes.set_xlabel("Rounds")
        axes.set_ylim(bottom=0)
        axes.grid()
    panels[0].set_ylabel("Estimated MFU (%)")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="lower center",
                  bbox_to_anchor=(0.5, 0.98), ncols=2)
    style.save(figure, arguments.out, "figure_8")


if __name__ == "__main__":
    main()
