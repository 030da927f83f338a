#!/usr/bin/python3
"""Predicts what NVIDIA publishes of context parallelism on long sequences: Llama 3 8B on B200 and
Llama 2 7B on H100, 4,096 to 1,048,576 tokens (README.md). `predict.py --help`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import errors  # noqa: E402
import tables  # noqa: E402
from today import rows, study  # noqa: E402
from today.models import model  # noqa: E402

BRIDGE = Path(__file__).with_name("parameters_of_megatron_bridge.csv")
LONGEST_FITTED = 32768


def model_flops(run):
    """FLOPs of a step as the tables count them: 6 for each parameter and token, and full attention
    (12 layers x hidden x tokens for each token, no mask) [NVIDIA's performance pages; that the
    mask is not counted off follows from rates above the best measured product]."""
    shape = run.model.shape
    head = shape.heads * shape.head_dim
    matrices = 3 if shape.activation == "swiglu" else 2
    layer = shape.hidden * (2 * head + 2 * shape.kv_heads * shape.head_dim +
                            matrices * shape.ffn)
    weights = shape.layers * layer + shape.hidden * shape.vocabulary
    tokens = run.global_batch * run.sequence
    return tokens * (6.0 * weights + 12.0 * shape.layers * head * run.sequence)


def read_row(row, found):
    gpu = row.text("gpu")
    run = rows.run_of(row, set=gpu, model=model(row.text("model")), precision="fp8")
    run.parameters = study.taken_from(
        found, *(["H100"] if gpu == "H100" else ["B200/GB200"]))
    rate = row.number("tflops_per_gpu")
    if rate is not None:
        run.measured = model_flops(run) / (rate * 1e12 * run.gpus)
    run.fitted = run.measured is not None and run.sequence <= LONGEST_FITTED
    return run


def read(folder, problems):
    found = study.read_parameters(BRIDGE, problems)
    return rows.read(f"{folder}/long_sequence.csv", ["model", "gpu"], problems,
                     lambda row: read_row(row, found))


def free(runs):
    """One: there are seven fitting rows."""
    return [study.Free("attention")]


def lines(runs, unseen, line):
    return [line(f"{gpu}, above 32,768 tokens", runs, unseen,
                 lambda run, gpu=gpu: not run.fitted and run.gpu == gpu)
            for gpu in ("B200", "H100")]


def metrics(run, one):
    """TFLOP/s of a GPU, as the table counts them."""
    def rate(step):
        return model_flops(run) / (step * run.gpus) / 1e12

    return [errors.Row(run.id, run.set, "tflops_per_gpu", rate(one.step),
                       rate(run.measured) if run.measured else None, run.scored, run.fitted)]


if __name__ == "__main__":
    tables.run(lambda: study.main("nemo", read, free, lines, metrics))
