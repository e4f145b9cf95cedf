mt 1
use "std/nn.mt" (Embedding)

block Counter(D) {
  state n [D] = zeros
  fn forward(x [.., D]) -> [.., D] {
    n := x
    if training { n := n + 1.0 }
    return x
  }
}

model M(V = 16, D = 8) {
  layer emb = Embedding(V, D)
  layer count = Counter(D)

  fn pick(x [B, T, D]) -> [B, T, D] {
    if x > 0.0 { return x }
    return x
  }
  fn index(x [B, T, D]) -> [B, T, D] {
    y = x[:, T]
    z = x[0, 0, 0, 0]
    w = x[:, :, 0:9]
    for i in emb { x = x + 1.0 }
    return x
  }
  fn loss(tokens i32[B, T], targets i32[B, T]) -> f32 {
    x = count(index(pick(emb(tokens))))
    return cross_entropy(x @ emb.w.T, targets)
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
# expect error[E0107] 18:8 a condition must be known at compile time
# expect error[E0205] 22:14 index T is outside axis 1 of [B=1, T=4, D=8]
# expect error[E0204] 23:10 4 indices for [B=1, T=4, D=8]
# expect error[E0205] 24:17 index 0:9 is outside axis 2 of [B=1, T=4, D=8]
# expect error[E0201] 25:14 `for` walks over layers, tuples and ranges, not layer `emb`
# expect error[E0206] 7:5 state `n` is f32 [D=8], its new value a tensor [B=1, T=4, D=8]
