mt 1
use "std/nn.mt" (Embedding)

model M(V = 16, D = 8) {
  layer emb = Embedding(V, D)
  fn loss(tokens i32[B, T]) -> f32 {
    return mean(argmax(emb(tokens)) == tokens)
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
# expect error[E0213] 6:6 no trained parameter has a gradient in `M.loss`
