"""Peak memory of a run's fullest stage: model states, what micro-batches in flight keep, and the
largest transient, from the same closed forms that planners use (models/cost/memory.h)."""

from dataclasses import dataclass

import orrery
from today import cases
from today.runs import chunk_layers


@dataclass
class Parts:
    """Bytes of one GPU."""
    states: float
    activations: float  # kept in flight, and the largest transient

    @property
    def sum(self):
        return self.states + self.activations


def scores(run):
    """Matrices of attention that a layer without fused attention holds while it is recomputed:
    scores, their softmax and the dropout mask, 5 bytes an element."""
    layer = run.model.layers[0]
    if not layer.unfused:
        return 0.0
    return 5.0 * run.micro_batch * layer.heads / run.tp * float(run.sequence) ** 2


def parts_of(run, state_bytes):
    """Of the stage that needs most. `state_bytes`: orrery.StateBytes."""
    job = orrery.Job(global_batch=run.global_batch, sequence_length=run.sequence, dtype="bf16",
                     state_bytes=state_bytes)
    fold = cases.fold_of(run)
    training = orrery.Training(
        cases.make_cluster(run, run.tp * run.pp * run.cp * fold.replicas, fold.node),
        cases.device_shape(run), job)
    pipeline = cases.make_pipeline(run, 0, fold.replicas, run.micro_batches)
    chunks = run.virtual_stages
    most = Parts(0.0, 0.0)
    for place, stage in enumerate(pipeline.stages):
        states = kept = transient = 0.0
        for segment in stage.segments:
            one = training.segment_memory(segment, segment.groups[0], run.dp * run.cp)
            states += one.parameters + one.gradients + one.optimizer_states
            kept += one.activations_per_micro_batch
            transient = max(transient, one.recomputed + scores(run), one.logits)
        flying = min(run.micro_batches, run.pp - place)
        if chunks > 1:
            flying = min(run.micro_batches,
                         (2 * (run.pp - place - 1) + (chunks - 1) * run.pp + 1) / chunks)
        found = Parts(states, flying * kept + transient)
        most = max(most, found, key=lambda parts: parts.sum)
    assert len(chunk_layers(run)) == run.chunks
    return most


def theil_sen(pairs):
    """Line through (x, y) pairs: the median of their slopes, and of what is left."""
    slopes = sorted((b[1] - a[1]) / (b[0] - a[0])
                    for place, a in enumerate(pairs) for b in pairs[place + 1:] if a[0] != b[0])
    slope = median(slopes)
    return median(sorted(y - slope * x for x, y in pairs)), slope


def median(ordered):
    middle = len(ordered) // 2
    return (ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2)
