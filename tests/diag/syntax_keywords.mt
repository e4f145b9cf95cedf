# expect error[E0101] 5:9 expected a name after `layer`, found keyword `state`
# expect error[E0101] 6:7 expected a name after `let`, found keyword `in`
mt 1
block A(D) {
  layer state = B(D)
  let in = 3
}
model M() {}
