mt 1
use "std/nn.mt" (Embedding)

model M(V = 16, D = 8) {
  layer emb = Embedding(V, D)
  fn encode(tokens i32[B, T]) -> [B, T, D] { x = emb(tokens) }
  fn two(tokens i32[B, T]) -> [B, T, D], [B, T, D] { return emb(tokens) }
  fn ints(tokens i32[B, T]) -> [B, T] { return tokens }
  fn flat(tokens i32[B, T]) -> [B, T] { return emb(tokens) }
  fn loss(tokens i32[B, T], targets i32[B, T]) -> f32 {
    return emb(tokens)
  }
}
# expect error[E0211] 11:12 `M.loss` promises f32 but returns [B=1, T=8, D=8]
# expect error[E0211] 6:6 `encode` promises [B, T, D] but returns nothing
# expect error[E0211] 7:61 `two` promises 2 values, returns 1
# expect error[E0211] 8:48 `M.ints` promises [B, T] but returns a tensor i32 [B=1, T=8]
# expect error[E0211] 9:48 `M.flat` promises [B, T] but returns [B=1, T=8, D=8]
