mt 1
use "std/nn.mt" (Embedding, Linear, LayerNorm)

block Wrong(D) {
  layer o = Linear(D, 2 * D)
  fn forward(x [B, T, D]) -> [B, T, D] { return o(x) }
}

model M(V = 16, D = 8, H = 2) {
  layer emb = Embedding(V, D)
  layer wide = Linear(2 * D, D)
  layer wrong = Wrong(D)
  param row [3] = ones

  fn ops(x [B, T, D], ids i32[B, T]) -> [B, T, D] {
    a = x + row
    b = x @ x
    c = x @ emb.w
    d = x as [B, T, H, D]
    e = wide(x)
    f = x @ row
    g = x + ids
    h = x.T.T + wrong(x)
    i = transpose(x, (0, 0, 1))
    j = split(x, 3)
    k = concat((x, ids))
    l = mean(x, axis = 3)
    m = layernorm(x, row, row)
    n = rope(x)
    o = (x as [B, T, H, D / H]) as [B, T]
    p = where(x, x, x)
    return x
  }
  fn loss(tokens i32[B, T], targets i32[B, T]) -> f32 {
    x = ops(emb(tokens), tokens)
    return cross_entropy(x @ emb.w.T, tokens[:, 0])
  }
}

data bytes = text(train = "x.txt")
train {
  data = bytes.train
  dims { T = 4  B = auto }
  batch = seqs(4)
  steps = 10
  optimizer = adamw(lr = 1e-3)
}
# expect error[E0202] 16:11 shapes of `+` differ: D=8 and 3
# expect error[E0203] 17:11 inner dimensions of `@` differ: 8 and 4
# expect error[E0203] 18:11 inner dimensions of `@` differ: 8 and 16
# expect error[E0207] 19:11 `as` must keep the element count: 8 per token in, 16 out
# expect error[E0212] 20:14 argument `x` of `wide` must be [.., In=16], not [B=1, T=4, D=8]
# expect error[E0204] 21:11 `@` of 3 and 1 axes: the right side is a matrix, or has as many axes as the left
# expect error[E0201] 22:11 operands of `+` have different types: f32 and i32
# expect error[E0211] 6:49 block `Wrong` promises [B, T, D] but returns [B=1, T=4, 16]
# expect error[E0205] 24:9 `transpose` names axis 0 twice
# expect error[E0206] 25:9 `split` of 8 into 3 equal parts
# expect error[E0206] 26:9 `concat` along axis 2: f32 [B=1, T=4, D=8] and i32 [B=1, T=4]
# expect error[E0205] 27:9 `mean` along axis 3 of a tensor with 3 axes
# expect error[E0206] 28:9 `w` of `layernorm` is [3]; the last axis of x has 8
# expect error[E0204] 29:9 `x` of `rope` is [B=1, T=4, D=8]; it takes [B, T, H, Dh]
# expect error[E0207] 30:33 `as` must keep the element count: 8 per token in, 1 out
# expect error[E0201] 31:9 the condition of `where` is bool, not f32
# expect error[E0206] 36:12 `cross_entropy` of [B=1, T=4, V=16] and targets [B=1]
