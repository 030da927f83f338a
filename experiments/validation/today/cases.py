"""From a run to its simulated step: the plan that the row describes on a cluster of its GPUs, its
lowering, prices of its passes from counts of kernels, and three exact or declared shortenings:

- Two replicas stand for all: the others do the same at the same time. Where replicas share a node
  (or rack) they stand in one; else in two, and have all rings of a node to themselves, of which
  each carries as much as it did among all.
- Of many micro-batches a few groups are simulated, and the time of a group in the steady state is
  added for each that was left out.
- Collectives inside a pass are shortened to what products leave uncovered (`exposed`)."""

import math
from dataclasses import dataclass

import orrery
from today.gpus import GPUS, kernels_of
from today.runs import DECLARED, chunk_layers

BUCKETS = 8  # of a rank's gradients and weights that travel one after the other (assumed)
GROUPS = 3  # of micro-batches that are simulated, each as large as the pipeline is long


@dataclass
class Fold:
    """What is simulated of a run."""
    replicas: int
    node: int  # GPUs of a node, so that what shared one still does
    rings: int  # that a node's replicas would have side by side


@dataclass
class Built:
    """A run, or a part of its micro-batches, ready to be simulated."""
    training: orrery.Training
    program: orrery.Program
    segments: list
    fold: Fold


def schedule_of(run):
    return "interleaved_1f1b" if run.virtual_stages > 1 else "1f1b"


def rings_of(run):
    """Rings of replicas that begin on each node: as many as it has replicas, but one where all are
    on one node."""
    per_node = max(1, GPUS[run.gpu].domain // (run.tp * run.cp))
    return per_node if run.dp > per_node else 1


def fold_of(run):
    width, domain = run.tp * run.cp, GPUS[run.gpu].domain
    if run.dp > max(1, domain // width):
        return Fold(2, min(width, domain), rings_of(run))
    replicas = min(run.dp, 2)
    return Fold(replicas, max(min(width, domain), domain * replicas // run.dp), 1)


def make_cluster(run, gpus, size):
    gpu = GPUS[run.gpu]
    library = orrery.library()
    nodes = [orrery.Node(name=f"n{n}", gpu_types=[0] * size,
                         domains=[orrery.LinkDomain(members=list(range(size)), link=gpu.scale_up)],
                         nics=[orrery.Nic(link=gpu.network)] * -(-size // gpu.per_nic))
             for n in range(-(-gpus // size))]
    return orrery.Cluster(name=run.gpu, gpu_types=[library["gpus"][gpu.library]],
                          links={name: library["links"][name]
                                 for name in (gpu.scale_up, gpu.network)}, nodes=nodes)


def device_shape(run):
    """The model with the experts that one rank of an expert-parallel group holds: gradients of the
    others are other replicas'."""
    shape = run.model.shape
    if shape.experts == 0 or run.ep == 1:
        return shape
    experts = max(1, shape.experts // run.ep)
    return shape.replace(experts=experts, top_k=min(shape.top_k, experts))


def make_pipeline(run, replica, replicas, micro_batches):
    """Ranks: tensor-parallel neighbors first, then context, replicas, stages [Megatron-LM]."""
    width = run.tp * run.cp
    counts = chunk_layers(run)
    first_layer = [sum(counts[:place]) for place in range(run.chunks)]
    zero = {"none": 0, "optimizer": 1, "all": 3}[run.sharded]
    stages = []
    for stage in range(run.pp):
        first = (stage * replicas + replica) * width
        sequence = ("ring" if run.cp > 1 else
                    "megatron" if run.tp > 1 and run.sequence_parallel else "none")
        group = orrery.Group(devices=list(range(first, first + width)), tensor_parallel=run.tp,
                             sequence=sequence, sequence_degree=run.cp, samples=run.micro_batch)
        segments = []
        for chunk in range(run.virtual_stages):
            place = chunk * run.pp + stage
            last = place + 1 == run.chunks
            segments.append(orrery.Segment(
                first_block=0 if place == 0 else first_layer[place] + 1,
                last_block=first_layer[place] + counts[place] + (1 if last else 0),
                virtual_stage=chunk, groups=[group], recompute=run.recompute,
                zero=orrery.Zero(stage=zero if run.dp * run.cp > 1 else 0)))
        stages.append(orrery.Stage(segments=segments))
    return orrery.Pipeline(micro_batches=micro_batches, micro_batch_size=run.micro_batch,
                           stages=stages)


def parameters_of_rank(run):
    """Roughly: as if all stages had as many."""
    shape = orrery.load_model(device_shape(run), orrery.Job(
        global_batch=1, sequence_length=run.sequence, dtype="bf16"))
    return orrery.parameters(shape) / (run.tp * run.pp)


def share_of_experts(run):
    """Of a rank's parameters, roughly: as if all layers were alike."""
    layer = run.model.layers[-1]
    if not layer.experts:
        return 0.0
    one = (3 if layer.gated else 2) * layer.hidden * layer.expert_ffn
    held = device_shape(run).experts * one * run.model.shape.layers / (run.pp * run.tp)
    return min(1.0, held / parameters_of_rank(run))


def ring_share(run, members, rings):
    """Of a rank's gradients or weights the part that one link carries once around the rings of
    `members` ranks, `rings` of which begin on a node. Experts are the same only on every ep-th
    rank: fewer members, and fewer of them on a node to share its adapters. Whole experts lie on
    all ranks of a tensor-parallel group, so that each has more of them."""
    experts = share_of_experts(run) if run.ep > 1 else 0.0
    spread = run.tp * run.cp if run.whole_experts else 1
    same = max(1, run.dp * spread // run.ep)
    return ((1 - experts) * (members - 1) / members / rings +
            experts * (run.tp if run.whole_experts else 1) *
            (same - 1) / same / max(1, rings * spread // run.ep))


def bucket_bytes(run):
    return parameters_of_rank(run) * run.gradient_bytes / max(BUCKETS, run.virtual_stages)


def build(run, micro_batches):
    fold = fold_of(run)
    replicas = fold.replicas
    plan = orrery.Plan(
        schedule=schedule_of(run), virtual_stages=run.virtual_stages,
        communication=orrery.Communication(activation_transfer="sliced",
                                           gradient_overlap=not run.frozen,
                                           bucket=bucket_bytes(run)),
        pipelines=[make_pipeline(run, r, replicas, micro_batches) for r in range(replicas)])
    job = orrery.Job(global_batch=replicas * micro_batches * run.micro_batch,
                     sequence_length=run.sequence, dtype="bf16",
                     state_bytes=orrery.StateBytes(weight=run.weight_bytes,
                                                   gradient=run.gradient_bytes),
                     allowed=orrery.Allowed(recompute=[run.recompute], zero_stages=[0, 1, 3],
                                            sequence_parallel=True,
                                            max_micro_batch_size=run.micro_batch,
                                            schedules=[schedule_of(run)]))
    gpus = run.tp * run.pp * run.cp * replicas
    training = orrery.Training(make_cluster(run, gpus, fold.node), device_shape(run), job)
    program = training.lower(plan)
    return Built(training, program, list(program.segments), fold)


def shorten(run, built, parameters):
    """Takes from the program's collectives what is hidden, and lengthens the rings of replicas that
    were left out."""
    program = built.program
    share = {"tensor_parallel": parameters["exposed"],
             "sequence_parallel": exposed_context(run, parameters),
             "zero": exposed_gathers(run, built, parameters)}
    sets = program.inner_sets
    for inner in (one for each in sets for one in each):
        inner.bytes *= share.get(inner.purpose, 1.0)
    program.inner_sets = sets
    factor = run.dp / built.fold.replicas
    groups = program.groups
    shapes = program.collective_shapes
    for shape in shapes:
        hidden = hidden_gathers(run, parameters) if shape.purpose == "zero" else 1.0
        if run.frozen:
            hidden = 1e-3  # of the adapters alone
        for part in shape.parts:
            members = float(len(groups[part.group].devices))
            if members > 1:
                most = members * factor
                carried = (members - 1) / members
                part.bytes *= hidden * ring_share(run, most, built.fold.rings) / carried
                # Latencies count in full, of gathers that hide as well.
                part.bytes += later_steps(run, built.fold, members, most) / carried
    program.collective_shapes = shapes


def hidden_gathers(run, parameters):
    """Share of the gathers of updated weights that is left. Each is ahead of the first pass that
    needs it: all but the first bucket's hide behind earlier passes of other layers, as far as these
    are long enough: of the first micro-batch and, ahead of the last chunk, of as many as the
    pipeline is long through each chunk before it [Megatron-LM, overlap_param_gather]."""
    first = 1.0 / max(BUCKETS, run.virtual_stages)
    traffic = gather_time(run)
    if run.frozen or traffic == 0.0:
        return first
    layers = Prices(run, parameters).layers
    passes = sum(layers[run.model.kind(number)].forward
                 for number in range(run.model.shape.layers)) / run.chunks
    before = (run.virtual_stages - 1) * min(run.pp, run.micro_batches) + 1
    return max(first, 1 - before * passes / traffic)


def gather_time(run):
    """Seconds for which a gather of all weights of a rank occupies its links."""
    members = run.dp * run.cp
    if members == 1:
        return 0.0
    gpu, links, rings = GPUS[run.gpu], orrery.library()["links"], rings_of(run)
    link = links[gpu.network if rings > 1 or members * run.tp > gpu.domain else gpu.scale_up]
    return (parameters_of_rank(run) * run.weight_bytes * ring_share(run, members, rings) *
            (gpu.per_nic if link.name == gpu.network else 1) /
            (link.bandwidth * link.efficiency))


def later_steps(run, fold, members, most):
    """Bytes that take as long as the latencies of the steps that a ring of `members` has less than
    one of `most`, at the rate of the edge between two of them."""
    gpu, links = GPUS[run.gpu], orrery.library()["links"]
    far, near = links[gpu.network], links[gpu.scale_up]
    if fold.rings == 1 and run.dp == fold.replicas:
        return 0.0
    crosses = run.dp * run.cp * run.tp > gpu.domain
    hop = ((far.latency + (fold.rings - 1) * near.latency) / fold.rings if crosses
           else near.latency)
    link = far if crosses else near
    return (most - members) * hop * link.bandwidth * link.efficiency


def exposed_context(run, parameters):
    """Share of the exchange of keys and values that attention on those at hand does not hide [Liu
    et al. 2023, 3]."""
    if run.cp == 1:
        return 1.0
    gpu, links = GPUS[run.gpu], orrery.library()["links"]
    shape = run.model.shape
    link = links[gpu.network if run.tp * run.cp > gpu.domain else gpu.scale_up]
    moved = (2 * 2.0 * run.micro_batch * run.sequence * shape.kv_heads * shape.head_dim / run.tp *
             (run.cp - 1) / run.cp)
    exchange = moved / (link.bandwidth * link.efficiency)
    at = orrery.KernelDegrees(sequence=run.sequence, samples=run.micro_batch,
                              tensor_parallel=run.tp, context_parallel=run.cp)
    attention = kernels_of(run.gpu, parameters).attention(run.model.layers[0], at).forward
    return parameters["exposed_context"] + max(0.0, 1 - attention / exchange)


def exposed_gathers(run, built, parameters):
    """Share of the gathers of sharded weights (FSDP) that the passes of other layers do not hide,
    and as all rings of a node carry them."""
    if run.sharded != "all":
        return 1.0
    gpu, links = GPUS[run.gpu], orrery.library()["links"]
    members = run.dp * run.cp
    link = links[gpu.network if built.fold.rings > 1 or run.gpus > gpu.domain else gpu.scale_up]
    ring = (members - 1) / members / built.fold.rings
    layer = run.model.layers[0]
    matrices = 3 if layer.gated else 2
    weights = sum(matrix.rows * matrix.columns for matrix in layer.projections)
    weights += matrices * layer.hidden * layer.ffn
    gather = run.weight_bytes * weights / run.tp * ring / (link.bandwidth * link.efficiency)
    passes = Prices(run, parameters).layers[0].forward
    of_two = run.dp * run.cp if built.fold.replicas == 1 else built.fold.replicas * run.cp
    lowered = max(0.5, (of_two - 1) / of_two) if of_two > 1 else 1.0
    return (parameters["exposed_gathers"] + max(0.0, 1 - passes / gather)) * ring / lowered


def degrees_of(run):
    return orrery.KernelDegrees(
        sequence=run.sequence, samples=run.micro_batch, tensor_parallel=run.tp,
        context_parallel=run.cp, expert_parallel=run.ep, products=run.precision,
        causal=run.model.shape.causal, sequence_parallel=run.sequence_parallel,
        accumulates=run.micro_batches > 1, fused=run.fused)


class Prices:
    """Times of a run's compute ops."""

    def __init__(self, run, parameters, replicas=1, segments=(), state_bytes=1.0):
        """`replicas` were lowered, with these segments and bytes of state of a parameter."""
        self.run = run
        self.segments = segments
        self.slowdown = parameters["slowdown"]
        self.replicas_left = run.dp / replicas
        self.state_bytes = state_bytes
        self.kernels = kernels_of(run.gpu, parameters)
        at = degrees_of(run)
        self.layers = []
        for layer in run.model.layers:
            times = self.kernels.layer(layer, at)
            if layer.experts:
                exchange = experts_exchange(run, layer, parameters)
                # A pass takes at least what the host needs to launch its kernels.
                times = times.replace(
                    forward=max(times.forward + exchange, parameters["host"]),
                    backward=max(times.backward + exchange, parameters["host"]))
            self.layers.append(times)
        shape = run.model.shape
        self.ends = {0: self.kernels.embedding(shape.hidden, at),
                     shape.layers + 1: self.end_of(run, at)}
        # What hidden gradient and weight traffic takes from compute, spread over all passes, and
        # what the slowest GPU takes longer than the average one.
        self.slowdown *= 1.0 + parameters["exposed_gradients"] * hidden_share(run, self.layers)
        self.slowdown *= 1.0 + parameters["spread"] * slowest_of(run.gpus)

    def end_of(self, run, at):
        """The head, and what predicts tokens beyond the next one."""
        shape = run.model.shape
        head = self.kernels.head(shape.hidden, shape.vocabulary, at)
        more = [head, self.layers[run.model.kind(shape.layers - 1)],
                self.kernels.linear(at.samples * at.sequence / at.context_parallel,
                                    shape.hidden / at.tensor_parallel, 2 * shape.hidden, at)]
        return head.replace(
            forward=head.forward + run.model.predicted * sum(one.forward for one in more),
            backward=head.backward + run.model.predicted * sum(one.backward for one in more))

    def block(self, number, backward, recompute):
        if number in self.ends:
            end = self.ends[number]
            return end.backward if backward else end.forward
        times = self.layers[self.run.model.kind(number - 1)]
        if not backward:
            return times.forward
        kept = self.by_op(number) if self.run.per_op else times.attention
        extra = {"full": times.forward, "selective": kept}.get(recompute, 0.0)
        weights = times.forward if self.run.frozen else times.backward
        return weights + extra

    def by_op(self, number):
        """Seconds that selective recomputation by op takes in a layer of Llama's kind: in 16 bits
        outputs of attention and of every other product are kept, in the order query, key, value,
        output, gate, up, down; in 8 bits those of attention alone. Nothing waits for the last one.
        [pytorch/torchtitan, activation checkpointing, selective by op]"""
        kind = self.run.model.kind(number - 1)
        layer, at, tp = self.run.model.layers[kind], degrees_of(self.run), self.run.tp
        tokens = at.samples * at.sequence / at.context_parallel
        query, value = layer.query_width / tp, layer.value_width / tp

        def product(columns, rows):
            return self.kernels.linear(tokens, columns, rows, at).forward

        attention = [product(layer.heads * query, layer.hidden),
                     product(layer.kv_heads * query, layer.hidden),
                     product(layer.kv_heads * value, layer.hidden),
                     product(layer.hidden, layer.heads * value)]
        feed = [product(layer.ffn / tp, layer.hidden)] * 2
        merged = [product(layer.heads * query + layer.kv_heads * (query + value), layer.hidden),
                  attention[-1], product(2 * layer.ffn / tp, layer.hidden),
                  product(layer.hidden, layer.ffn / tp)]
        between = (self.layers[kind].forward - self.kernels.attention(layer, at).forward -
                   sum(merged))
        again = attention + feed
        return between + sum(again[1::2] if self.run.precision == "bf16" else again)

    def pass_time(self, number, backward, recompute):
        """Seconds of a pass of the block with this number."""
        return self.slowdown * self.block(number, backward, recompute)

    def of(self, op):
        """Seconds of an op."""
        if op.kind == "optimizer_step":
            if self.run.frozen:
                return 0.0
            parameters = op.bytes / self.state_bytes
            if self.run.sharded != "none":
                parameters /= self.replicas_left
            return self.kernels.optimizer(parameters, orrery.StateBytes(
                weight=self.run.weight_bytes, gradient=4, master=4, moments=8))
        segment = self.segments[op.segment]
        return sum(self.pass_time(number, op.kind == "backward", segment.recompute)
                   for number in range(segment.first_block, segment.last_block + 1))


def experts_exchange(run, layer, parameters):
    """Seconds of dispatch and combine around a layer of experts: each token's routed copies go to
    other ranks and back; those that leave the scale-up domain through a NIC [Lepikhin et al. 2020,
    3.2]."""
    if run.ep == 1:
        return 0.0
    gpu = GPUS[run.gpu]
    links = orrery.library()["links"]
    width = 1 if run.whole_experts else run.tp * run.cp
    inside = min(run.ep, max(1, gpu.domain // width))
    tokens = float(run.micro_batch) * run.sequence / run.cp
    sent = 2.0 * tokens / run.tp * layer.hidden * layer.top_k
    local, far = (inside - 1) / run.ep, (run.ep - inside) / run.ep
    up, nic = links[gpu.scale_up], links[gpu.network]
    one = max(sent * local / (up.bandwidth * up.efficiency),
              sent * far / (nic.bandwidth * nic.efficiency)) + up.latency
    return 2 * one * parameters["exposed_experts"]


def replica_traffic(run):
    """Seconds for which sums of gradients and gathers of weights occupy the links of a GPU in a
    step, by the bytes alone."""
    if run.frozen:
        return 0.0
    passes = (2.0 if run.sharded == "all" else 1.0) + run.gradient_bytes / run.weight_bytes
    return passes * gather_time(run)


def hidden_share(run, layers):
    """Of the time of all passes the part during which such traffic runs beside them."""
    numbers = range(run.model.shape.layers)
    passes = sum(layers[run.model.kind(number)].forward + layers[run.model.kind(number)].backward
                 for number in numbers) / run.pp * run.micro_batches
    return min(1.0, replica_traffic(run) / passes)


def slowest_of(gpus):
    """Of so many GPUs, the slowest one's excess in standard deviations: all wait for it
    [Sinha et al. 2022, on how GPUs of one type differ]."""
    return math.sqrt(2 * math.log(gpus)) if gpus > 1 else 0.0


@dataclass
class Prediction:
    step: float
    breakdown: dict


def simulate_part(run, micro_batches, parameters):
    built = build(run, micro_batches)
    shorten(run, built, parameters)
    program = orrery.settled(built.program)
    prices = Prices(run, parameters, built.fold.replicas, built.segments,
                    sum(built.training.job.state_bytes.to_dict().values()))
    times = orrery.price_ops(program, prices.of)
    return built.training.simulate(program, op_times=times, record_spans=False,
                                   record_memory=False, record_links=False)


def simulate(run, parameters):
    """The step with these parameters."""
    parameters = DECLARED | parameters
    group = run.pp
    left = max(0, run.micro_batches // group - GROUPS)
    first = simulate_part(run, run.micro_batches - left * group, parameters)
    step, breakdown = first.iteration_time, first.breakdown.to_dict()
    if left > 0:
        longer = simulate_part(run, run.micro_batches - (left - 1) * group, parameters)
        more = longer.breakdown.to_dict()
        step += left * (longer.iteration_time - first.iteration_time)
        breakdown = {name: value + left * (more[name] - value)
                     for name, value in breakdown.items()}
    return Prediction(step + parameters["step"], breakdown)


def collectives_of_layer(run, parameters):
    """Seconds that the uncovered tensor-parallel collectives of one pass of a layer take, roughly:
    what estimate() needs to know of how the step changes with `exposed`."""
    if run.tp == 1:
        return 0.0
    up = orrery.library()["links"][GPUS[run.gpu].scale_up]
    output = 2.0 * run.sequence / run.cp * run.model.shape.hidden * run.micro_batch
    return (4 * (run.tp - 1) / run.tp * output / (up.bandwidth * up.efficiency) +
            4 * (run.tp - 1) * up.latency) * parameters["exposed"]


def estimate(run, parameters):
    """The step in closed form: passes of the slowest stage for every micro-batch and, while the
    pipeline fills, of the others, divided by its chunks [Narayanan et al. 2021, 2.2.2]. Used where
    only changes with the parameters matter: a fit multiplies it with what the simulation of the
    same run gave."""
    parameters = DECLARED | parameters
    prices = Prices(run, parameters)
    counts = chunk_layers(run)
    stages = []
    for stage in range(run.pp):
        numbers = [0] if stage == 0 else []
        numbers += [run.model.shape.layers + 1] if stage == run.pp - 1 else []
        for place in range(stage, run.chunks, run.pp):
            first = sum(counts[:place])
            numbers += range(first + 1, first + counts[place] + 1)
        time = len(numbers) * 2 * collectives_of_layer(run, parameters)
        for number in numbers:
            time += prices.pass_time(number, False, run.recompute)
            time += prices.pass_time(number, True, run.recompute)
        stages.append(time)
    slowest = max(stages)
    return (run.micro_batches * slowest + (sum(stages) - slowest) / run.virtual_stages +
            parameters["step"])
