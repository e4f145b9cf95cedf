# expect error[E0101] 4:19 unknown escape in a string
# expect error[E0101] 5:13 strings are written in double quotes
mt 1
data c = tokens("a\qb")
let names = 'x'
model M() {}
