# expect error[E0101] 6:11 `u8` is a format of storage, not a type of values
# expect error[E0101] 7:14 expected `,` or `]` after this size or index, found `=`
# expect error[E0101] 8:10 `i64` is a format of storage, not a type of values
mt 1
block A(D) {
  param w u8[D] = zeros
  param v [D = ones
  fn f(x i64[D]) -> [D] { return x }
}
model M() {}
