#!/usr/bin/python3
"""Every planner on every cluster: draws simulated times over the best and writes table.md for
docs/planners.md. Reads runs.csv, timings.csv (wall clock: other machines give other seconds) and
the distances from brute force that tests/planners/gap_test.cpp holds; ratios and medians only."""

import statistics
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "experiments"))
import style  # noqa: E402
from style import plt  # noqa: E402

FREE, NARROW = "[0, 1, 2, 3]", "[0]"
NOTICED = 1.01  # A plan is slower than another from here on.


def zero(row):
    return FREE if "1" in str(row["job.allowed.zero_stages"]) else NARROW


def times(row):
    """(simulated seconds of the judged plan, of the plan that the planner alone would return)."""
    if row["status"] != "ok":
        return None, None
    own = row["own_choice_s"]
    return row["iteration_time_s"], own if isinstance(own, float) else row["iteration_time_s"]


def seconds(value):
    return f"{value:.0f} s" if value >= 10 else f"{value:.1f} s"


class Table:
    def __init__(self, runs):
        timings = {row["run"]: row["planning_s"]
                   for row in style.read(Path(runs).parent / "timings.csv")}
        self.rows = {(row["case"], zero(row), row["planner"]): row for row in style.read(runs)}
        self.search = {key: timings.get(row["run"]) for key, row in self.rows.items()}
        self.clusters = list(dict.fromkeys(key[0] for key in self.rows))
        self.planners = list(dict.fromkeys(key[2] for key in self.rows))
        self.reasons = {}  # Of having no plan: a letter.

    def best(self, cluster):
        found = [times(self.rows[cluster, FREE, planner])[0] for planner in self.planners]
        return min((each for each in found if each), default=None)

    def over_best(self, cluster, planner):
        """Judged and alone, over the best of the cluster; None without a plan."""
        both = times(self.rows[cluster, FREE, planner])
        return None if both[0] is None else tuple(each / self.best(cluster) for each in both)

    def reason(self, row):
        name = str(row["reason"]).split(":")[0].strip() or str(row["status"])
        return self.reasons.setdefault(name, chr(ord("a") + len(self.reasons)))

    def cell(self, cluster, planner):
        found = self.over_best(cluster, planner)
        took = seconds(self.search[cluster, FREE, planner] or 0)
        if found is None:
            return f"no plan ({self.reason(self.rows[cluster, FREE, planner])}), {took}"
        judged, alone = found
        text = f"**{judged:.2f}**" if judged < 1.005 else f"{judged:.2f}"
        if alone > NOTICED * judged or alone < judged / NOTICED:
            text += f" ({alone:.2f})"
        return f"{text}, {took}"

    def by_cluster(self):
        rows = [[f"`{cluster}`, {self.rows[cluster, FREE, self.planners[0]]['model']}",
                 *(self.cell(cluster, planner) for planner in self.planners)]
                for cluster in self.clusters]
        text = style.markdown(["cluster, model", *(f"`{each}`" for each in self.planners)], rows)
        return text + "\nNo plan: " + "; ".join(
            f"({letter}) {name}" for name, letter in self.reasons.items()) + "."

    def by_planner(self):
        rows = []
        for planner in self.planners:
            found = {cluster: self.over_best(cluster, planner) for cluster in self.clusters}
            found = {cluster: each for cluster, each in found.items() if each}
            took = {cluster: self.search[cluster, FREE, planner] or 0 for cluster in self.clusters}
            if not found:
                rows.append([f"`{planner}`", 0] + [""] * 6)
                continue
            worst = max(found, key=lambda each: found[each][0])
            slowest = max(took, key=took.get)
            judged = [int(self.rows[cluster, FREE, planner]["judged"]) for cluster in found]
            spread = f"{min(judged)}" if min(judged) == max(judged) \
                else f"{min(judged)} to {max(judged)}"
            rows.append([f"`{planner}`", len(found),
                         sum(judged_over < 1.005 for judged_over, _ in found.values()),
                         f"{statistics.median(each[0] for each in found.values()):.2f}",
                         f"{found[worst][0]:.2f} (`{worst}`)",
                         f"{statistics.median(each[1] for each in found.values()):.2f}", spread,
                         f"{seconds(statistics.median(took.values()))}; "
                         f"{seconds(took[slowest])} (`{slowest}`)"])
        return style.markdown(["planner", f"plans, of {len(self.clusters)} clusters",
                               "best or equal", "over the best: median", "worst", "alone: median",
                               "plans judged", "search: median; longest"], rows)

    def by_freedom(self):
        """Where ZeRO 0 to 3 gives a slower plan than ZeRO 0 alone."""
        rows = []
        for planner in self.planners:
            worse = {"judged": [], "alone": []}
            for cluster in self.clusters:
                free = times(self.rows[cluster, FREE, planner])
                narrow = times(self.rows.get((cluster, NARROW, planner), {"status": "not run"}))
                for how, after, before in zip(worse, free, narrow):
                    if after and before and after > NOTICED * before:
                        worse[how].append((after / before - 1, cluster))
            rows.append([f"`{planner}`", *(
                f"{len(found)}: " + ", ".join(f"`{cluster}` {100 * more:.0f} %"
                                              for more, cluster in sorted(found, reverse=True)[:3])
                + (", ..." if len(found) > 3 else "") if found else "none"
                for found in worse.values())])
        return style.markdown(["planner", "slower with eight plans judged", "slower alone"],
                              [row for row in rows if row[1:] != ["none", "none"]])


def distances():
    """Of tests/planners/gaps.golden, by planner and family."""
    rows = [each.split() for each in
            (ROOT / "tests/planners/gaps.golden").read_text(encoding="utf-8").splitlines()]
    shown = []
    for planner, family, problems, solved, outside, mean, most, _, alone in rows[1:]:
        solved = int(solved) - int(outside)
        shown.append([f"`{planner}`", family, problems, solved,
                      *(f"{float(each):.0f} %" if solved else "" for each in (mean, most, alone))])
    return style.markdown(["planner", "family", "problems", "compared", "mean distance", "largest",
                           "mean, alone"], shown)


def draw(found, out):
    style.use()
    figure, axes = plt.subplots(figsize=(style.PAGE, 2.6))
    for place, planner in enumerate(found.planners):
        for offset, which, color in ((-0.18, 0, style.COLORS[0]), (0.18, 1, style.COLORS[1])):
            over = [each[which] for cluster in found.clusters
                    if (each := found.over_best(cluster, planner))]
            axes.plot([place + offset] * len(over), over, linestyle="none", marker="o",
                      markersize=2.2, color=color, alpha=0.6)
            if over:
                axes.plot([place + offset - 0.14, place + offset + 0.14],
                          [statistics.median(over)] * 2, color="black", linewidth=1.2)
    axes.set_yscale("log")
    axes.set_yticks([1, 1.5, 2, 3, 5, 10], ["1", "1.5", "2", "3", "5", "10"])
    axes.minorticks_off()
    axes.set_xticks(range(len(found.planners)), found.planners, rotation=35, ha="right")
    axes.set_ylabel("Simulated time over the best")
    axes.grid(axis="y")
    handles = [plt.Line2D([], [], linestyle="none", marker="o", markersize=3, color=style.COLORS[0],
                          label="Eight plans judged"),
               plt.Line2D([], [], linestyle="none", marker="o", markersize=3, color=style.COLORS[1],
                          label="Alone"),
               plt.Line2D([], [], color="black", linewidth=1.2, label="Median of the clusters")]
    axes.legend(handles=handles, loc="lower center", bbox_to_anchor=(0.5, 1.01), ncols=3)
    style.save(figure, out, "clusters")


def main():
    arguments = style.arguments()
    found = Table(arguments.runs)
    parts = ["By planner:", found.by_planner(), "By cluster:", found.by_cluster(),
             "ZeRO 0 to 3 allowed against ZeRO 0 alone:", found.by_freedom(),
             "Distance from brute force on tiny problems (`tests/planners/gaps.golden`):",
             distances()]
    Path(arguments.out).mkdir(parents=True, exist_ok=True)
    Path(arguments.out, "table.md").write_text("\n\n".join(map(str.strip, parts)) + "\n",
                                               encoding="utf-8")
    draw(found, arguments.out)


if __name__ == "__main__":
    main()
