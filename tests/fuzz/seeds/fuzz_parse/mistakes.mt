mt 1
use std/nn.mt
block A(D, H {
  layer q = Linear(D, 3 D)
}
block B(D) {
  param w [D D] = ones
  layer state = Linear(D, D)
  fn forward(x [B, T, D]) -> [B, T, D] {
    q, k v = split(x)
    a = attention(q as [B, T, H, Dh], k, v;
                  mask = mask)
    y = a +
    z = (a + b
    if x = 3 { y = 2 }
    return y
  }
  fn loss(x {
    return x
  fn other(x) { return x }
}
model M(V = 12abc, D = "abc
  H = 3) {
  layer x[L = Foo(3)
}
train {
  batch = tokens(5)
  steps 5
  a = 1 b = = 3
  optimizer = adamw(lr = 1e-3, betas = (0.9 0.99))
  eval { data = x.val  every 5 }
}
model N() {
  layer q = “x”
  if a { layer r = F(a && b) } elif b { }
  fn f() {
    return [1, 2
