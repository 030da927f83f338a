#!/usr/bin/python3
"""Draws the picture of docs/schedules.md from simulated timelines, and prints its tables.

  docs/images/schedules.py --orrery PATH [--out FOLDER]

Simulates the four plans of schedules/ with the given binary, writes schedules.svg next to this file,
or into FOLDER, and prints the tables in Markdown. Everything is read from the timelines (Chrome
trace); only the published formulas are computed here.
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "experiments"))
import style  # noqa: E402  (chooses the drawing backend)
import matplotlib.colors  # noqa: E402
import matplotlib.pyplot as plt  # noqa: E402
from matplotlib.patches import Patch, PathPatch  # noqa: E402
from matplotlib.path import Path  # noqa: E402
from matplotlib.transforms import Affine2D  # noqa: E402

JOB = ["--cluster", "a100_8", "--model", "llama2_13b", "--sequence-length", "1024"]
SCHEDULES = [("gpipe", "GPipe"), ("1f1b", "1F1B"),
             ("interleaved_1f1b", "Interleaved 1F1B, 2 virtual stages"),
             ("zero_bubble", "Zero bubble (ZB-H1)")]
# Kind of pass: legend, color, hatch, whether it ends the hold on the activations.
KINDS = {
    "forward": ("forward", "#56B4E9", "", False),
    "backward": ("backward", "#E69F00", "////", True),
    "backward_input": ("backward, input's gradient", "#F0E442", "\\\\\\\\", False),
    "backward_weight": ("backward, weights' gradient", "#CC79A7", "----", True),
}
IDLE = "#EBEBEB"
HATCH = "#00000055"


def simulate(orrery, name):
    """Passes of every stage in the order in which it runs them, as dicts; times in ms."""
    with tempfile.TemporaryDirectory() as folder:
        trace = pathlib.Path(folder, "timeline.json")
        subprocess.run([orrery, "simulate", str(HERE / "schedules" / f"{name}.yaml"), *JOB,
                        "--timeline", str(trace)], check=True, stdout=subprocess.DEVNULL)
        events = json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]
    stage_of = {}
    for event in events:
        found = re.search(r"stage (\d+)\)$", event.get("args", {}).get("name", ""))
        if event["name"] == "process_name" and found:
            stage_of[event["pid"]] = int(found[1])
    stages = [[] for _ in stage_of]
    for event in events:
        if event["ph"] == "X" and event.get("cat") in KINDS:
            micro_batch, block = map(int, re.fullmatch(r"\w+ mb(\d+) blocks (\d+)-\d+",
                                                       event["name"]).groups())
            stages[stage_of[event["pid"]]].append(
                {"kind": event["cat"], "micro_batch": micro_batch, "block": block,
                 "start": event["ts"] / 1000, "length": event["dur"] / 1000})
    for passes in stages:
        passes.sort(key=lambda p: p["start"])
        chunks = sorted({p["block"] for p in passes})
        for p in passes:
            p["chunk"] = chunks.index(p["block"])
    return stages


def end(stages):
    return max(p["start"] + p["length"] for passes in stages for p in passes)


def busy(stages):
    """Mean over stages, ms."""
    return sum(p["length"] for passes in stages for p in passes) / len(stages)


def without_transfers(stages):
    """End of the last pass if stages ran the same passes in the same order, and what one sends
    were with the other at once."""
    chunks = 1 + max(p["chunk"] for p in stages[0])
    ends, free, following = {}, [0.0] * len(stages), [0] * len(stages)
    while any(i < len(passes) for i, passes in zip(following, stages)):
        before = sum(following)
        for s, passes in enumerate(stages):
            for p in passes[following[s]:]:
                place, m = p["chunk"] * len(stages) + s, p["micro_batch"]
                if p["kind"] == "forward":
                    needs = [("f", m, place - 1)] if place else []
                elif p["kind"] == "backward_weight":
                    needs = [("b", m, place)]
                else:
                    last = place + 1 == chunks * len(stages)
                    needs = [("f", m, place)] + ([] if last else [("b", m, place + 1)])
                if any(need not in ends for need in needs):
                    break
                free[s] = max([free[s]] + [ends[need] for need in needs]) + p["length"]
                if p["kind"] != "backward_weight":
                    ends["f" if p["kind"] == "forward" else "b", m, place] = free[s]
                following[s] += 1
        if sum(following) == before:
            sys.exit("the order of the timeline has no end: passes wait for each other")
    return max(free)


def published(name, stages):
    """Idle share of equal stages by the published formula; see docs/schedules.md."""
    p, m = len(stages), len({x["micro_batch"] for x in stages[0]})
    chunks = 1 + max(x["chunk"] for x in stages[0])
    if name == "zero_bubble":
        f, b, w = (sum(x["length"] for passes in stages for x in passes if x["kind"] == kind)
                   for kind in ("forward", "backward_input", "backward_weight"))
        over_ideal = (p - 1) * (f + b - w) / (m * (f + b + w))
    else:
        over_ideal = (p - 1) / (m * chunks)
    return over_ideal / (1 + over_ideal)


def in_flight(passes):
    """Most forward passes whose activations are held at once."""
    held = most = 0
    for p in passes:
        held += 1 if p["kind"] == "forward" else -1 if KINDS[p["kind"]][3] else 0
        most = max(most, held)
    return most


def face(kind, chunk):
    """Color of a pass: the second chunk is paler."""
    rgb = matplotlib.colors.to_rgb(KINDS[kind][1])
    return tuple(1 - (1 - c) * 0.4 for c in rgb) if chunk else rgb


def boxes(axes, passes, width=None, height=0.9, **look):
    """The passes, (stage, pass), as one path, which keeps the file small; with a width (ms), the
    middle of each."""
    paths = []
    for stage, p in passes:
        middle, across = p["start"] + p["length"] / 2, width or p["length"]
        paths.append(Path.unit_rectangle().transformed(
            Affine2D().scale(across, height).translate(middle - across / 2, stage - height / 2)))
    axes.add_patch(PathPatch(Path.make_compound_path(*paths), **look))


def draw_panel(axes, stages, title):
    last = end(stages)
    everything = [(s, p) for s, passes in enumerate(stages) for p in passes]
    boxes(axes, [(s, {"start": 0, "length": last}) for s in range(len(stages))], facecolor=IDLE,
          linewidth=0)
    for kind, chunk in sorted({(p["kind"], p["chunk"]) for _, p in everything}):
        alike = [(s, p) for s, p in everything if (p["kind"], p["chunk"]) == (kind, chunk)]
        boxes(axes, alike, facecolor=face(kind, chunk), hatch=KINDS[kind][2], edgecolor=HATCH,
              linewidth=0)
        boxes(axes, alike, width=13, height=0.66, facecolor=face(kind, chunk), linewidth=0)
    boxes(axes, everything, fill=False, edgecolor="black", linewidth=0.4)
    for s, p in everything:
        axes.text(p["start"] + p["length"] / 2, s + 0.03, p["micro_batch"], ha="center",
                  va="center_baseline", fontsize=7)
    idle = 100 * (1 - busy(stages) / last)
    axes.set_title(f"{title}: ends after {last:,.0f} ms, {idle:.1f} % idle", loc="left", pad=3)
    axes.set_ylim(len(stages) - 0.5, -0.5)
    axes.set_yticks(range(len(stages)), [f"stage {s}" for s in range(len(stages))])
    axes.tick_params(left=False, bottom=False)
    axes.spines[["left", "bottom"]].set_visible(False)


def draw(timelines, folder):
    style.use()
    figure, panels = plt.subplots(len(SCHEDULES), 1, sharex=True, figsize=(style.PAGE, 5.6))
    for axes, (name, title) in zip(panels, SCHEDULES):
        draw_panel(axes, timelines[name], title)
    panels[-1].set_xlim(0, max(map(end, timelines.values())) * 1.002)
    panels[-1].set_xlabel("time since the start of the iteration, ms")
    panels[-1].tick_params(bottom=True)
    panels[-1].spines["bottom"].set_visible(True)
    handles = [Patch(facecolor=face(kind, 0), hatch=hatch, edgecolor=HATCH, label=label)
               for kind, (label, _, hatch, _) in KINDS.items()]
    handles.append(Patch(facecolor=face("forward", 1), label="paler: second virtual stage"))
    handles.append(Patch(facecolor=IDLE, label="idle (bubble)"))
    figure.tight_layout(h_pad=0.8, rect=(0, 0, 1, 0.93))
    figure.legend(handles=handles, loc="upper center", ncols=3, handlelength=2, handleheight=1.1)
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "schedules.svg", metadata={"Date": None}, bbox_inches="tight",
                   pad_inches=0.03, facecolor="white")
    plt.close(figure)


def print_tables(timelines):
    print("| schedule | formula, equal stages | + unequal stages | + transfers = simulated |\n"
          "|---|---|---|---|")
    for name, _ in SCHEDULES:
        stages = timelines[name]
        shares = [published(name, stages), 1 - busy(stages) / without_transfers(stages),
                  1 - busy(stages) / end(stages)]
        print(f"| `{name}` | " + " | ".join(f"{100 * x:.2f} %" for x in shares) + " |")
    print("\n| schedule | stage 0 | stage 1 | stage 2 | stage 3 |\n|---|---|---|---|---|")
    for name, _ in SCHEDULES:
        print(f"| `{name}` | " + " | ".join(str(in_flight(p)) for p in timelines[name]) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--orrery", required=True, help="the binary")
    parser.add_argument("--out", type=pathlib.Path, default=HERE, help="folder for the picture")
    arguments = parser.parse_args()
    timelines = {name: simulate(arguments.orrery, name) for name, _ in SCHEDULES}
    draw(timelines, arguments.out)
    print_tables(timelines)


if __name__ == "__main__":
    main()
