#!/usr/bin/python3
"""The Orrery planner beside the others: draws, for each cluster and both jobs, simulated times over
the proven lower bound, and writes table.md. Reads runs.csv and the notes of the Orrery planner's
runs, where its bound stands."""

import statistics
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "experiments"), str(ROOT / "experiments/planners")]
import over_bound  # noqa: E402
import style  # noqa: E402
from over_bound import OWN, lower_bound, percent, seconds  # noqa: E402
from style import plt  # noqa: E402

JOBS = {"full_recompute": "Full recompute, 1F1B", "any_recompute": "Any recompute and schedule"}
# What is compared, by job and by what the Orrery planner is allowed: share of the time of the best of
# the others that is the aim.
AIMS = {("full_recompute", "as_others"): 0.07, ("any_recompute", "as_others"): 0.07,
        ("any_recompute", "everything"): 0.15}
ALLOWED = {"as_others": "what plans of others have", "everything": "everything"}


def planner_of(row):
    """Its name; of the Orrery planner, what it is allowed."""
    if row["planner"] != OWN:
        return row["planner"]
    options = dict(word.split("=", 1) for word in row["planner_options"].split())
    return options["allowed"]


class Frontier:
    def __init__(self, runs):
        self.folder = Path(runs).parent
        self.rows = {(row["case"], row["allowed"], planner_of(row)): row
                     for row in style.read(runs)}
        self.cases = list(dict.fromkeys(key[0] for key in self.rows))
        planners = list(dict.fromkeys(key[2] for key in self.rows))
        self.others = [planner for planner in planners if planner not in ALLOWED]

    def time(self, case, job, planner):
        return seconds(self.rows.get((case, job, planner)))

    def best(self, case, job):
        """(seconds, planner) of the best of the others; None: none has a plan."""
        return min(((time, planner) for planner in self.others
                    if (time := self.time(case, job, planner))), default=None)

    def bound(self, case, job):
        """Seconds, from the notes of a run."""
        return lower_bound(self.folder, next(row for allowed in ALLOWED
                                             if (row := self.rows.get((case, job, allowed)))))

    def compared(self, job, allowed):
        """Cases that both sides have."""
        return [case for case in self.cases
                if self.time(case, job, allowed) and self.best(case, job)]

    def text(self):
        """A table for each job, and what is gained in each comparison."""
        text = ""
        for job, words in JOBS.items():
            columns = [allowed for of, allowed in AIMS if of == job]
            cases = [case for case in self.cases
                     if any(case in self.compared(job, allowed) for allowed in columns)]
            if not cases:
                continue
            head = ["cluster, model", "best of the others"]
            for allowed in columns:
                head += [f"Orrery, {ALLOWED[allowed]}", "difference"]
            head.append("best over the bound")
            text += f"**{words}**\n\n"
            text += style.markdown(head, [self.cells(case, job, columns) for case in cases]) + "\n"
            for allowed in columns:
                text += self.summary(job, allowed)
        return text

    def cells(self, case, job, columns):
        shown = next(row for key, row in self.rows.items() if key[0] == case)
        best, planner = self.best(case, job)
        cells = [f"`{shown['cluster']}`, {shown['model']}", f"{best:.4g} s (`{planner}`)"]
        own = [self.time(case, job, allowed) for allowed in columns]
        for time in own:
            cells += [f"{time:.4g} s", f"{percent(time / best - 1)} %"] if time else ["", ""]
        return cells + [f"{min(filter(None, own)) / self.bound(case, job):.2f}"]

    def summary(self, job, allowed):
        """What is gained over all cases, and where the bound leaves anything to gain."""
        pairs = [(1 - self.time(case, job, allowed) / self.best(case, job)[0],
                  1 - self.bound(case, job) / self.best(case, job)[0])
                 for case in self.compared(job, allowed)]
        if not pairs:
            return ""
        gains = [gain for gain, _ in pairs]
        aim = AIMS[job, allowed]
        words = (f"{JOBS[job]}, {ALLOWED[allowed]}: "
                 f"{percent(statistics.median(gains))} % less time in the "
                 f"median of {len(gains)}, {percent(min(gains))} to {percent(max(gains))} %; "
                 f"{100 * aim:.0f} % or more on {sum(gain >= aim for gain in gains)}, "
                 f"25 % on {sum(gain >= 0.25 for gain in gains)}.")
        room = [gain for gain, most in pairs if most >= aim]
        if room and len(room) < len(gains):
            words += (f" On {len(gains) - len(room)} no plan can take {100 * aim:.0f} % less, by the "
                      f"bound; on the other {len(room)} the median is "
                      f"{percent(statistics.median(room))} %.")
        return words + "\n\n"


# By what is allowed; None: another planner.
MARKS = {None: over_bound.OTHERS, "as_others": over_bound.OWN_LESS, "everything": over_bound.OWN_ALL}


def draw(found, out):
    style.use()
    cases = [case for case in found.cases
             if any(case in found.compared(*which) for which in AIMS)]
    figure, panels = plt.subplots(len(JOBS), 1, figsize=(style.PAGE, 4.4), sharex=True)
    for axes, (job, words) in zip(panels, JOBS.items()):
        for place, case in enumerate(cases):
            if not any(case in found.compared(*which) for which in AIMS if which[0] == job):
                continue
            bound = found.bound(case, job)
            for planner in found.others + list(ALLOWED):
                if time := found.time(case, job, planner):
                    own = planner in ALLOWED
                    axes.plot(place, time / bound, linestyle="none", clip_on=not own,
                              **MARKS[planner if own else None])
        over_bound.frame(axes, len(cases), [1, 2, 5, 10, 20, 50, 200])
        axes.set_title(words)
    panels[-1].set_xticks(range(len(cases)), cases, rotation=60, ha="right",
                           rotation_mode="anchor")
    panels[-1].tick_params(axis="x", labelsize=5.5)
    words = {"everything": "Orrery, everything", "as_others": "Orrery, what plans of others have",
             None: "Each of the others"}
    figure.legend(handles=over_bound.handles((MARKS[each], label) for each, label in words.items()),
                  loc="lower center", bbox_to_anchor=(0.5, 0.93), ncol=3)
    style.save(figure, out, "frontier")


def main():
    arguments = style.arguments()
    found = Frontier(arguments.runs)
    Path(arguments.out).mkdir(parents=True, exist_ok=True)
    Path(arguments.out, "table.md").write_text(found.text(), encoding="utf-8")
    draw(found, arguments.out)


if __name__ == "__main__":
    main()
