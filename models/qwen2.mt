mt 1
# Qwen2.5: the layers of Llama with biases of q, k and v; one table for embedding and head in the small ones.
use "llama.mt" (Layer)
use "std/nn.mt" (Embedding, Linear, RMSNorm)

model Qwen2(V = 151936, D = 896, H = 14, KV = 2, Dh = D / H, L = 24, F = 4864, eps = 1e-6,
            theta = 1_000_000.0, tied = true) {
  preset qwen25_05b { D = 896 }
  preset qwen25_15b { D = 1536  H = 12  L = 28  F = 8960 }
  preset qwen25_3b  { D = 2048  H = 16  L = 36  F = 11008 }
  preset qwen25_7b  { V = 152064  D = 3584  H = 28  KV = 4  L = 28  F = 18944  tied = false }

  layer embed = Embedding(V, D)
  layer h[L]  = Layer(D, H, KV, Dh, F, eps, theta, qkv_bias = true)
  layer norm  = RMSNorm(D, eps = eps)
  if not tied { layer head = Linear(D, V, bias = false) }

  fn forward(tokens i32[B, T]) -> [B, T, V] {
    x = embed(tokens)
    for b in h { x = b(x) }
    y = norm(x)
    return tied ? y @ embed.w.T : head(y)
  }

  fn loss(tokens i32[B, T], targets i32[B, T]) -> f32 {
    return cross_entropy(forward(tokens), targets, ignore = -1)
  }
}

data corpus = tokens(train = "qwen/train_*.bin", val = "qwen/val_*.bin", dtype = u32)

precision {
  compute = bf16
  master  = f32
  moments = auto  # f32, or 8-bit block-wise if the budget needs it
  "*norm*"           = f32
  "op:cross_entropy" = f32
}

train {
  data      = corpus.train
  dims { T = 1024  B = auto }
  batch     = tokens(524_288)
  steps     = 10_000
  optimizer = adamw(lr = 2e-5, betas = (0.9, 0.95), weight_decay = 0.1)
  schedule  = cosine(warmup = 200, final = 0.1)
  clip      = 1.0
  group "*norm*", "*.b" { weight_decay = 0.0 }
}

weights "hf:Qwen/Qwen2.5-0.5B" {
  "model.embed_tokens.weight"                        = embed.w
  "model.layers.{i}.input_layernorm.weight"          = h[i].norm1.w
  "model.layers.{i}.self_attn.q_proj.weight"         = h[i].attn.q.w.T  # torch Linear: [out, in]
  "model.layers.{i}.self_attn.q_proj.bias"           = h[i].attn.q.b
  "model.layers.{i}.self_attn.k_proj.weight"         = h[i].attn.k.w.T
  "model.layers.{i}.self_attn.k_proj.bias"           = h[i].attn.k.b
  "model.layers.{i}.self_attn.v_proj.weight"         = h[i].attn.v.w.T
  "model.layers.{i}.self_attn.v_proj.bias"           = h[i].attn.v.b
  "model.layers.{i}.self_attn.o_proj.weight"         = h[i].attn.o.w.T
  "model.layers.{i}.post_attention_layernorm.weight" = h[i].norm2.w
  "model.layers.{i}.mlp.gate_proj.weight"            = h[i].mlp.gate.w.T
  "model.layers.{i}.mlp.up_proj.weight"              = h[i].mlp.up.w.T
  "model.layers.{i}.mlp.down_proj.weight"            = h[i].mlp.down.w.T
  "model.norm.weight"                                = norm.w
  "lm_head.weight"                                   = head.w.T
}
