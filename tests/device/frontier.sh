#!/usr/bin/env bash
# Memory and speed, planned against measured, along the budgets of GPT-2 350M, GPT-2 774M and TinyLlama 1.1B on an idle GPU.
#
# usage: frontier.sh MTC [TARGET [FLAGS..]]      (default: h200; FLAGS go to every bench and compilation: --host-ram 64G)
# Calibrates the target once a model with `mtc bench` at 24 GiB, compiles all budgets side by side, then trains five steps of
# 65,536 tokens of each. Fails when a run takes more memory than planned or 1 % less, or when its step - the median of those after
# the first two - is further than 10 % from the plan's. Budgets without a plan say what the smallest is.
set -u
mtc=$(realpath "$1") target=${2:-h200}
shift $(($# > 2 ? 2 : $#))
cd "$(dirname "$0")" || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
models=(gpt2_350m gpt2_774m tinyllama) budgets=(8G 12G 16G 20G 24G) steps=5 bad=0
job=(--set "train.batch=tokens(65_536)" "$@")
begin=$SECONDS

compile_all() { # of one model, in the background, with the target that was measured on it
  local vram use=$work/$1.json
  [ -s "$use" ] || use=$target
  for vram in "${budgets[@]}"; do
    "$mtc" compile "$1.mt" --target "$use" --vram "$vram" "${job[@]}" -o "$work/$1.$vram.mtx" >"$work/$1.$vram.log" 2>&1 &
  done
}

for model in "${models[@]}"; do
  "$mtc" bench "$model.mt" --target "$target" --vram 24G "${job[@]}" --runs 4 -o "$work/$model.json" >"$work/bench" 2>&1 ||
    { bad=1; echo "$model: the bench failed"; tail -n 4 "$work/bench"; }
  grep -E '^ +step ' "$work/bench" | sed "s/^/$(printf '%-10s' "$model")/"
  compile_all "$model"
done
wait
echo "calibrated and compiled after $((SECONDS - begin)) s"

# Prints one row.
measure() {
  local model=$1 vram=$2 mtx=$work/$1.$2.mtx out=$work/run
  printf '%-10s %4s  ' "$model" "$vram"
  if [ ! -s "$mtx" ]; then
    grep -o 'the smallest possible is [^(]*' "$work/$model.$vram.log" || { tail -n 3 "$work/$model.$vram.log"; return 1; }
    return 0
  fi
  rm -rf "$out"
  "$mtc" train "$mtx" -o "$out" --steps $steps --no-checkpoint >"$work/log" 2>&1 ||
    { echo "exit $?"; tail -n 4 "$work/log"; return 1; }
  python3 - "$work/log" "$out/metrics.jsonl" "${vram%G}" <<'PY'
import json, re, statistics, sys
log, budget = open(sys.argv[1]).read(), int(sys.argv[3]) << 30
planned, measured = (int(x.replace(",", "")) for x in
                     re.search(r"memory planned ([\d,]+) bytes.*?: ([\d,]+) bytes", log).groups())
first = next(l.split() for l in log.splitlines() if l.split()[:1] == ["1"])
predicted = float(first[5]) / (1 + float(first[6].rstrip("%")) / 100)
rows = [json.loads(l) for l in open(sys.argv[2])][2:]
step = 1000 * statistics.median(r["step_seconds"] for r in rows)
rate = statistics.median(r["tokens_per_second"] for r in rows)
memory, time = 100 * (measured / planned - 1), 100 * (step / predicted - 1)
ok = -1 <= memory <= 0 and measured <= budget and abs(time) <= 10
print(f"{planned:>14,} {measured:>14,} {memory:>+8.3f} % {predicted:>9.1f} {step:>9.1f} {time:>+7.1f} % {rate:>9,.0f}  "
      + ("ok" if ok else "BAD"))
sys.exit(not ok)
PY
}

printf '%-10s %4s  %14s %14s %10s %9s %9s %9s %9s\n' model vram planned measured memory 'plan ms' 'step ms' time tok/s
for model in "${models[@]}"; do
  for vram in "${budgets[@]}"; do measure "$model" "$vram" || bad=1; done
done
echo "after $((SECONDS - begin)) s: $([ $bad = 0 ] && echo "all within 1 % of memory and 10 % of time" || echo FAILED)"
exit $bad
