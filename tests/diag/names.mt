mt 1
use "std/nn.mt" (Linear, LayerNrm, Embedding)

block Twice(D, D) {
  param w [D] = ones
  param w [D] = zeros
}

block Shadow(gelu, D) {
  layer dropout = Linear(D, D)
  let softmax = 3
  fn forward(x [.., D]) -> [.., D] {
    tanh = x * 2.0
    return tanh
  }
}

block Inner(D, tall = 2) {
  layer up = Linear(D, D, biass = false)
  layer down = Linear(D)
  layer side = Linear(D, D, true, normal(0.1), 5)
  layer odd = Linaer(D, D)
  layer same = Linear(D, Out = D, In = D)
  param g [Dd] = ones
  fn forward(x [.., D]) -> [.., D] { return up(x) }
}

model M(V = 16, D = 8) {
  preset small { Dd = 4 }
  layer emb = Embedding(V, D)
  layer inp = 3
  layer a = Inner(D)
  fn loss(tokens i32[B, T], targets i32[B, T]) -> f32 {
    return cross_entropy(emb(tokens) @ emb.w.T, targets)
  }
}
# expect error[E0103] 2:26 "std/nn.mt" declares no `LayerNrm`
# expect error[E0104] 4:16 `D` is defined twice in `Twice`
# expect error[E0104] 6:9 `w` is defined twice in `Twice`
# expect error[E0105] 9:14 formal `gelu` has the name of an operation
# expect error[E0105] 10:9 layer `dropout` has the name of an operation
# expect error[E0105] 11:7 value `softmax` has the name of an operation
# expect error[E0105] 13:5 value `tanh` has the name of an operation
# expect error[E0102] 29:18 preset `small` sets `Dd`, which is no formal of `M`
# expect error[E0201] 31:15 a layer is made from a block, not from the number 3
# expect error[E0106] 19:27 no argument `biass` in block `Linear`
# expect error[E0106] 20:16 argument `Out` of block `Linear` is missing
# expect error[E0106] 21:48 block `Linear` takes 4 arguments, not 5
# expect error[E0103] 22:15 no block is called `Linaer`
# expect error[E0106] 23:35 argument `In` of block `Linear` is given twice
# expect error[E0103] 24:12 nothing is called `Dd` here
