#!/usr/bin/env bash
# Added time of `mtc plan --problem` against proven optima of small problems: equal on at least nine in ten, nowhere above the
# optimum by more than 2 % where one is proven. Needs Python with SciPy (HiGHS); exits with 77, skipped, without.
# usage: tests/oracle/test_recompute_mip.sh [BUILD]
set -euo pipefail
cd "$(dirname "$0")/../.."
build=${1:-build}
python=${PYTHON:-python3}
"$python" -c 'import scipy.optimize; scipy.optimize.milp' 2>/dev/null || exit 77
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"${CC:-cc}" -std=gnu17 -O1 -I. -D_GNU_SOURCE -o "$work/gen" tests/bench/gen_recompute.c ir/base.c ir/pieces.c -l:libxxhash.a -lm
names=(mlp-8 mlp-12 unet-d1 unet-d2 gpt-2l gpt-4l llama-2l resnet-3)
"$work/gen" "$work" "${names[@]}"

all=0 equal=0 bad=0
for name in "${names[@]}"; do
  for percent in 80 60 40; do
    status=0
    "$build/mtc" plan --problem "$work/$name.jsonl" --budget $percent% --json >"$work/ours" 2>/dev/null || status=$?
    [ $status -eq 0 ] || [ $status -eq 3 ]
    budget=$(grep -o '"budget_bytes":[0-9]*' "$work/ours" | cut -d: -f2)
    "$python" tests/oracle/recompute_mip.py "$work/$name.jsonl" "$budget" 20 >"$work/optimum"
    ours=$(grep -o '"added_ns":[0-9]*' "$work/ours" | cut -d: -f2 || true)
    optimum=$(grep -o '"added_ns": [0-9]*' "$work/optimum" | grep -o '[0-9]*$' || true)
    grep -q '"status": 0' "$work/optimum" || optimum=
    echo "$name at $percent %: ${ours:-none}, optimum ${optimum:-not proven}"
    [ -n "$optimum" ] || continue
    all=$((all + 1))
    [ -n "$ours" ] && [ "$ours" -le $((optimum + optimum / 10000 + 2)) ] && equal=$((equal + 1))
    [ -n "$ours" ] && [ "$ours" -le $((optimum + optimum / 50)) ] || bad=$((bad + 1))
  done
done
echo "$equal of $all at the optimum, $bad more than 2 % above"
[ $all -gt 0 ] && [ $bad -eq 0 ] && [ $((equal * 10)) -ge $((all * 9)) ]
