#!/usr/bin/python3
"""Step time of DeepSpeed, Megatron, HexiScale and Hetu on each cluster, printed strategies as bars,
what our planners find as marks. Draws runs.csv and published.csv; computes no model."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
import style  # noqa: E402
from style import plt  # noqa: E402

SYSTEMS = ["DeepSpeed", "Megatron", "HexiScale", "Hetu"]
SEARCHED = ", searched"
WIDTH = 0.2


def draw(axes, names, times, paper):
    for x, name in enumerate(names):
        for place, system in enumerate(SYSTEMS):
            at = x + (place - 1.5) * WIDTH
            own, found = times.get((name, system)), times.get((name, system + SEARCHED))
            alone = own is None
            own = found if alone else own
            if own is None:
                axes.annotate("no plan", (at, 0), xytext=(0, 2), textcoords="offset points",
                              ha="center", va="bottom", rotation=90, fontsize=5.5)
                continue
            axes.bar(at, own, WIDTH, color=style.COLORS[place], hatch=style.HATCHES[place],
                     edgecolor="black", linewidth=0.5, label=system if x == 1 else None)
            over = found and not alone and found > 0.85 * own  # the mark reaches above the bar
            axes.annotate(f"{own:.1f}" + ("*" if alone else ""), (at, own),
                          xytext=(0, 4.5 if over else 2),
                          textcoords="offset points", ha="center", va="bottom", rotation=90,
                          fontsize=6)
            if found and not alone:
                axes.plot(at, found, "D", color="white", markeredgecolor="black", markersize=3,
                          markeredgewidth=0.6, linestyle="none",
                          label="Found by our planner" if x == 2 and system == "Hetu" else None)
            value = paper.get((name, system))
            if value:
                axes.plot([at - WIDTH / 2, at + WIDTH / 2], [value] * 2, color="#B00000",
                          linewidth=1.6, label="Paper")
    axes.set_xticks(range(len(names)), [" +\n".join(name.split(" ", 1)[1].split(" + "))
                                        for name in names])
    axes.set_ylim(0, 1.12 * axes.get_ylim()[1])
    axes.set_title("Llama " + names[0].split(" ", 1)[0])
    axes.grid(axis="y")


def main():
    arguments = style.arguments()
    times, names = {}, []
    for row in style.read(arguments.runs):
        name, system = row["case"].split(" / ")
        names += [name] if name not in names else []
        if row["status"] == "ok":
            times[(name, system)] = row["iteration_time_s"]
    published = style.read(arguments.published)
    paper = {tuple(row["row"].split(" / ")): row["value"] for row in published if row["value"]}
    style.use()
    sizes = [[name for name in names if name.startswith(size)] for size in ("32B", "70B")]
    figure, axes = plt.subplots(1, 2, figsize=(style.PAGE, 2.1),
                                gridspec_kw={"width_ratios": [len(own) for own in sizes],
                                             "wspace": 0.12})
    for place, own in enumerate(sizes):
        draw(axes[place], own, times, paper)
    axes[0].set_ylabel("Step time (s)")
    handles, labels = axes[0].get_legend_handles_labels()
    order = SYSTEMS + ["Found by our planner", "Paper"]
    figure.legend([handles[labels.index(label)] for label in order], order, loc="lower center",
                  bbox_to_anchor=(0.5, 0.98), ncols=len(order), columnspacing=1.2)
    style.save(figure, arguments.out, "figure_13")
    ours = {}
    for row in published:
        key = tuple(row["row"].split(" / "))
        ours[(row["row"], row["quantity"])] = times.get(key, times.get((key[0],
                                                                        key[1] + SEARCHED)))
    style.compare(arguments, ours)


if __name__ == "__main__":
    main()
