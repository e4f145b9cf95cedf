mt 1
# Qwen2.5-1.5B, T = 1024, on the bytes of tinyshakespeare: an acceptance job. State and accumulation of the update in fp32.
use "../../models/qwen2.mt" (Qwen2)

model Job = Qwen2(D = 1536, H = 12, L = 28, F = 8960)

data shakespeare = text(train = "../../models/data/tinyshakespeare.txt", holdout = 0.1)

precision { compute = bf16  master = f32  moments = f32  accum = f32 }

train {
  data      = shakespeare.train
  dims { T = 1024  B = auto }
  batch     = tokens(524_288)
  steps     = 20
  optimizer = adamw(lr = 3e-4, betas = (0.9, 0.95), weight_decay = 0.1)
  schedule  = constant(warmup = 2)
  clip      = 1.0
  seed      = 1337
  group "*norm*", "*.b" { weight_decay = 0.0 }
}
