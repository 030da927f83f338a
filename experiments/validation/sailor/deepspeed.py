"""What DeepSpeed's PipelineEngine does differently from a program as models/lower makes it. Facts
from its public sources (deepspeed/runtime/pipe/{schedule,engine}.py, Apache 2.0, version 0.16), no
code of theirs.

- blocking transfers: a rank runs its passes, sends and receives one after the other, in the order
  of DeepSpeed's TrainSchedule. In step k (from 0), stage s of S runs the forward pass of
  micro-batch (k - s) / 2 if k - s is even, else the backward pass of micro-batch (k + s + 1) / 2 -
  S, if there is such a micro-batch. Before a forward pass it sends the gradient of the previous
  step and receives the activation; before a backward pass it receives the gradient, then sends the
  activation of the previous step. Gathering slices that were received belongs to the pass. A send
  that fits the transport's buffer frees its sender at once, if earlier ones have left room for it,
  and its bytes do not wait for the receiver to ask for them;
- twice the bytes in the gathers of gradients: before a backward pass DeepSpeed gathers the received
  gradient and the stage's own output, of which it kept a slice;
- gradient synchronization after the last backward pass and send;
- passes without inner collectives, whose time the measured layer times include;
- one more flat gradient buffer per rank (at most BUCKET_ELEMENTS of 4 bytes). PyTorch's allocator
  does not join freed blocks to make room for one of its size, so it adds to what the device
  holds."""

from collections import defaultdict

import orrery

# Gradients are copied into flat buffers of at most so many elements and reduced from there.
BUCKET_ELEMENTS = 5e8
ELEMENT = 4  # bytes of fp32
# Bytes that a connection of the transport takes from a sender before they are on the wire.
# [NCCL, environment variables, NCCL_BUFFSIZE]
BUFFER = 4 * 2**20


class RankOps:
    """The ops of a rank by role (kind of pass or transfer), whether they move gradients, and
    micro-batch."""

    def __init__(self):
        self.ops = defaultdict(list)
        self.rest = []  # gradient synchronization and optimizer step

    def take(self, role, gradient, micro_batch):
        return self.ops.pop((role, gradient, micro_batch), [])


def moving_gradients(program):
    """By region set: whether what moves are gradients of activations."""
    return [bool(regions) and regions[0].tensor == "activation_gradient"
            for regions in program.region_sets]


def ops_by_rank(program):
    ranks = [RankOps() for _ in program.ranks]
    gradients = moving_gradients(program)
    for i, op in enumerate(program.ops):
        own = ranks[op.rank]
        if op.kind in ("forward", "backward"):
            own.ops["pass", op.kind == "backward", op.micro_batch].append(i)
        elif op.purpose == "pipeline":
            own.ops[op.kind, gradients[op.regions], op.micro_batch].append(i)
        else:
            own.rest.append(i)
    return ranks


def instruction_order(ops, stage, stages, micro_batches):
    """The ops of a rank in the order of DeepSpeed's TrainSchedule."""
    order = []
    before = -1  # micro-batch of the step before
    for step in range(2 * (micro_batches + stages - 1)):
        forward = (step - stage) % 2 == 0
        own = (step - stage) // 2 if forward else (step + stage + 1) // 2 - stages
        if forward:
            order += ops.take("send", True, before)
        order += ops.take("recv", not forward, own)
        if not forward:
            order += ops.take("send", False, before)
        order += ops.take("collective", not forward, own) + ops.take("pass", not forward, own)
        before = own
    return order


def block(program):
    """Blocking transfers: each op also waits for the op of its rank that DeepSpeed runs before."""
    stages = [max(rank.stage for rank in program.ranks if rank.pipeline == pipeline) + 1
              for pipeline in range(len(program.pipelines))]
    added = defaultdict(list)
    gradients = moving_gradients(program)
    largest = [max((one.bytes for one in each), default=0.0) for each in program.transfer_sets]

    def room(op):
        """Messages of a transfer's size that a buffer takes; of other ops none."""
        return int(BUFFER // largest[op.transfers]) if op.kind in ("send", "recv") else 0

    for rank, ops in zip(program.ranks, ops_by_rank(program)):
        order = instruction_order(ops, rank.stage, stages[rank.pipeline],
                                  program.pipelines[rank.pipeline].micro_batches)
        assert not ops.ops, f"DeepSpeed's schedule has no {next(iter(ops.ops))}"
        waits, sent = [], {True: [], False: []}  # by whether they move gradients
        for op in order:
            fits = room(program.ops[op])
            if fits and program.ops[op].kind == "recv":
                waits = waits + [op]
                continue
            added[op] += waits
            if not fits:
                waits = [op]
                continue
            before = sent[gradients[program.ops[op].regions]]
            waits = waits + before[-fits:][:1] if len(before) >= fits else waits
            before.append(op)
        for op in ops.rest:
            added[op] += waits
    begin, known = program.dependency_begin, program.dependencies
    begins, dependencies = [0], []
    for i in range(len(program.ops)):
        own = known[begin[i]:begin[i + 1]]
        dependencies += own + [before for before in added[i] if before not in own]
        begins.append(len(dependencies))
    program.dependency_begin = begins
    program.dependencies = dependencies


def change(program):
    """All of the above but blocking transfers: transfers overlap with passes, as lowered. The
    program is a collapsed 1F1B program of one segment for each stage."""
    assert program.header.collapsed and program.header.schedule == "1f1b"
    # Passes refer to their inner collectives by set: empty sets are none.
    program.inner_sets = [[] for _ in program.inner_sets]
    gradients = moving_gradients(program)
    # Shapes are shared by micro-batches, but not by directions: their regions differ.
    for shape in program.collective_shapes:
        if shape.purpose == "pipeline" and gradients[shape.regions]:
            for part in shape.parts:
                part.bytes *= 2
    for resident in program.resident:
        kept = [effect for effect in resident if effect.kind == "gradients"]
        if kept:
            size = 0.0
            for effect in kept:
                size += effect.bytes
            resident.append(orrery.BufferEffect(
                kind="communication", action="allocate", segment=kept[-1].segment,
                bytes=min(size, BUCKET_ELEMENTS * ELEMENT)))
