#!/bin/bash
# Weights between mtc and Hugging Face's Transformers, both ways, for tiny models of each family: tests/reference/hf_models.py.
#
# usage: test_roundtrip.sh BUILD      PYTHON names an interpreter that has torch, transformers and safetensors; without one: skipped
set -u
cd "$(dirname "$0")/../.." || exit 1
build=$(realpath "$1") python=${PYTHON:-python3}
command -v "$python" > /dev/null && "$python" -c 'import torch, transformers, safetensors' 2> /dev/null ||
  { echo "no Python with torch, transformers and safetensors: skipped"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
HF_HUB_OFFLINE=1 TRANSFORMERS_VERBOSITY=error "$python" tests/reference/hf_models.py roundtrip "$build" "$work" 2> "$work/log" ||
  { cat "$work/log"; exit 1; }
