#!/usr/bin/python3
"""Predicts NCCL's all-reduce on one and two nodes of eight H100 by size (README.md).
`predict.py --help`."""

import argparse
import math
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import errors  # noqa: E402
import orrery  # noqa: E402
import tables  # noqa: E402
from a100 import fit  # noqa: E402

LARGE = 1 << 20  # bytes, from which bandwidths are scored
TARGET = 0.10
NODE = 8
# How a node of eight reduces. NCCL takes whichever is shortest: messages with flags instead of
# fences (LL, LL128), early to start and narrow, or sums in the switch (NVLS), late to start and
# wide. Seconds and bytes/s of the whole message. [NCCL, tuning.cc: that it chooses by the least of
# latency + bytes / bandwidth]
NAMES = ["flags_start", "flags_bandwidth", "switch_start", "switch_bandwidth"]
UNITS = ["s", "B/s", "s", "B/s"]
START = [15e-6, 70e9, 60e-6, 250e9]


def node_time(point, size):
    flags_start, flags, switch_start, switch = point
    return min(flags_start + size / flags, switch_start + size / switch)


def profile(point):
    """The choice as a profile, so that every simulation of such nodes makes it: the ring over a
    node takes 2 (p - 1) steps of a p-th each, whose times change where the choice does."""
    flags_start, flags, switch_start, switch = point
    steps = 2 * (NODE - 1)
    change = (switch_start - flags_start) / (1 / flags - 1 / switch)
    return orrery.Profile(name="nccl_h100", links=[
        orrery.LinkSegment(link_class="nvlink4", from_bytes=start, latency=latency / steps,
                           bandwidth=bandwidth * steps / NODE,
                           provenance=orrery.Provenance(source="nccl-tests, DGX H100",
                                                        machine="H100"))
        for start, latency, bandwidth in ((0, flags_start, flags),
                                          (change / NODE, switch_start, switch))])


def cluster(nodes):
    """p5: four EFA adapters of 100 Gb/s for each GPU, taken for one of 400 Gb/s."""
    return orrery.load_cluster({
        "name": "p5", "nodes": [{"name": "p5", "count": nodes,
                                 "gpus": {"type": "H100-80GB", "count": NODE},
                                 "domains": {"link": "nvlink4"}, "pcie": {"link": "pcie5-x16"},
                                 "nics": {"link": "infiniband-400", "count": NODE},
                                 "host_memory": {"capacity": "2 TiB", "bandwidth": 200e9}}]})


def reduce_time(nodes, size, made=None):
    """Rings, through all adapters where there are several nodes, in the library's closed form."""
    return orrery.Topology(cluster(nodes), made).collective_time(
        "all_reduce", "ring", range(NODE * nodes), size)


def bus_bandwidth(seconds, row):
    """[nccl-tests, doc/PERFORMANCE.md]"""
    return row["size"] / seconds * 2 * (row["gpus"] - 1) / row["gpus"]


def read(folder, problems):
    """Fitted on: the table of one DGX H100."""
    rows = []
    for row in tables.Table(f"{folder}/all_reduce.csv", ["id", "system", "size"], problems):
        rows.append({"id": row.text("id"), "set": row.text("system"), "nodes": row.count("nodes"),
                     "gpus": row.count("gpus"), "size": float(row.count("size")),
                     "measured": row.number("time_us"),
                     "fitted": row.text("system") == "dgx_h100"})
    return rows


def fit_node(rows):
    measured = [1e-6 * row["measured"] for row in rows]
    assert errors.enough_rows(len(START), len(rows))
    space = fit.Space(start=START, least=[value / 5 for value in START],
                      most=[value * 5 for value in START], iterations=30)

    def model(points):
        return [[node_time(point, row["size"]) for row in rows] for point in points]

    found = fit.fit_rows(measured, space, model)
    left_out = [node_time(fit.point_without(found, place, space), row["size"]) / real - 1
                for place, (row, real) in enumerate(zip(rows, measured))]
    return found.point, left_out


def line(name, rows, found, target=None):
    return errors.summarize(name, "bus_bandwidth", [found[row["id"]] for row in rows],
                            [row["id"] for row in rows], target)


def main():
    parser = argparse.ArgumentParser(description="Predicts all-reduces; says how far off")
    parser.add_argument("--data", default=str(tables.measurements("nccl")))
    parser.add_argument("--out", default="results/validation/nccl")
    options = parser.parse_args()
    problems = tables.Problems()
    rows = read(options.data, problems)
    problems.raise_any()
    fitting = [row for row in rows if row["fitted"]]
    point, left_out = fit_node(fitting)
    made = profile(point)
    seconds = {row["id"]: reduce_time(row["nodes"], row["size"], made) for row in rows}
    unseen = {row["id"]: 1e-6 * row["measured"] / seconds[row["id"]] - 1 for row in rows}
    out = {row["id"]: 1 / (1 + error) - 1 for row, error in zip(fitting, left_out)}
    large = [row for row in rows if row["size"] >= LARGE]
    plain = {row["id"]: 1e-6 * row["measured"] / reduce_time(row["nodes"], row["size"]) - 1
             for row in large}
    sets = dict.fromkeys(row["set"] for row in rows if not row["fitted"])
    table = [line(f"{name}, from 1 MiB", [row for row in large if row["set"] == name], unseen)
             for name in sets]
    table += [line("scored, from 1 MiB", [row for row in large if not row["fitted"]], unseen,
                   TARGET),
              line("dgx_h100, from 1 MiB, leave one out",
                   [row for row in large if row["fitted"]], unseen | out),
              line("the library's rings, from 1 MiB", large, plain)]
    size = math.fsum(abs(error) for error in out.values()) / len(out)
    parameters = [errors.Parameter(name, unit, value, [row["id"] for row in fitting], size)
                  for name, unit, value in zip(NAMES, UNITS, point)]
    cells = [errors.Row(row["id"], row["set"], "bus_bandwidth",
                        bus_bandwidth(seconds[row["id"]], row),
                        bus_bandwidth(1e-6 * row["measured"], row), row["size"] >= LARGE,
                        row["fitted"]) for row in rows]
    for file, text in (("parameters.csv", errors.parameters_csv("nccl", parameters)),
                       ("predictions.csv", errors.predictions_csv(cells)),
                       ("errors.csv", errors.errors_csv("nccl", table))):
        tables.write(options.out, file, text)
    for one in parameters:
        print(f"  {one.name:<18} {one.value:.4g} {one.unit}")
    print(f"\nerrors in per cent\n{errors.error_table(table)}")
    for row in rows:
        print(f"{row['set']:<14} {row['size']:>14,.0f} {row['measured']:>9.1f} us "
              f"{1e6 * seconds[row['id']]:>9.1f} us {100 * unseen[row['id']]:>+6.1f}")
    print(f"\nwritten to {options.out}")
    return 0


if __name__ == "__main__":
    tables.run(main)
