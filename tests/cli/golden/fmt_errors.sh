# A file with errors is left alone; the others are still done.
printf 'let = 1\n' > $T/a.mt
printf 'let b=1\n' > $T/b.mt
mtc fmt $T/a.mt $T/b.mt; echo "fmt $?"
cat $T/a.mt $T/b.mt
mtc fmt $T/none.mt; echo "fmt $?"
