# The pages of `mtc plan --html` and `mtc explore --html`: well-formed (xmllint), and in headless Chromium from file:// with an
# empty console, light and dark, driven by keys. Each tool is used where it is installed.
# Run from the root of the repository: bash tests/cli/test_html.sh BUILD_FOLDER
export NO_COLOR=1 COLUMNS=80 LC_ALL=C.UTF-8 PATH="$(realpath "$1"):$PATH"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

check() { # check WHAT CONDITION..
  local what=$1
  shift
  "$@" && return
  echo "failed: $what"
  failed=1
}

mtc plan models/char.mt --target cpu --vram 16M --html "$work/plan.html" --trace "$work/plan.trace" --json > "$work/plan.json" 2> "$work/err"
check "plan --html exits with 0" [ $? = 0 ]
mtc explore models/char.mt --target rtx3090 --vram 850M..1G --vary B=1,3 --html "$work/explore.html" > "$work/explore.txt" 2>> "$work/err"
check "explore --html exits with 0" [ $? = 0 ]
mtc plan models/char.mt --target cpu --vram 8M --host-ram 64M --html "$work/hosted.html" > /dev/null 2>> "$work/err"
check "a plan with host memory has a page" [ $? = 0 ]
check "what was written is said" grep -q "wrote $work/explore.html" "$work/err"
mtc plan models/char.mt --target cpu --vram 16M -q --html "$work/again.html" > /dev/null
check "the same page again" cmp -s "$work/plan.html" "$work/again.html"
peak=$(sed -n 's/^  "peak_bytes": \([0-9]*\),$/\1/p' "$work/plan.json")
check "the page has the peak of the JSON" grep -q "data-bytes=\"$peak\"" "$work/plan.html"
buffers=$(sed -n 's/^  "buffers": \([0-9]*\),$/\1/p' "$work/plan.json")
check "a rectangle for each buffer" [ "$(grep -c '^<rect' "$work/plan.html")" = "$buffers" ]
mtc plan models/char.mt --target cpu --vram 16M -q --html "$work/no/such/folder.html" > /dev/null 2>&1
check "a folder that is not there exits with 6" [ $? = 6 ]

if command -v xmllint > /dev/null; then
  for page in plan explore hosted; do check "$page.html is well-formed" xmllint --noout "$work/$page.html"; done
fi

chromium=$(command -v chromium || command -v chromium-browser || command -v google-chrome)
[ -n "$chromium" ] || { echo "chromium is not installed: the pages were not opened"; exit $failed; }

# Drives the page as a person would and writes what happened into <body data-seen>.
cat > "$work/drive.js" <<'JS'
(function () {
  var seen = [], plot = document.querySelector(".plot[tabindex]");
  function key(k, to) { (to || document.activeElement).dispatchEvent(new KeyboardEvent("keydown", { key: k, bubbles: true, cancelable: true })); }
  plot.focus();
  if (document.activeElement === plot) seen.push("focus");
  key("ArrowRight"); key("ArrowRight"); key("ArrowUp");
  if (document.querySelectorAll("rect.on").length === 1 && /step/.test(document.getElementById("note").textContent)) seen.push("arrows");
  key("+");
  if (plot.querySelector("svg").getAttribute("viewBox") !== plot.querySelector("svg").dataset.w) seen.push("zoom");
  key("0");
  key("/");
  var find = document.getElementById("find");
  if (document.activeElement === find) seen.push("slash");
  find.value = "h.1.";
  find.oninput();
  key("Enter");
  if (/^[1-9]\d* found$/.test(document.getElementById("found").textContent) && /h\.1\./.test(document.getElementById("note").textContent)) seen.push("find");
  key("Escape");
  if (!document.querySelector(".seek")) seen.push("escape");
  document.querySelectorAll("[data-show]")[1].click();
  if (document.querySelectorAll("[data-p='0'][hidden]").length === 2 && !document.querySelector("[data-p='1'][hidden]")) seen.push("programs");
  document.querySelectorAll("[data-show]")[0].click();
  var box = plot.querySelector("rect").getBoundingClientRect();
  plot.querySelector("rect").dispatchEvent(new PointerEvent("pointermove", { bubbles: true, clientX: box.left + 1, clientY: box.top + 1 }));
  if (!document.getElementById("tip").hidden && /steps/.test(document.getElementById("tip").textContent)) seen.push("hover");
  document.body.setAttribute("data-seen", seen.join(" "));
})();
JS
open_page() { # open_page FILE FLAGS..: the page's DOM in $work/dom, its console in $work/console
  local file=$1
  shift
  timeout 100 "$chromium" --headless=new --no-sandbox --disable-gpu --no-first-run --user-data-dir="$work/profile" \
    --enable-logging=stderr --v=0 "$@" --dump-dom "file://$file" > "$work/dom" 2> "$work/log" < /dev/null
  grep -i 'CONSOLE' "$work/log" > "$work/console"
}
for page in plan explore hosted; do
  awk -v js="$work/drive.js" '/^<\/body>/ { print "<script>"; while ((getline line < js) > 0) print line; print "</script>" } { print }' \
    "$work/$page.html" > "$work/$page.driven.html"
  for scheme in 0 1; do
    open_page "$work/$page.driven.html" --blink-settings=preferredColorScheme=$scheme
    check "$page.html opens (scheme $scheme)" grep -q '</html>' "$work/dom"
    check "$page.html leaves the console empty (scheme $scheme)" [ ! -s "$work/console" ]
    cat "$work/console"
    seen=$(sed -n 's/.*<body[^>]*data-seen="\([^"]*\)".*/\1/p' "$work/dom")
    check "$page.html answers to keys: $seen" [ "$seen" = "focus arrows zoom slash find escape programs hover" ]
  done
done
# A page with an error must be told from one without.
sed 's|^</body>|<script>throw new Error("seen")</script></body>|' "$work/plan.html" > "$work/broken.html"
open_page "$work/broken.html"
check "an error in the console is seen" [ -s "$work/console" ]
exit $failed
