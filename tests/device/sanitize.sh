#!/usr/bin/env bash
# A full training step of a small GPT-2 and a small Llama under compute-sanitizer: memcheck, racecheck, initcheck.
# usage: sanitize.sh MTC [TARGET]      Exit 1 when a tool complains or a step fails.
set -u
mtc=$(realpath "$1") target=${2:-h200}
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
small_model() { # FILE, MODEL, ARGUMENTS
  cat >"$work/$1.mt" <<MODEL
mt 1
use "$PWD/../../models/$1.mt" ($2)
model Small = $2($3)
data text = text(train = "$PWD/../../models/data/tinyshakespeare.txt", holdout = 0.1)
precision { compute = bf16  master = f32  moments = f32  accum = f32 }
train {
  data      = text.train
  dims { T = 128  B = 2 }
  batch     = seqs(4)
  steps     = 2
  optimizer = adamw(lr = 3e-4, betas = (0.9, 0.95), weight_decay = 0.1)
  schedule  = constant(warmup = 1)
  clip      = 1.0
}
MODEL
}
small_model gpt2 GPT2 'V = 256, Tmax = 128, D = 128, H = 2, L = 2'
small_model llama Llama 'V = 256, D = 256, H = 4, KV = 2, L = 2, F = 512'
bad=0
for model in gpt2 llama; do
  "$mtc" compile "$work/$model.mt" --target "$target" --vram 2G -o "$work/$model.mtx" >"$work/out" 2>&1 || { cat "$work/out"; bad=1; continue; }
  for tool in memcheck racecheck initcheck; do
    compute-sanitizer --report-api-errors no --error-exitcode 9 --tool $tool \
      "$mtc" train "$work/$model.mtx" -o "$work/run" --force >"$work/log" 2>&1
    code=$?
    # What the tool itself takes on the GPU ends the run after its first step: that is a full step all the same.
    [ $code = 0 ] || grep -q "memory broke the plan" "$work/log" || { bad=1; tail -n 20 "$work/log"; }
    grep -q 'SUMMARY: 0 ' "$work/log" || bad=1
    printf '%-6s %-9s %s\n' $model $tool "$(grep -o 'SUMMARY.*' "$work/log" | tail -n 1)"
  done
done
exit $bad
