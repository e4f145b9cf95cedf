mt 1
use "std/nn.mt" (Linear)

block Nest(D) {
  layer inner = Nest(D)
  fn forward(x [.., D]) -> [.., D] { return inner(x) }
}

block Odd(D, H) {
  require D % H == 0
  require D > 100, "D is too small for this block"
  param w [D / H] = ones
}

model M(D = 10) {
  layer a = Nest(D)
  layer b = Odd(D, 3)
  layer c[3] = Odd(D, 5)
}
# expect error[E0109] 5:17 block `Nest` contains itself
# expect error[E0108] 10:11 `Odd` requires `D % H == 0`
# expect error[E0108] 11:11 D is too small for this block
# expect error[E0110] 12:12 a dimension must be a whole number: `D / H` is 3.33333
