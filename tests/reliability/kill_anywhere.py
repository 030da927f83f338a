#!/usr/bin/env python3
"""Stops commands at random system calls: does the same command then give the same bytes?

  kill_anywhere.py [--trials N] [--seed S] [--command NAME]... [--table FILE]

Each trial runs a command in a new folder under a fault of faults.cpp (a full disk, I/O errors,
short and interrupted transfers, the death of a process or of all) at a system call drawn from the
seed, with what the command remembers empty, full or as earlier trials left it; or starts it two or
eight times at once in one folder, one of them under a fault. Then it runs once more, undisturbed.
Wrong is
  - a hang, a crash, or a process that is left ten seconds after its command,
  - exit code 0 with other results than an undisturbed run,
  - a failure where the fault is none (short and interrupted transfers),
  - a second call that fails or whose results differ by a byte.
Clock columns (timings.csv) are left out. Prints a table, and for every failure how to repeat it;
exit code 1 if there was one.
"""
import argparse
import collections
import csv
import json
import pathlib
import random
import re
import shutil
import signal
import sys
import time

import faults
from faults import KINDS, Runner

STRIKES = ["full", "broken", "short", "interrupted", "kill", "kill_all"]
HARMLESS = ["short", "interrupted"]


class Study:
    """A sweep of six runs by two workers."""
    name = "run"
    shares = True  # Its runs with other calls on one folder.

    def words(self, folder, cache):
        return ["run", "tests/golden/case_study/manifest.yaml", "--results", folder / "out",
                "--workers", "2", "--no-figure", "--quiet", "--cache", cache]

    def results(self, folder, output):
        return tree(folder / "out")


class Replay(Study):
    """Three policies over twenty days of failures."""
    name = "replay"

    def words(self, folder, cache):
        return ["replay", "--cluster", "a100_8", "--model", "gpt3_1.3b", "--global-batch", "64",
                "--sequence-length", "1024", "--generate", "llama3", "--days", "20",
                "--policy", "checkpoint_restart,bamboo,torchft", "--results", folder / "out",
                "--workers", "2", "--no-figure", "--quiet", "--cache", cache]


class Figures(Study):
    """Two runs and a figure of them."""
    name = "figures"

    def words(self, folder, cache):
        return ["run", "tests/reliability/figures/manifest.yaml", "--results", folder / "out",
                "--workers", "1", "--quiet", "--cache", cache]


class Report(Study):
    """A plan as a page of HTML."""
    name = "report"
    shares = False

    def words(self, folder, cache):
        return ["report", "experiments/executor/two_stages.yaml", "--cluster",
                "experiments/executor/this_machine.yaml", "--model",
                "experiments/executor/tiny_llama.yaml", "--sequence-length", "32", "--cache", cache,
                "--output", folder / "page.html"]

    def results(self, folder, output):
        """But for the command, which names the folder."""
        return {path.name: re.sub(rb'"command":"[^"]*"', b"", path.read_bytes())
                for path in folder.glob("page.html")}


class Plan(Study):
    """A search, mostly for what the store of remembered answers does."""
    name = "plan"
    shares = False

    def words(self, folder, cache):
        return [
            "plan", "--planner", "megatron_grid", "--cluster", "a100_8", "--model", "gpt3_1.3b",
            "--global-batch", "64", "--sequence-length", "1024", "--cache", cache,
            "--output", folder / "plan.yaml"]

    def results(self, folder, output):
        return {path.name: path.read_bytes() for path in folder.glob("plan.yaml")}


class Execute(Study):
    """Two ranks train three steps with checkpoints; what is compared are the losses."""
    name = "execute"
    shares = False

    def words(self, folder, cache):
        # A folder that holds a run is refused: the second call takes another one.
        out = next(folder / f"out{i}" for i in range(20) if not (folder / f"out{i}").exists())
        return ["execute", "experiments/executor/two_stages.yaml", "--cluster",
                "experiments/executor/this_machine.yaml", "--model",
                "experiments/executor/tiny_llama.yaml", "--sequence-length", "32", "--steps", "3",
                "--checkpoint-every", "1", "--checkpoints", folder / "checkpoints", "--out", out,
                "--quiet"]

    def results(self, folder, output):
        """Losses by step, of the newest folder."""
        newest = max(folder.glob("out*"), default=None, key=lambda path: path.stat().st_mtime_ns)
        return losses(newest)


class Twin(Study):
    """Plan, execute, calibrate, predict, compare. Its times are measured: of what holds them, what
    is compared are names, and that nothing is cut off."""
    name = "twin"
    shares = False

    def words(self, folder, cache):
        return ["twin", "tests/reliability/twin/manifest.yaml", "--loopback", "--quick",
                "--no-figure", "--results", folder / "out"]

    def results(self, folder, output):
        found = {}
        for path in sorted((folder / "out").rglob("*")):
            # What a killed process was about to rename stays; nobody reads it.
            if path.is_file() and ".tmp." not in path.name:
                found[str(path.relative_to(folder))] = (
                    path.read_bytes() if path.parent.name == "inputs"
                    else losses(path.parent) if path.name == "losses.csv" else is_whole(path))
        return found


COMMANDS = {kind.name: kind() for kind in (Study, Replay, Figures, Report, Plan, Execute, Twin)}


def tree(folder):
    """What every file holds; without times, and without folders of work that nobody reads. The log
    of a run may say that the store of answers was left aside, and a killed process may leave a
    temporary file, which goes a minute later."""
    files = {}
    for path in sorted(folder.rglob("*")):
        left = path.name == "timings.csv" or ".work" in path.parts or ".tmp." in path.name
        if path.is_file() and not left:
            lines = path.read_bytes().splitlines(keepends=True)
            files[str(path.relative_to(folder))] = b"".join(
                line for line in lines
                if path.name != "log.txt" or not line.startswith(b"orrery: going on without"))
    return files


def is_whole(path):
    """Of JSON and CSV: it can be read, and all rows have as many cells; of others: it ends."""
    text = path.read_bytes()
    try:
        if path.suffix == ".json":
            return bool(json.loads(text))
        if path.suffix == ".csv":
            lines = [line for line in text.decode().splitlines(keepends=True) if line[0] != "#"]
            return len({len(row) for row in csv.reader(lines)}) == 1 and text.endswith(b"\n")
    except ValueError:
        return False
    return path.suffix != ".yaml" or text.endswith(b"\n")


def losses(folder):
    path = folder / "losses.csv" if folder else None
    if path is None or not path.exists():
        return {}
    with path.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["step"] and row["loss"]]
    return {row["step"]: row["loss"] for row in rows}


class Trials(Runner):
    def __init__(self, program, shim):
        super().__init__(program, shim)
        self.references, self.counts = {}, {}

    def reference(self, command):
        """What an undisturbed run gives, with how many calls of each kind it makes."""
        if command.name not in self.references:
            folder = self.base / f"reference-{command.name}"
            folder.mkdir()
            process = self.start(command.words(folder, folder / "cache"), fault="")
            code, output, problem = self.finish(process)
            if code != 0 or problem:
                sys.exit(f"{command.name} fails undisturbed: {problem}\n{output}")
            self.references[command.name] = command.results(folder, output)
            self.counts[command.name] = process.struck
        return self.references[command.name], self.counts[command.name]

    def trial(self, command, rng):
        """(what was done, exit code, problems in words)"""
        expected, counts = self.reference(command)
        kind = rng.choice(STRIKES)
        at = rng.randrange(max(1, counts[KINDS.index(kind)]))
        stays = kind in ("full", "broken") and rng.random() < 0.5
        fault = f"{kind}:{at}" + (":stays" if stays else "")
        memory = rng.choice(["empty", "full", "used"])
        together = rng.choice([2, 8]) if rng.random() < 0.15 and command.name != "twin" else 1
        what = f"{fault} cache={memory}" + (f" together={together}" if together > 1 else "")
        self.number += 1
        folder = self.base / f"trial{self.number}"
        folder.mkdir()
        cache = self.base / f"used-{command.name}" if memory == "used" else folder / "cache"
        if memory == "full" and (self.base / f"reference-{command.name}/cache").exists():
            shutil.copytree(self.base / f"reference-{command.name}/cache", cache)
        problems = []
        started = []
        for i in range(together):
            if command.name == "execute" and together > 1:
                (folder / f"{i}").mkdir()
            place = folder / f"{i}" if command.name == "execute" and together > 1 else folder
            started.append((self.start(command.words(place, cache), fault if i == 0 else None), place))
        first_code = None
        for i, (process, place) in enumerate(started):
            code, output, problem = self.finish(process)
            if i == 0:
                first_code = code
            if problem:
                problems.append(problem)
            if command.name == "execute" and not losses_agree(place, expected):
                problems.append("wrote a wrong loss")
            if code == 0 and together == 1 and command.results(place, output) != expected:
                problems.append("exit code 0 with other results: "
                                + difference(command.results(place, output), expected))
            innocent = i > 0 or kind in HARMLESS
            # A run that fails in one call has failed for those beside it; the next one repeats it.
            shared = command.shares and kind not in HARMLESS and " failed" in output
            if innocent and code != 0 and not (shared and code == 1):
                problems.append(f"fails without a fault ({code}): {output.strip()[-300:]}")
        code, output, problem = self.finish(self.start(command.words(folder, cache)))
        found = command.results(folder, output)
        if code != 0 or problem:
            problems.append(f"the second call fails ({code}) {problem}: {output.strip()[-300:]}")
        elif found != expected:
            problems.append("the second call differs: " + difference(found, expected))
        shutil.rmtree(folder, ignore_errors=True)
        return kind if together == 1 else f"{together} at once", what, first_code, problems


def losses_agree(folder, expected):
    for out in folder.glob("out*"):
        for step, loss in losses(out).items():
            if step in expected and expected[step] != loss:
                return False
    return True


def difference(found, expected):
    names = sorted(set(found) ^ set(expected))
    names += [name for name in sorted(set(found) & set(expected)) if found[name] != expected[name]]
    return ", ".join(names[:5])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--trials", type=int, default=1000, help="of each command")
    parser.add_argument("--command", action="append", choices=COMMANDS, help="default: all")
    faults.add_arguments(parser)
    args = parser.parse_args()
    runner = Trials(str(args.program), args.shim)
    counts = collections.defaultdict(collections.Counter)
    failures = 0
    until = time.monotonic() + 60 * args.minutes if args.minutes else float("inf")
    try:
        for number in range(args.trials) if args.only is None else [args.only]:
            for name in args.command or COMMANDS:
                if time.monotonic() > until:
                    continue
                rng = random.Random(f"{args.seed} {name} {number}")
                kind, what, code, problems = runner.trial(COMMANDS[name], rng)
                count = counts[name, kind]
                count["trials"] += 1
                count["ended well" if code == 0 else
                      "killed" if code == -signal.SIGKILL else "said why"] += 1
                if problems:
                    count["failures"] += 1
                    failures += 1
                    print(f"FAILED --seed {args.seed} --command {name} --only {number}: {what}: "
                          + "; ".join(problems), flush=True)
    except KeyboardInterrupt:
        pass  # What ran until now counts.
    finally:
        runner.close()
    faults.report(counts, ["command", "fault"],
                  ["trials", "ended well", "said why", "killed", "failures"], args.table)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
