#!/usr/bin/python3
"""Predicts NCCL's all-reduce on one and two nodes of eight GPUs by size (README.md).
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
LATER = "p5_later"
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
# How two nodes reduce over EFA: in chunks. On H100 each node sums in its switch and a tree joins
# the nodes (NVLSTree): a chunk waits 2 x 23 us inside, and for each hop between nodes 20 us and 3 us
# of completion. [aws/aws-ofi-nccl, src/tuner/nccl_ofi_model.cpp, include/nccl_ofi_param.h] On A100
# chains of GPUs (Tree): what a chunk waits is fitted.
CHUNK = 512 << 10  # largest: of a buffer of 4 MiB an eighth [NVIDIA/nccl, src/enqueue.cc]
INSIDE, BETWEEN = 23e-6, 23e-6
LEAST = 64 << 20  # bytes, from which the p5 nodes' software was published
CHUNK_LATENCY = 20e-6


def profile(point, chunk_latency=CHUNK_LATENCY):
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
                    channel_bandwidth=switch * (NODE + 1) / NODE / CHANNELS),
        way.replace(link_class="efa-400", algorithm="nvls_tree", protocol="simple",
                    start=2 * INSIDE, step=BETWEEN, chunk=CHUNK, from_bytes=LEAST,
                    channel_bandwidth=25e9),
        way.replace(link_class="efa-100", algorithm="tree", protocol="simple",
                    start=chunk_latency, chunk=CHUNK, from_bytes=LARGE, channels=8,
                    channel_bandwidth=6.25e9)])


def cluster(nodes, gpu="H100"):
    """p5: four EFA adapters of 100 Gb/s for each H100, taken for one of 400 Gb/s. p4de: one for
    each two A100."""
    design = {"H100": ("H100-80GB", "nvlink4", "pcie5-x16", {"link": "efa-400", "count": NODE}),
              "A100": ("A100-80GB", "nvlink3", "pcie4-x16", {"link": "efa-100", "count": NODE // 2})}
    name, domain, pcie, nics = design[gpu]
    return orrery.load_cluster({
        "name": gpu, "nodes": [{"name": gpu, "count": nodes, "gpus": {"type": name, "count": NODE},
                                "domains": {"link": domain}, "pcie": {"link": pcie}, "nics": nics,
                                "host_memory": {"capacity": "2 TiB", "bandwidth": 200e9}}]})


CLUSTERS = {of: cluster(*of) for of in ((1, "H100"), (2, "H100"), (2, "A100"))}


def reduce_times(rows, made=None):
    """Of each row, in the library's closed form: the fastest way inside a node or between two, and
    rings through all adapters where none is known."""
    topologies = {of: orrery.Topology(one, made) for of, one in CLUSTERS.items()}
    return [topologies[row["nodes"], row["gpu"]].collective_time(
        "all_reduce", "ring", range(NODE * row["nodes"]), row["size"]) for row in rows]


def bus_bandwidth(seconds, row):
    """[nccl-tests, doc/PERFORMANCE.md]"""
    return row["size"] / seconds * 2 * (row["gpus"] - 1) / row["gpus"]


def read(folder, problems):
    """Fitted on: the table of one DGX H100 and, from 1 MiB on, that of two p4de."""
    rows = []
    for row in tables.Table(f"{folder}/all_reduce.csv", ["id", "system", "size"], problems):
        system, size = row.text("system"), float(row.count("size"))
        rows.append({"id": row.text("id"), "set": system, "nodes": row.count("nodes"),
                     "gpus": row.count("gpus"), "size": size,
                     "gpu": "A100" if system == "p4de" else "H100",
                     "measured": row.number("time_us"),
                     "fitted": system == "dgx_h100" or system == "p4de" and size >= LARGE})
    return rows


def fit_rows(rows, start, make):
    """The parameters of the profile that `make` makes of them, and each row's error without it."""
    measured = [1e-6 * row["measured"] for row in rows]
    assert errors.enough_rows(len(start), len(rows))
    space = fit.Space(start=start, least=[value / 5 for value in start],
                      most=[value * 5 for value in start], iterations=30)

    def model(points):
        return [reduce_times(rows, make(point)) for point in points]

    found = fit.fit_rows(measured, space, model)
    left_out = {row["id"]: reduce_times([row], make(fit.point_without(found, place, space)))[0] /
                real - 1 for place, (row, real) in enumerate(zip(rows, measured))}
    return found.point, left_out


def scored(row):
    """Two p5 under later software stand apart: what NCCL chooses there is not published."""
    return not row["fitted"] and row["set"] != LATER


def line(name, rows, found, target=None):
    return errors.summarize(name, "bus_bandwidth", [found[row["id"]] for row in rows],
                            [row["id"] for row in rows], target)


def parameters_of(names, units, point, rows, left_out):
    size = math.fsum(abs(left_out[row["id"]]) for row in rows) / len(rows)
    return [errors.Parameter(name, unit, value, [row["id"] for row in rows], size)
            for name, unit, value in zip(names, units, point)]


def main():
    parser = argparse.ArgumentParser(description="Predicts all-reduces; says how far off")
    parser.add_argument("--data", default=str(tables.measurements("nccl")))
    parser.add_argument("--out", default="results/validation/nccl")
    options = parser.parse_args()
    problems = tables.Problems()
    rows = read(options.data, problems)
    problems.raise_any()
    inside = [row for row in rows if row["fitted"] and row["nodes"] == 1]
    between = [row for row in rows if row["fitted"] and row["nodes"] > 1]
    point, out = fit_rows(inside, START, profile)
    waits, more = fit_rows(between, [CHUNK_LATENCY], lambda found: profile(point, *found))
    out = {name: 1 / (1 + error) - 1 for name, error in (out | more).items()}
    made = profile(point, *waits)
    seconds = {row["id"]: time for row, time in zip(rows, reduce_times(rows, made))}
    unseen = {row["id"]: 1e-6 * row["measured"] / seconds[row["id"]] - 1 for row in rows}
    large = [row for row in rows if row["size"] >= LARGE]
    plain = {row["id"]: 1e-6 * row["measured"] / time - 1
             for row, time in zip(large, reduce_times(large))}
    sets = dict.fromkeys(row["set"] for row in large)
    table = [line(f"{name}, from 1 MiB" + (", leave one out" if name in ("dgx_h100", "p4de") else ""),
                  [row for row in large if row["set"] == name], unseen | out) for name in sets]
    table += [line("scored, from 1 MiB", [row for row in large if scored(row)], unseen, TARGET),
              line("the library's rings, from 1 MiB", large, plain)]
    parameters = parameters_of(NAMES, UNITS, point, inside, out)
    parameters += parameters_of(["chunk_latency"], ["s"], waits, between, out)
    cells = [errors.Row(row["id"], row["set"], "bus_bandwidth",
                        bus_bandwidth(seconds[row["id"]], row),
                        bus_bandwidth(1e-6 * row["measured"], row),
                        row["size"] >= LARGE and row["set"] != LATER, row["fitted"])
             for row in rows]
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
