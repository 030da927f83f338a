#!/usr/bin/env bash
# Checks that clang-format 14 would change no source file that git knows or does not ignore.
#
#   tools/scripts/check_format.sh [--fix]
#
# --fix rewrites the files. Exit code 77: not checked, because git or clang-format 14 is missing.
set -euo pipefail
root=$(cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/../.." && pwd)
cd -- "$root"

not_checked() {
  echo "check_format: not checked: $*"
  exit 77
}

mode=(--dry-run -Werror)
case ${1:-} in
  "") ;;
  --fix) mode=(-i) ;;
  *)
    awk 'NR > 1 { if (!/^#/) exit; sub(/^# ?/, ""); print }' "${BASH_SOURCE[0]}"
    exit 2
    ;;
esac

# Other major versions format differently.
formatter=$(command -v clang-format-14 || command -v clang-format) ||
  not_checked "clang-format is missing (apt-get install clang-format)"
version=$("$formatter" --version | sed -n 's/.*version \([0-9]*\)\..*/\1/p')
[[ $version == 14 ]] || not_checked "$formatter is version $version; version 14 (Debian 12) is needed"
command -v git >/dev/null || not_checked "git is missing"
git rev-parse --is-inside-work-tree >/dev/null || not_checked "$root is not a git work tree"

files=()
while IFS= read -r -d '' file; do
  if [[ -f $file ]]; then
    files+=("$file") # one that was deleted but not yet committed is still listed
  fi
done < <(git ls-files -z --cached --others --exclude-standard -- '*.h' '*.cpp' '*.cu' '*.cuh')
((${#files[@]})) || not_checked "no sources"
if ! printf '%s\0' "${files[@]}" |
  xargs -0 -n 16 -P "$(nproc)" "$formatter" "${mode[@]}"; then
  echo "check_format: run tools/check.sh --fix"
  exit 1
fi
echo "check_format: ${#files[@]} files"
