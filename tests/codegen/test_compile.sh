#!/usr/bin/env bash
# mtc compile: the file, its bytes, the emitted source, the cache of compiled kernels, and what happens without a compiler.
# Usage: test_compile.sh BUILD
set -u
build=$(cd "$1" && pwd)
mtc=$build/mtc
models=$(cd "$(dirname "$0")/../../models" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
export XDG_CACHE_HOME=$work/cache
failed=0
check() { # WHAT, CONDITION..
  local what=$1
  shift
  if ! "$@"; then
    echo "FAILED: $what"
    failed=1
  fi
}
small=(-D D=32 -D L=1 -D Tmax=16 -D T=16 --set "train.batch=seqs(2)")
compile() { "$mtc" compile "$models/char.mt" "${small[@]}" --target cpu "$@" >out 2>err; }

compile --vram 8M -o a.mtx --emit c
check "compiles" test $? -eq 0
check "writes the program" test -s a.mtx
check "writes the source" test -s a.c
check "says what it made" grep -q '^a.mtx: plan [0-9a-f]\{8\}, cpu, [0-9]* commands, [0-9]* kernels, needs ' out
check "the source names the model" grep -q '^/\* Char.*kernels of plan' a.c
check "functions have the place in the model" grep -q '^/\* .* - .*gpt2.mt:[0-9]*:[0-9]*' a.c
check "pointers have shape and dtype" grep -q '= arg\[0\]; /\* f32 \[' a.c
check "one image is cached" test "$(ls cache/mtc/*.so | wc -l)" = 1

compile --vram 8M -o b.mtx
check "compiles again" test $? -eq 0
check "the same bytes with the cache" cmp -s a.mtx b.mtx
XDG_CACHE_HOME=$work/other compile --vram 8M -o c.mtx
check "the same bytes without it" cmp -s a.mtx c.mtx
MTC_VERIFY=1 compile --vram 8M -o v.mtx
check "every graph stands its verification" cmp -s a.mtx v.mtx

PATH=/nonexistent compile --vram 8M -o d.mtx
check "needs no compiler when the cache has it" test $? -eq 0
PATH=/nonexistent XDG_CACHE_HOME=$work/third compile --vram 8M -o e.mtx
check "no compiler is exit 4" test $? -eq 4
check "names the compiler" grep -q 'cannot run the C compiler `cc`' err
check "leaves no file" test ! -e e.mtx

compile --vram 64K -o f.mtx
check "a budget below the floor is exit 3" test $? -eq 3
check "leaves no file then" test ! -e f.mtx
compile --vram 8M -o g.mtx --emit cu
check "CUDA source of a CPU program is a usage error" test $? -eq 2
compile --vram 8M -o /nonexistent/h.mtx
check "a place that cannot be written is exit 6" test $? -eq 6

"$mtc" train a.mtx -o run --dry-run 2 >out 2>&1
check "the file trains" test $? -eq 0
PATH=/nonexistent "$build/mtrun" a.mtx -o run2 --dry-run 2 >out 2>&1
check "the runtime alone runs it without a compiler" test $? -eq 0
exit $failed
