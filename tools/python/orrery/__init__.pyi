"""Generated: tools/orrery python -m orrery.stubs tools/python/orrery"""

from os import PathLike
from typing import Any, Callable, Dict, List, Literal, Mapping, Sequence

from .errors import (ConfigError as ConfigError, Problem as Problem)
from .parts import (BUCKETS as BUCKETS, all_state_bytes as all_state_bytes,
    bind_trace as bind_trace, combine_traces as combine_traces, confidence as confidence,
    count_layers as count_layers, expected_ettr as expected_ettr, find_defect as find_defect,
    global_batch as global_batch, import_trace as import_trace, library as library,
    model_flops as model_flops, parameters as parameters, peak_memory as peak_memory,
    plan_devices as plan_devices, plan_hash as plan_hash, plan_words as plan_words,
    program_hash as program_hash, replica_survival as replica_survival,
    segment_of_layers as segment_of_layers, sort_events as sort_events,
    stage_devices as stage_devices, unexpected_interruptions as unexpected_interruptions,
    weight_bytes as weight_bytes, working_devices as working_devices,
    young_interval as young_interval)
from .plugins import (Planner as Planner, PlannerInput as PlannerInput, PolicyInput as PolicyInput,
    RecoveryPolicy as RecoveryPolicy)
from .record import (Record as Record, to_frame as to_frame)
from .topology import (Topology as Topology)
from .training import (Training as Training)
from .values import (dumps as dumps, generate_trace as generate_trace, load_cluster as load_cluster,
    load_job as load_job, load_model as load_model, load_plan as load_plan,
    load_profile as load_profile, load_program as load_program, load_run_log as load_run_log,
    load_shape as load_shape, load_trace as load_trace, save as save)
from ._orrery import (Allowed as Allowed, Block as Block, BlockQuery as BlockQuery,
    BlockTime as BlockTime, Breakdown as Breakdown, BufferEffect as BufferEffect,
    CheckpointLevel as CheckpointLevel, ClockOffset as ClockOffset, Cluster as Cluster,
    ClusterEvent as ClusterEvent, Collective as Collective, CollectiveFactor as CollectiveFactor,
    CollectivePart as CollectivePart, CollectiveShape as CollectiveShape,
    CollectiveWay as CollectiveWay, Communication as Communication,
    CommunicationGroup as CommunicationGroup, ConstraintCost as ConstraintCost, Device as Device,
    DeviceHours as DeviceHours, EfficiencyCurve as EfficiencyCurve,
    EfficiencyPoint as EfficiencyPoint, ErrorSummary as ErrorSummary, Evaluation as Evaluation,
    EventScope as EventScope, ExposedCollectives as ExposedCollectives, Fabric as Fabric,
    FlowEdge as FlowEdge, GpuType as GpuType, Group as Group, HostMemoryUse as HostMemoryUse,
    HostStaging as HostStaging, Infeasible as Infeasible, InnerCollective as InnerCollective,
    InterruptionRecord as InterruptionRecord, IterationConditions as IterationConditions,
    IterationMark as IterationMark, IterationOptions as IterationOptions,
    IterationResult as IterationResult, Job as Job, JobState as JobState,
    KernelDegrees as KernelDegrees, KernelLayer as KernelLayer, KernelModel as KernelModel,
    KernelProjection as KernelProjection, KernelTimes as KernelTimes, LayerProfile as LayerProfile,
    LeavingDevice as LeavingDevice, LengthBucket as LengthBucket,
    LengthDistribution as LengthDistribution, LengthRange as LengthRange, Link as Link,
    LinkClass as LinkClass, LinkDomain as LinkDomain, LinkSegment as LinkSegment,
    LinkUse as LinkUse, LogEvent as LogEvent, LowerOptions as LowerOptions,
    MemoryOverhead as MemoryOverhead, MemorySample as MemorySample, MemoryUse as MemoryUse,
    MemoryVerdict as MemoryVerdict, ModelLayers as ModelLayers, ModelShape as ModelShape,
    Nic as Nic, Node as Node, ObjectStorage as ObjectStorage, Op as Op,
    OptimizerTime as OptimizerTime, OptionInfo as OptionInfo, OverlapLoss as OverlapLoss,
    PairOverride as PairOverride, Parameter as Parameter, PassOverhead as PassOverhead,
    PcieSwitch as PcieSwitch, PendingSwitch as PendingSwitch, PhaseTime as PhaseTime,
    Pipeline as Pipeline, PipelineInfo as PipelineInfo, Plan as Plan, PlanDefect as PlanDefect,
    PlannerResult as PlannerResult, Prediction as Prediction, ProductRate as ProductRate,
    Profile as Profile, Program as Program, ProgramHeader as ProgramHeader,
    Provenance as Provenance, Rank as Rank, RankBreakdown as RankBreakdown,
    RecoveryDecision as RecoveryDecision, RecoveryPhase as RecoveryPhase, Region as Region,
    Rendezvous as Rendezvous, ReplayOptions as ReplayOptions, ReplayPoint as ReplayPoint,
    ReplayResult as ReplayResult, ReplaySpan as ReplaySpan, Reroute as Reroute,
    ReshardBytes as ReshardBytes, Restore as Restore, RunLog as RunLog, RunnerUp as RunnerUp,
    Runtime as Runtime, SailorBandwidth as SailorBandwidth, SailorLayerMemory as SailorLayerMemory,
    SailorLayerTime as SailorLayerTime, SailorOptimizerTime as SailorOptimizerTime,
    SailorTables as SailorTables, SearchReport as SearchReport, Segment as Segment,
    SegmentInfo as SegmentInfo, SegmentMemory as SegmentMemory, SimulatedWork as SimulatedWork,
    SlowDevice as SlowDevice, SlowLink as SlowLink, Span as Span, Stage as Stage,
    StateBytes as StateBytes, StateReplica as StateReplica, StateTransfer as StateTransfer,
    StorageTime as StorageTime, Straggler as Straggler, Trace as Trace, TraceNode as TraceNode,
    Transfer as Transfer, Workload as Workload, Zero as Zero)
from .results import Result as Result
from . import results as results

__version__: str
def planners() -> List[Dict[str, Any]]: ...
def policies() -> List[Dict[str, Any]]: ...

def run(*, manifest: str | PathLike[str] | Record, results: str | PathLike[str] | Record = ...,
        workers: int | None = ..., shard: str | Mapping[str, Any] | None = ...,
        limit: int | None = ..., dry_run: bool = ..., no_figure: bool = ..., quiet: bool = ...,
        cache: str | PathLike[str] | Record = ..., timelines: bool = ..., join: bool = ...,
        slurm: bool = ..., nodes: int | None = ..., time: str | PathLike[str] | Record | None = ...,
        partition: str | PathLike[str] | Record | None = ...,
        sbatch: Sequence[str | PathLike[str] | Record] | str = ..., progress: Callable[[dict[str,
        Any]], Any] | None = ...) -> results.RunResult:
    """Run an experiment: all runs of a manifest, and the figure that they end in."""
    ...

def plan(*, planner: Sequence[str | PathLike[str] | Record] | str = ..., option: Mapping[str,
         str | PathLike[str] | Record] = ..., work_budget: int | None = ...,
         executable_by: Literal["megatron", "flagscale", "executor"] | None = ...,
         near: str | PathLike[str] | Record | None = ..., within: float | None = ...,
         output: str | PathLike[str] | Record | None = ...,
         timeline: str | PathLike[str] | Record | None = ...,
         cluster: str | PathLike[str] | Record | None = ...,
         model: str | PathLike[str] | Record | None = ...,
         job: str | PathLike[str] | Record | None = ..., global_batch: Any = ...,
         sequence_length: Any = ..., dtype: Any = ..., cuda_graphs: Any = ...,
         hidden_collectives: Any = ..., recompute: Any = ..., zero_stages: Any = ...,
         schedules: Any = ..., max_tensor_parallel: Any = ..., max_micro_batch_size: Any = ...,
         max_optimizer_offload: Any = ..., sequence_parallel: Any = ...,
         profile: str | PathLike[str] | Record | None = ...,
         scale_profile: str | PathLike[str] | Record | None = ..., cost: Literal["simulator",
         "hexiscale_public_code", "hexiscale_paper"] = ..., seed: int = ..., jitter: float = ...,
         step_jitter: float = ..., link_jitter: float = ..., straggler: Sequence[str | Mapping[str,
         Any]] | str = ..., slow_link: Sequence[str | Mapping[str, Any]] | str = ...,
         inner: Literal["automatic", "closed_form", "aggregated", "per_block"] = ...,
         ring: Literal["aggregated", "stepwise"] = ..., expanded: bool = ...,
         cache: str | PathLike[str] | Record = ..., efficiency: Mapping[str, float] = ...,
         scale_efficiency: float = ..., scale_compute: float = ..., price: Mapping[str,
         float] = ..., power: Mapping[str, float | str] = ..., scale_network: float = ...,
         scale_node: float = ..., scale_latency: float = ..., oversubscription: float | None = ...,
         link: Mapping[str, float | str] = ...,
         without: Sequence[str | PathLike[str] | Record] | str = ..., at_most: Mapping[str,
         int] = ..., any_cluster: bool = ..., robust: str | PathLike[str] | Record | None = ...,
         format: str | PathLike[str] | Record | None = ..., set: Mapping[str, Any] = ...,
         days: str | Mapping[str, Any] | None = ..., repeat: bool = ..., ignore_leaves: bool = ...,
         mtbf: float | str | None = ..., policy: Sequence[str | PathLike[str] | Record] | str = ...,
         policy_option: Mapping[str, str | PathLike[str] | Record] = ..., new_plans: Literal["own",
         "both"] = ..., objective: Literal["tokens", "tokens_per_dollar"] = ..., spares: int = ...,
         intervals: Sequence[float] | str = ...,
         plan: Sequence[str | PathLike[str] | Record] | str = ..., replays: int = ...,
         seeds: int = ..., rent: str | PathLike[str] | Record | None = ...,
         target_rate: float | None = ..., prices: Literal["on_demand", "spot"] = ...,
         background_transfers: Literal["ignored", "simulated"] = ..., runtime: Mapping[str,
         str | PathLike[str] | Record] = ..., explain: bool = ..., full: bool = ...,
         progress: Callable[[dict[str, Any]], Any] | None = ...) -> results.PlanResult:
    """Make a plan with one planner or several, and simulate it."""
    ...

def simulate(*, plan: Sequence[str | PathLike[str] | Record] | str,
             timeline: str | PathLike[str] | Record | None = ...,
             log: str | PathLike[str] | Record | None = ...,
             program: str | PathLike[str] | Record | None = ..., steps: int = ...,
             phases: int = ..., overlap: Literal["recorded", "none"] | None = ...,
             cluster: str | PathLike[str] | Record | None = ...,
             model: str | PathLike[str] | Record | None = ...,
             job: str | PathLike[str] | Record | None = ..., global_batch: Any = ...,
             sequence_length: Any = ..., dtype: Any = ..., cuda_graphs: Any = ...,
             hidden_collectives: Any = ..., recompute: Any = ..., zero_stages: Any = ...,
             schedules: Any = ..., max_tensor_parallel: Any = ..., max_micro_batch_size: Any = ...,
             max_optimizer_offload: Any = ..., sequence_parallel: Any = ...,
             profile: str | PathLike[str] | Record | None = ...,
             scale_profile: str | PathLike[str] | Record | None = ..., cost: Literal["simulator",
             "hexiscale_public_code", "hexiscale_paper"] = ..., seed: int = ...,
             jitter: float = ..., step_jitter: float = ..., link_jitter: float = ...,
             straggler: Sequence[str | Mapping[str, Any]] | str = ...,
             slow_link: Sequence[str | Mapping[str, Any]] | str = ..., inner: Literal["automatic",
             "closed_form", "aggregated", "per_block"] = ..., ring: Literal["aggregated",
             "stepwise"] = ..., expanded: bool = ..., cache: str | PathLike[str] | Record = ...,
             efficiency: Mapping[str, float] = ..., scale_efficiency: float = ...,
             scale_compute: float = ..., price: Mapping[str, float] = ..., power: Mapping[str,
             float | str] = ..., scale_network: float = ..., scale_node: float = ...,
             scale_latency: float = ..., oversubscription: float | None = ..., link: Mapping[str,
             float | str] = ..., without: Sequence[str | PathLike[str] | Record] | str = ...,
             at_most: Mapping[str, int] = ..., any_cluster: bool = ..., full: bool = ...,
             progress: Callable[[dict[str, Any]], Any] | None = ...) -> results.SimulateResult:
    """Simulate one iteration of plans, jobs side by side, or a recorded run with another network."""
    ...

def validate(*, file: Sequence[str | PathLike[str] | Record] | str,
             cluster: str | PathLike[str] | Record | None = ...,
             model: str | PathLike[str] | Record | None = ...,
             job: str | PathLike[str] | Record | None = ..., global_batch: Any = ...,
             sequence_length: Any = ..., dtype: Any = ..., cuda_graphs: Any = ...,
             hidden_collectives: Any = ..., recompute: Any = ..., zero_stages: Any = ...,
             schedules: Any = ..., max_tensor_parallel: Any = ..., max_micro_batch_size: Any = ...,
             max_optimizer_offload: Any = ..., sequence_parallel: Any = ...,
             profile: str | PathLike[str] | Record | None = ...,
             scale_profile: str | PathLike[str] | Record | None = ..., progress: Callable[[dict[str,
             Any]], Any] | None = ...) -> results.ValidateResult:
    """Check files: every problem with its place."""
    ...

def diff(*, first: str | PathLike[str] | Record, second: str | PathLike[str] | Record,
         cluster: str | PathLike[str] | Record | None = ...,
         model: str | PathLike[str] | Record | None = ...,
         job: str | PathLike[str] | Record | None = ..., global_batch: Any = ...,
         sequence_length: Any = ..., dtype: Any = ..., cuda_graphs: Any = ...,
         hidden_collectives: Any = ..., recompute: Any = ..., zero_stages: Any = ...,
         schedules: Any = ..., max_tensor_parallel: Any = ..., max_micro_batch_size: Any = ...,
         max_optimizer_offload: Any = ..., sequence_parallel: Any = ...,
         profile: str | PathLike[str] | Record | None = ...,
         scale_profile: str | PathLike[str] | Record | None = ..., cost: Literal["simulator",
         "hexiscale_public_code", "hexiscale_paper"] = ..., seed: int = ..., jitter: float = ...,
         step_jitter: float = ..., link_jitter: float = ..., straggler: Sequence[str | Mapping[str,
         Any]] | str = ..., slow_link: Sequence[str | Mapping[str, Any]] | str = ...,
         inner: Literal["automatic", "closed_form", "aggregated", "per_block"] = ...,
         ring: Literal["aggregated", "stepwise"] = ..., expanded: bool = ...,
         cache: str | PathLike[str] | Record = ..., efficiency: Mapping[str, float] = ...,
         scale_efficiency: float = ..., scale_compute: float = ..., price: Mapping[str,
         float] = ..., power: Mapping[str, float | str] = ..., scale_network: float = ...,
         scale_node: float = ..., scale_latency: float = ..., oversubscription: float | None = ...,
         link: Mapping[str, float | str] = ...,
         without: Sequence[str | PathLike[str] | Record] | str = ..., at_most: Mapping[str,
         int] = ..., any_cluster: bool = ..., progress: Callable[[dict[str, Any]],
         Any] | None = ...) -> results.DiffResult:
    """Compare two plans: what differs and what it costs."""
    ...

def init(*, nodes: Sequence[str | PathLike[str] | Record] | str = ...,
         name: str | PathLike[str] | Record = ..., network: Mapping[str,
         str | PathLike[str] | Record] = ..., nvlink: Mapping[str,
         str | PathLike[str] | Record] = ..., nics: Mapping[str,
         str | PathLike[str] | Record] = ..., oversubscription: float = ...,
         output: str | PathLike[str] | Record | None = ..., progress: Callable[[dict[str, Any]],
         Any] | None = ...) -> results.InitResult:
    """Write a cluster file from a few words; without --nodes it asks."""
    ...

def list(*, what: str | PathLike[str] | Record,
         name: Sequence[str | PathLike[str] | Record] | str = ...,
         cluster: str | PathLike[str] | Record | None = ..., markdown: bool = ...,
         progress: Callable[[dict[str, Any]], Any] | None = ...) -> results.ListResult:
    """Show what the library and this build know."""
    ...

def schema(*, kind: str | PathLike[str] | Record, reference: bool = ...,
           progress: Callable[[dict[str, Any]], Any] | None = ...) -> results.SchemaResult:
    """JSON Schema of a kind of file, for editors."""
    ...

def mixed_length(*, file: str | PathLike[str] | Record, results: str | PathLike[str] | Record = ...,
                 workers: int | None = ..., shard: str | Mapping[str, Any] | None = ...,
                 limit: int | None = ..., dry_run: bool = ..., no_figure: bool = ...,
                 quiet: bool = ..., cache: str | PathLike[str] | Record = ...,
                 steps: str | PathLike[str] | Record | None = ...,
                 plan: str | PathLike[str] | Record | None = ...,
                 of: str | PathLike[str] | Record | None = ..., progress: Callable[[dict[str, Any]],
                 Any] | None = ...) -> results.MixedLengthResult:
    """Simulate steps with sequences of mixed lengths, system by system."""
    ...

def switch(*, from_: str | PathLike[str] | Record, to: str | PathLike[str] | Record | None = ...,
           lost: Sequence[str | PathLike[str] | Record] | str = ...,
           planner: str | PathLike[str] | Record | None = ..., option: Mapping[str,
           str | PathLike[str] | Record] = ..., output: str | PathLike[str] | Record | None = ...,
           state: Literal["weights", "all"] = ..., variant: Literal["fused", "fused-by-tensor",
           "unfused", "no-heuristics"] = ..., cluster: str | PathLike[str] | Record | None = ...,
           model: str | PathLike[str] | Record | None = ...,
           job: str | PathLike[str] | Record | None = ..., global_batch: Any = ...,
           sequence_length: Any = ..., dtype: Any = ..., cuda_graphs: Any = ...,
           hidden_collectives: Any = ..., recompute: Any = ..., zero_stages: Any = ...,
           schedules: Any = ..., max_tensor_parallel: Any = ..., max_micro_batch_size: Any = ...,
           max_optimizer_offload: Any = ..., sequence_parallel: Any = ...,
           profile: str | PathLike[str] | Record | None = ...,
           scale_profile: str | PathLike[str] | Record | None = ...,
           cache: str | PathLike[str] | Record = ..., progress: Callable[[dict[str, Any]],
           Any] | None = ...) -> results.SwitchResult:
    """Go from one plan to another: what moves, how long it takes, what is lost."""
    ...

def import_(*, what: str | PathLike[str] | Record,
            file: Sequence[str | PathLike[str] | Record] | str,
            gpu: Sequence[str | PathLike[str] | Record] | str = ...,
            link: Sequence[str | PathLike[str] | Record] | str = ...,
            cluster: str | PathLike[str] | Record | None = ...,
            bandwidth_unit: str | PathLike[str] | Record | None = ...,
            output: str | PathLike[str] | Record | None = ..., progress: Callable[[dict[str, Any]],
            Any] | None = ...) -> results.ImportResult:
    """Read files of other systems: profiles, measurements, topologies, recorded runs."""
    ...

def export(*, plan: str | PathLike[str] | Record, to: Literal["megatron", "flagscale", "torchtitan",
           "deepspeed", "hexiscale", "torchrun", "chakra", "astra-sim"],
           output: str | PathLike[str] | Record | None = ...,
           cluster: str | PathLike[str] | Record | None = ...,
           model: str | PathLike[str] | Record | None = ...,
           job: str | PathLike[str] | Record | None = ..., global_batch: Any = ...,
           sequence_length: Any = ..., dtype: Any = ..., cuda_graphs: Any = ...,
           hidden_collectives: Any = ..., recompute: Any = ..., zero_stages: Any = ...,
           schedules: Any = ..., max_tensor_parallel: Any = ..., max_micro_batch_size: Any = ...,
           max_optimizer_offload: Any = ..., sequence_parallel: Any = ...,
           profile: str | PathLike[str] | Record | None = ...,
           scale_profile: str | PathLike[str] | Record | None = ..., progress: Callable[[dict[str,
           Any]], Any] | None = ...) -> results.ExportResult:
    """Write a plan as files of trainers and simulators."""
    ...

def report(*, what: Sequence[str | PathLike[str] | Record] | str,
           output: str | PathLike[str] | Record | None,
           title: str | PathLike[str] | Record | None = ...,
           cluster: str | PathLike[str] | Record | None = ...,
           model: str | PathLike[str] | Record | None = ...,
           job: str | PathLike[str] | Record | None = ..., global_batch: Any = ...,
           sequence_length: Any = ..., dtype: Any = ..., cuda_graphs: Any = ...,
           hidden_collectives: Any = ..., recompute: Any = ..., zero_stages: Any = ...,
           schedules: Any = ..., max_tensor_parallel: Any = ..., max_micro_batch_size: Any = ...,
           max_optimizer_offload: Any = ..., sequence_parallel: Any = ...,
           profile: str | PathLike[str] | Record | None = ...,
           scale_profile: str | PathLike[str] | Record | None = ..., cost: Literal["simulator",
           "hexiscale_public_code", "hexiscale_paper"] = ..., seed: int = ..., jitter: float = ...,
           step_jitter: float = ..., link_jitter: float = ...,
           straggler: Sequence[str | Mapping[str, Any]] | str = ...,
           slow_link: Sequence[str | Mapping[str, Any]] | str = ..., inner: Literal["automatic",
           "closed_form", "aggregated", "per_block"] = ..., ring: Literal["aggregated",
           "stepwise"] = ..., expanded: bool = ..., cache: str | PathLike[str] | Record = ...,
           efficiency: Mapping[str, float] = ..., scale_efficiency: float = ...,
           scale_compute: float = ..., price: Mapping[str, float] = ..., power: Mapping[str,
           float | str] = ..., scale_network: float = ..., scale_node: float = ...,
           scale_latency: float = ..., oversubscription: float | None = ..., link: Mapping[str,
           float | str] = ..., without: Sequence[str | PathLike[str] | Record] | str = ...,
           at_most: Mapping[str, int] = ..., any_cluster: bool = ..., progress: Callable[[dict[str,
           Any]], Any] | None = ...) -> results.ReportResult:
    """Write plans, a run or the results of a study as one HTML file."""
    ...

def replay(*, file: str | PathLike[str] | Record = ...,
           trace: str | PathLike[str] | Record | None = ...,
           generate: str | PathLike[str] | Record | None = ...,
           format: str | PathLike[str] | Record | None = ..., set: Mapping[str,
           str | PathLike[str] | Record] = ..., days: str | Mapping[str, Any] | None = ...,
           repeat: bool = ..., policy: Sequence[str | PathLike[str] | Record] | str | None = ...,
           option: Mapping[str, str | PathLike[str] | Record] = ...,
           seeds: str | PathLike[str] | Record | None = ...,
           plan: str | PathLike[str] | Record | None = ...,
           planner: str | PathLike[str] | Record | None = ...,
           expected_mtbf: float | str | None = ..., planning_time: Literal["fixed",
           "measured"] | None = ..., prices: Literal["on_demand", "spot"] | None = ...,
           background_transfers: Literal["ignored", "simulated"] | None = ..., runtime: Mapping[str,
           str | PathLike[str] | Record] = ..., results: str | PathLike[str] | Record = ...,
           workers: int | None = ..., shard: str | Mapping[str, Any] | None = ...,
           limit: int | None = ..., dry_run: bool = ..., no_figure: bool = ..., quiet: bool = ...,
           cache: str | PathLike[str] | Record = ...,
           cluster: str | PathLike[str] | Record | None = ...,
           model: str | PathLike[str] | Record | None = ...,
           job: str | PathLike[str] | Record | None = ..., global_batch: Any = ...,
           sequence_length: Any = ..., dtype: Any = ..., cuda_graphs: Any = ...,
           hidden_collectives: Any = ..., recompute: Any = ..., zero_stages: Any = ...,
           schedules: Any = ..., max_tensor_parallel: Any = ..., max_micro_batch_size: Any = ...,
           max_optimizer_offload: Any = ..., sequence_parallel: Any = ...,
           profile: str | PathLike[str] | Record | None = ...,
           scale_profile: str | PathLike[str] | Record | None = ..., progress: Callable[[dict[str,
           Any]], Any] | None = ...) -> results.ReplayResult:
    """Replay failures and preemptions under recovery policies, and rank them."""
    ...

def trace_generate(*, generator: str | PathLike[str] | Record,
                   cluster: str | PathLike[str] | Record | None = ..., gpus: int | None = ...,
                   gpus_per_node: int | None = ...,
                   gpu_type: str | PathLike[str] | Record | None = ..., days: str | Mapping[str,
                   Any] = ..., seed: int = ..., conditioned: bool = ...,
                   set: Sequence[str | PathLike[str] | Record] | str = ...,
                   output: str | PathLike[str] | Record | None = ..., progress: Callable[[dict[str,
                   Any]], Any] | None = ...) -> results.TraceGenerateResult:
    """Draw a trace of failures and spot nodes."""
    ...

def trace_stats(*, trace: str | PathLike[str] | Record,
                csv: str | PathLike[str] | Record | None = ...,
                figure: str | PathLike[str] | Record | None = ..., progress: Callable[[dict[str,
                Any]], Any] | None = ...) -> results.TraceStatsResult:
    """Counts, times between failures, availability, and its figure."""
    ...

def trace_import(*, format: str | PathLike[str] | Record,
                 file: Sequence[str | PathLike[str] | Record] | str,
                 gpu_type: Sequence[str | PathLike[str] | Record] | str = ...,
                 gpus_per_node: int = ..., nodes: int | None = ...,
                 order: Literal["last_in_first_out", "random"] = ..., seed: int = ...,
                 days: str | Mapping[str, Any] | None = ...,
                 time: str | PathLike[str] | Record | None = ...,
                 node: str | PathLike[str] | Record | None = ...,
                 event: str | PathLike[str] | Record | None = ...,
                 cause: str | PathLike[str] | Record | None = ..., map: Mapping[str,
                 str | PathLike[str] | Record] = ..., repair_after: float | str | None = ...,
                 start: str | PathLike[str] | Record | None = ...,
                 output: str | PathLike[str] | Record | None = ..., progress: Callable[[dict[str,
                 Any]], Any] | None = ...) -> results.TraceImportResult:
    """Read traces of Bamboo, Oobleck, Parcae, AWS, GCP, SkyPilot."""
    ...

def netlab(*, action: Literal["up", "down", "status", "disturb"],
           cluster: str | PathLike[str] | Record, loss: float = ..., late: float = ...,
           lateness: float | str = ..., cut: Sequence[str | PathLike[str] | Record] | str = ...,
           progress: Callable[[dict[str, Any]], Any] | None = ...) -> results.NetlabResult:
    """Emulate the nodes of a cluster and their network on this machine."""
    ...

def execute(*, plan: str | PathLike[str] | Record = ...,
            planner: str | PathLike[str] | Record | None = ..., steps: int = ...,
            backend: Literal["cpu", "cuda"] = ..., library: Literal["eigen",
            "openblas"] | None = ..., transport: Literal["tcp", "nccl"] = ...,
            precision: Literal["fp32", "fp64", "bf16"] = ...,
            data: str | PathLike[str] | Record | None = ..., learning_rate: float = ...,
            seed: int = ..., out: str | PathLike[str] | Record | None = ..., log_steps: int = ...,
            slowdown: Sequence[str | Mapping[str, Any]] | str = ..., ranks: Literal["processes",
            "threads"] | None = ..., shares: Sequence[str | PathLike[str] | Record] | str = ...,
            quiet: bool = ..., hosts: Sequence[str | PathLike[str] | Record] | str = ...,
            ssh: bool = ..., token_file: str | PathLike[str] | Record | None = ...,
            netlab: bool = ..., listen: str | PathLike[str] | Record | None = ...,
            advertise: str | PathLike[str] | Record | None = ...,
            checkpoint_every: int | None = ...,
            checkpoints: str | PathLike[str] | Record | None = ...,
            cloud: str | PathLike[str] | Record | None = ..., prune_checkpoints: bool = ...,
            elastic: str | PathLike[str] | Record | None = ..., silence: float = ...,
            kill: Sequence[str | PathLike[str] | Record] | str = ...,
            switch_to: Sequence[str | PathLike[str] | Record] | str = ...,
            cluster: str | PathLike[str] | Record | None = ...,
            model: str | PathLike[str] | Record | None = ...,
            job: str | PathLike[str] | Record | None = ..., global_batch: Any = ...,
            sequence_length: Any = ..., dtype: Any = ..., cuda_graphs: Any = ...,
            hidden_collectives: Any = ..., recompute: Any = ..., zero_stages: Any = ...,
            schedules: Any = ..., max_tensor_parallel: Any = ..., max_micro_batch_size: Any = ...,
            max_optimizer_offload: Any = ..., sequence_parallel: Any = ...,
            profile: str | PathLike[str] | Record | None = ...,
            scale_profile: str | PathLike[str] | Record | None = ..., progress: Callable[[dict[str,
            Any]], Any] | None = ...) -> results.ExecuteResult:
    """Run a plan for real: one process for each device."""
    ...

def execute_agent(*, store: str | PathLike[str] | Record, node: str | PathLike[str] | Record,
                  address: str | PathLike[str] | Record | None = ...,
                  token_file: str | PathLike[str] | Record | None = ..., wait: int = ...,
                  namespace: str | PathLike[str] | Record | None = ...,
                  progress: Callable[[dict[str, Any]], Any] | None = ...) -> Result:
    """Start ranks on this machine for a launcher on another one."""
    ...

def compare(*, run: str | PathLike[str] | Record,
            profile: str | PathLike[str] | Record | None = ...,
            cluster: str | PathLike[str] | Record | None = ..., warm_up: int | None = ...,
            worst: int = ..., out: str | PathLike[str] | Record | None = ..., no_figure: bool = ...,
            progress: Callable[[dict[str, Any]], Any] | None = ...) -> results.CompareResult:
    """Compare an executed run with its simulation, op by op."""
    ...

def calibrate(*, out: str | PathLike[str] | Record = ..., quick: bool = ...,
              only: Sequence[Literal["block", "gemm", "memory_bandwidth", "point_to_point",
              "collective", "optimizer", "checkpoint_write", "checkpoint_read", "memory",
              "op_overhead"]] | str = ..., fit_only: bool = ..., no_figure: bool = ...,
              quiet: bool = ..., backend: Literal["cpu", "cuda"] = ..., library: Literal["eigen",
              "openblas"] | None = ..., precision: Literal["fp32", "fp64", "bf16"] | None = ...,
              model: str | PathLike[str] | Record | None = ..., sequence_length: int | None = ...,
              cluster: str | PathLike[str] | Record | None = ...,
              gpu_type: str | PathLike[str] | Record | None = ...,
              shares: Sequence[str | PathLike[str] | Record] | str = ..., ranks: int | None = ...,
              checkpoints: str | PathLike[str] | Record | None = ...,
              cloud: str | PathLike[str] | Record | None = ...,
              hosts: Sequence[str | PathLike[str] | Record] | str = ..., ssh: bool = ...,
              token_file: str | PathLike[str] | Record | None = ..., netlab: bool = ...,
              listen: str | PathLike[str] | Record | None = ...,
              advertise: str | PathLike[str] | Record | None = ..., progress: Callable[[dict[str,
              Any]], Any] | None = ...) -> results.CalibrateResult:
    """Measure a machine and fit a profile of it."""
    ...

def twin(*, manifest: str | PathLike[str] | Record,
         results: str | PathLike[str] | Record | None = ..., steps: int | None = ...,
         only: Sequence[str | PathLike[str] | Record] | str = ..., loopback: bool = ...,
         quick: bool = ..., dry_run: bool = ..., no_figure: bool = ...,
         progress: Callable[[dict[str, Any]], Any] | None = ...) -> results.TwinResult:
    """Plan, execute, calibrate, predict and compare in one go."""
    ...

def annotate(*, plan: str | PathLike[str] | Record,
             cluster: str | PathLike[str] | Record | None = ...,
             model: str | PathLike[str] | Record | None = ...,
             job: str | PathLike[str] | Record | None = ..., global_batch: Any = ...,
             sequence_length: Any = ..., dtype: Any = ..., cuda_graphs: Any = ...,
             hidden_collectives: Any = ..., recompute: Any = ..., zero_stages: Any = ...,
             schedules: Any = ..., max_tensor_parallel: Any = ..., max_micro_batch_size: Any = ...,
             max_optimizer_offload: Any = ..., sequence_parallel: Any = ...,
             profile: str | PathLike[str] | Record | None = ...,
             scale_profile: str | PathLike[str] | Record | None = ..., progress: Callable[[dict[str,
             Any]], Any] | None = ...) -> results.AnnotateResult:
    """Show a plan's sharding annotations and what its communication resolves to."""
    ...

def advise(*, trace: str | PathLike[str] | Record | None = ...,
           format: str | PathLike[str] | Record | None = ..., set: Mapping[str, Any] = ...,
           days: str | Mapping[str, Any] | None = ..., repeat: bool = ...,
           ignore_leaves: bool = ..., mtbf: float | str | None = ...,
           policy: Sequence[str | PathLike[str] | Record] | str = ..., policy_option: Mapping[str,
           str | PathLike[str] | Record] = ..., new_plans: Literal["own", "both"] = ...,
           objective: Literal["tokens", "tokens_per_dollar"] = ..., spares: int = ...,
           intervals: Sequence[float] | str = ...,
           plan: Sequence[str | PathLike[str] | Record] | str = ..., replays: int = ...,
           seeds: int = ..., rent: str | PathLike[str] | Record | None = ...,
           target_rate: float | None = ..., prices: Literal["on_demand", "spot"] = ...,
           background_transfers: Literal["ignored", "simulated"] = ..., runtime: Mapping[str,
           str | PathLike[str] | Record] = ...,
           planner: Sequence[str | PathLike[str] | Record] | str = ..., option: Mapping[str,
           str | PathLike[str] | Record] = ..., work_budget: int | None = ...,
           output: str | PathLike[str] | Record | None = ...,
           cluster: str | PathLike[str] | Record | None = ...,
           model: str | PathLike[str] | Record | None = ...,
           job: str | PathLike[str] | Record | None = ..., global_batch: Any = ...,
           sequence_length: Any = ..., dtype: Any = ..., cuda_graphs: Any = ...,
           hidden_collectives: Any = ..., recompute: Any = ..., zero_stages: Any = ...,
           schedules: Any = ..., max_tensor_parallel: Any = ..., max_micro_batch_size: Any = ...,
           max_optimizer_offload: Any = ..., sequence_parallel: Any = ...,
           profile: str | PathLike[str] | Record | None = ...,
           scale_profile: str | PathLike[str] | Record | None = ..., cost: Literal["simulator",
           "hexiscale_public_code", "hexiscale_paper"] = ..., seed: int = ..., jitter: float = ...,
           step_jitter: float = ..., link_jitter: float = ...,
           straggler: Sequence[str | Mapping[str, Any]] | str = ...,
           slow_link: Sequence[str | Mapping[str, Any]] | str = ..., inner: Literal["automatic",
           "closed_form", "aggregated", "per_block"] = ..., ring: Literal["aggregated",
           "stepwise"] = ..., expanded: bool = ..., cache: str | PathLike[str] | Record = ...,
           efficiency: Mapping[str, float] = ..., scale_efficiency: float = ...,
           scale_compute: float = ..., price: Mapping[str, float] = ..., power: Mapping[str,
           float | str] = ..., scale_network: float = ..., scale_node: float = ...,
           scale_latency: float = ..., oversubscription: float | None = ..., link: Mapping[str,
           float | str] = ..., without: Sequence[str | PathLike[str] | Record] | str = ...,
           at_most: Mapping[str, int] = ..., any_cluster: bool = ..., progress: Callable[[dict[str,
           Any]], Any] | None = ...) -> results.AdviseResult:
    """Spares, checkpoint interval, recovery policy and plan for a cluster that fails."""
    ...
