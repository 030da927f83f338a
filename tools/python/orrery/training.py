"""The core calls: what is trained on what, and everything that can be asked about it."""

from __future__ import annotations

from typing import Any, Callable, Sequence

from . import _orrery, helper, values
from ._orrery import (BlockQuery, Cluster, Evaluation, Group, Infeasible, IterationOptions,
                      IterationResult, Job, JobState, LowerOptions, MemoryVerdict, PlanDefect,
                      PlannerResult, Profile, Program, ReplayOptions, ReplayResult, ReshardBytes,
                      Restore, Runtime, Segment, SegmentMemory, StateTransfer, Workload)


class Training:
    """A model that a job trains on a cluster, with a profile of measured times if there is one.

        at = orrery.Training("hexiscale_case_study", "llama2_13b", global_batch=24,
                             sequence_length=4096)
        result = at.simulate("plan.yaml")

    The arguments are what load_cluster(), load_model(), load_job() and load_profile() take; other
    keyword arguments are settings of the job. What was given is not copied: to change a cluster, change a
    copy and make another Training."""

    cluster: Cluster
    workload: Workload
    job: Job
    profile: Profile

    def __init__(self, cluster: Any, model: Any, job: Any = None, profile: Any = None,
                 **job_settings: Any) -> None:
        self.cluster = values.load_cluster(cluster)
        self.job = values.load_job(job, **job_settings)
        self.workload = values.load_model(model, self.job)
        self.profile = values.load_profile(profile)
        self._context = _orrery.Context(self.cluster, self.workload, self.job, self.profile)
        self._simulators: dict[Any, Any] = {}

    def _take(self, context: Any) -> None:
        """In place of __init__, for what is already in C++."""
        self._context = context
        self.cluster, self.workload = context.cluster, context.workload
        self.job, self.profile = context.job, context.profile
        self._simulators = {}

    def validate(self, plan: Any) -> list[PlanDefect]:
        """All that is wrong with the structure of a plan; memory is not judged."""
        return self._context.validate(values.load_plan(plan))

    def lower(self, plan: Any, *, expanded: bool = False, seed: int = 0) -> Program:
        """The program of a plan, with one rank for each tensor-parallel group or, expanded, for each
        device. A plan that is not valid raises ConfigError."""
        return self._context.lower(values.load_plan(plan), LowerOptions(collapsed=not expanded, seed=seed))

    def memory(self, plan: Any) -> MemoryVerdict:
        """Peak memory of the worst device of each GPU type, in closed form."""
        return self._context.memory(values.load_plan(plan))

    def segment_memory(self, segment: Segment, group: Group, replicas: int) -> SegmentMemory:
        """Memory of a device of a segment's group; `replicas`: of its blocks, for ZeRO."""
        return self._context.segment_memory(segment, group, replicas)

    def evaluation_of(self, plan: Any, seconds: float) -> Evaluation:
        """What follows from an iteration time: throughput, utilization, price, memory."""
        return self._context.evaluation_of(values.load_plan(plan), seconds)

    def tokens_per_second(self, plan: Any, seconds: float) -> float:
        """Throughput of a plan whose iteration takes so long."""
        return self._context.tokens_per_second(values.load_plan(plan), seconds)

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
        return self._simulator(False).evaluate(values.load_plan(plan))

    def plan(self, planner: Any, *, devices: Sequence[int] | None = None, seed: int = 0,
             work_budget: int = 0, **options: Any) -> PlannerResult:
        """Asks a planner: a name of the catalog (orrery.planners()), a Planner, its class, or
        "file.py:Class". `outcome` of the result is a Plan or Infeasible. `devices`: that may be
        used; none: all. `options`: settings of the planner."""
        from . import plugins

        if not isinstance(planner, str) or ".py:" in planner:
            made = plugins.load(planner, plugins.Planner) if isinstance(planner, str) else planner
            planner, options = (made(**options) if isinstance(made, type) else made), {}
        return _orrery.search(self._context, planner, plugins._texts(options),
                              self._simulator(False), None if devices is None else list(devices),
                              seed, work_budget)

    def own_estimate(self, planner: str, plan: Any) -> float | Infeasible:
        """Seconds of an iteration by the cost model of a planner (with default settings) that need
        not have made the plan; Infeasible where the model cannot represent it. Of the catalog
        autohet, hethub, hetu and metis judge plans of others."""
        plan = values.load_plan(plan)
        self._context.require_valid(plan)
        return _orrery.own_estimate(self._context, planner, plan)

    def policy(self, policy: Any, *, plan: Any = None, interruptions_per_second: float = 0.0,
               seed: int = 0, runtime: Runtime | None = None, **options: Any) -> Any:
        """A recovery policy for this training: a name of the catalog (orrery.policies()), a class
        derived from RecoveryPolicy, or "file.py:Class"; or Infeasible. It has first_plan(live),
        checkpoints(plan, iteration_time) and on_events(state, events). `plan`: to begin with;
        `interruptions_per_second`: that a user would expect, 0: unknown; `runtime`: what it takes
        to notice a loss and to start again, None: the defaults."""
        from . import plugins

        if isinstance(policy, str) and ".py:" in policy:
            policy = plugins.load(policy, plugins.RecoveryPolicy)
        if isinstance(policy, str):
            options = plugins._texts(options)
        return _orrery.make_policy(self._context, self._simulator(True), policy, options,
                                   interruptions_per_second,
                                   None if plan is None else values.load_plan(plan), seed,
                                   _orrery.Runtime() if runtime is None else runtime)

    def replay(self, trace: Any, policy: Any, *, iteration_time: Any = None,
               transfer_time: Any = None, progress: Callable[[float], None] | None = None,
               options: ReplayOptions | None = None, **settings: Any) -> ReplayResult:
        """Replays a trace (or a path to one) under a policy: what policy() gave, or what it takes,
        with its settings. Times come from the simulator, or else: `iteration_time`: seconds, a dict
        from the number of devices to samples per second, or a function of (plan, conditions);
        `transfer_time`: seconds of any set of transfers, or a function of (transfers,
        degraded_links). `progress` is called with the share of the horizon that is done. A job that
        the policy is not for raises ValueError."""
        if not isinstance(policy, _orrery.Policy):
            policy = self.policy(policy, **settings)
            if isinstance(policy, Infeasible):
                raise ValueError(f"{policy.constraint}: {policy.witness}")
        elif settings:
            raise TypeError(f"the policy is made: it takes no settings ({', '.join(settings)})")
        return _orrery.replay(policy, values.load_trace(trace),
                              self._simulator(True) if iteration_time is None else iteration_time,
                              self._simulator(True) if transfer_time is None else transfer_time,
                              options or ReplayOptions(), progress)

    def restore(self, state: JobState, plan: Any, *, order: Sequence[str], bytes: ReshardBytes,
                iteration: int) -> Restore:
        """Where the state after an iteration that a plan needs comes from. `order`: sources, best
        first (own_gpu, own_host, own_nvme, peer_gpu, peer_host, peer_nvme, cloud); `bytes`: per
        parameter, as all_state_bytes(job). The plan need not be valid, only its places."""
        return _orrery.plan_restore(self._context, state, values.load_plan(plan), iteration, list(order),
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
        """One session for iterations, one for replays, each started when it is first needed, and again
        after a Ctrl-C that left one at work, and in a fork of this process."""
        made = self._simulators.get(for_replay)
        if made is None or not made.usable:
            made = _orrery.RemoteSimulator(helper.session(), self._context, IterationOptions(),
                                           for_replay)
            self._simulators[for_replay] = made
        return made
