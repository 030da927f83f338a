#!/usr/bin/python3
"""Predicts the throughputs that torchtitan publishes of Llama 3.1 on 8 to 512 H100: FSDP, tensor,
pipeline and context parallelism (README.md). `predict.py --help`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import errors  # noqa: E402
import tables  # noqa: E402
from today import rows, study  # noqa: E402
from today.models import model  # noqa: E402

TARGET = 0.07
LARGEST_FITTED = 64
DGXC = Path(__file__).with_name("parameters_of_dgxc.csv")


def read_row(row, found):
    pp, batch = row.count("pipeline_parallel"), row.count("local_batch")
    interleaved = row.text("schedule") == "Interleaved1F1B"
    recompute = row.text("recompute")
    run = rows.run_of(row, set=row.text("model"), model=model(row.text("model")),
                      global_batch=batch * row.count("fsdp"), micro_batch=1 if pp > 1 else batch,
                      virtual_stages=2 if interleaved else 1,
                      precision="bf16" if row.text("float8") == "no" else "fp8", sharded="all",
                      recompute="full" if recompute == "full" else "selective",
                      per_op=recompute.startswith("selective"),
                      fused=row.text("compile") == "yes")
    run.ends_count = run.model.shape.layers % run.chunks != 0
    run.parameters = study.taken_from(found, "H100")
    if row.text("async_tp") == "no":
        run.facts["exposed"] = 1.0
    rate = row.number("tokens_per_s_per_gpu")
    if rate is not None:
        run.measured = run.global_batch * run.sequence / (rate * run.gpus)
    run.fitted = run.measured is not None and run.gpus <= LARGEST_FITTED
    return run


def read(folder, problems):
    found = study.read_parameters(DGXC, problems)
    return rows.read(f"{folder}/torchtitan.csv", ["model", "gpu"], problems,
                     lambda row: read_row(row, found))


def free(runs):
    """Kernels that PyTorch does not fuse, and its own attention (FlashAttention 2, not cuDNN's)."""
    return [study.Free("memory", "H100", lambda run: run.gpu == "H100"), study.Free("attention")]


def lines(runs, unseen, line):
    return [line("more than 64 GPUs", runs, unseen, lambda run: not run.fitted, TARGET)]


def metrics(run, one):
    """Tokens per second and GPU."""
    def rate(step):
        return run.global_batch * run.sequence / (step * run.gpus)

    return [errors.Row(run.id, run.set, "tokens_per_s_per_gpu", rate(one.step),
                       rate(run.measured) if run.measured else None, run.scored, run.fitted)]


if __name__ == "__main__":
    tables.run(lambda: study.main("torchtitan", read, free, lines, metrics))
