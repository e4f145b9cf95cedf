#!/usr/bin/env bash
# Added time of recompute at 80, 60, 40 and 30 % of the activation peak against the bars, and the time to solve.
# usage: tests/bench/bench_recompute.sh [BUILD]      prints a table; exits 1 when a bar is missed
set -euo pipefail
cd "$(dirname "$0")/../.."
build=${1:-build}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"${CC:-cc}" -std=gnu17 -O1 -I. -D_GNU_SOURCE -o "$work/gen" tests/bench/gen_recompute.c ir/base.c ir/pieces.c -l:libxxhash.a -lm
"$work/gen" "$work"

# Added time in percent at each of the budgets, from the front; "-" when no plan fits. Then floor, in percent.
added() {
  tr '{' '\n' <"$1" | awk -F'[:,}]' -v budgets="80 60 40 30" '
    /"base_peak_bytes"/ { for (i = 1; i < NF; i++) {
      if ($i ~ /"base_peak_bytes"/) peak = $(i + 1); if ($i ~ /"base_ns"/) ns = $(i + 1);
      if ($i ~ /"floor_bytes"/) floor = $(i + 1) } }
    /^"peak_bytes"/ { n++; p[n] = $2; t[n] = $4 }
    END { m = split(budgets, b, " ")
      for (k = 1; k <= m; k++) { out = "-"
        for (i = 1; i <= n && out == "-"; i++) if (p[i] <= b[k] / 100 * peak) out = sprintf("%.3f", 100 * (t[i] / ns - 1))
        printf "%s ", out }
      printf "%.1f\n", 100 * floor / peak }'
}

# problem, then the bar at each budget ("-": none)
bars="gpt2-124m 2.24 5.26 10.10 12.48
gpt2-350m 2.09 5.07 10.92 13.84
gpt2-1.5b 1.61 4.35 11.15 14.61
llama2-7b-b1 0.93 5.75 13.35 17.29
llama2-7b-b2 0.85 5.68 13.34 17.25
llama2-7b-b4 0.81 5.65 13.32 17.22
resnet50-b128 2.53 6.06 11.40 15.75
unet-b16 1.63 3.69 10.00 19.50
gpt-2l 1.388 3.764 7.075 14.88
gpt-3l 1.542 4.004 7.360 10.350
gpt-4l 1.784 4.418 8.065 9.843
llama-2l 1.772 8.576 - -
llama-3l 0.929 7.980 15.139 -
mlp-8 2.697 5.913 13.267 16.753
mlp-12 2.188 4.461 9.440 13.633
unet-d1 2.961 6.887 18.384 -
unet-d2 2.535 5.789 13.693 24.12
unet-d3 2.051 5.645 15.453 -
resnet-3 3.634 7.587 14.061 -
resnet-4 2.890 6.196 11.413 -"

missed=0
TIMEFORMAT=%U # seconds of the processor, whatever else runs
printf '%-15s %8s %8s %8s %8s %8s %8s\n' problem 80% 60% 40% 30% floor% seconds
while read -r name b1 b2 b3 b4; do
  seconds=$({ time "$build/mtc" plan --problem "$work/$name.jsonl" --json >"$work/out.json"; } 2>&1)
  read -r a1 a2 a3 a4 floor < <(added "$work/out.json")
  printf '%-15s %8s %8s %8s %8s %8s %8s' "$name" "$a1" "$a2" "$a3" "$a4" "$floor" "$seconds"
  for pair in "$a1 $b1" "$a2 $b2" "$a3 $b3" "$a4 $b4"; do
    awk -v pair="$pair" 'BEGIN { split(pair, x, " "); exit x[2] != "-" && (x[1] == "-" || x[1] > x[2]) }' || {
      printf '  missed: %s' "${pair/ / > }"
      missed=1
    }
  done
  echo
done <<<"$bars"
exit $missed
