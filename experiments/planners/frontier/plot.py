#!/usr/bin/python3
"""The Orrery planner beside the others: draws, for each cluster and both jobs, simulated times over
the proven lower bound, and writes table.md. Reads runs.csv and the notes of the Orrery planner's
runs, where its bound stands."""

import re
import statistics
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "experiments"))
import style  # noqa: E402
from style import plt  # noqa: E402

OWN = "orrery"
JOBS = {"as_others": "only what the others were allowed", "everything": "everything allowed"}
AIM = {"as_others": 0.07, "everything": 0.15}  # of the time of the best of the others


def line(cells):
    return "| " + " | ".join(str(each).replace("|", "\\|") for each in cells) + " |"


def table(head, rows):
    return "\n".join([line(head), "|" + "---|" * len(head), *map(line, rows)])


def percent(share):
    """With one digit, and never -0.0."""
    return f"{round(100 * share, 1) + 0:.1f}"


def seconds(row):
    fits = row is not None and row["status"] == "ok" and str(row["fits"]).lower() == "true"
    return row["iteration_time_s"] if fits else None


class Frontier:
    def __init__(self, runs):
        self.folder = Path(runs).parent
        self.rows = {(row["case"], row["allowed"], row["planner"]): row
                     for row in style.read(runs)}
        self.cases = list(dict.fromkeys(key[0] for key in self.rows))
        self.planners = list(dict.fromkeys(key[2] for key in self.rows))

    def time(self, case, job, planner):
        return seconds(self.rows.get((case, job, planner)))

    def best(self, case, job):
        """(seconds, planner) of the best of the others."""
        return min((time, planner) for planner in self.planners if planner != OWN
                   and (time := self.time(case, job, planner)))

    def bound(self, case, job):
        """Seconds, from the notes of the run."""
        log = self.folder / "runs" / self.rows[case, job, OWN]["run"] / "log.txt"
        found = re.search(r"lower bound ([0-9.e+-]+) s", log.read_text(encoding="utf-8"))
        if not found:
            raise SystemExit(f"{log} has no lower bound")
        return float(found[1])

    def compared(self):
        """(case, job) that both sides have."""
        return [(case, job) for case in self.cases for job in JOBS
                if self.time(case, job, OWN)
                and any(self.time(case, job, other) for other in self.planners if other != OWN)]

    def text(self):
        rows = []
        for case in self.cases:
            cells = []
            for job in JOBS:
                if (case, job) not in self.compared():
                    cells += ["", "", "", ""]
                    continue
                own, (best, planner) = self.time(case, job, OWN), self.best(case, job)
                bound = self.bound(case, job)
                cells += [f"{best:.4g} s (`{planner}`)", f"{own:.4g} s",
                          f"{percent(own / best - 1)} %", f"{own / bound:.2f}"]
            shown = next(row for key, row in self.rows.items() if key[0] == case)
            rows.append([f"`{shown['cluster']}`, {shown['model']}", *cells])
        head = ["cluster, model"]
        for words in JOBS.values():
            head += [f"{words}: best of the others", "Orrery", "difference", "over the bound"]
        return table(head, rows) + "\n\n" + "".join(
            self.summary(job) for job in JOBS if any(which == job for _, which in self.compared()))

    def summary(self, job):
        """What is gained over all cases, and where the bound leaves anything to gain."""
        pairs = [(1 - self.time(case, job, OWN) / self.best(case, job)[0],
                  1 - self.bound(case, job) / self.best(case, job)[0])
                 for case, which in self.compared() if which == job]
        gains = [gain for gain, _ in pairs]
        aim = AIM[job]
        words = (f"{JOBS[job].capitalize()}: {percent(statistics.median(gains))} % less time in the "
                 f"median of {len(gains)}, {percent(min(gains))} to {percent(max(gains))} %; "
                 f"{100 * aim:.0f} % or more on {sum(gain >= aim for gain in gains)}, "
                 f"25 % on {sum(gain >= 0.25 for gain in gains)}.")
        room = [gain for gain, most in pairs if most >= aim]
        if room and len(room) < len(gains):
            words += (f" On {len(gains) - len(room)} no plan can take {100 * aim:.0f} % less, by the "
                      f"bound; on the other {len(room)} the median is "
                      f"{percent(statistics.median(room))} %.")
        return words + "\n\n"


def draw(found, out):
    style.use()
    compared = found.compared()
    cases = list(dict.fromkeys(case for case, _ in compared))
    figure, panels = plt.subplots(len(JOBS), 1, figsize=(style.PAGE, 4.4), sharex=True)
    for axes, (job, words) in zip(panels, JOBS.items()):
        for place, case in enumerate(cases):
            if (case, job) not in compared:
                continue
            bound = found.bound(case, job)
            for planner in found.planners:
                time = found.time(case, job, planner)
                if time is None:
                    continue
                own = planner == OWN
                axes.plot(place, time / bound, linestyle="none", marker="D" if own else "o",
                          markersize=3.2 if own else 2, zorder=3 if own else 2,
                          color=style.COLORS[1] if own else style.COLORS[0],
                          alpha=1 if own else 0.4, clip_on=not own)
        axes.set_yscale("log")
        axes.set_ylim(1, 200)
        axes.set_yticks([1, 2, 5, 10, 20, 50, 200], ["1", "2", "5", "10", "20", "50", "200"])
        axes.minorticks_off()
        axes.set_xlim(-0.7, len(cases) - 0.3)
        axes.set_title(words.capitalize())
        axes.set_ylabel("Time over the bound")
        axes.grid(axis="y")
    panels[-1].set_xticks(range(len(cases)), cases, rotation=60, ha="right",
                           rotation_mode="anchor")
    panels[-1].tick_params(axis="x", labelsize=5.5)
    handles = [plt.Line2D([], [], linestyle="none", marker="D", markersize=4,
                          color=style.COLORS[1], label="The Orrery planner"),
               plt.Line2D([], [], linestyle="none", marker="o", markersize=3,
                          color=style.COLORS[0], label="Each of the others")]
    figure.legend(handles=handles, loc="lower center", bbox_to_anchor=(0.5, 0.93), ncol=2)
    style.save(figure, out, "frontier")


def main():
    arguments = style.arguments()
    found = Frontier(arguments.runs)
    Path(arguments.out).mkdir(parents=True, exist_ok=True)
    Path(arguments.out, "table.md").write_text(found.text(), encoding="utf-8")
    draw(found, arguments.out)


if __name__ == "__main__":
    main()
