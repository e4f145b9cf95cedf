#!/usr/bin/env bash
# Llama-2 7B, all parameters, inside 24 GiB of the GPU with 112 GiB of pinned host memory, beside the same job in 130 GiB.
#
# usage: host_tier.sh MTC [TARGET [STEPS]]      (default: h200 20; about 6 minutes and 120 GiB of host memory)
# Fails when memory is above 24 GiB or more than 1 % off the plan, the loss does not fall by a nat, a loss of the first three steps
# differs by more than 0.01 from the job in 130 GiB, a step is slower than 9,000 tokens a second, or waits for copies take more than
# a quarter of what the kernels take in the profiled step.
set -u
mtc=$(realpath "$1") target=${2:-h200} steps=${3:-20}
cd "$(dirname "$0")" || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

run() { # NAME FLAGS..: trains, keeps log and metrics
  local name=$1
  shift
  "$mtc" train llama2_7b.mt --target "$target" "$@" -o "$work/$name" --no-checkpoint >"$work/$name.log" 2>&1 ||
    { echo "$name: exit $?"; tail -n 6 "$work/$name.log"; return 1; }
  grep memory "$work/$name.log"
  tail -n 2 "$work/$name.log"
}
run inside --vram 24G --host-ram 112G --steps "$steps" --profile "$work/trace.json" || exit 1
run whole --vram 130G --steps 3 || exit 1

python3 - "$work" <<'PY'
import collections, json, re, statistics, sys
work = sys.argv[1]
inside, whole = ([json.loads(l) for l in open(f"{work}/{name}/metrics.jsonl")] for name in ("inside", "whole"))
planned, measured = (int(x.replace(",", "")) for x in
                     re.search(r"\bmemory planned ([\d,]+) bytes.*?: ([\d,]+) bytes", open(f"{work}/inside.log").read()).groups())
loss = [r["loss"] for r in inside]
apart = max(abs(a["loss"] - b["loss"]) for a, b in zip(inside, whole))
rate = statistics.median(r["tokens_per_second"] for r in inside[2:] or inside)
busy = collections.Counter()
for e in json.load(open(f"{work}/trace.json"))["traceEvents"]:
    if e.get("ph") == "X" and e["tid"] == 1 and e["cat"] != "program":
        busy["waits" if e["cat"] == "wait" else "kernels"] += e["dur"] / 1e6
checks = {
    f"memory {measured:,} of {planned:,} bytes planned": measured <= 24 << 30 and -0.01 <= measured / planned - 1 <= 0,
    f"loss {loss[0]:.3f} -> {loss[-1]:.3f} in {len(loss)} steps": len(loss) < 20 or loss[0] - loss[-1] >= 1,
    f"losses at most {apart:.5f} from the job in 130 GiB": apart <= 0.01,
    f"{rate:,.0f} tokens/s": rate >= 9000,
    f"{busy['waits']:.2f} s of waits beside {busy['kernels']:.2f} s of kernels": busy["waits"] <= busy["kernels"] / 4,
}
for what, holds in checks.items():
    print("ok " if holds else "BAD", what)
sys.exit(not all(checks.values()))
PY
