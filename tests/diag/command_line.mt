# dim LL=4
# dim D=12
# dim H=5
# set train.bach=seqs(3)
# set train.optimizer.rate=3
# set train.phase.one.steps=4
# set trian.steps=4
# set data.text.train="x"
mt 1
use "std/nn.mt" (Embedding)

model M(V = 16, D = 8, H = 2) {
  require D % H == 0
  layer emb = Embedding(V, D)
  fn loss(tokens i32[B, T], targets i32[B, T]) -> f32 {
    return cross_entropy(emb(tokens) @ emb.w.T, targets)
  }
}

data bytes = text(train = "x.txt")
train {
  data = bytes.train
  dims { T = 4 }
  batch = seqs(3)
  steps = 10
  optimizer = adamw(lr = 1e-3)
}
# expect error[E0103] 2:1 `train` has no phase `one`
# expect error[E0103] 2:1 the file has no data `text`
# expect error[E0108] 13:11 `M` requires `D % H == 0`
# expect error[E0102] 2:1 there is no section `trian`
# expect error[E0102] 2:1 unknown setting `bach` in `train`
# expect error[E0102] 2:1 unknown setting `rate` in `adamw(...)`
