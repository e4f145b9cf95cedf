mt 1
use "std/nn.mt" (Embedding)

model M(V = 4K, D = 8) {
  layer emb = Embedding(V, D)
}

model N(V = 16, D = 8) {
  layer emb = Embedding(V, D)
  fn loss(tokens i32[B, T], targets i32[B, T]) -> f32 {
    return cross_entropy(emb(tokens) @ emb.w.T, targets)
  }
}

data bytes = text(train = "x.txt")
train {
  data = bytes.train
  dims { T = 4  B = auto }
  batch = tokens(512K)
  steps = 10
  optimizer = adamw(lr = 1e-3)
  checkpoint { every = 5  only = "*.w, {emb,x}.*, nothing" }
}
# expect error[E0201] 19:18 `512K` is a size in bytes, not a count
# expect error[E0301] 22:34 pattern "nothing" matches no layer or parameter
