#!/usr/bin/python3
"""Writes the plan of a Llama 3.1 405B run on N H100 as Megatron lays it out: tensor parallelism 8
in a node, 16 stages of 8 chunks with embedding and loss counted as a layer each, the rest
replicas.

    tools/orrery python experiments/mlperf/plan.py 8192 /tmp/plan.yaml
"""

import sys

import orrery

TENSOR, STAGES, CHUNKS, LAYERS = 8, 16, 8, 126
BATCH = 1536  # of MLPerf's largest H100 system of round 5.0


def pipeline(replica, replicas, micro_batches):
    counts = [(LAYERS + 2) // (STAGES * CHUNKS)] * (STAGES * CHUNKS)
    counts[0] -= 1
    counts[-1] -= 1
    stages = []
    for stage in range(STAGES):
        first = (stage * replicas + replica) * TENSOR
        group = orrery.Group(devices=list(range(first, first + TENSOR)), tensor_parallel=TENSOR,
                             sequence="megatron", samples=1)
        segments = []
        for chunk in range(CHUNKS):
            place = chunk * STAGES + stage
            before = sum(counts[:place])
            last = before + counts[place] + (1 if place + 1 == len(counts) else 0)
            # Most passes that wait for their backward pass are of the first chunk.
            recompute = "full" if chunk == 0 else "none"
            segments.append(orrery.Segment(first_block=0 if place == 0 else before + 1,
                                           last_block=last, virtual_stage=chunk, groups=[group],
                                           recompute=recompute, zero=orrery.Zero(stage=1)))
        stages.append(orrery.Stage(segments=segments))
    return orrery.Pipeline(micro_batches=micro_batches, micro_batch_size=1, stages=stages)


def main():
    gpus, path = int(sys.argv[1]), sys.argv[2]
    replicas = gpus // (TENSOR * STAGES)
    micro_batches = BATCH // replicas
    pipelines = [pipeline(replica, replicas, micro_batches) for replica in range(replicas)]
    orrery.save(orrery.Plan(schedule="interleaved_1f1b", virtual_stages=CHUNKS, planner="megatron",
                            communication=orrery.Communication(activation_transfer="sliced",
                                                               gradient_overlap=True),
                            pipelines=pipelines), path)


if __name__ == "__main__":
    main()
