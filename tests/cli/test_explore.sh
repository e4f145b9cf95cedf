# `mtc explore` and `mtc inspect --diff` from the outside: each row is the plan that `mtc plan --vram` makes from its size, ranges
# and marks, settings varied, the largest that fits and the next that does not, exit codes.
# Run from the root of the repository: bash tests/cli/test_explore.sh BUILD_FOLDER
export NO_COLOR=1 COLUMNS=80 LC_ALL=C.UTF-8 PATH="$(realpath "$1"):$PATH"
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
run() { # run NAME ARGS..: standard output in $work/NAME, exit code in $code
  local name=$1
  shift
  mtc "$@" > "$work/$name" 2> "$work/$name.err"
  code=$?
}
field() { sed -n "s/^ *\"$1\": \"*\([^\",]*\)\"*,*$/\1/p" "$2"; }

# Each row again, to the plan's id.
run rows explore models/gpt2.mt --target rtx4090 --vram 3G..16G --json
check "a range exits with 0" [ $code = 0 ]
sed -n '/"rows"/,$p' "$work/rows" > "$work/tail"
paste -d ' ' <(field vram "$work/tail") <(field plan "$work/tail") > "$work/pairs"
check "there are rows" [ "$(wc -l < "$work/pairs")" -ge 5 ]
while read -r vram plan; do
  run again plan models/gpt2.mt --target rtx4090 --vram "$vram" --json
  check "--vram $vram is plan $plan" [ "$(field plan "$work/again")" = "$plan" ]
done < "$work/pairs"

# Host memory: a row says what it pins, and is the plan of its size.
run hosts explore models/char.mt --target rtx3090 --vary host-ram=0,64M
check "host memory can be varied" [ $code = 0 ]
check "the table has a column of host memory" grep -q "on host" "$work/hosts"
check "each setting has a head" [ "$(grep -c "host-ram=" "$work/hosts")" = 2 ]
run hosted explore models/gpt2.mt --target rtx3090 --vram 1G..3G --host-ram 2G --json
sed -n '/"rows"/,$p' "$work/hosted" > "$work/tail"
run again plan models/gpt2.mt --target rtx3090 --host-ram 2G --vram "$(field vram "$work/tail" | head -1)" --json
check "the floor pins what its row says" [ "$(field host_bytes "$work/again" | head -1)" = "$(field host_bytes "$work/tail" | head -1)" ]
check "the floor pins something" [ "$(field host_bytes "$work/tail" | head -1)" -gt 0 ]

# Text: the floor, the knee, what more brings; the same twice.
run text explore models/gpt2.mt --target rtx4090 --vram 12G
for word in "the floor" "knee" "best first step" "+2 GiB" "--vram 12 GiB" "nothing fits; above"; do
  check "the table says \`$word\`" grep -qF -e "$word" "$work/text"
done
check "one row is marked" [ "$(grep -c '^\*' "$work/text")" = 1 ]
run twice explore models/gpt2.mt --target rtx4090 --vram 12G
check "two runs print the same" cmp -s "$work/text" "$work/twice"
run csv explore models/gpt2.mt --target rtx4090 --vram 3G..16G --csv
check "CSV has a line for each point" [ "$(wc -l < "$work/csv")" = "$(($(sed '/"rows"/,$d' "$work/rows" | grep -c '"peak_bytes"') + 1))" ]

# Early updates: told where they begin and end, and the plan of their row has them.
early=(models/gpt2.mt --preset medium --target h200 --set train.clip=0 --set train.nonfinite=stop --set "train.batch=seqs(1)")
run text explore "${early[@]}" --vram 0..24G
check "the floor has early updates" grep -q 'the floor, early updates$' "$work/text"
check "they end" [ "$(grep -c 'updates after backward' "$work/text")" = 1 ]
run rows explore "${early[@]}" --vram 0..24G --json
sed -n '/"rows"/,$p' "$work/rows" > "$work/tail"
check "JSON says so" [ "$(field early_update "$work/tail" | uniq | paste -sd ' ')" = "true false" ]

# Nothing fits; ranges and names that are none.
run none explore models/gpt2.mt --target rtx4090 --vram 1G..2G
check "too little exits with 3" [ $code = 3 ]
check "too little names the floor" grep -q "E0501" "$work/none.err"
run mark explore models/char.mt --target cpu --vram 1M
check "a mark below the floor exits with 3" [ $code = 3 ]
run bad explore models/char.mt --target cpu --vram 8G..4G
check "an empty range exits with 2" [ $code = 2 ]
run bad explore models/char.mt --target cpu --vram 8..x
check "a range that is none exits with 2" [ $code = 2 ]
run bad explore models/char.mt --target cpu --vary D
check "a name without values exits with 2" [ $code = 2 ]
run bad explore models/char.mt --target cpu --vary B=5
check "a micro-batch that does not divide exits with 2" [ $code = 2 ]
run bad explore models/char.mt --target cpu --vary nosuch=5
check "a name that is none exits with 1" [ $code = 1 ]

# Settings.
run vary explore models/char.mt --target cpu --vram 64M --vary recompute --vary B=1,4 --json
check "six settings" [ "$(grep -c '"label"' "$work/vary")" = 6 ]
check "flags for mtc plan" grep -q '"flags": "--recompute full --micro-batch 4"' "$work/vary"
run lengths explore models/char.mt --target cpu --vram 64M --vary moments --vary T=32,64
check "labels in the table" grep -q "moments=bf16, T=32" "$work/lengths"

# The largest that fits plans, the next does not.
run largest explore models/char.mt --target cpu --vram 24M --max T,Tmax --json
check "--max exits with 0" [ $code = 0 ]
value=$(field value "$work/largest" | head -1) next=$(field next "$work/largest")
check "it is more than the model's" [ "$value" -gt 64 ]
run at plan models/char.mt --target cpu --vram 24M -D T=$value -D Tmax=$value
check "the largest plans" [ $code = 0 ]
run over plan models/char.mt --target cpu --vram 24M -D T=$next -D Tmax=$next
check "the next does not" [ $code = 3 ]
run batch explore models/char.mt --target cpu --vram 20M --max B --json
value=$(field value "$work/batch" | head -1)
run at plan models/char.mt --target cpu --vram 20M --micro-batch $value
check "the largest micro-batch plans" [ $code = 0 ]
run none explore models/char.mt --target cpu --vram 1M --max B
check "none exits with 3" [ $code = 3 ]
run alone explore models/char.mt --target cpu --vram 24M --max T
check "a table that is too short exits with 1" [ $code = 1 ]
check "and says what to give" grep -q -e "--max T,Tmax" "$work/alone.err"

# Parts of the model add up.
run modules plan models/char.mt --target cpu --vram 16M --modules
check "--modules names the parts" grep -q '^h\[\*\]\.c_fc ' "$work/modules"
check "the parts are all" awk '/^all /{ all = $4; done = 1 } NR > 1 && !done { sum += $(NF - 2) }
  END { exit !(all > 0 && sum - all < 0.6 && all - sum < 0.6) }' "$work/modules"

# Two plans.
run a plan models/char.mt --target cpu --vram 16M --json
run b plan models/char.mt --target cpu --vram 64M --json
run diff inspect --diff "$work/a" "$work/b" --json
check "--diff exits with 0" [ $code = 0 ]
difference=$(($(sed -n 's/^  "peak_bytes": \([0-9]*\),$/\1/p' "$work/b") - $(sed -n 's/^  "peak_bytes": \([0-9]*\),$/\1/p' "$work/a")))
check "the totals differ by what they differ" [ "$(sed -n '/"peak_bytes"/,/}/p' "$work/diff" | field difference /dev/stdin)" = $difference ]
run same inspect --diff "$work/a" "$work/a"
check "nothing differs from itself" [ "$(grep -cE '[+-][0-9.]+( %)?$|differs' "$work/same")" = 0 ]
run compiled compile models/char.mt --target cpu --vram 16M -o "$work/a.mtx"
run mixed inspect --diff "$work/a.mtx" "$work/b" --json
check "a program and a plan differ by as much" [ "$(sed -n '/"peak_bytes"/,/}/p' "$work/mixed" | field difference /dev/stdin)" = $difference ]
run one inspect --diff "$work/a"
check "one file exits with 2" [ $code = 2 ]
run not inspect --diff "$work/a" models/char.mt
check "no plan exits with 6" [ $code = 6 ]
exit $failed
