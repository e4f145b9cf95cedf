mt 1
use "std/nn.mt" (Linear, Lora, RMSNorm)

model Base(D = 8) {
  layer q = Linear(D, D)
  fn loss(x [B, D]) -> f32 { return mean(q(x)) }
}

model Adapted = Base(DD = 3) {
  wrap "q" with RMSNorm(4)
}
# expect error[E0106] 9:22 no argument `DD` in model `Base`
