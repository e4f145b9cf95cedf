mtc
