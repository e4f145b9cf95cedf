mt 1
use "std/nn.mt" (Embedding)

model M(V = 16, D = 8) {
  layer emb = Embedding(V, D)
  fn loss(tokens i32[B, T], targets i32[B, T]) -> f32 {
    return cross_entropy(emb(tokens) @ emb.w.T, targets)
  }
}

data bytes = text(train = "x.txt", holdout = 0.1)

train {
  data = bytes.train
  batch = seqs(12)
  optimizer = adamw(lr = 1e-3)
  schedule = linear(final = 0.1, final_lr = 1e-5)
  dims { B = 5 }
  phase one { steps = 5  epochs = 2  dims { T = auto } }
  phase two { steps = 5  seed = 3  dims { T = 4 } }
  phase two { steps = 5  freeze "*"  dims { T = 8  B = 4 } }
  phase six { dims { B = 6 } }
  eval { data = bytes.val  every = 5  metric = acuracy }
}
# expect error[E0110] 19:35 `steps` and `epochs` are both given
# expect error[E0110] 17:45 `final` and `final_lr` are both given
# expect error[E0110] 19:49 `T` cannot be `auto`: only the batch can
# expect error[E0102] 20:26 `seed` is the same in all phases
# expect error[E0110] 15:11 a step of 12 samples is no multiple of B = 5
# expect error[E0104] 21:9 phase `two` is given twice
# expect error[E0110] 21:33 every parameter is frozen: there is nothing to train
# expect error[E0106] 22:9 `phase six` has neither `steps` nor `epochs`
# expect error[E0103] 23:48 `M` has no function `acuracy`
# expect error[E0107] 6:25 dimension `T` of `M.loss` has no size
