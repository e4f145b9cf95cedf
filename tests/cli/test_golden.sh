# Runs each tests/cli/golden/NAME.sh and compares its standard output, standard error and exit code with NAME.out, NAME.err
# and NAME.rc (absent: empty, empty, 0). Run from the root of the repository:
#
#   bash tests/cli/test_golden.sh BUILD_FOLDER [--bless] [NAME..]
#
# --bless writes what came out as the new expectation. In a case, `mtc` is the build's, $T an empty folder.
build=$(realpath "$1")
shift
bless=
[ "$1" = --bless ] && bless=1 && shift
here=tests/cli/golden
export NO_COLOR=1 COLUMNS=80 LC_ALL=C.UTF-8 PATH="$build:$PATH"
unset CLICOLOR_FORCE
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

run_case() {
  export T="$work/$1"
  mkdir -p "$T"
  bash "$here/$1.sh" > "$work/out" 2> "$work/err" < /dev/null
  echo $? > "$work/rc"
  for kind in out err; do sed -i "s|$T|\$T|g" "$work/$kind"; done
}

for script in "$here"/*.sh; do
  name=$(basename "$script" .sh)
  [ $# -gt 0 ] && [[ " $* " != *" $name "* ]] && continue
  run_case "$name"
  for kind in out err rc; do
    want="$here/$name.$kind"
    if [ -n "$bless" ]; then
      rm -f "$want"
      if [ $kind = rc ]; then [ "$(cat "$work/rc")" = 0 ] || cp "$work/rc" "$want"
      else [ -s "$work/$kind" ] && cp "$work/$kind" "$want"; fi
      continue
    fi
    if [ ! -e "$want" ]; then
      want="$work/default"
      if [ $kind = rc ]; then echo 0 > "$want"; else : > "$want"; fi
    fi
    if ! diff -u --label "$name.$kind expected" --label "$name.$kind" "$want" "$work/$kind"; then failed=1; fi
  done
done
exit $failed
