for i in $(seq 30); do echo "let = $i"; done > $T/a.mt
mtc check $T/a.mt 2>&1 | tail -1
