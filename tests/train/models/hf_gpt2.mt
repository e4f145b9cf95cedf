mt 1
# The tiny GPT-2 of tests/reference/hf_models.py.
use "../../../models/gpt2.mt" (GPT2)

model Tiny = GPT2(V = 32, Tmax = 16, D = 16, H = 4, L = 2)

data text = tokens(train = "tokens.bin", dtype = u16, shuffle = false)

precision { compute = f32 }

train {
  data      = text.train
  dims { T = 16  B = auto }
  batch     = seqs(2)
  steps     = 3
  optimizer = adamw(lr = 1e-2)
}
