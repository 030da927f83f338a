"""The same traces, tables and constants through sim/replay, which accounts for each nanosecond
once.

What the policies do is what compat.py's simulators do, without their accidents: any loss stalls the
job for the published time and takes the iteration in flight (Varuna: all since the last checkpoint
in the cloud) with it; nodes that come are used 45 s later, from the next loss on. Losses at one
instant are one recovery. What the artifact subtracts, we keep: the checkpoint's time is part of
Varuna's restart and is taken off.

Deviation: Bamboo's shadow finishes the iteration in flight at 1.5 times its length; here the
iteration is lost, as in planners/recovery/bamboo/bamboo.cpp, and the stall follows. All nodes are
in the plan, since the published table knows only how many there are."""

from dataclasses import dataclass

import orrery
from inputs import CHECKPOINT_EVERY, LEAST_NODES, NODE_READY, at_nodes

SECOND = 1_000_000_000  # ns


@dataclass
class Count:
    """Shares of the time from the first iteration on."""
    samples_per_second: float = 0.0  # samples that count / time from the first iteration on
    effective: float = 0.0
    checkpoint: float = 0.0
    restart: float = 0.0
    fallback: float = 0.0  # rolled back
    idle: float = 0.0  # too few nodes


def policy_of(model, system, least):
    """The policy's class; with fewer than `least` nodes the job waits."""

    class NodePolicy(orrery.RecoveryPolicy):
        def plan_on(self, devices):
            """The number of devices and of samples is all that the timer reads."""
            blocks = len(self.input.workload.blocks)
            cuts = [i * blocks // len(devices) for i in range(len(devices) + 1)]
            stages = [orrery.Stage(segments=[orrery.Segment(
                first_block=first, last_block=following - 1,
                groups=[orrery.Group(devices=[device])])])
                for device, first, following in zip(devices, cuts, cuts[1:])]
            return orrery.Plan(pipelines=[orrery.Pipeline(micro_batches=model.samples,
                                                          stages=stages)])

        def first_plan(self, live):
            if len(live) < least:
                return orrery.Infeasible(constraint="nodes", witness="too few nodes")
            return self.plan_on(live)

        def checkpoints(self, plan, iteration_time):
            if system != "varuna":
                return []
            takes = round(model.varuna_checkpoint * SECOND)
            return [orrery.CheckpointLevel(location="cloud", every=CHECKPOINT_EVERY, stall=takes,
                                           persist=takes, source="Oobleck's artifact")]

        def on_events(self, state, events):
            nodes = len(orrery.plan_devices(state.plan)) if state.plan else 0
            if self.goes_on(state, events):
                return orrery.RecoveryDecision()
            if len(state.live) < least:
                return orrery.RecoveryDecision(action="wait", reason="too few nodes")
            decision = orrery.RecoveryDecision(action="resume", plan=self.plan_on(state.live),
                                               resume_iteration=state.iteration,
                                               reason="loss of a node")
            if system == "varuna":
                decision.resume_iteration = next((copy.iteration for copy in state.replicas
                                                  if copy.location == "cloud"), 0)
            if nodes > 0:
                decision.phases = [orrery.RecoveryPhase(
                    kind="reinitialize", duration=round(self.stall(nodes) * SECOND),
                    source="Oobleck's artifact")]
            return decision

        def goes_on(self, state, events):
            """The plan, or the recovery that brings it up, has all its nodes."""
            if state.plan is None or not (set(orrery.plan_devices(state.plan)) <= set(state.live)):
                return False
            came = sum(event.kind == "join" for event in events)
            waited = len(state.live) - came < least
            return state.training or not waited

        def stall(self, nodes):
            if system == "oobleck":
                return model.oobleck_stall
            if system == "bamboo":
                return model.bamboo_rebuild
            by_nodes = model.varuna_restart_by_nodes
            restart = at_nodes(by_nodes, nodes) if by_nodes else model.varuna_restart
            return restart - model.varuna_checkpoint

    return NodePolicy


def training_of(model, trace):
    """What replay needs to know of nodes and model; nothing of it enters the times."""
    gpu = orrery.GpuType(name="gpu", vendor="any", peak={"fp16": 1e14}, memory=16 * 1024**3,
                         memory_bandwidth=1e12)
    links = {name: orrery.LinkClass(name=name, bandwidth=bandwidth, latency=4e-6, source="any")
             for name, bandwidth in (("slot", 50e9), ("nic", 25e9))}
    nodes = [orrery.Node(name=node.name, gpu_types=[0],
                         domains=[orrery.LinkDomain(members=[0], link="slot")],
                         pcie=[orrery.PcieSwitch(members=[0], link="slot")],
                         nics=[orrery.Nic(link="nic")]) for node in trace.nodes]
    shape = orrery.ModelShape(name=model.name, layers=len(nodes), hidden=1, heads=1, kv_heads=1,
                              head_dim=1, ffn=1, vocabulary=1)
    return orrery.Training(
        orrery.Cluster(name="oobleck", gpu_types=[gpu], links=links, nodes=nodes), shape,
        orrery.Job(global_batch=model.samples, sequence_length=1, dtype="fp16"))


def delay_joins(trace):
    """Nodes that come after the start come NODE_READY later; those that leave before do not
    come."""
    events, booting = [], {}
    for event in trace.events:
        node = event.scope.node
        if event.kind == "join" and event.time > 0:
            booting[node] = event.replace(time=event.time + round(NODE_READY * SECOND))
            continue
        came = booting.pop(node, None)
        if came is not None:
            if came.time > event.time:
                continue
            events.append(came)
        events.append(event)
    events += [booting[node] for node in sorted(booting)]
    return orrery.sort_events(trace.replace(events=events))


def count(model, system, throughput, trace):
    """`trace`: nodes of one GPU, as orrery.import_trace() reads them. The job waits for the nodes
    for which there is a throughput above zero, LEAST_NODES at least."""
    rates = {nodes: at_nodes(throughput, nodes)
             for nodes in range(LEAST_NODES, max(throughput) + 1)}
    rates = {nodes: rate for nodes, rate in rates.items() if rate > 0}
    least = min(rates)
    delayed = delay_joins(trace)
    # Fewer nodes never run.
    replayed = training_of(model, delayed).replay(
        delayed, policy_of(model, system, least), iteration_time={1: rates[least]} | rates,
        transfer_time=0.0)
    begun = next((point for point in replayed.points if point.samples_per_second > 0), None)
    if begun is None:
        return Count()
    before = begun.at * 1e-9
    time = replayed.horizon * 1e-9 - before
    share = {name: wall * 1e-9 / time for name, wall in zip(orrery.BUCKETS, replayed.wall)}
    return Count(replayed.samples / time, share["productive"] + share["degraded"],
                 share["checkpoint"], share["reinitialize"], share["rolled_back"],
                 share["idle"] - before / time)
