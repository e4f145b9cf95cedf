# Colour: on a terminal, never in a pipe, as NO_COLOR, CLICOLOR_FORCE and --color say. Hints only on a terminal.
build=$(realpath "$1")
mtc="$build/mtc"
script -qec true /dev/null > /dev/null 2>&1 || exit 77 # no pseudo-terminals here
unset NO_COLOR CLICOLOR_FORCE
export TERM=xterm LC_ALL=C.UTF-8
failed=0
escape=$'\033'

expect() {  # yes|no what text
  case $3 in *"$escape"*) got=yes ;; *) got=no ;; esac
  [ $got = "$1" ] || { echo "$2: colour $got, expected $1"; failed=1; }
}
bad=tests/diag/syntax_use.mt
expect no "pipe" "$("$mtc" check $bad 2>&1)"
expect yes "--color=always in a pipe" "$("$mtc" check $bad --color=always 2>&1)"
expect yes "CLICOLOR_FORCE in a pipe" "$(CLICOLOR_FORCE=1 "$mtc" check $bad 2>&1)"
expect no "CLICOLOR_FORCE=0" "$(CLICOLOR_FORCE=0 "$mtc" check $bad 2>&1)"
expect no "NO_COLOR beats CLICOLOR_FORCE" "$(NO_COLOR=1 CLICOLOR_FORCE=1 "$mtc" check $bad 2>&1)"
expect yes "--color beats NO_COLOR" "$(NO_COLOR=1 "$mtc" check $bad --color always 2>&1)"
expect yes "terminal" "$(script -qec "$mtc check $bad" /dev/null)"
expect no "NO_COLOR on a terminal" "$(NO_COLOR=1 script -qec "$mtc check $bad" /dev/null)"
expect no "--color=never on a terminal" "$(script -qec "$mtc check $bad --color=never" /dev/null)"
expect no "dumb terminal" "$(TERM=dumb script -qec "$mtc check $bad" /dev/null)"

hint() { case $2 in *"next: mtc plan"*) got=yes ;; *) got=no ;; esac
  [ $got = "$1" ] || { echo "hint $got, expected $1"; failed=1; }; }
hint no "$("$mtc" check models/gpt2.mt 2>&1)"
hint yes "$("$mtc" check -v models/gpt2.mt 2>&1)"
hint yes "$(script -qec "$mtc check models/gpt2.mt" /dev/null)"
hint no "$(script -qec "$mtc check -q models/gpt2.mt" /dev/null)"

# A result that cannot be written is an error.
if [ -e /dev/full ]; then
  "$mtc" help > /dev/full 2> /dev/null
  [ $? = 6 ] || { echo "a full disk went unnoticed"; failed=1; }
fi
exit $failed
