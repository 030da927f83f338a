"""Generated: tools/orrery python -m orrery.stubs tools/python/orrery"""

from typing import Any, Literal

from ._orrery import Plan


class Result:
    status: Any
    notes: list[str]
    def to_dict(self) -> dict[str, Any]: ...
    def to_frame(self) -> Any: ...

class AdviseResult(Result):
    cluster: str
    model: str
    trace: str
    objective: Literal["tokens", "tokens_per_dollar"]
    horizon: float
    best: Candidate | None
    runner_up: Candidate | None
    plan_then_policy: Candidate | None
    lead: Interval | None
    gain: Interval | None
    settled: bool
    alternatives: list[Alternative]
    candidates: list[Candidate]
    unable: list[str]
    without_plan: list[str]
    replays: int
    judging_replays: int
    fleet: Fleet | None
    fleets: list[Fleet]

class Alternative(Result):
    what: str
    value: str
    behind: Interval
    replays: int

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

class CalibrateResult(Result):
    machine: str
    libraries: str
    date: str
    model: str
    backend: str
    sampling: str
    samples: int
    disturbed: int
    entries: list[FitEntry]
    warnings: list[str]

class Candidate(Result):
    plan: str
    policy: str
    new_plans_by: str
    options: str
    interval: float
    spare_nodes: int
    iteration_seconds: float | None
    replays: int
    tokens_per_second: Interval
    tokens_per_dollar: Interval
    behind: Interval
    undisturbed_tokens_per_second: float
    dollars_per_day: float
    interruptions: float
    wall: dict[str, float]
    checkpoints: list[str]

class CauseCount(Result):
    kind: str
    cause: str
    events: int

class CheckedFile(Result):
    path: str
    content: str
    problems: list[Problem]

class CheckpointComparison(Result):
    checkpoints: int
    parts: int
    bytes: float
    predicted_seconds: float | None
    measured_seconds: float
    longest_seconds: float
    between_steps_seconds: float
    problem: str

class Communication(Result):
    layers: str
    operator: str
    frequency: str
    from_: str
    to: str
    steps: list[StepOfACommunication]

class CompareResult(Result):
    run: str
    notes: list[str]
    generations: list[GenerationComparison]

class ComparedPhase(Result):
    phase: str
    predicted_seconds: float | None
    measured_seconds: float

class ComponentRow(Result):
    name: str
    predicted: float
    measured: float
    error: float

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
    zero_seconds: float
    pipeline_communication_seconds: float
    data_parallel_seconds: float
    optimizer_seconds: float
    bubble_seconds: float
    tokens_per_second: float
    mfu: float
    hfu: float
    dollars_per_million_tokens: float | None
    joules_per_token: float | None
    fits: bool
    verdict: str
    memory: list[Memory]
    host_memory: HostMemory | None

class ExecuteResult(Result):
    result: Literal["completed", "failed", "interrupted", "refused"]
    problem: str
    steps: list[StepLine]
    generations: list[GenerationSummary]

class ExportResult(Result):
    text: str
    file: str | None

class FitEntry(Result):
    name: str
    kind: str
    samples: int
    disturbed: int
    fit_mean_error: float | None
    fit_max_error: float | None
    held_out_mean_error: float | None
    held_out_max_error: float | None
    held_out: str
    parameters: list[FitParameter]

class FitParameter(Result):
    name: str
    value: float
    unit: str

class Fleet(Result):
    nodes: str
    gpus: int
    dollars_per_hour: float
    most_tokens_per_second: float
    tokens_per_second: Interval | None
    tried: bool

class GPUOfAPage(Result):
    id: int
    type: str
    pipeline: int | None
    stage: int | None
    compute: float | None
    collectives: float | None

class GenerationComparison(Result):
    generation: int
    problem: str
    steps: int
    shortest_step_seconds: float
    longest_step_seconds: float
    transfer_error: float
    op_bias: float
    compute_ops: int
    disturbed_ops: int
    notes: list[str]
    times: list[ComponentRow]
    checkpoint: CheckpointComparison
    memory: list[MemoryRow]
    worst_ops: list[OpRow]
    phases: list[ComparedPhase]
    recovery: ComparedPhase | None
    phases_problem: str
    prices: list[str]

class GenerationSummary(Result):
    generation: int
    what: str
    ranks: list[RankSummary]
    events: list[LogEvent]

class HostMemory(Result):
    node: str
    need: float
    have: float

class ImportResult(Result):
    text: str
    file: str | None

class Infeasible(Result):
    constraint: str
    witness: str

class InitResult(Result):
    text: str
    file: str | None

class Interval(Result):
    mean: float
    half_width_95: float
    low: float
    high: float

class LabNode(Result):
    node: str
    namespace: str
    address: str
    bytes_per_second: float
    latency_seconds: float
    devices: int
    slowdown: float
    present: bool
    sent_bytes: int
    received_bytes: int
    dropped_frames: int
    refused_frames: int
    lost_frames: int
    processes: int

class LinkOfAPage(Result):
    name: str
    node: str | None
    share: float
    bytes: float
    capacity: float

class ListResult(Result):
    value: list[Planner]

class LogEvent(Result):
    seconds: float
    kind: str
    detail: str

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

class MemoryOverTime(Result):
    rank: str
    gpu: str
    have: float
    at: list[int]
    allocated: list[float]

class MemoryRow(Result):
    rank: int
    device: int
    predicted_bytes: float
    measured_bytes: float
    error: float

class MixedLengthResult(Result):
    experiment: str
    results: str
    runs_csv: str
    figures: list[str]
    problems: list[str]
    total: int
    present: int
    done: int
    failed: int
    missing: int
    interrupted: bool
    estimate_seconds: float | None
    runs: list[Run]

class NetlabResult(Result):
    name: str
    state: str
    switch_pid: int
    real_time: bool
    late_frames: int
    worst_late_seconds: float
    loss: float
    late: float
    lateness_seconds: float
    cuts: list[str]
    nodes: list[LabNode]
    differences: list[str]

class NextStep(Result):
    kind: str
    what: str
    estimate_seconds: float

class NodeOfAPage(Result):
    name: str
    region: str
    leaf: int
    gpus: list[GPUOfAPage]

class OpRow(Result):
    rank: int
    what: str
    ops: int
    predicted_seconds: float
    measured_seconds: float
    share: float

class Option(Result):
    name: str
    default: str
    doc: str

class Page(Result):
    title: str
    made_by: str
    command: str
    sentences: list[str]
    sources: list[SourceOfAPage]
    plans: list[PageOfAPlan]
    study: PageOfAStudy | None
    ranking: list[Standing]
    unable: list[Unable]
    replays: list[PageOfAReplay]
    horizon_days: float

class PageOfAPlan(Result):
    name: str
    sentences: list[str]
    evaluation: Evaluation | None
    loads: list[Stage]
    nodes: list[NodeOfAPage]
    links: list[LinkOfAPage]
    timeline: TimelineOfAPage | None
    memory: list[MemoryOverTime]
    prices: list[str]
    sources: list[SourceOfAPage]
    effective: str

class PageOfAReplay(Result):
    run: str
    case: str
    policy: str
    axes: str
    seed: str
    buckets: dict[str, list[float]]
    at: list[float]
    tokens: list[float]
    live: list[float]
    in_plan: list[float]
    lost_at: list[float]
    causes: list[str]
    stalls: list[float]

class PageOfAStudy(Result):
    columns: list[str]
    rows: list[list[str]]
    axes: list[str]
    measures: list[str]

class Pipeline(Result):
    stages: list[str]

class PlanOfTheFrontier(Result):
    what: str
    devices: int
    evaluated_seconds: float
    dollars_per_million_tokens: float | None
    joules_per_token: float | None

class PlanResult(Result):
    cluster: str
    model: str
    best: str | None
    planners: list[Report]
    robust: RobustPlan | None

class Planner(Result):
    name: str
    source: str
    searches: str
    ignores: str
    module: str | None
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

class RankSummary(Result):
    rank: int
    device: int
    peak_bytes: int
    sent_bytes: int
    received_bytes: int
    clock_offset_seconds: float
    clock_uncertainty_seconds: float

class ReplayResult(Result):
    experiment: str
    results: str
    runs_csv: str
    figures: list[str]
    problems: list[str]
    total: int
    present: int
    done: int
    failed: int
    missing: int
    interrupted: bool
    estimate_seconds: float | None
    runs: list[Run]

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
    simulated_pipelines: int
    plan: Plan | None

class ReportResult(Result):
    file: str
    bytes: int
    page: Page

class RobustPlan(Result):
    cluster: str
    model: str
    trace: str
    objective: Literal["tokens", "tokens_per_dollar"]
    horizon: float
    best: Candidate | None
    runner_up: Candidate | None
    plan_then_policy: Candidate | None
    lead: Interval | None
    gain: Interval | None
    settled: bool
    alternatives: list[Alternative]
    candidates: list[Candidate]
    unable: list[str]
    without_plan: list[str]
    replays: int
    judging_replays: int
    fleet: Fleet | None
    fleets: list[Fleet]

class RowOfATimeline(Result):
    rank: str
    lane: str
    spans: str

class Run(Result):
    run: str
    axes: dict[str, str]
    seed: int
    status: str
    reason: str
    iteration_seconds: float | None
    tokens_per_second: float | None
    mfu: float | None
    fits: bool | None
    verdict: str

class RunResult(Result):
    experiment: str
    results: str
    runs_csv: str
    figures: list[str]
    problems: list[str]
    total: int
    present: int
    done: int
    failed: int
    missing: int
    interrupted: bool
    estimate_seconds: float | None
    runs: list[Run]

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
    judged: int
    own_choice_seconds: float | None
    notes: list[str]
    chosen: str
    runners_up: list[RunnerUp]
    constraints: list[Constraint]
    next_steps: list[NextStep]
    frontier: list[PlanOfTheFrontier]

class SimulateResult(Result):
    cluster: str
    model: str
    plans: list[Report]
    steps: list[TimesOfSteps]

class SourceOfAPage(Result):
    what: str
    name: str
    hash: str

class Stage(Result):
    pipeline: int
    stage: int
    compute_seconds: float
    tensor_parallel_seconds: float
    zero_seconds: float
    transfer_seconds: float
    bubble_seconds: float

class Standing(Result):
    case: str
    policy: str
    axes: str
    seeds: int
    own_plan: str
    untrained: str
    tokens_per_second: Interval
    undisturbed_tokens_per_second: float
    goodput: Interval
    ettr: Interval
    behind_first: Interval
    behind_previous: Interval
    tokens: float
    dollars_per_million_tokens: float
    interruptions: float
    lost_iterations: float
    wall_share: dict[str, float]
    gpu_hours: dict[str, float]
    losses: dict[str, Interval]
    owed: dict[str, Interval]

class StepLine(Result):
    generation: int
    step: int
    loss: float
    start_seconds: float
    step_seconds: float
    tokens_per_second: float

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
    made: Report | None
    lost_devices: list[int]
    state: Literal["weights", "all"]
    bytes_per_parameter: float
    variant: Literal["fused", "fused-by-tensor", "unfused", "no-heuristics"]
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

class TimelineOfAPage(Result):
    names: list[str]
    kinds: list[str]
    rows: list[RowOfATimeline]
    spans: int
    left_out: str | None

class TimesOfSteps(Result):
    steps: int
    p5: float
    median: float
    p95: float

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

class TwinErrorLine(Result):
    set: str
    metric: str
    rows: int
    mean: float
    median: float
    max: float
    bias: float
    worst: str
    disturbed_share: float

class TwinResult(Result):
    name: str
    network: str
    errors: list[TwinErrorLine]
    runs: list[TwinResult2]

class TwinResult2(Result):
    run: str
    set: str
    problem: str
    predicted_seconds: float
    measured_seconds: float
    disturbed_share: float
    same_program_as: str
    seen: str

class Unable(Result):
    case: str
    policy: str
    axes: str
    status: str
    reason: str

class ValidateResult(Result):
    files: list[CheckedFile]

def word(name: str) -> str: ...
def annotation(kind: dict[str, Any], given: bool) -> str: ...
def class_of(kind: dict[str, Any], command: str = "") -> type[Result]: ...
classes: dict[str, type[Result]]
