#!/usr/bin/env bash
# Prints the design's targets for iterations, lowering, all-reduce, plan switches and HexiScale's
# search, calls from Python, and what is measured here, with the ratio to the bare SimGrid
# prototype where its source is there; iterations of up to a million GPUs, folded, and of plans on
# mixed ones; then a replay of 54 days on 16,384 GPUs and one of 30 days of spot machines, what a
# second call of a study costs (second_call.py), searches of the Orrery planner (orrery_search.py),
# what the executor adds to an op and its log to a step, its matrix products against those of the
# libraries alone, its emulated links against what they are asked for (where namespaces are
# permitted; else it says so), and the search times of all planners on 4 to 240 GPUs against the
# papers'.
#
#   tests/bench/run.sh [BUILD]    takes some minutes
#
# Builds the benchmarks as tools/orrery builds (tools/scripts/setup.sh), or in the configured folder BUILD.
# ORRERY_DATA (../shared) holds the prototype, prototypes/simgrid/iter.cpp. Ends with 1 if a target
# is missed.
set -euo pipefail
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)
benches=(executor_bench folding_bench gemm_bench iteration_bench models_bench netlab_bench orrery
  orrery_python plan_bench replay_bench replay_spot_bench search_bench switch_bench)
if (($# > 0)); then
  build=$(cd -- "$1" && pwd)
  cmake --build "$build" --target "${benches[@]}" >&2
else
  # shellcheck source=tools/scripts/setup.sh
  source "$root/tools/scripts/setup.sh"
  setup_build "${benches[@]}"
  build=$build_dir
fi
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT

"$build/tests/bench/iteration_bench" --benchmark_format=json 2>/dev/null >"$work/bench.json"
(cd -- "$root" && "$build/tests/bench/models_bench" --benchmark_format=json) \
  2>/dev/null >"$work/models.json"
"$build/tests/planners/search_bench" --papers hexiscale >"$work/planner.txt"
(cd -- "$root" && "$build/tests/bench/switch_bench" 3) >"$work/switch.txt"

PYTHONPATH=$build/tools/python /usr/bin/python3 -B "$root/tests/bench/python_call_bench.py" \
  >"$work/python.csv"

prototype=${ORRERY_DATA:-$root/../shared}/prototypes/simgrid/iter.cpp
: >"$work/prototype.txt"
if [[ -f $prototype ]]; then
  g++ -std=c++20 -O2 -o "$work/iter" "$prototype" -lsimgrid
  for shape in "15 4 4 0" "15 4 4 1" "256 8 8 0"; do
    read -r data pipeline tensor expanded <<<"$shape"
    "$work/iter" variant=timer ar=long mb=64 "dp=$data" "pp=$pipeline" "tp=$tensor" \
      "full=$expanded" 2>/dev/null | sed -n \
      "s|.*wall_med=\([0-9.]*\).*peak=\([0-9]*\)MB.*|$data/$pipeline/$tensor/$expanded \1 \2|p" \
      >>"$work/prototype.txt"
  done
else
  echo "no prototype at $prototype: no ratios to it" >&2
fi

status=0
/usr/bin/python3 - "$work" <<'PYTHON' || status=$?
import json
import sys

folder = sys.argv[1]
SMALL, EXPANDED, LARGE = "15/4/4/0", "15/4/4/1", "256/8/8/0"

runs = {}
for run in (r for name in ("bench", "models")
            for r in json.load(open(f"{folder}/{name}.json"))["benchmarks"]):
    kind, *rest = run["name"].split("/")
    arguments = "/".join(p.split(":")[1] for p in rest if ":" in p and "iter" not in p)
    runs[f"{kind} {arguments}".rstrip()] = run
prototype = {}
for line in open(folder + "/prototype.txt"):
    shape, seconds, megabytes = line.split()
    prototype[shape] = (float(seconds), float(megabytes))
search = [line.split() for line in open(folder + "/planner.txt") if line.split()[:1] == ["320"]]


def measured(bench, counter=None):
    run = runs.get(bench)
    if run is None or run.get("error_occurred"):
        return None
    return run[counter] if counter else run["real_time"] / 1e3


def beside(shape, which):
    return prototype[shape][which] if shape in prototype else None


rows = [
    ("iteration, 240 GPUs, collapsed", "CPU s", 0.05, measured("iteration " + SMALL),
     beside(SMALL, 0)),
    ("iteration, 240 GPUs, expanded", "CPU s", 0.2, measured("iteration " + EXPANDED),
     beside(EXPANDED, 0)),
    ("iteration, 16,384 GPUs, collapsed", "CPU s", 5, measured("iteration " + LARGE),
     beside(LARGE, 0)),
    ("  its peak memory", "MB", 256, measured("iteration " + LARGE, "peak_MB"), beside(LARGE, 1)),
    ("  its lowering", "CPU s", 1, measured("iteration " + LARGE, "lower_s"), None),
    ("all-reduce, 1 GiB, 1,024 devices", "CPU s", 0.05, measured("all_reduce 1024/0"), None),
    ("  every step through the solver", "CPU s", 15, measured("all_reduce 1024/1"), None),
    ("million routes, 16,384 GPUs", "s", 2, measured("million_routes"), None),
    ("gradients of 256 replicas, equal degrees", "s", 0.005,
     measured("synchronize_256_replicas 0"), None),
    ("  mixed degrees", "s", 0.005, measured("synchronize_256_replicas 1"), None),
]
for line in open(folder + "/switch.txt"):
    gpus, _, what, seconds, target = line.split()[:5]
    rows.append((f"switch, {int(gpus):,} GPUs, {what}", "CPU s", float(target), float(seconds),
                 None))
for line in list(open(folder + "/python.csv"))[1:]:
    call, _, _, overhead_ms = line.split(",")
    rows.append((f"simulate(), a small {call}: Python adds", "s", 0.001, float(overhead_ms) / 1e3,
                 None))
for fields in search:
    rows.append((f"HexiScale, 320 GPUs, 50 rounds, {fields[2]}", "s", 5, float(fields[3]), None))
if not search:
    rows.append(("HexiScale, 320 GPUs, 50 rounds", "s", 5, None, None))

print(f"{'what':44}{'':6}{'target':>8}{'measured':>10}{'ratio':>7}{'':>8}{'prototype':>11}{'ratio':>7}")
missed = False
for what, unit, target, value, other in rows:
    line = f"{what:44}{unit:6}{target:8g}"
    met = value is not None and value <= target
    missed |= not met
    if value is None:
        print(f"{line}{'failed':>10}{'':7}{'MISSED':>8}")
        continue
    digits = 0 if unit == "MB" else 3
    line += f"{value:10.{digits}f}{value / target:7.2f}{'met' if met else 'MISSED':>8}"
    if other:
        line += f"{other:11.{digits}f}{value / other:7.2f}"
    print(line)
print("\nIterations and all-reduce: lowering, prices, simulation, spans and memory timeline, without")
print("process start and platform. Prototype: its event loop alone, on a hand-written graph.")
sys.exit(missed)
PYTHON
echo
"$build/tests/bench/folding_bench" || status=1
echo
echo "240 mixed GPUs, HexiScale's plans of Llama 30B; target: 0.010 s for lower_s + run_s"
for cluster in hexiscale_240 hexiscale_240_port_per_gpu; do
  "$build/tools/orrery" plan -p hexiscale -o evaluate_top=1 -c "$cluster" -m llama_30b -b 512 \
    -s 4096 --output "$work/$cluster.yaml" >/dev/null
done
"$build/tests/bench/plan_bench" "$work"/hexiscale_240*.yaml
echo
"$build/tests/bench/replay_bench" || status=1
echo
(cd -- "$root" && "$build/tests/bench/replay_spot_bench") || status=1
echo
"$root/tests/bench/second_call.py" "$build/tools/orrery" || status=1
echo
"$root/tests/bench/orrery_search.py" "$build/tools/orrery" || status=1
echo
"$build/tests/bench/executor_bench" || status=1
echo
"$build/tests/bench/gemm_bench" || status=1
echo
netlab=0
"$build/tests/bench/netlab_bench" || netlab=$?
if ((netlab == 77)); then  # What netlab_bench returns without namespaces.
  echo "the ring's target is not measured here"
elif ((netlab != 0)); then
  status=1
fi
echo
"$build/tests/planners/search_bench"
exit "$status"
