#!/usr/bin/python3
"""Utilization and breakdown of the plans of four planners on 240 GPUs under three judges, with eight
plans of each judged and with its own estimate alone. Draws runs.csv and writes table.md for the
README; computes means and ratios only."""

import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
import style  # noqa: E402
from style import plt  # noqa: E402

PLANNERS = ["megatron_grid", "galvatron", "metis", "hexiscale"]
LOOKS = {"megatron_grid": 1, "galvatron": 2, "metis": 4, "hexiscale": 0}  # places in style.COLORS
TITLES = {"galvatron": "Galvatron", "metis": "Metis"}
MODELS = ["llama_30b", "llama2_70b"]
# (cost, cluster), axis label, label in the breakdown
JUDGES = [
    (("hexiscale_paper", "hexiscale_240_port_per_gpu"), "Paper's\ncost model", "paper"),
    (("simulator", "hexiscale_240_port_per_gpu"), "Simulated,\nport per GPU", "port per GPU"),
    (("simulator", "hexiscale_240"), "Simulated,\nport per machine", "port per machine"),
]


def title(planner):
    return TITLES.get(planner, style.name(planner))


JUDGED, ALONE = 8, 1  # evaluate_top


def of(rows, model, planner, judge, top=JUDGED):
    return [row for row in rows if row["model"] == model and row["planner"] == planner
            and (row["cost"], row["cluster"]) == judge
            and row["planner.options.evaluate_top"] == top]


def hfu(runs):
    """Per cent, mean over seeds."""
    return 100 * statistics.mean(row["hfu"] for row in runs)


def draw_mfu(axes, rows, model, first):
    """Mean over seeds, error bars from the least to the greatest."""
    width = 0.86 / len(PLANNERS)
    for p, planner in enumerate(PLANNERS):
        for j, (judge, _, _) in enumerate(JUDGES):
            runs = of(rows, model, planner, judge)
            x = j + (p - (len(PLANNERS) - 1) / 2) * width
            if not runs:
                axes.text(x, 0.5, "no plan", rotation=90, ha="center", va="bottom", fontsize=6)
                continue
            values = [100 * row["hfu"] for row in runs]
            mean = statistics.mean(values)
            error = [[mean - min(values)], [max(values) - mean]] if len(values) > 1 else None
            axes.bar(x, mean, width * 0.92, yerr=error, color=style.COLORS[LOOKS[planner]],
                     hatch=style.HATCHES[LOOKS[planner]], edgecolor="black", linewidth=0.5, capsize=1.5,
                     error_kw={"linewidth": 0.7})
            alone = of(rows, model, planner, judge, ALONE)
            if alone:
                axes.plot(x, hfu(alone), linestyle="none", marker="D", markersize=3, color="white",
                          markeredgecolor="black", markeredgewidth=0.7)
            axes.annotate(f"{mean:.0f}", (x, max(values + [hfu(alone)] if alone else values)),
                          xytext=(0, 2.5), textcoords="offset points", ha="center", va="bottom",
                          fontsize=6)
            if not all(style.is_true(row["fits"]) for row in runs):
                axes.annotate("out of memory", (x, 0), xytext=(0, 3), rotation=90,
                              textcoords="offset points", ha="center", va="bottom", fontsize=6)
    axes.set_xticks(range(len(JUDGES)), [label for _, label, _ in JUDGES], fontsize=5.5)
    axes.tick_params(axis="x", length=0)
    axes.set_title(style.name(model))
    axes.grid(axis="y")
    if first:
        axes.set_ylabel("MFU, as the paper counts (%)")


def draw_breakdown(axes, rows):
    """Mean over seeds of the mean over GPUs; the diamond is the time that the planner believed."""
    bars = []
    places = []
    place = 0.0
    for model in MODELS:
        for judge, _, label in JUDGES:
            if judge[0] != "simulator":
                continue
            for planner in PLANNERS:
                runs = of(rows, model, planner, judge)
                if runs:
                    bars.append((f"{title(planner)}, {label}", model, runs))
                    places.append(place)
                    place += 1
            place += 0.25
        place += 0.6
    left = [0.0] * len(bars)
    for column, label, color, hatch in style.parts_of(rows):
        values = [statistics.mean(row[column] for row in runs) for _, _, runs in bars]
        axes.barh(places, values, 0.8, left=left, color=color, hatch=hatch, edgecolor="black",
                  linewidth=0.5, label=label)
        left = [a + b for a, b in zip(left, values)]
    believed = [(statistics.mean(estimates), at) for (_, _, runs), at in zip(bars, places)
                if (estimates := [row["planner_estimate_s"] for row in runs
                                  if isinstance(row["planner_estimate_s"], float)])]
    axes.plot([time for time, _ in believed], [at for _, at in believed], linestyle="none",
              marker="D", markersize=4, color="white", markeredgecolor="black",
              markeredgewidth=0.8, label="Planner's estimate")
    axes.set_yticks(places, [label for label, _, _ in bars], fontsize=6)
    for model in MODELS:
        at = [place for place, bar in zip(places, bars) if bar[1] == model]
        if at:
            axes.text(1.015, statistics.mean(at), style.name(model), rotation=270, ha="left",
                      va="center", transform=axes.get_yaxis_transform(), fontsize=7)
    axes.invert_yaxis()
    axes.set_xlabel("Simulated iteration time, mean over GPUs (s)")
    axes.grid(axis="x")
    style.legend_above(axes, 0.25, 4, last=("Planner's estimate",))


def values(rows):
    """Ours by (row, quantity) of published.csv: the paper compares under its own cost model."""
    ours = {}
    for model, row in zip(MODELS, ("Llama 30B", "Llama2 70B")):
        times = {}
        for planner in PLANNERS:
            # The paper's planners choose by their own estimates.
            runs = of(rows, model, planner, JUDGES[0][0], ALONE)
            times[planner] = statistics.mean(run["iteration_time_s"] for run in runs) if runs else None
        for other in ("metis", "galvatron"):
            ours[(row, f"HexiScale over {title(other)} under Appendix A")] = \
                times[other] / times["hexiscale"] if times[other] and times["hexiscale"] else None
    return ours


def table(rows, ours):
    """Means of the utilizations and the ratios under (1), as the README has them."""
    lines = ["| judge | plans judged of each planner | "
             + " | ".join(style.name(model) for model in MODELS) + " |", "|---|---|---|---|"]
    for judge, label, _ in JUDGES:
        for top in (JUDGED, ALONE):
            cells = []
            judged = set()
            for model in MODELS:
                runs = [of(rows, model, planner, judge, top) for planner in PLANNERS]
                judged |= {int(row["judged"]) for own in runs for row in own}
                cells.append(" / ".join(f"{hfu(own):.0f}" if own else "no plan" for own in runs))
            lines.append("| " + " | ".join(
                [(label[0].lower() + label[1:]).replace("\n", " "),
                 "none" if top == ALONE else ", ".join(map(str, sorted(judged)))] + cells) + " |")
    rivals = {}
    for (row, quantity), value in ours.items():
        rivals.setdefault(row, []).append(f"{quantity.split(' ')[2]} "
                                          + (f"{value:.2f}" if value else "without a plan"))
    lines += ["", "HexiScale under the paper's cost model over its rivals: "
              + "; ".join(f"{row}: {', '.join(each)}" for row, each in rivals.items()) + "."]
    return "\n".join(lines) + "\n"


def main():
    arguments = style.arguments()
    rows = style.finished(style.read(arguments.runs))
    ours = values(rows)
    style.compare(arguments, ours)
    Path(arguments.out, "table.md").write_text(table(rows, ours), encoding="utf-8")
    style.use()
    figure = plt.figure(figsize=(style.PAGE, 5.4))
    grid = figure.add_gridspec(2, 2, height_ratios=[1, 1.7], hspace=0.5, wspace=0.08)
    top = figure.add_subplot(grid[0, 0])
    other = figure.add_subplot(grid[0, 1], sharey=top)
    other.tick_params(labelleft=False)
    draw_mfu(top, rows, MODELS[0], True)
    draw_mfu(other, rows, MODELS[1], False)
    top.margins(y=0.12)
    seeds = max(len(of(rows, model, "hexiscale", judge)) for model in MODELS
                for judge, _, _ in JUDGES)
    labels = [title(planner) for planner in PLANNERS[:-1]]
    labels.append(f"{title('hexiscale')} ({seeds} seeds: mean, range)")
    labels.append("Planner's own choice, no plan judged")
    handles = [plt.Rectangle((0, 0), 1, 1, facecolor=style.COLORS[LOOKS[planner]],
                             hatch=style.HATCHES[LOOKS[planner]], edgecolor="black",
                             linewidth=0.5) for planner in PLANNERS]
    handles.append(plt.Line2D([], [], linestyle="none", marker="D", markersize=4, color="white",
                              markeredgecolor="black", markeredgewidth=0.7))
    figure.legend(handles, labels, loc="lower center", bbox_to_anchor=(0.5, 0.925), ncols=3,
                  handlelength=1.6)
    draw_breakdown(figure.add_subplot(grid[1, :]), rows)
    style.save(figure, arguments.out, "large_scale")


if __name__ == "__main__":
    main()
