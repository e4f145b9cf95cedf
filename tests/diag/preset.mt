# preset smal
mt 1
use "std/nn.mt" (Embedding)
use "none.mt" (Nothing)

model M(V, D = 8) {
  preset small { V = 16 }
  layer emb = Embedding(V, D)
  layer non = Nothing(V)
}
# expect error[E0601] 4:5 there is no file "none.mt"
# expect error[E0103] 6:7 model `M` has no preset `smal`
