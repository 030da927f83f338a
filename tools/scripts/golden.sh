#!/usr/bin/env bash
# Runs the golden tests: did anything change?
#
#   tools/scripts/golden.sh [--update] [CTEST ARGS...]
#
# --update lets the tests rewrite tests/golden/<case>/expected.* and tests/planners/gaps.golden and
# shows what that changed; review it as a diff before committing.
set -euo pipefail
root=$(cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/../.." && pwd)

update=
case ${1:-} in
  --update)
    update=1
    export ORRERY_UPDATE_GOLDEN=1
    shift
    ;;
  -h | --help)
    awk 'NR > 1 { if (!/^#/) exit; sub(/^# ?/, ""); print }' "${BASH_SOURCE[0]}"
    exit
    ;;
esac

status=0
"$root/tools/test" -L '^golden$' "$@" || status=$?
if [[ -n $update ]]; then
  held=(tests/golden tests/planners/gaps.golden docs/images/sharding.json)
  git -C "$root" --no-pager diff --stat -- "${held[@]}"
  git -C "$root" ls-files --others --exclude-standard -- "${held[@]}" | sed 's/^/ new: /'
fi
exit "$status"
