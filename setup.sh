#!/usr/bin/env bash
# Installs what is missing, builds mtc, and does one of:
#   ./setup.sh            build only
#   ./setup.sh demo       plan and train a small GPT on real text, then sample from it (about 5 minutes on 2 cores)
#   ./setup.sh test       build and run every test
#   ./setup.sh sanitize   the tests again under AddressSanitizer and UndefinedBehaviorSanitizer (gcc)
#   ./setup.sh fuzz [S]   each fuzz target for S seconds (60) under the sanitizers (clang)
#   ./setup.sh docs       generate docs/ops.md, docs/errors.md, docs/settings.md, docs/cli.md and docs/mtc.1 again
set -euo pipefail
cd "$(dirname "$0")"

need_build=(gcc libc6-dev cmake ninja-build flex bison libopenblas-openmp-dev libjansson-dev libxxhash-dev
            libcmocka-dev)
need_test=(chromium libxml2-utils) # pictures are opened and checked
need_fuzz=(clang libclang-rt-14-dev libomp-dev)

say() { printf '\n\033[1m== %s\033[0m\n' "$*"; }

# Installs the Debian packages given that are not there yet.
packages() {
  command -v dpkg-query >/dev/null || return 0 # another system: CMake will name what it misses
  local missing=()
  for p in "$@"; do
    dpkg-query -W -f='${db:Status-Status}' "$p" 2>/dev/null | grep -qx installed || missing+=("$p")
  done
  [ ${#missing[@]} -eq 0 ] && return 0
  local root=()
  [ "$(id -u)" = 0 ] || root=(sudo)
  say "installing ${missing[*]}"
  "${root[@]}" apt-get update -qq
  DEBIAN_FRONTEND=noninteractive "${root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}"
}

build() { # PRESET FOLDER
  packages "${need_build[@]}"
  say "building ($1)"
  cmake --preset "$1" >/dev/null
  ninja -C "$2" --quiet
}

run_tests() { # FOLDER
  say "testing ($1)"
  ASAN_OPTIONS="suppressions=$PWD/tests/sanitizers.supp" ctest --test-dir "$1" --output-on-failure -j 2
}

demo() {
  build release build
  say "the plan"
  build/mtc plan models/char.mt --device cpu --vram 48M
  say "training models/char.mt on 1 MB of Shakespeare"
  build/mtc train models/char.mt --device cpu --vram 48M -o run --force
  say "what it has learnt"
  build/mtc sample run --prompt $'ROMEO:\n' --tokens 400
}

fuzz() { # SECONDS
  packages "${need_build[@]}" "${need_fuzz[@]}"
  say "building (fuzz)"
  cmake --preset fuzz >/dev/null
  local targets
  targets=$(ninja -C build-fuzz -t targets all | sed -n 's/^\(fuzz_[a-z_]*\): .*/\1/p' | sort -u)
  ninja -C build-fuzz --quiet $targets
  for t in $targets; do
    say "$t, $1 s"
    mkdir -p "build-fuzz/corpus/$t"
    "build-fuzz/$t" -max_total_time="$1" -max_len=65536 -rss_limit_mb=4096 -print_final_stats=1 \
      "build-fuzz/corpus/$t" $(test -d "tests/fuzz/seeds/$t" && echo "tests/fuzz/seeds/$t") \
      >"build-fuzz/$t.log" 2>&1 || { tail -n 40 "build-fuzz/$t.log"; return 1; }
    grep -E 'number_of_executed_units|new_units_added' "build-fuzz/$t.log" || true
  done
}

case "${1:-build}" in
  build) build release build ;;
  demo) demo ;;
  test) packages "${need_test[@]}"; build release build && run_tests build ;;
  sanitize) build asan build-asan && run_tests build-asan ;;
  fuzz) fuzz "${2:-60}" ;;
  docs) build release build && build/mtc help --write-docs docs ;;
  *) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
