#!/usr/bin/python3
"""Writes the files of jobs of this study and their plans: two jobs of eight nodes each, placed in three ways.

    experiments/jobs/plans.py
"""

from pathlib import Path

HERE = Path(__file__).parent
GPUS = 8  # of a node

# Nodes of the first and the second job, in the order of their ranks. Racks have four nodes.
PLACEMENTS = {
    "packed": (range(8), range(8, 16)),  # two racks each
    "striped": ([0, 1, 4, 5, 8, 9, 12, 13], [2, 3, 6, 7, 10, 11, 14, 15]),  # pairs of nodes
    "scattered": ([0, 4, 8, 12, 1, 5, 9, 13], [2, 6, 10, 14, 3, 7, 11, 15]),  # dealt out one by one
}

PAIRS = {"dense_and_moe": ("dense", "moe"), "two_moe": ("moe", "moe")}
JOBS = {"dense": ("llama3_70b", 8192), "moe": ("qwen3_30b_a3b", 4096)}  # model, sequence length


def dense(nodes):
    """Four pipelines of two stages, a node each; tensor parallelism inside nodes, ZeRO-1."""
    blocks = ["0-40", "41-81"]
    lines = []
    for pipeline in range(4):
        lines += ["  - micro_batches: 8", "    micro_batch_size: 1", "    stages:"]
        for stage in range(2):
            first = GPUS * nodes[2 * pipeline + stage]
            lines += ["      - segments:",
                      f"          - blocks: {blocks[stage]}",
                      "            zero: {stage: 1}",
                      "            recompute: selective",
                      "            groups:",
                      f"              - {{devices: [{first}-{first + GPUS - 1}], tensor_parallel: 8, "
                      "sequence: megatron}"]
    return lines


def moe(nodes):
    """Data parallelism over all GPUs, ZeRO-1, the experts of a block over each two nodes in turn."""
    lines = ["  - micro_batches: 2", f"    micro_batch_size: {GPUS * len(nodes)}", "    stages:",
             "      - segments:", "          - blocks: 0-49", "            zero: {stage: 1}",
             "            recompute: full",
             f"            expert_parallel: {2 * GPUS}", "            groups:"]
    for node in nodes:
        lines += [f"              - {{devices: [{GPUS * node + gpu}], samples: 1}}"
                  for gpu in range(GPUS)]
    return lines


def main():
    head = "# Written by plans.py; do not edit.\n"
    make = {"dense": dense, "moe": moe}
    for placement, parts in PLACEMENTS.items():
        folder = HERE / placement
        folder.mkdir(exist_ok=True)
        for pair, kinds in PAIRS.items():
            jobs = [head + "schema: orrery/jobs/1", "cluster: ../cluster.yaml", "jobs:"]
            for number, (kind, nodes) in enumerate(zip(kinds, parts), 1):
                plan = f"{kind}_{number}.yaml"
                text = [head + "schema: orrery/plan/1", "schedule: 1f1b", "pipelines:",
                        *make[kind](list(nodes))]
                (folder / plan).write_text("\n".join(text) + "\n")
                model, length = JOBS[kind]
                jobs += [f"  - name: {kind}_{number}", f"    model: {model}",
                         f"    job: {{sequence_length: {length}}}", f"    plan: {plan}"]
            (folder / f"{pair}.yaml").write_text("\n".join(jobs) + "\n")


if __name__ == "__main__":
    main()
