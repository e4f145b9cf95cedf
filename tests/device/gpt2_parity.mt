mt 1
# GPT-2 124M on the bytes of tinyshakespeare, for tests/device/gpt2_parity.py: the same weights, tokens and order as there.
use "../../models/gpt2.mt" (GPT2)

model Parity = GPT2()

data bytes = tokens(train = "parity_tokens.bin", dtype = u16, shuffle = false)

precision { compute = bf16  master = f32  moments = f32  accum = f32 }

train {
  data      = bytes.train
  init      = "parity_init.safetensors"
  dims { T = 512  B = auto }
  batch     = seqs(8)
  steps     = 200
  optimizer = adamw(lr = 6e-4, betas = (0.9, 0.95), eps = 1e-8, weight_decay = 0.1)
  schedule  = constant(warmup = 20)
  clip      = 1.0
  group "*.b", "*.ln_*.w", "ln_f.w" { weight_decay = 0.0 }
  checkpoint { every = 100  keep = 2 }
}
