#!/usr/bin/env bash
# Throws random inputs at everything that reads bytes from outside (tests/fuzz/targets.h).
#
#   tools/scripts/fuzz.sh [--minutes M | --runs N] [--length BYTES] [--keep FOLDER] [TARGET...]
#
# Builds the readers with clang, libFuzzer, AddressSanitizer and UndefinedBehaviorSanitizer into
# build/fuzz (tests/fuzz/build.py; the rest comes from the release build) and runs each TARGET
# (default: all) for M minutes (default: 1) or N executions on inputs of at most BYTES (default:
# 16384), from the corpus of the tree and from what earlier runs found. FOLDER (default:
# build/fuzz/kept) has that and sessions.csv, to which each run of a target adds a row, so that many
# short runs add up. An input is a finding when it crashes, takes more than 10 s of a core, or more
# than 2 GiB. Prints the sums of all sessions by target; exit code 1 if there was a finding, which
# lies in FOLDER/findings: put it into tests/fuzz/corpus/TARGET with its fix.
set -euo pipefail
root=$(cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/../.." && pwd)
cd -- "$root"

usage() {
  awk 'NR > 1 { if (!/^#/) exit; sub(/^# ?/, ""); print }' "${BASH_SOURCE[0]}"
}

limit=(-max_total_time=60)
length=16384
kept=build/fuzz/kept
targets=()
while (($# > 0)); do
  case $1 in
    --minutes)
      limit=("-max_total_time=$((60 * ${2:?--minutes needs a number}))")
      shift
      ;;
    --runs)
      limit=("-runs=${2:?--runs needs a number}")
      shift
      ;;
    --length)
      length=${2:?--length needs a number}
      shift
      ;;
    --keep)
      kept=${2:?--keep needs a folder}
      shift
      ;;
    -h | --help)
      usage
      exit
      ;;
    -*)
      usage >&2
      exit 2
      ;;
    *) targets+=("$1") ;;
  esac
  shift
done
command -v clang++ >/dev/null || {
  echo "fuzz: needs clang++ (apt-get install clang)" >&2
  exit 2
}

# shellcheck source=tools/scripts/setup.sh
source tools/scripts/setup.sh
setup_build tools/all
use_ccache
python3 tests/fuzz/build.py
ninja -C build/fuzz -j "$(build_jobs)" >&2
program=build/fuzz/orrery_fuzz
if ((${#targets[@]} == 0)); then
  # Without a target it names them all.
  mapfile -t targets < <(ORRERY_FUZZ_TARGET='' "$program" 2>&1 | sed -n 's/\t.*//p')
fi

status=0
mkdir -p "$kept/findings"
sessions=$kept/sessions.csv
[[ -s $sessions ]] || echo target,executions,seconds,coverage,findings >"$sessions"
# Of the time of an execution, half went into libFuzzer's entropic choice of inputs, and much of the
# rest into stacks of allocations and into memory that AddressSanitizer does not use again; a finding
# is run again by hand without these settings.
asan=allocator_may_return_null=1:quarantine_size_mb=1:thread_local_quarantine_size_kb=16
asan+=:malloc_context_size=2:max_malloc_fill_size=0
for target in "${targets[@]}"; do
  mkdir -p "$kept/corpus/$target"
  log=$kept/$target.log
  touch "$kept/started"
  begin=$SECONDS
  ORRERY_FUZZ_TARGET=$target UBSAN_OPTIONS=print_stacktrace=1 ASAN_OPTIONS=$asan \
    "$program" "$kept/corpus/$target" "tests/fuzz/corpus/$target" "${limit[@]}" -entropic=0 \
    -timeout=100 -report_slow_units=10 -rss_limit_mb=2048 -malloc_limit_mb=2048 \
    -max_len="$length" -print_final_stats=1 -artifact_prefix="$kept/findings/$target-" >"$log" 2>&1 || true
  # libFuzzer has a clock: on a busy machine 10 s may go by without any of them being the input's.
  while IFS= read -r late; do
    if (ulimit -t 10 && ORRERY_FUZZ_TARGET=$target "$program" "$late" >/dev/null 2>&1); then
      rm "$late"
    fi
  done < <(find "$kept/findings" \( -name "$target-timeout-*" -o -name "$target-slow-unit-*" \) \
    -newer "$kept/started")
  number() { sed -n "s/^stat::$1: *//p" "$log" | tail -n 1; }
  executions=$(number number_of_executed_units)
  seconds=$((SECONDS - begin))
  found=$(find "$kept/findings" -name "$target-*" -newer "$kept/started" | wc -l)
  coverage=$(sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$log" | tail -n 1)
  echo "$target,${executions:-0},$seconds,${coverage:-0},$found" >>"$sessions"
  # A target that did not run at all is a finding, too.
  if ((found > 0)) || [[ -z $executions ]]; then
    tail -n 30 "$log" >&2
    status=1
  fi
done
awk -F, 'NR > 1 { ran[$1] += $2; took[$1] += $3; found[$1] += $5; if ($4 > 0) coverage[$1] = $4 }
  END {
    printf "%-13s %12s %9s %9s %9s\n", "target", "executions", "seconds", "coverage", "findings"
    for (t in ran) printf "%-13s %12d %9d %9d %9d\n", t, ran[t], took[t], coverage[t], found[t] | "sort"
  }' "$sessions"
exit "$status"
