#!/usr/bin/env bash
# test_run.sh BUILD - a run from the command line: train, kill and resume, mtrun, sample, export and import, refusals.
set -euo pipefail
build=$1
. tests/support/tiny_gpt2.sh
mtrun="$build/mtrun"

# expect CODE COMMAND.. - runs it quietly and checks the exit code
expect() {
  local want=$1 got=0
  shift
  "$@" >"$work/out" 2>"$work/err" || got=$?
  [ "$got" = "$want" ] || { cat "$work/out" "$work/err" >&2; fail "exit $got, not $want: $*"; }
}
holds() { grep -q -- "$2" "$1" || { cat "$1" >&2; fail "no '$2' in $1"; }; }

tiny_model 2
cat >>"$tiny" <<'MT'
precision { compute = f32 }

train {
  data      = words.train
  dims { T = 16  B = auto }
  batch     = seqs(6)
  steps     = 8
  optimizer = adamw(lr = 1e-3)
  schedule  = cosine(warmup = 2, final = 0.1)
  clip      = 1.0
  seed      = 1
  eval       { data = words.val  every = 4  batches = 2 }
  checkpoint { every = 2  keep = 3 }
}

weights "tiny" {
  "wte.weight"           = wte.w
  "wpe.weight"           = wpe.w
  "h.{i}.ln_1.weight"    = h[i].ln_1.w
  "h.{i}.ln_1.bias"      = h[i].ln_1.b
  "h.{i}.c_attn.weight"  = h[i].c_attn.w.T
  "h.{i}.c_attn.bias"    = h[i].c_attn.b
  "h.{i}.c_proj.weight"  = h[i].c_proj.w
  "h.{i}.c_proj.bias"    = h[i].c_proj.b
  "h.{i}.ln_2.weight"    = h[i].ln_2.w
  "h.{i}.ln_2.bias"      = h[i].ln_2.b
  "h.{i}.c_fc.weight"    = h[i].c_fc.w
  "h.{i}.c_fc.bias"      = h[i].c_fc.b
  "h.{i}.m_proj.weight"  = h[i].m_proj.w
  "h.{i}.m_proj.bias"    = h[i].m_proj.b
  "ln_f.weight"          = ln_f.w
  "ln_f.bias"            = ln_f.b
}
MT
flags=(--device cpu --vram 16M)

# A run, and what it leaves
expect 0 "$mtc" train "$tiny" "${flags[@]}" -o "$work/run"
[ "$(wc -l <"$work/run/metrics.jsonl")" = 8 ] || fail "metrics.jsonl has not 8 lines"
holds "$work/out" 'memory planned'
holds "$work/run/metrics.jsonl" '"eval_loss"'
for step in 4 6 8; do [ -f "$work/run/step-00000$step.mtck" ] || fail "no checkpoint of step $step"; done
[ ! -f "$work/run/step-000002.mtck" ] || fail "keep = 3 kept a fourth"
expect 2 "$mtc" train "$tiny" "${flags[@]}" -o "$work/run"
holds "$work/err" '--resume'

# kill -9 and resume: the same bytes
for at in step:3 checkpoint-write:5000 checkpoint-rename:2; do
  rm -rf "$work/cut"
  MTC_CRASH_AT=$at expect 137 "$mtc" train "$tiny" "${flags[@]}" -o "$work/cut"
  expect 0 "$mtc" train "$tiny" "${flags[@]}" -o "$work/cut" --resume
  cmp "$work/run/step-000008.mtck" "$work/cut/step-000008.mtck" || fail "resume after $at differs"
done

# the program alone, and poisoned: the same bytes
expect 0 "$mtrun" "$work/run/model.mtx" -o "$work/alone"
cmp "$work/run/step-000008.mtck" "$work/alone/step-000008.mtck" || fail "mtrun differs"
expect 0 "$mtc" train "$work/run/model.mtx" -o "$work/poisoned" --poison
cmp "$work/run/step-000008.mtck" "$work/poisoned/step-000008.mtck" || fail "--poison differs"
expect 0 "$mtrun" "$work/run/model.mtx" --dry-run 1
holds "$work/out" 'nothing was written'
expect 0 "$mtc" train "$tiny" "${flags[@]}" -o "$work/lines" --steps 2 --json
[ "$(grep -c '^{"step": ' "$work/out")" = 2 ] || fail "--json prints no lines"

# sampling repeats itself
expect 0 "$mtc" sample "$work/run" --prompt "First" --tokens 40 --seed 3
cp "$work/out" "$work/once"
holds "$work/once" '^First'
expect 0 "$mtc" sample "$work/run/step-000008.mtck" --prompt "First" --tokens 40 --seed 3
cmp "$work/once" "$work/out" || fail "sample is not deterministic"

# weights out, in, and out again
expect 0 "$mtc" export "$work/run" -o "$work/a.safetensors"
expect 2 "$mtc" export "$work/run" -o "$work/a.safetensors"
expect 0 "$mtc" import "$work/a.safetensors" --map "$tiny" -o "$work/in.mtck"
holds "$work/out" '28 tensors mapped'
expect 0 "$mtc" export "$work/in.mtck" --map "$tiny" -o "$work/b.safetensors"
cmp "$work/a.safetensors" "$work/b.safetensors" || fail "export and import are no inverses"
expect 2 "$mtc" export "$work/run" -o "$work/none/" --max-shard 50%
expect 0 "$mtc" export "$work/run" -o "$work/hf/" --max-shard 20K
[ -f "$work/hf/model.safetensors.index.json" ] && [ -f "$work/hf/model-00001-of-0000"?.safetensors ] &&
  [ ! -e "$work/hf/model.safetensors" ] || fail "no shards with an index: $(ls "$work/hf")"
expect 2 "$mtc" export "$work/run" -o "$work/hf"
expect 0 "$mtc" inspect "$work/hf"
holds "$work/out" 'h.1.c_proj.weight'
expect 0 "$mtc" import "$work/hf" --map "$tiny" -o "$work/shards.mtck"
cmp "$work/in.mtck" "$work/shards.mtck" || fail "shards hold something else than one file"
expect 0 "$mtc" export "$work/run" -o "$work/hf" --force
[ "$(ls "$work/hf")" = model.safetensors ] || fail "an earlier export is left: $(ls "$work/hf")"
cmp "$work/a.safetensors" "$work/hf/model.safetensors" || fail "one file of a folder is another file"
expect 6 "$mtc" import "$work/run" --map "$tiny" -o "$work/none.mtck"
expect 0 "$mtc" export "$work/run" -o "$work/half.safetensors" --dtype bf16
[ "$(stat -c %s "$work/half.safetensors")" -lt "$(stat -c %s "$work/a.safetensors")" ] || fail "--dtype bf16"
expect 0 "$mtc" train "$tiny" "${flags[@]}" -o "$work/warm" --steps 1 --set "train.init=\"$work/a.safetensors\""
expect 6 "$mtc" import "$work/a.safetensors" --map "$tiny" -D L=3 -o "$work/none.mtck"
holds "$work/err" 'missing     h.2.ln_1.weight: \[32\]'

# files that are damaged
head -c 3000 "$work/run/model.mtx" >"$work/cut.mtx"
expect 6 "$mtrun" "$work/cut.mtx" -o "$work/no"
holds "$work/err" 'truncated'
head -c 3000 "$work/a.safetensors" >"$work/cut.safetensors"
expect 6 "$mtc" import "$work/cut.safetensors" --map "$tiny" -o "$work/none.mtck"
: >"$work/models/text.txt"
expect 6 "$mtc" train "$tiny" "${flags[@]}" -o "$work/no"
holds "$work/err" 'is empty'
echo ok
