# Images and the version of NVRTC are kept between runs: the same program comes out cold and warm, a warm run does not open
# NVRTC, and one whose cache is damaged or of another library does. (Alone, NVRTC may give other images than beside others, so
# that a program is compared with what lies in the cache.) Skipped where NVRTC is not installed.
# Run from the root of the repository: bash tests/codegen/test_nvrtc_cache.sh BUILD_FOLDER
export NO_COLOR=1 LC_ALL=C.UTF-8 PATH="$(realpath "$1"):$PATH"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export XDG_CACHE_HOME="$work/cache"
failed=0

check() { # check WHAT CONDITION..
  local what=$1
  shift
  "$@" && return
  echo "failed: $what"
  failed=1
}
compile() { # compile NAME: the program, and what libraries were opened
  LD_DEBUG=files mtc compile models/char.mt --target h200 -q -o "$work/$1.mtx" 2> "$work/$1.err"
}
opened() { grep -q "libnvrtc.*generating link map" "$work/$1.err"; }
not() { ! "$@"; }

if ! compile cold; then
  grep -q "NVRTC, the CUDA runtime compiler" "$work/cold.err" && exit 77
  tail -n 3 "$work/cold.err"
  exit 1
fi
check "cold, NVRTC is opened" opened cold
check "its version is kept" [ -s "$XDG_CACHE_HOME/mtc/nvrtc" ]
compile warm
check "warm, NVRTC is not opened" not opened warm
check "the same program warm" cmp "$work/cold.mtx" "$work/warm.mtx"

image=$(ls "$XDG_CACHE_HOME"/mtc/*.cubin | head -n 1)
printf x | dd of="$image" bs=1 seek=200 conv=notrunc 2> /dev/null
compile damaged
check "a damaged image is compiled again" opened damaged
compile mended
check "and kept" not opened mended
check "the same program after that" cmp "$work/damaged.mtx" "$work/mended.mtx"

sed -i 's/ bytes, / bytes more, /' "$XDG_CACHE_HOME/mtc/nvrtc"
compile other
check "another library is opened" opened other
check "the same program by that" cmp "$work/mended.mtx" "$work/other.mtx"
LD_LIBRARY_PATH="$work" compile moved
check "with other folders to look in, NVRTC is opened" opened moved

echo "7" > "$XDG_CACHE_HOME/mtc/nvrtc"
compile short
check "half a version is none" opened short
exit $failed
