mt 1
use "std/nn.mt" (Embedding, Linear)

let big = 2 ** 70
let none_such = 3 / 0

model M(V = 16, D = 8) {
  layer emb = Embedding(V, D)
  param s [D / 3] = ones
  param t [D] = emb.w
  layer l[emb] = Linear(D, D)
  let odd = emb.w + 1
  param u [-1] = ones
  fn loss(tokens i32[B, T], targets i32[B, T]) -> f32 {
    return cross_entropy(emb(tokens) @ emb.w.T, targets)
  }
}
# expect error[E0110] 4:13 `2 ** 70` is too large
# expect error[E0110] 5:19 `3 / 0` divides by 0
# expect error[E0110] 9:12 a dimension must be a whole number: `D / 3` is 2.66667
# expect error[E0201] 10:17 an initial value is a number, `zeros`, `ones`, `normal(..)`, .. - not parameter `emb.w`
# expect error[E0201] 11:11 a dimension must be a number, not layer `emb`
# expect error[E0201] 12:19 `+` takes numbers and tensors, not parameter `emb.w`
# expect error[E0110] 13:12 a dimension cannot be negative: `-1` is -1
