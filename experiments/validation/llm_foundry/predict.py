#!/usr/bin/python3
"""Predicts the throughputs that MosaicML publishes of MPT models under FSDP on 8 to 512 A100 and
H100 (README.md). `predict.py --help`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import errors  # noqa: E402
import orrery  # noqa: E402
import tables  # noqa: E402
from today import rows, study  # noqa: E402
from today.models import usual_layer  # noqa: E402
from today.runs import Model  # noqa: E402

TARGET = 0.07
# Layers, width and heads by size. [llm-foundry, scripts/train/yamls/pretrain/mpt-*.yaml]
SIZES = {"125m": (12, 768, 12), "350m": (24, 1024, 16), "760m": (24, 1536, 12),
         "1b": (24, 2048, 16), "3b": (32, 2560, 20), "7b": (32, 4096, 32), "13b": (40, 5120, 40),
         "30b": (48, 7168, 56), "70b": (80, 8192, 64)}


def mpt(size):
    layers, hidden, heads = SIZES[size]
    shape = orrery.load_shape("mpt_7b").replace(
        name=f"mpt_{size}", layers=layers, hidden=hidden, heads=heads, kv_heads=heads,
        head_dim=hidden // heads, ffn=4 * hidden)
    return Model(shape, (usual_layer(shape),))


def read_row(row):
    run = rows.run_of(row, set=f"{row.text('gpu')}, {row.text('precision')}",
                      model=mpt(row.text("model")), generation=row.text("section"))
    run.notes["case"] = (run.gpu, run.precision, row.text("section"), row.text("model"))
    rate = row.number("tokens_per_s")
    if rate is not None:
        run.measured = run.global_batch * run.sequence / rate
    return run


def read(folder, problems):
    """All rows. Fitted on: of each model, GPU type, precision and section the visible row with the
    fewest GPUs, and of several such rows the one of the shortest sequence from 2,048 on."""
    runs = rows.read(f"{folder}/mpt_throughput.csv", ["model", "gpu"], problems, read_row)
    smallest = {}
    for run in runs:
        if run.measured is None:
            continue
        case = run.notes["case"]
        size = (run.gpus, run.sequence < 2048, run.sequence)
        if case not in smallest or size < smallest[case][0]:
            smallest[case] = (size, run)
    for _, run in smallest.values():
        run.fitted = True
    return runs


def free(runs):
    def h100(run):
        return run.gpu == "H100"

    def a100(run):
        return run.gpu != "H100"

    return [study.Free("products", "A100", a100), study.Free("attention", "A100", a100),
            study.Free("products", "H100", h100), study.Free("attention", "H100", h100),
            study.Free("low_products", "H100", h100), study.Free("memory")]


def lines(runs, unseen, line):
    def scored(run):
        return not run.fitted

    names = list(dict.fromkeys(run.set for run in runs))
    return [line(f"{name}, scored", runs, unseen,
                 lambda run, name=name: scored(run) and run.set == name) for name in names] + [
        line("scored", runs, unseen, scored, TARGET)]


def metrics(run, one):
    """Tokens per second and GPU."""
    def rate(step):
        return run.global_batch * run.sequence / (step * run.gpus)

    return [errors.Row(run.id, run.set, "tokens_per_s_per_gpu", rate(one.step),
                       rate(run.measured) if run.measured else None, run.scored, run.fitted)]


if __name__ == "__main__":
    tables.run(lambda: study.main("llm_foundry", read, free, lines, metrics))
