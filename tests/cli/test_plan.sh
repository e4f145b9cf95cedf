# `mtc plan` from the outside: exit codes, the floor and its edge, determinism, the acceptance figures of Llama-2-7B.
# Run from the root of the repository: bash tests/cli/test_plan.sh BUILD_FOLDER
export NO_COLOR=1 COLUMNS=80 LC_ALL=C.UTF-8 PATH="$(realpath "$1"):$PATH"
unset CLICOLOR_FORCE
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

check() { # check WHAT CONDITION..
  local what=$1
  shift
  "$@" && return
  echo "failed: $what"
  failed=1
}
field() { sed -n "s/^  \"$1\": \([-0-9.a-z]*\),*$/\1/p" "$2"; }
plan() { # plan NAME ARGS..: JSON in $work/NAME, exit code in $code
  local name=$1
  shift
  mtc plan "$@" --json > "$work/$name" 2> "$work/$name.err"
  code=$?
}

# The floor: named when nothing fits, feasible itself, not so one granule below.
plan none models/char.mt --target cpu --vram 1M
check "too little exits with 3" [ $code = 3 ]
check "too little has fits = false" [ "$(field fits "$work/none")" = false ]
floor=$(field floor_bytes "$work/none")
plan at models/char.mt --target cpu --vram "$floor"
check "the floor plans" [ $code = 0 ]
check "the floor's plan fits" [ "$(field peak_bytes "$work/at")" -le "$floor" ]
plan under models/char.mt --target cpu --vram $((floor - 4096))
check "the floor less 4 KiB exits with 3" [ $code = 3 ]
plan gpu models/char.mt --target rtx3090 --vram 1M
check "a card too small exits with 3" [ $code = 3 ]
floor=$(field floor_bytes "$work/gpu")
plan gpu_at models/char.mt --target rtx3090 --vram "$floor"
check "the floor on a card plans" [ $code = 0 ]
plan gpu_under models/char.mt --target rtx3090 --vram $((floor - 2097152))
check "the floor less 2 MiB exits with 3" [ $code = 3 ]

# Too little for an f32 master: the split one, which is exact, is a remedy and fits; bytes per parameter are told.
half=(models/gpt2.mt --target rtx3090 -D L=2 -D D=256 -D H=4 --set precision.compute=bf16)
plan half "${half[@]}" --vram 1M
floor=$(field floor_bytes "$work/half")
mtc plan "${half[@]}" --vram $((floor - 4194304)) > /dev/null 2> "$work/short"
check "a split master is a remedy" grep -q -- '--set precision.master=split  .* exact' "$work/short"
plan split "${half[@]}" --vram $((floor - 4194304)) --set precision.master=split
check "the split master fits" [ $code = 0 ]
check "16 bits complete a weight" grep -q '"u16": 2.0' "$work/split"

# Too little for its variables: the host memory that would do is named, and does.
mtc plan models/gpt2.mt --target rtx4090 --vram 2G > /dev/null 2> "$work/short"
host=$(sed -n 's/^ *--host-ram \([0-9]*[GM]\) .*/\1/p' "$work/short")
check "host memory is a remedy" [ -n "$host" ]
plan hosted models/gpt2.mt --target rtx4090 --vram 2G --host-ram "$host"
check "the host memory that was named is enough" [ $code = 0 ]
plan demanded models/gpt2.mt --target rtx4090 --vram 8G --host-ram 1M --set memory.optimizer=host
check "the optimizer on a host without memory exits with 3" [ $code = 3 ]
check "what is missing is told" [ "$(field host_shortfall_bytes "$work/demanded")" -gt 1000000 ]

# Accumulators are what is too much: updates inside the backward pass are a remedy, really planned, and told of.
small=(models/gpt2.mt --target rtx3090 -D L=8 -D D=512 -D H=8 -D V=2048 --set "train.batch=seqs(1)")
early=(--set train.clip=0 --set train.nonfinite=stop)
plan late "${small[@]}" --vram 1M
plan early "${small[@]}" "${early[@]}" --vram 1M
floor=$(field floor_bytes "$work/early")
check "early updates have a lower floor" [ $((floor + 67108864)) -le "$(field floor_bytes "$work/late")" ]
mtc plan "${small[@]}" --vram "$floor" > /dev/null 2> "$work/short"
check "early updates are a remedy" grep -q -- '--set train.clip=0 --set train.nonfinite=stop  .* no clipping' "$work/short"
mtc plan "${small[@]}" --set train.clip=0 --vram "$floor" > /dev/null 2> "$work/short"
check "without clipping, the same results" grep -q -- '  --set train.nonfinite=stop  .* the same results' "$work/short"
mtc plan "${small[@]}" --set train.clip=0 --micro-batch 1 --set "train.batch=seqs(2)" --vram "$floor" > /dev/null 2> "$work/short"
check "but not for a part of a step" [ "$(grep -c 'train.nonfinite=stop' "$work/short")" = 0 ]
plan at "${small[@]}" "${early[@]}" --vram "$floor"
check "the remedy fits" [ $code = 0 ]
check "JSON tells of early updates" [ "$(field early_update "$work/at")" = true ]
plan roomy "${small[@]}" --vram 8G
check "and of their absence" [ "$(field early_update "$work/roomy")" = false ]
mtc plan "${small[@]}" "${early[@]}" --vram "$floor" > "$work/text" 2>&1
check "so does the report" grep -q '^  early updates .* frees .* of gradients' "$work/text"
why() { mtc plan "${small[@]}" "${early[@]}" --vram "$floor" --why "$1" > "$work/text" 2>&1; }
why h.0.c_fc.w
check "why a weight has no accumulator" grep -q 'in step: right after its gradient, which has no accumulator' "$work/text"
why wte.w
check "why a tied one has" grep -q 'in step: its gradient has several parts, and an accumulator' "$work/text"

# Equal questions have equal answers, wherever they are asked.
mtc plan models/gpt2.mt --target rtx4090 --vram 6G > "$work/one" 2>&1
mtc plan models/gpt2.mt --target rtx4090 --vram 6G > "$work/two" 2>&1
check "two runs print the same" cmp -s "$work/one" "$work/two"
here=$PWD
(cd "$work" && mtc plan "$here/models/gpt2.mt" --target rtx4090 --vram 6G --json > three 2> /dev/null)
plan four models/gpt2.mt --target rtx4090 --vram 6G
check "another folder, the same plan" [ "$(grep '"plan"' "$work/three")" = "$(grep '"plan"' "$work/four")" ]

# More memory is never slower and never fails where less did not.
last=0
for size in 3G 4G 6G 9G 14G 20G 24G; do
  plan sweep models/gpt2.mt --target rtx4090 --vram $size
  check "$size plans" [ $code = 0 ]
  now=$(field tokens_per_second "$work/sweep")
  check "$size is not slower" awk "BEGIN { exit !($now >= $last) }"
  last=$now
done
plan capped models/gpt2.mt --target rtx4090 --vram 99G
check "a budget is capped to the card" [ "$(field budget_bytes "$work/capped")" = "$(field budget_bytes "$work/sweep")" ]
plan share models/gpt2.mt --target rtx4090 --vram 50%
check "a share of the card" [ $((2 * $(field budget_bytes "$work/share"))) -le "$(field budget_bytes "$work/capped")" ]

# Llama-2-7B: 18 bytes a parameter are 113 GiB, so an H200 holds it; its moments are `auto`, and 12 bytes are 75 GiB.
plan large models/llama.mt --preset llama2_7b --target h200 --vram 139G
check "7B in 139 GiB plans" [ $code = 0 ]
plan small models/llama.mt --preset llama2_7b --target h200 --vram 72G
check "7B in 72 GiB exits with 3" [ $code = 3 ]
check "7B has its parameters" [ "$(field params "$work/small")" = 6738415616 ]
check "7B's floor holds 12 bytes a parameter" [ "$(field floor_bytes "$work/small")" -gt $((6738415616 * 12)) ]
plan widest models/llama.mt --preset llama2_7b --target b200
check "7B keeps moments of f32 where there is room" grep -q '"format": "f32"' "$work/widest"
plan between models/llama.mt --preset llama2_7b --target h200 --vram 110G
check "7B in 110 GiB plans" [ $code = 0 ]
check "7B in 110 GiB has smaller moments" [ "$(grep -c '"format": "f32"' "$work/between")" = 0 ]
check "and little more" [ "$(field floor_bytes "$work/small")" -lt $((6738415616 * 18 + (2 << 30))) ]

# What is forced is done, and what it writes is there.
plan forced models/char.mt --target cpu --micro-batch 4 --chunks 2 --recompute full
check "--micro-batch" [ "$(field micro_batch "$work/forced")" = 4 ]
check "--chunks" [ "$(field chunks "$work/forced")" = 2 ]
check "accumulation follows" [ "$(field accumulation "$work/forced")" = 3 ]
mtc plan models/char.mt --target cpu --vram 32M --emit ir,plan,minimalloc -o "$work/out" > /dev/null 2>&1
for name in out.plan out.micro.mti out.update.mti out.micro.csv; do check "--emit writes $name" [ -s "$work/$name" ]; done
check "the CSV is placed as it says" mtc place "$work/out.micro.csv" > /dev/null 2>&1
mtc inspect models/gpt2.mt --json > "$work/inspect"
check "inspect counts" [ "$(field params "$work/inspect")" = 124439808 ]
exit $failed
