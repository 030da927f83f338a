#!/usr/bin/python3
"""Predicts the step times that NVIDIA publishes with its DGX Cloud benchmarks: dense models and
models of experts in BF16 and FP8, 8 to 2,304 H100 and up to 512 GB200 (README.md).
`predict.py --help`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import tables  # noqa: E402
from today import rows, study  # noqa: E402
from today.models import model, packed  # noqa: E402

DOCUMENT = 512  # tokens of an example that fine-tuning packs with others (assumed)
EXPERTS = {"grok1", "deepseek_v3", "llama4_maverick"}
TARGETS = {"dense": 0.06, "experts": 0.10}
HYBRID = {"nemotron_h_56b"}


def read_row(row):
    name, task = row.text("model"), row.text("task")
    layers = row.text("layers")
    shape = model(name, int(layers) if layers else None)
    if task != "pretrain":
        shape = packed(shape, DOCUMENT)
    run = rows.run_of(row, set=set_of(name, task), model=shape, frozen=task == "lora",
                      generation=row.text("tag"), scored=row.text("doubtful") != "yes")
    run.ends_count = rows.ends_as_layers(run)  # proxies of 405B
    run.notes["case"] = (row.text("tag"), name, task, run.gpu, run.precision)
    run.notes["model"] = name
    return run


def set_of(name, task):
    if task != "pretrain":
        return "fine-tuning"
    return "experts" if name in EXPERTS else "hybrid" if name in HYBRID else "dense"


def read(folder, problems):
    """All rows. Fitted on: of each model, task, GPU type, precision and release the visible row
    with the fewest GPUs; proxies with fewer layers are the same model."""
    runs = rows.read(f"{folder}/step_times.csv", ["model", "gpu", "step_s"], problems, read_row)
    smallest = {}
    for run in runs:
        if run.measured is None or not run.scored:
            continue
        case = run.notes["case"]
        if case not in smallest or run.gpus < smallest[case].gpus:
            smallest[case] = run
    for run in smallest.values():
        run.fitted = True
    return runs


def software(run):
    sharded = run.sharded == "all"
    return ("maxtext" if run.notes["model"].startswith("llama") else "paxml") if sharded else "nemo"


def free(runs):
    """Per GPU type, and for each of the two other frameworks how much slower it is."""
    def on(gpu):
        return lambda run: run.gpu == gpu

    def by(name):
        return lambda run: software(run) == name

    return [study.Free("products", "H100", on("H100")),
            study.Free("low_products", "H100", on("H100")),
            study.Free("attention", "H100", on("H100")),
            study.Free("products", "GB200", on("GB200")),
            study.Free("low_products", "GB200", on("GB200")),
            study.Free("exposed"),
            study.Free("gap"),
            study.Free("exposed_gradients"),
            study.Free("spread"),
            study.Free("step"),
            study.Free("routing"),
            study.Free("slowdown", "maxtext", by("maxtext")),
            study.Free("slowdown", "paxml", by("paxml"))]


def lines(runs, unseen, line):
    def larger(name, precision):
        return lambda run: not run.fitted and run.set == name and run.precision == precision

    return [line(f"{name}, {precision}, larger", runs, unseen, larger(name, precision),
                 TARGETS.get(name))
            for name in ("dense", "experts", "fine-tuning", "hybrid")
            for precision in ("bf16", "fp8")]


if __name__ == "__main__":
    tables.run(lambda: study.main("dgxc", read, free, lines))
