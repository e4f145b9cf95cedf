mt 1
use "std/nn.mt" (Embedding, Linear)

fn forever(x [.., D]) -> [.., D] { return forever(x) }
fn pair(x [.., D]) -> [.., D], [.., D] { return x, x + 1.0 }

block Nest(D) {
  layer inner = Nest(D)
  fn forward(x [.., D]) -> [.., D] { return inner(x) }
}

model M(V = 16, D = 8, H = 2) {
  layer emb = Embedding(V, D)
  layer lin = Linear(D, D)

  fn body(x [B, T, D]) -> [B, T, D] {
    a = gelu(x, approximate = "tanh")
    b = gelu(x, approx = "than")
    c = softmaks(x)
    d = lin.forwrd(x)
    f = lin.ww
    g = emb(x)
    h = dropout(x, 1.5)
    i, j, k = pair(x)
    l = Linear(D, D)
    m = lin(x, x)
    n = relu
    o = forever(x)
    p = D(x)
    q = attention(x, x, x)
    r = none + x
    return x
  }

  fn loss(tokens i32[B, T], targets i32[B, T]) -> f32 {
    return cross_entropy(body(emb(tokens)) @ emb.w.T, targets)
  }
}

data bytes = text(train = "x.txt")
train {
  data = bytes.train
  dims { T = 4  B = auto }
  batch = seqs(4)
  steps = 10
  optimizer = adamw(lr = 1e-3)
}
# expect error[E0106] 17:17 no argument `approximate` in `gelu`
# expect error[E0110] 18:26 `approx` of `gelu` is "none" or "tanh", not "than"
# expect error[E0103] 19:9 no operation, layer or function is called `softmaks`
# expect error[E0103] 20:13 layer `lin` has nothing called `forwrd`
# expect error[E0103] 21:13 layer `lin` has nothing called `ww`
# expect error[E0201] 22:13 argument `ids` of `emb` takes i32[..], not a tensor [B=1, T=4, D=8]
# expect error[E0110] 23:20 `rate` of `dropout` must be between 0 and 0.999999, not 1.5
# expect error[E0201] 24:15 3 names on the left, 2 values on the right
# expect error[E0201] 25:9 block `Linear` cannot be called in an expression
# expect error[E0106] 26:16 layer `lin` takes 1 argument, not 2
# expect error[E0103] 27:9 `relu` is an operation: it has to be called
# expect error[E0109] 4:43 function `forever` calls itself
# expect error[E0201] 29:9 the number 8 cannot be called
# expect error[E0204] 30:9 `q` of `attention` is [B=1, T=4, D=8]; it takes [B, Tq, H, Dh]
# expect error[E0201] 31:14 `+` takes numbers and tensors, not `none`
