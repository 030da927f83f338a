"""Counts throughput as the simulators of Oobleck's artifact do, to reproduce the published digits
of Figures 9 and 10. The rules, found in the artifact and written down here in our own form:

1. All times are whole milliseconds; a step takes floor(samples / throughput * 1000). The throughput
   is that of all nodes that are ready, waiting ones too, when a rendezvous ends.
2. The first node that is ready starts a rendezvous; its end starts steps if 12 nodes take part.
   Nodes that come later count from the next rendezvous on. A loss starts a rendezvous (in Bamboo
   only if it is fatal), during which steps go on and count as before. At its end the step in flight
   is dropped and a whole one starts.
3. A second loss during a rendezvous starts another one, but the first to end takes all nodes and
   leaves none to the other, which stops the job until a node comes or goes: losses at one instant,
   as in Figure 10, stop it.
4. Throughput = samples of the steps that count / (end of the last step - end of the first
   rendezvous). Bamboo and Oobleck lose nothing but the step in flight.
5. Varuna: a checkpoint after each 10th step, steps that were lost since included, and after the
   first step since a loss. It fails if a loss precedes its end, counted twice as far away as it is,
   in the memory order of the event queue; then the last 10 steps do not count. At a loss all steps
   since the last checkpoint do not count; without one, none so far.
6. Bamboo: 12 stages in a row of nodes; a loss doubles the load of the node before it, is fatal if
   that node has two already or is the one lost. From the first loss until the next rendezvous steps
   take 1.5 times as long, even if the lost node was only waiting. At the end of a step it
   reconfigures (inputs.py: bamboo_rebuild) if overloaded nodes could be replaced, are more than
   2.5 %, or another pipeline fits.
7. Breakdown: `effective` has each step that was started, also those that never end; `fallback` one
   step a loss (Varuna: 2k - 1 steps for k steps that do not count, which are in `effective` as
   well, again at each loss). Shares are of the sum of all parts.

Events are a binary heap by (time, kind). Order among equal events, and the order in memory, are
part of the published digits (rule 5 and the places of Bamboo's nodes): those of Python's heapq,
which the artifact uses."""

import heapq
from dataclasses import dataclass, field

from inputs import (BAMBOO_RESTART, BAMBOO_SLOWDOWN, BAMBOO_USEFUL, CHECKPOINT_EVERY, LEAST_NODES,
                    NODE_READY, at_nodes)

ADD, REMOVE, READY, FATAL_RENDEZVOUS, RENDEZVOUS, STEP, CHECKPOINT = range(7)
NEVER = 1_000_000_000_000  # ms


@dataclass
class Event:
    ms: int
    kind: int
    subject: object = None  # name of the node; of a step: number of the rendezvous

    def __lt__(self, other):
        return (self.ms, self.kind) < (other.ms, other.kind)


@dataclass
class Node:
    name: str
    state: str = "booting"  # then waiting or working
    places: list = field(default_factory=list)  # (pipeline, stage); two: a lost neighbor's as well


@dataclass
class Breakdown:
    """Milliseconds."""
    effective: float = 0.0
    redundant: float = 0.0
    checkpoint: float = 0.0
    restart: float = 0.0
    fallback: float = 0.0

    def sum(self):
        return self.effective + self.redundant + self.checkpoint + self.restart + self.fallback


@dataclass
class Count:
    samples_per_second: float
    steps: int
    breakdown: Breakdown


def to_ms(seconds):
    return int(seconds * 1000 + 0.5)


class Simulation:
    def __init__(self, model, system, throughput, changes, falls_back):
        self.model = model
        self.system = system
        self.throughput = throughput
        self.falls_back = falls_back  # Varuna goes back to checkpoints (rule 5)
        self.queue = []
        for change in changes:
            self.push(change.ms, ADD if change.comes else REMOVE, change.name)
        heapq.heapify(self.queue)
        self.end = self.queue[-1].ms
        self.state = "stopped"  # or rendezvous, running
        self.nodes = {}  # by name, in order of arrival
        self.participants = []
        self.rendezvous = 0
        self.pipelines = 0
        self.waiting = 0
        self.step_ms = 0
        self.restart_ms = to_ms(model.varuna_restart)
        self.started = None
        self.step_began = 0
        self.steps = 0
        self.loss = None  # Bamboo's first since the last rendezvous: steps so far, time
        self.loss_paid = False
        self.lost_since_checkpoint = False  # Varuna
        self.checkpointed = None
        # Ends of steps, from and to by turns, and samples per second at each. Varuna's fall-backs
        # can make `rates` the longer one; the count pairs them by position.
        self.ends = []
        self.rates = []
        self.breakdown = Breakdown()

    def push(self, ms, kind, subject=None):
        heapq.heappush(self.queue, Event(ms, kind, subject))

    def run(self):
        while self.queue:
            event = heapq.heappop(self.queue)
            if event.ms >= self.end:
                break
            self.handle(event)
        return self.result()

    def handle(self, event):
        if event.kind == ADD:
            self.nodes[event.subject] = Node(event.subject)
            self.push(event.ms + to_ms(NODE_READY), READY, event.subject)
        elif event.kind == REMOVE:
            self.remove(event.subject, event.ms)
        elif event.kind == READY:
            self.ready(event.subject, event.ms)
        elif event.kind in (FATAL_RENDEZVOUS, RENDEZVOUS):
            self.end_rendezvous(event.ms, event.kind == FATAL_RENDEZVOUS)
        elif event.kind == STEP and event.subject == self.rendezvous:
            self.end_step(event)

    def ready(self, name, now):
        if name not in self.nodes:
            return
        self.nodes[name].state = "waiting"
        if self.state == "stopped":
            self.start_rendezvous(now, True)
        elif self.state == "rendezvous":
            self.participants.append(name)
        else:
            self.waiting += 1

    def remove(self, name, now):
        lost = self.nodes.pop(name)
        if self.system == "varuna":
            self.lost_since_checkpoint = True
            if self.falls_back:
                self.fall_back(now)
        else:
            self.breakdown.fallback += self.step_ms
            if self.system == "oobleck":
                heapq.heapify(self.queue)
        if self.system != "bamboo" or (lost.state == "working" and not self.shadowed(lost)):
            self.start_rendezvous(now, True)
        else:
            self.slow_down(now)

    def shadowed(self, lost):
        """Whether the node before it takes over; False: its work is lost."""
        if len(lost.places) > 1:
            return False
        pipeline, stage = lost.places[0]
        before = (pipeline, (stage + LEAST_NODES - 1) % LEAST_NODES)
        for node in self.nodes.values():
            if before in node.places:
                if len(node.places) > 1:
                    return False
                node.places.append((pipeline, stage))
                break
        return True

    def slow_down(self, now):
        if self.state == "running" and self.loss is None:
            self.loss = (self.steps, now)
            self.loss_paid = False
            self.step_ms = int(self.step_ms * BAMBOO_SLOWDOWN)

    def start_rendezvous(self, now, fatal):
        self.state = "rendezvous"
        self.schedule_rendezvous(now, fatal)

    def schedule_rendezvous(self, now, fatal):
        self.participants = [node.name for node in self.nodes.values() if node.state != "booting"]
        if self.system == "bamboo":
            takes = to_ms(BAMBOO_RESTART if fatal else self.model.bamboo_rebuild)
        elif self.system == "varuna":
            takes = self.restart_ms - to_ms(self.model.varuna_checkpoint)
        else:
            takes = to_ms(self.model.oobleck_stall)
        self.breakdown.restart += takes
        self.push(now + takes, FATAL_RENDEZVOUS if fatal else RENDEZVOUS)

    def end_rendezvous(self, now, fatal):
        if not all(name in self.nodes for name in self.participants):
            self.schedule_rendezvous(now, fatal)
            return
        self.place_nodes()
        self.loss = None
        self.loss_paid = False
        self.rendezvous += 1
        self.participants = []
        if self.pipelines == 0:
            self.state = "stopped"
            return
        self.state = "running"
        self.take_throughput()
        self.start_step(now)
        if self.started is None:
            self.started = self.step_began = now

    def place_nodes(self):
        self.pipelines = len(self.participants) // LEAST_NODES
        working = self.pipelines * LEAST_NODES
        self.waiting = len(self.participants) - working
        for i, name in enumerate(self.participants):
            node = self.nodes[name]
            node.state = "working" if i < working else "waiting"
            node.places = [divmod(i, LEAST_NODES)] if i < working else []

    def take_throughput(self):
        active = sum(node.state != "booting" for node in self.nodes.values())
        rate = at_nodes(self.throughput, active)
        self.step_ms = NEVER if rate == 0 else int(self.model.samples / rate * 1000)
        if self.model.varuna_restart_by_nodes:
            self.restart_ms = to_ms(at_nodes(self.model.varuna_restart_by_nodes, active))

    def start_step(self, now):
        useful = BAMBOO_USEFUL if self.system == "bamboo" else 1.0
        self.breakdown.effective += self.step_ms * useful
        self.breakdown.redundant += self.step_ms * (1 - useful)
        self.push(now + self.step_ms, STEP, self.rendezvous)

    def end_step(self, event):
        if self.loss is not None and not self.loss_paid and self.loss[0] == self.steps:
            more = int((event.ms - self.loss[1]) * (BAMBOO_SLOWDOWN - 1))
            self.push(event.ms + more, STEP, event.subject)
            self.loss_paid = True
            return
        self.steps += 1
        seconds = (event.ms - self.step_began) / 1000
        rate = 0.0 if seconds == 0 else self.model.samples / seconds
        self.ends += [self.step_began, event.ms]
        self.rates += [rate, rate]
        self.step_began = event.ms
        if self.system == "varuna" and (self.steps % CHECKPOINT_EVERY == 0 or
                                        self.lost_since_checkpoint):
            self.take_checkpoint()
        if self.system == "bamboo" and self.should_rebuild():
            self.start_rendezvous(self.step_began, False)
        else:
            self.start_step(self.step_began)

    def take_checkpoint(self):
        takes = to_ms(self.model.varuna_checkpoint)
        self.lost_since_checkpoint = False
        self.step_began += takes
        self.breakdown.checkpoint += takes
        self.push(self.step_began + takes, CHECKPOINT)
        heapq.heapify(self.queue)
        if not self.falls_back or not self.checkpoint_fails():
            self.checkpointed = self.step_began
            return
        self.breakdown.fallback += CHECKPOINT_EVERY * self.step_ms
        self.steps = max(0, self.steps - CHECKPOINT_EVERY)
        # Two entries a step. A shorter list grows: what follows is no longer next to its own times.
        entries = 2 * CHECKPOINT_EVERY
        self.rates[-entries:] = [0.0] * entries

    def checkpoint_fails(self):
        for event in self.queue:  # in memory
            if event.kind in (REMOVE, CHECKPOINT):
                return event.kind == REMOVE
        return False

    def fall_back(self, now):
        if self.checkpointed is None:
            self.rates = [0.0] * len(self.rates)
            self.breakdown.fallback += now
            return
        known = min(len(self.ends), len(self.rates))
        at = 0
        while at + 1 < known and self.ends[at] != self.checkpointed:
            at += 1
        start = min(at + 1, len(self.rates))
        count = len(self.rates) - start
        self.rates[start:] = [0.0] * count
        self.breakdown.fallback += float(self.step_ms) * count

    def should_rebuild(self):
        overloaded = sum(node.state == "working" and len(node.places) > 1
                         for node in self.nodes.values())
        active = self.pipelines * LEAST_NODES - overloaded
        if overloaded > 0 and (self.waiting >= overloaded or 2.0 * overloaded / active > 0.05):
            return True
        return (active + self.waiting) // LEAST_NODES > self.pipelines

    def result(self):
        if not self.ends or self.ends[-1] == self.started:
            return Count(0.0, self.steps, self.breakdown)
        samples = 0.0
        for i in range(1, min(len(self.ends), len(self.rates)), 2):
            samples += (self.ends[i] - self.ends[i - 1]) / 1000 * self.rates[i]
        return Count(samples / ((self.ends[-1] - self.started) / 1000), self.steps, self.breakdown)


def count(model, system, throughput, changes, falls_back):
    """`changes` in the order of the file; `falls_back`: Varuna goes back to checkpoints (rule
    5)."""
    return Simulation(model, system, throughput, changes, falls_back).run()
