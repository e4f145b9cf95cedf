#!/usr/bin/env bash
# test_formats.sh BUILD - runs in every format of optimizer state: stopped and resumed they go on bit for bit; what they
# export and what others start from is the f32 weight.
set -euo pipefail
build=$1
. tests/support/tiny_gpt2.sh

quiet() { "$@" >"$work/out" 2>&1 || { cat "$work/out" >&2; fail "$*"; }; }

tiny_model 1
cat >>"$tiny" <<'MT'
precision { compute = bf16 }

train {
  data      = words.train
  dims { T = 16  B = 2 }
  batch     = seqs(4)
  steps     = 4
  optimizer = adamw(lr = 1e-2)
  clip      = 1.0
  checkpoint { every = 2  keep = 2 }
}
MT
train() { # train FOLDER ARGS..
  local to=$1
  shift
  quiet "$mtc" train "$tiny" --device cpu --vram 64M -o "$work/$to" --force "$@"
}

# The whole run, and one that stops after two steps and goes on.
resumed() { # resumed NAME SETTINGS..
  local name=$1 set=()
  shift
  for s in "$@"; do set+=(--set "$s"); done
  train "$name" "${set[@]}"
  train "$name-cut" "${set[@]}" --steps 2
  quiet "$mtc" train "$tiny" --device cpu --vram 64M -o "$work/$name-cut" "${set[@]}" --resume
  cmp "$work/$name/step-000004.mtck" "$work/$name-cut/step-000004.mtck" || fail "$name: resume differs"
}
resumed whole
resumed split precision.master=split
resumed random precision.master=bf16 precision.moments=bf16 precision.accum=bf16
resumed blocks precision.master=split precision.moments=i8
resumed lion precision.moments=i8 "train.optimizer=lion(lr=1e-3)"
resumed adafactor "train.optimizer=adafactor(lr=1e-2)"
resumed muon precision.moments=i8 "train.optimizer=muon(lr=1e-2)"

# An export holds the f32 weights, whatever they are kept in.
for name in whole split; do quiet "$mtc" export "$work/$name" -o "$work/$name.safetensors"; done
cmp "$work/whole.safetensors" "$work/split.safetensors" || fail "a split master is exported as other weights"
quiet "$mtc" inspect "$work/split.safetensors"
grep -q F32 "$work/out" || fail "a split master is not exported as f32"

# And a run that starts from them starts from the same weights.
for name in whole split; do
  cp "$work/$name/step-000004.mtck" "$work/models/$name.mtck"
  for master in f32 split; do
    train "from-$name-$master" --set "train.init=\"$name.mtck\"" --set precision.master=$master --steps 2
    quiet "$mtc" export "$work/from-$name-$master" -o "$work/from-$name-$master.safetensors"
    cmp "$work/from-whole-f32.safetensors" "$work/from-$name-$master.safetensors" || fail "$master from $name differs"
  done
done
