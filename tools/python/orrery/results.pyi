"""Generated: tools/orrery python -m orrery.stubs tools/python/orrery"""

from typing import Any, Literal

from ._orrery import Plan


class Result:
    status: int
    notes: list[str]
    def to_dict(self) -> dict[str, Any]: ...
    def to_frame(self) -> Any: ...

class AnnotateResult(Result):
    cluster: str
    model: str
    plan: str
    samples: int
    sequence_length: int
    tensors: list[Tensor]
    communications: list[Communication]
    pipelines: list[Pipeline]
    no_pipelines: str

class Availability(Result):
    gpu_type: str
    nodes: int
    devices: int
    mean_nodes: float
    mean_devices: float
    quantiles: list[Quantile]
    node_hours: float
    gpu_hours: float
    departures: int
    arrivals: int
    bursts: int
    join_bursts: int
    mean_burst: float
    max_burst: float
    mean_join_burst: float
    lifetime_hours: float
    away_hours: float
    leaves_per_node_hour: float

class BytesByPath(Result):
    nvlink: float
    pcie: float
    network: float
    host_staged: float

class CauseCount(Result):
    kind: str
    cause: str
    events: int

class CheckedFile(Result):
    path: str
    content: str
    problems: list[Problem]

class Communication(Result):
    layers: str
    operator: str
    frequency: str
    from_: str
    to: str
    steps: list[StepOfACommunication]

class Constraint(Result):
    constraint: str
    rejected: int
    best_without_seconds: float | None
    witness: str

class DiffResult(Result):
    cluster: str
    model: str
    differences: list[Difference]
    plans: list[Report]

class Difference(Result):
    where: str
    what: str
    first: str
    second: str

class Evaluation(Result):
    iteration_seconds: float
    pipeline_seconds: list[float]
    synchronization_seconds: float | None
    compute_seconds: float
    tensor_parallel_seconds: float
    pipeline_communication_seconds: float
    data_parallel_seconds: float
    optimizer_seconds: float
    bubble_seconds: float
    tokens_per_second: float
    mfu: float
    hfu: float
    dollars_per_million_tokens: float | None
    fits: bool
    verdict: str
    memory: list[Memory]

class ImportResult(Result):
    text: str
    file: str | None

class Infeasible(Result):
    constraint: str
    witness: str

class ListResult(Result):
    value: list[Planner]

class LostSlice(Result):
    first_block: int
    last_block: int
    parameter: str
    states: str
    begin: int
    end: int
    length: int
    bytes: float
    held_by: str
    needed_by: str

class Memory(Result):
    gpu: str
    device: int
    pipeline: int
    stage: int
    need_bytes: float
    have_bytes: float
    fits: bool

class Option(Result):
    name: str
    default: str
    doc: str

class Pipeline(Result):
    stages: list[str]

class PlanResult(Result):
    cluster: str
    model: str
    best: str | None
    planners: list[Report]

class Planner(Result):
    name: str
    source: str
    searches: str
    ignores: str
    options: list[Option]

class Problem(Result):
    file: str
    line: int
    column: int
    what: str
    hint: str

class Quantile(Result):
    probability: float
    nodes: float
    devices: float

class Report(Result):
    name: str
    infeasible: Infeasible | None
    evaluation: Evaluation | None
    search: Search | None
    stages: list[Stage]
    busiest_links: list[str]
    prices: list[str]
    ranks: int
    ops: int
    plan: Plan | None

class RunnerUp(Result):
    what: str
    estimate_seconds: float
    evaluated_seconds: float | None

class SchemaResult(Result):
    text: str
    file: str | None

class Search(Result):
    estimate_seconds: float | None
    plans_examined: int
    rejected_by_memory: int
    work: int
    work_unit: str
    complete: bool
    notes: list[str]
    chosen: str
    runners_up: list[RunnerUp]
    constraints: list[Constraint]

class SimulateResult(Result):
    cluster: str
    model: str
    plans: list[Report]

class Stage(Result):
    pipeline: int
    stage: int
    compute_seconds: float
    tensor_parallel_seconds: float
    transfer_seconds: float
    bubble_seconds: float

class StepOfACommunication(Result):
    phase: int
    kind: str
    tier: str
    groups: list[str]
    elements: int

class SwitchResult(Result):
    cluster: str
    model: str
    from_: str
    to: str
    lost_devices: list[int]
    state: Literal["weights", "all"]
    bytes_per_parameter: float
    variant: Literal["fused", "unfused", "no-heuristics"]
    simulated_seconds: float
    moved_bytes: BytesByPath
    messages: int
    kept_bytes: float
    lost_bytes: float
    devices: list[TrafficOfADevice]
    lost: list[LostSlice]

class Tensor(Result):
    layers: str
    tensor: str
    leaf: bool
    shape: list[int]
    annotation: str

class TraceGenerateResult(Result):
    text: str
    file: str | None

class TraceImportResult(Result):
    text: str
    file: str | None

class TraceStatsResult(Result):
    source: str
    horizon_hours: float
    events: int
    counts: list[CauseCount]
    failures: int
    unexpected: int
    announced: int
    mtbf_hours: float
    mttf_1024_gpus_hours: float
    per_1000_node_days: float
    all: Availability
    types: list[Availability]

class TrafficOfADevice(Result):
    device: int
    node: str
    sent_bytes: BytesByPath
    received_bytes: BytesByPath
    messages_sent: int
    messages_received: int
    kept_bytes: float
    lost_bytes: float

class ValidateResult(Result):
    files: list[CheckedFile]

def word(name: str) -> str: ...
def annotation(kind: dict[str, Any], given: bool) -> str: ...
def class_of(kind: dict[str, Any], command: str = "") -> type[Result]: ...
classes: dict[str, type[Result]]
