#!/usr/bin/env bash
# Builds the test suite with sanitizers and runs it: is there an access, a value or a race that no
# test sees?
#
#   tools/scripts/sanitize.sh address|thread [CTEST ARGS...]
#
# address  AddressSanitizer and UndefinedBehaviorSanitizer, all tests (preset asan)
# thread   ThreadSanitizer, the tests of what has threads: executor, replay, studies (preset tsan)
#
# The first finding ends a test, which then fails. The sanitizers are linked statically, so that
# libraries of faults and clocks may be loaded before a program; left out are tests that load the
# Python module into an interpreter without them. Settings: see tools/scripts/setup.sh;
# ORRERY_TARGETS="executor_net_tests ..." builds less of it, -R '^executor_net' then runs what there is.
kind=${1:-}
case $kind in
  address)
    export ORRERY_PRESET=asan
    choice=(-E '^(python_|experiments_(agreement|llama3|autohet|oobleck|validation_(errors|a100|sailor|today)))')
    targets=()
    ;;
  thread)
    export ORRERY_PRESET=tsan
    choice=(-R '^(executor_(net|launcher|engine)|sim_replay|experiments_(sweep|replay|disk_cache))')
    targets=(executor_net_tests executor_launcher_tests executor_launcher_test executor_engine_tests
      sim_replay_tests experiments_tests)
    ;;
  *)
    awk 'NR > 1 { if (!/^#/) exit; sub(/^# ?/, ""); print }' "${BASH_SOURCE[0]}" >&2
    exit 2
    ;;
esac
shift
# shellcheck source=tools/scripts/setup.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/setup.sh"
[[ -n ${ORRERY_TARGETS:-} ]] && read -ra targets <<<"$ORRERY_TARGETS"
setup_build "${targets[@]}"
export UBSAN_OPTIONS=print_stacktrace=1
# Simulations are forked, and each page that a copy touches costs: freed memory is used again soon,
# and where it was allocated is known to one level.
export ASAN_OPTIONS=quarantine_size_mb=1:thread_local_quarantine_size_kb=16:malloc_context_size=1:max_redzone=64
# Simulations are forked while other threads sleep.
export TSAN_OPTIONS=halt_on_error=1:die_after_fork=0
exec ctest --test-dir "$build_dir" --output-on-failure --no-tests=error "${choice[@]}" "$@" </dev/null
