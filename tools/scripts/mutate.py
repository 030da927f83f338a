#!/usr/bin/python3
"""How many small faults do the tests notice? Breaks sampled lines of sim, models/lower, models/cost
and planners one at a time (an operator, a constant, a condition, a statement), builds, runs the
tests that see the folder, and says which share they noticed, by folder (docs/mutation.md).

    tools/scripts/mutate.py --tree TREE [--count 100] [--seed 1] [--minutes M]
    tools/scripts/mutate.py --report        writes docs/mutation.md from the results

TREE is a checkout of its own, configured and built as usual, that nobody else works in, for example
`git clone . /tmp/broken`, at the commit of this one and without changes. It is broken in place: each
fault is taken back before the next, after an error or a signal, and, where the script was killed, at
its next start. Results are appended to tests/mutation.csv of this tree, one line a fault; a call
goes on where the last one ended, while TREE stands at the same commit. The sample takes the folders
by turns, and lines of a folder in random order, so that its beginning is a fair sample too. A fault that does not compile is no fault: the next one is
taken. A fault that changes nothing anybody could see (an equivalent one) counts as missed."""

import argparse
import csv
import itertools
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "tests" / "mutation.csv"
REPORT = ROOT / "docs" / "mutation.md"
COLUMNS = ["number", "seed", "commit", "folder", "file", "line", "kind", "before", "after", "verdict", "by",
           "seconds"]
# Folder of the sources: programs to build and tests to run, near ones first.
WIDE = (["experiments_tests"], "^experiments_(golden|replay|case_study|mixed_length|plan|sweep)")
FOLDERS = {
    "sim": [(["sim_flow_tests", "sim_iteration_tests", "sim_replay_tests"], "^sim_"),
            (["planners_recovery_tests"], "^planners_recovery_replay"), WIDE],
    "models/lower": [(["models_lower_tests", "models_check_tests"], "^models_(lower|check)"),
                     (["sim_iteration_tests", "models_reshard_tests"],
                      "^(sim_iteration|models_reshard)"),
                     (["executor_engine_tests"], "^executor_engine_(equality|planners)"), WIDE],
    "models/cost": [(["models_cost_tests"], "^models_cost"),
                    (["sim_iteration_tests"], "^sim_iteration"),
                    (["planners_tests"], "^planners_"), WIDE],
    "planners": [(["planners_tests", "planners_kit_tests", "planners_recovery_tests"],
                  "^planners_"), WIDE],
}
TEST_LIMIT = 900  # seconds of one test, on a busy machine; a loop without end is noticed too
BUILD = Path("build") / "release"

OPERATORS = [(" < ", " <= "), (" <= ", " < "), (" > ", " >= "), (" >= ", " > "), (" == ", " != "),
             (" != ", " == "), (" && ", " || "), (" || ", " && "), (" + ", " - "), (" - ", " + "),
             (" * ", " / "), (" / ", " * "), (" += ", " -= "), (" -= ", " += "),
             ("std::min(", "std::max("), ("std::max(", "std::min("), ("return true", "return false"),
             ("return false", "return true"), ("++", "--")]
NUMBER = re.compile(r"(?<![\w.\"<])(\d+(?:\.\d+)?)(?![\w.\">])")
CONDITION = re.compile(r"^(\s*(?:\} else )?(?:if|while) \()(.*)(\)(?: \{| [\w].*;)?)$")
STATEMENT = re.compile(r"^\s+[A-Za-z_][\w.\[\]\->:()]*(?: [-+*/]?= .*|\(.*\));$")
# Lines whose fault would say little: texts, checks of our own bugs, declarations.
SKIPPED = re.compile(r"^\s*(//|#|\*|using |namespace |template|static_assert|struct |class |friend |"
                     r"return \{\}|case |public:|private:|protected:|ORRERY_CHECK)|\"|operator|"
                     r"ORRERY_CHECK|describe\(|= default|= delete|v\.(optional|required|problem)")


def faults_of(line, previous):
    """All (kind, broken line). `previous`: the line of code before."""
    if SKIPPED.search(line) or not line.strip():
        return []
    code = line.split("//")[0]
    found = []
    for old, new in OPERATORS:
        if old in ("++",) and "for (" in code:
            continue  # a loop without end
        at = code.find(old)
        while at >= 0:
            found.append(("operator", line[:at] + new + line[at + len(old):]))
            at = code.find(old, at + 1)
    for number in NUMBER.finditer(code):
        text = number[1]
        new = str(float(text) * 2) if "." in text else str(int(text) + 1)
        found.append(("constant", line[:number.start()] + new + line[number.end():]))
    condition = CONDITION.match(code)
    if condition and condition[2].count("(") == condition[2].count(")") and \
            "auto" not in condition[2] and ";" not in condition[2]:
        found.append(("condition", f"{condition[1]}!({condition[2]}){condition[3]}"))
    if previous.endswith((";", "{", "}", ":")) and STATEMENT.match(code) and not re.match(r"^\s+(return|break|continue|throw|delete)\b", code):
        found.append(("statement", re.match(r"^\s*", line)[0] + ";"))
    return found


def sample(tree, seed):
    """All faults, one of each line that has any, in random order, folders by turns."""
    generator = random.Random(seed)
    by_folder = []
    for folder in FOLDERS:
        drawn = []
        for path in sorted((tree / folder).rglob("*.cpp")):
            previous = ""
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                faults = faults_of(line, previous)
                previous = line.split("//")[0].rstrip() or previous
                if faults:
                    kind, broken = generator.choice(faults)
                    drawn.append((folder, str(path.relative_to(tree)), number, kind, line, broken))
        generator.shuffle(drawn)
        by_folder.append(drawn)
    turns = itertools.zip_longest(*by_folder)
    return [fault for turn in turns for fault in turn if fault is not None]


def git(tree, *arguments):
    return subprocess.run(["git", "-C", str(tree), *arguments], check=True, capture_output=True,
                          text=True).stdout


def restore(tree):
    git(tree, "checkout", "--", *FOLDERS)


def stopped(number, _):
    raise KeyboardInterrupt(f"signal {number}")


def run(tree, command, limit=None):
    """Whether it succeeded, and what it printed."""
    try:
        done = subprocess.run(command, cwd=tree, capture_output=True, text=True, timeout=limit,
                              errors="replace")
    except subprocess.TimeoutExpired:
        return False, "took too long"
    return done.returncode == 0, done.stdout + done.stderr


def judge(tree, folder):
    """(verdict, the test that noticed)."""
    for programs, tests in FOLDERS[folder]:
        built, _ = run(tree, ["ninja", "-C", str(BUILD), "-j2", *programs])
        if not built:
            return "not built", ""
        passed, text = run(tree, ["ctest", "--test-dir", str(BUILD), "-R", tests,
                                  "--stop-on-failure", "--timeout", str(TEST_LIMIT)])
        if not passed:
            listed = text.partition("The following tests FAILED")[2]  # Skipped ones stand before.
            failed = re.search(r"\d+ - (\S+) \(", listed)
            return "noticed", failed[1] if failed else "ctest"
    return "missed", ""


def read_results():
    if not RESULTS.exists():
        return []
    with open(RESULTS, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def append(row):
    fresh = not RESULTS.exists()
    with open(RESULTS, "a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if fresh:
            writer.writeheader()
        writer.writerow(row)


def mutate(options):
    tree = Path(options.tree).resolve()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stopped)
    restore(tree)  # what a killed call left behind
    if git(tree, "status", "--porcelain", "--untracked-files=no").strip():
        sys.exit(f"{tree} has changes of its own")
    commit = git(tree, "rev-parse", "--short=12", "HEAD").strip()
    earlier = [row for row in read_results()
              if int(row["seed"]) == options.seed and row["commit"] == commit]
    done = {int(row["number"]) for row in earlier}
    judged = sum(row["verdict"] != "not built" for row in earlier)
    for folder in FOLDERS:
        verdict, by = judge(tree, folder)
        if verdict != "missed":
            sys.exit(f"{folder} is broken before any fault: {verdict} {by}")
    end = time.monotonic() + 60 * options.minutes
    print(f"{commit}: {judged} faults are judged already", flush=True)
    for number, (folder, file, line, kind, before, after) in enumerate(sample(tree, options.seed)):
        if judged >= options.count or time.monotonic() > end:
            break
        if number in done:
            continue
        path = tree / file
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        lines[line - 1] = after + "\n"
        began = time.monotonic()
        try:
            path.write_text("".join(lines), encoding="utf-8")
            verdict, by = judge(tree, folder)
        finally:
            restore(tree)
        judged += verdict != "not built"
        append({"number": number, "seed": options.seed, "commit": commit, "folder": folder,
                "file": file, "line": line, "kind": kind, "before": before.strip(), "after": after.strip(),
                "verdict": verdict, "by": by, "seconds": round(time.monotonic() - began)})
        print(f"{judged}/{options.count} {file}:{line} {kind}: {verdict} {by}", flush=True)


def share(rows):
    noticed = sum(row["verdict"] == "noticed" for row in rows)
    return f"| {len(rows)} | {noticed} | {100 * noticed / len(rows):.0f} % |" if rows else "| 0 | | |"


def report():
    rows = [row for row in read_results() if row["verdict"] != "not built"]
    text = ("# Faults that the tests notice\n\nWritten by `tools/scripts/mutate.py --report` from "
            "`tests/mutation.csv`; do not edit. Each fault breaks one sampled line; the tests that "
            "see its folder run. What was missed may be a fault that nobody could see.\n\n"
            "| folder | faults | noticed | share |\n|---|---|---|---|\n")
    for folder in FOLDERS:
        text += f"| `{folder}` " + share([row for row in rows if row["folder"] == folder]) + "\n"
    text += "| all " + share(rows) + "\n\n| kind | faults | noticed | share |\n|---|---|---|---|\n"
    for kind in ("operator", "constant", "condition", "statement"):
        text += f"| {kind} " + share([row for row in rows if row["kind"] == kind]) + "\n"
    text += "\nMissed:\n\n| place | line | broken |\n|---|---|---|\n"
    for row in rows:
        if row["verdict"] == "missed":
            cells = [row[key].replace("|", "\\|") for key in ("before", "after")]
            text += f"| `{row['file']}:{row['line']}` | `{cells[0]}` | `{cells[1]}` |\n"
    REPORT.write_text(text, encoding="utf-8")
    print(REPORT)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tree", help="checkout that may be broken, configured and built")
    parser.add_argument("--count", type=int, default=100, help="faults that compile")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=1e9, help="begin no fault later than this")
    parser.add_argument("--report", action="store_true", help="write docs/mutation.md")
    options = parser.parse_args()
    if options.report:
        report()
    elif options.tree is None or Path(options.tree).resolve() == ROOT:
        parser.error("--tree must name another checkout, which may be broken")
    else:
        mutate(options)


if __name__ == "__main__":
    main()
