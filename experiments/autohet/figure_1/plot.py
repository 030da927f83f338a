#!/usr/bin/python3
"""GPUs of each type that are there over three days, counted from a drawn trace of spot nodes, and
the share of time in which a job finds its GPUs. Counts what the step printed; computes no model."""

import csv
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
import style  # noqa: E402
from style import plt  # noqa: E402

DAY = 86400.0
JOBS = range(0, 257, 8)  # nodes have 8 GPUs: between two of these nothing changes


def names(text):
    """Of "a100-{0..15}" or of a single node."""
    if found := re.fullmatch(r"(.*)\{(\d+)\.\.(\d+)\}", text):
        return [f"{found[1]}{i}" for i in range(int(found[2]), int(found[3]) + 1)]
    return [text]


def load(path):
    """(nodes {name: (type, GPUs)}, horizon in seconds, [(time, node, +1 or -1)])."""
    nodes, events, horizon = {}, [], 0.0
    with open(path, encoding="utf-8") as file:
        lines = file.read().splitlines()
    for line in lines:
        if found := re.match(r"# nodes: (\S+) (\S+) x(\d+)", line):
            for name in names(found[1]):
                nodes[name] = (found[2], int(found[3]))
        elif found := re.match(r"# horizon: (\S+)", line):
            horizon = float(found[1])
    for row in csv.DictReader(line for line in lines if not line.startswith("#")):
        if row["kind"] in ("leave", "join"):
            events.append((float(row["time"]), row["scope"].removeprefix("node:"),
                           1 if row["kind"] == "join" else -1))
    return nodes, horizon, events


def curves(nodes, horizon, events):
    """Times and, for each type, GPUs from each time to the next."""
    first = {}
    for _, node, sign in events:
        first.setdefault(node, sign)
    now = {}
    for node, (kind, gpus) in nodes.items():  # Absent at the start: whose first event is `join`.
        now[kind] = now.get(kind, 0) + (0 if first.get(node) == 1 else gpus)
    times, counts = [0.0], {kind: [count] for kind, count in now.items()}
    for time, node, sign in events:
        kind, gpus = nodes[node]
        now[kind] += sign * gpus
        times.append(time)
        for key, count in now.items():
            counts[key].append(count)
    return times + [horizon], counts


def share(times, counts, need):
    """Share of the time with at least `need`."""
    good = sum(times[i + 1] - times[i] for i, count in enumerate(counts) if count >= need)
    return good / (times[-1] - times[0])


def main():
    arguments = style.arguments()
    times, counts = curves(*load(style.step_output(arguments, "trace")))
    style.use()
    figure, (top, bottom) = plt.subplots(2, 1, figsize=(style.COLUMN, 3.1))
    kinds = sorted(counts, key=lambda kind: -counts[kind][0])
    styles = dict(zip(kinds, ["-", (0, (4, 1.2)), (0, (1, 1))]))
    for place, kind in enumerate(kinds):
        name = kind.split("-")[0]
        top.step([time / DAY for time in times], counts[kind] + counts[kind][-1:], where="post",
                 color=style.COLORS[place], linestyle=styles[kind], linewidth=1.1, label=name)
        bottom.step(JOBS, [100 * share(times, counts[kind], need) for need in JOBS], where="pre",
                    color=style.COLORS[place], linestyle=styles[kind], linewidth=1.1)
    total = [sum(values) for values in zip(*counts.values())]
    bottom.step(JOBS, [100 * share(times, total, need) for need in JOBS], where="pre",
                color="black", linewidth=1.1, label="all types together")
    top.set_xlim(0, times[-1] / DAY)
    top.set_ylim(bottom=0)
    top.set_xlabel("Time (days)")
    top.set_ylabel("GPUs there")
    bottom.set_xlabel("GPUs that a job needs")
    bottom.set_ylabel("Time with so\nmany GPUs (%)")
    bottom.set_xlim(0, JOBS[-1])
    for axes in (top, bottom):
        axes.grid(axis="y")
    handles = [axes.get_legend_handles_labels() for axes in (top, bottom)]
    figure.legend(handles[0][0] + handles[1][0], handles[0][1] + handles[1][1],
                  loc="lower center", bbox_to_anchor=(0.52, 0.89), ncols=4, columnspacing=0.9,
                  handlelength=1.6)
    figure.subplots_adjust(hspace=0.45)
    style.save(figure, arguments.out, "figure_1")
    style.compare(arguments, {("availability", "length"): times[-1] / DAY})


if __name__ == "__main__":
    main()
