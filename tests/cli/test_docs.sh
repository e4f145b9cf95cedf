# The generated pages of docs/ are what the tables say, and no flag is missing in any of them. To renew a page run the
# command that its test prints.
build=$(realpath "$1")
mtc="$build/mtc"
failed=0

same() {  # PAGE ARGUMENTS..
  page=$1
  shift
  if ! "$mtc" "$@" | diff -q - "$page" > /dev/null; then
    echo "$page is out of date: build/mtc $* > $page"
    failed=1
  fi
}
same docs/cli.md help --markdown
same docs/mtc.1 help --man
same docs/errors.md help errors --markdown
same docs/ops.md help op --markdown
same docs/settings.md help settings --markdown

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
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
