# expect error[E0101] 7:11 expected `=` or `{` after `steps`, found number `5`
# expect error[E0101] 9:12 expected an expression after `=`, found `=`
# expect error[E0101] 10:32 expected `,` or `)` after this expression, found number `0.99`
mt 1
model M(steps = 1, epochs = 1, clip = 1, opt = 1) {
  preset p {
    steps 5
    epochs = 3
    clip = = 1.0
    opt = f(betas = (0.9, 0.99 0.99))
  }
}
