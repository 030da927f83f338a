#!/usr/bin/env bash
# Shows that training continues when a rank dies: trains a small Llama on two unequal replicas as
# processes of this machine, once without a failure and once with rank 3 killed in the middle, lets
# a recovery policy make the plan for the devices that are left, and draws both loss curves.
#
#   tools/scripts/demo_kill.sh [FOLDER] [EXECUTE ARGS...]     FOLDER: results/demo_kill
#
# Further arguments go to both runs of `orrery execute`, for example --precision fp64. STEPS (40)
# steps are trained, at KILL (3@20) a rank dies, POLICY (hetu) answers. FOLDER/whole and
# FOLDER/killed get the logs, FOLDER/losses.{pdf,png} the figure. Ends with 1 when the losses of the
# two runs differ by more than 1e-5 relative (1e-12 with --precision fp64).
set -euo pipefail
case ${1:-} in
  -h | --help)
    awk 'NR > 1 { if (!/^#/) exit; sub(/^# ?/, ""); print }' "${BASH_SOURCE[0]}"
    exit
    ;;
  -*)
    echo "$(basename "$0"): the first argument is a folder, not '$1'" >&2
    exit 2
    ;;
esac
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
cd -- "$here/../.."
out=${1:-results/demo_kill}
(($# == 0)) || shift
orrery=${ORRERY:-tools/orrery}
run=(experiments/executor/two_replicas.yaml --cluster a100_8
  --model experiments/executor/tiny_llama.yaml --sequence-length 32 --steps "${STEPS:-40}" "$@")

rm -rf -- "$out/whole" "$out/killed"
mkdir -p -- "$out"
echo "== without a failure"
"$orrery" execute "${run[@]}" --quiet --out "$out/whole"
echo "== with --kill ${KILL:-3@20} --elastic ${POLICY:-hetu}"
"$orrery" execute "${run[@]}" --quiet --elastic "${POLICY:-hetu}" --kill "${KILL:-3@20}" \
  --out "$out/killed"
/usr/bin/python3 tools/scripts/plot_losses.py --runs "$out/killed/losses.csv" \
  --reference "$out/whole/losses.csv" --out "$out"

limit=1e-5
[[ " $* " == *" fp64 "* ]] && limit=1e-12
/usr/bin/python3 - "$out" "$limit" <<'PYTHON'
import csv
import sys

folder, limit = sys.argv[1], float(sys.argv[2])


def losses(name):
    with open(f"{folder}/{name}/losses.csv", encoding="utf-8") as file:
        return {int(row["step"]): float(row["loss"]) for row in csv.DictReader(file)}


whole, killed = losses("whole"), losses("killed")
if whole.keys() != killed.keys():
    sys.exit(f"steps differ: {sorted(whole.keys() ^ killed.keys())}")
worst = max(abs(killed[step] / whole[step] - 1) for step in whole)
print(f"\n{len(whole)} steps, losses differ by at most {worst:.1e} relative (limit {limit:g})")
sys.exit(worst > limit)
PYTHON
echo "figure: $out/losses.png"
