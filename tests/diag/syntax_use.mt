# expect error[E0101] 4:5 expected a string after `use`, found name `std`
# expect error[E0101] 5:10 expected a name after `(`, found `)`
mt 1
use std/nn.mt (Linear)
use "a" ()
model M() {}
