#!/usr/bin/env bash
# Height over the bound and time of placement, on generated instances and, when MTC_PLACEMENT_DATA names a folder of public ones
# (minimalloc/, somas/, iopddl/), on those against their bars: the eleven of minimalloc at their capacity in 2.6 s in all,
# the large traces at the bound in 1 s each.
# usage: tests/bench/bench_place.sh [BUILD]      prints a table; exits 1 when a bar is missed
set -euo pipefail
cd "$(dirname "$0")/../.."
build=${1:-build}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
missed=0
TIMEFORMAT=%U # seconds of the processor, whatever else runs

field() { grep -o "\"$1\":[^,]*" "$work/out.json" | head -1 | cut -d: -f2; }

# run FILE CAPACITY|- SECONDS: one row; adds to $total
total=0
run() {
  local seconds status=0 capacity=()
  [ "$2" = - ] || capacity=(--capacity "$2")
  seconds=$({ time "$build/mtc" place "$1" "${capacity[@]}" --json >"$work/out.json" 2>"$work/err"; } 2>&1) || status=$?
  total=$(awk -v a="$total" -v b="$seconds" 'BEGIN { print a + b }')
  awk -v name="$(basename "$1" .csv)" -v n="$(field buffers)" -v b="$(field bound_bytes)" -v h="$(field height_bytes)" \
    -v m="$(field method)" -v s="$seconds" 'BEGIN { printf "%-16s %7s %16s %16s %8.3f%% %10s %8s\n", name, n, b, h, b ? 100 * (h - b) / b : 0, m, s }'
  if [ $status -ne 0 ] || { [ "$2" = - ] && [ "$(field height_bytes)" != "$(field bound_bytes)" ]; } ||
    awk -v s="$seconds" -v most="$3" 'BEGIN { exit !(s > most) }'; then
    echo "  missed"
    missed=1
  fi
}

printf '%-16s %7s %16s %16s %9s %10s %8s\n' instance buffers bound height over method seconds
"${CC:-cc}" -std=gnu17 -O1 -I. -o "$work/gen" tests/bench/gen_place.c passes/fixed.c
"$work/gen" "$work"
for f in "$work"/*.csv; do run "$f" - 1; done
if [ -n "${MTC_PLACEMENT_DATA:-}" ]; then
  total=0
  for f in "$MTC_PLACEMENT_DATA"/minimalloc/*.csv; do run "$f" 1048576 2.6; done
  echo "minimalloc in all: $total s"
  awk -v s="$total" 'BEGIN { exit !(s > 2.6) }' && missed=1
  for f in "$MTC_PLACEMENT_DATA"/somas/*.csv; do run "$f" - 1; done
  for f in "$MTC_PLACEMENT_DATA"/iopddl/*.csv.gz; do
    gzip -dc "$f" >"$work/$(basename "$f" .gz)"
    run "$work/$(basename "$f" .gz)" - 1
  done
fi
exit $missed
