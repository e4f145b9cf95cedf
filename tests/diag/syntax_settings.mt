# expect error[E0101] 6:9 expected `=` or `{` after `steps`, found number `5`
# expect error[E0101] 8:10 expected an expression after `=`, found `=`
# expect error[E0101] 9:51 expected `,` or `)` after this expression, found number `0.99`
mt 1
train {
  steps 5
  epochs = 3
  clip = = 1.0
  optimizer = adamw(lr = 1e-3, betas = (0.9, 0.99 0.99))
}
