#!/usr/bin/python3
"""Plans of Metis for Llama 30B in setting 3 against the printed one. Draws plans of the runs;
computes no model."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import bars  # noqa: E402
import plans  # noqa: E402
import style  # noqa: E402
from style import plt  # noqa: E402


def main():
    arguments = style.arguments()
    cases = bars.by_case(style.finished(style.read(arguments.runs)))
    runs = {title: cases[f"30b_setting3_{key}"] for key, title in (
        ("metis", "Ours, 16 bytes per parameter"), ("metis_4bytes", "Ours, 4 bytes, TP 1 only"),
        ("metis_printed", "Printed (Table 5)")) if f"30b_setting3_{key}" in cases}
    drawn = {title: plans.of_run(arguments, row) for title, row in runs.items()}
    small = drawn.get("Ours, 4 bytes, TP 1 only")
    large = drawn.get("Ours, 16 bytes per parameter")
    style.compare(arguments, {
        ("16 bytes per parameter", "stages of Metis"): len(large[0]) if large else None,
        ("4 bytes per parameter", "stages of Metis"): len(small[0]) if small else None,
        ("4 bytes per parameter", "layers on the A800s"):
            sum(layers for kind, _, _, layers in small[0] if kind[2] == "A800") if small else None,
        ("4 bytes per parameter", "tensor-parallel degree"):
            max(degree for _, _, degree, _ in small[0]) if small else None,
    })
    style.use()
    figure, panels = plt.subplots(len(drawn), 1, figsize=(style.PAGE * 0.85, 2.2), sharex=True,
                                  gridspec_kw={"hspace": 0.5}, squeeze=False)
    for axes, (title, plan) in zip(panels[:, 0], drawn.items()):
        plans.draw(axes, plan, title, runs[title])
        axes.set_yticks([])
    plans.finish(figure, list(panels[:, 0]))
    style.save(figure, arguments.out, "table_5")


if __name__ == "__main__":
    main()
