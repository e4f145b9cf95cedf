# expect error[E0101] 9:16 `;` is not part of the language
# expect error[E0101] 10:17 `&&` is not part of the language
# expect error[E0101] 11:11 typographic quotes do not make strings
# expect error[E0101] 14:11 only comments and strings may hold characters beyond ASCII
# expect error[E0101] 13:1 `//` is not part of the language
# expect error[E0101] 15:11 this string has no end on its line
mt 1
block A(D) {
  let a = D * 2;
  require a > 1 && a < 9
  let b = “text”
  let g = 3
// comment of another language
  let c = é
  let d = "open
  let e = 3
}
model M() {}
