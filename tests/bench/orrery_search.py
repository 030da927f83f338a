#!/usr/bin/python3
"""Search times of the Orrery planner on 64, 240 and 16,384 GPUs of several types.

    tests/bench/orrery_search.py ORRERY [BUDGET ...]

Makes a plan for each with everything allowed, without a cache, with its default number of
simulations or with the given ones. Prints the time of the plan's iteration, wall-clock and CPU
seconds, and the largest process, against 5 s, 30 s and 5 min of wall clock on two cores. Ends with 1
if one takes longer.
"""

import json
import resource
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EVERYTHING = ["--recompute", "none,selective,full", "--zero-stages", "0,1,2,3",
              "--sequence-parallel", "--schedules", "gpipe,1f1b,interleaved_1f1b,zero_bubble"]
CASES = [  # GPUs, cluster, model, batch, sequence length, seconds
    (64, "autohet_64", "gpt3_6.7b", 256, 2048, 5),
    (240, "hexiscale_240", "llama_30b", 512, 4096, 30),
    (16384, "tests/bench/four_types_16384.yaml", "llama3_70b", 4096, 4096, 300),
]


def main():
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        sys.exit(__doc__)
    orrery = str(Path(sys.argv[1]).resolve())
    missed = False
    print(f"{'GPUs':>6}{'budget':>9}{'iteration':>12}{'wall s':>9}{'CPU s':>9}{'MiB':>7}{'target':>8}")
    for gpus, cluster, model, batch, length, target in CASES:
        for budget in sys.argv[2:] or ["0"]:
            begin, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
            plan = subprocess.run(
                [orrery, "plan", "-p", "orrery", "--cluster", cluster, "--model", model,
                 "--global-batch", str(batch), "--sequence-length", str(length), *EVERYTHING,
                 "--cache", "off", "--seed", "1", "-o", f"budget={budget}", "--json"],
                cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
            wall, after = time.monotonic() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
            cpu = (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)
            found = json.loads(plan.stdout)["planners"][0]
            missed |= wall > target
            print(f"{gpus:6}{budget if budget != '0' else 'default':>9}"
                  f"{found['evaluation']['iteration_seconds']:10.4g} s{wall:9.1f}{cpu:9.1f}"
                  f"{after.ru_maxrss // 1024:7}{target:6} s {'met' if wall <= target else 'MISSED'}",
                  flush=True)
    return missed


if __name__ == "__main__":
    sys.exit(main())
