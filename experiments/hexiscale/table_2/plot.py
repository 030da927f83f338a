#!/usr/bin/python3
"""Our plan of Llama 30B in setting 3 against the nearest legal form of the printed one. Draws plans
of the runs; computes ratios only."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import plans  # noqa: E402
import style  # noqa: E402
from style import plt  # noqa: E402


def find(rows, case, cost):
    return next((row for row in rows if row["case"] == case and row["cost"] == cost), None)


def main():
    arguments = style.arguments()
    rows = style.finished(style.read(arguments.runs))
    ours = find(rows, "30b_setting3_hexiscale", "simulator")
    by_paper = find(rows, "30b_setting3_hexiscale", "hexiscale_paper")
    printed = find(rows, "30b_setting3_hexiscale_printed", "hexiscale_paper")
    shown = [(row, title) for row, title in (
        (by_paper, "Ours, judged by Appendix A"), (ours, "Ours, judged by the simulator"),
        (printed, "Printed, the A800s as two stages")) if row]
    drawn = {title: plans.of_run(arguments, row) for row, title in shown}
    runs = {title: row for row, title in shown}
    first = drawn.get("Ours, judged by Appendix A")
    name = "plan of Llama 30B in setting 3"
    style.compare(arguments, {
        (name, "pipelines"): len(first) if first else None,
        (name, "stages"): sum(len(pipeline) for pipeline in first) if first else None,
        (name, "tensor-parallel degree of the A800 stage"):
            max(degree for pipeline in first for kind, _, degree, _ in pipeline
                if kind[2] == "A800") if first else None,
        ("printed plan", "iteration under Appendix A over that of our plan"):
            printed["iteration_time_s"] / by_paper["iteration_time_s"]
            if printed and by_paper else None,
    })
    style.use()
    heights = [len(plan) + 0.5 for plan in drawn.values()]
    figure, panels = plt.subplots(len(drawn), 1, figsize=(style.PAGE * 0.85,
                                                         0.38 * sum(heights) + 0.9),
                                  sharex=True, gridspec_kw={"height_ratios": heights, "hspace": 0.45},
                                  squeeze=False)
    for axes, (title, plan) in zip(panels[:, 0], drawn.items()):
        plans.draw(axes, plan, title, runs[title])
    plans.finish(figure, list(panels[:, 0]))
    style.save(figure, arguments.out, "table_2")


if __name__ == "__main__":
    main()
