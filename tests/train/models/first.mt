mt 1
# Every kind of accumulator: a tied weight (a scatter and a product), biases and norms (sums of columns), a frozen weight,
# and one that the loss does not depend on.
use "std/nn.mt" (Embedding, Linear, LayerNorm)

model M(V = 64, D = 32) {
  layer emb = Embedding(V, D)
  layer norm = LayerNorm(D)
  layer up = Linear(D, 2 * D)
  layer still = Linear(2 * D, 2 * D)
  layer down = Linear(2 * D, D)
  param spare [D] = ones
  fn loss(tokens i32[B, T], targets i32[B, T]) -> f32 {
    x = emb(tokens)
    x = x + down(gelu(still(gelu(up(norm(x))))))
    return cross_entropy(x @ emb.w.T, targets)
  }
}

data empty = tokens(train = "none.bin", dtype = u16)

precision { compute = f32 }

train {
  data      = empty.train
  dims { T = 32  B = auto }
  batch     = seqs(8)
  steps     = 10
  optimizer = adamw(lr = 1e-2, weight_decay = 0.1)
  clip      = 1.0
  freeze "still.*"
}
