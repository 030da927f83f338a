#!/usr/bin/env bash
# Throws random inputs at everything that reads bytes from outside (tests/fuzz/targets.h).
#
#   tools/scripts/fuzz.sh [--minutes M | --runs N] [TARGET...]
#
# Builds the readers with clang, libFuzzer, AddressSanitizer and UndefinedBehaviorSanitizer into
# build/fuzz (tests/fuzz/build.py; the rest comes from the release build) and runs each TARGET
# (default: all) for M minutes (default: 1) or N executions, from the corpus of the tree and from
# what earlier runs found (build/fuzz/corpus). An input is a finding when it crashes,
# takes more than 10 s, or more than 2 GiB. Prints a table; exit code 1 if there was a finding, which
# lies in build/fuzz/findings: put it into tests/fuzz/corpus/TARGET with its fix.
set -euo pipefail
root=$(cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/../.." && pwd)
cd -- "$root"

usage() {
  awk 'NR > 1 { if (!/^#/) exit; sub(/^# ?/, ""); print }' "${BASH_SOURCE[0]}"
}

limit=(-max_total_time=60)
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
mkdir -p build/fuzz/findings
printf '%-13s %12s %8s %9s %8s  %s\n' target executions per_s coverage corpus findings
for target in "${targets[@]}"; do
  mkdir -p "build/fuzz/corpus/$target"
  log=build/fuzz/$target.log
  findings="build/fuzz/findings/$target-"
  rm -f "$findings"*
  ORRERY_FUZZ_TARGET=$target UBSAN_OPTIONS=print_stacktrace=1 ASAN_OPTIONS=allocator_may_return_null=1 \
    "$program" "build/fuzz/corpus/$target" "tests/fuzz/corpus/$target" "${limit[@]}" \
    -timeout=10 -rss_limit_mb=2048 -malloc_limit_mb=2048 -max_len=16384 -print_final_stats=1 \
    -artifact_prefix="$findings" >"$log" 2>&1 || true
  number() { sed -n "s/^stat::$1: *//p" "$log" | tail -n 1; }
  found=$(find build/fuzz/findings -name "$target-*" | wc -l)
  coverage=$(sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$log" | tail -n 1)
  printf '%-13s %12s %8s %9s %8s  %s\n' "$target" "$(number number_of_executed_units)" \
    "$(number average_exec_per_sec)" "${coverage:--}" \
    "$(find "build/fuzz/corpus/$target" -type f | wc -l)" "$found"
  # A target that did not run at all is a finding, too.
  if ((found > 0)) || [[ -z $(number number_of_executed_units) ]]; then
    tail -n 30 "$log" >&2
    status=1
  fi
done
exit "$status"
