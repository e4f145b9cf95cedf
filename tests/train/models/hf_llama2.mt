mt 1
# The tiny Llama 2 of tests/reference/hf_models.py.
use "../../../models/llama.mt" (Llama)

model Tiny = Llama(V = 32, D = 16, H = 4, KV = 4, L = 2, F = 24)

data text = tokens(train = "tokens.bin", dtype = u16, shuffle = false)

precision { compute = f32 }

train {
  data      = text.train
  dims { T = 16  B = auto }
  batch     = seqs(2)
  steps     = 3
  optimizer = adamw(lr = 1e-2)
}
