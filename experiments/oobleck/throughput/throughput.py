#!/usr/bin/python3
"""Oobleck's Figures 9 and 10: prints samples per second and shares of time of each model, trace and
system, counted as the artifact does (compat.py) and by replay (honest.py). CSV for plot.py.

    throughput.py [DATA]      DATA: default $ORRERY_DATA, else shared/ next to the repository"""

import os
import sys
from dataclasses import dataclass
from pathlib import Path

import compat
import honest
import orrery
from inputs import MODELS, SYSTEMS, Model, read_changes, read_throughput

TRACES = ((9, "6h", "6h.csv"), (9, "1h", "1h.csv"), (9, "30m", "30m.csv"), (9, "10m", "10m.csv"),
          (10, "p3", "scale_p3-trace.csv"), (10, "gcp", "scale_gcp-trace.csv"))


@dataclass
class Run:
    figure: int
    trace: str
    model: Model
    system: str
    compat: compat.Count
    honest: honest.Count


def data_folder():
    """Folder of the traces: below $ORRERY_DATA, else below shared/ next to the repository."""
    root = Path(__file__).resolve().parents[3]
    return Path(os.environ.get("ORRERY_DATA") or root.parent / "shared") / "traces" / "oobleck"


def run_cases(folder):
    tables = read_throughput(folder / "throughput.csv")
    for figure, label, file in TRACES:
        changes = read_changes(folder / file)
        trace = orrery.import_trace("oobleck", str(folder / file))
        for model in MODELS:
            for system in SYSTEMS:
                if system == "bamboo" and not model.bamboo_fits:
                    continue
                table = tables[model.name, system]
                yield Run(figure, label, model, system,
                          compat.count(model, system, table, changes,
                                       figure == 9 or model.spot_falls_back),
                          honest.count(model, system, table, trace))


def main():
    folder = Path(sys.argv[1]) / "traces" / "oobleck" if len(sys.argv) > 1 else data_folder()
    print("figure,trace,model,system,accounting,samples_per_second,effective,redundant,checkpoint,"
          "restart,fallback,idle")
    for run in run_cases(folder):
        key = f"{run.figure},{run.trace},{run.model.label},{run.system}"
        parts, own = run.compat.breakdown, run.honest
        shares = [part / parts.sum() for part in (parts.effective, parts.redundant,
                                                  parts.checkpoint, parts.restart, parts.fallback)]
        cells = [f"{value:.5f}" for value in (run.compat.samples_per_second, *shares)]
        print(f"{key},compat,{','.join(cells)},")
        print(f"{key},honest,{own.samples_per_second:.5f},{own.effective:.5f},,"
              f"{own.checkpoint:.5f},{own.restart:.5f},{own.fallback:.5f},{own.idle:.5f}")


if __name__ == "__main__":
    main()
