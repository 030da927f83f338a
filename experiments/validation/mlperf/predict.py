#!/usr/bin/python3
"""Predicts the training steps of MLPerf's GPT-3 and Llama 3.1 405B systems, 64 to 11,616 GPUs,
from those of at most 1,024 (README.md). `predict.py --help`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import tables  # noqa: E402
from today import study  # noqa: E402
from today.models import model  # noqa: E402
from today.runs import Run  # noqa: E402

LARGEST_FITTED = 1024
TARGET = 0.05
# v3.1 does not print the number of virtual stages: that of v4.1 on as many stages is taken.
VIRTUAL_STAGES = {"3.1": 6}


MODELS = {"gpt3": "gpt3_175b_mlperf", "llama31_405b": "llama3_405b"}


# GPU types whose parameters dgxc's rows give, by those of MLPerf.
LIKE = {"H100": "H100", "H200": "H100", "B200": "GB200", "GB200": "GB200", "GB300": "GB200"}


def hopper(run):
    return LIKE[run.gpu] == "H100"


def read_row(row, known, found):
    benchmark, gpu = row.text("benchmark"), row.text("gpu")
    release = row.text("round")
    vp = row.text("virtual_stages")
    low = row.text("precision")
    run = Run(id=row.text("id"), set=benchmark, model=known[benchmark], gpu=gpu,
              gpus=row.count("gpus"), sequence=row.count("sequence"),
              global_batch=row.count("global_batch"), micro_batch=row.count("micro_batch"),
              tp=row.count("tensor_parallel"), pp=row.count("pipeline_parallel"),
              virtual_stages=int(vp) if vp else VIRTUAL_STAGES[release],
              cp=row.count("context_parallel"), precision=low, generation=release,
              # 126 layers and two ends are 128, as the configurations say (asym_pp_*).
              ends_count=benchmark == "llama31_405b", measured=row.number("step_s"))
    run.parameters = study.taken_from(found, LIKE.get(gpu))
    if row.text("tp_comm_overlap") == "False":
        run.facts["exposed"] = 1.0
    run.fitted = run.measured is not None and run.gpus <= LARGEST_FITTED
    for problem in run.problems():
        row.problem("gpus", problem)
    return run


def read(folder, problems):
    known = {benchmark: model(name) for benchmark, name in MODELS.items()}
    found = study.read_parameters(Path(__file__).with_name("parameters_of_dgxc.csv"), problems)
    return [read_row(row, known, found)
            for row in tables.Table(f"{folder}/systems.csv", ["id", "gpu", "step_s"], problems)]


def free(runs):
    """How much faster this software is than dgxc's: the first one on Hopper, later ones, and that
    on Blackwell."""
    return [study.Free("slowdown", "Hopper 3.1", lambda run: run.generation == "3.1"),
            study.Free("slowdown", "Hopper 4.0 to 5.0",
                       lambda run: hopper(run) and run.generation != "3.1"),
            study.Free("slowdown", "Blackwell", lambda run: not hopper(run))]


def lines(runs, unseen, line):
    def large(run):
        return run.gpus > LARGEST_FITTED

    return [line("gpt3, above 1,024 GPUs", runs, unseen,
                 lambda run: large(run) and run.set == "gpt3"),
            line("llama31_405b, above 1,024 GPUs", runs, unseen,
                 lambda run: large(run) and run.set != "gpt3"),
            line("above 1,024 GPUs", runs, unseen, large, TARGET)]


if __name__ == "__main__":
    tables.run(lambda: study.main("mlperf", read, free, lines))
