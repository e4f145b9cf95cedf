#!/bin/bash
# Variables on the host from the command line, on the CPU: the plan takes less of the device, the run writes the same bytes as
# without, poisoned and resumed from either side; bounds, missing checkpoints, runs without copies, rows of the profile.
# usage: test_host.sh BUILD
set -u
mtc=$(realpath "$1")/mtc
mtrun=$(realpath "$1")/mtrun
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export MTC_MODELS=$PWD/models MTC_THREADS=1
fail() { echo "FAIL: $*" >&2; exit 1; }
expect() { # CODE COMMAND..
  local want=$1 code; shift
  "$@" >"$work/out" 2>"$work/err"
  code=$?
  [ $code = "$want" ] || { cat "$work/out" "$work/err" >&2; fail "exit code $code, not $want: $*"; }
}
steps=(--set train.steps=6 --set train.eval.batches=2 --micro-batch 6 --chunks 1 --recompute none)
expect 0 "$mtc" compile models/char.mt --target cpu --vram 64M "${steps[@]}" -o "$work/device.mtx"
expect 0 "$mtc" compile models/char.mt --target cpu --vram 17M --host-ram 200M "${steps[@]}" -o "$work/host.mtx"

# saved values wait on the host: in the report, by name, and in --json
plan=("$mtc" plan models/char.mt --target cpu --vram 17M --host-ram 200M "${steps[@]}")
expect 0 "${plan[@]}"
grep -q "saved values .*from forward to backward" "$work/out" || fail "the host's table has no saved values"
grep -q "on the host .*copied out and in" "$work/out" || fail "what waits on the host is not named"
expect 0 "${plan[@]}" --json
grep -A2 '"waiting": \[' "$work/out" | grep -q '"name"' || fail "--json does not name what waits on the host"

expect 0 "$mtc" train "$work/device.mtx" -o "$work/device"
expect 0 "$mtc" train "$work/host.mtx" -o "$work/host"
grep -q "host memory planned [0-9,]* bytes .*measured: [0-9,]* bytes" "$work/out" || fail "the host's memory is not reported"
loss() { grep -o '"loss": [^,]*' "$1/metrics.jsonl"; }
[ "$(loss "$work/device")" = "$(loss "$work/host")" ] || fail "losses differ"
for run in device host; do expect 0 "$mtc" export "$work/$run" -o "$work/$run.safetensors"; done
cmp "$work/device.safetensors" "$work/host.safetensors" || fail "weights differ"

expect 0 "$mtrun" "$work/host.mtx" -o "$work/poisoned" --poison
cmp "$work/host/step-000006.mtck" "$work/poisoned/step-000006.mtck" || fail "copies that come late give other bytes"

# begun on one side, gone on with on the other
for way in host:device device:host; do
  expect 0 "$mtrun" "$work/${way%:*}.mtx" -o "$work/$way" --steps 3
  expect 0 "$mtrun" "$work/${way#*:}.mtx" -o "$work/$way" --resume
  [ "$(loss "$work/device")" = "$(loss "$work/$way")" ] || fail "$way: losses differ after --resume"
done
expect 0 "$mtc" sample "$work/host" --tokens 5

expect 3 "$mtc" train "$work/host.mtx" -o "$work/x" --host-ram 1M
grep -q "on the host, more than --host-ram 1M" "$work/err" || fail "the bound on the host is not named"

expect 0 "$mtrun" "$work/host.mtx" -o "$work/none" --no-checkpoint
ls "$work/none" | grep -q mtck && fail "--no-checkpoint wrote one"
expect 2 "$mtrun" "$work/host.mtx" -o "$work/y" --no-copies
expect 0 "$mtrun" "$work/host.mtx" --no-copies --dry-run 2

expect 0 "$mtc" train "$work/host.mtx" --dry-run 2 --profile "$work/p.json"
for row in "copies to the device" "copies to the host"; do
  grep -q "$row" "$work/p.json" || fail "the profile has no row \"$row\""
done
echo ok
