# expect error[E0101] 6:11 expected an expression after `+`, found a new line
# expect error[E0101] 9:14 expected `,` or `in` after `k`, found name `v`
mt 1
block A(D) {
  fn f(x [D]) -> [D] {
    y = x +
    z = x * 2
    w = x
    for q, k v in w { y = q }
    return y
  }
}
model M() {}
