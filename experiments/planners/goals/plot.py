#!/usr/bin/python3
"""Frontiers of time, dollars and energy: draws what each plan costs and takes over the fastest one,
by its time, and writes table.md."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "experiments"))
import style  # noqa: E402
from style import plt  # noqa: E402

GOALS = {  # column: label, marker, color
    "dollars_per_million_tokens": ("dollars", "o", style.COLORS[0]),
    "joules_per_token": ("energy", "^", style.COLORS[1]),
}
KWH = 3.6  # joules per token of one kWh per million tokens


def known(row, column):
    return isinstance(row.get(column), (int, float))


def clusters_of(rows):
    found = {}
    for row in rows:
        found.setdefault(row["cluster"], []).append(row)
    return found


def text(clusters):
    head = ["cluster, model", "plan", "GPUs", "iteration", "$ per million tokens",
            "kWh per million tokens"]
    rows = []
    for cluster, plans in clusters.items():
        ends = {id(plans[0]): ["fastest"]}
        for column, (label, _, _) in GOALS.items():
            if known(plans[0], column):
                best = min(plans, key=lambda row: row[column])
                ends.setdefault(id(best), []).append(f"least {label}")
        for row in plans:
            if id(row) not in ends:
                continue
            dollars = row["dollars_per_million_tokens"]
            rows.append([f"`{cluster}`, {row['model']}", ", ".join(ends[id(row)]),
                         f"{row['devices']:.0f}", f"{row['seconds']:.4g} s",
                         f"{dollars:.3g}" if known(row, "dollars_per_million_tokens") else "-",
                         f"{row['joules_per_token'] / KWH:.3g}"])
    return style.markdown(head, rows)


def draw(clusters, out):
    style.use()
    figure, panels = plt.subplots(1, len(clusters), figsize=(style.PAGE, 2.2))
    for axes, (cluster, plans) in zip(panels, clusters.items()):
        fastest = plans[0]
        for column, (_, marker, color) in GOALS.items():
            if not known(fastest, column):
                continue
            points = [(row["seconds"] / fastest["seconds"], row[column] / fastest[column])
                      for row in plans]
            axes.plot(*zip(*points), linestyle="none", marker=marker, markersize=3.5, color=color)
            least = []  # What no faster plan undercuts.
            for time, cost in points:
                if not least or cost < least[-1][1]:
                    least.append((time, cost))
            axes.step(*zip(*least), where="post", linewidth=0.8, color=color)
        for row in (fastest, plans[-1]):
            count = f"{row['devices']:.0f}"
            axes.annotate(f"{count} GPU" + ("s" if count != "1" else ""),
                          (row["seconds"] / fastest["seconds"],
                           row["joules_per_token"] / fastest["joules_per_token"]),
                          textcoords="offset points", xytext=(0, -9), fontsize=6,
                          ha="left" if row is fastest else "right")
        axes.axhline(1, color="#000000", linewidth=0.5)
        axes.margins(y=0.15)
        axes.set_title(f"{cluster},\n{fastest['model']}", fontsize=7)
        axes.set_xlabel("Iteration time over\nthe fastest plan's")
        axes.grid()
    panels[0].set_ylabel("Dollars, energy per token\nover the fastest plan's")
    handles = [plt.Line2D([], [], marker=marker, markersize=4, color=color, linewidth=0.8,
                          label=label) for label, marker, color in GOALS.values()]
    figure.legend(handles=handles, loc="lower center", bbox_to_anchor=(0.5, 0.98),
                  ncol=len(handles))
    figure.tight_layout()
    style.save(figure, out, "goals")


def main():
    arguments = style.arguments()
    run = style.read(arguments.runs)[0]["run"]
    found = Path(arguments.runs).parent / "runs" / run / "goals.csv"
    clusters = clusters_of(style.read(found))
    Path(arguments.out).mkdir(parents=True, exist_ok=True)
    Path(arguments.out, "table.md").write_text(text(clusters), encoding="utf-8")
    draw(clusters, arguments.out)


if __name__ == "__main__":
    main()
