#!/usr/bin/python3
"""Predicts Megatron-LM's published weak scaling on H100: 1.7 to 462 billion parameters on 48 to
6,144 GPUs (README.md). `predict.py --help`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import errors  # noqa: E402
import orrery  # noqa: E402
import tables  # noqa: E402
from today import rows, study  # noqa: E402
from today.models import usual_layer  # noqa: E402
from today.runs import Model  # noqa: E402

LARGEST_FITTED = 768
SEQUENCE, VOCABULARY = 4096, 131072
DGXC = Path(__file__).with_name("parameters_of_dgxc.csv")


def gpt(row):
    hidden, heads = row.count("hidden"), row.count("heads")
    shape = orrery.load_shape("gpt3_175b").replace(
        name=row.text("id"), layers=row.count("layers"), hidden=hidden, heads=heads,
        kv_heads=heads, head_dim=hidden // heads, ffn=4 * hidden, vocabulary=VOCABULARY,
        positions=SEQUENCE)
    return Model(shape, (usual_layer(shape),))


def model_flops(run):
    """FLOPs of a step: 72 B s l h^2 (1 + s/(6h) + V/(12 l h)) [Korthikanti et al. 2022, A]."""
    shape = run.model.shape
    return (72.0 * run.global_batch * run.sequence * shape.layers * shape.hidden**2 *
            (1 + run.sequence / (6.0 * shape.hidden) +
             shape.vocabulary / (12.0 * shape.layers * shape.hidden)))


def read_row(row, found):
    run = rows.run_of(row, set="weak scaling", model=gpt(row), gpu="H100", sequence=SEQUENCE,
                      gradient_bytes=4.0)
    if run.pp == 1:  # the table does not say: all that a replica has
        run.micro_batch = run.global_batch // run.dp
    # The table does not print interleaving; as many chunks as two layers in each allow.
    layers = run.model.shape.layers // run.pp
    run.virtual_stages = layers // 2 if run.pp > 1 and layers % 2 == 0 else 1
    run.parameters = study.taken_from(found, "H100")
    rate = row.number("tflops_per_gpu")
    if rate is not None:
        run.measured = model_flops(run) / (rate * 1e12 * run.gpus)
    run.fitted = run.measured is not None and run.gpus <= LARGEST_FITTED
    return run


def read(folder, problems):
    found = study.read_parameters(DGXC, problems)
    return rows.read(f"{folder}/h100_weak_scaling.csv", ["hidden", "gpus"], problems,
                     lambda row: read_row(row, found))


def free(runs):
    return [study.Free("slowdown")]


def lines(runs, unseen, line):
    return [line("above 768 GPUs", runs, unseen, lambda run: not run.fitted)]


def metrics(run, one):
    """TFLOP/s of a GPU, as the table counts them."""
    def rate(step):
        return model_flops(run) / (step * run.gpus) / 1e12

    return [errors.Row(run.id, run.set, "tflops_per_gpu", rate(one.step),
                       rate(run.measured) if run.measured else None, run.scored, run.fitted)]


if __name__ == "__main__":
    tables.run(lambda: study.main("megatron_lm", read, free, lines, metrics))
