mt 1
# Llama-2 7B, T = 2048, on the bytes of tinyshakespeare: an acceptance job. State and accumulation of the update in fp32.
# From random weights the first steps of Adam all point one way: at 5e-5 the loss of step 3 rises and what rounding changes grows.
use "../../models/llama.mt" (Llama)

model Job = Llama()

data shakespeare = text(train = "../../models/data/tinyshakespeare.txt", holdout = 0.1)

precision { compute = bf16  master = f32  moments = f32  accum = f32 }

train {
  data      = shakespeare.train
  dims { T = 2048  B = auto }
  batch     = seqs(64)
  steps     = 20
  optimizer = adamw(lr = 5e-6, betas = (0.9, 0.95), weight_decay = 0.1)
  schedule  = constant(warmup = 2)
  clip      = 1.0
  seed      = 1337
  group "*norm*" { weight_decay = 0.0 }
}
