"""Generated: tools/orrery python -m orrery.stubs tools/python/orrery"""

from typing import Any, Literal

from .record import Record


class Allowed(Record):
    """What a planner may use."""

    recompute: list[Literal["none", "selective", "full", "experts"]]
    zero_stages: list[int]
    sequence_parallel: bool
    max_tensor_parallel: int
    max_micro_batch_size: int
    schedules: list[Literal["gpipe", "1f1b", "interleaved_1f1b", "zero_bubble", "zb_v", "dual_pipe"]]
    max_optimizer_offload: float
    def __init__(self, *, recompute: list[Literal["none", "selective", "full", "experts"]] = ...,
                 zero_stages: list[int] = ..., sequence_parallel: bool = ...,
                 max_tensor_parallel: int = ..., max_micro_batch_size: int = ...,
                 schedules: list[Literal["gpipe", "1f1b", "interleaved_1f1b", "zero_bubble", "zb_v",
                 "dual_pipe"]] = ..., max_optimizer_offload: float = ...) -> None: ...

class Block(Record):
    """Work and bytes of a block, per sample."""

    kind: Literal["embedding", "transformer", "moe", "head", "convolution"]
    forward_flops: float
    attention_flops: float
    parameters: list[Parameter]
    input_bytes: float
    output_bytes: float
    kept_split: float
    kept_replicated: float
    attention_kept: float
    logits: float
    memory_traffic: float
    tensor_collectives: int
    expert_all_to_all: bool
    def __init__(self, *, kind: Literal["embedding", "transformer", "moe", "head",
                 "convolution"] = ..., forward_flops: float = ..., attention_flops: float = ...,
                 parameters: list[Parameter] = ..., input_bytes: float = ...,
                 output_bytes: float = ..., kept_split: float = ..., kept_replicated: float = ...,
                 attention_kept: float = ..., logits: float = ..., memory_traffic: float = ...,
                 tensor_collectives: int = ..., expert_all_to_all: bool = ...) -> None: ...

class BlockQuery(Record):
    """Which pass over which block a price is asked for."""

    gpu_type: int
    block: int
    pass_: Literal["forward", "backward", "backward_input", "backward_weight", "optimizer"]
    tensor_parallel: int
    sequence_degree: int
    samples: int
    recompute: Literal["none", "selective", "full", "experts"]
    expert_parallel: int
    experts: int
    expert_samples: int
    sequence_parallel: bool
    def __init__(self, *, gpu_type: int = ..., block: int = ..., pass_: Literal["forward",
                 "backward", "backward_input", "backward_weight", "optimizer"] = ...,
                 tensor_parallel: int = ..., sequence_degree: int = ..., samples: int = ...,
                 recompute: Literal["none", "selective", "full", "experts"] = ...,
                 expert_parallel: int = ..., experts: int = ..., expert_samples: int = ...,
                 sequence_parallel: bool = ...) -> None: ...

class BlockTime(Record):
    """Time of one block on one GPU, for one micro-batch."""

    gpu: str
    block: Literal["embedding", "transformer", "moe", "head", "convolution"]
    model: str
    pass_: Literal["forward", "backward", "backward_input", "backward_weight", "optimizer"]
    tensor_parallel: int
    micro_batch_size: int
    sequence_length: int
    dtype: Literal["fp32", "tf32", "fp16", "bf16", "fp8", "fp64", "fp4", "mxfp8"]
    time: float
    provenance: Provenance
    def __init__(self, *, gpu: str = ..., block: Literal["embedding", "transformer", "moe", "head",
                 "convolution"] = ..., model: str = ..., pass_: Literal["forward", "backward",
                 "backward_input", "backward_weight", "optimizer"] = ...,
                 tensor_parallel: int = ..., micro_batch_size: int = ...,
                 sequence_length: int = ..., dtype: Literal["fp32", "tf32", "fp16", "bf16", "fp8",
                 "fp64", "fp4", "mxfp8"] = ..., time: float = ...,
                 provenance: Provenance = ...) -> None: ...

class Breakdown(Record):
    """Where the time of an iteration goes, mean over devices."""

    compute: float
    tensor_parallel: float
    zero: float
    pipeline: float
    data_parallel: float
    optimizer: float
    bubble: float
    def __init__(self, *, compute: float = ..., tensor_parallel: float = ..., zero: float = ...,
                 pipeline: float = ..., data_parallel: float = ..., optimizer: float = ...,
                 bubble: float = ...) -> None: ...

class BufferEffect(Record):
    """What an op allocates and frees."""

    kind: Literal["parameters", "gradients", "optimizer_states", "activations", "recomputed", "logits", "communication", "context"]
    action: Literal["allocate", "free", "transient"]
    per_micro_batch: bool
    segment: int
    bytes: float
    def __init__(self, *, kind: Literal["parameters", "gradients", "optimizer_states",
                 "activations", "recomputed", "logits", "communication", "context"] = ...,
                 action: Literal["allocate", "free", "transient"] = ...,
                 per_micro_batch: bool = ..., segment: int = ..., bytes: float = ...) -> None: ...

class CheckpointLevel(Record):
    """What a policy writes while training runs."""

    location: Literal["none", "peer", "host_memory", "nvme", "cloud"]
    every: int
    stall: int
    persist: int
    stored_on: list[int]
    source: str
    background: list[StateTransfer]
    def __init__(self, *, location: Literal["none", "peer", "host_memory", "nvme", "cloud"] = ...,
                 every: int = ..., stall: int = ..., persist: int = ..., stored_on: list[int] = ...,
                 source: str = ..., background: list[StateTransfer] = ...) -> None: ...

class ClockOffset(Record):
    """Difference of a rank's clock to rank 0's."""

    rank: int
    offset: int
    uncertainty: int
    def __init__(self, *, rank: int = ..., offset: int = ..., uncertainty: int = ...) -> None: ...

class Cluster(Record):
    """Which GPUs are in which nodes and what connects them."""

    name: str
    gpu_types: list[GpuType]
    links: dict[str, LinkClass]
    nodes: list[Node]
    fabric: Fabric
    overrides: list[PairOverride]
    host_staging: list[HostStaging]
    storage: ObjectStorage | None
    hash: str
    devices: list[Device]
    def __init__(self, *, name: str = ..., gpu_types: list[GpuType] = ..., links: dict[str,
                 LinkClass] = ..., nodes: list[Node] = ..., fabric: Fabric = ...,
                 overrides: list[PairOverride] = ..., host_staging: list[HostStaging] = ...,
                 storage: ObjectStorage | None = ..., hash: str = ...,
                 devices: list[Device] = ...) -> None: ...

class ClusterEvent(Record):
    """An event of a cluster's life."""

    time: int
    kind: Literal["fail", "repair", "notice", "leave", "join", "slow", "restore", "degrade"]
    scope: EventScope
    cause: str
    notice: int
    detection: int | None
    factor: float
    price: float | None
    sequence: int
    def __init__(self, *, time: int = ..., kind: Literal["fail", "repair", "notice", "leave",
                 "join", "slow", "restore", "degrade"] = ..., scope: EventScope = ...,
                 cause: str = ..., notice: int = ..., detection: int | None = ...,
                 factor: float = ..., price: float | None = ..., sequence: int = ...) -> None: ...

class Collective(Record):
    """One collective among ranks."""

    shape: int
    members: Rendezvous
    def __init__(self, *, shape: int = ..., members: Rendezvous = ...) -> None: ...

class CollectiveFactor(Record):
    """Measured time of a collective over its closed form."""

    collective: str
    link_class: str
    ranks: int
    factor: float
    provenance: Provenance
    def __init__(self, *, collective: str = ..., link_class: str = ..., ranks: int = ...,
                 factor: float = ..., provenance: Provenance = ...) -> None: ...

class CollectivePart(Record):
    """One of the equal collectives of a CollectiveShape."""

    group: int
    bytes: float
    member_regions: list[list[Region]]
    def __init__(self, *, group: int = ..., bytes: float = ...,
                 member_regions: list[list[Region]] = ...) -> None: ...

class CollectiveShape(Record):
    """Equal collectives that run concurrently."""

    kind: Literal["all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all"]
    purpose: Literal["tensor_parallel", "sequence_parallel", "expert_parallel", "pipeline", "data_parallel", "zero", "state"]
    parts: list[CollectivePart]
    regions: int
    def __init__(self, *, kind: Literal["all_reduce", "reduce_scatter", "all_gather", "broadcast",
                 "all_to_all"] = ..., purpose: Literal["tensor_parallel", "sequence_parallel",
                 "expert_parallel", "pipeline", "data_parallel", "zero", "state"] = ...,
                 parts: list[CollectivePart] = ..., regions: int = ...) -> None: ...

class CollectiveWay(Record):
    """An algorithm and protocol of a communication library."""

    link_class: str
    collective: str
    algorithm: Literal["ring", "tree", "nvls", "nvls_tree"]
    protocol: Literal["ll", "ll128", "simple"]
    start: float
    step: float
    chunk: float
    from_bytes: float
    channels: int
    channel_bandwidth: float
    provenance: Provenance
    def __init__(self, *, link_class: str = ..., collective: str = ..., algorithm: Literal["ring",
                 "tree", "nvls", "nvls_tree"] = ..., protocol: Literal["ll", "ll128",
                 "simple"] = ..., start: float = ..., step: float = ..., chunk: float = ...,
                 from_bytes: float = ..., channels: int = ..., channel_bandwidth: float = ...,
                 provenance: Provenance = ...) -> None: ...

class Communication(Record):
    """How activations cross and gradients synchronize."""

    activation_transfer: Literal["leader_broadcast", "sliced"]
    gradient_overlap: bool
    parameter_overlap: bool
    bucket: float
    def __init__(self, *, activation_transfer: Literal["leader_broadcast", "sliced"] = ...,
                 gradient_overlap: bool = ..., parameter_overlap: bool = ...,
                 bucket: float = ...) -> None: ...

class CommunicationGroup(Record):
    """Devices that communicate, in ring order."""

    devices: list[int]
    def __init__(self, *, devices: list[int] = ...) -> None: ...

class ConstraintCost(Record):
    """What a constraint kept the search from."""

    constraint: str
    rejected: int
    best_without: float | None
    witness: str
    def __init__(self, *, constraint: str = ..., rejected: int = ...,
                 best_without: float | None = ..., witness: str = ...) -> None: ...

class Device(Record):
    """Where a device is."""

    id: int
    node: int
    position: int
    gpu_type: int
    def __init__(self, *, id: int = ..., node: int = ..., position: int = ...,
                 gpu_type: int = ...) -> None: ...

class DeviceHours(Record):
    """GPU-hours by what they went into."""

    in_plan: list[float]
    spare: float
    absent: float
    def __init__(self, *, in_plan: list[float] = ..., spare: float = ...,
                 absent: float = ...) -> None: ...

class EfficiencyCurve(Record):
    """Achieved share of peak over FLOPs per op."""

    gpu: str
    dtype: Literal["fp32", "tf32", "fp16", "bf16", "fp8", "fp64", "fp4", "mxfp8"]
    points: list[EfficiencyPoint]
    provenance: Provenance
    def __init__(self, *, gpu: str = ..., dtype: Literal["fp32", "tf32", "fp16", "bf16", "fp8",
                 "fp64", "fp4", "mxfp8"] = ..., points: list[EfficiencyPoint] = ...,
                 provenance: Provenance = ...) -> None: ...

class EfficiencyPoint(Record):
    """A point of an EfficiencyCurve."""

    work: float
    efficiency: float
    def __init__(self, *, work: float = ..., efficiency: float = ...) -> None: ...

class ErrorSummary(Record):
    """Errors of the rows of one set and metric, relative: absolute but for `bias`."""

    set: str
    metric: str
    rows: int
    mean: float
    median: float
    max: float
    bias: float
    worst: str
    target: float | None
    published_best: float | None
    def __init__(self, *, set: str = ..., metric: str = ..., rows: int = ..., mean: float = ...,
                 median: float = ..., max: float = ..., bias: float = ..., worst: str = ...,
                 target: float | None = ..., published_best: float | None = ...) -> None: ...

class Evaluation(Record):
    """What a judge says of a plan."""

    iteration_time: float
    memory: MemoryVerdict
    breakdown: Breakdown
    tokens_per_second: float
    mfu: float
    hfu: float
    dollars_per_million_tokens: float | None
    joules_per_token: float | None
    pipeline_times: list[float]
    synchronization: float | None
    def __init__(self, *, iteration_time: float = ..., memory: MemoryVerdict = ...,
                 breakdown: Breakdown = ..., tokens_per_second: float = ..., mfu: float = ...,
                 hfu: float = ..., dollars_per_million_tokens: float | None = ...,
                 joules_per_token: float | None = ..., pipeline_times: list[float] = ...,
                 synchronization: float | None = ...) -> None: ...

class EventScope(Record):
    """What an event hits."""

    kind: Literal["devices", "node", "link", "job"]
    devices: list[int]
    node: int
    link: str
    def __init__(self, *, kind: Literal["devices", "node", "link", "job"] = ...,
                 devices: list[int] = ..., node: int = ..., link: str = ...) -> None: ...

class ExposedCollectives(Record):
    """What passes do not hide of what they overlap."""

    gpu: str
    purpose: Literal["tensor_parallel", "sequence_parallel", "expert_parallel", "pipeline", "data_parallel", "zero", "state"]
    share: float
    provenance: Provenance
    def __init__(self, *, gpu: str = ..., purpose: Literal["tensor_parallel", "sequence_parallel",
                 "expert_parallel", "pipeline", "data_parallel", "zero", "state"] = ...,
                 share: float = ..., provenance: Provenance = ...) -> None: ...

class Fabric(Record):
    """Leaf switches under one spine, or under pods and a core."""

    leaf_uplink: float
    leaf_latency: float
    spine_latency: float
    leaf_oversubscription: float
    rails: int
    leaves_per_pod: int
    spine_uplink: float
    spine_oversubscription: float
    core_latency: float
    def __init__(self, *, leaf_uplink: float = ..., leaf_latency: float = ...,
                 spine_latency: float = ..., leaf_oversubscription: float = ..., rails: int = ...,
                 leaves_per_pod: int = ..., spine_uplink: float = ...,
                 spine_oversubscription: float = ..., core_latency: float = ...) -> None: ...

class FlowEdge(Record):
    """One edge of a collective as a flow."""

    source: int
    destination: int
    bytes: float
    extra_latency: float
    def __init__(self, *, source: int = ..., destination: int = ..., bytes: float = ...,
                 extra_latency: float = ...) -> None: ...

class GpuType(Record):
    """A type of GPU."""

    name: str
    vendor: str
    peak: dict[Literal["fp32", "tf32", "fp16", "bf16", "fp8", "fp64", "fp4", "mxfp8"], float]
    memory: float
    memory_bandwidth: float
    efficiency: float
    memory_efficiency: float
    launch: float
    price: float | None
    spot_price: float | None
    power: float | None
    source: str
    def __init__(self, *, name: str = ..., vendor: str = ..., peak: dict[Literal["fp32", "tf32",
                 "fp16", "bf16", "fp8", "fp64", "fp4", "mxfp8"], float] = ..., memory: float = ...,
                 memory_bandwidth: float = ..., efficiency: float = ...,
                 memory_efficiency: float = ..., launch: float = ..., price: float | None = ...,
                 spot_price: float | None = ..., power: float | None = ...,
                 source: str = ...) -> None: ...

class Group(Record):
    """A tensor-parallel group: its devices in rank order."""

    devices: list[int]
    tensor_parallel: int
    sequence: Literal["none", "megatron", "ulysses", "ring"]
    sequence_degree: int
    samples: int
    state_weight: int
    experts: int
    def __init__(self, *, devices: list[int] = ..., tensor_parallel: int = ...,
                 sequence: Literal["none", "megatron", "ulysses", "ring"] = ...,
                 sequence_degree: int = ..., samples: int = ..., state_weight: int = ...,
                 experts: int = ...) -> None: ...

class HostMemoryUse(Record):
    """Model states in host memory of a node."""

    node: str
    need: float
    have: float
    def __init__(self, *, node: str = ..., need: float = ..., have: float = ...) -> None: ...

class HostStaging(Record):
    """Two vendors that talk through host memory."""

    vendor_a: str
    vendor_b: str
    bandwidth: float
    latency: float
    def __init__(self, *, vendor_a: str = ..., vendor_b: str = ..., bandwidth: float = ...,
                 latency: float = ...) -> None: ...

class Infeasible(Record):
    """An expected no: the constraint, and a witness in words."""

    constraint: str
    witness: str
    def __init__(self, *, constraint: str = ..., witness: str = ...) -> None: ...

class InnerCollective(Record):
    """Collectives inside a pass."""

    kind: Literal["all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all"]
    purpose: Literal["tensor_parallel", "sequence_parallel", "expert_parallel", "pipeline", "data_parallel", "zero", "state"]
    groups: list[int]
    count: int
    bytes: float
    bytes_per_peer: list[float]
    def __init__(self, *, kind: Literal["all_reduce", "reduce_scatter", "all_gather", "broadcast",
                 "all_to_all"] = ..., purpose: Literal["tensor_parallel", "sequence_parallel",
                 "expert_parallel", "pipeline", "data_parallel", "zero", "state"] = ...,
                 groups: list[int] = ..., count: int = ..., bytes: float = ...,
                 bytes_per_peer: list[float] = ...) -> None: ...

class InterruptionRecord(Record):
    """A stop of the training."""

    at: int
    cause: str
    reason: str
    rolled_back: int
    stall: int
    def __init__(self, *, at: int = ..., cause: str = ..., reason: str = ...,
                 rolled_back: int = ..., stall: int = ...) -> None: ...

class IterationConditions(Record):
    """What slows an iteration down."""

    slow: list[SlowDevice]
    degraded_links: list[tuple[str, float]]
    background: list[StateTransfer]
    def __init__(self, *, slow: list[SlowDevice] = ..., degraded_links: list[tuple[str,
                 float]] = ..., background: list[StateTransfer] = ...) -> None: ...

class IterationMark(Record):
    """When an iteration began and ended."""

    iteration: int
    start: int
    end: int
    def __init__(self, *, iteration: int = ..., start: int = ..., end: int = ...) -> None: ...

class IterationOptions(Record):
    """How an iteration is simulated."""

    jitter: float
    step_jitter: float
    link_jitter: float
    seed: int
    stragglers: list[Straggler]
    slow_links: list[SlowLink]
    inner: Literal["automatic", "closed_form", "aggregated", "per_block"]
    ring: Literal["aggregated", "stepwise"]
    fold: Literal["automatic", "slices", "off"]
    record_spans: bool
    record_memory: bool
    record_links: bool
    def __init__(self, *, jitter: float = ..., step_jitter: float = ..., link_jitter: float = ...,
                 seed: int = ..., stragglers: list[Straggler] = ...,
                 slow_links: list[SlowLink] = ..., inner: Literal["automatic", "closed_form",
                 "aggregated", "per_block"] = ..., ring: Literal["aggregated", "stepwise"] = ...,
                 fold: Literal["automatic", "slices", "off"] = ..., record_spans: bool = ...,
                 record_memory: bool = ..., record_links: bool = ...) -> None: ...

class IterationResult(Record):
    """A simulated iteration."""

    log: RunLog
    iteration_time: float
    iterations: int
    settled: bool
    ranks: list[RankBreakdown]
    breakdown: Breakdown
    pipeline_times: list[float]
    peak_memory: list[float]
    work: SimulatedWork
    simulated_pipelines: int
    def __init__(self, *, log: RunLog = ..., iteration_time: float = ..., iterations: int = ...,
                 settled: bool = ..., ranks: list[RankBreakdown] = ..., breakdown: Breakdown = ...,
                 pipeline_times: list[float] = ..., peak_memory: list[float] = ...,
                 work: SimulatedWork = ..., simulated_pipelines: int = ...) -> None: ...

class Job(Record):
    """What is trained on what batch."""

    global_batch: int
    sequence_length: int
    lengths: LengthDistribution | None
    dtype: Literal["fp32", "tf32", "fp16", "bf16", "fp8", "fp64", "fp4", "mxfp8"]
    state_bytes: StateBytes
    optimizer: Literal["adam", "sgd"]
    gradient_synchronizations: int
    cuda_graphs: bool
    hidden_collectives: list[Literal["tensor_parallel", "sequence_parallel", "expert_parallel", "pipeline", "data_parallel", "zero", "state"]]
    allowed: Allowed
    def __init__(self, *, global_batch: int = ..., sequence_length: int = ...,
                 lengths: LengthDistribution | None = ..., dtype: Literal["fp32", "tf32", "fp16",
                 "bf16", "fp8", "fp64", "fp4", "mxfp8"] = ..., state_bytes: StateBytes = ...,
                 optimizer: Literal["adam", "sgd"] = ..., gradient_synchronizations: int = ...,
                 cuda_graphs: bool = ..., hidden_collectives: list[Literal["tensor_parallel",
                 "sequence_parallel", "expert_parallel", "pipeline", "data_parallel", "zero",
                 "state"]] = ..., allowed: Allowed = ...) -> None: ...

class JobState(Record):
    """What a policy may know when it decides."""

    now: int
    iteration: int
    plan: Plan | None
    training: bool
    live: list[int]
    leaving: list[LeavingDevice]
    slow: list[SlowDevice]
    replicas: list[StateReplica]
    iteration_time: float
    pending: PendingSwitch | None
    announced: bool
    first: Plan | None
    def __init__(self, *, now: int = ..., iteration: int = ..., plan: Plan | None = ...,
                 training: bool = ..., live: list[int] = ..., leaving: list[LeavingDevice] = ...,
                 slow: list[SlowDevice] = ..., replicas: list[StateReplica] = ...,
                 iteration_time: float = ..., pending: PendingSwitch | None = ...,
                 announced: bool = ..., first: Plan | None = ...) -> None: ...

class KernelDegrees(Record):
    """How a block is divided, and in which numbers."""

    sequence: int
    samples: int
    tensor_parallel: int
    context_parallel: int
    expert_parallel: int
    experts: int
    expert_samples: int
    products: Literal["fp32", "tf32", "fp16", "bf16", "fp8", "fp64", "fp4", "mxfp8"]
    causal: bool
    sequence_parallel: bool
    accumulates: bool
    fused: bool
    launch: float
    def __init__(self, *, sequence: int = ..., samples: int = ..., tensor_parallel: int = ...,
                 context_parallel: int = ..., expert_parallel: int = ..., experts: int = ...,
                 expert_samples: int = ..., products: Literal["fp32", "tf32", "fp16", "bf16", "fp8",
                 "fp64", "fp4", "mxfp8"] = ..., causal: bool = ..., sequence_parallel: bool = ...,
                 accumulates: bool = ..., fused: bool = ..., launch: float = ...) -> None: ...

class KernelLayer(Record):
    """What the kernels of a layer compute."""

    hidden: int
    heads: int
    projections: list[KernelProjection]
    query_width: int
    value_width: int
    kv_heads: int
    ffn: int
    gated: bool
    experts: int
    top_k: int
    expert_ffn: int
    load: float
    window: int
    unfused: bool
    norms: int
    scan: float
    def __init__(self, *, hidden: int = ..., heads: int = ...,
                 projections: list[KernelProjection] = ..., query_width: int = ...,
                 value_width: int = ..., kv_heads: int = ..., ffn: int = ..., gated: bool = ...,
                 experts: int = ..., top_k: int = ..., expert_ffn: int = ..., load: float = ...,
                 window: int = ..., unfused: bool = ..., norms: int = ...,
                 scan: float = ...) -> None: ...

class KernelModel(Record):
    """What the kernels of a GPU type reach."""

    gpu: str
    multiprocessors: int
    products: list[ProductRate]
    attention: float
    memory: float
    gap: float
    unaligned: float
    routing: float
    provenance: Provenance
    def __init__(self, *, gpu: str = ..., multiprocessors: int = ...,
                 products: list[ProductRate] = ..., attention: float = ..., memory: float = ...,
                 gap: float = ..., unaligned: float = ..., routing: float = ...,
                 provenance: Provenance = ...) -> None: ...

class KernelProjection(Record):
    """A weight matrix of attention."""

    rows: float
    columns: float
    split: Literal["none", "columns", "rows"]
    def __init__(self, *, rows: float = ..., columns: float = ..., split: Literal["none", "columns",
                 "rows"] = ...) -> None: ...

class KernelTimes(Record):
    """Seconds of the passes of a block."""

    forward: float
    backward: float
    backward_weight: float
    attention: float
    experts: float
    experts_backward: float
    experts_backward_weight: float
    kernels_forward: int
    kernels_backward: int
    def __init__(self, *, forward: float = ..., backward: float = ..., backward_weight: float = ...,
                 attention: float = ..., experts: float = ..., experts_backward: float = ...,
                 experts_backward_weight: float = ..., kernels_forward: int = ...,
                 kernels_backward: int = ...) -> None: ...

class LayerProfile(Record):
    """All layers of a model on one GPU type."""

    gpu: str
    tensor_parallel: int
    micro_batch_size: int
    layer_ms: list[float]
    layer_mb: list[float]
    forward_backward_ms: float
    def __init__(self, *, gpu: str = ..., tensor_parallel: int = ..., micro_batch_size: int = ...,
                 layer_ms: list[float] = ..., layer_mb: list[float] = ...,
                 forward_backward_ms: float = ...) -> None: ...

class LeavingDevice(Record):
    """A device that was given notice."""

    device: int
    at: int
    def __init__(self, *, device: int = ..., at: int = ...) -> None: ...

class LengthBucket(Record):
    """Share of sequences up to a length."""

    longest: int
    share: float
    def __init__(self, *, longest: int = ..., share: float = ...) -> None: ...

class LengthDistribution(Record):
    """Shares of sequences up to lengths."""

    buckets: list[LengthBucket]
    def __init__(self, *, buckets: list[LengthBucket] = ...) -> None: ...

class LengthRange(Record):
    """Sequence lengths in tokens, both ends included."""

    shortest: int
    longest: int
    def __init__(self, *, shortest: int = ..., longest: int = ...) -> None: ...

class Link(Record):
    """A one-way link of a topology."""

    name: str
    link_class: str
    bandwidth: float
    latency: float
    uncontended: bool
    def __init__(self, *, name: str = ..., link_class: str = ..., bandwidth: float = ...,
                 latency: float = ..., uncontended: bool = ...) -> None: ...

class LinkClass(Record):
    """A class of links, one direction."""

    name: str
    bandwidth: float
    latency: float
    efficiency: float
    shared: bool
    source: str
    mesh: bool
    def __init__(self, *, name: str = ..., bandwidth: float = ..., latency: float = ...,
                 efficiency: float = ..., shared: bool = ..., source: str = ...,
                 mesh: bool = ...) -> None: ...

class LinkDomain(Record):
    """Devices that a full-bandwidth switch joins."""

    members: list[int]
    link: str
    def __init__(self, *, members: list[int] = ..., link: str = ...) -> None: ...

class LinkSegment(Record):
    """alpha + bytes / bandwidth from a size on."""

    link_class: str
    from_bytes: float
    latency: float
    bandwidth: float
    provenance: Provenance
    def __init__(self, *, link_class: str = ..., from_bytes: float = ..., latency: float = ...,
                 bandwidth: float = ..., provenance: Provenance = ...) -> None: ...

class LinkUse(Record):
    """Bytes that crossed a link in one direction."""

    link: str
    capacity: float
    bytes: float
    def __init__(self, *, link: str = ..., capacity: float = ..., bytes: float = ...) -> None: ...

class LogEvent(Record):
    """A mark in a run log."""

    at: int
    kind: str
    detail: str
    def __init__(self, *, at: int = ..., kind: str = ..., detail: str = ...) -> None: ...

class LowerOptions(Record):
    """How a plan becomes a program."""

    collapsed: bool
    seed: int
    def __init__(self, *, collapsed: bool = ..., seed: int = ...) -> None: ...

class MemoryOverhead(Record):
    """Bytes beyond what the model of memory counts."""

    gpu: str
    context: float
    fragmentation: float
    provenance: Provenance
    def __init__(self, *, gpu: str = ..., context: float = ..., fragmentation: float = ...,
                 provenance: Provenance = ...) -> None: ...

class MemorySample(Record):
    """Memory of a rank's device after a change."""

    rank: int
    at: int
    allocated: float
    def __init__(self, *, rank: int = ..., at: int = ..., allocated: float = ...) -> None: ...

class MemoryUse(Record):
    """Peak memory of the worst device of one GPU type."""

    gpu: str
    device: int
    pipeline: int
    stage: int
    need: float
    have: float
    def __init__(self, *, gpu: str = ..., device: int = ..., pipeline: int = ..., stage: int = ...,
                 need: float = ..., have: float = ...) -> None: ...

class MemoryVerdict(Record):
    """Does a plan fit?"""

    by_gpu_type: list[MemoryUse]
    host: HostMemoryUse | None
    @property
    def fits(self) -> bool: ...
    def __init__(self, *, by_gpu_type: list[MemoryUse] = ...,
                 host: HostMemoryUse | None = ...) -> None: ...

class ModelLayers(Record):
    """One model in a profile of layers."""

    model: str
    parameter_bytes: list[float]
    optimizer_ms: float
    batch_generator_ms: float
    profiles: list[LayerProfile]
    provenance: Provenance
    def __init__(self, *, model: str = ..., parameter_bytes: list[float] = ...,
                 optimizer_ms: float = ..., batch_generator_ms: float = ...,
                 profiles: list[LayerProfile] = ..., provenance: Provenance = ...) -> None: ...

class ModelShape(Record):
    """The dimensions of a transformer."""

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocabulary: int
    positions: int
    normalization: Literal["layer_norm", "rms_norm"]
    activation: Literal["gelu", "relu", "swiglu"]
    causal: bool
    biases: bool
    tied_embeddings: bool
    experts: int
    top_k: int
    capacity_factor: float
    expert_imbalance: float
    shared_ffn: int
    dense_layers: int
    moe_interval: int
    dense_ffn: int
    window: int
    global_interval: int
    mtp_layers: int
    kv_rank: int
    query_rank: int
    rotary_dim: int
    value_dim: int
    def __init__(self, *, name: str = ..., layers: int = ..., hidden: int = ..., heads: int = ...,
                 kv_heads: int = ..., head_dim: int = ..., ffn: int = ..., vocabulary: int = ...,
                 positions: int = ..., normalization: Literal["layer_norm", "rms_norm"] = ...,
                 activation: Literal["gelu", "relu", "swiglu"] = ..., causal: bool = ...,
                 biases: bool = ..., tied_embeddings: bool = ..., experts: int = ...,
                 top_k: int = ..., capacity_factor: float = ..., expert_imbalance: float = ...,
                 shared_ffn: int = ..., dense_layers: int = ..., moe_interval: int = ...,
                 dense_ffn: int = ..., window: int = ..., global_interval: int = ...,
                 mtp_layers: int = ..., kv_rank: int = ..., query_rank: int = ...,
                 rotary_dim: int = ..., value_dim: int = ...) -> None: ...

class Nic(Record):
    """A network card; no members: all GPUs of the node."""

    link: str
    members: list[int]
    def __init__(self, *, link: str = ..., members: list[int] = ...) -> None: ...

class Node(Record):
    """A node and its GPUs (indices into Cluster.gpu_types)."""

    name: str
    gpu_types: list[int]
    domains: list[LinkDomain]
    pcie: list[PcieSwitch]
    nics: list[Nic]
    nvme_read: float
    nvme_write: float
    nvme_capacity: float
    host_memory: float
    host_memory_bandwidth: float
    region: str
    leaf: int
    def __init__(self, *, name: str = ..., gpu_types: list[int] = ...,
                 domains: list[LinkDomain] = ..., pcie: list[PcieSwitch] = ...,
                 nics: list[Nic] = ..., nvme_read: float = ..., nvme_write: float = ...,
                 nvme_capacity: float = ..., host_memory: float = ...,
                 host_memory_bandwidth: float = ..., region: str = ...,
                 leaf: int = ...) -> None: ...

class ObjectStorage(Record):
    """Storage outside of the cluster."""

    bandwidth: float
    scope: Literal["shared", "per_node"]
    latency: float
    def __init__(self, *, bandwidth: float = ..., scope: Literal["shared", "per_node"] = ...,
                 latency: float = ...) -> None: ...

class Op(Record):
    """What a rank does once: see models/ir/program.h."""

    kind: Literal["forward", "backward", "backward_input", "backward_weight", "send", "recv", "collective", "optimizer_step", "load_state", "save_state", "kernel", "host"]
    stream: Literal["compute", "p2p", "collective"]
    location: Literal["none", "peer", "host_memory", "nvme", "cloud"]
    purpose: Literal["tensor_parallel", "sequence_parallel", "expert_parallel", "pipeline", "data_parallel", "zero", "state"]
    rank: int
    micro_batch: int
    segment: int
    samples: int
    inner: int
    buffers: int
    regions: int
    match: int
    transfers: int
    bytes: float
    def __init__(self, *, kind: Literal["forward", "backward", "backward_input", "backward_weight",
                 "send", "recv", "collective", "optimizer_step", "load_state", "save_state",
                 "kernel", "host"] = ..., stream: Literal["compute", "p2p", "collective"] = ...,
                 location: Literal["none", "peer", "host_memory", "nvme", "cloud"] = ...,
                 purpose: Literal["tensor_parallel", "sequence_parallel", "expert_parallel",
                 "pipeline", "data_parallel", "zero", "state"] = ..., rank: int = ...,
                 micro_batch: int = ..., segment: int = ..., samples: int = ..., inner: int = ...,
                 buffers: int = ..., regions: int = ..., match: int = ..., transfers: int = ...,
                 bytes: float = ...) -> None: ...

class OptimizerTime(Record):
    """fixed + parameters x per_parameter."""

    gpu: str
    dtype: Literal["fp32", "tf32", "fp16", "bf16", "fp8", "fp64", "fp4", "mxfp8"]
    fixed: float
    per_parameter: float
    provenance: Provenance
    def __init__(self, *, gpu: str = ..., dtype: Literal["fp32", "tf32", "fp16", "bf16", "fp8",
                 "fp64", "fp4", "mxfp8"] = ..., fixed: float = ..., per_parameter: float = ...,
                 provenance: Provenance = ...) -> None: ...

class OptionInfo(Record):
    """A setting of a planner or policy."""

    name: str
    default_value: str
    doc: str
    def __init__(self, *, name: str = ..., default_value: str = ..., doc: str = ...) -> None: ...

class OverlapLoss(Record):
    """What compute loses beside collectives."""

    gpu: str
    share: float
    provenance: Provenance
    def __init__(self, *, gpu: str = ..., share: float = ...,
                 provenance: Provenance = ...) -> None: ...

class PairOverride(Record):
    """Replaces the path between two nodes."""

    a: int
    b: int
    bandwidth: float | None
    latency: float | None
    def __init__(self, *, a: int = ..., b: int = ..., bandwidth: float | None = ...,
                 latency: float | None = ...) -> None: ...

class Parameter(Record):
    """One parameter tensor of a block."""

    name: str
    elements: int
    split_length: int
    expert: bool
    def __init__(self, *, name: str = ..., elements: int = ..., split_length: int = ...,
                 expert: bool = ...) -> None: ...

class PassOverhead(Record):
    """Time of a pass whatever its number of blocks."""

    gpu: str
    pass_: Literal["forward", "backward", "backward_input", "backward_weight", "optimizer"]
    time: float
    provenance: Provenance
    def __init__(self, *, gpu: str = ..., pass_: Literal["forward", "backward", "backward_input",
                 "backward_weight", "optimizer"] = ..., time: float = ...,
                 provenance: Provenance = ...) -> None: ...

class PcieSwitch(Record):
    """GPUs behind one PCIe switch."""

    members: list[int]
    link: str
    uplink: str
    def __init__(self, *, members: list[int] = ..., link: str = ...,
                 uplink: str = ...) -> None: ...

class PendingSwitch(Record):
    """A switch that training has not reached yet."""

    plan: Plan | None
    asked: int
    at: int
    def __init__(self, *, plan: Plan | None = ..., asked: int = ..., at: int = ...) -> None: ...

class PhaseTime(Record):
    """Duration of a phase of recovery."""

    phase: str
    time: float
    provenance: Provenance
    def __init__(self, *, phase: str = ..., time: float = ...,
                 provenance: Provenance = ...) -> None: ...

class Pipeline(Record):
    """One replica of the model: a chain of stages."""

    micro_batches: int
    micro_batch_size: int
    length_range: LengthRange | None
    stages: list[Stage]
    reroutes: list[Reroute]
    def __init__(self, *, micro_batches: int = ..., micro_batch_size: int = ...,
                 length_range: LengthRange | None = ..., stages: list[Stage] = ...,
                 reroutes: list[Reroute] = ...) -> None: ...

class PipelineInfo(Record):
    """The share of a pipeline in the global batch."""

    first_sample: int
    micro_batches: int
    micro_batch_size: int
    def __init__(self, *, first_sample: int = ..., micro_batches: int = ...,
                 micro_batch_size: int = ...) -> None: ...

class Plan(Record):
    """How a job is laid over devices."""

    schedule: Literal["gpipe", "1f1b", "interleaved_1f1b", "zero_bubble", "zb_v", "dual_pipe"]
    virtual_stages: int
    communication: Communication
    redundancy: Literal["none", "next_stage"]
    optimizer: Literal["together", "staggered"]
    optimizer_offload: float
    pipelines: list[Pipeline]
    predicted: Prediction | None
    planner: str
    cluster_hash: str
    workload_hash: str
    def __init__(self, *, schedule: Literal["gpipe", "1f1b", "interleaved_1f1b", "zero_bubble",
                 "zb_v", "dual_pipe"] = ..., virtual_stages: int = ...,
                 communication: Communication = ..., redundancy: Literal["none",
                 "next_stage"] = ..., optimizer: Literal["together", "staggered"] = ...,
                 optimizer_offload: float = ..., pipelines: list[Pipeline] = ...,
                 predicted: Prediction | None = ..., planner: str = ..., cluster_hash: str = ...,
                 workload_hash: str = ...) -> None: ...

class PlanDefect(Record):
    """One thing that is wrong in a plan, and where."""

    path: str
    what: str
    hint: str
    def __init__(self, *, path: str = ..., what: str = ..., hint: str = ...) -> None: ...

class PlannerResult(Record):
    """A Plan or Infeasible, and what the search did."""

    outcome: Plan | Infeasible
    report: SearchReport
    def __init__(self, *, outcome: Plan | Infeasible = ...,
                 report: SearchReport = ...) -> None: ...

class Prediction(Record):
    """What the planner itself believed."""

    iteration_time: float
    peak_memory: float
    def __init__(self, *, iteration_time: float = ..., peak_memory: float = ...) -> None: ...

class ProductRate(Record):
    """Matrix products in one number format."""

    dtype: Literal["fp32", "tf32", "fp16", "bf16", "fp8", "fp64", "fp4", "mxfp8"]
    best: float
    share: float
    def __init__(self, *, dtype: Literal["fp32", "tf32", "fp16", "bf16", "fp8", "fp64", "fp4",
                 "mxfp8"] = ..., best: float = ..., share: float = ...) -> None: ...

class Profile(Record):
    """Measured or published numbers about GPUs and links."""

    name: str
    block_times: list[BlockTime]
    efficiencies: list[EfficiencyCurve]
    links: list[LinkSegment]
    collectives: list[CollectiveFactor]
    memory: list[MemoryOverhead]
    pass_overheads: list[PassOverhead]
    overlap_losses: list[OverlapLoss]
    exposed_collectives: list[ExposedCollectives]
    optimizers: list[OptimizerTime]
    storage: list[StorageTime]
    phases: list[PhaseTime]
    model_layers: list[ModelLayers]
    kernels: list[KernelModel]
    collective_ways: list[CollectiveWay]
    def __init__(self, *, name: str = ..., block_times: list[BlockTime] = ...,
                 efficiencies: list[EfficiencyCurve] = ..., links: list[LinkSegment] = ...,
                 collectives: list[CollectiveFactor] = ..., memory: list[MemoryOverhead] = ...,
                 pass_overheads: list[PassOverhead] = ..., overlap_losses: list[OverlapLoss] = ...,
                 exposed_collectives: list[ExposedCollectives] = ...,
                 optimizers: list[OptimizerTime] = ..., storage: list[StorageTime] = ...,
                 phases: list[PhaseTime] = ..., model_layers: list[ModelLayers] = ...,
                 kernels: list[KernelModel] = ...,
                 collective_ways: list[CollectiveWay] = ...) -> None: ...

class Program(Record):
    """What every rank does in one iteration, op by op."""

    header: ProgramHeader
    pipelines: list[PipelineInfo]
    ranks: list[Rank]
    segments: list[SegmentInfo]
    groups: list[CommunicationGroup]
    collective_shapes: list[CollectiveShape]
    collectives: list[Collective]
    op_groups: list[Rendezvous]
    members: list[int]
    transfer_sets: list[list[Transfer]]
    inner_sets: list[list[InnerCollective]]
    buffer_sets: list[list[BufferEffect]]
    region_sets: list[list[Region]]
    resident: list[list[BufferEffect]]
    ops: list[Op]
    stream_begin: list[int]
    dependency_begin: list[int]
    dependencies: list[int]
    def __init__(self, *, header: ProgramHeader = ..., pipelines: list[PipelineInfo] = ...,
                 ranks: list[Rank] = ..., segments: list[SegmentInfo] = ...,
                 groups: list[CommunicationGroup] = ...,
                 collective_shapes: list[CollectiveShape] = ...,
                 collectives: list[Collective] = ..., op_groups: list[Rendezvous] = ...,
                 members: list[int] = ..., transfer_sets: list[list[Transfer]] = ...,
                 inner_sets: list[list[InnerCollective]] = ...,
                 buffer_sets: list[list[BufferEffect]] = ..., region_sets: list[list[Region]] = ...,
                 resident: list[list[BufferEffect]] = ..., ops: list[Op] = ...,
                 stream_begin: list[int] = ..., dependency_begin: list[int] = ...,
                 dependencies: list[int] = ...) -> None: ...

class ProgramHeader(Record):
    """Shapes and numerics of a program."""

    schema: int
    model: ModelShape
    blocks: list[Literal["embedding", "transformer", "moe", "head", "convolution"]]
    sequence_length: int
    global_batch: int
    dtype: Literal["fp32", "tf32", "fp16", "bf16", "fp8", "fp64", "fp4", "mxfp8"]
    optimizer: Literal["adam", "sgd"]
    seed: int
    schedule: Literal["gpipe", "1f1b", "interleaved_1f1b", "zero_bubble", "zb_v", "dual_pipe"]
    optimizer_start: Literal["together", "staggered"]
    optimizer_offload: float
    collapsed: bool
    plan_hash: str
    cluster_hash: str
    workload_hash: str
    def __init__(self, *, schema: int = ..., model: ModelShape = ...,
                 blocks: list[Literal["embedding", "transformer", "moe", "head",
                 "convolution"]] = ..., sequence_length: int = ..., global_batch: int = ...,
                 dtype: Literal["fp32", "tf32", "fp16", "bf16", "fp8", "fp64", "fp4",
                 "mxfp8"] = ..., optimizer: Literal["adam", "sgd"] = ..., seed: int = ...,
                 schedule: Literal["gpipe", "1f1b", "interleaved_1f1b", "zero_bubble", "zb_v",
                 "dual_pipe"] = ..., optimizer_start: Literal["together", "staggered"] = ...,
                 optimizer_offload: float = ..., collapsed: bool = ..., plan_hash: str = ...,
                 cluster_hash: str = ..., workload_hash: str = ...) -> None: ...

class Provenance(Record):
    """Where a number comes from."""

    source: str
    date: str
    machine: str
    libraries: str
    samples: int
    held_out_error: float | None
    def __init__(self, *, source: str = ..., date: str = ..., machine: str = ...,
                 libraries: str = ..., samples: int = ...,
                 held_out_error: float | None = ...) -> None: ...

class Rank(Record):
    """A participant of a program."""

    device: int
    devices: list[int]
    pipeline: int
    stage: int
    group: int
    position: int
    tensor_parallel: int
    def __init__(self, *, device: int = ..., devices: list[int] = ..., pipeline: int = ...,
                 stage: int = ..., group: int = ..., position: int = ...,
                 tensor_parallel: int = ...) -> None: ...

class RankBreakdown(Record):
    """Where the time of a rank's iteration goes, in ns."""

    compute: int
    tensor_parallel: int
    zero: int
    pipeline: int
    data_parallel: int
    optimizer: int
    bubble: int
    def __init__(self, *, compute: int = ..., tensor_parallel: int = ..., zero: int = ...,
                 pipeline: int = ..., data_parallel: int = ..., optimizer: int = ...,
                 bubble: int = ...) -> None: ...

class RecoveryDecision(Record):
    """What a policy answers."""

    action: Literal["proceed", "wait", "resume"]
    plan: Plan | None
    resume_iteration: int
    run_on: int
    phases: list[RecoveryPhase]
    transfers: list[StateTransfer]
    reason: str
    def __init__(self, *, action: Literal["proceed", "wait", "resume"] = ...,
                 plan: Plan | None = ..., resume_iteration: int = ..., run_on: int = ...,
                 phases: list[RecoveryPhase] = ..., transfers: list[StateTransfer] = ...,
                 reason: str = ...) -> None: ...

class RecoveryPhase(Record):
    """A part of a stall."""

    kind: Literal["detect", "decide", "move_state", "reinitialize", "warm_up"]
    duration: int
    source: str
    def __init__(self, *, kind: Literal["detect", "decide", "move_state", "reinitialize",
                 "warm_up"] = ..., duration: int = ..., source: str = ...) -> None: ...

class Region(Record):
    """A part of a tensor."""

    tensor: Literal["activation", "activation_gradient", "parameter", "gradient", "master_parameter", "first_moment", "second_moment"]
    first_block: int
    last_block: int
    parameter: int
    begin: int
    end: int
    def __init__(self, *, tensor: Literal["activation", "activation_gradient", "parameter",
                 "gradient", "master_parameter", "first_moment", "second_moment"] = ...,
                 first_block: int = ..., last_block: int = ..., parameter: int = ...,
                 begin: int = ..., end: int = ...) -> None: ...

class Rendezvous(Record):
    """Ops that meet: a range of Program.members."""

    first_member: int
    member_count: int
    def __init__(self, *, first_member: int = ..., member_count: int = ...) -> None: ...

class ReplayOptions(Record):
    """How a trace is replayed."""

    horizon: int
    measured_planning: bool
    spot_prices: bool
    record_spans: bool
    background_transfers: bool
    def __init__(self, *, horizon: int = ..., measured_planning: bool = ...,
                 spot_prices: bool = ..., record_spans: bool = ...,
                 background_transfers: bool = ...) -> None: ...

class ReplayPoint(Record):
    """A point of the curves over time."""

    at: int
    iterations: int
    live: int
    in_plan: int
    samples_per_second: float
    def __init__(self, *, at: int = ..., iterations: int = ..., live: int = ..., in_plan: int = ...,
                 samples_per_second: float = ...) -> None: ...

class ReplayResult(Record):
    """A replay: where the wall time went, and what came of it."""

    horizon: int
    wall: list[int]
    background: int
    device_hours: DeviceHours
    iterations: int
    samples: int
    tokens: int
    reference: float
    ettr: float
    goodput: float
    dollars: float
    priced: bool
    events: int
    interruptions: int
    decisions: int
    log: list[InterruptionRecord]
    points: list[ReplayPoint]
    spans: list[ReplaySpan]
    first_plan_problem: str
    def __init__(self, *, horizon: int = ..., wall: list[int] = ..., background: int = ...,
                 device_hours: DeviceHours = ..., iterations: int = ..., samples: int = ...,
                 tokens: int = ..., reference: float = ..., ettr: float = ..., goodput: float = ...,
                 dollars: float = ..., priced: bool = ..., events: int = ...,
                 interruptions: int = ..., decisions: int = ...,
                 log: list[InterruptionRecord] = ..., points: list[ReplayPoint] = ...,
                 spans: list[ReplaySpan] = ..., first_plan_problem: str = ...) -> None: ...

class ReplaySpan(Record):
    """A stretch of wall time in one bucket."""

    bucket: Literal["productive", "degraded", "rolled_back", "checkpoint", "detect", "decide", "move_state", "reinitialize", "idle"]
    start: int
    end: int
    first_iteration: int
    iterations: int
    what: str
    def __init__(self, *, bucket: Literal["productive", "degraded", "rolled_back", "checkpoint",
                 "detect", "decide", "move_state", "reinitialize", "idle"] = ..., start: int = ...,
                 end: int = ..., first_iteration: int = ..., iterations: int = ...,
                 what: str = ...) -> None: ...

class Reroute(Record):
    """A micro-batch that one stage of another pipeline computes."""

    stage: int
    micro_batch: int
    to_pipeline: int
    def __init__(self, *, stage: int = ..., micro_batch: int = ...,
                 to_pipeline: int = ...) -> None: ...

class ReshardBytes(Record):
    """Bytes per parameter of the states that move."""

    weight: float
    master: float
    moments: float
    def __init__(self, *, weight: float = ..., master: float = ...,
                 moments: float = ...) -> None: ...

class Restore(Record):
    """Where the state of a plan comes from; `from_` sums bytes by source, `missing` are nowhere and `witness` names the first of them."""

    transfers: list[StateTransfer]
    from_: list[float]
    missing: float
    witness: str
    def __init__(self, *, transfers: list[StateTransfer] = ..., from_: list[float] = ...,
                 missing: float = ..., witness: str = ...) -> None: ...

class RunLog(Record):
    """What happened when, op by op."""

    schema: int
    program_hash: str
    source: str
    generation: int
    spans: list[Span]
    iterations: list[IterationMark]
    memory: list[MemorySample]
    links: list[LinkUse]
    events: list[LogEvent]
    clocks: list[ClockOffset]
    def __init__(self, *, schema: int = ..., program_hash: str = ..., source: str = ...,
                 generation: int = ..., spans: list[Span] = ...,
                 iterations: list[IterationMark] = ..., memory: list[MemorySample] = ...,
                 links: list[LinkUse] = ..., events: list[LogEvent] = ...,
                 clocks: list[ClockOffset] = ...) -> None: ...

class RunnerUp(Record):
    """A plan that lost."""

    what: str
    estimate: float
    evaluated: float | None
    def __init__(self, *, what: str = ..., estimate: float = ...,
                 evaluated: float | None = ...) -> None: ...

class Runtime(Record):
    """What it takes to notice a loss, to start processes, to connect ranks and to search a plan (by planner)."""

    monitor: Literal["timeout", "agent", "heartbeat", "inspection", "supervision"]
    detect_loss: float | None
    detect_process: float | None
    start_node: float
    start_process: float
    connect_rank: float
    search: dict[str, float]
    def __init__(self, *, monitor: Literal["timeout", "agent", "heartbeat", "inspection",
                 "supervision"] = ..., detect_loss: float | None = ...,
                 detect_process: float | None = ..., start_node: float = ...,
                 start_process: float = ..., connect_rank: float = ..., search: dict[str,
                 float] = ...) -> None: ...

class SailorBandwidth(Record):
    """Sending between GPUs as a parabola in the size of the message."""

    inter_node: bool
    sender_gpu: str
    sender_pairs: int
    receiver_gpu: str
    receiver_pairs: int
    c2: float
    c1: float
    c0: float
    most_measured: float
    positive_from: float
    def __init__(self, *, inter_node: bool = ..., sender_gpu: str = ..., sender_pairs: int = ...,
                 receiver_gpu: str = ..., receiver_pairs: int = ..., c2: float = ...,
                 c1: float = ..., c0: float = ..., most_measured: float = ...,
                 positive_from: float = ...) -> None: ...

class SailorLayerMemory(Record):
    """A run of layers with equal memory: one GPU, micro-batch size 1."""

    model: str
    tensor_parallel: int
    first_layer: int
    last_layer: int
    parameters: float
    parameter_bytes: float
    input: float
    output: float
    saved_activations: float
    def __init__(self, *, model: str = ..., tensor_parallel: int = ..., first_layer: int = ...,
                 last_layer: int = ..., parameters: float = ..., parameter_bytes: float = ...,
                 input: float = ..., output: float = ...,
                 saved_activations: float = ...) -> None: ...

class SailorLayerTime(Record):
    """A run of layers with equal times, in seconds."""

    model: str
    gpu: str
    tensor_parallel: int
    micro_batch_size: int
    first_layer: int
    last_layer: int
    forward: float
    backward: float
    def __init__(self, *, model: str = ..., gpu: str = ..., tensor_parallel: int = ...,
                 micro_batch_size: int = ..., first_layer: int = ..., last_layer: int = ...,
                 forward: float = ..., backward: float = ...) -> None: ...

class SailorOptimizerTime(Record):
    """AdamW on the whole profiled model."""

    model: str
    gpu: str
    tensor_parallel: int
    micro_batch_size: int
    step: float
    parameters: float
    def __init__(self, *, model: str = ..., gpu: str = ..., tensor_parallel: int = ...,
                 micro_batch_size: int = ..., step: float = ...,
                 parameters: float = ...) -> None: ...

class SailorTables(Record):
    """The tables of Sailor's public profiles."""

    layer_times: list[SailorLayerTime]
    optimizer_times: list[SailorOptimizerTime]
    layer_memory: list[SailorLayerMemory]
    bandwidths: list[SailorBandwidth]
    def __init__(self, *, layer_times: list[SailorLayerTime] = ...,
                 optimizer_times: list[SailorOptimizerTime] = ...,
                 layer_memory: list[SailorLayerMemory] = ...,
                 bandwidths: list[SailorBandwidth] = ...) -> None: ...

class SearchReport(Record):
    """What a search did."""

    plans_examined: int
    rejected_by_memory: int
    work: int
    work_unit: str
    complete: bool
    estimate: float | None
    judged: int
    own_choice: float | None
    notes: list[str]
    chosen: str
    runners_up: list[RunnerUp]
    constraints: list[ConstraintCost]
    def __init__(self, *, plans_examined: int = ..., rejected_by_memory: int = ..., work: int = ...,
                 work_unit: str = ..., complete: bool = ..., estimate: float | None = ...,
                 judged: int = ..., own_choice: float | None = ..., notes: list[str] = ...,
                 chosen: str = ..., runners_up: list[RunnerUp] = ...,
                 constraints: list[ConstraintCost] = ...) -> None: ...

class Segment(Record):
    """A run of blocks, both ends included, with one strategy."""

    first_block: int
    last_block: int
    virtual_stage: int
    groups: list[Group]
    recompute: Literal["none", "selective", "full", "experts"]
    zero: Zero
    expert_parallel: int
    def __init__(self, *, first_block: int = ..., last_block: int = ..., virtual_stage: int = ...,
                 groups: list[Group] = ..., recompute: Literal["none", "selective", "full",
                 "experts"] = ..., zero: Zero = ..., expert_parallel: int = ...) -> None: ...

class SegmentInfo(Record):
    """The blocks that one compute op covers, and how."""

    pipeline: int
    stage: int
    virtual_stage: int
    group: int
    first_sample: int
    samples: int
    first_block: int
    last_block: int
    tensor_parallel: int
    sequence_degree: int
    sequence: Literal["none", "megatron", "ulysses", "ring"]
    expert_parallel: int
    recompute: Literal["none", "selective", "full", "experts"]
    zero: Zero
    state_weight: int
    experts: int
    expert_samples: int
    redundant: bool
    def __init__(self, *, pipeline: int = ..., stage: int = ..., virtual_stage: int = ...,
                 group: int = ..., first_sample: int = ..., samples: int = ...,
                 first_block: int = ..., last_block: int = ..., tensor_parallel: int = ...,
                 sequence_degree: int = ..., sequence: Literal["none", "megatron", "ulysses",
                 "ring"] = ..., expert_parallel: int = ..., recompute: Literal["none", "selective",
                 "full", "experts"] = ..., zero: Zero = ..., state_weight: int = ...,
                 experts: int = ..., expert_samples: int = ..., redundant: bool = ...) -> None: ...

class SegmentMemory(Record):
    """Memory per device of a segment's group, in bytes."""

    parameters: float
    gradients: float
    optimizer_states: float
    activations_per_micro_batch: float
    recomputed: float
    recomputed_kept: float
    logits: float
    communication: float
    def __init__(self, *, parameters: float = ..., gradients: float = ...,
                 optimizer_states: float = ..., activations_per_micro_batch: float = ...,
                 recomputed: float = ..., recomputed_kept: float = ..., logits: float = ...,
                 communication: float = ...) -> None: ...

class SimulatedWork(Record):
    """Counted work of a simulation."""

    timers: int
    flows: int
    barriers: int
    def __init__(self, *, timers: int = ..., flows: int = ..., barriers: int = ...) -> None: ...

class SlowDevice(Record):
    """A device at `factor` of its speed."""

    device: int
    factor: float
    def __init__(self, *, device: int = ..., factor: float = ...) -> None: ...

class SlowLink(Record):
    """A link with 1 / slowdown of its bandwidth."""

    link: str
    slowdown: float
    def __init__(self, *, link: str = ..., slowdown: float = ...) -> None: ...

class Span(Record):
    """One op of one iteration."""

    rank: int
    op: int
    start: int
    end: int
    inner: int
    bytes: float
    def __init__(self, *, rank: int = ..., op: int = ..., start: int = ..., end: int = ...,
                 inner: int = ..., bytes: float = ...) -> None: ...

class Stage(Record):
    """Segments on the same devices."""

    segments: list[Segment]
    def __init__(self, *, segments: list[Segment] = ...) -> None: ...

class StateBytes(Record):
    """Bytes per parameter of the model states."""

    weight: float
    gradient: float
    master: float
    moments: float
    def __init__(self, *, weight: float = ..., gradient: float = ..., master: float = ...,
                 moments: float = ...) -> None: ...

class StateReplica(Record):
    """One replica of the model state."""

    iteration: int
    location: Literal["none", "peer", "host_memory", "nvme", "cloud"]
    layout: Plan | None
    stored_on: list[int]
    lost_shards: list[int]
    def __init__(self, *, iteration: int = ..., location: Literal["none", "peer", "host_memory",
                 "nvme", "cloud"] = ..., layout: Plan | None = ..., stored_on: list[int] = ...,
                 lost_shards: list[int] = ...) -> None: ...

class StateTransfer(Record):
    """A move of model state."""

    from_: Literal["none", "peer", "host_memory", "nvme", "cloud"]
    to: Literal["none", "peer", "host_memory", "nvme", "cloud"]
    source: int
    destination: int
    bytes: float
    def __init__(self, *, from_: Literal["none", "peer", "host_memory", "nvme", "cloud"] = ...,
                 to: Literal["none", "peer", "host_memory", "nvme", "cloud"] = ...,
                 source: int = ..., destination: int = ..., bytes: float = ...) -> None: ...

class StorageTime(Record):
    """Writing or reading a checkpoint."""

    location: str
    write: bool
    latency: float
    bandwidth: float
    provenance: Provenance
    def __init__(self, *, location: str = ..., write: bool = ..., latency: float = ...,
                 bandwidth: float = ..., provenance: Provenance = ...) -> None: ...

class Straggler(Record):
    """A device whose passes take `slowdown` times as long."""

    device: int
    slowdown: float
    def __init__(self, *, device: int = ..., slowdown: float = ...) -> None: ...

class Trace(Record):
    """What happens to a cluster over time."""

    source: str
    seed: int
    horizon: int
    header: list[tuple[str, str]]
    nodes: list[TraceNode]
    events: list[ClusterEvent]
    def __init__(self, *, source: str = ..., seed: int = ..., horizon: int = ...,
                 header: list[tuple[str, str]] = ..., nodes: list[TraceNode] = ...,
                 events: list[ClusterEvent] = ...) -> None: ...

class TraceNode(Record):
    """A node of a trace."""

    name: str
    gpu_type: str
    gpus: int
    def __init__(self, *, name: str = ..., gpu_type: str = ..., gpus: int = ...) -> None: ...

class Transfer(Record):
    """One device-to-device path of a send."""

    source: int
    destination: int
    bytes: float
    def __init__(self, *, source: int = ..., destination: int = ...,
                 bytes: float = ...) -> None: ...

class Workload(Record):
    """A model as a list of blocks: embedding first, head last."""

    name: str
    shape: ModelShape
    sequence_length: int
    dtype: Literal["fp32", "tf32", "fp16", "bf16", "fp8", "fp64", "fp4", "mxfp8"]
    blocks: list[Block]
    hash: str
    def __init__(self, *, name: str = ..., shape: ModelShape = ..., sequence_length: int = ...,
                 dtype: Literal["fp32", "tf32", "fp16", "bf16", "fp8", "fp64", "fp4",
                 "mxfp8"] = ..., blocks: list[Block] = ..., hash: str = ...) -> None: ...

class Zero(Record):
    """Sharding of model states over data-parallel replicas."""

    stage: int
    shard_group: int
    def __init__(self, *, stage: int = ..., shard_group: int = ...) -> None: ...

def __getattr__(name: str) -> Any: ...  # functions: the package wraps them
