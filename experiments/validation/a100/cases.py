"""From a run to a program that the simulator can time on a cluster of A100 nodes: the plan that the
row describes, its lowering, prices of its passes from counts of kernels, and two changes:

- Tensor-parallel ranks send slices of an activation in parallel; of these, those behind one adapter
  represent all: the others do the same at the same time on adapters of their own.
- Replicas beyond those on two nodes of a stage may be left out (`folded`): they do the same at the
  same time. Rings that became shorter carry as much on each edge as the long ones did."""

import threading
from dataclasses import dataclass, field

import orrery
from a100 import kernels
from a100.runs import GPUS_PER_NODE, Run

NVLINK, NETWORK = "nvlink3", "infiniband-200"
BUCKET = 25 * 1024**2  # bytes of PyTorch DDP's


@dataclass
class Case:
    """A run ready to be simulated; only link efficiencies and prices depend on parameters."""
    run: Run
    plan: orrery.Plan
    training: orrery.Training  # with the link efficiencies of the last simulation
    program: orrery.Program
    segments: list  # of the program
    lock: threading.Lock = field(default_factory=threading.Lock)

    def set_links(self, parameters):
        """Efficiencies; a training that has them already keeps its simulator."""
        cluster = self.training.cluster
        shares = {NVLINK: parameters["nvlink_share"], NETWORK: parameters["network_share"]}
        if any(cluster.links[name].efficiency != share for name, share in shares.items()):
            links = {name: cluster.links[name].replace(efficiency=share)
                     for name, share in shares.items()}
            self.training = orrery.Training(cluster.replace(links=links), self.training.workload,
                                            self.training.job)


def folded_replicas(run):
    """Replicas that a folded case has: those that share a stage's first two nodes."""
    per_node = max(1, GPUS_PER_NODE // run.tp)
    return min(run.dp, 2 * per_node) if run.dp % per_node == 0 else run.dp


def make_cluster(run, gpus):
    """Nodes of eight "A100-80GB" on one NVSwitch with a fabric without bottleneck."""
    library = orrery.library()
    eight = list(range(GPUS_PER_NODE))
    nodes = [orrery.Node(name=f"a100-{n}", gpu_types=[0] * GPUS_PER_NODE,
                         domains=[orrery.LinkDomain(members=eight, link=NVLINK)],
                         nics=[orrery.Nic(link=NETWORK)] * run.nics_per_node)
             for n in range((gpus + GPUS_PER_NODE - 1) // GPUS_PER_NODE)]
    return orrery.Cluster(name="a100", gpu_types=[library["gpus"]["A100-80GB"]],
                          links={name: library["links"][name] for name in (NVLINK, NETWORK)},
                          nodes=nodes)


def model_shape(run):
    return orrery.ModelShape(
        name=run.id, layers=run.layers, hidden=run.hidden, heads=run.heads, kv_heads=run.heads,
        head_dim=run.hidden // run.heads, ffn=4 * run.hidden, vocabulary=run.vocabulary,
        positions=run.sequence, normalization="layer_norm", activation="gelu", biases=True,
        tied_embeddings=True)


def make_job(run, replicas):
    return orrery.Job(global_batch=replicas * run.micro_batches * run.micro_batch,
                      sequence_length=run.sequence, dtype="fp16",
                      state_bytes=orrery.StateBytes(gradient=run.software.gradient_bytes),
                      allowed=orrery.Allowed(recompute=[run.recompute],
                                             sequence_parallel=run.sequence_parallel,
                                             max_micro_batch_size=run.micro_batch,
                                             schedules=[schedule_of(run)]))


def schedule_of(run):
    return "interleaved_1f1b" if run.virtual_stages > 1 else "1f1b"


def make_pipeline(run, replica, replicas):
    """Ranks: tensor-parallel neighbors first, then replicas, then stages [Megatron-LM's order]."""
    chunks = run.virtual_stages
    layers = run.layers // (run.pp * chunks)
    stages = []
    for stage in range(run.pp):
        first = (stage * replicas + replica) * run.tp
        group = orrery.Group(devices=list(range(first, first + run.tp)), tensor_parallel=run.tp,
                             sequence="megatron" if run.sequence_parallel else "none",
                             samples=run.micro_batch)
        segments = []
        for chunk in range(chunks):
            place = chunk * run.pp + stage  # along the model
            last = place + 1 == run.pp * chunks
            segments.append(orrery.Segment(
                first_block=0 if place == 0 else place * layers + 1,
                last_block=(place + 1) * layers + (1 if last else 0), virtual_stage=chunk,
                groups=[group], recompute=run.recompute))
        stages.append(orrery.Stage(segments=segments))
    return orrery.Pipeline(micro_batches=run.micro_batches, micro_batch_size=run.micro_batch,
                           stages=stages)


def make_plan(run, replicas):
    overlapped = run.software.overlapped_gradients
    return orrery.Plan(
        schedule=schedule_of(run), virtual_stages=run.virtual_stages,
        communication=orrery.Communication(activation_transfer="sliced",
                                           gradient_overlap=overlapped,
                                           bucket=BUCKET if overlapped else 0),
        pipelines=[make_pipeline(run, replica, replicas) for replica in range(replicas)])


def make_case(run, folded):
    assert run.layers % (run.pp * run.virtual_stages) == 0, (
        f"{run.id}: {run.layers} layers over {run.pp} stages x {run.virtual_stages}")
    replicas = folded_replicas(run) if folded else run.dp
    plan = make_plan(run, replicas)
    training = orrery.Training(make_cluster(run, run.tp * run.pp * replicas), model_shape(run),
                               make_job(run, replicas))
    program = training.lower(plan)
    if replicas < run.dp:
        lengthen_rings(program, run.dp / replicas)
    thin_transfers(program, training.cluster)
    segments = program.segments
    return Case(run, plan, training, orrery.settled(program), segments)


def thin_transfers(program, cluster):
    """Keeps of each set of equal transfers between two nodes, or inside one, those that share the
    first one's adapter."""
    adapter = orrery.Topology(cluster, orrery.Profile()).nic_of

    def node(device):
        return device // GPUS_PER_NODE

    thinned = []
    for transfers in program.transfer_sets:
        kinds = {(one.bytes, node(one.source), node(one.destination)) for one in transfers}
        if len(transfers) > 1 and len(kinds) == 1:
            first = transfers[0]
            inside = node(first.source) == node(first.destination)
            transfers = [one for one in transfers
                         if (one.source == first.source if inside
                             else adapter(one.source) == adapter(first.source))]
        thinned.append(transfers)
    program.transfer_sets = thinned


def lengthen_rings(program, factor):
    """Scales gradient collectives so that each edge carries what it would with `factor` times as
    many members."""
    groups = program.groups
    for shape in program.collective_shapes:
        if shape.purpose != "data_parallel":
            continue
        for part in shape.parts:
            members = float(len(groups[part.group].devices))
            if members > 1:
                most = members * factor
                part.bytes *= (most - 1) / most / ((members - 1) / members)


def collectives_of_layer(run, parameters):
    """Time that tensor-parallel collectives take in one pass of a layer: two all-reduces of its
    output [Shoeybi et al. 2019, 3], or as many bytes with sequence parallelism."""
    if run.tp == 1:
        return 0.0
    output = 2.0 * run.sequence * run.hidden * run.micro_batch
    if run.tp <= GPUS_PER_NODE:
        port = 300e9 * parameters["nvlink_share"]
    else:
        port = 25e9 * parameters["network_share"] * run.nics_per_node
    share = (run.tp - 1) / run.tp
    return 2 * 2 * share * output / port


class Prices:
    """Times of a run's compute ops. A pass of a layer takes its kernels' time, or what the host
    needs to launch them less the time of its tensor-parallel collectives, if that is longer:
    kernels are launched ahead and wait for each other only [unverified]."""

    def __init__(self, case, parameters):
        run, gpu = case.run, case.training.cluster.gpu_types[0]
        self.segments = case.segments
        self.state_bytes = sum(case.training.job.state_bytes.to_dict().values())
        self.slowdown = parameters["older_software"] if run.software.older else 1.0
        self.device = kernels.Device(gpu.peak["fp16"], gpu.memory_bandwidth,
                                     parameters["gemm_share"], parameters["memory_share"])
        block = kernels.Block(
            float(run.sequence), float(run.hidden), float(run.heads), float(run.vocabulary),
            float(run.micro_batch), float(run.tp), run.sequence_parallel,
            run.software.accumulation_bytes if run.micro_batches > 1 else 0.0)
        self.layer = kernels.layer(block, self.device)
        self.ends = {0: kernels.embedding(block, self.device),
                     run.layers + 1: kernels.head(block, self.device)}
        self.launching = max(0.0, parameters["host_per_layer"] -
                             collectives_of_layer(run, parameters))

    def layer_pass(self, backward, recompute):
        if not backward:
            return max(self.slowdown * self.layer.forward, self.launching)
        time = self.layer.backward
        if recompute == "full":
            time += self.layer.forward
        if recompute == "selective":
            time += self.layer.attention_core
        return max(self.slowdown * time, (2 if recompute == "full" else 1) * self.launching)

    def of(self, op):
        """Seconds."""
        if op.kind == "optimizer_step":
            return kernels.optimizer(op.bytes / self.state_bytes, self.device)
        backward, segment = op.kind == "backward", self.segments[op.segment]
        time = 0.0
        for block in range(segment.first_block, segment.last_block + 1):
            if block in self.ends:
                end = self.ends[block]
                time += self.slowdown * (end.backward if backward else end.forward)
            else:
                time += self.layer_pass(backward, segment.recompute)
        return time


@dataclass
class Prediction:
    iteration: float
    breakdown: dict  # parts of the iteration by name; seconds


def simulate(case, parameters):
    """The iteration with these parameters."""
    with case.lock:
        case.set_links(parameters)
        times = orrery.price_ops(case.program, Prices(case, parameters).of)
        result = case.training.simulate(case.program, op_times=times, record_spans=False,
                                        record_memory=False, record_links=False)
    return Prediction(result.iteration_time, result.breakdown.to_dict())
