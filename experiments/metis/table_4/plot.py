#!/usr/bin/python3
"""Search times of Metis and Alpa by number of GPUs against those that the paper prints, numbers of
plans of Metis, Metis-alpha and the Oracle, and their ratios against the paper's. Draws runs.csv,
timings.csv (wall clock: other machines give other seconds), the counts that the planner wrote into
the logs of the runs, and published.csv; computes no model."""

import os
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from systems import style  # noqa: E402

plt = style.plt
GPUS = [4, 8, 16, 32, 64]
SPACE = re.compile(r"full search space: (\d+) plans; (\d+) combinations of [^;]*; (\d+) of device")
FOLLOWED = re.compile(r"without bounds: (\d+) of device groups")
PAPER = {"linestyle": (0, (3, 1.5)), "markerfacecolor": "white"}
LOOKS = {"Metis": (2, "o"), "Alpa": (1, "s"), "Metis-α": (3, "^"), "Oracle": (5, "D")}


def logged(runs_csv, row, pattern):
    """Numbers of the first line of the run's log that fits; None without any."""
    path = Path(runs_csv).parent / "runs" / row["run"] / "log.txt"
    found = pattern.search(path.read_text(encoding="utf-8")) if path.exists() else None
    return [int(number) for number in found.groups()] if found else None


def metis_plans(runs_csv, rows, gpus, spaces):
    """Plans of Metis without lower bounds, and whether they were all looked at. Where the search
    stopped: its device groups and micro-batches times the plans for each of those looked at."""
    row = rows.get(f"plain {gpus}")
    if row is None or ("alpha", gpus) not in spaces:
        return None
    if style.is_true(row["search_complete"]):
        return row["plans_examined"], True
    nodes = logged(runs_csv, row, FOLLOWED)[0]
    return spaces[("alpha", gpus)][2] * row["plans_examined"] / nodes, False


def ratios(plans, spaces):
    """{(system, place in SPACE, gpus): number of its plans over Metis's}."""
    return {(system, place, gpus): spaces[(system, gpus)][place] / plans[gpus][0]
            for system, gpus in spaces for place in (0, 1) if plans.get(gpus)}


def draw(axes, values, name, **look):
    color, marker = LOOKS[name]
    points = sorted(values.items())
    if points:
        axes.plot(*zip(*points), color=style.COLORS[color], marker=marker, markersize=4,
                  linewidth=1, **look)


def draw_times(axes, rows, timings, published):
    for system, name, look in (("metis", "Metis", {"linestyle": "-."}), ("alpa", "Alpa", {}),
                               ("best", "Oracle", {"linestyle": "-."})):
        draw(axes, {gpus: max(timings[rows[f"{system} {gpus}"]["run"]], 1e-3) for gpus in GPUS
                    if f"{system} {gpus}" in rows}, name, **look)
        draw(axes, {key[0]: row["value"] for key, row in published.items()
                    if key[1] == f"search, {name}"}, name, **PAPER)
    axes.set_ylabel("Search time (s)")


def draw_plans(axes, rows, plans, spaces):
    draw(axes, {gpus: rows[f"metis {gpus}"]["plans_examined"] for gpus in GPUS
                if f"metis {gpus}" in rows}, "Metis", linestyle="-.")
    draw(axes, {gpus: value[0] for gpus, value in plans.items() if value}, "Metis")
    for system, name in (("alpha", "Metis-α"), ("oracle", "Oracle")):
        draw(axes, {gpus: spaces[(system, gpus)][0] for gpus in GPUS if (system, gpus) in spaces},
             name)
    axes.set_ylabel("Plans")


def draw_ratios(axes, ratio, published):
    for system, name, quantity in (
            ("alpha", "Metis-α", "search, without balance and DFS / Metis"),
            ("oracle", "Oracle", "search, Oracle / Metis")):
        for place, look in ((0, {}), (1, {"linestyle": ":"})):
            draw(axes, {key[2]: value for key, value in ratio.items()
                        if key[:2] == (system, place)}, name, **look)
        draw(axes, {int(key[0]): row["value"] for key, row in published.items()
                    if key[1] == quantity}, name, **PAPER)
    axes.set_ylabel("Ratio to Metis")


def legend(figure):
    """Colors are systems, lines say what is counted."""
    line = plt.Line2D
    entries = [(line([], [], color=style.COLORS[color], marker=marker, markersize=4,
                     linestyle="none"), name) for name, (color, marker) in LOOKS.items()]
    entries += [(line([], [], color="black", linewidth=1), "ours; each division counts"),
                (line([], [], color="black", linewidth=1, linestyle=":"),
                 "ours; divisions at once"),
                (line([], [], color="black", linewidth=1, linestyle="-."),
                 "ours, with lower bounds"),
                (line([], [], color="black", linewidth=1, marker="o", markersize=4, **PAPER),
                 "paper")]
    order = [0, 4, 1, 5, 2, 6, 3, 7]  # Systems in the upper row.
    figure.legend(*zip(*(entries[i] for i in order)), loc="lower center",
                  bbox_to_anchor=(0.5, 0.9), ncols=4, handlelength=2.4)


def main():
    arguments = style.arguments()
    every = {row["case"]: row for row in style.read(arguments.runs)}
    rows = {case: row for case, row in every.items() if row["status"] == "ok"}
    timings = {row["run"]: row["planning_s"]
               for row in style.read(os.path.join(os.path.dirname(arguments.runs), "timings.csv"))}
    published = {(row["row"], row["quantity"]): row for row in style.read(arguments.published)}
    spaces = {}
    for gpus in GPUS:
        for system in ("alpha", "oracle"):
            row = every.get(f"{system} {gpus}")
            if row and (space := logged(arguments.runs, row, SPACE)):
                spaces[(system, gpus)] = space
    plans = {gpus: metis_plans(arguments.runs, every, gpus, spaces) for gpus in GPUS}
    ratio = ratios(plans, spaces)

    style.use()
    figure, axes = plt.subplots(1, 3, figsize=(style.PAGE, 2.0))
    draw_times(axes[0], rows, timings, published)
    draw_plans(axes[1], rows, plans, spaces)
    draw_ratios(axes[2], ratio, published)
    for side in axes:
        side.set_xscale("log", base=2)
        side.set_yscale("log")
        side.set_xticks(GPUS, [str(gpus) for gpus in GPUS])
        side.set_xlabel("GPUs")
        side.grid(axis="y")
    legend(figure)
    figure.subplots_adjust(wspace=0.42)
    style.save(figure, arguments.out, "table_4")

    ours = {}
    for gpus in GPUS:
        for name, system in (("Metis", "metis"), ("Alpa", "alpa")):
            row = rows.get(f"{system} {gpus}")
            if (gpus, f"search, {name}") in published:
                ours[(str(gpus), f"search, {name}")] = timings.get(row["run"]) if row else None
        if (gpus, "search, Alpa / Metis") in published:
            pair = [timings.get(rows[name]["run"]) if name in rows else None
                    for name in (f"alpa {gpus}", f"metis {gpus}")]
            ours[(str(gpus), "search, Alpa / Metis")] = pair[0] / pair[1] if all(pair) else None
        for quantity, system in (("search, Oracle / Metis", "oracle"),
                                 ("search, without balance and DFS / Metis", "alpha")):
            ours[(str(gpus), quantity)] = ratio.get((system, 1, gpus))
            ours[(str(gpus), f"{quantity}, each division")] = ratio.get((system, 0, gpus))
        if (gpus, "Metis's plan / Oracle's") in published:
            own, best = rows.get(f"metis {gpus}"), rows.get(f"best {gpus}")
            ours[(str(gpus), "Metis's plan / Oracle's")] = (
                own["tokens_per_s"] / best["tokens_per_s"] if own and best else None)
    style.compare(arguments, ours)


if __name__ == "__main__":
    main()
