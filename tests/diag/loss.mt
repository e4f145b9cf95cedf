mt 1
use "std/nn.mt" (Embedding)

model M(V = 16, D = 8) {
  layer emb = Embedding(V, D)
  fn loss(tokens i32[B, T], targets i32[B, T]) -> f32 {
    return exp(cross_entropy(emb(tokens) @ emb.w.T, targets)) + mean(emb.w)
  }
}
# expect error[E0201] 7:12 cross entropy goes through `exp` on its way to the loss
