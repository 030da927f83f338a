#!/usr/bin/python3
"""Compares plans that the papers quote with the plans that their planners find here.

    tools/orrery python experiments/agreement/agreement.py            writes docs/agreement.md
    tools/orrery python experiments/agreement/agreement.py --check    compares it with the file; exit
                                                                      code 1: they differ

Reads rows.yaml (see there for the keys), runs `orrery plan` and `orrery simulate`, asks the planners'
own cost models (package orrery), and computes verdict and figures of each row. Without --orrery it
takes the binary of build/release.
"""

import argparse
import difflib
import json
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import orrery
import yaml

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "agreement.md"
TIED = 0.005  # Estimates that differ by less count as equal.
SAME_NUMBER = 1e-9  # The planner's report and its cost model on its plan.


class Broken(Exception):
    """A run that must not fail did."""


# ---- Running the tools


class Tools:
    def __init__(self, program, folder):
        self.orrery, self.folder = program, folder

    def call(self, *words):
        return subprocess.run([str(w) for w in words], cwd=ROOT, text=True, capture_output=True)

    def where(self, row, cluster, job):
        return ["--cluster", cluster, "--model", row["model"], "--job", job]

    def plan(self, row, cluster, job, options, name):
        """The planner's entry of `orrery plan --json`, and the file with its plan."""
        output = self.folder / f"{row['id']}.{name}.yaml"
        words = [x for k, v in options.items() for x in ("--option", f"{k}={v}")]
        done = self.call(self.orrery, "plan", "--planner", row["planner"], "--json", "--output", output,
                         *self.where(row, cluster, job), *words)
        if not done.stdout.startswith("{"):
            raise Broken(f"{row['id']}: orrery plan: {done.stderr.strip()}")
        return json.loads(done.stdout)["planners"][0], output

    def simulate(self, row, cluster, job, plan, cost="simulator"):
        """(entry of `orrery simulate --json`, None), or (None, why the plan is refused)."""
        done = self.call(self.orrery, "simulate", plan, "--json", "--cost", cost,
                         *self.where(row, cluster, job))
        if done.returncode == 2:
            first = done.stderr.strip().splitlines()[0]
            return None, first.rsplit(": ", 1)[-1]
        if not done.stdout.startswith("{"):
            raise Broken(f"{row['id']}: orrery simulate: {done.stderr.strip()}")
        return json.loads(done.stdout)["plans"][0], None

    def own(self, row, cluster, job, plan):
        """Seconds by the planner's own cost model, with its default settings."""
        at = orrery.Training(cluster if "/" not in cluster else ROOT / cluster, row["model"], job)
        said = at.own_estimate(row["planner"], plan if Path(plan).is_absolute() else ROOT / plan)
        if isinstance(said, orrery.Infeasible):
            raise Broken(f"{row['id']}: {said.constraint}: {said.witness}")
        return said


# ---- What a plan is


def gpu_types(cluster):
    """GPU types of a cluster file by device id."""
    path = ROOT / cluster if "/" in cluster else ROOT / f"models/library/clusters/{cluster}.yaml"
    types = []
    for node in yaml.safe_load(path.read_text())["nodes"]:
        gpus = node["gpus"] if isinstance(node["gpus"], list) else [node["gpus"]]
        for _ in range(node.get("count", 1)):
            for gpu in gpus:
                types += [gpu["type"]] * gpu["count"]
    return types


def numbers(ranges):
    for item in ranges:
        first, _, last = str(item).partition("-")
        yield from range(int(first), int(last or first) + 1)


def signature(plan, types, level):
    """What plans are compared by, whatever the names of the devices and the order of the pipelines:
    GPU types and degrees of each stage's groups; its blocks from the level "layers" on; micro-batches,
    recomputation and ZeRO at the level "all"."""
    pipelines = []
    for pipeline in plan["pipelines"]:
        stages = []
        for stage in pipeline["stages"]:
            groups, layers, modes = [], 0, []
            for segment in stage["segments"]:
                size = len(list(numbers([segment["blocks"]])))
                layers += size
                modes.append((size, segment.get("recompute", "none"),
                              segment.get("zero", {}).get("stage", 0)))
                groups = [(tuple(types[d] for d in numbers(group["devices"])),
                           group.get("tensor_parallel", 1)) for group in segment["groups"]]
            stages.append((tuple(groups), layers if level != "groups" else 0,
                           tuple(modes) if level == "all" else ()))
        batch = (pipeline["micro_batches"], pipeline["micro_batch_size"])
        pipelines.append((tuple(stages), batch if level == "all" else 0))
    return sorted(pipelines)


def matches(a, types_a, b, types_b, level):
    return signature(a, types_a, level) == signature(b, types_b, level)


# ---- A row


def relation(ours, theirs):
    """In words: our estimate against the quoted plan's."""
    change = ours / theirs - 1
    if abs(change) <= TIED:
        return "tied"
    return f"beaten by {-100 * change:.1f} %" if change < 0 else f"not reached: {100 * change:.1f} % slower"


def seconds(value):
    return "-" if value is None else f"{value:.4g}"


class Row:
    """Everything that one row shows."""

    def __init__(self, row, tools):
        self.row, self.tools = row, tools
        self.cluster = row["cluster"]
        self.plan_cluster = row.get("plan_cluster") or self.cluster
        self.job = tools.folder / f"{row['id']}.job.yaml"
        self.job.write_text(yaml.safe_dump({"schema": "orrery/job/1", **row["job"]}))
        self.figures = []
        self.options = row.get("options") or {}
        if "plan" in row:
            self.compare()
        else:
            self.not_expressible()

    def found(self, options, name):
        """(search report, evaluation, plan, estimate by the named cost model, simulated seconds)."""
        entry, path = self.tools.plan(self.row, self.cluster, self.job, options, name)
        if entry["infeasible"]:
            raise Broken(f"{self.row['id']}: no plan: {entry['infeasible']}")
        estimate = entry["search"]["estimate_seconds"]
        if self.row["estimate"] != "planner":
            checked = self.estimate(self.cluster, path)
            if abs(checked - estimate) > SAME_NUMBER * estimate:
                raise Broken(f"{self.row['id']}: the planner says {estimate} s of its plan, "
                             f"the cost model {checked} s")
        return entry["plan"], estimate, entry["evaluation"]["iteration_seconds"]

    def estimate(self, cluster, plan):
        kind = self.row["estimate"]
        if kind == "own":
            return self.tools.own(self.row, cluster, self.job, plan)
        if kind == "hexiscale_paper":
            return self.tools.simulate(self.row, cluster, self.job, plan, kind)[0]["evaluation"][
                "iteration_seconds"]
        return None

    def compare(self):
        row = self.row
        simulated, refused = self.tools.simulate(row, self.plan_cluster, self.job, row["plan"])
        free = self.found(self.options, "free")
        if refused:
            self.verdict = "not expressible"
            self.figures = [refused, f"ours: estimate {seconds(free[1])}, simulated {seconds(free[2])} s"]
            return
        evaluation = simulated["evaluation"]
        self.theirs = self.estimate(self.plan_cluster, row["plan"])
        runs = {"": free}
        if row.get("degrees"):
            runs = {"at its degrees": self.found({**self.options, **row["degrees"]}, "degrees"),
                    "in all": free}
        self.verdict = self.judge(simulated["plan"], runs)
        if not evaluation["fits"]:
            self.verdict = "infeasible here"
        self.figures = self.table(evaluation, runs)

    def judge(self, printed, runs):
        types, printed_types = gpu_types(self.cluster), gpu_types(self.plan_cluster)
        verdicts = []
        for name, (plan, estimate, _) in runs.items():
            if matches(plan, types, printed, printed_types, self.row["prints"]):
                verdict = "found"
                if self.theirs is None and matches(plan, types, printed, printed_types, "all"):
                    self.theirs = estimate
            elif self.theirs is None:
                verdict = "another plan"
            else:
                verdict = relation(estimate, self.theirs)
            if name == "in all" and verdicts[0].split(" at ")[0] == verdict:
                continue
            verdicts.append(f"{verdict} {name}".strip())
        if len(verdicts) == 1:
            return verdicts[0].replace(" at its degrees", "") if len(runs) > 1 else verdicts[0]
        return ", ".join(verdicts)

    def table(self, evaluation, runs):
        estimates = [seconds(self.theirs)] + [seconds(r[1]) for r in runs.values()]
        times = [seconds(evaluation["iteration_seconds"])] + [seconds(r[2]) for r in runs.values()]
        fits = "fits" if evaluation["fits"] else evaluation["verdict"]
        return [f"estimate {' / '.join(estimates)} s", f"simulated {' / '.join(times)} s", fits]

    def not_expressible(self):
        row = self.row
        entry, _ = self.tools.plan(row, self.cluster, self.job, self.options, "printed")
        if not entry["infeasible"] or entry["infeasible"]["constraint"] != "not expressible":
            raise Broken(f"{row['id']}: expressible after all")
        self.verdict = "not expressible"
        nearest = re.search(r"nearest legal: DP(\d+)(?: SP(\d+))?, micro-batch (\d+)(.*)",
                            entry["infeasible"]["witness"])
        options = {**self.options, "data_parallel": nearest[1], "sequence_degree": nearest[2] or 1,
                   "micro_batch_size": nearest[3]}
        near, _ = self.tools.plan(row, self.cluster, self.job, options, "nearest")
        text = f"nearest: DP{nearest[1]} SP{nearest[2] or 1}, bs{nearest[3]}{nearest[4]}"
        if near["infeasible"]:
            self.figures = [text, f"{near['infeasible']['constraint']}: {near['infeasible']['witness']}"]
        else:
            self.figures = [text, f"estimate {seconds(near['search']['estimate_seconds'])} s",
                            f"simulated {seconds(near['evaluation']['iteration_seconds'])} s", "fits"]

    def cells(self):
        row = self.row
        setting = row["setting"]
        if row.get("assumed", "none") != "none":
            setting += f"; assumed: {row['assumed']}"
        options = ", ".join(f"{k}={v}" for k, v in self.options.items())
        held = ", ".join(f"{k}={v}" for k, v in (row.get("degrees") or {}).items())
        planner = f"`{row['planner']}`" + (f" {options}" if options else "")
        if held:
            planner += f"; at its degrees: {held}"
        model = {"own": "", "planner": "", "hexiscale_paper": "; Appendix A"}[row.get("estimate", "own")]
        return [row["place"], setting, row["printed"], planner + model, f"**{self.verdict}**",
                "; ".join(self.figures), row["why"]]


# ---- The page

HEAD = """# Plans that the papers quote

Written by `experiments/agreement/agreement.py` from `experiments/agreement/rows.yaml`; do not edit.

In each row one planner plans the case of a quoted plan. Both plans are compared under the planner's own cost model, which its estimates come from (for `hexiscale`, Appendix A of its paper), and in the simulator. Layer times come from the roofline with the efficiencies that `models/library` declares; the papers' profiles are not public. States take 16 bytes per parameter unless the row says otherwise.

- **found**: the planner returns what the paper prints: groups, and layers and micro-batches where it prints them. **tied**: another plan, estimates within 0.5 %. **beaten by x %**: the planner's plan takes x % less time by the same estimate. **at its degrees**: with the planner held to the tensor-parallel degree and the number of pipelines of the quoted plan; **in all**: free.
- **infeasible here**: the quoted plan does not fit in memory; it is estimated and simulated anyway. **not expressible**: it does not divide the batch or the heads; the nearest legal setting or our plan is shown instead.
- Figures: seconds of an iteration of the quoted plan / of ours (at its degrees / in all), then the memory of the quoted plan.

| paper, place | setting | quoted plan | planner | verdict | figures | why |
|---|---|---|---|---|---|---|
"""


def cell(text):
    return " ".join(str(text).split()).replace("|", "\\|")


def page(rows):
    lines = ["| " + " | ".join(cell(c) for c in row.cells()) + " |" for row in rows]
    kinds = {}
    for row in rows:
        first = re.split(r" by |,| at |:", row.verdict)[0]
        kinds[first] = kinds.get(first, 0) + 1
    summary = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    return HEAD + "\n".join(lines) + f"\n\n{len(rows)} rows, by their first verdict: {summary}.\n"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    build = ROOT / "build" / "release"
    parser.add_argument("--check", action="store_true", help="compare with the page; write nothing")
    parser.add_argument("--orrery", type=Path, default=build / "tools/orrery")
    parser.add_argument("--only", help="rows whose id contains this, to the terminal")
    return parser.parse_args()


def main():
    options = arguments()
    if not os.access(options.orrery, os.X_OK):
        sys.exit(f"agreement.py: no program {options.orrery}; build it or name another one")
    rows = yaml.safe_load((ROOT / "experiments/agreement/rows.yaml").read_text())["rows"]
    if options.only:
        rows = [row for row in rows if options.only in row["id"]]
    with tempfile.TemporaryDirectory() as folder:
        tools = Tools(options.orrery.resolve(), Path(folder))
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            try:
                done = list(pool.map(lambda row: Row(row, tools), rows))
            except Broken as problem:
                sys.exit(f"agreement.py: {problem}")
    changed = [f"{row.row['id']}: verdict is '{row.verdict}', rows.yaml says '{row.row.get('verdict')}'"
               for row in done if row.verdict != row.row.get("verdict")]
    if options.only:
        print(page(done))
        print("\n".join(changed))
        return
    text = page(done)
    if not options.check:
        PAGE.write_text(text)
        print(f"wrote {PAGE.relative_to(ROOT)}: {len(done)} rows")
    committed = PAGE.read_text() if PAGE.exists() else ""
    difference = difflib.unified_diff(committed.splitlines(), text.splitlines(),
                                      "docs/agreement.md", "this run", lineterm="", n=0)
    problems = changed + list(difference)
    if problems:
        print("\n".join(problems), file=sys.stderr)
        sys.exit(1)
    print("agreement: every row as committed")


if __name__ == "__main__":
    main()
