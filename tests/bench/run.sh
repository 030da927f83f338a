#!/bin/sh
# Prints the design's targets for iterations and all-reduce beside what is measured, and the ratio
# to the bare SimGrid prototype where $ORRERY_DATA has it. Usage: tests/bench/run.sh [build folder]
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
build=${1:-$root/build/release}
data=${ORRERY_DATA:-$root/../shared}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM

"$build/tests/bench/iteration_bench" --benchmark_format=json >"$work/bench.json"
prototype=$data/prototypes/simgrid/iter.cpp
if [ -f "$prototype" ]; then
  g++ -std=c++20 -O2 -o "$work/iter" "$prototype" -lsimgrid
  for shape in "15 4 4 0" "15 4 4 1" "256 8 8 0"; do
    set -- $shape
    printf '%s ' "iteration/data:$1/pipeline:$2/tensor:$3/expanded:$4/"
    "$work/iter" variant=timer ar=long mb=64 "dp=$1" "pp=$2" "tp=$3" "full=$4" 2>/dev/null |
      sed -n 's/.*wall_med=\([0-9.]*\).*/\1/p'
  done >"$work/prototype.txt"
else
  echo "no prototype at $prototype: no ratios" >&2
  : >"$work/prototype.txt"
fi

/usr/bin/python3 - "$work" <<'PYTHON'
import json
import sys

TARGETS = [
    ("iteration/data:15/pipeline:4/tensor:4/expanded:0/", "240 GPUs, collapsed", 0.05, None),
    ("iteration/data:15/pipeline:4/tensor:4/expanded:1/", "240 GPUs, expanded", 0.2, None),
    ("iteration/data:256/pipeline:8/tensor:8/expanded:0/", "16,384 GPUs, collapsed", 5.0, 256),
    ("all_reduce/devices:1024/step_by_step:0/", "1 GiB all-reduce, 1,024 devices", 0.05, None),
    ("all_reduce/devices:1024/step_by_step:1/", "the same, every step", 15.0, None),
]
folder = sys.argv[1]
runs = json.load(open(folder + "/bench.json"))["benchmarks"]
prototype = dict(line.split() for line in open(folder + "/prototype.txt"))
print(f"{'what':34}{'target s':>9}{'CPU s':>9}{'':>8}{'prototype':>10}{'ratio':>7}{'MB':>6}")
for name, what, target, megabytes in TARGETS:
    run = next((r for r in runs if r["name"].startswith(name)), None)
    if run is None or run.get("error_occurred"):
        print(f"{what:34}{target:9.2f}   failed")
        continue
    seconds = run["real_time"] / 1e3
    met = seconds <= target and (megabytes is None or run["peak_MB"] <= megabytes)
    other = prototype.get(name)
    beside = f"{float(other):10.3f}{seconds / float(other):7.2f}" if other else " " * 17
    limit = f"{run['peak_MB']:6.0f}" + (f" of {megabytes}" if megabytes else "")
    print(f"{what:34}{target:9.2f}{seconds:9.3f}{'met' if met else 'MISSED':>8}{beside}{limit}")
PYTHON
