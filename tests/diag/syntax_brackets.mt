# expect error[E0101] 6:24 expected `,` or `)` after this argument, found name `D`
# expect error[E0101] 7:14 expected `,` or `]` after this size or index, found name `D`
# expect error[E0101] 10:14 expected `,` or `]` after this element, found `)`
mt 1
block A(D) {
  layer q = B(D, 3 * D D)
  param w [D D] = ones
  let k = D
  fn f(x [D]) -> [D] {
    y = [x, x)
    return y
  }
}
model M() {}
