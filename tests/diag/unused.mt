mt 1
use "std/nn.mt" (BatchNorm2d, Embedding)

model M(V = 16, D = 8) {
  layer emb = Embedding(V, D)
  layer norm = BatchNorm2d(1)
  param spare [D] = ones
  fn loss(tokens i32[B, T], targets i32[B, T]) -> f32 {
    x = norm(emb(tokens) as [B, 1, T, D]) as [B, T, D]
    return 2.0 * cross_entropy(x @ emb.w.T, targets) + mean(x ** 2)
  }
}

data bytes = text(train = "x.txt")
precision { "op:gelu" = f32  "op:{dot,mean}" = bf16 }
train {
  data = bytes.train
  dims { T = 4  B = auto }
  batch = seqs(4)
  steps = 10
  optimizer = adamw(lr = 1e-3)
}
# expect warning[W0413] 7:9 parameter `spare` has no effect on the loss
# expect warning[W0413] 15:13 selector "op:gelu" matches no operation of `M`
# expect warning[W0412] 19:11 batchnorm statistics are taken over the micro-batch (B=auto), not the batch (4)
