mt 1
# GPT-2 at the sizes of the tests in tests/train; dimensions come from the command line.
use "../../../models/gpt2.mt" (GPT2)

model Tiny = GPT2(V = 128, Tmax = 32, D = 64, H = 4, L = 4)

data empty = tokens(train = "none.bin", dtype = u16)

precision { compute = f32 }

train {
  data      = empty.train
  dims { T = 32  B = auto }
  batch     = seqs(8)
  steps     = 10
  optimizer = adamw(lr = 1e-2, betas = (0.9, 0.95), eps = 1e-4, weight_decay = 0.1)
  clip      = 1.0
  group "*.b", "*.ln_*.w", "ln_f.w" { weight_decay = 0.0 }
}
