#!/usr/bin/env bash
# Did anything change? Runs the golden tests; or records what the README's commands and the
# experiments print and write, and compares two such records (tools/scripts/outputs.py).
#
#   tools/scripts/golden.sh [--update] [CTEST ARGS...]
#   tools/scripts/golden.sh --record FOLDER [--quick] [--only REGEX]
#   tools/scripts/golden.sh --compare BEFORE AFTER
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
  --record | --compare)
    verb=${1#--}
    shift
    exec python3 "$root/tools/scripts/outputs.py" "$verb" "$@"
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
