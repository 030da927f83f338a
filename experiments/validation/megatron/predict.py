#!/usr/bin/python3
"""Predicts Megatron's published iterations on Selene and says how far off (README.md): Table 1 of
SC'21 and the runs of the paper on activation recomputation, with the FLOPs that turn times into
TFLOP/s and MFU. `predict.py --help`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import errors  # noqa: E402
import tables  # noqa: E402
from a100 import study  # noqa: E402
from a100.runs import Run, Software, check_run  # noqa: E402

FREE = ["gemm_share", "older_software"]
# Calculon's own validation on the recompute rows of 22B to 1T: 3.65 % mean, 8.87 % max.
PUBLISHED_BEST = 0.0365
TARGET = 0.025
SC21, RECOMPUTE = "SC'21", "recompute"
# fp32 sums of gradients, which are reduced after the last backward pass; SC'21's runs up to 18.4b
# have torch DDP instead, which reduces fp16 gradients meanwhile. [the data's README] From early 2022
# on the products of weight gradients add to the sums themselves (read and write 4 bytes, without
# writing 2). [NVIDIA/apex pull request 1297, February 2022; the paper is of May]
FP32_SUMS = {"gradient_bytes": 4.0, "accumulation_bytes": 10.0}
FUSED_SUMS = {"gradient_bytes": 4.0, "accumulation_bytes": 6.0}
DDP = {"gradient_bytes": 2.0, "accumulation_bytes": 6.0, "overlapped_gradients": True}
DDP_RUNS = {"sc21-1.7b", "sc21-3.6b", "sc21-7.5b", "sc21-18.4b"}
PEAK = 312e12  # FLOP/s of an A100
# File, set (None: by id), column of the measured time.
FILES = (("sc21_table1.csv", SC21, "derived_iteration_s"),
         ("recompute_table5.csv", RECOMPUTE, "iteration_s_or_derived"),
         ("predict_these.csv", None, None))
COLUMNS = ["id", "layers", "hidden", "heads", "sequence", "vocab", "tp", "pp", "dp", "gpus",
           "global_batch", "micro_batch", "virtual_stages", "recompute", "sequence_parallel"]


def read_row(row, name):
    run_id = row.text("id")
    sc21 = name == SC21 if name else run_id.startswith("sc21-")
    sums = FUSED_SUMS if not sc21 else DDP if run_id in DDP_RUNS else FP32_SUMS
    software = Software(**sums, older=sc21)
    run = Run(id=run_id, set=SC21 if sc21 else RECOMPUTE, layers=row.count("layers"),
              hidden=row.count("hidden"), heads=row.count("heads"), sequence=row.count("sequence"),
              vocabulary=row.count("vocab"), tp=row.count("tp"), pp=row.count("pp"),
              dp=row.count("dp"), micro_batch=row.count("micro_batch"),
              global_batch=row.count("global_batch"), virtual_stages=row.count("virtual_stages"),
              recompute=row.text("recompute"), software=software,
              sequence_parallel=row.text("sequence_parallel") == "1")
    if run.recompute not in ("full", "selective"):
        row.problem("recompute", f"'{run.recompute}' is neither full nor selective")
    check_run(run, row)
    return run


def read(folder, problems):
    """Rows of the three files. The measured time is the printed one, else the one that follows from
    the printed throughput or MFU.

    Fitted on: the rows of the two tables but every third one of each, which are scored, as the data
    withholds every third of its rows. The rule was stated before any error was looked at."""
    runs = []
    for file, name, time in FILES:
        columns = COLUMNS + ([time] if time else [])
        for place, row in enumerate(tables.Table(f"{folder}/{file}", columns, problems), 1):
            run = read_row(row, name)
            if time:
                run.measured = row.number(time)
                run.fitted = place % 3 != 0
                if run.measured is None:
                    row.problem(time, "is missing")
            runs.append(run)
    return runs


def dimensions(run):
    return float(run.global_batch) * run.sequence * run.layers * run.hidden * run.hidden


def attention_and_logits(run, logits):
    return (1 + run.sequence / (6.0 * run.hidden) +
            run.vocabulary / (logits * run.layers * run.hidden))


def equation_3(run):
    """FLOPs of an iteration with the recomputed forward pass:
    96 B s l h^2 (1 + s/(6h) + V/(16 l h)) [Narayanan et al. 2021, Eq. 3]."""
    return 96 * dimensions(run) * attention_and_logits(run, 16.0)


def model_flops(run):
    """FLOPs of an iteration without recomputation:
    72 B s l h^2 (1 + s/(6h) + V/(12 l h)) [Korthikanti et al. 2022, Appendix A]."""
    return 72 * dimensions(run) * attention_and_logits(run, 12.0)


def percent_of_peak(flops, seconds, gpus):
    return 100 * (flops / (seconds * PEAK)) / gpus


def printed(folder, column, problems):
    """Printed values of a column by id, from all files that have it."""
    rows = [row for file, _, _ in FILES
            for row in tables.Table(f"{folder}/{file}", ["id"], problems)]
    return {row.text("id"): row.number(column) for row in rows if row.text(column)}


def more_rows(runs, predictions, folder):
    """achieved_tflops_per_gpu (Eq. 3) of SC'21's rows and mfu_percent of the others, with the
    printed values where the files have them."""
    problems = tables.Problems()
    printed_rates = printed(folder, "achieved_tflops_per_gpu", problems)
    printed_shares = printed(folder, "mfu_percent", problems)
    problems.raise_any()
    rows = []
    for run, one in zip(runs, predictions):
        if run.set == SC21:
            metric, known = "achieved_tflops_per_gpu", printed_rates
            predicted = equation_3(run) / one.iteration / run.gpus / 1e12
        else:
            metric, known = "mfu_percent", printed_shares
            predicted = percent_of_peak(model_flops(run), one.iteration, run.gpus)
        rows.append(errors.Row(run.id, run.set, metric, predicted, known.get(run.id), run.scored,
                               run.fitted))
    return rows


def lines(runs, unseen):
    def of(name, take, target=None, published=None):
        return study.line(name, runs, unseen, take, target, published)

    def sc21(run):
        return run.software.older

    def recompute(run):
        return not run.software.older

    return [
        of("scored, SC'21", lambda run: not run.fitted and sc21(run)),
        of("scored, recompute", lambda run: not run.fitted and recompute(run), None,
           PUBLISHED_BEST),
        of("scored", lambda run: not run.fitted, TARGET, PUBLISHED_BEST),
        of("fitted, leave one out", lambda run: run.fitted),
        of("all unseen, SC'21", sc21),
        of("all unseen, recompute", recompute, None, PUBLISHED_BEST),
        of("all unseen", lambda run: True, TARGET, PUBLISHED_BEST)]


if __name__ == "__main__":
    tables.run(lambda: study.main("megatron", FREE, read, lines, more_rows))
