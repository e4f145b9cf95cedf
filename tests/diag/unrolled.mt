mt 1
use "std/nn.mt" (Embedding)

block Hundred(D) {
  layer h[10000] = Thousand(D)
}
block Thousand(D) {
  layer h[1000] = Nothing(D)
}
block Nothing(D) {
  fn forward(x [.., D]) -> [.., D] { return x }
}

model M(V = 16, D = 8) {
  layer emb = Embedding(V, D)
  layer many = Hundred(D)
}
# expect error[E0110] 8:11 the model has more than 50000 layers or parameters
