# expect error[E0101] 9:1 found keyword `model`
# expect error[E0101] 12:1 found end of file
mt 1
block A(D) {
  fn f(x [D]) -> [D] {
    y = x
    return y

model M() {
  layer a = A(3)

