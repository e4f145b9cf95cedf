mt 1
use "std/nn.mt" (Embedding, Linear)

block Attention(D, H) {
  let Dh = 3
  layer qkv = Linear(D, 3 * D)
  layer o = Linear(D, D)
  fn forward(x [B, T, D]) -> [B, T, D] {
    q, k, v = split(qkv(x), 3)
    a = attention(q as [B, T, H, Dh], k as [B, T, H, Dh], v as [B, T, H, Dh])
    return o(a as [.., D])
  }
}

model M(V = 16, D = 8, H = 2) {
  layer emb = Embedding(V, D)
  layer h[3] = Attention(D, H)
  fn loss(tokens i32[B, T], targets i32[B, T]) -> f32 {
    x = emb(tokens)
    for b in h { x = b(x) }
    return cross_entropy(x @ emb.w.T, targets) ** 2.0
  }
}
# expect error[E0207] 10:21 `as` must keep the element count: 8 per token in, 6 out
