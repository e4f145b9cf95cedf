# expect error[E0101] 7:10 expected `{` after this expression, found `=`
# expect error[E0101] 9:10 expected `,`, `:=` or `=` after `elif`, found name `D`
# expect error[E0101] 13:6 expected `=` or `{` after `g`, found `(`
mt 1
block A(D) {
  fn f(x [D]) -> [D] {
    if x = 3 { y = 2 }
    if D == 3 { y = 2 }
    elif D == 4 { y = 3 }
    return y
  }
}
def g(x) { return x }
model M() {}
