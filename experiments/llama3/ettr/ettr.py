"""Effective training time of long runs against closed forms at points that papers publish, Llama 3's
number of interruptions over seeds of the trace generator, and Gemini's placement. Prints a CSV.

    ettr.py [SEEDS [FAILURES]]      default: 30 seeds of 2,000 failures

A job loses its processes at random times, exponentially distributed with mean M. Closed forms:
- exact, with checkpoints of cost w after each D of training and restarts of R, which can fail too:
  D / (M exp(R / M) (exp((D + w) / M) - 1)). [Daly, FGCS 2006, eq. 20]
- additive, its first order: (1 - (R + D / 2) / M) / (1 + w / D). [Kokolis et al. 2025, arXiv
  2410.21680] It is what the papers' points were computed by.
- recoveries that lose no work and wait for one another like customers in a queue: 1 - R / M. If a
  failure during a recovery makes it start over: exp(-R / M)."""

import math
import sys
from pathlib import Path

import orrery
import yaml

FOLDER = Path(__file__).parent
NANO = 10**9
#: Iterations between checkpoints: any number gives the same time.
ITERATIONS = 100
#: Without checkpoints iterations are so short that the one in flight does not count (1e-5 of the
#: time at most).
SHORT = 0.02  # seconds


class Point:
    """A published point, as far as its inputs are known (points.yaml)."""

    def __init__(self, row):
        self.name, self.gpus = row["name"], row["gpus"]  # eight to a node
        self.rate = self.gpus / 8.0 * row["failures_per_1000_node_days"] / 1000 / 86400
        self.mean = 1 / self.rate  # seconds between failures of the job
        self.restart, self.stall = float(row["restart"]), float(row.get("stall", 0))
        self.recovery = row.get("recovery", "checkpoint")
        self.interval = float(row.get("interval", 0))
        if self.checkpoints and not self.interval:
            self.interval = orrery.young_interval(self.stall, self.rate)
        self.published, self.published_is = row.get("published"), row.get("published_is", "")
        self.source = row["source"]

    @property
    def checkpoints(self):
        return self.recovery == "checkpoint"

    def exact(self):
        restart = self.restart / self.mean
        if self.recovery == "queued":
            return 1 - restart
        if self.recovery == "from_scratch":
            return math.exp(-restart)
        cycle = (self.interval + self.stall) / self.mean
        return self.interval / (self.mean * math.exp(restart) * math.expm1(cycle))

    def additive(self):
        if not self.checkpoints:
            return 1 - self.restart * self.rate
        return orrery.expected_ettr(self.rate, self.restart, self.interval, self.stall)


def points():
    return [Point(row) for row in yaml.safe_load((FOLDER / "points.yaml").read_text())]


class OnePlan(orrery.RecoveryPolicy):
    """Resumes the only plan after a restart: from the last checkpoint, or losing nothing."""

    point = None
    recovered = []  # by number of the failure: when its recovery ends, in a queue of recoveries

    def first_plan(self, live):
        segment = orrery.segment_of_layers(self.input.workload, 0, 1)
        segment.groups = [orrery.Group(devices=[0])]
        return orrery.Plan(pipelines=[orrery.Pipeline(stages=[orrery.Stage(segments=[segment])])])

    def checkpoints(self, plan, iteration_time):
        if not self.point.checkpoints:
            return []
        stall = round(self.point.stall * NANO)
        return [orrery.CheckpointLevel(every=ITERATIONS, stall=stall, persist=stall)]

    def on_events(self, state, events):
        iteration, stall = state.iteration, round(self.point.restart * NANO)
        if self.point.checkpoints:
            iteration = state.replicas[0].iteration if state.replicas else 0
        elif self.point.recovery == "queued":
            stall = self.recovered[events[-1].sequence] - state.now
        phase = orrery.RecoveryPhase(kind="reinitialize", duration=stall, source=self.point.source)
        return orrery.RecoveryDecision(action="resume", plan=state.plan or self.first_plan([]),
                                       resume_iteration=iteration, phases=[phase],
                                       reason="failure")


def failures_of_job(mean, seed, failures):
    """Failures of the whole job with exponential gaps, over that many mean times."""
    horizon, rng, events = round(mean * failures * NANO), orrery.Rng(seed), []
    at = rng.exponential(1 / mean)
    while round(at * NANO) < horizon:
        events.append(orrery.ClusterEvent(time=round(at * NANO), kind="fail",
                                          scope=orrery.EventScope(kind="job"),
                                          sequence=len(events)))
        at += rng.exponential(1 / mean)
    return orrery.Trace(nodes=[orrery.TraceNode(name="node", gpu_type="A100-80GB", gpus=1)],
                        horizon=horizon, events=events)


def one_gpu():
    return orrery.Training(
        {"schema": "orrery/cluster/1", "name": "ettr", "nodes": [
            {"name": "node", "gpus": {"type": "A100-80GB", "count": 1},
             "nics": {"link": "infiniband-200"}}]},
        orrery.ModelShape(name="one layer", layers=1, hidden=1, heads=1, kv_heads=1, head_dim=1,
                          ffn=1, vocabulary=1), global_batch=1, sequence_length=1)


def replayed(at, point, seed, failures):
    """By replay, over a trace of `failures` mean times. Points that are to be independent need
    different seeds: the gaps of a seed are the same up to their mean."""
    trace = failures_of_job(point.mean, seed, failures)
    recovered, free = [], 0
    for event in trace.events:
        free = max(free, event.time) + round(point.restart * NANO)
        recovered.append(free)
    iteration = point.interval / ITERATIONS if point.checkpoints else SHORT
    policy = type("Policy", (OnePlan,), {"point": point, "recovered": recovered})
    return at.replay(trace, policy, iteration_time=iteration, transfer_time=0).ettr


def print_ettr(seeds, failures):
    at, seed = one_gpu(), 0
    for point in points():
        values = [replayed(at, point, seed + i, failures) for i in range(1, seeds + 1)]
        seed += seeds
        mean, half = orrery.confidence(values, 0.99)
        interval = f"{point.interval:.1f}" if point.checkpoints else ""
        published = "" if point.published is None else f"{point.published:g}"
        print(f"\"{point.name}\",ettr,{point.gpus},{point.mean:.1f},{point.restart:g},{interval},"
              f"{point.stall:g},{seeds},{mean:.5f},{half:.5f},{point.exact():.5f},"
              f"{point.additive():.5f},{published},{point.published_is},\"{point.source}\"")


def llama3_interruptions(cluster, seed):
    """Unexpected interruptions in 54 days of the library's generator."""
    return orrery.unexpected_interruptions(orrery.generate_trace("llama3", cluster, days=54, seed=seed))


def llama3_cluster():
    """2,048 nodes of 8 GPUs, without the spares."""
    cluster = orrery.load_cluster(FOLDER.parent / "cluster.yaml")
    cluster.nodes = cluster.nodes[:2048]
    return cluster


def print_interruptions(seeds):
    cluster = llama3_cluster()
    mean, half = orrery.confidence(
        [float(llama3_interruptions(cluster, seed)) for seed in range(1, seeds + 1)], 0.99)
    # Published: 419 on 16,384 GPUs. [arXiv 2407.21783, Table 5]
    print(f"\"Llama 3, 54 days\",interruptions,16384,,,,,{seeds},{mean:.2f},{half:.2f},419,,419,"
          "measured,arXiv 2407.21783")


def print_placement():
    for name, placement, lost, published in (
            ("Gemini, groups, 2 of 16 lost", "mixed", 2, 0.933),
            ("Gemini, groups, 3 of 16 lost", "mixed", 3, 0.800),
            ("Gemini, ring, 2 of 16 lost", "ring", 2, 0.867)):
        survival = orrery.replica_survival(16, 2, lost, placement)
        print(f"\"{name}\",survival,,,,,,,{survival:.5f},,,,{published:g},about,"
              "\"Gemini, SOSP 2023, 4.2 (unverified)\"")


def main():
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 30
    failures = int(sys.argv[2]) if len(sys.argv) > 2 else 2000
    print("point,quantity,gpus,mean_between_failures_s,restart_s,interval_s,stall_s,seeds,mean,"
          "half_width,exact,additive,published,published_is,source")
    print_ettr(seeds, failures)
    print_interruptions(seeds)
    print_placement()


if __name__ == "__main__":
    main()
