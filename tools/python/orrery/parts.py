"""Small questions about plans, models, programs and traces."""

from __future__ import annotations

from typing import Any, Sequence

from . import _orrery
from ._orrery import (Block, Cluster, Job, Plan, Program, ReshardBytes, Segment, Stage, Trace,
                      Workload)


def library() -> dict[str, Any]:
    """What ships with Orrery: names of `clusters` and `models`; `gpus` and `links` by name, as
    GpuType and LinkClass."""
    return _orrery.library()


def plan_devices(plan: Plan) -> list[int]:
    """All devices that the plan uses, ascending."""
    return _orrery.plan_devices(plan)


def working_devices(plan: Plan) -> list[int]:
    """Those that compute: without stages that leave all of their micro-batches to other
    pipelines."""
    return _orrery.working_devices(plan)


def stage_devices(stage: Stage) -> list[int]:
    """Devices of a stage in rank order."""
    return _orrery.stage_devices(stage)


def global_batch(plan: Plan) -> int:
    """Samples per step."""
    return _orrery.global_batch(plan)


def plan_words(plan: Plan, workload: Workload) -> str:
    """The shape of a plan in words."""
    return _orrery.plan_words(plan, workload)


def plan_hash(plan: Plan) -> str:
    """Hash of what the plan says, without the planner's name and prediction."""
    return _orrery.plan_hash(plan)


def count_layers(workload: Workload) -> int:
    """Blocks that planners distribute: all but embedding and head."""
    return _orrery.count_layers(workload)


def segment_of_layers(workload: Workload, first: int, layers: int) -> Segment:
    """The blocks of `layers` layers from number `first` (0: the first after the embedding), without
    groups; embedding and head belong to the ranges that touch the ends."""
    return _orrery.segment_of_layers(workload, first, layers)


def parameters(what: Workload | Block) -> int:
    """Parameters of a model or of one block."""
    return (_orrery.block_parameters if isinstance(what, Block) else _orrery.parameters)(what)


def model_flops(workload: Workload) -> float:
    """FLOP of one sample, forward and backward, without recomputation."""
    return _orrery.model_flops(workload)


def find_defect(program: Program) -> str:
    """What is not well formed in a program, in words; else empty."""
    return _orrery.find_defect(program)


def peak_memory(program: Program) -> list[float]:
    """Largest bytes of buffers of each rank, in the order of its compute stream."""
    return _orrery.peak_memory(program)


def program_hash(program: Program) -> str:
    """Content hash, as RunLog.program_hash has it."""
    return _orrery.program_hash(program)


def sort_events(trace: Trace) -> Trace:
    """The trace with its events in order of (time, kind), numbered from 0."""
    return _orrery.sort_events(trace)


def bind_trace(trace: Trace, cluster: Cluster) -> Trace:
    """The trace with exactly the cluster's nodes and device ids (traces/bind.h)."""
    return _orrery.bind_trace(trace, cluster)


def combine_traces(traces: Sequence[Trace]) -> Trace:
    """One trace from several, with all their nodes and events; it ends with the shortest."""
    return _orrery.combine_traces(list(traces))


def weight_bytes(job: Job) -> ReshardBytes:
    """Bytes per parameter of weights and their master copy; moments start from zero."""
    return _orrery.weight_bytes(job)


def all_state_bytes(job: Job) -> ReshardBytes:
    """Bytes per parameter of weights, master copy and moments."""
    return _orrery.all_state_bytes(job)


def young_interval(cost: float, interruptions_per_second: float) -> float:
    """Seconds between checkpoints that each take this long: sqrt(2 cost / rate). [Young 1974]"""
    return _orrery.young_interval(cost, interruptions_per_second)


def expected_ettr(interruptions_per_second: float, restart: float, interval: float,
                  cost: float) -> float:
    """Effective training time by the additive form. [Kokolis et al. 2025, arXiv 2410.21680]"""
    return _orrery.expected_ettr(interruptions_per_second, restart, interval, cost)


def replica_survival(nodes: int, replicas: int, lost: int, placement: str) -> float:
    """Probability that in-memory checkpoints outlive the loss of this many nodes at once; placement
    is "ring" or "mixed" (groups). [Gemini, SOSP 2023, 4.2]"""
    return _orrery.replica_survival(nodes, replicas, lost, placement)


def confidence(values: Sequence[float], level: float = 0.95) -> tuple[float, float]:
    """Mean of a sample and half the width of its confidence interval, by Student's t."""
    return _orrery.confidence(list(values), level)


def unexpected_interruptions(trace: Trace) -> int:
    """Failures, and instants at which something leaves without notice."""
    return _orrery.unexpected_interruptions(trace)


#: What a ReplayResult's `wall` counts, in its order.
BUCKETS: tuple[str, ...] = tuple(_orrery.buckets())


def import_trace(format: str, path: str) -> Trace:
    """A trace in another project's format: bamboo, oobleck, gcp, aws, parcae, skypilot."""
    return _orrery.import_trace(format, path)
