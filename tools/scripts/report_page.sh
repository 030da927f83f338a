#!/usr/bin/env bash
# Makes the page that `orrery report` puts its data into: build/report/page.html.
#
#   tools/scripts/report_page.sh
#
# Installs what tools/report/package-lock.json names (ECharts and esbuild, 90 MB, none of their
# scripts run) into build/report with npm, and bundles tools/report/src with it into one file. Does
# nothing if that is up to date. Needs Node.js 18 or newer and npm, and the npm registry the first
# time. Exit code 3: they are missing, or the registry cannot be reached; nothing else of Orrery
# needs them.
set -euo pipefail

root=$(cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/../.." && pwd)
from=$root/tools/report
to=$root/build/report
unavailable=3

say() { printf 'orrery: %s\n' "$*" >&2; }

inputs() {
  (cd -- "$from" && find . -path ./test -prune -o -type f -print0 | LC_ALL=C sort -z |
    xargs -0 sha256sum) | sha256sum
}

mkdir -p -- "$to"
exec 9>"$to/lock"
flock 9
stamp=$(inputs)
[[ -f $to/page.html && -f $to/stamp && $(<"$to/stamp") == "$stamp" ]] && exit 0

if ! command -v node >/dev/null || ! command -v npm >/dev/null; then
  say "the page of reports is bundled with Node.js and npm, which are not there:" \
    "install Debian's nodejs and npm, or set ORRERY_REPORT_PAGE to a page.html made elsewhere"
  exit $unavailable
fi
if [[ $(node -p 'process.versions.node.split(".")[0]') -lt 18 ]]; then
  say "the page of reports needs Node.js 18 or newer; here is $(node --version)"
  exit $unavailable
fi
if ! cmp -s "$from/package-lock.json" "$to/package-lock.json" || [[ ! -d $to/node_modules/echarts ]]; then
  say "installing ECharts and esbuild with npm into build/report (once, 90 MB)"
  cp -- "$from/package.json" "$to/"
  cp -- "$from/package-lock.json" "$to/package-lock.json"
  if ! (cd -- "$to" && npm ci --ignore-scripts --no-audit --no-fund) >"$to/npm.log" 2>&1 9>&-; then
    rm -f -- "$to/package-lock.json" # not installed
    tail -n 15 "$to/npm.log" >&2
    if ! (cd -- "$to" && npm ping) >/dev/null 2>&1 9>&-; then
      say "the npm registry cannot be reached; the whole log: $to/npm.log"
      exit $unavailable
    fi
    say "npm ci failed; the whole log: $to/npm.log"
    exit 1
  fi
fi
say "bundling the page of reports"
NODE_PATH=$to/node_modules node "$from/build.mjs" "$to/page.html" >&2
printf '%s\n' "$stamp" >"$to/stamp"
