#!/usr/bin/env python3
"""Do equal inputs give equal bytes, whatever surrounds the command?

  determinism.py [--program ORRERY] [--other ORRERY]... [--only-others] [--workers N]

Runs a study of plans and a replay once as the reference, and again on 1 to N workers, in another
time zone, locale, umask, home and working directory, resumed after one run, without what is
remembered, with it new, and full. Every file of the results must be the same byte for byte, but for
the clock columns (timings.csv). --other: a program that was built in another way (compiler,
optimization), for example by
    cmake --preset release -B build/clang -DCMAKE_CXX_COMPILER=clang++ && ninja -C build/clang orrery
It differs by a column and by how much, or not at all. --only-others: nothing else is tried. Exit
code 1: something differs.
"""
import argparse
import csv
import io
import math
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
COMMANDS = {
    "run": ["run", ROOT / "tests/golden/case_study/manifest.yaml"],
    "replay": ["replay", "--cluster", "a100_8", "--model", "gpt3_1.3b", "--global-batch", "64",
               "--sequence-length", "1024", "--generate", "llama3", "--days", "20", "--policy",
               "checkpoint_restart,bamboo,torchft", "--seeds", "2"],
}


def foreign_locale(folder):
    """(Name, environment) of a locale with decimal commas, made in `folder`; else of one that is
    installed and not C, or none."""
    name = "de_DE.UTF-8"
    try:
        subprocess.run(["localedef", "-i", "de_DE", "-f", "UTF-8", folder / name],
                       capture_output=True, check=True)
        return name, {"LOCPATH": str(folder), "LC_ALL": name, "LANG": name}
    except (OSError, subprocess.CalledProcessError):
        names = subprocess.run(["locale", "-a"], capture_output=True, text=True, check=False).stdout
        found = [one for one in names.split() if not one.startswith(("C", "POSIX"))]
        return (found[0], {"LC_ALL": found[0], "LANG": found[0]}) if found else None


def tree(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*"))
            if path.is_file() and path.name != "timings.csv"}


def columns_that_differ(one, other):
    """Of two CSV files with the same rows: column to its largest relative difference in words."""
    rows = [list(csv.DictReader(io.StringIO(text.decode()))) for text in (one, other)]
    if len(rows[0]) != len(rows[1]) or not rows[0] or rows[0][0].keys() != rows[1][0].keys():
        return "other rows"
    worst = {}
    for a, b in zip(*rows):
        for name in (name for name in a if a[name] != b[name]):
            try:
                x, y = float(a[name]), float(b[name])
                off = abs(x - y) / max(abs(x), abs(y))
            except ValueError:
                off = math.inf
            worst[name] = max(off, worst.get(name, 0))
    return ", ".join(f"{name} {'in words' if off == math.inf else f'by {off:.1e}'}"
                     for name, off in worst.items())


class Matrix:
    def __init__(self, base):
        self.base = base
        self.locale = foreign_locale(base)
        self.runs = self.differences = 0

    def call(self, program, words, folder, cache="off", workers=2, environment=None, cwd=ROOT,
             umask=0o022, more=()):
        command = [program, *words, "--results", folder, "--no-figure", "--quiet", "--workers",
                   workers, "--cache", cache, *more]
        done = subprocess.run([str(word) for word in command], cwd=cwd, umask=umask, text=True,
                              env={**os.environ, **(environment or {})}, capture_output=True,
                              check=False)
        # One run alone may be that of a policy that cannot run here.
        if done.returncode != 0 and not more:
            sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")

    def compare(self, label, folder, reference):
        self.runs += 1
        found = tree(folder)
        names = sorted(set(found) ^ set(reference))
        names += [name for name in sorted(set(found) & set(reference))
                  if found[name] != reference[name]]
        print(f"{label:<34} {'same' if not names else 'differs: ' + ', '.join(names[:4])}")
        for name in names:
            if name.endswith(".csv") and name in found and name in reference:
                print(f"    {name}: {columns_that_differ(reference[name], found[name])}")
        self.differences += bool(names)

    def check(self, name, program, others, surroundings, most_workers):
        words = COMMANDS[name]
        first = self.base / f"{name}-reference"
        self.call(program, words, first, workers=1)
        reference = tree(first)
        number = 0

        def variant(label, **settings):
            nonlocal number
            number += 1
            folder = self.base / f"{name}-{number}"
            more = settings.pop("resumed_after", None)
            if more:
                self.call(program, words, folder, more=["--limit", more])
            self.call(settings.pop("program", program), words, folder, **settings)
            self.compare(f"{name}: {label}", folder, reference)

        for other in others:
            variant(f"other program {other}", program=other)
        if not surroundings:
            return
        for workers in range(1, most_workers + 1):
            variant(f"{workers} workers", workers=workers)
        variant("time zone", environment={"TZ": "Pacific/Kiritimati"})
        if self.locale:
            variant(f"locale {self.locale[0]}", environment=self.locale[1])
        else:
            print(f"{name}: no locale but C, and no localedef to make one")
        variant("umask 077", umask=0o077)
        empty = self.base / f"{name}-home"
        empty.mkdir()
        variant("home", environment={"HOME": str(empty), "XDG_CACHE_HOME": ""})
        variant("no home", environment={"HOME": "", "XDG_CACHE_HOME": ""})
        variant("working directory", cwd=empty)
        variant("resumed after one run", resumed_after=1)
        cache = self.base / f"{name}-cache"
        variant("new store", cache=cache)
        variant("full store", cache=cache)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--program", default=ROOT / "build/release/tools/orrery")
    parser.add_argument("--other", action="append", default=[])
    parser.add_argument("--only-others", action="store_true")
    parser.add_argument("--workers", type=int, default=8, help="most of them")
    args = parser.parse_args()
    base = pathlib.Path(tempfile.mkdtemp(prefix="orrery-determinism-"))
    matrix = Matrix(base)
    try:
        for name in COMMANDS:
            matrix.check(name, args.program, args.other, not args.only_others, args.workers)
    finally:
        shutil.rmtree(base, ignore_errors=True)
    print(f"{matrix.runs} runs, {matrix.differences} differ")
    return 1 if matrix.differences else 0


if __name__ == "__main__":
    sys.exit(main())
