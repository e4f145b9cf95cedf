mt 1
use "std/nn.mt" (Embedding)

model M(V = 16, D = 8) {
  layer emb = Embedding(V, D)
  fn loss(tokens i32[B, T], targets i32[B, T]) -> f32 {
    return cross_entropy(emb(tokens) @ emb.w.T, targets)
  }
}

data bytes = text(train = "x.txt", vall = "y.txt")
data other = texts(train = "x.txt")
date third = text(train = "x.txt")

precision {
  compute = bf17
  "emb.z" = f32
  "op:softmaks" = f32
  "emb.w" = 3
}
memroy { recompute = auto }
memory { recompute = all }

train {
  data = bytes.test
  dims { TT = 4  T = 5  B = auto }
  batch = tokens(12)
  steps = 1.5
  epochs = none
  optimizer = adamw(lr = -1.0, betas = 0.9)
  schedule = cosine(warmup_steps = 700)
  clip = "1"
  group "emb.w" { weightdecay = 0.0 }
  freeze "embed"
  eval { data = bytes.val }
  checkpoint { every = 0 }
}
# expect error[E0102] 11:36 unknown setting `vall` in `text(...)`
# expect error[E0102] 12:14 unknown data `texts`
# expect error[E0102] 13:1 `date NAME = ..` is not a declaration
# expect error[E0102] 21:1 there is no section `memroy`
# expect error[E0110] 16:13 `compute` cannot be `bf17`
# expect error[E0301] 17:3 pattern "emb.z" matches no layer or parameter
# expect error[E0301] 18:3 selector "op:softmaks" names no operation
# expect error[E0201] 19:13 a selector is given a number format, such as f32 or bf16
# expect error[E0110] 22:22 `recompute` cannot be `all`
# expect error[E0103] 25:16 data `bytes` has two parts, `train` and `val`
# expect error[E0102] 26:10 no function of `M` has a dimension `TT` to set
# expect error[E0201] 28:11 `steps` is a whole number, not the number 1.5
# expect error[E0201] 29:12 `epochs` is a number, not `none`
# expect error[E0201] 32:10 `clip` is a number, not the text "1"
# expect error[E0102] 33:19 unknown setting `weightdecay` in `group`
# expect error[E0301] 34:10 pattern "embed" matches no layer or parameter
# expect error[E0110] 29:12 `steps` and `epochs` are both given
# expect error[E0110] 30:26 `lr` must be at least 0, not -1
# expect error[E0201] 30:40 `betas` is two numbers: (a, b), not the number 0.9
# expect error[E0102] 31:21 unknown setting `warmup_steps` in `cosine(...)`
# expect error[E0110] 27:11 a batch of 12 tokens is no multiple of T = 5
