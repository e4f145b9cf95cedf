#!/usr/bin/env bash
# All kernels of all example models that plan compile for every architecture. The builder refuses a kernel with a stack frame or
# spills, so that a program that was written has none. Needs NVRTC, no GPU: 77 without it.
set -u
mtc=$1/mtc
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bad=0
compile() { # TARGET MODEL FLAGS..
  local target=$1
  shift
  if ! "$mtc" compile "$@" --target "$target" --vram 100% -o "$work/m.mtx" --force >"$work/out" 2>&1; then
    grep -q 'NVRTC' "$work/out" && grep -q 'is not on this machine' "$work/out" && exit 77
    echo "FAIL: $* for $target"
    tail -n 20 "$work/out"
    bad=1
  fi
}
small=(-D D=256 -D L=2) # what decides a kernel's registers is its shape class, not the size of the model
update=(-D D=128 -D L=1 -D H=2 --set precision.compute=bf16) # formats of optimizer state
for target in a100 rtx3090 rtx4090 h100 b200 rtx5090; do
  compile $target models/gpt2.mt "${small[@]}" -D H=4           # heads of 64
  compile $target models/llama.mt "${small[@]}" -D H=2 -D KV=1 -D F=688 # heads of 128, grouped
done
compile h100 models/gpt2.mt "${update[@]}" --set precision.master=split --set precision.moments=i8 --set precision.accum=bf16
compile rtx3090 models/gpt2.mt "${update[@]}" --set precision.master=bf16 --set precision.moments=bf16 --set precision.accum=bf16
for optimizer in "sgd(lr=1e-2, momentum=0.9)" "lion(lr=1e-4)" "adafactor(lr=1e-2)" "muon(lr=1e-3)"; do
  compile h100 models/gpt2.mt "${update[@]}" --set "train.optimizer=$optimizer" --set precision.moments=i8
done
compile rtx3090 models/gpt2.mt "${small[@]}" -D H=4 --set precision.compute=f32
compile h100 models/gpt2.mt -D L=1 --set precision.compute=tf32 # 768 columns of f32: most registers of a norm's backward
compile rtx3090 models/gpt2.mt -D L=1 -D D=1600 -D H=25 --set precision.compute=tf32
compile h100 models/gpt2.mt "${small[@]}" -D H=4 --set precision.compute=f32
compile h100 models/gpt2.mt "${small[@]}" -D H=4 --set precision.compute=f16
compile rtx4090 models/gpt2.mt "${small[@]}" -D H=2 --set precision.compute=f16
compile h100 models/llama_lora.mt -D L=2
compile h100 models/llama.mt --preset llama32_1b -D L=2 # scaled rotary positions, one table for embedding and head
compile h100 models/qwen2.mt --preset qwen25_15b -D L=2 # biases of q, k and v
compile h100 models/char.mt
compile h100 models/gpt2.mt
exit $bad
