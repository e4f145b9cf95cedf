# In place, keeping the meaning; twice changes nothing; --check tells before and after.
printf 'mt 1\ntrain{steps=3 # few\n  lr=1e-3}\n' > $T/a.mt
mtc fmt --check $T/a.mt; echo "check $?"
mtc fmt $T/a.mt; echo "fmt $?"
cat $T/a.mt
mtc fmt --check $T/a.mt; echo "check $?"
cp $T/a.mt $T/b.mt
mtc fmt -v $T/a.mt; echo "fmt $?"
cmp $T/a.mt $T/b.mt
ls $T
