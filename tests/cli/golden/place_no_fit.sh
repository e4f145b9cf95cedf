# Capacities that cannot be met, and by which proof.
printf 'id,lower,upper,size\na,2,8,2\nb,4,8,2\nc,7,9,3\nd,1,2,3\ne,2,5,2\nf,5,7,1\ng,1,4,3\nh,8,14,3\n' > "$T/in.csv"
mtc place "$T/in.csv" --capacity 6
echo "exit $?"
mtc place "$T/in.csv" --capacity 7
echo "exit $?"
mtc place "$T/in.csv" --capacity 8
echo "exit $?"
mtc place "$T/in.csv" --capacity 7 --json 2> /dev/null
mtc place "$T/in.csv"
