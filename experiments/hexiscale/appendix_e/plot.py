#!/usr/bin/python3
"""Utilization by bandwidth between machines, under the public code's model and simulated. Draws
runs.csv; computes no model."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import bars  # noqa: E402
import style  # noqa: E402
from style import plt  # noqa: E402

BANDWIDTHS = ["0.5", "0.7", "1", "5"]


def main():
    arguments = style.arguments()
    cases = bars.by_case(style.finished(style.read(arguments.runs)))
    code = {b: cases.get(f"{b}_code") for b in BANDWIDTHS}
    simulated = {b: cases.get(f"{b}_simulator") for b in BANDWIDTHS}

    def same(first, second):
        a, b = code[first], code[second]
        return None if a is None or b is None else int(a["stages"] == b["stages"])
    ours = {(f"{b} GB/s", "MFU"): bars.mfu(code[b]) for b in ("0.5", "0.7", "5")}
    ours[("1 to 0.5 GB/s", "same stages (1 is yes)")] = same("1", "0.5")
    ours[("1 to 5 GB/s", "same stages (1 is yes)")] = same("1", "5")
    style.compare(arguments, ours)
    published = {row["row"]: row["value"] for row in style.read(arguments.published)
                 if row["quantity"] == "MFU" and isinstance(row["value"], float)}
    style.use()
    figure, axes = plt.subplots(figsize=(style.COLUMN - 0.2, 1.9))
    for rows, label, marker, line in ((code, "Public code's model", "s", "--"),
                                      (simulated, "Our simulator", "o", "-")):
        known = [b for b in BANDWIDTHS if rows[b] is not None]
        color = style.COLORS[0 if marker == "o" else 5]
        axes.plot([float(b) for b in known], [bars.mfu(rows[b]) for b in known], line,
                  marker=marker, markersize=4, linewidth=1, color=color, label=label)
    for row, value in published.items():
        axes.plot(float(row.split()[0]), value, linestyle="none", marker="D", markersize=4.5,
                  color="white", markeredgecolor="black", markeredgewidth=0.8, label="Paper",
                  zorder=3)
    axes.set_xscale("log")
    axes.set_xticks([float(b) for b in BANDWIDTHS], BANDWIDTHS)
    axes.minorticks_off()
    axes.set_xlabel("Bandwidth between machines (GB/s)")
    axes.set_ylabel("MFU (%)")
    axes.set_ylim(bottom=0)
    axes.grid()
    style.legend_above(axes, 0.45, 3, last=("Paper",))
    style.save(figure, arguments.out, "appendix_e")


if __name__ == "__main__":
    main()
