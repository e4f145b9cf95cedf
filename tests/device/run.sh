#!/bin/bash
# Checks and measures the CUDA target on the GPU of this machine; CI, which has none, never runs it.
#
# usage: tests/device/run.sh [BUILD]   (default: build; all of it must be built; TARGET: h200)
# Ends with exit code 1 when a kernel is wrong or slow, a sanitizer complains, the loss of GPT-2 124M does not fall, or memory breaks
# the plan.
set -u
cd "$(dirname "$0")/../.." || exit 1
build=${1:-build} work=$(mktemp -d) bad=0
trap 'rm -rf "$work"' EXIT
say() { printf '\n== %s\n' "$*"; }

say "every kernel against f64 references"
"$build/device_check" check | tail -n 3 || bad=1
[ "${PIPESTATUS[0]}" = 0 ] || bad=1

say "copies between host and GPU inside graphs"
"$build/device_copies" || bad=1

for tool in memcheck racecheck initcheck; do
  command -v compute-sanitizer >/dev/null || continue
  say "compute-sanitizer $tool"
  compute-sanitizer --report-api-errors no --error-exitcode 9 --tool $tool "$build/device_check" small >"$work/$tool" 2>&1 ||
    { bad=1; tail -n 30 "$work/$tool"; }
  grep SUMMARY "$work/$tool"
done

say "logits and gradients of Transformers, in fp32 on the GPU"
"$build/tests/t_train_transformers" tests/reference/transformers "${TARGET:-h200}" || bad=1

say "GPT-2 124M on the bytes of one text"
cat >"$work/gpt2_bytes.mt" <<MODEL
mt 1
use "$PWD/models/gpt2.mt" (GPT2)
model Bytes = GPT2(V = 50257, Tmax = 1024, D = 768, H = 12, L = 12)
data shakespeare = text(train = "$PWD/models/data/tinyshakespeare.txt", holdout = 0.1)
precision { compute = bf16  master = f32  moments = f32  accum = f32 }
train {
  data      = shakespeare.train
  dims { T = 1024  B = auto }
  batch     = seqs(64)
  steps     = 60
  optimizer = adamw(lr = 3e-4, betas = (0.9, 0.95), weight_decay = 0.1)
  schedule  = cosine(warmup = 10, final = 0.1)
  clip      = 1.0
  seed      = 1337
}
MODEL
for vram in 24G 40G; do
  "$build/mtc" compile "$work/gpt2_bytes.mt" --vram $vram -o "$work/$vram.mtx" || bad=1
  "$build/mtc" train "$work/$vram.mtx" -o "$work/run_$vram" --force | tee "$work/log_$vram" | tail -n 5
  [ "${PIPESTATUS[0]}" = 0 ] || bad=1
  grep "memory planned" "$work/log_$vram"
  python3 - "$work/run_$vram/metrics.jsonl" <<'CHECK' || bad=1
import json, sys
loss = [json.loads(line)["loss"] for line in open(sys.argv[1])]
print(f"loss {loss[0]:.3f} -> {loss[-1]:.3f}")
sys.exit(not (10 < loss[0] < 11.5 and loss[-1] < 3.0))
CHECK
done

say "where the time of a step goes"
"$build/device_profile" "$work/40G.mtx" | head -n 40

say "rates"
"$build/device_check" products attention loops || bad=1
exit $bad
