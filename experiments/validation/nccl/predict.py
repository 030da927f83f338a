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
# wide. Seconds and bytes/s of the whole message. [NVIDIA/nccl, src/graph/tuning.cc]
NAMES = ["flags_start", "flags_bandwidth", "switch_start", "switch_bandwidth"]
UNITS = ["s", "B/s", "s", "B/s"]
START = [15e-6, 70e9, 60e-6, 250e9]
CHANNELS = 16
# Of the time of a short message: NCCL's tuner counts 6.6 us, and 0.6 us for each step by LL.
STEPS = 2 * (NODE - 1)
OF_STEPS = STEPS * 0.6 / (6.6 + STEPS * 0.6)


def profile(point):
    """The choice as a profile, so that every simulation of such nodes makes it."""
    flags_start, flags, switch_start, switch = point
    source = orrery.Provenance(source="nccl-tests on one DGX H100, fitted by "
                                      "experiments/validation/nccl", machine="H100")
    way = orrery.CollectiveWay(link_class="nvlink4", collective="all_reduce", channels=CHANNELS,
                               provenance=source)
    return orrery.Profile(name="nccl_h100", collective_ways=[
        way.replace(algorithm="ring", protocol="ll", start=flags_start * (1 - OF_STEPS),
                    step=flags_start * OF_STEPS / STEPS,
                    channel_bandwidth=flags * STEPS / NODE / CHANNELS),
        way.replace(algorithm="nvls", protocol="simple", start=switch_start,
                    channel_bandwidth=switch * (NODE + 1) / NODE / CHANNELS)])


def cluster(nodes):
    """p5: four EFA adapters of 100 Gb/s for each GPU, taken for one of 400 Gb/s."""
    return orrery.load_cluster({
        "name": "p5", "nodes": [{"name": "p5", "count": nodes,
                                 "gpus": {"type": "H100-80GB", "count": NODE},
                                 "domains": {"link": "nvlink4"}, "pcie": {"link": "pcie5-x16"},
                                 "nics": {"link": "infiniband-400", "count": NODE},
                                 "host_memory": {"capacity": "2 TiB", "bandwidth": 200e9}}]})


CLUSTERS = {nodes: cluster(nodes) for nodes in (1, 2)}


def reduce_times(rows, made=None):
    """Of each row, in the library's closed form: the fastest way inside a node, rings through all
    adapters where there are several."""
    topologies = {nodes: orrery.Topology(one, made) for nodes, one in CLUSTERS.items()}
    return [topologies[row["nodes"]].collective_time(
        "all_reduce", "ring", range(NODE * row["nodes"]), row["size"]) for row in rows]


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
        return [reduce_times(rows, profile(point)) for point in points]

    found = fit.fit_rows(measured, space, model)
    left_out = [reduce_times([row], profile(fit.point_without(found, place, space)))[0] / real - 1
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
    seconds = {row["id"]: time for row, time in zip(rows, reduce_times(rows, made))}
    unseen = {row["id"]: 1e-6 * row["measured"] / seconds[row["id"]] - 1 for row in rows}
    out = {row["id"]: 1 / (1 + error) - 1 for row, error in zip(fitting, left_out)}
    large = [row for row in rows if row["size"] >= LARGE]
    plain = {row["id"]: 1e-6 * row["measured"] / time - 1
             for row, time in zip(large, reduce_times(large))}
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
