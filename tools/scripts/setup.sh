# Sourced by tools/orrery and tools/test: from a bare Debian 12 to an up-to-date build.
#
# setup_build [TARGET...] installs what tools/scripts/packages.txt names and dpkg lacks, configures, and
# builds the targets (all without an argument). All output goes to stderr and to logs in the build
# folder; nothing is repeated that is up to date. Afterwards $build_dir holds the build.
#
# The environment may set
#   ORRERY_PRESET        preset of CMakePresets.json (release)
#   ORRERY_JOBS          compilers at once (cores, but no more than one per 2 GiB of free memory)
#   ORRERY_SKIP_APT      1: do not look for packages; you provide what packages.txt names
#   CCACHE_DIR, CCACHE_MAXSIZE   the compiler cache (~/.cache/orrery/ccache, at most 2 GB)
set -euo pipefail

root=$(cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/../.." && pwd)
preset=${ORRERY_PRESET:-release}
build_dir=$root/build/$preset

say() { printf 'orrery: %s\n' "$*" >&2; }
die() {
  say "$@"
  exit 1
}

# How many compilers to run at once.
build_jobs() {
  if [[ -n ${ORRERY_JOBS:-} ]]; then
    [[ $ORRERY_JOBS =~ ^[1-9][0-9]*$ ]] || die "ORRERY_JOBS=$ORRERY_JOBS is not a positive number"
    echo "$ORRERY_JOBS"
    return
  fi
  local cores free_kib limit used
  cores=$(nproc)
  free_kib=$(awk '$1 == "MemAvailable:" { print $2 }' /proc/meminfo)
  if [[ -r /sys/fs/cgroup/memory.max && -r /sys/fs/cgroup/memory.current ]]; then
    limit=$(</sys/fs/cgroup/memory.max) used=$(</sys/fs/cgroup/memory.current)
    if [[ $limit != max ]] && (((limit - used) / 1024 < free_kib)); then
      free_kib=$(((limit - used) / 1024))
    fi
  fi
  local by_memory=$((free_kib / (2 * 1024 * 1024)))
  ((by_memory >= 1)) || by_memory=1
  echo $((cores < by_memory ? cores : by_memory))
}

# Copies stdin to the log $2 and shows the progress, on one line if there is a terminal.
follow() {
  local label=$1 log=$2 line percent shown=-1 width=79 start=$SECONDS
  local terminal=
  [[ -t 2 && ${TERM:-dumb} != dumb ]] && terminal=1 && width=$(($(tput cols 2>/dev/null || echo 80) - 1))
  while IFS= read -r line || [[ -n $line ]]; do
    printf '%s\n' "$line"
    if [[ -n $terminal ]]; then
      line="orrery: $label: ${line//[[:cntrl:]]/ }"
      printf '\r\033[K%s' "${line:0:width}" >&2
    elif [[ $line =~ ^\[([0-9]+)/([0-9]+)\] ]]; then
      percent=$((10 * BASH_REMATCH[1] / BASH_REMATCH[2] * 10))
      if ((percent > shown && BASH_REMATCH[2] > 1)); then
        say "$label: ${BASH_REMATCH[1]} of ${BASH_REMATCH[2]} steps, $((SECONDS - start)) s"
        shown=$percent
      fi
    fi
  done >"$log"
  if [[ -n $terminal ]]; then
    printf '\r\033[K' >&2
  fi
}

# logged LABEL LOG COMMAND...: runs it with its output in LOG; on failure shows what the log says.
logged() {
  local label=$1 log=$2 first
  shift 2
  if "$@" </dev/null 2>&1 9>&- | follow "$label" "$log"; then
    return
  fi
  # ninja lets running jobs finish, so the first failure may be well before the log's end.
  first=$(grep -n -m 1 '^FAILED:' "$log" | cut -d: -f1) || first=
  if [[ -n $first ]]; then
    tail -n "+$first" "$log" | head -n 60 >&2
  else
    tail -n 40 "$log" >&2
  fi
  say "$label failed; the whole log: $log"
  return 1
}

# The names of packages.txt that are not installed, one a line.
missing_packages() {
  local names installed
  names=$(sed 's/[[:space:]]*#.*//; /^$/d' "$root/tools/scripts/packages.txt" | sort -u)
  # dpkg-query fails when it knows one of the names not at all; the list is what counts.
  # shellcheck disable=SC2086
  installed=$(dpkg-query -W -f='${db:Status-Status} ${Package}\n' $names 2>/dev/null |
    sed -n 's/^installed //p' | sort -u) || true
  comm -23 <(echo "$names") <(echo "$installed")
}

# True when nothing was installed or removed since the packages were last found complete.
packages_known_complete() {
  [[ -f $1 && $1 -nt /var/lib/dpkg/status && $(<"$1") == "$(sha256sum <"$root/tools/scripts/packages.txt")" ]]
}

install_packages() {
  local stamp=$build_dir/packages.stamp missing command prefix=()
  [[ ${ORRERY_SKIP_APT:-} == 1 ]] && return
  packages_known_complete "$stamp" && return
  command -v dpkg-query >/dev/null && command -v apt-get >/dev/null ||
    die "no dpkg-query and apt-get here. Orrery installs its packages on Debian 12 only;" \
      "elsewhere provide what tools/scripts/packages.txt names and set ORRERY_SKIP_APT=1"
  mapfile -t missing < <(missing_packages)
  if ((${#missing[@]})); then
    # --no-remove: refuse rather than take away what the user or SimGrid needs.
    command=(apt-get install -y --no-install-recommends --no-remove
      -o DPkg::Lock::Timeout=300 "${missing[@]}")
    say "${#missing[@]} Debian packages are missing: ${missing[*]}"
    if [[ $(id -u) != 0 ]]; then
      prefix=(sudo)
      if ! command -v sudo >/dev/null || ! { sudo -n true 2>/dev/null || [[ -t 0 && -t 2 ]]; }; then
        say "not root, and sudo is missing or needs a password. As root, run:"
        printf '  apt-get update && apt-get install -y --no-install-recommends %s\n' \
          "${missing[*]}" >&2
        exit 1
      fi
      say "installing them with sudo: ${command[*]}"
      sudo -v
    else
      say "installing them as root: ${command[*]}"
    fi
    prefix+=(env DEBIAN_FRONTEND=noninteractive)
    # The first try fails at once where the package lists are missing or out of date.
    if ! "${prefix[@]}" "${command[@]}" --simulate </dev/null >/dev/null 2>&1 ||
      ! "${prefix[@]}" "${command[@]}" --download-only </dev/null >/dev/null 2>&1; then
      logged "apt-get update" "$build_dir/apt-update.log" "${prefix[@]}" apt-get update || exit 1
    fi
    logged "apt-get install" "$build_dir/apt-install.log" "${prefix[@]}" "${command[@]}" || exit 1
    mapfile -t missing < <(missing_packages)
    ((${#missing[@]} == 0)) || die "still missing after apt-get install: ${missing[*]}"
    say "installed"
  fi
  sha256sum <"$root/tools/scripts/packages.txt" >"$stamp"
}

# What ninja cannot see: the presets, the place of the repository, and folders that came or went.
configure_inputs() {
  (
    cd -- "$root"
    shopt -s nullglob
    echo "$root" {,*/,*/*/,*/*/*/}CMakeLists.txt
    cat CMakePresets.json
  ) | sha256sum
}

configure() {
  local stamp=$build_dir/configure.stamp cache=$build_dir/CMakeCache.txt inputs options=()
  inputs=$(configure_inputs)
  [[ -f $stamp && -f $build_dir/build.ninja && $(<"$stamp") == "$inputs" ]] && return
  # A repository that was moved or copied with its build folder starts afresh.
  if [[ -f $cache ]] && ! grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$root" "$cache"; then
    options+=(--fresh)
  fi
  say "configuring $preset in ${build_dir#"$root"/}"
  logged configure "$build_dir/configure.log" \
    cmake "${options[@]}" -S "$root" --preset "$preset" || exit 1
  echo "$inputs" >"$stamp"
}

# A bounded cache of our own: the user's other compilations keep theirs.
use_ccache() {
  local home_cache=${XDG_CACHE_HOME:-${HOME:-/nonexistent}/.cache}/orrery/ccache
  if [[ -z ${CCACHE_DIR:-} ]]; then
    mkdir -p -- "$home_cache" 2>/dev/null && [[ -w $home_cache ]] || home_cache=$root/build/ccache
    export CCACHE_DIR=$home_cache CCACHE_MAXSIZE=${CCACHE_MAXSIZE:-2G}
  fi
  export CCACHE_BASEDIR=$root # another clone finds the same objects
  export CCACHE_SLOPPINESS=pch_defines,time_macros # as precompiled headers need
}

setup_build() {
  local jobs
  mkdir -p -- "$build_dir" 2>/dev/null && [[ -w $build_dir ]] ||
    die "cannot write to $build_dir: run as the user who owns the repository"
  exec 9>"$build_dir/setup.lock"
  if ! flock -n 9; then
    say "waiting for another build in ${build_dir#"$root"/}"
    flock 9
  fi
  install_packages
  configure
  use_ccache
  jobs=$(build_jobs)
  NINJA_STATUS='[%f/%t] ' logged "building with $jobs jobs" "$build_dir/build.log" \
    ninja -C "$build_dir" -j "$jobs" "$@" || exit 1
  exec 9>&-
}
