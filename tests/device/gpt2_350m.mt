mt 1
# GPT-2 350M, T = 1024, on the bytes of tinyshakespeare: an acceptance job. State and accumulation of the update in fp32.
use "../../models/gpt2.mt" (GPT2)

model Job = GPT2(L = 24, D = 1024, H = 16)

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
  group "*.b", "*.ln_*.w", "ln_f.w" { weight_decay = 0.0 }
}
