#!/usr/bin/python3
"""Plans of the Orrery planner for the four emulated nodes, under conditions that make them slower
and slower, and the manifest that runs them: is the measured order the predicted one?

    experiments/twin/planned/make.py [ORRERY]        writes plans/ and manifest.yaml

The conditions are every set of nodes below with every schedule, then the same with full recomputation;
of equal plans the first counts, and the first PLANS are taken. Nothing else is chosen."""

import subprocess
import sys
from itertools import product
from pathlib import Path

import yaml

PLANS = 20
HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
ORRERY = sys.argv[1] if len(sys.argv) > 1 else str(ROOT / "tools" / "orrery")
WITHOUT = ["", "n3", "n1", "n0", "n2,n3"]
SCHEDULES = ["gpipe", "1f1b", "interleaved_1f1b", "zero_bubble"]
FIT = ("fit_pipeline", "fit_replicas", "fit_tensor")


def plan(recompute, without, schedule):
    """The text of the plan file; None: there is no plan."""
    path = HERE / "plans" / "next.yaml"
    words = [ORRERY, "plan", "-p", "orrery", "-o", "budget=40", "--executable-by", "executor",
             "--cluster", ROOT / "experiments" / "executor" / "netlab_4.yaml",
             "--model", HERE.parent / "netlab" / "model.yaml",
             "--job", HERE.parent / "netlab" / "job.yaml",
             "--recompute", recompute, "--schedules", schedule, "--output", path]
    if without:
        words += ["--without", without]
    subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    if not path.exists():
        return None
    text = path.read_text(encoding="utf-8")
    path.unlink()
    return text


def main():
    (HERE / "plans").mkdir(exist_ok=True)
    found = {}
    for recompute, without, schedule in product(["none", "full"], WITHOUT, SCHEDULES):
        text = plan(recompute, without, schedule)
        if text is None or len(found) == PLANS:
            continue
        shape = yaml.safe_load(text)
        same = str((shape["schedule"], shape.get("communication"), shape["pipelines"]))
        if same not in found:
            found[same] = text
    lines = ["# Written by make.py; do not edit. orrery twin experiments/twin/planned/manifest.yaml",
             "schema: orrery/study/1", "name: twin/planned",
             'title: "Twin: plans of the Orrery planner under twenty conditions"', "command: twin",
             "settings:", "  cluster: ../../executor/netlab_4.yaml", "  model: ../netlab/model.yaml",
             "  job: ../netlab/job.yaml", "  steps: 10", "  warm_up: 3", "seeds: [7]", "axes:",
             "  run:"]
    for name in FIT:
        lines.append(f"    - {{name: {name}, plan: ../netlab/plans/{name}.yaml, fit: true}}")
    for number, text in enumerate(found.values()):
        name = f"plan_{number:02}"
        (HERE / "plans" / f"{name}.yaml").write_text(text, encoding="utf-8")
        lines.append(f"    - {{name: {name}, plan: plans/{name}.yaml}}")
    (HERE / "manifest.yaml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{len(found)} plans")


if __name__ == "__main__":
    main()
