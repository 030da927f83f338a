#!/usr/bin/python3
"""Predicts the throughputs that NVIDIA publishes with Megatron-Bridge: dense models and models of
experts in BF16, FP8, MXFP8 and NVFP4 on H100, B200, B300, GB200 and GB300 (README.md).
`predict.py --help`."""

import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import errors  # noqa: E402
import tables  # noqa: E402
from today.gpus import GPUS  # noqa: E402
from today import rows, study  # noqa: E402
from today.models import STAND_INS, model, packed  # noqa: E402

DGXC = Path(__file__).with_name("parameters_of_dgxc.csv")
# Rows whose printed layout is neither that of the release's recipe nor that of the same job in the
# release's other table. [NVIDIA-NeMo/Megatron-Bridge, scripts/performance/configs/llama]
RECIPES = Path(__file__).with_name("layouts_of_recipes.csv")
DOCUMENT = 512  # tokens of an example that fine-tuning packs with others (assumed)
# Releases before and after the kernels of experts were rewritten, by what their notes say.
BEFORE, AFTER = ("25.09", "25.11", "26.02", "26.04"), ("26.06", "26.08")
TARGET_EXPERTS, TARGET_DENSE = 0.10, 0.06


# Layers of each chunk of DeepSeek-V3, the last of which has the layer of the second token and the
# loss as well. [NVIDIA-NeMo/Megatron-Bridge, recipes/deepseek/deepseek_v3.py, pp_layout]
LAYOUTS = ((8,) * 7 + (5,), (4,) * 15 + (1,), (1,) + (2,) * 30 + (0,))


def model_of(name):
    known = model(name)
    return replace(known, predicted=1, layouts=LAYOUTS) if name == "deepseek_v3" else known


def read_recipes(problems):
    """Fields of runs by id."""
    return {row.text("id"): {field: row.count(column) for field, column in rows.COUNTS.items()
                             if column in row.table.header}
            for row in tables.Table(RECIPES, ["id"], problems)}


def read_row(row, found, recipes):
    name, task = row.text("model"), row.text("task")
    known = model_of(name)
    run = rows.run_of(row, set=set_of(name, known), frozen=task == "lora",
                      model=known if task == "pretrain" else packed(known, DOCUMENT),
                      **recipes.get(row.text("id"), {}),
                      generation=row.text("container"),
                      whole_experts=known.shape.experts > 0)
    run.ends_count = rows.ends_as_layers(run)
    # Products in bf16 as dgxc's rows say: here gpt-oss alone has many of them.
    given = study.taken_from(found, "H100" if run.gpu == "H100" else "GB200")
    run.parameters = {"products": given["products"]} if given else {}
    rate = row.number("tokens_per_s_per_gpu")
    if rate is not None:
        run.measured = tokens(run) / (rate * run.gpus)
    return run


def tokens(run):
    return run.global_batch * run.sequence


def set_of(name, known):
    if name in STAND_INS:
        return "stand-ins"
    return "experts" if known.shape.experts else "dense"


def read(folder, problems):
    """All rows. Fitted on: every second measured row of models whose description is known, in the
    order of the table."""
    found = study.read_parameters(DGXC, problems)
    recipes = read_recipes(problems)
    runs = rows.read(f"{folder}/performance_summary.csv", ["model", "gpu"], problems,
                     lambda row: read_row(row, found, recipes))
    measured = [run for run in runs if run.measured is not None and run.set != "stand-ins"]
    for run in measured[::2]:
        run.fitted = True
    return runs


def free(runs):
    def on(*gpus):
        return lambda run: run.gpu in gpus

    def experts_of(containers):
        return lambda run: run.set != "dense" and run.generation in containers

    def experts_on(*gpus):
        return lambda run: run.set != "dense" and run.gpu in gpus

    return [study.Free("low_products", "H100", on("H100")),
            study.Free("low_products", "B200/GB200", on("B200", "GB200")),
            study.Free("low_products", "B300/GB300", on("B300", "GB300")),
            study.Free("attention", "gpt-oss to 26.04", sinks(BEFORE)),
            study.Free("attention", "gpt-oss from 26.06", sinks(AFTER)),
            study.Free("gap"),
            study.Free("exposed"),
            study.Free("exposed_experts", "overlapped", overlapped),
            study.Free("exposed_experts", "inside a domain", inside),
            study.Free("routing", "25.09 to 26.04", experts_of(BEFORE)),
            study.Free("routing", "26.06 and 26.08", experts_of(AFTER)),
            study.Free("host", "nodes of 8", experts_on("H100", "B200", "B300"))]


def inside(run):
    """Runs whose experts are spread over GPUs of one scale-up domain."""
    return run.set != "dense" and run.ep <= GPUS[run.gpu].domain


def overlapped(run):
    """Runs between nodes whose configuration overlaps dispatch and combine with other passes
    (a2a_1f1b, moe_a2a_overlap): on H100 DeepSeek-V3 and, from 26.02 on, Qwen3 235B.
    [NVIDIA-NeMo/Megatron-Bridge, scripts/performance/configs]"""
    name = run.model.shape.name
    return run.gpu == "H100" and (
        name == "deepseek_v3" or
        name == "qwen3_235b_a22b" and run.generation not in ("25.09", "25.11"))


def sinks(containers):
    """gpt-oss's attention has sinks, for which kernels are slower, and were not fused at first."""
    return lambda run: (run.model.shape.name == "gpt_oss_120b" and
                        run.generation in containers)


def lines(runs, unseen, line):
    def scored(name):
        return lambda run: not run.fitted and run.set == name

    return [line("dense, scored", runs, unseen, scored("dense"), TARGET_DENSE),
            line("experts, scored", runs, unseen, scored("experts"), TARGET_EXPERTS),
            line("stand-ins, scored", runs, unseen, scored("stand-ins"))]


def metrics(run, one):
    """Tokens per second and GPU, as the table prints them."""
    def rate(step):
        return tokens(run) / (step * run.gpus)

    return [errors.Row(run.id, run.set, "tokens_per_s_per_gpu", rate(one.step),
                       rate(run.measured) if run.measured else None, run.scored, run.fitted)]


if __name__ == "__main__":
    tables.run(lambda: study.main("megatron_bridge", read, free, lines, metrics))
