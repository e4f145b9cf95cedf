mt 1
# The tiny Qwen2.5 with one table of tests/reference/hf_models.py.
use "../../../models/qwen2.mt" (Qwen2)

model Tiny = Qwen2(V = 32, D = 16, H = 4, KV = 2, L = 2, F = 24)

data text = tokens(train = "tokens.bin", dtype = u16, shuffle = false)

precision { compute = f32 }

train {
  data      = text.train
  dims { T = 16  B = auto }
  batch     = seqs(2)
  steps     = 3
  optimizer = adamw(lr = 1e-2)
}
