mt 1
use "std/nn.mt" (Embedding)

fn f1(n) { for i in 0..100 { n = n + 1 }  return n }
fn f2(n) { for i in 0..100 { n = f1(n) }  return n }
fn f3(n) { for i in 0..100 { n = f2(n) }  return n }
fn f4(n) { for i in 0..100 { n = f3(n) }  return n }

model M(V = 16, D = 8) {
  layer emb = Embedding(V, D)
  fn loss(tokens i32[B, T], targets i32[B, T]) -> f32 {
    n = f4(0)
    return cross_entropy(emb(tokens) @ emb.w.T, targets)
  }
}
# expect error[E0110] 4:12 the model unrolls into more than 1000000 calls and rounds of loops
