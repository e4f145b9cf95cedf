# tiny_gpt2.sh - for tests of runs from the command line; sourced from the root of the source with $build set.
#
# Makes $work, which goes when the script ends, with $tiny: the head of a model file, a GPT-2 of 256 bytes on a short text;
# the script appends the sections that it is about. One thread and no colours, so that runs repeat bit for bit.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mtc="$build/mtc" tiny="$work/models/tiny.mt"
export MTC_THREADS=1 NO_COLOR=1

fail() { echo "FAIL: $*" >&2; exit 1; }

# tiny_model LAYERS - writes the head of $tiny
tiny_model() {
  mkdir "$work/models"
  cp -r models/std models/gpt2.mt "$work/models/"
  head -c 20000 models/data/tinyshakespeare.txt >"$work/models/text.txt"
  cat >"$tiny" <<MT
mt 1
use "gpt2.mt" (GPT2)

model Tiny = GPT2(V = 256, Tmax = 16, D = 32, H = 2, L = $1)

data words = text(train = "text.txt", holdout = 0.1)

MT
}
