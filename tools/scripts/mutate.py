#!/usr/bin/python3
"""How many small faults do the tests notice? Samples lines of sim, models/lower, models/cost and
planners and plants a fault in each (an operator, a constant, a condition, a statement) behind a
switch that is read once: `a < b` becomes `(mutant(17) ? (a <= b) : (a < b))`. One build has all
faults; ORRERY_MUTANT=17 makes the 17th real (docs/testing.md has the results).

    tools/scripts/mutate.py --tree TREE [--count 100] [--seed 1] [--minutes M]
    tools/scripts/mutate.py --report        writes the table of docs/testing.md from the results

TREE is a checkout of its own at the commit of this one, configured as usual, that nobody else works
in, for example `git clone . /tmp/broken`. Faults that do not compile (constant expressions, units)
are none, and the next are taken. First every test of the labels unit, law and golden runs without a
fault, which says how long it takes and which faults it reaches. Then each fault meets the tests
that reach it, those of its own folder first, then the quick ones, until one fails or takes ten
times as long. Results are appended to tests/mutation.csv of this tree, one line a fault; a call
goes on where the last one ended. The sample takes the folders by turns. A fault that nobody could
see (an equivalent one) counts as missed; what was found about those that were missed stands in the
column `note`."""

import argparse
import csv
import itertools
import json
import random
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "tests" / "mutation.csv"
REPORT = ROOT / "docs" / "testing.md"
MARK = "<!-- Below: written by tools/scripts/mutate.py --report from tests/mutation.csv. -->"
COLUMNS = ["number", "seed", "commit", "folder", "file", "line", "kind", "before", "after",
           "verdict", "by", "tests", "seconds", "note"]
FOLDERS = ["sim", "models/lower", "models/cost", "planners"]
LABELS = "^(unit|law|golden)$"
SPARE = 1.4  # Faults planted for each that is wanted: some do not compile.
SLOWEST = 10  # Times as long as without a fault,
LEAST = 240  # but at least so many seconds: the machine may be busy.
SWITCH = "models/base/mutant.h"
SWITCH_TEXT = """#pragma once
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <string>

namespace orrery {
/// Whether fault `number` is on. Notes in a file that it was asked for.
inline bool mutant(int number) {
  static const char* chosen = std::getenv("ORRERY_MUTANT");
  static const int on = chosen == nullptr ? -1 : std::atoi(chosen);
  static const char* reached = std::getenv("ORRERY_MUTANTS_REACHED");
  static std::atomic<bool> seen[4096];
  if (reached != nullptr && !seen[number].exchange(true)) {
    const std::string line = std::to_string(number) + "\\n";
    const int file = ::open(reached, O_WRONLY | O_APPEND | O_CREAT, 0600);
    if (file >= 0 && ::write(file, line.data(), line.size()) > 0) ::close(file);
  }
  return number == on;
}
}  // namespace orrery
"""

OPERATORS = [(" < ", " <= "), (" <= ", " < "), (" > ", " >= "), (" >= ", " > "), (" == ", " != "),
             (" != ", " == "), (" && ", " || "), (" || ", " && "), (" + ", " - "), (" - ", " + "),
             (" * ", " / "), (" / ", " * ")]
CALLS = [("std::min(", "std::max("), ("std::max(", "std::min(")]
RETURNS = [("return true;", "false"), ("return false;", "true")]
NUMBER = re.compile(r"(?<![\w.\"'<])(\d+(?:\.\d+)?)(?![\w.\"'>])")
CONDITION = re.compile(r"^\s*(?:\} else )?(?:if|while) \(")
CHANGE = re.compile(r"^\s+[\w.\[\]\->()]+ ([-+])= .*;$")
STATEMENT = re.compile(r"^\s+(?!return\b|break\b|continue\b|throw\b|delete\b)"
                       r"[A-Za-z_][\w.\[\]\->:()]*(?: [-+*/]?= .*|\(.*\));$")
# Lines whose fault would say little: texts, checks of our own bugs, declarations.
SKIPPED = re.compile(r"^\S|^\s*(//|#|\*|using |namespace |template|static_assert|struct |class |friend |"
                     r"return \{\}|case |public:|private:|protected:|ORRERY_CHECK|static )|\"|operator|"
                     r"constexpr|enum |ORRERY_CHECK|describe\(|= default|= delete|"
                     r"v\.(optional|required|problem)|\.reserve\(")
CHOSEN = "@chosen@"
OPENING, CLOSING = "([{", ")]}"


def mask(text):
    """The text with comments and the insides of literals blank, of equal length."""
    pattern = re.compile(r'//[^\n]*|/\*.*?\*/|R"\((?:.|\n)*?\)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'',
                         re.S)
    return pattern.sub(lambda m: re.sub(r"[^\n]", "~", m[0]), text)


def closing(code, start):
    """Place after the bracket that closes the one before `start`."""
    depth = 1
    while depth > 0:
        depth += (code[start] in OPENING) - (code[start] in CLOSING)
        start += 1
    return start


def bounds(code, at, end, logical):
    """The expression around the operator at [at, end): [begin, stop)."""
    stops = (",", "?", " :", " =", "return", " ||", "<<", ">>", "+=", "-=", "*=", "/=")
    stops += () if logical else (" &&",)
    begin, depth = at, 0
    while True:
        begin -= 1
        character = code[begin]
        if character in CLOSING:
            depth += 1
        elif character in OPENING:
            if depth == 0:
                break
            depth -= 1
        elif depth == 0 and character in ";":
            break
        elif depth == 0 and character.isspace() and code.endswith(stops, 0, begin):
            break
    begin += 1
    stop, depth = end, 0
    while True:
        character = code[stop]
        if character in OPENING:
            depth += 1
        elif character in CLOSING:
            if depth == 0:
                break
            depth -= 1
        elif depth == 0 and (character in ";," or any(
                code.startswith(one, stop) for one in (" ?", " : ", " || ", " << ", " >> ", " =") +
                (() if logical else (" && ",)))):
            if not code.startswith(" ==", stop):
                break
        stop += 1
    while code[begin].isspace():
        begin += 1
    return begin, stop


def faults_of(text, code, start, line, previous):
    """All (kind, begin, end, broken text, what it becomes) of a line that begins at `start`.
    `previous`: the line of code before. CHOSEN in what it becomes is the switch."""
    masked = code[start:start + len(line)]
    if SKIPPED.search(line) or not masked.strip():
        return []
    found = []

    def choice(kind, begin, end, broken):
        old = text[begin:end]
        found.append((kind, begin, end, broken, f"({CHOSEN} ? ({broken}) : ({old}))"))

    for old, new in OPERATORS:
        at = masked.find(old)
        while at >= 0:
            first = start + at
            begin, end = bounds(code, first, first + len(old), old in (" && ", " || "))
            choice("operator", begin, end,
                   text[begin:first] + new + text[first + len(old):end])
            at = masked.find(old, at + 1)
    for old, new in CALLS:
        at = masked.find(old)
        while at >= 0:
            begin = start + at
            end = closing(code, begin + len(old))
            choice("operator", begin, end, new + text[begin + len(old):end])
            at = masked.find(old, at + 1)
    for old, new in RETURNS:
        at = masked.find(old)
        if at >= 0:
            choice("constant", start + at + len("return "), start + at + len(old) - 1, new)
    for number in NUMBER.finditer(masked):
        value = number[1]
        choice("constant", start + number.start(), start + number.end(),
               str(float(value) * 2) if "." in value else str(int(value) + 1))
    condition = CONDITION.match(masked)
    if condition:
        begin = start + condition.end()
        end = closing(code, begin) - 1
        inner = text[begin:end]
        if ";" not in inner and "auto" not in inner and " = " not in inner:
            found.append(("condition", begin, end, f"!({inner})",
                          f"{CHOSEN} != static_cast<bool>({inner})"))
    if previous.endswith((";", "{", "}", ":")):
        whole = (start + len(line) - len(line.lstrip()), start + len(line.rstrip()))
        body = text[whole[0]:whole[1]]
        change = CHANGE.match(masked.rstrip())
        if change:
            other = "-=" if change[1] == "+" else "+="
            broken = body.replace(f"{change[1]}=", other, 1)
            found.append(("operator", *whole, broken, f"{{ if ({CHOSEN}) {broken} else {body} }}"))
        if STATEMENT.match(masked.rstrip()):
            found.append(("statement", *whole, ";", f"if (!{CHOSEN}) {body}"))
    return found


def sources(tree, folder):
    listed = git(tree, "ls-files", "--", f"{folder}/*.cpp").split()
    return sorted(listed, key=lambda name: Path(name).parts)


def sample(tree, seed):
    """One fault of each line that has any, in random order, folders by turns."""
    generator = random.Random(seed)
    by_folder = []
    for folder in FOLDERS:
        drawn = []
        for name in sources(tree, folder):
            text = git(tree, "show", f"HEAD:{name}")
            code = mask(text)
            previous, start = "", 0
            for number, line in enumerate(text.splitlines(keepends=True), 1):
                faults = faults_of(text, code, start, line, previous)
                previous = code[start:start + len(line)].rstrip("~ \n") or previous
                start += len(line)
                if faults:
                    drawn.append((folder, name, number, *generator.choice(faults)))
        generator.shuffle(drawn)
        by_folder.append(drawn)
    turns = itertools.zip_longest(*by_folder)
    return [fault for turn in turns for fault in turn if fault is not None]


def git(tree, *arguments):
    return subprocess.run(["git", "-C", str(tree), *arguments], check=True, capture_output=True,
                          text=True).stdout


def plant(tree, faults):
    """Writes the faults, by number, into the tree, each file as it would be with just them."""
    by_file = {}
    for number, fault in faults.items():
        by_file.setdefault(fault[1], []).append((number, fault))
    for folder in FOLDERS:
        for name in sources(tree, folder):
            path = tree / name
            text = git(tree, "show", f"HEAD:{name}")
            own = sorted(by_file.get(name, []), key=lambda one: -one[1][4])
            limit = len(text)
            for number, (_, _, _, _, begin, end, _, becomes) in own:
                if end > limit:
                    continue  # Inside another fault's expression.
                becomes = becomes.replace(CHOSEN, f"::orrery::mutant({number})", 1)
                text = text[:begin] + becomes + text[end:]
                limit = begin
            if own:
                text = f'#include "{SWITCH}"\n{text}'
            if path.read_text(encoding="utf-8") != text:
                path.write_text(text, encoding="utf-8")


def planted(tree, faults):
    """Numbers whose switch stands in the tree."""
    found = set()
    for name in {fault[1] for fault in faults.values()}:
        text = (tree / name).read_text(encoding="utf-8")
        found |= {int(number) for number in re.findall(r"::orrery::mutant\((\d+)\)", text)}
    return found


def build(tree, faults):
    """Builds; takes out what does not compile."""
    switch = tree / SWITCH
    if not switch.exists() or switch.read_text(encoding="utf-8") != SWITCH_TEXT:
        switch.write_text(SWITCH_TEXT, encoding="utf-8")
    while True:
        plant(tree, faults)
        stands = planted(tree, faults)
        for number in set(faults) - stands:
            del faults[number]
        done = subprocess.run(["ninja", "-C", "build/release", "-j2", "-k", "0"], cwd=tree,
                              capture_output=True, text=True, errors="replace")
        if done.returncode == 0:
            return
        places = {(Path(file).name, int(line) - 1)
                  for file, line in re.findall(r"(\S+\.cpp):(\d+):\d+: error", done.stdout)}
        bad = {number for number, (_, name, at, *_) in faults.items()
               if any(Path(name).name == file and abs(at - line) <= 3 for file, line in places)}
        if not bad:
            sys.exit(done.stdout[-5000:] + "\nThe tree does not build.")
        print(f"{len(bad)} faults do not compile", flush=True)
        for number in bad:
            del faults[number]


def ctest(tree, *arguments, environment=(), limit=None):
    shutil.rmtree(tree / "build/release/cache", ignore_errors=True)  # It knows of no faults.
    command = ["env", *environment, "ctest", "--test-dir", "build/release", *arguments]
    if limit:
        command += ["--timeout", str(round(limit))]
    return subprocess.run(command, cwd=tree, capture_output=True, text=True, errors="replace")


def record(tree, notes):
    """By test: seconds, and numbers of the faults that it reaches. Those that fail are left out."""
    names = [test["name"] for test in
             json.loads(ctest(tree, "--show-only=json-v1", "-L", LABELS).stdout)["tests"]]
    known = json.loads(notes.read_text()) if notes.exists() else {}
    reached = tree / "build" / "reached.txt"
    for name in names:
        if name in known:
            continue
        reached.unlink(missing_ok=True)
        began = time.monotonic()
        done = ctest(tree, "-R", f"^{re.escape(name)}$",
                     environment=(f"ORRERY_MUTANTS_REACHED={reached}",))
        seconds = time.monotonic() - began
        text = reached.read_text() if reached.exists() else ""
        numbers = sorted({int(line) for line in text.split()})
        if done.returncode != 0:
            print(f"{name} fails without a fault and is left out", flush=True)
            numbers = []
        known[name] = [round(seconds, 2), numbers]
        notes.write_text(json.dumps(known))
    return known


def judge(tree, number, fault, tests, budget):
    """(verdict, the test that noticed, tests that ran). `budget`: seconds that they take without a
    fault, at most; those of the own folder run in any case."""
    own = str(Path(fault[1]).parent).replace("/", "_")
    near = fault[0].replace("/", "_")
    reaching = [(not name.startswith(own), not name.startswith(near), seconds, name)
                for name, (seconds, numbers) in tests.items() if number in numbers]
    ran = 0
    for far, _, seconds, name in sorted(reaching):
        budget -= seconds
        if far and budget < 0:
            continue
        ran += 1
        done = ctest(tree, "-R", f"^{re.escape(name)}$", environment=(f"ORRERY_MUTANT={number}",),
                     limit=max(LEAST, SLOWEST * seconds))
        if done.returncode != 0:
            return "noticed", name, ran
    return ("missed" if reaching else "not reached"), "", ran


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
    commit = git(tree, "rev-parse", "--short=12", "HEAD").strip()
    others = [f":!{folder}" for folder in FOLDERS]  # Faults of an earlier call may stand there.
    if git(tree, "status", "--porcelain", "--untracked-files=no", "--", ".", *others).strip():
        sys.exit(f"{tree} has changes of its own")
    end = time.monotonic() + 60 * options.minutes
    drawn = dict(enumerate(sample(tree, options.seed)[:round(SPARE * options.count)]))
    notes = tree / "build" / f"mutants-{commit}-{options.seed}-{options.count}.json"
    chosen = tree / "build" / f"planted-{commit}-{options.seed}-{options.count}.json"
    if chosen.exists():
        drawn = {number: drawn[number] for number in json.loads(chosen.read_text())}
    build(tree, drawn)
    chosen.write_text(json.dumps(sorted(drawn)))
    faults = dict(list(drawn.items())[:options.count])
    print(f"{commit}: {len(faults)} faults are planted", flush=True)
    tests = record(tree, notes)
    done = {int(row["number"]) for row in read_results()
            if int(row["seed"]) == options.seed and row["commit"] == commit}
    for number, fault in faults.items():
        if time.monotonic() > end:
            break
        if number in done:
            continue
        folder, file, line, kind, begin, stop, broken, _ = fault
        before = git(tree, "show", f"HEAD:{file}")[begin:stop]
        began = time.monotonic()
        verdict, by, ran = judge(tree, number, fault, tests, options.budget)
        append({"number": number, "seed": options.seed, "commit": commit, "folder": folder,
                "file": file, "line": line, "kind": kind, "before": " ".join(before.split()),
                "after": " ".join(broken.split()), "verdict": verdict, "by": by, "tests": ran,
                "seconds": round(time.monotonic() - began), "note": ""})
        print(f"{number} {file}:{line} {kind}: {verdict} {by}", flush=True)


def share(rows):
    noticed = sum(row["verdict"] == "noticed" for row in rows)
    percent = f"{100 * noticed / len(rows):.0f} %" if rows else ""
    return f"| {len(rows)} | {noticed} | {percent} |"


def report():
    rows = read_results()
    if not rows:
        sys.exit(f"no results in {RESULTS}")
    text = (f"{MARK}\n\nSeed {rows[0]['seed']} at commit {rows[0]['commit']}:\n\n"
            "| folder | faults | noticed | share |\n|---|---|---|---|\n")
    for folder in FOLDERS:
        text += f"| `{folder}` " + share([row for row in rows if row["folder"] == folder]) + "\n"
    text += "| all " + share(rows) + "\n\n| kind | faults | noticed | share |\n|---|---|---|---|\n"
    for kind in ("operator", "constant", "condition", "statement"):
        text += f"| {kind} " + share([row for row in rows if row["kind"] == kind]) + "\n"
    text += "\nNot noticed:\n\n| place | is | became | what it is |\n|---|---|---|---|\n"
    for row in rows:
        if row["verdict"] != "noticed":
            cells = [row[key].replace("|", "\\|") for key in ("before", "after")]
            said = row["note"] or row["verdict"]
            text += f"| `{row['file']}:{row['line']}` | `{cells[0]}` | `{cells[1]}` | {said} |\n"
    page = REPORT.read_text(encoding="utf-8").split(MARK)[0]
    REPORT.write_text(page + text, encoding="utf-8")
    print(REPORT)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tree", help="checkout that may be broken, configured as usual")
    parser.add_argument("--count", type=int, default=100, help="faults that compile")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=1e9, help="judge no fault later than this")
    parser.add_argument("--budget", type=float, default=1e9,
                        help="seconds of tests for each fault, beyond those of its folder")
    parser.add_argument("--report", action="store_true", help="write the table of docs/testing.md")
    options = parser.parse_args()
    if options.report:
        report()
    elif options.tree is None or Path(options.tree).resolve() == ROOT:
        parser.error("--tree must name another checkout, which may be broken")
    else:
        mutate(options)


if __name__ == "__main__":
    main()
