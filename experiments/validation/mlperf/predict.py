#!/usr/bin/python3
"""Predicts the training steps of MLPerf's GPT-3 and Llama 3.1 405B systems, 64 to 11,616 GPUs,
from those of at most 1,024 (README.md). `predict.py --help`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import errors  # noqa: E402
import tables  # noqa: E402
from today import jitter, rows, study  # noqa: E402
from today.models import model  # noqa: E402

LARGEST_FITTED = 1024
TARGET = 0.05
TAIL_METRICS = ("step_p5_s", "step_p95_s")
# v3.1 does not print the number of virtual stages: that of v4.1 on as many stages is taken.
VIRTUAL_STAGES = {"3.1": 6}


MODELS = {"gpt3": "gpt3_175b_mlperf", "llama31_405b": "llama3_405b"}


# GPU types whose parameters dgxc's rows give, by those of MLPerf.
LIKE = {"H100": "H100", "H200": "H100", "B200": "GB200", "GB200": "GB200", "GB300": "GB200"}


def hopper(run):
    return LIKE[run.gpu] == "H100"


def read_row(row, known, found):
    benchmark = row.text("benchmark")
    release = row.text("round")
    vp = row.text("virtual_stages")
    run = rows.run_of(row, set=benchmark, model=known[benchmark],
                      virtual_stages=int(vp) if vp else VIRTUAL_STAGES[release],
                      generation=release,
                      # 126 layers and two ends are 128, as the configurations say (asym_pp_*).
                      ends_count=benchmark == "llama31_405b")
    run.parameters = study.taken_from(found, LIKE.get(run.gpu))
    run.notes["tails"] = row.number("step_p5_s"), row.number("step_p95_s")
    if row.text("tp_comm_overlap") == "False":
        run.facts["exposed"] = 1.0
    run.fitted = run.measured is not None and run.gpus <= LARGEST_FITTED
    return run


def read(folder, problems):
    known = {benchmark: model(name) for benchmark, name in MODELS.items()}
    found = study.read_parameters(Path(__file__).with_name("parameters_of_dgxc.csv"), problems)
    runs = rows.read(f"{folder}/systems.csv", ["gpu", "step_s"], problems,
                     lambda row: read_row(row, known, found))
    for run in runs:
        run.notes["deviation"] = jitter.fit(series(runs))
    return runs


def free(runs):
    """How much faster this software is than dgxc's: the first one on Hopper, later ones, and that
    on Blackwell."""
    return [study.Free("slowdown", "Hopper 3.1", lambda run: run.generation == "3.1"),
            study.Free("slowdown", "Hopper 4.0 to 5.0",
                       lambda run: hopper(run) and run.generation != "3.1"),
            study.Free("slowdown", "Blackwell", lambda run: not hopper(run))]


def series(runs):
    """Of the fitting rows: GPUs, p5 and p95 over the median."""
    return [(run.gpus, *(tail / run.measured for tail in run.notes["tails"]))
            for run in runs if run.fitted and all(run.notes["tails"])]


def tails(run, step):
    """p5 and p95 of steps with this median."""
    return [step * jitter.over_median(run.gpus, share, run.notes["deviation"])
            for share in jitter.TAILS]


def tail_lines(runs, unseen):
    """p5 and p95 of the steps of large systems, around the predicted median and around the measured
    one."""
    table = []
    for name, median in (("", lambda run: run.measured * (1 + unseen[run.id])),
                         (", around the measured median", lambda run: run.measured)):
        for place, metric in enumerate(TAIL_METRICS):
            taken = [run for run in runs if run.gpus > LARGEST_FITTED and
                     run.notes["tails"][place]]
            found = [tails(run, median(run))[place] / run.notes["tails"][place] - 1
                     for run in taken]
            table.append(errors.summarize(f"above 1,024 GPUs{name}", metric, found,
                                          [run.id for run in taken]))
    return table


def further(runs):
    used = series(runs)
    assert errors.enough_rows(1, len(used))
    left_out = []
    for place, (gpus, *measured) in enumerate(used):
        other = jitter.fit(used[:place] + used[place + 1:])
        left_out += [abs(jitter.over_median(gpus, share, other) / tail - 1)
                     for share, tail in zip(jitter.TAILS, measured)]
    ids = [run.id for run in runs if run.fitted and all(run.notes["tails"])]
    return [errors.Parameter("step_jitter", "", jitter.fit(used), ids,
                             sum(left_out) / len(left_out))]


def metrics(run, one):
    return [errors.Row(run.id, run.set, metric, predicted, measured, run.scored, run.fitted)
            for metric, predicted, measured in zip(TAIL_METRICS, tails(run, one.step),
                                                   run.notes["tails"])]


def lines(runs, unseen, line):
    def large(run):
        return run.gpus > LARGEST_FITTED

    return [line("gpt3, above 1,024 GPUs", runs, unseen,
                 lambda run: large(run) and run.set == "gpt3"),
            line("llama31_405b, above 1,024 GPUs", runs, unseen,
                 lambda run: large(run) and run.set != "gpt3"),
            line("above 1,024 GPUs", runs, unseen, large, TARGET)] + tail_lines(runs, unseen)


if __name__ == "__main__":
    tables.run(lambda: study.main("mlperf", read, free, lines, metrics, further))
