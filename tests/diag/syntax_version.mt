# expect error[E0101] 2:4 this mtc reads version 1 of the language, not 2
mt 2
model M() {}
