#!/usr/bin/python3
"""Whether the Orrery planner's plans stay ahead on hardware that differs from what they were made
for: draws each planner's simulated time over the Orrery planner's, by hardware and cluster, and
writes table.md."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "experiments"))
import style  # noqa: E402
from style import plt  # noqa: E402

OWN = "orrery"


class Robustness:
    def __init__(self, runs):
        rows = style.read(style.table(runs, "robustness.csv"))
        self.times = {(row["cluster"], row["hardware"], row["planner"]): row["seconds"]
                      for row in rows}
        self.models = {row["cluster"]: row["model"] for row in rows}
        keys = list(self.times)
        self.clusters, self.hardware, self.planners = (list(dict.fromkeys(key[i] for key in keys))
                                                       for i in range(3))

    def others(self, cluster, hardware):
        """(time over the Orrery planner's, planner), best first."""
        own = self.times[cluster, hardware, OWN]
        return sorted((self.times[cluster, hardware, planner] / own, planner)
                      for planner in self.planners
                      if planner != OWN and (cluster, hardware, planner) in self.times)

    def text(self):
        rows = []
        for cluster in self.clusters:
            cells = []
            for hardware in self.hardware:
                over, planner = self.others(cluster, hardware)[0]
                own = self.times[cluster, hardware, OWN]
                cells.append(f"{own:.4g} s, {100 * (over - 1):+.1f} % (`{planner}`)")
            rows.append([f"`{cluster}`, {self.models[cluster]}", *cells])
        return style.markdown(["cluster, model", *self.hardware], rows)


def draw(found, out):
    style.use()
    figure, panels = plt.subplots(1, len(found.clusters), figsize=(style.PAGE, 2.5), sharey=True)
    names = [planner for planner in found.planners if planner != OWN]
    for axes, cluster in zip(panels, found.clusters):
        for place, hardware in enumerate(found.hardware):
            for over, planner in found.others(cluster, hardware):
                number = names.index(planner)
                axes.plot(place + 0.12 * (number - (len(names) - 1) / 2), over, linestyle="none",
                          marker="osv^D"[number], markersize=3.5, color=style.COLORS[number])
        axes.axhline(1, color="#000000", linewidth=0.8)
        axes.set_title(f"{cluster},\n{found.models[cluster]}", fontsize=7)
        axes.set_xticks(range(len(found.hardware)), found.hardware, rotation=40, ha="right")
        axes.grid(axis="y")
    panels[0].set_ylabel("Simulated time over\nthe Orrery planner's")
    handles = [plt.Line2D([], [], linestyle="none", marker="osv^D"[i], markersize=4,
                          color=style.COLORS[i], label=name) for i, name in enumerate(names)]
    figure.legend(handles=handles, loc="lower center", bbox_to_anchor=(0.5, 0.98), ncol=len(names))
    style.save(figure, out, "robustness")


def main():
    arguments = style.arguments()
    found = Robustness(arguments.runs)
    Path(arguments.out).mkdir(parents=True, exist_ok=True)
    Path(arguments.out, "table.md").write_text(found.text(), encoding="utf-8")
    draw(found, arguments.out)


if __name__ == "__main__":
    main()
