#!/usr/bin/python3
"""Writes a profile of a GPU for a model: times of its blocks by kernels of their shapes, with the
parameters that dgxc's rows gave, so that every planner and every simulation can use them.

    tools/orrery python experiments/validation/today/profile.py --gpu H100 --model llama3_405b \\
        --sequence-length 8192 --precision fp8 --out /tmp/h100.yaml
    tools/orrery simulate plan.yaml --profile /tmp/h100.yaml --cluster mlperf_eos \\
        --model llama3_405b
"""

import argparse
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import orrery  # noqa: E402
import tables  # noqa: E402
from today import cases, kernels, study  # noqa: E402
from today.models import model  # noqa: E402
from today.runs import DECLARED  # noqa: E402

PARAMETERS = HERE.parent / "mlperf" / "parameters_of_dgxc.csv"
LIKE = {"H200": "H100", "B200": "GB200", "B300": "GB200", "GB300": "GB200"}
DEGREES, SIZES = (1, 2, 4, 8), (1, 2, 4, 8)


def parameters_for(gpu):
    problems = tables.Problems()
    found = study.read_parameters(PARAMETERS, problems)
    problems.raise_any()
    return DECLARED | study.taken_from(found, LIKE.get(gpu, gpu))


def block_times(name, gpu, sequence, precision):
    known = model(name)
    shape = known.shape
    device = cases.device_for(gpu, parameters_for(gpu))
    source = orrery.Provenance(
        source=f"kernels by shape ({precision}), parameters of experiments/validation/dgxc",
        machine=gpu)
    for tp in DEGREES:
        for samples in SIZES:
            at = kernels.Degrees(sequence, samples, tp, precision=precision)
            blocks = {"moe" if shape.experts else "transformer":
                      kernels.layer_times(known.layers[0], at, device),
                      "embedding": kernels.embedding_times(shape.hidden, shape.vocabulary, at,
                                                           device),
                      "head": kernels.head_times(shape.hidden, shape.vocabulary, at, device)}
            for block, times in blocks.items():
                for pass_, time in (("forward", times.forward), ("backward", times.backward)):
                    yield orrery.BlockTime(
                        gpu=device.gpu.library, block=block, model=shape.name, pass_=pass_,
                        tensor_parallel=tp, micro_batch_size=samples, sequence_length=sequence,
                        dtype="bf16", time=time, provenance=source)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpu", required=True, choices=sorted(kernels.GPUS))
    parser.add_argument("--model", required=True, help="model of the library")
    parser.add_argument("--sequence-length", type=int, required=True, help="tokens")
    parser.add_argument("--precision", default="bf16", choices=("bf16", "fp8", "fp4"),
                        help="of the layers' products")
    parser.add_argument("--out", required=True, help="profile YAML")
    options = parser.parse_args()
    if options.precision not in kernels.GPUS[options.gpu].products:
        parser.error(f"{options.gpu} does not compute in {options.precision}")
    orrery.save(orrery.Profile(
        name=f"{options.gpu.lower()}_{options.model}_{options.precision}",
        block_times=list(block_times(options.model, options.gpu, options.sequence_length,
                                     options.precision))), options.out)
    return 0


if __name__ == "__main__":
    tables.run(main)
