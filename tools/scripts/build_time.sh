#!/usr/bin/env bash
# Where compile time goes: seconds by folder and the ten slowest units, from ninja's log.
#
#   tools/scripts/build_time.sh [--build DIR]       what the log of DIR says (default: build/release)
#   tools/scripts/build_time.sh --fresh [TARGET]    builds TARGET (default: everything) first, in a
#                                                   temporary folder and without the compiler cache
#
# Seconds are wall-clock seconds of compilers, added up: on a machine with several cores a build
# takes less. A log tells nothing of the compiler cache: what came from it counts with the time that
# this took. In a unity build a unit is what is compiled at once (the sources of a folder, or up to
# ten of them); without, it is a file.
set -euo pipefail
root=$(cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/../.." && pwd)

usage() {
  awk 'NR > 1 { if (!/^#/) exit; sub(/^# ?/, ""); print }' "${BASH_SOURCE[0]}"
}

build="$root/build/release"
case ${1:-} in
  "") ;;
  --build) build=${2:?--build needs a folder} ;;
  --fresh)
    build=$(mktemp -d)
    trap 'rm -rf -- "$build"' EXIT
    (cd -- "$root" && cmake --preset release -B "$build") >/dev/null
    CCACHE_DISABLE=1 ninja -C "$build" "${2:-all}" >&2
    ;;
  -h | --help)
    usage
    exit
    ;;
  *)
    usage >&2
    exit 2
    ;;
esac
[[ -f $build/.ninja_log ]] || {
  echo "build_time: $build has no .ninja_log: not built yet" >&2
  exit 1
}

# Start and end in milliseconds, time stamp, output, hash. The last line of an output counts.
# FOLDER/CMakeFiles/TARGET.dir/Unity/unity_NAME_cxx.cxx.o is a unit of FOLDER/NAME, and where NAME is
# a number or part_NUMBER (cmake/orrery.cmake) of FOLDER itself.
awk -F '\t' '
  $4 ~ /CMakeFiles\/.*\.(o|gch)$/ { seconds[$4] = ($2 - $1) / 1000 }
  END {
    for (unit in seconds) {
      split(unit, path, /\/?CMakeFiles\/[^\/]*\.dir\//)
      folder = path[1] == "" ? "." : path[1]
      below = path[2]
      if (sub(/^Unity\/unity_/, "", below)) {
        sub(/_cxx\.cxx\.o$/, "", below)
        if (below !~ /^(part_)?[0-9]+$/) folder = folder "/" below
      } else if (sub(/\/[^\/]*$/, "", below)) {
        folder = folder "/" below
        sub(/.*\/__\//, "", folder) # a generated source, in the build folder
      }
      of_folder[folder] += seconds[unit]
      units[folder] += 1
      total += seconds[unit]
      count += 1
    }
    printf "%9s %6s  %s\n", "seconds", "units", "folder"
    sort = "sort -k1,1nr -k3"
    for (folder in of_folder) {
      printf "%9.1f %6d  %s\n", of_folder[folder], units[folder], folder | sort
    }
    close(sort)
    printf "%9.1f %6d  %s\n\n%9s  %s\n", total, count, "all", "seconds", "slowest units"
    slowest = "sort -k1,1nr -k2 | head -n 10"
    for (unit in seconds) {
      name = unit
      sub(/CMakeFiles\/[^\/]*\.dir\//, "", name)
      sub(/\.o$/, "", name)
      printf "%9.1f  %s\n", seconds[unit], name | slowest
    }
  }' "$build/.ninja_log"
