#!/usr/bin/python3
"""HexiScale against the mixed-integer program under Appendix A, and its utilization under the model
of the public code. Draws runs.csv and the bounds that the program wrote into the logs of the runs;
computes ratios only."""

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import bars  # noqa: E402
import style  # noqa: E402
from style import plt  # noqa: E402

ROWS = {"7b_setting1": "7B, setting 1", "7b_setting2": "7B, setting 2",
        "13b_setting1": "13B, setting 1", "13b_setting2": "13B, setting 2",
        "30b_setting3": "30B, setting 3"}


BOUND = re.compile(r"no plan is faster than ([\d.e+-]+) s")


def bound_of(runs_csv, row):
    """Seconds below which the program excludes all plans; None without a run."""
    if row is None:
        return None
    log = (Path(runs_csv).parent / "runs" / row["run"] / "log.txt").read_text(encoding="utf-8")
    found = BOUND.search(log)
    return float(found.group(1)) if found else None


def main():
    arguments = style.arguments()
    cases = bars.by_case(style.finished(style.read(arguments.runs)))
    published = {row["row"]: row["value"] for row in style.read(arguments.published)
                 if row["quantity"] == "MFU of HexiScale" and isinstance(row["value"], float)}

    def time(key, kind):
        row = cases.get(f"{key}_{kind}")
        return row["iteration_time_s"] if row else None
    code = [bars.mfu(cases.get(f"{key}_code")) for key in ROWS]
    times = {kind: [time(key, kind) for key in ROWS] for kind in ("hexiscale", "milp")}
    ours = {(row, "MFU of HexiScale"): value for row, value in zip(ROWS.values(), code)}
    for row, search, program in zip(ROWS.values(), times["hexiscale"], times["milp"]):
        ours[(row, "time of HexiScale over MILP under Appendix A")] = \
            search / program if search and program else None
    bounds = [bound_of(arguments.runs, cases.get(f"{key}_begun")) for key in ROWS]
    for (key, row), bound in zip(ROWS.items(), bounds):
        begun = time(key, "begun")
        ours[(row, "gap of HexiScale's plan to the program's bound")] = (
            100 * (1 - bound / begun) if bound and begun else None)
    style.compare(arguments, ours)
    style.use()
    labels = [row.replace(", ", ",\n") for row in ROWS.values()]
    figure, (left, right) = plt.subplots(1, 2, figsize=(style.PAGE, 1.8), width_ratios=(1, 1.75))
    marks = {(g, 0): published[row] for g, row in enumerate(ROWS.values()) if row in published}
    bars.grouped(left, labels, [("HexiScale, public code", style.COLORS[0], "", code)],
                 marks, digits=1)
    left.set_ylabel("Simulated MFU (%)")
    left.set_xticks(range(len(labels)), [label.replace("setting", "set.") for label in labels])
    style.legend_above(left, 0.4, 2, last=("Paper",))
    bars.grouped(right, labels, [
        ("HexiScale", style.COLORS[0], "", times["hexiscale"]),
        ("Mixed-integer program", style.COLORS[1], "////", times["milp"]),
        ("Its lower bound", "white", "", bounds)], digits=1)
    right.set_ylabel("Iteration, Appendix A (s)")
    style.legend_above(right, 0.5, 3)
    figure.subplots_adjust(wspace=0.2)
    style.save(figure, arguments.out, "table_6")


if __name__ == "__main__":
    main()
