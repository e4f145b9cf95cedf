# One placement in text, as a file and as JSON; what exists is not overwritten without being asked.
printf 'size, id,lower,upper,note\n4,a,0,4,x\n3,b,2,9,\n5,c,4,6,\n1,d,5,9,\n' > "$T/in.csv"
mtc place "$T/in.csv"
mtc place "$T/in.csv" --capacity 16 -o "$T/out.csv" && cat "$T/out.csv"
mtc place "$T/in.csv" -o "$T/out.csv"
echo "exit $?"
mtc place "$T/in.csv" --force -q -o "$T/out.csv" && mtc place "$T/in.csv" -o - -q
mtc place "$T/in.csv" --json
