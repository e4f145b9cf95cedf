mt 1
# Llama with grouped keys at the sizes of the tests in tests/train; dimensions come from the command line.
use "../../../models/llama.mt" (Llama)

model Tiny = Llama(V = 128, D = 64, H = 4, KV = 2, L = 4, F = 160)

data empty = tokens(train = "none.bin", dtype = u16)

precision { compute = f32 }

train {
  data      = empty.train
  dims { T = 32  B = auto }
  batch     = seqs(8)
  steps     = 10
  optimizer = adamw(lr = 1e-2, betas = (0.9, 0.95), eps = 1e-4, weight_decay = 0.1)
  clip      = 1.0
  group "*norm*" { weight_decay = 0.0 }
}
