mt 1
use "std/nn.mt" (Linear, Lora, RMSNorm)

model Base(D = 8) {
  layer q = Linear(D, D)
  layer k = Linear(D, D)
  fn loss(x [B, D]) -> f32 { return mean(q(x)) }
}

model Adapted = Base() {
  wrap "q" with RMSNorm(4)
  wrap "k" with Lora(rank = 4)
}
# expect error[E0201] 11:17 block `RMSNorm` cannot wrap: it has no layer formal
# expect error[E0106] 12:22 no argument `rank` in block `Lora`
