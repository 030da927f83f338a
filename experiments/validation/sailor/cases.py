"""The plans of the public Sailor measurements as our own cluster, workload, job and plan, and what
the simulator says about them. What is fitted is passed in."""

import copy
from dataclasses import dataclass

import orrery
from sailor import deepspeed

# Types of models/library that fill in bandwidth and peak. The data's RTX-2080 has 11 GiB, which is
# the Ti.
BASE_TYPES = {"GH-96": "GH200-96GB", "RTX-3090": "RTX3090-24GB", "RTX-2080": "RTX2080Ti-11GB",
              "Titan-RTX": "TitanRTX-24GB"}
FP32 = 4  # bytes


def head_is_profiled(data, model, tensor_parallel):
    """Whether the profile of the model has the product with the vocabulary in its last layer.
    GPT-Neo's does not, judging by the parameters of layer_memory.csv."""
    shape = data.models[model]
    matrix = shape.padded_vocabulary(tensor_parallel) * shape.hidden / tensor_parallel
    return data.layer_memory(model, tensor_parallel, shape.layers + 1).parameters >= matrix


def model_shape(name, model, tensor_parallel, tied):
    return orrery.ModelShape(
        name=name, layers=model.layers, hidden=model.hidden, heads=model.heads,
        kv_heads=model.heads, head_dim=model.head_dim, ffn=model.ffn,
        vocabulary=model.padded_vocabulary(tensor_parallel), positions=model.positions,
        normalization="layer_norm", activation="gelu", biases=True, tied_embeddings=tied)


class Profiles:
    """The published profile, as it is and with the missing products of heads."""

    def __init__(self, data, folder):
        self.data = data
        self.published = orrery.import_sailor_profile(str(folder))
        self.heads = [entry for entry in self.published.block_times if entry.block == "head"]
        self.layers = {self.key(entry): entry.time for entry in self.published.block_times
                       if entry.block == "transformer"}
        self.completed = copy.deepcopy(self.published)
        for head in self.completed.block_times:
            if head.block == "head" and not self.has_head(head):
                product = self.head_product(head)
                if product is not None:
                    head.time += product
                    head.provenance.source += "; product with the vocabulary at the rate of a layer"

    @staticmethod
    def key(entry):
        return (entry.model, entry.gpu, entry.pass_, entry.tensor_parallel, entry.micro_batch_size)

    def has_head(self, entry):
        return head_is_profiled(self.data, entry.model, entry.tensor_parallel)

    def head_product(self, head):
        """The head's product with the vocabulary at the rate at which the same profile (GPU type,
        degree, micro-batch size, pass) runs a transformer layer; None where it has no layer."""
        shape = model_shape(head.model, self.data.models[head.model], head.tensor_parallel, False)
        job = orrery.Job(global_batch=1, sequence_length=head.sequence_length, dtype="fp32")
        blocks = orrery.build_workload(shape, job).blocks
        layer = self.layers.get(self.key(head))
        return None if layer is None else (
            blocks[-1].forward_flops / blocks[1].forward_flops * layer)

    def check_heads(self):
        """(head, ratio): the time that the recipe would give a head over its measured time, for
        models whose profile has it. This judges the recipe on profiles alone."""
        products = [(head, self.head_product(head)) for head in self.heads
                    if self.has_head(head) and head.time > 0]
        return [(head, product / head.time) for head, product in products if product is not None]


def make_cluster(plan, data):
    """Each replica of each stage is a node, in DeepSpeed's rank order (stage by stage). gh200 nodes
    have a NIC for each GPU, rtx nodes one for all. Link classes are those of the profile. GPU types
    take memory from the data; bandwidth and peak, for what the profile lacks, from the library."""
    library = orrery.library()
    types, links, nodes = {}, {}, []

    def link(name, bandwidth):
        """The narrowest link; its times come from the profile."""
        links.setdefault(name, orrery.LinkClass(name=name, bandwidth=bandwidth,
                                                source="network_bandwidth.csv"))
        return name

    for replica in (replica for stage in plan.stages for replica in stage.replicas):
        gpu = replica.gpu
        if gpu not in types:
            types[gpu] = copy.deepcopy(library["gpus"][BASE_TYPES[gpu]])
            types[gpu].name = gpu
            types[gpu].memory = data.nodes[gpu].memory
        count = data.nodes[gpu].gpus
        pairs = max(1, replica.tensor_parallel // 2)
        inside = data.bandwidth(gpu, gpu, pairs, pairs, inter_node=False).most_measured
        between = data.bandwidth(gpu, gpu, 1, 1).most_measured
        port = link(orrery.sailor_gpu_link(gpu, pairs), inside / pairs)
        nic = link(orrery.sailor_node_link(gpu), between)
        nics = ([orrery.Nic(link=nic, members=[i]) for i in range(count)] if plan.on_gh200
                else [orrery.Nic(link=nic)])
        nodes.append(orrery.Node(
            name=f"{gpu}-{len(nodes)}", gpu_types=[list(types).index(gpu)] * count,
            domains=[orrery.LinkDomain(members=list(range(count)), link=port)], nics=nics))
    return orrery.Cluster(name=plan.cluster, gpu_types=list(types.values()), links=links,
                          nodes=nodes)


def make_workload(plan, data):
    """fp32 at the padded vocabulary; activations that blocks keep are those of layer_memory.csv.
    The head's logits have a gradient of their size while its backward pass runs. A head that was
    not profiled also keeps its logits twice, as OPT-350's does."""
    model, degree = data.models[plan.model], plan.tensor_parallel
    profiled = head_is_profiled(data, plan.model, degree)
    shape = model_shape(plan.model, model, degree, not profiled)
    workload = orrery.build_workload(shape, make_job(plan, data))
    for layer, block in enumerate(workload.blocks):
        block.kept_split = block.attention_kept = 0.0
        block.kept_replicated = data.layer_memory(plan.model, degree, layer).saved_activations
    head = workload.blocks[-1]
    head.logits = float(model.sequence) * shape.vocabulary * FP32
    if not profiled:
        head.kept_split = 2 * head.logits
    return workload


def make_job(plan, data):
    """fp32 weights, gradients and two moments; no master copy."""
    return orrery.Job(
        global_batch=plan.global_batch, sequence_length=data.models[plan.model].sequence,
        dtype="fp32", state_bytes=orrery.StateBytes(weight=4, gradient=4, master=0, moments=8),
        optimizer="adam",
        allowed=orrery.Allowed(recompute=["none"], max_micro_batch_size=plan.micro_batch))


def make_plan(plan, data):
    """1F1B, one pipeline for each replica, activations in slices (DeepSpeed's default
    pipe_partitioned), gradients after the last backward pass."""
    first = 0  # device of the node
    firsts = []
    for stage in plan.stages:
        for replica in stage.replicas:
            firsts.append(first)
            first += data.nodes[replica.gpu].gpus
    degree = plan.tensor_parallel

    def stage_of(s, replica):
        node = s * plan.data_parallel + replica
        group = orrery.Group(devices=list(range(firsts[node], firsts[node] + degree)),
                             tensor_parallel=degree, samples=plan.micro_batch)
        return orrery.Stage(segments=[orrery.Segment(first_block=plan.stages[s].first_layer,
                                                     last_block=plan.stages[s].last_layer,
                                                     groups=[group])])

    return orrery.Plan(
        planner="published", schedule="1f1b",
        communication=orrery.Communication(activation_transfer="sliced"),
        pipelines=[orrery.Pipeline(micro_batches=plan.micro_batches,
                                   micro_batch_size=plan.micro_batch,
                                   stages=[stage_of(s, replica) for s in range(len(plan.stages))])
                   for replica in range(plan.data_parallel)])


@dataclass
class Prediction:
    """Times in seconds, sizes in bytes."""
    iteration: float
    # If transfers overlapped with passes: shows how much of an error DeepSpeed's order explains.
    # Not the prediction.
    overlapped: float
    # Memory of the device that holds most: parameters, gradients, moments, activations, flat
    # gradients. Without context, NCCL and what the allocator keeps.
    held: float
    activations: float  # part of it that is neither state nor flat gradients
    slowest_compute: float  # passes of the busiest rank
    breakdown: dict  # mean over ranks, as the simulator counts
    used: list  # profile entries and rooflines that priced it


QUIET = {"record_spans": False, "record_memory": False, "record_links": False}


def synchronized(program, times, plan, slot):
    """Prices of ops with what the host takes around each pass of a pipeline."""
    if len(plan.stages) == 1:
        return times
    return [time + (slot if op.kind in ("forward", "backward") else 0.0)
            for op, time in zip(program.ops, times)]


def lowered(plan, data, profiles):
    """The program in DeepSpeed's order but for blocking transfers, and the training of each
    profile."""
    job, cluster = make_job(plan, data), make_cluster(plan, data)
    workload = make_workload(plan, data)
    trainings = [orrery.Training(cluster, workload, job, profile) for profile in profiles]
    program = trainings[0].lower(make_plan(plan, data))
    deepspeed.change(program)
    return program, trainings


def iteration_times(plan, data, profile, slots):
    """Of the plan, with each of these times of the host around a pass."""
    program, trainings = lowered(plan, data, [profile])
    times = trainings[0].op_times(program)
    deepspeed.block(program)
    return [trainings[0].simulate(program, op_times=synchronized(program, times, plan, slot),
                                  **QUIET).iteration_time for slot in slots]


def predict(plan, data, slot, *profiles):
    """Lowers, changes to DeepSpeed's order, simulates: a prediction for each profile. `slot`: what
    the host takes around a pass of a pipeline, in seconds."""
    program, trainings = lowered(plan, data, profiles)
    # Both orders have the same ops and thus the same prices.
    prices = [synchronized(program, training.op_times(program), plan, slot)
              for training in trainings]
    overlapped = [training.simulate(program, op_times=times, **QUIET)
                  for training, times in zip(trainings, prices)]
    deepspeed.block(program)
    blocking = [training.simulate(program, op_times=times, **QUIET)
                for training, times in zip(trainings, prices)]
    resident = [sum(effect.bytes for effect in effects) for effects in program.resident]

    def activations(peaks):
        return max(peaks) - resident[max(range(len(peaks)), key=peaks.__getitem__)]

    return [Prediction(iteration=result.iteration_time, overlapped=beside.iteration_time,
                       held=max(result.peak_memory),
                       activations=activations(result.peak_memory),
                       slowest_compute=max(rank.compute for rank in result.ranks) * 1e-9,
                       breakdown=result.breakdown.to_dict(), used=training.prices())
            for result, beside, training in zip(blocking, overlapped, trainings)]
