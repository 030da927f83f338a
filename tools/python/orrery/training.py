"""The core calls: what is trained on what, and everything that can be asked about it."""

from __future__ import annotations

from typing import Any, Sequence, Union

from . import _orrery, helper, values
from ._orrery import (BlockQuery, Cluster, Evaluation, Group, IterationOptions, IterationResult, Job,
                      JobState, LowerOptions, MemoryVerdict, Plan, PlanDefect, Profile, Program,
                      ReshardBytes, Restore, Segment, SegmentMemory, StateTransfer, Workload)


class Training:
    """A model that a job trains on a cluster, with a profile of measured times if there is one.

        at = orrery.Training("hexiscale_case_study", "llama2_13b", global_batch=24,
                             sequence_length=4096)
        result = at.simulate("plan.yaml")

    The arguments are what orrery.cluster(), model(), job() and profile() take; other keyword
    arguments are settings of the job. What was given is not copied: to change a cluster, change a
    copy and make another Training."""

    cluster: Cluster
    workload: Workload
    job: Job
    profile: Profile

    def __init__(self, cluster: Any, model: Any, job: Any = None, profile: Any = None,
                 **job_settings: Any) -> None:
        self.cluster = values.cluster(cluster)
        self.job = values.job(job, **job_settings)
        self.workload = values.model(model, self.job)
        self.profile = values.profile(profile)
        self._context = _orrery.Context(self.cluster, self.workload, self.job, self.profile)
        self._simulators: dict[Any, Any] = {}

    def validate(self, plan: Any) -> list[PlanDefect]:
        """All that is wrong with the structure of a plan; memory is not judged."""
        return self._context.validate(values.plan(plan))

    def lower(self, plan: Any, *, expanded: bool = False, seed: int = 0) -> Program:
        """The program of a plan, with one rank for each tensor-parallel group or, expanded, for each
        device. A plan that is not valid raises ConfigError."""
        return self._context.lower(values.plan(plan), LowerOptions(collapsed=not expanded, seed=seed))

    def memory(self, plan: Any) -> MemoryVerdict:
        """Peak memory of the worst device of each GPU type, in closed form."""
        return self._context.memory(values.plan(plan))

    def segment_memory(self, segment: Segment, group: Group, replicas: int) -> SegmentMemory:
        """Memory of a device of a segment's group; `replicas`: of its blocks, for ZeRO."""
        return self._context.segment_memory(segment, group, replicas)

    def evaluation_of(self, plan: Any, seconds: float) -> Evaluation:
        """What follows from an iteration time: throughput, utilization, price, memory."""
        return self._context.evaluation_of(values.plan(plan), seconds)

    def tokens_per_second(self, plan: Any, seconds: float) -> float:
        """Throughput of a plan whose iteration takes so long."""
        return self._context.tokens_per_second(values.plan(plan), seconds)

    def block_time(self, block: int, *, gpu_type: int = 0, **query: Any) -> float:
        """Seconds of a pass over one block; `query`: fields of BlockQuery (pass_="backward",
        tensor_parallel=4, samples=2, ...)."""
        return self._context.block_time(BlockQuery(block=block, gpu_type=gpu_type, **query))

    def optimizer_time(self, parameters: float, gpu_type: int = 0) -> float:
        """Seconds of an optimizer step over the parameters of one device."""
        return self._context.optimizer_time(gpu_type, parameters)

    def op_times(self, program: Program) -> list[float]:
        """Seconds that each op of a program computes, without its inner collectives."""
        return self._context.op_times(program)

    def prices(self) -> list[str]:
        """Which entries of the profile and which rooflines have priced something so far."""
        return self._context.used_entries()

    def simulate(self, what: Any, *, op_times: Sequence[float] = (), expanded: bool = False,
                 **options: Any) -> IterationResult:
        """Simulates an iteration of a plan (or a path to one) or of a program. `op_times`: seconds
        of each op of the program, in place of the cost model's. `options`: fields of
        IterationOptions (jitter=0.05, seed=1, stragglers=[orrery.Straggler(device=3,
        slowdown=1.5)], record_spans=False, ...)."""
        program = what if isinstance(what, Program) else self.lower(what, expanded=expanded)
        return self._simulator(False).run(program, list(op_times), IterationOptions(**options))

    def evaluate(self, plan: Any) -> Evaluation:
        """What the simulator says of a plan, as planners are told."""
        return self._simulator(False).evaluate(values.plan(plan))

    def restore(self, state: JobState, plan: Any, *, order: Sequence[str], bytes: ReshardBytes,
                iteration: int) -> Restore:
        """Where the state after an iteration that a plan needs comes from. `order`: sources, best
        first (own_gpu, own_host, own_nvme, peer_gpu, peer_host, peer_nvme, cloud); `bytes`: per
        parameter, as all_state_bytes(job). The plan need not be valid, only its places."""
        return _orrery.plan_restore(self._context, state, values.plan(plan), iteration, list(order),
                                    bytes)

    def transfer_time(self, transfers: Sequence[StateTransfer]) -> float:
        """Simulated seconds of transfers that start together."""
        return self._simulator(True).transfer_time(list(transfers), []) / 1e9

    def transfer_estimate(self, transfers: Sequence[StateTransfer]) -> float:
        """Their closed form: the busiest resource's bytes over its bandwidth."""
        return _orrery.transfer_estimate(self._context, list(transfers))

    def simgrid(self) -> dict[str, str]:
        """SimGrid's version and the options of it that affect results."""
        return dict(self._simulator(False).simgrid())

    def _simulator(self, for_replay: bool) -> Any:
        """One session for iterations, one for replays, each started when it is first needed."""
        try:
            return self._simulators[for_replay]
        except KeyError:
            made = _orrery.RemoteSimulator(helper.session(), self._context, IterationOptions(),
                                           for_replay)
            self._simulators[for_replay] = made
            return made
