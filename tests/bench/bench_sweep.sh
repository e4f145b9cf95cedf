#!/usr/bin/env bash
# 64 budgets for each of GPT-2 124M, 350M, 774M, 1.5B, Llama-2-7B and Llama-3-8B, from the floor up.
# usage: tests/bench/bench_sweep.sh [BUILD]      prints a line a model; exits 1 when a promise is broken
set -euo pipefail
cd "$(dirname "$0")/../.."
exec "${1:-build}/tests/t_bench_sweep" --all
