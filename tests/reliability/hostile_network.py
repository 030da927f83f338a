#!/usr/bin/env python3
"""Trains through faults of network, processes and disks: is a loss ever wrong, does a run ever hang?

  hostile_network.py [--trials N] [--seed S] [--table FILE]

Each trial draws a plan, a recovery policy or none, an interval of checkpoints and one to three
faults of faults.cpp (a flipped bit in a frame or in a checkpoint, a reset or half-open connection,
a delayed, stalled, stopped or killed rank, a full disk), or the death of the launcher. What the
kernel's TCP hides from a program (loss and reordering of packets) shows as delay. A run must end
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
import sys
import threading
import time

import faults
from faults import FILE_KINDS, KINDS, Runner

STRIKES = ["flip", "reset", "cut", "delay", "stall", "stop", "kill_sending", "flip_file", "full",
           "broken"]
PLANS = ["two_stages", "two_replicas", "three_parts"]
POLICIES = [None, "torchft", "hetu"]
STEPS = 6
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
    def __init__(self, program, shim):
        super().__init__(program, shim)
        self.references = {}

    def words(self, plan, folder, policy, every):
        cluster = "a100_8" if plan != "two_stages" else "experiments/executor/this_machine.yaml"
        words = ["execute", f"experiments/executor/{plan}.yaml", "--cluster", cluster, "--model",
                 "experiments/executor/tiny_llama.yaml", "--sequence-length", "32", "--precision",
                 "fp64", "--steps", STEPS, "--silence", "2", "--out", folder / "out", "--quiet"]
        if policy:
            words += ["--elastic", policy]
        if every:
            words += ["--checkpoint-every", every, "--checkpoints", folder / "checkpoints"]
        return words

    def reference(self, plan):
        if plan not in self.references:
            folder = self.base / f"reference-{plan}"
            folder.mkdir()
            process = self.start(self.words(plan, folder, None, 1), fault="")
            code, output, problem = self.finish(process)
            if code != 0 or problem:
                sys.exit(f"{plan} fails undisturbed: {problem}\n{output}")
            self.references[plan] = losses(folder / "out"), process.struck
        return self.references[plan]

    def trial(self, rng):
        """(faults, what was run, outcome, problems)"""
        plan, policy = rng.choice(PLANS), rng.choice(POLICIES)
        every = rng.choice([None, 1, 2])
        expected, counts = self.reference(plan)
        kinds = sorted(rng.sample(STRIKES, rng.choice([1, 1, 2, 3])))
        launcher_dies = rng.random() < 0.08
        orders = []
        for kind in kinds:
            at = rng.randrange(max(1, counts[KINDS.index(kind)]))
            stays = kind in ("delay", "full", "broken") and rng.random() < 0.5
            orders.append(f"{kind}:{at}" + (":stays" if stays else ""))
        after = rng.uniform(0.1, 2)
        fault = ",".join(orders)
        what = f"{plan} {policy} every={every} {fault}"
        self.number += 1
        folder = self.base / f"trial{self.number}"
        folder.mkdir()
        process = self.start(self.words(plan, folder, policy, every), fault)
        if launcher_dies:
            what += f" launcher dies after {after:.2f} s"
            threading.Timer(after, lambda: process.poll() is None
                            and os.kill(process.pid, signal.SIGKILL)).start()
        code, output, problem = self.finish(process, LIMIT)
        found = losses(folder / "out")
        problems = [problem] if problem else []
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


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--trials", type=int, default=500)
    faults.add_arguments(parser)
    args = parser.parse_args()
    runner = Training(str(args.program), args.shim)
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
    finally:
        runner.close()
    faults.report(counts, ["fault"],
                  ["runs", "undisturbed", "recovered", "said why", "launcher died", "failures"],
                  args.table)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
