#!/usr/bin/python3
"""Records what the commands of the README and the experiments print and write, and compares two
such records byte for byte: a redesign keeps every result.

    tools/scripts/outputs.py record FOLDER [--binary ORRERY] [--only WORD] [--quick]
    tools/scripts/outputs.py compare BEFORE AFTER

record runs each command below in the repository's root and keeps its standard output, its exit
code and the files that it wrote; --quick leaves out what takes more than some seconds.
compare prints a unified diff of each file that differs, but for wall-clock values, folders of
results and the hash of the sources, and exits 1 where there is any.
"""

import argparse
import csv
import difflib
import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CASE = "--cluster hexiscale_case_study --model llama2_13b --sequence-length 4096"
PLAN = "experiments/hexiscale/case_study/plans/hexiscale.yaml"
SWITCH = ("experiments/hetu/plans/c1.yaml experiments/hetu/plans/c2.yaml --cluster hetu_32h20 "
          "--model hetu_32b --sequence-length 4096")
FAILURES = ("--cluster experiments/spot/mixed_240.yaml --model llama_30b --global-batch 512 "
            "--recompute full --generate llama3")
EXECUTE = ("execute experiments/executor/two_replicas.yaml --cluster experiments/executor/"
           "netlab_4.yaml --model experiments/executor/tiny_llama.yaml --sequence-length 16")

# Name -> arguments; {out} is a folder of its own, which is recorded.
QUICK = {
    "help": "--help",
    **{f"help_{c}": f"{c} --help" for c in
       ["run", "plan", "simulate", "validate", "diff", "list", "schema", "mixed-length", "switch",
        "import", "replay", "trace", "netlab", "execute", "execute-agent", "compare", "calibrate",
        "twin", "annotate"]},
    **{f"list_{w}": f"list {w}" for w in
       ["clusters", "models", "gpus", "links", "planners", "policies", "schedules",
        "experiments"]},
    **{f"list_{w}_json": f"list {w} --json" for w in
       ["clusters", "models", "gpus", "links", "planners", "policies", "schedules",
        "experiments"]},
    "list_planner_metis": "list planners metis",
    "list_policy_recycle": "list policies recycle",
    "list_planners_markdown": "list planners --markdown",
    "list_policies_markdown": "list policies --markdown",
    **{f"schema_{k}": f"schema {k}" for k in
       ["cluster", "model", "job", "plan", "profile", "study"]},
    **{f"reference_{k}": f"schema {k} --reference" for k in ["cluster", "job", "study"]},
    "simulate": f"simulate {PLAN} {CASE} --global-batch 24",
    "simulate_json": f"simulate {PLAN} {CASE} --global-batch 24 --json",
    "simulate_public_code": f"simulate {PLAN} {CASE} --cost hexiscale_public_code",
    "simulate_timeline": f"simulate {PLAN} {CASE} --timeline {{out}}/step.json --full",
    "simulate_straggler": f"simulate {PLAN} {CASE} --straggler 3=2 --jitter 0.02 --seed 7 --json",
    "diff": f"diff {PLAN} experiments/hexiscale/case_study/plans/megatron.yaml {CASE}",
    "plan_hexiscale": f"plan --planner hexiscale {CASE} --global-batch 24 --explain "
                      "--output {out}/plan.yaml",
    "plan_case_json": f"plan --planner metis,alpa,exhaustive {CASE} --global-batch 24 --json",
    "switch": f"switch {SWITCH} --lost 31",
    "switch_json": f"switch {SWITCH} --lost 31 --json",
    "annotate": "annotate experiments/hetu/plans/c2.yaml --cluster hetu_32h20 --model hetu_32b "
                "--sequence-length 4096",
    "annotate_json": "annotate experiments/hetu/plans/c2.yaml --cluster hetu_32h20 "
                     "--model hetu_32b --sequence-length 4096 --json",
    "validate": "validate models/library/clusters/hexiscale_240.yaml models/library/gpus.yaml",
    "trace_generate": "trace generate llama3 --gpus 1024 --days 5 --seed 3 --output {out}/t.csv",
    "wrong_flag": "plan --planer alpa",
    "wrong_value": f"simulate {PLAN} {CASE} --dtype bf61 --ring round",
    "wrong_option": f"plan --planner alpa -o gab=1 {CASE} --global-batch 24",
    "wrong_range": f"plan --planner alpa -o gap=-1 -o submeshes=some {CASE} --global-batch 24",
    "wrong_policy_option": "replay --cluster hexiscale_240 --model llama_30b --global-batch 512 "
                           "--generate llama3 --days 1 --policy hetu --option hetu.detect=-3 "
                           "--dry-run",
    "wrong_plan": "simulate README.md --cluster nowhere --model llama2_13b",
    "dry_run": "run experiments/hexiscale/large_scale/manifest.yaml --dry-run "
               "--results {out}/results",
    "execute": f"{EXECUTE} --steps 5 --quiet --out {{out}}/first",
}
SLOW = {
    "plan_all": "plan --planner all --cluster hexiscale_240 --model llama_30b --full",
    "plan_all_json": "plan --planner all --cluster hexiscale_case_study --model llama2_13b "
                     "--global-batch 24 --json",
    "replay": f"replay {FAILURES} --days 2 --policy all --seeds 2 --results {{out}}/results",
    "replay_json": f"replay {FAILURES} --days 2 --policy torchft,hetu --json "
                   "--results {out}/results",
    "replay_background": f"replay {FAILURES} --days 1 --policy hot_spare,gemini "
                         "--background-transfers ignored --results {out}/results",
    "mixed_length": "mixed-length experiments/hetu/mixed_length --steps 10 "
                    "--results {out}/results",
    **{f"run_{e}": f"run experiments/{e} --results {{out}}/results" for e in
       ["hexiscale", "autohet", "hethub", "hetu", "metis", "validation", "oobleck",
        "spot/bamboo"]},
    "run_ettr": "run experiments/llama3/ettr --results {out}/results",
}
# Files whose contents are wall-clock values, or binary and made of others.
SKIPPED = re.compile(r"(timings\.csv|\.log|\.sqlite|\.db(-wal|-shm)?|losses\.csv|run\.json|"
                     r"\.perfetto-trace|\.pid|\.lock)$|/logs?/|/checkpoints?/|/first/")
HASH = re.compile(r"\b[0-9a-f]{16}\b")  # Of files and settings.
STUDY = re.compile(r"replay/[0-9a-f]{12}")
NOISE = [
    (re.compile(rb"replay/[0-9a-f]{12}"), b"replay/STUDY"),
    (re.compile(rb"0\.1\.0\+[0-9a-f]{8}"), b"VERSION"),
    (re.compile(rb"(elapsed|search|wall|planning|cpu)(_s|_seconds)?(\"?): [0-9.e+-]+"), rb"\1: T"),
    (re.compile(rb"(step time|tokens/s)[^\n]*"), rb"\1"),
    (re.compile(rb"in [0-9.]+ (s|ms|min [0-9]+ s)\b"), b"in T"),
    (re.compile(rb"\b[0-9]+ min [0-9]{2} s\b"), b"T"),
]


def record(arguments):
    folder = Path(arguments.folder).resolve()
    commands = dict(QUICK) if arguments.quick else {**QUICK, **SLOW}
    environment = dict(os.environ, NO_COLOR="1", COLUMNS="100", MPLBACKEND="Agg",
                       SOURCE_DATE_EPOCH="0", XDG_CACHE_HOME=f"{folder}.cache")
    for name, text in commands.items():
        if arguments.only and not re.search(arguments.only, name):
            continue
        out = folder / name
        if (out / "status").exists():
            continue
        out.mkdir(parents=True, exist_ok=True)
        start = time.monotonic()
        run = subprocess.run([arguments.binary] + shlex.split(text.format(out=out)), cwd=ROOT,
                             env=environment, capture_output=True, check=False)
        (out / "stdout").write_bytes(run.stdout)
        (out / "stderr").write_bytes(run.stderr)
        (out / "status").write_text(f"{run.returncode}\n", encoding="utf-8")
        print(f"{name}: exit {run.returncode}, {time.monotonic() - start:.1f} s", flush=True)
    return 0


def run_names(folder):
    """Folder of a study -> id of a run -> its place in runs.csv: ids depend on how settings are
    spelled."""
    names = {}
    for path in folder.rglob("runs.csv"):
        with path.open(encoding="utf-8", newline="") as file:
            names[path.parent] = {row.get("run") or "-": f"run{place}"
                                  for place, row in enumerate(csv.DictReader(file))}
    return names


def contents(folder):
    """Relative path -> bytes without noise, of all that a record holds and that is compared."""
    found = {}
    studies = run_names(folder)
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if name.endswith("/stderr") and (path.parent / "status").read_text(
                encoding="utf-8") != "2\n":
            continue
        if not path.is_file() or SKIPPED.search("/" + name):
            continue
        runs = next((studies[p] for p in path.parents if p in studies), {})
        known = re.compile("|".join(re.escape(run) for run in runs if len(run) == 16) or "(?!)")
        data = path.read_bytes().replace(str(folder).encode(), b"RECORD")
        if path.suffix not in (".png", ".pdf"):
            for pattern, text in NOISE:
                data = pattern.sub(text, data)
            text = known.sub(lambda m, runs=runs: runs[m.group()], data.decode(errors="replace"))
            data = HASH.sub("HASH", text).encode()
        name = known.sub(lambda m, runs=runs: runs[m.group()], name)
        found[STUDY.sub("replay/STUDY", name)] = data
    return found


def compare(arguments):
    before, after = contents(Path(arguments.before).resolve()), contents(
        Path(arguments.after).resolve())
    different = 0
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name), after.get(name)
        if old == new:
            continue
        different += 1
        if old is None or new is None:
            print(f"== {name}: only {'after' if old is None else 'before'}")
        elif name.endswith((".png", ".pdf")):
            print(f"== {name}: another picture")
        else:
            print(f"== {name}")
            lines = difflib.unified_diff(old.decode(errors="replace").splitlines(),
                                         new.decode(errors="replace").splitlines(),
                                         "before", "after", lineterm="", n=0)
            for count, line in enumerate(lines):
                if count >= arguments.lines:
                    print("...")
                    break
                print(line[:400])
    print(f"{len(before.keys() & after.keys())} files in both, {different} differ")
    return 1 if different else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    one = verbs.add_parser("record")
    one.add_argument("folder")
    one.add_argument("--binary", default=str(ROOT / "tools/orrery"))
    one.add_argument("--only", help="regular expression of names")
    one.add_argument("--quick", action="store_true")
    two = verbs.add_parser("compare")
    two.add_argument("before")
    two.add_argument("after")
    two.add_argument("--lines", type=int, default=40, help="of each diff")
    arguments = parser.parse_args()
    return record(arguments) if arguments.verb == "record" else compare(arguments)


if __name__ == "__main__":
    sys.exit(main())
