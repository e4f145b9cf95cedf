mt 1
# TinyLlama 1.1B, T = 88064, on the bytes of tinyshakespeare: an acceptance job. State and accumulation of the update in fp32.
use "../../models/llama.mt" (Llama)

model Job = Llama(D = 2048, KV = 4, L = 22, F = 5632)

data shakespeare = text(train = "../../models/data/tinyshakespeare.txt", holdout = 0.1)

precision { compute = bf16  master = f32  moments = f32  accum = f32 }

train {
  data      = shakespeare.train
  dims { T = 88064  B = auto }
  batch     = seqs(1)
  steps     = 20
  optimizer = adamw(lr = 3e-4, betas = (0.9, 0.95), weight_decay = 0.1)
  schedule  = constant(warmup = 2)
  clip      = 1.0
  seed      = 1337
  group "*norm*" { weight_decay = 0.0 }
}
