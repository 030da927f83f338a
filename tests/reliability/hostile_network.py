#!/usr/bin/env python3
"""Trains through faults of network, processes and disks: is a loss ever wrong, does a run ever hang?

  hostile_network.py [--netlab] [--trials N] [--seed S] [--table FILE]

Each trial draws a plan, a recovery policy or none, an interval of checkpoints and one to three
faults of faults.cpp (a flipped bit in a frame or in a checkpoint, a reset or half-open connection,
a delayed, stalled, stopped or killed rank, a full disk), steps of the wall clock by up to a day
(clock_shim.cpp), or the death of the launcher. What the kernel's TCP hides from a program (loss and reordering of packets) shows as delay; with --netlab
each rank has an emulated node of its own, and frames between nodes are lost, held back so that
others overtake them, or do not arrive one way or both, for a while or for good. A run must end
  - completed, with the losses of an undisturbed run (in fp64, to 1e-9),
  - or with exit code 1 and a reason, its losses so far being right (2 where a file was disturbed),
  - and without a process left ten seconds later.
Prints a table of faults and outcomes, and for every failure how to repeat it; exit code 1 if there
was one.
"""
import argparse
import collections
import csv
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time

import faults
from faults import FILE_KINDS, KINDS, ROOT, Runner

STRIKES = ["flip", "reset", "cut", "delay", "stall", "stop", "kill_sending", "flip_file", "full",
           "broken", "clock"]
LAB_STRIKES = ["loss", "late", "one_way", "both_ways"]
PLANS = ["two_stages", "two_replicas", "three_parts"]
POLICIES = [None, "torchft", "hetu"]
STEPS = 6
CLOCKS = [-86400, -3600, -60, -1, 1, 60, 3600, 86400]  # Seconds.
# Seconds: twice the deadlines of a transfer (60), of connecting (20) and of two answers of the
# store (30 each), for two faults or a machine that does other things.
LIMIT = 280


def losses(folder):
    """By step, of the last generation that computed it."""
    path = folder / "losses.csv"
    if not path.exists():
        return {}
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    return {int(row["step"]): float(row["loss"]) for row in rows if row["step"] and row["loss"]}


class Training(Runner):
    strikes = STRIKES

    def __init__(self, args):
        super().__init__(str(args.program), args.shim)
        self.clock_shim = args.clock_shim
        self.references = {}

    def machines(self, plan):
        return ["--cluster",
                "a100_8" if plan != "two_stages" else "experiments/executor/this_machine.yaml"]

    def disturbances(self, rng, kinds):
        """[(seconds after the start, what happens then in words, how to make it happen)]"""
        if "clock" not in kinds:
            return []
        return [(rng.uniform(0.1, 4), f"clock {seconds:+} s", lambda by=seconds: self.set_clock(by))
                for seconds in rng.sample(CLOCKS, rng.choice([1, 2]))]

    def set_clock(self, seconds):
        """The wall clock of all processes of this training is so far from this machine's."""
        with self.clock.open("r+b") as file:
            file.write(struct.pack("q", seconds))

    def tidy(self):
        """After each training; what was wrong."""
        return []

    def words(self, plan, folder, policy, every):
        words = ["execute", f"experiments/executor/{plan}.yaml", *self.machines(plan), "--model",
                 "experiments/executor/tiny_llama.yaml", "--sequence-length", "32", "--precision",
                 "fp64", "--steps", STEPS, "--silence", "2", "--out", folder / "out", "--quiet"]
        if policy:
            words += ["--elastic", policy]
        if every:
            words += ["--checkpoint-every", every, "--checkpoints", folder / "checkpoints"]
        return words

    def train(self, words, folder, fault):
        self.clock = folder / "clock"
        self.clock.write_bytes(bytes(16))  # SharedClock of clock_shim.h
        return self.start(words, fault, [self.clock_shim],
                          {"ORRERY_TEST_CLOCK_FILE": str(self.clock)})

    def reference(self, plan):
        if plan not in self.references:
            folder = self.base / f"reference-{plan}"
            folder.mkdir()
            process = self.train(self.words(plan, folder, None, 1), folder, fault="")
            code, output, problem = self.finish(process)
            self.tidy()
            if code != 0 or problem:
                sys.exit(f"{plan} fails undisturbed: {problem}\n{output}")
            self.references[plan] = losses(folder / "out"), process.struck
        return self.references[plan]

    def trial(self, rng):
        """(faults, what was run, outcome, problems)"""
        plan, policy = rng.choice(PLANS), rng.choice(POLICIES)
        every = rng.choice([None, 1, 2])
        expected, counts = self.reference(plan)
        kinds = sorted(rng.sample(self.strikes, rng.choice([1, 1, 2, 3])))
        launcher_dies = rng.random() < 0.08
        orders = []
        for kind in (kind for kind in kinds if kind in KINDS):
            at = rng.randrange(max(1, counts[KINDS.index(kind)]))
            stays = kind in ("delay", "full", "broken") and rng.random() < 0.5
            orders.append(f"{kind}:{at}" + (":stays" if stays else ""))
        after = rng.uniform(0.1, 2)
        fault = ",".join(orders)
        disturbances = self.disturbances(rng, kinds)
        what = " ".join([f"{plan} {policy} every={every} {fault}",
                         *(f"after {at:.1f} s {text}" for at, text, _ in disturbances)])
        self.number += 1
        folder = self.base / f"trial{self.number}"
        folder.mkdir()
        for at, _, make in disturbances:
            if at == 0:
                make()
        process = self.train(self.words(plan, folder, policy, every), folder, fault)
        timers = [threading.Timer(at, make) for at, _, make in disturbances if at > 0]
        for timer in timers:
            timer.start()
        if launcher_dies:
            what += f" launcher dies after {after:.2f} s"
            threading.Timer(after, lambda: process.poll() is None
                            and os.kill(process.pid, signal.SIGKILL)).start()
        code, output, problem = self.finish(process, LIMIT)
        for timer in timers:
            timer.cancel()
            timer.join()
        found = losses(folder / "out")
        problems = ([problem] if problem else []) + self.tidy()
        for step, loss in found.items():
            if abs(loss - expected[step]) > 1e-9 * abs(expected[step]):
                problems.append(f"loss {loss!r} of step {step}, not {expected[step]!r}")
        if code == 0 and STEPS not in found and "losses went with" not in output:
            problems.append(f"exit code 0 after step {max(found, default=0)}")
        if code == 2 and not set(kinds) & set(FILE_KINDS):
            problems.append("refuses what an undisturbed run takes")
        if code == 1 and not output.strip():
            problems.append("exit code 1 without a reason")
        if code not in (0, 1, 2) and not (launcher_dies or "kill_sending" in kinds) and not problem:
            problems.append(f"exit code {code}: {output.strip()[-300:]}")
        generations = len({row.parent for row in (folder / "out").glob("generation-*/run.log")})
        outcome = ("launcher died" if code == -signal.SIGKILL else "said why" if code != 0 else
                   "recovered" if generations > 1 else "undisturbed")
        shutil.rmtree(folder, ignore_errors=True)
        if problems and code != 0:
            problems.append("said: " + output.strip()[-200:])
        return kinds + (["launcher dies"] if launcher_dies else []), what, outcome, problems


class LabTraining(Training):
    """Each rank on an emulated node; every training has a network of its own."""
    strikes = STRIKES + LAB_STRIKES

    def __init__(self, args):
        super().__init__(args)
        self.file = self.base / "cluster.yaml"
        text = (ROOT / "experiments/executor/netlab_4.yaml").read_text()
        name = f"hostile-{os.getpid()}"
        self.file.write_text(text.replace("name: netlab_4", f"name: {name}"))
        self.netlab("up")

    def close(self):
        self.netlab("down")
        super().close()

    def netlab(self, action, *flags):
        done = subprocess.run([self.program, "netlab", action, str(self.file), *flags], cwd=ROOT,
                              capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if done.returncode != 0:
            sys.exit(f"netlab {action}: {done.stderr}")
        return done.stdout

    def machines(self, plan):
        return ["--cluster", self.file, "--netlab"]

    def tidy(self):
        said = self.netlab("down")
        self.netlab("up")
        return [said] if "Still run" in said else []

    def disturbances(self, rng, kinds):
        always = []
        if "loss" in kinds:
            always += ["--loss", str(rng.choice([0.01, 0.05, 0.2]))]
        if "late" in kinds:
            always += ["--late", str(rng.choice([0.05, 0.3])),
                       "--lateness", rng.choice(["2 ms", "20 ms", "200 ms"])]
        one, other = rng.sample(["n0", "n1", "n2", "n3"], 2)
        cut = ["--cut", f"{one}:{other}"] if {"one_way", "both_ways"} & set(kinds) else []
        if "both_ways" in kinds:
            cut += ["--cut", f"{other}:{one}"]
        begin, length = rng.uniform(0.2, 4), rng.choice([0.3, 1, 4, None])
        told = [(0, always)] if always else []
        if cut:
            told.append((begin, always + cut))
            if length:
                told.append((begin + length, always))
        return super().disturbances(rng, kinds) + [
            (at, " ".join(flags) or "no cut", lambda flags=flags: self.netlab("disturb", *flags))
            for at, flags in told]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--trials", type=int, default=500)
    parser.add_argument("--netlab", action="store_true", help="with emulated nodes (as root)")
    parser.add_argument("--clock-shim", default=ROOT / "build/release/tests/executor/launcher"
                        "/libexecutor_launcher_clock_shim.so",
                        help="the library that steps the clock")
    faults.add_arguments(parser)
    args = parser.parse_args()
    runner = (LabTraining if args.netlab else Training)(args)
    counts = collections.defaultdict(collections.Counter)
    failures = 0
    until = time.monotonic() + 60 * args.minutes if args.minutes else float("inf")
    try:
        for number in range(args.trials) if args.only is None else [args.only]:
            if time.monotonic() > until:
                break
            kinds, what, outcome, problems = runner.trial(random.Random(f"{args.seed} {number}"))
            for kind in kinds + ["all"]:
                counts[kind,]["runs"] += 1
                counts[kind,][outcome] += 1
                counts[kind,]["failures"] += bool(problems)
            if problems:
                failures += 1
                print(f"FAILED --seed {args.seed} --only {number}: {what}: " + "; ".join(problems),
                      flush=True)
    except KeyboardInterrupt:
        print("interrupted")
    finally:
        runner.close()
    faults.report(counts, ["fault"],
                  ["runs", "undisturbed", "recovered", "said why", "launcher died", "failures"],
                  args.table)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
