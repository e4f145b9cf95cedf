# The bash completion is a valid script and offers commands, flags and choices.
build=$(realpath "$1")
script=$("$build/mtc" help --completion bash) || exit 1
bash -n <<< "$script" || exit 1
eval "$script"
failed=0

offers() {  # WANTED WORDS..
  wanted=$1
  shift
  COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
  _mtc
  for word in "${COMPREPLY[@]}"; do [ "$word" = "$wanted" ] && return; done
  echo "no $wanted after: $*"
  failed=1
}
offers plan mtc pl
offers --vram mtc plan models/gpt2.mt --vr
offers --dry-run mtc train --d
offers always mtc plan --color al
offers full mtc train --recompute f
COMP_WORDS=(mtc fmt --vr) COMP_CWORD=2 COMPREPLY=()
_mtc
[ ${#COMPREPLY[@]} = 0 ] || { echo "fmt offers ${COMPREPLY[*]}"; failed=1; }
if command -v zsh > /dev/null; then "$build/mtc" help --completion zsh | zsh -n || failed=1; fi
if command -v fish > /dev/null; then "$build/mtc" help --completion fish | fish -n || failed=1; fi
exit $failed
