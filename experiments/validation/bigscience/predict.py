#!/usr/bin/python3
"""Predicts BLOOM's search for a plan: step time and memory of models of 176 to 206 billion
parameters on up to 384 A100 under Megatron-DeepSpeed (README.md). `predict.py --help`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import errors  # noqa: E402
import orrery  # noqa: E402
import tables  # noqa: E402
from today import memory, rows, study  # noqa: E402
from today.models import usual_layer  # noqa: E402
from today.runs import Model  # noqa: E402

TARGET_TIME, TARGET_MEMORY = 0.07, 0.05
# Weights and gradients in 16 bits; over the replicas (ZeRO-1) fp32 master copies, the gradients of
# these, and moments. The last section's runs hold four bytes a parameter more than equal plans
# before: sums in fp32, as DeepSpeed's optimizer for bf16 keeps them, of which its gradients are
# views.
STATES = orrery.StateBytes(weight=2, gradient=2, master=4 + 4, moments=8)
STATES_BF16 = orrery.StateBytes(weight=2, gradient=6, master=4, moments=8)


def heads_of(row):
    """As the heading says; where they do not divide the width, with which Megatron does not start,
    the nearest count that does."""
    hidden, told, tp = row.count("hidden"), row.count("heads"), row.count("tensor_parallel")
    return min((heads for heads in range(tp, 2 * told, tp) if hidden % heads == 0),
               key=lambda heads: abs(heads - told))


def bloom(row):
    hidden, heads = row.count("hidden"), heads_of(row)
    shape = orrery.load_shape("bloom_176b").replace(
        layers=row.count("layers"), hidden=hidden, heads=heads, kv_heads=heads,
        head_dim=hidden // heads, ffn=4 * hidden, vocabulary=row.count("vocabulary"))
    tp = row.count("tensor_parallel")
    shape = shape.replace(vocabulary=-(-shape.vocabulary // (128 * tp)) * 128 * tp)
    return Model(shape, (usual_layer(shape).replace(unfused=True),))


def read_row(row):
    run = rows.run_of(row, set="A100", model=bloom(row), gpu="A100-JZ", recompute="full",
                      sequence_parallel=False,
                      sharded="optimizer" if row.text("zero") == "1" else "none")
    # Rebalanced: embedding and loss count as a layer each.
    layers = run.model.shape.layers
    run.ends_count = layers % run.pp != 0 and (layers + 2) % run.pp == 0
    run.facts["exposed"] = 1.0
    run.facts["exposed_gradients"] = 0.01
    run.notes["states"] = (STATES_BF16 if row.text("section") == "Rebalancing layers" else STATES)
    run.notes["memory"] = row.number("memory_gb")
    run.notes["plan"] = (layers, run.model.shape.hidden, run.model.shape.heads, run.gpus, run.tp,
                         run.pp, run.micro_batch, run.global_batch)
    return run


def usual_shape(billions, stages):
    """Layers of the width that models of this size had, as many as make up the size and as the
    stages divide evenly (assumed: these rows say the size alone)."""
    hidden = 4096 if billions < 10 else 6144 if billions < 20 else 8192
    layers = billions * 1e9 / (12 * hidden**2)
    return hidden, max(1, round(layers / stages)) * stages


def read_v100(row):
    """Sizes, and for one model its shape, at 16 bits; the TFLOP/s of the rows count layers that are
    computed twice, and sequences of 1024 tokens."""
    stages = row.count("pipeline_parallel")
    hidden, layers = usual_shape(row.number("billions") or 1.0, stages)
    if row.text("hidden"):
        hidden, layers = row.count("hidden"), row.count("layers")
    if layers < stages:  # then the shape was another one of the same size
        layers = stages
        hidden = round((1e9 * (row.number("billions") or 1.0) / (12 * layers))**0.5 / 1024) * 1024
    heads = hidden // 128 if hidden < 16384 else 32
    tp = row.count("tensor_parallel")
    shape = orrery.load_shape("bloom_176b").replace(
        layers=layers, hidden=hidden, heads=heads, kv_heads=heads, head_dim=hidden // heads,
        ffn=4 * hidden, vocabulary=-(-50257 // (128 * tp)) * 128 * tp)
    run = rows.run_of(row, set="V100", gpu="V100-JZ", recompute="full", sequence_parallel=False,
                      model=Model(shape, (usual_layer(shape).replace(unfused=True),)),
                      sharded={"0": "none", "1": "optimizer", "3": "all"}[row.text("zero")],
                      scored=not row.text("offload"))
    run.facts["exposed"] = 1.0
    run.facts["exposed_gradients"] = 0.01
    run.notes["memory"] = None
    run.notes["plan"] = (layers, hidden, run.gpus, run.tp, run.pp, run.dp, run.micro_batch,
                         run.global_batch, run.sharded, row.text("offload"))
    return run


def mark_every_second_plan(runs):
    plans = list(dict.fromkeys(run.notes["plan"] for run in runs if run.scored and
                               (run.measured is not None or run.notes["memory"])))
    for run in runs:
        run.notes["fitted"] = run.notes["plan"] in plans[::2]
        run.fitted = run.measured is not None and run.notes["fitted"]


def read(folder, problems):
    """All rows. Fitted on: every second plan that was measured, in the order of the table; a plan
    that stands there several times is fitted on as often."""
    runs = [read_row(row) for row in tables.Table(
        f"{folder}/throughput.csv", ["id", "hidden", "step_s", "memory_gb"], problems)]
    older = rows.read(f"{folder}/v100.csv", ["billions", "step_s"], problems, read_v100)
    for some in (runs, older):
        mark_every_second_plan(some)
    return [runnable(run) for run in runs + older]


def runnable(run):
    """The batch as it was run: a multiple of what the replicas take at once."""
    step = run.dp * run.micro_batch
    run.global_batch = max(step, run.global_batch // step * step)
    return run


def is_a100(run):
    return run.set == "A100"


def free(runs):
    found = [study.Free(name, "", is_a100)
             for name in ("products", "memory", "unaligned", "gap", "step")]
    return found + [study.Free(name, "V100", lambda run: not is_a100(run))
                    for name in ("products", "memory")]


FIT = {}  # of memory: constant and slope, on the rows that were fitted on


def memory_rows(runs):
    """Rows of predictions.csv: bytes beyond the states are c + f x activations, as the allocator
    keeps blocks that fit nothing else."""
    runs = [run for run in runs if is_a100(run)]
    parts = {run.id: memory.parts_of(run, run.notes["states"]) for run in runs}
    pairs = [(parts[run.id].activations, 1e9 * run.notes["memory"] - parts[run.id].states)
             for run in runs if run.notes["memory"] and run.notes["fitted"]]
    constant, slope = memory.theil_sen(pairs)
    FIT.update(constant=constant, slope=slope, rows=len(pairs))
    rows = {}
    for run in runs:
        one = parts[run.id]
        known = run.notes["memory"]
        rows[run.id] = errors.Row(run.id, run.set, "peak_memory_bytes",
                                  one.states + constant + slope * one.activations,
                                  1e9 * known if known else None, True, run.notes["fitted"])
    return rows


def lines(runs, unseen, line):
    rows = memory_rows(runs)
    RUNS.update(rows)
    scored = [row for row in rows.values() if row.use() == "scored"]
    fitted = [row for row in rows.values() if row.use() == "fitted"]
    print(f"memory: {FIT['constant'] / 1e9:.2f} GB + {FIT['slope']:.3f} x activations, on "
          f"{FIT['rows']} rows")
    return [line("time, scored", runs, unseen, lambda run: is_a100(run) and not run.fitted,
                 TARGET_TIME),
            line("V100, time, scored", runs, unseen,
                 lambda run: not is_a100(run) and not run.fitted),
            errors.summarize("memory, scored", "peak_memory_bytes",
                             [row.error() for row in scored], [row.id for row in scored],
                             TARGET_MEMORY),
            errors.summarize("memory, in the fit", "peak_memory_bytes",
                             [row.error() for row in fitted], [row.id for row in fitted])]


RUNS = {}


def metrics(run, one):
    return [RUNS[run.id]] if is_a100(run) else []


if __name__ == "__main__":
    tables.run(lambda: study.main("bigscience", read, free, lines, metrics))
