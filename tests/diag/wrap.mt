mt 1
use "std/nn.mt" (Linear, Lora)

block Two(D) {
  layer q = Linear(D, D)
  layer k = Linear(D, D, bias = false)
  fn forward(x [.., D]) -> [.., D] { return k(q(x)) }
}

model Base(D = 8, L = 2) {
  layer h[L] = Two(D)
  fn loss(x [B, D]) -> f32 {
    for b in h { x = b(x) }
    return mean(x)
  }
}

model Adapted = Base(L = 3) {
  wrap "h[*].kk", "h[*].q" with Lora(r = 2)
}
# expect error[E0301] 19:8 pattern "h[*].kk" matches no layer
