#!/usr/bin/env python3
"""Hours of training with failures and of replays: do memory, descriptors and losses stay as they are?

  soak.py [--minutes M] [--seed S] [--table FILE]

Alternates until the time is up:
- a training of STEPS steps (--elastic torchft, checkpoints) of which up to three ranks are killed,
  at moments drawn over the time that the first training takes, which nothing disturbs. Its losses
  must be those of the first one (fp64, to 1e-9). Memory and open descriptors of launcher and ranks
  are read all along: while no rank is killed, from STEADY steps after a process's start or the last
  kill on, none may have a tenth (and 8 MiB) of memory more in the last quarter than in the second;
  at no time more than two descriptors more than its like had in the first training, or, in a
  training without kills, more of them late than early;
- a replay on a cluster of the library, with a policy and a seed that are drawn, twice: the same
  bytes, and nothing left behind.
Prints a line for each; exit code 1: something was wrong.
"""
import argparse
import csv
import os
import pathlib
import random
import shutil
import signal
import statistics
import sys
import time

import faults
from faults import Runner
from hostile_network import losses

STEPS = 500
STEADY = 20  # Until then a process starts: it connects and takes its memory.
SAMPLES = 60  # Of a process, over the first training.
CLUSTERS = ["a100_8", "hexiscale_case_study"]
POLICIES = ["torchft", "bamboo", "oobleck", "hetu", "varuna", "parcae", "unicron"]


def usage(pid):
    """Resident bytes and open descriptors; none when it is gone."""
    try:
        pages = int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE"), len(os.listdir(f"/proc/{pid}/fd"))
    except (OSError, IndexError):
        return None


def is_rank(pid):
    try:
        return b"execute-rank" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def lines(path):
    return path.read_bytes().count(b"\n") if path.exists() else 0


def growth(samples, most, kills):
    """What is wrong with samples (bytes, descriptors, steps so far) of one process, in a training
    of which ranks were killed after so many steps each."""
    problems = []
    # Less than `most` shows nothing: while a rank is dead the others have no connection to it.
    descriptors = max(sample[1] for sample in samples)
    if descriptors > most + 2:  # Another plan may need another connection.
        problems.append(f"{descriptors} descriptors in place of {most}")
    # Where ranks are missing the others hold more of the model, so that kills part what is compared.
    for begin, end in zip([samples[0][2], *kills], [*kills, sys.maxsize]):
        steady = [sample for sample in samples
                  if max(begin, samples[0][2]) + STEADY <= sample[2] < end]
        if len(steady) < 16:
            continue
        quarter = len(steady) // 4
        (early, early_open), (late, late_open) = (
            [statistics.median(sample[i] for sample in part) for i in range(2)]
            for part in (steady[quarter:2 * quarter], steady[-quarter:]))
        if late > 1.1 * early + (8 << 20):
            problems.append(f"memory grew from {early / 2**20:.0f} to {late / 2**20:.0f} MiB")
        if late_open > early_open and not kills:
            problems.append(f"descriptors grew from {early_open:.0f} to {late_open:.0f}")
    return problems


class Soak(Runner):
    expected = None  # Losses of the first training.
    duration = 60  # Of the first training, when it is known.
    most = {}  # Descriptors in the first training, by whether it is a rank.

    def train(self, rng):
        self.number += 1
        folder = self.base / f"train{self.number}"
        folder.mkdir()
        first = self.expected is None
        moments = sorted(rng.uniform(0.1, 1) * self.duration
                         for _ in range(0 if first else rng.randint(0, 3)))
        process = self.start(
            ["execute", "experiments/executor/two_replicas.yaml", "--cluster", "a100_8",
             "--model", "experiments/executor/tiny_llama.yaml", "--sequence-length", "32",
             "--precision", "fp64", "--steps", STEPS, "--out", folder / "out", "--quiet",
             "--elastic", "torchft", "--checkpoint-every", "50", "--checkpoints",
             folder / "checkpoints"])
        samples, kills = {}, []  # Steps before each kill.
        begin = time.monotonic()
        while process.poll() is None:
            steps = lines(folder / "out/losses.csv")
            pids = faults.processes_of(process.pid)
            ranks = [pid for pid in pids if is_rank(pid)]
            for pid in pids:
                found = usage(pid)
                if found and (pid in ranks or pid == process.pid):
                    samples.setdefault(pid, []).append((*found, steps))
            if (len(moments) > len(kills) and len(ranks) > 2
                    and time.monotonic() - begin > moments[len(kills)]):
                os.kill(rng.choice(ranks), signal.SIGKILL)
                kills.append(steps)
            time.sleep(self.duration / SAMPLES if self.expected else 0.2)
        duration = time.monotonic() - begin
        code, output, problem = self.finish(process)
        found = losses(folder / "out")
        if first:
            if code != 0:
                sys.exit(f"training fails undisturbed: {problem}\n{output}")
            self.expected, self.duration = found, duration
            for pid, of_one in samples.items():
                rank = pid != process.pid
                self.most[rank] = max(self.most.get(rank, 0), *(sample[1] for sample in of_one))
        problems = [problem] if problem else []
        # Kills may leave too little to go on with: that is said, and no fault.
        said = [line for line in output.splitlines() if line.startswith("orrery:")]
        if code not in (0, 1) or (code == 1 and not said):
            problems.append(f"exit code {code}: {output.strip()[-300:]}")
        worst = max((abs(loss - self.expected[step]) / abs(self.expected[step])
                     for step, loss in found.items()), default=0)
        if worst > 1e-9:
            problems.append(f"a loss is off by {worst:.2g}")
        for pid, of_one in samples.items():
            problems += growth(of_one, self.most[pid != process.pid], kills)
        launcher = samples.get(process.pid, [(0, 0, 0)])
        others = [sample for pid in samples if pid != process.pid for sample in samples[pid]]
        text = f"{len(found)} steps, {len(kills)} kills, worst loss {worst:.1e}" + "".join(
            f", {what} {max(sample[0] for sample in of_it) >> 20} MiB and "
            f"{max(sample[1] for sample in of_it)} descriptors"
            for what, of_it in (("launcher", launcher), ("ranks", others)) if of_it)
        text += "" if code == 0 else f", ended: {said[-1] if said else code}"
        shutil.rmtree(folder, ignore_errors=True)
        return text, problems

    def replay(self, rng):
        cluster, policy = rng.choice(CLUSTERS), rng.choice(POLICIES)
        days, seed = rng.choice([2, 10, 40]), rng.randrange(1, 10**6)
        self.number += 1
        folder = self.base / f"replay{self.number}"
        results, problems, codes = [], [], []
        for part in ("a", "b"):
            words = ["replay", "--cluster", cluster, "--model", "gpt3_1.3b", "--global-batch", "64",
                     "--sequence-length", "1024", "--generate", "llama3", "--days", days,
                     "--policy", policy, "--seeds", f"{seed},{seed + 1}", "--results",
                     folder / part, "--cache", "off" if part == "a" else self.base / "store",
                     "--no-figure", "--quiet", "--workers", 1]
            code, output, problem = self.finish(self.start(words), 1800)
            codes.append(code)
            if problem or code not in (0, 1):
                problems.append(f"{problem or code}: {output.strip()[-300:]}")
            results.append({path.relative_to(folder / part): path.read_bytes()
                            for path in (folder / part).rglob("*")
                            if path.is_file() and path.name != "timings.csv"})
        if results[0] != results[1] or codes[0] != codes[1]:
            problems.append("two calls differ")
        shutil.rmtree(folder, ignore_errors=True)
        return f"{policy} on {cluster}, {days} days, seed {seed}, exit code {codes[0]}", problems


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    faults.add_arguments(parser)
    args = parser.parse_args()
    soak = Soak(str(args.program), args.shim)
    until = time.monotonic() + 60 * (args.minutes or 480)
    rows = [["what", "detail", "problems"]]
    number = 0
    try:
        while time.monotonic() < until:
            rng = random.Random(f"{args.seed} {number}")
            what = "replay" if number % 4 else "train"
            text, problems = getattr(soak, what)(rng)
            rows.append([what, text, "; ".join(problems)])
            print(*rows[-1], sep="  ", flush=True)
            number += 1
    finally:
        soak.close()
    wrong = sum(bool(row[2]) for row in rows[1:])
    print(f"{number} rounds, {wrong} wrong")
    if args.table:
        with args.table.open("w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(rows)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
