mt 1
use "std/nn.mt" (Linear)

model M(D = 8, L = 2, tied = true) {
  layer h[L] = Linear(D, D)
  if not tied { layer head = Linear(D, D) }
  fn loss(x [B, D]) -> f32 {
    for b in h { x = b(x) }
    return mean(x)
  }
}

weights "test" {
  "h.{i}.weight" = h[i].w.T
  "h.{i}.bias" = h[i].bb
  "h.0.weight" = h[0].w
  "h.{j}.bias" = h[0].b
  "h.bias" = h.b
  "h.5.bias" = h[5].b
  "h.{k}.transposed" = h[k].b.T
  "all" = h
  "head" = head.w
  plain = h[0].b
}
# expect error[E0301] 15:23 layer `h.0` has no parameter or layer `bb`
# expect error[E0104] 16:3 key "h.0.weight" is mapped twice
# expect error[E0301] 17:18 the parameter does not depend on `{j}`
# expect error[E0301] 18:14 an index `[i]` is missing
# expect error[E0301] 19:16 layer 5 of 2 is indexed
# expect error[E0301] 20:24 `.T` needs a parameter with 2 axes
# expect error[E0301] 21:11 a key is mapped to a parameter, not to a layer
# expect error[E0201] 23:3 `weights` holds lines like `"key" = h[i].attn.q.w`
