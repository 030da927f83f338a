#!/usr/bin/python3
"""Which efficiency and batches come nearest to the six homogeneous rows of Table 3. Draws runs.csv;
computes root mean squares of logarithms only."""

import math
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import bars  # noqa: E402
import style  # noqa: E402
from style import plt  # noqa: E402

SIZES = ["7b", "13b", "30b"]
LINKS = {"ethernet": "Ethernet", "rdma": "RDMA"}
OF_A800 = 0.5  # efficiency of the A800 PCIe in models/library
KINDS = {"hfu": ("With the recomputed pass", style.COLORS[0], "o", "-"),
         "mfu": ("Without it", style.COLORS[5], "s", "--")}


def main():
    arguments = style.arguments()
    rows = style.finished(style.read(arguments.runs))
    published = {row["row"]: row["value"] for row in style.read(arguments.published)}
    ours = {(row["case"], row["hardware.scale_efficiency"], int(row["global_batch"])): row
            for row in rows}
    scales = sorted({key[1] for key in ours})
    batches = sorted({key[2] for key in ours})

    def squares(size, scale, batch, kind):
        """Sum of both links; infinite where a run has no plan."""
        total = 0.0
        for link, word in LINKS.items():
            row = ours.get((f"{size}_{link}", scale, batch))
            if row is None:
                return math.inf
            total += math.log(100 * row[kind] / published[f"{size.upper()}, {word}"]) ** 2
        return total
    best = {kind: {scale: [min((squares(size, scale, batch, kind), batch) for batch in batches)
                           for size in SIZES] for scale in scales} for kind in KINDS}
    error = {kind: {scale: math.sqrt(sum(s for s, _ in best[kind][scale]) / 6)
                    for scale in scales} for kind in KINDS}
    chosen = min(scales, key=error["hfu"].get)
    style.compare(arguments, {
        (f"{size.upper()}, {word}", "MFU"): 100 * ours[(f"{size}_{link}", chosen, batch)]["hfu"]
        for size, (_, batch) in zip(SIZES, best["hfu"][chosen]) for link, word in LINKS.items()})
    style.use()
    figure, axes = plt.subplots(figsize=(style.COLUMN, 2.1))
    for kind, (label, color, marker, line) in KINDS.items():
        points = [(OF_A800 * scale, 100 * error[kind][scale]) for scale in scales]
        axes.plot(*zip(*points), line, marker=marker, markersize=4, linewidth=1, color=color,
                  label=label)
    axes.set_xticks([OF_A800 * scale for scale in scales],
                    ["\n".join([f"{OF_A800 * scale:.2f}"] +
                               [str(batch) for _, batch in best["hfu"][scale]])
                     for scale in scales], fontsize=6)
    axes.text(-0.01, -0.062, "\n".join(["", "7B", "13B", "30B"]), ha="right", va="top", fontsize=6,
              transform=axes.transAxes)
    axes.set_xlabel("Efficiency and best batches (solid)")
    axes.set_ylabel("Error over six rows (%)")
    axes.set_ylim(bottom=0)
    axes.margins(x=0.06)
    axes.grid()
    style.legend_above(axes, 0.5, 2)
    style.save(figure, arguments.out, "assumptions_fit")


if __name__ == "__main__":
    main()
