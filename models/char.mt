mt 1
# A small GPT on the bytes of one text file: trains in minutes on two CPU cores.
use "gpt2.mt" (GPT2)

model Char = GPT2(V = 256, Tmax = 64, D = 128, H = 4, L = 4)

data shakespeare = text(train = "data/tinyshakespeare.txt", holdout = 0.1)

precision { compute = f32 }

train {
  data      = shakespeare.train
  dims { T = 64  B = auto }
  batch     = seqs(12)
  steps     = 2_000
  optimizer = adamw(lr = 1e-3, betas = (0.9, 0.99), weight_decay = 0.1)
  schedule  = cosine(warmup = 100, final = 0.1)
  clip      = 1.0
  seed      = 1337
  group "*.b", "*.ln_*.w", "ln_f.w" { weight_decay = 0.0 }
  eval       { data = shakespeare.val  every = 500 }
  checkpoint { every = 500  keep = 2 }
}
