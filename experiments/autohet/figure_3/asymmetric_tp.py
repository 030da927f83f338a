"""What it costs that replicas have different tensor-parallel degrees (AutoHet, II-B, Figure 3): two
replicas of degree t, simulated; then the second one of degree 2t, simulated, with the gradients that
must be transposed on top. Prints a CSV.

The slices of a matrix that is split by its rows lie apart in memory, so that its gradients are
brought into the other degree's order before the all-reduce and back after it: two passes on the
replica of degree 2t, as in the paper's example, each reading and writing every element.

    transpose = 2 x (1 + f) x bytes of row-split gradients on a device / memory bandwidth

with f = 1 for a transpose through tiles, which streams, and f = 32 bytes / element for one that
writes element by element: the smallest access to a GPU's memory is a sector of 32 bytes (CUDA C++
Best Practices Guide, coalesced access).
"""

import sys
from pathlib import Path

import orrery
import yaml

FOLDER = Path(__file__).parent
sys.path.insert(0, str(FOLDER.parents[1]))
from recovery_case import in_folder, one_group  # noqa: E402

SECTOR = 32  # bytes
ROW_SPLIT = ("attention.output", "mlp.down")  # matrices whose rows tensor parallelism splits


def plan_of(first_devices, degrees, micro_batches, workload):
    """Replicas of these degrees, one stage each."""
    pipelines = []
    for first, degree in zip(first_devices, degrees):
        segment = orrery.segment_of_layers(workload, 0, orrery.count_layers(workload))
        segment.groups = [one_group(first, degree)]
        pipelines.append(orrery.Pipeline(micro_batches=micro_batches,
                                         stages=[orrery.Stage(segments=[segment])]))
    return orrery.Plan(pipelines=pipelines)


def row_split_bytes(workload, job, degree):
    """Bytes of gradients on a device of a group of this degree that lie apart."""
    elements = sum(float(parameter.elements) for block in workload.blocks
                   for parameter in block.parameters if parameter.name in ROW_SPLIT)
    return elements * job.state_bytes.gradient / degree


def transpose_seconds(size, written, gpu):
    """Both passes; `written` is the bytes that writing one byte costs."""
    return 2 * (1 + written) * size / (gpu.memory_bandwidth * gpu.memory_efficiency)


def main():
    study = yaml.safe_load((FOLDER / "asymmetric_tp.yaml").read_text())
    cluster = orrery.load_cluster(in_folder(FOLDER, study["cluster"]))
    firsts = study["first_devices"]
    gpu = cluster.gpu_types[cluster.devices[firsts[1]].gpu_type]
    print("model,tensor_parallel,micro_batches,symmetric_s,asymmetric_s,row_split_gb,"
          "transpose_tiled_s,transpose_by_element_s,fits")
    for model in study["models"]:
        degree = model["tensor_parallel"]
        for micro_batches in study["micro_batches"]:
            at = orrery.Training(cluster, in_folder(FOLDER, model["model"]),
                                 global_batch=2 * micro_batches,
                                 sequence_length=study["sequence_length"])
            symmetric, asymmetric = (
                at.evaluate(plan_of(firsts, degrees, micro_batches, at.workload))
                for degrees in ((degree, degree), (degree, 2 * degree)))
            size = row_split_bytes(at.workload, at.job, 2 * degree)
            tiled = transpose_seconds(size, 1, gpu)
            by_element = transpose_seconds(size, SECTOR / at.job.state_bytes.gradient, gpu)
            fits = "true" if symmetric.memory.fits else "false"
            print(f"{model['name']},{degree},{micro_batches},{symmetric.iteration_time:.6f},"
                  f"{asymmetric.iteration_time:.6f},{size / 1e9:.4f},{tiled:.6f},{by_element:.6f},"
                  f"{fits}")


if __name__ == "__main__":
    main()
