#!/usr/bin/python3
"""The Orrery planner with groups that share experts and without, beside the other planners: draws
simulated times over the proven lower bound and writes table.md."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "experiments"), str(ROOT / "experiments/planners")]
import over_bound  # noqa: E402
import style  # noqa: E402
from over_bound import OWN, lower_bound, percent, seconds  # noqa: E402
from style import plt  # noqa: E402


class Case:
    """The plans for a cluster and its model: of the others, best first, as (seconds, planner), and
    of the Orrery planner without shared experts and with them."""

    def __init__(self, rows, folder):
        self.cluster, self.model = rows[0]["cluster"], rows[0]["model"]
        self.others = sorted((time, row["planner"]) for row in rows
                             if row["planner"] != OWN and (time := seconds(row)))
        own = {"without=experts" in row["planner_options"]: row
               for row in rows if row["planner"] == OWN}
        self.unshared, self.shared = (seconds(own.get(without)) for without in (True, False))
        self.bound = lower_bound(folder, own[False]) if self.shared else None

    def is_complete(self):
        return bool(self.others and self.unshared and self.shared)

    def cells(self):
        best, planner = self.others[0]
        return [f"`{self.cluster}`, {self.model}", f"{best:.4g} s (`{planner}`)",
                f"{self.unshared:.4g} s", f"{percent(self.unshared / best - 1)} %",
                f"{self.shared:.4g} s", f"{percent(self.shared / best - 1)} %",
                f"{self.shared / self.bound:.2f}"]


def draw(cases, out):
    style.use()
    figure, axes = plt.subplots(figsize=(style.COLUMN, 2.2))
    for place, case in enumerate(cases):
        for times, mark in (([time for time, _ in case.others], over_bound.OTHERS),
                            ([case.unshared], over_bound.OWN_LESS),
                            ([case.shared], over_bound.OWN_ALL)):
            for time in times:
                axes.plot(place, time / case.bound, linestyle="none", **mark)
    over_bound.frame(axes, len(cases), [1, 2, 5, 10, 20])
    axes.set_xticks(range(len(cases)), [f"{case.cluster},\n{case.model}" for case in cases],
                    rotation=40, ha="right", rotation_mode="anchor", fontsize=5.5)
    axes.legend(handles=over_bound.handles((
        (over_bound.OTHERS, "Each of the others"), (over_bound.OWN_LESS, "Orrery, no shared experts"),
        (over_bound.OWN_ALL, "Orrery"))), loc="lower center", bbox_to_anchor=(0.45, 1.01), ncols=3,
        handletextpad=0.3, columnspacing=1.0)
    style.save(figure, out, "experts")


def main():
    arguments = style.arguments()
    rows = style.read(arguments.runs)
    cases = [case for name in dict.fromkeys(row["case"] for row in rows)
             if (case := Case([row for row in rows if row["case"] == name],
                              Path(arguments.runs).parent)).is_complete()]
    Path(arguments.out).mkdir(parents=True, exist_ok=True)
    head = ["cluster, model", "best of the others", "Orrery, no shared experts", "difference",
            "Orrery", "difference", "over the bound"]
    Path(arguments.out, "table.md").write_text(
        style.markdown(head, [case.cells() for case in cases]), encoding="utf-8")
    draw(cases, arguments.out)


if __name__ == "__main__":
    main()
