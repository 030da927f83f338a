#!/usr/bin/python3
"""Draws the plans of this family, and its manifest, from the seed below (README.md): what the twin
has never run.

    experiments/twin/fresh/draw.py            writes plans/ and manifest.yaml

SEED was chosen, and this file and what it writes were committed, before any of the plans ran. Do not
draw again after a look at results: a family whose results were seen is none."""

import random
from pathlib import Path

SEED = 20261122
PLANS = 24
HERE = Path(__file__).resolve().parent
DEVICES = [0, 1, 2, 3]
BLOCKS = 10  # embedding, 8 layers, head
SAMPLES = 16
FIT = ("fit_pipeline", "fit_replicas", "fit_tensor")


def parts(generator, total, count):
    """`count` positive whole numbers that add up to `total`."""
    cuts = sorted(generator.sample(range(1, total), count - 1))
    return [end - begin for begin, end in zip([0, *cuts], [*cuts, total])]


def groups(generator, devices):
    """Devices in groups of 1, 2 or 4, one for each stage."""
    left, out = list(devices), []
    while left:
        size = generator.choice([one for one in (1, 1, 2, 4) if one <= len(left)])
        out.append([left.pop(0) for _ in range(size)])
    return out


def pipeline(generator, devices, share, schedule, options):
    size = generator.choice([one for one in (1, 2, 4) if share % one == 0])
    stages = groups(generator, devices)
    chunks = 2 if schedule == "interleaved_1f1b" else 1
    counts = parts(generator, BLOCKS, len(stages) * chunks)
    recompute = ", recompute: full" if generator.random() < 0.25 else ""
    text = f"  - micro_batches: {share // size}\n    micro_batch_size: {size}\n    stages:\n"
    for at, members in enumerate(stages):
        degree = f", tensor_parallel: {len(members)}" if len(members) > 1 else ""
        group = f"{{devices: {members}{degree}, samples: {size}}}"
        segments = []
        for chunk in range(chunks):
            place = chunk * len(stages) + at
            first = sum(counts[:place])
            virtual = f", virtual_stage: {chunk}" if chunk else ""
            segments.append(f"{{blocks: {first}-{first + counts[place] - 1}, groups: [{group}]"
                            f"{recompute}{options}{virtual}}}")
        text += "      - segments:\n" + "".join(f"          - {one}\n" for one in segments)
    return text


def plan(generator):
    """The text of a plan."""
    devices = generator.sample(DEVICES, len(DEVICES))
    count = generator.choice([1, 2, 2, 3, 4])
    shares = parts(generator, SAMPLES, count)
    sizes = parts(generator, len(DEVICES), count)
    schedule = generator.choice(["1f1b", "gpipe", "zero_bubble", "interleaved_1f1b"])
    zero = ", zero: {stage: 1}" if count > 1 and generator.random() < 0.4 else ""
    text = ""
    for share, size in zip(shares, sizes):
        own, devices = devices[:size], devices[size:]
        text += pipeline(generator, own, share, schedule, zero)
    if schedule == "interleaved_1f1b":
        text = "virtual_stages: 2\npipelines:\n" + text
    else:
        text = "pipelines:\n" + text
    head = "# Drawn by draw.py; do not edit.\nschema: orrery/plan/1\n"
    return f"{head}schedule: {schedule}\n{text}"


def main():
    generator = random.Random(SEED)
    folder = HERE / "plans"
    folder.mkdir(exist_ok=True)
    drawn = []
    while len(drawn) < PLANS:
        text = plan(generator)
        if text not in drawn:
            drawn.append(text)
    runs = "".join(f"    - {{name: {name}, plan: ../netlab/plans/{name}.yaml, fit: true}}\n"
                   for name in FIT)
    for number, text in enumerate(drawn):
        name = f"drawn_{number:02}"
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
        runs += f"    - {{name: {name}, plan: plans/{name}.yaml}}\n"
    (HERE / "manifest.yaml").write_text(f"""\
# Written by draw.py; do not edit. orrery twin experiments/twin/fresh/manifest.yaml
schema: orrery/study/1
name: twin/fresh
title: "Twin: plans that were drawn before any of them ran"
command: twin
settings:
  cluster: ../../executor/netlab_4.yaml
  model: ../netlab/model.yaml
  job: ../netlab/job.yaml
  steps: 10
  warm_up: 3
seeds: [7]
axes:
  run:
{runs}""", encoding="utf-8")


if __name__ == "__main__":
    main()
