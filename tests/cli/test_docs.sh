# The generated pages of docs/ are what the tables say (`./setup.sh docs` renews them), and no flag is missing in any.
build=$(realpath "$1")
mtc="$build/mtc"
failed=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$mtc" help --write-docs "$work/docs" || failed=1
for page in "$work"/docs/*; do
  name=docs/$(basename "$page")
  cmp -s "$page" "$name" || { echo "$name is out of date: run ./setup.sh docs"; failed=1; }
done
[ "$(ls "$work/docs" | wc -l)" = 5 ] || { echo "expected 5 pages"; failed=1; }
for shell in bash zsh fish; do "$mtc" help --completion $shell > "$work/$shell"; done
"$mtc" help --man | sed 's/\\-/-/g' > "$work/man"
"$mtc" help --markdown > "$work/markdown"
commands=$(sed -n 's/^COMMAND(\([a-z]*\),.*/\1/p' frontend/flags.def)
flags=$(sed -n 's/^FLAG([a-z_0-9]*, *[A-Z]*, "\([a-z-]*\)".*/\1/p' frontend/flags.def)
[ "$(echo $flags | wc -w)" -ge 30 ] || { echo "cannot read frontend/flags.def"; failed=1; }
for command in $commands; do
  "$mtc" help "$command" > "$work/help_$command" || failed=1
  for page in man markdown bash zsh fish; do
    grep -qw -- "$command" "$work/$page" || { echo "$page lacks the command $command"; failed=1; }
  done
done
for flag in $flags; do
  for page in man markdown bash zsh; do
    grep -q -e "--$flag\b" "$work/$page" || { echo "$page lacks --$flag"; failed=1; }
  done
  grep -q -e "-l $flag\b" "$work/fish" || { echo "fish lacks --$flag"; failed=1; }
  cat "$work"/help_* | grep -q -e "--$flag\b" || { echo "no command's help shows --$flag"; failed=1; }
done
exit $failed
