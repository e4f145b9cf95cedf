# expect error[E0101] 8:11 `12abc` is no number
# expect error[E0101] 9:11 whole numbers go up to 2^53
# expect error[E0101] 10:11 number out of range
# expect error[E0101] 11:11 size `9999999999T` is out of range
# expect error[E0101] 12:11 `1__0` is no number
mt 1
block A(D) {
  let a = 12abc
  let b = 9_007_199_254_740_993
  let c = 1e999
  let d = 9999999999T
  let e = 1__0
  let f = 1_000
}
model M() {}
