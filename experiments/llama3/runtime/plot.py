#!/usr/bin/python3
"""Tokens a second of each policy over the range of each figure of the runtime, relative to its own
at the defaults. Draws runs.csv; computes no model."""

import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
import style  # noqa: E402
from style import plt  # noqa: E402


def main():
    arguments = style.arguments()
    rows = style.finished(style.read(arguments.runs))
    style.use()
    tokens = {}
    for row in rows:
        tokens.setdefault((row["case"], row["policy"]), []).append(row["tokens"])
    cases = list(dict.fromkeys(row["case"] for row in rows))
    policies = list(dict.fromkeys(row["policy"] for row in rows))
    if "default" not in cases:
        return
    figure, axes = plt.subplots(figsize=(style.PAGE, 2.6))
    width = 0.8 / len(policies)
    for place, policy in enumerate(policies):
        base = statistics.mean(tokens[("default", policy)])
        heights = [100 * (statistics.mean(tokens[(case, policy)]) / base - 1)
                   if (case, policy) in tokens else 0 for case in cases]
        axes.bar([x + (place - (len(policies) - 1) / 2) * width for x in range(len(cases))], heights,
                 width, label=policy.replace("_", " "), edgecolor="black", linewidth=0.3,
                 color=style.COLORS[place % len(style.COLORS)],
                 hatch=style.HATCHES[place % len(style.HATCHES)])
    axes.axhline(0, color="black", linewidth=0.6)
    axes.set_xticks(range(len(cases)), [case.replace(" / ", "\n").replace("_", " ") for case in cases])
    axes.tick_params(axis="x", labelsize="x-small")
    axes.set_ylabel("Tokens against the default (%)")
    axes.grid(axis="y")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=len(policies), columnspacing=1.0)
    style.save(figure, arguments.out, "runtime")


if __name__ == "__main__":
    main()
