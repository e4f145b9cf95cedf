printf 'let x=1' > $T/a.mt
mtc fmt -o - $T/a.mt
mtc fmt -o $T/c.mt $T/a.mt && cat $T/c.mt $T/a.mt
