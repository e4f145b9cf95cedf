#!/usr/bin/env bash
# Installs what is missing, builds mtc, and does one of:
#   ./setup.sh            build only
#   ./setup.sh demo       plan and train a small GPT on real text, then sample from it (about 5 minutes on 2 cores)
#   ./setup.sh test       build and run every test
#   ./setup.sh sanitize   the tests again under AddressSanitizer and UndefinedBehaviorSanitizer (gcc)
#   ./setup.sh fuzz [S]   each fuzz target for S seconds (60) under the sanitizers (clang)
#   ./setup.sh cuda       only take NVRTC and cuBLASLt from PyPI into .venv, where no CUDA toolkit has them (a build does so, too)
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

# Whether a library is where mtc looks for it (runtime/cuda_api.c).
has_library() { # NAME
  [[ $(ldconfig -p 2>/dev/null) == *"$1.so.1"[23]* ]] ||
    compgen -G "${MTC_CUDA_LIBS:-/nowhere}/$1.so*" >/dev/null ||
    compgen -G "/usr/local/cuda*/lib64/$1.so*" >/dev/null ||
    compgen -G "/usr/local/cuda*/targets/*/lib/$1.so*" >/dev/null ||
    compgen -G "/usr/lib/python3*/site-packages/nvidia/*/lib/$1.so*" >/dev/null ||
    compgen -G "/usr/local/lib/python3*/*-packages/nvidia/*/lib/$1.so*" >/dev/null ||
    compgen -G "$PWD/.venv/lib/python3*/site-packages/nvidia/*/lib/$1.so*" >/dev/null
}

# NVRTC compiles for GPUs anywhere; cuBLASLt is wanted only where there is one to run on. Nothing here stops a build.
cuda_libraries() {
  local want=() suffix="" driver=""
  [[ $(ldconfig -p 2>/dev/null) == *libcuda.so.1* ]] && driver=yes
  has_library libnvrtc || want+=(nvidia-cuda-nvrtc)
  [ -z "$driver" ] || has_library libcublasLt || want+=(nvidia-cublas)
  [ ${#want[@]} -eq 0 ] && return 0
  # A driver runs what the toolkit of its own generation made.
  [[ -z $driver || $(nvidia-smi 2>/dev/null) != *"CUDA Version: 12"* ]] || suffix=-cu12
  say "taking ${want[*]} from PyPI into .venv (mtc plans, and trains on the CPU, without)"
  if ! python3 -m pip --version >/dev/null 2>&1; then
    echo "skipped: python3 has no pip here; a CUDA toolkit, or MTC_CUDA_LIBS, does as well"
    return 0
  fi
  local p log=.venv-pip.log
  for p in "${want[@]}"; do # folders of their own: pip replaces a whole one
    timeout 600 python3 -m pip install --quiet --disable-pip-version-check --no-deps --retries 1 --timeout 20 \
      --upgrade --target ".venv/lib/python3-$p/site-packages" "$p$suffix" 2>"$log" ||
      echo "skipped: PyPI gave no $p$suffix ($(tail -n 1 "$log")); ./setup.sh cuda tries again"
  done
  rm -f "$log"
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
  cuda_libraries
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
  build) build release build; cuda_libraries ;;
  cuda) cuda_libraries ;;
  demo) demo ;;
  test) packages "${need_test[@]}"; cuda_libraries; build release build && run_tests build ;;
  sanitize) build asan build-asan && run_tests build-asan ;;
  fuzz) fuzz "${2:-60}" ;;
  docs) build release build && build/mtc help --write-docs docs ;;
  *) sed -n '2,10s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
