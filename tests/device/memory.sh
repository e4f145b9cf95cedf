#!/usr/bin/env bash
# Planned against measured memory on an idle GPU: GPT-2 in four sizes at 8, 16 and 24 GiB, three steps each.
# usage: memory.sh MTC [TARGET]      Prints a row each; fails when a measured size is above the plan or more than 1 % below it,
# or above the budget, or grows after the first step. Sizes without a plan say so.
set -u
mtc=$(realpath "$1") target=${2:-h200}
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 - "$work" <<'PY'
import sys
text = open("../../models/data/tinyshakespeare.txt", "rb").read()
open(sys.argv[1] + "/tokens.bin", "wb").write(b"".join(bytes((c, 0)) for c in text))
PY
sed -e '/ init /d' -e "s|parity_tokens.bin|$work/tokens.bin|" -e "s|../../models/|$PWD/../../models/|" gpt2_parity.mt >"$work/gpt2.mt"
bad=0
for preset in small medium large xl; do
  for vram in 8G 16G 24G; do
    flags=(--target "$target" --vram "$vram" --set train.dims.T=1024 --set "train.batch=tokens(65_536)")
    [ "$preset" = small ] || flags+=(--preset "$preset")
    out=$("$mtc" train "$work/gpt2.mt" "${flags[@]}" -o "$work/run" --force --steps 3 2>&1)
    code=$?
    if [ $code = 3 ]; then
      printf '%-7s %4s  no plan: %s\n' "$preset" "$vram" "$(grep -o 'smallest possible is [^(]*' <<<"$out")"
      continue
    fi
    line=$(grep -o 'memory planned [0-9,]* bytes.*measured after step 1: [0-9,]* bytes' <<<"$out" | tr -d ,)
    read -r planned measured < <(sed -E 's/memory planned ([0-9]+) .*: ([0-9]+) bytes/\1 \2/' <<<"$line")
    speed=$(awk '$1 == 3 { print $5 }' <<<"$out")
    verdict=$(awk -v p="${planned:-0}" -v m="${measured:-0}" -v b="${vram%G}" -v c=$code 'BEGIN {
      ok = c == 0 && p > 0 && m <= p && m <= b * 1073741824 && (p - m) / p <= 0.01
      printf "%.3f %% %s", p ? 100 * (m - p) / p : 0, ok ? "ok" : "BAD" }')
    printf '%-7s %4s  planned %12s  measured %12s  %s  %s tok/s\n' "$preset" "$vram" "$planned" "$measured" "$verdict" "$speed"
    [[ $verdict == *ok ]] || { bad=1; tail -n 3 <<<"$out"; }
  done
done
exit $bad
