#!/usr/bin/env bash
# Checks before a commit: format, folders, scripts, and clang-tidy on what changed.
#
#   tools/check.sh [--fix] [--base REF | --all]
#
# --fix       reformat first
# --base REF  clang-tidy looks at what differs from REF (default: where this branch left
#             origin/main; without origin/main, the commit before HEAD); uncommitted changes count
# --all       clang-tidy looks at every source file
# clang-tidy takes its flags from a build folder of its own (preset tidy), in which sources are compiled
# one by one. Settings: see tools/scripts/setup.sh.

ORRERY_PRESET=tidy
# shellcheck source=tools/scripts/setup.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/scripts/setup.sh"

usage() {
  awk 'NR > 1 { if (!/^#/) exit; sub(/^# ?/, ""); print }' "${BASH_SOURCE[0]}"
}

fix= base= all=
while (($#)); do
  case $1 in
    --fix) fix=--fix ;;
    --all) all=1 ;;
    --base)
      (($# > 1)) || die "--base needs a commit"
      base=$2
      shift
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
  shift
done
cd -- "$root"

sources=('*.cpp' '*.h' '*.cu' '*.cuh')

# The source files that clang-tidy has to look at.
changed_files() {
  if [[ -n $all ]]; then
    git ls-files --cached --others --exclude-standard -- "${sources[@]}"
    return
  fi
  if [[ -z $base ]]; then
    base=$(git merge-base origin/main HEAD 2>/dev/null) ||
      base=$(git rev-parse --quiet --verify HEAD~1) || base=HEAD
  fi
  git diff --name-only --diff-filter=d "$base" -- "${sources[@]}"
  git ls-files --others --exclude-standard -- "${sources[@]}"
}

# A header is looked at through its own .cpp where it has one. CUDA sources need nvcc's flags.
tidy_files() {
  changed_files | sort -u | while IFS= read -r file; do
    [[ -f $file ]] || continue
    case $file in
      *.cu | *.cuh) continue ;;
      *.h) [[ -f ${file%.h}.cpp ]] && file=${file%.h}.cpp ;;
    esac
    echo "$file"
  done | sort -u
}

tidy() {
  local files file known=()
  local tool
  tool=$(command -v clang-tidy-14 || command -v clang-tidy) || die "clang-tidy is missing"
  [[ $("$tool" --version) == *"version 14."* ]] || die "$tool is not version 14 (Debian 12)"
  if [[ -n $base ]]; then
    git rev-parse --quiet --verify "$base^{commit}" >/dev/null || die "no commit $base"
  fi
  mapfile -t files < <(tidy_files)
  for file in "${files[@]}"; do
    # A source that no target lists (CUDA back ends where CUDA is off) has no flags.
    if [[ $file == *.h ]] || grep -qF "\"file\": \"$root/$file\"" "$build_dir/compile_commands.json"; then
      known+=("$file")
    else
      say "clang-tidy: $file is in no target of this build, not checked"
    fi
  done
  if ((${#known[@]} == 0)); then
    echo "clang-tidy: no changed sources"
    return
  fi
  # -Wconversion means less to g++ than to clang. clang-tidy counts the warnings that it suppressed
  # in other people's headers: not of interest.
  printf '%s\0' "${known[@]}" | xargs -0 -n 1 -P "$(build_jobs)" \
    "$tool" --quiet -p "$build_dir" --extra-arg=-Wno-sign-conversion \
    --extra-arg=-Wno-unknown-warning-option \
    2> >(grep -Ev '^[0-9]+ warnings? generated' >&2) || return 1
  echo "clang-tidy: ${#known[@]} files"
}

failed=()
tools/scripts/check_format.sh $fix || failed+=(format)
tools/scripts/check_layers.py || failed+=(layers)
tools/scripts/check_scripts.py || failed+=(scripts)
setup_build generated_headers # and the flags of every file
tidy || failed+=(clang-tidy)
((${#failed[@]} == 0)) || die "failed: ${failed[*]}"
echo "all checks passed"
