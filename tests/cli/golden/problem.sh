# A recompute problem: its front, plans for budgets, none below the floor, and files that are no problem.
cat > "$T/p.jsonl" << 'END'
{"op": "a", "ns": 10, "in": [], "out": [{"id": 1, "bytes": 100}], "layer": 0}
{"op": "b", "ns": 100, "in": [1], "out": [{"id": 2, "bytes": 100}], "layer": 1}
{"op": "c", "ns": 50, "in": [2], "out": [{"id": 3, "bytes": 400}], "layer": 2}
{"op": "loss", "ns": 30, "ws": 300, "in": [3], "out": [{"id": 4, "bytes": 50}], "layer": 3, "bwd": true}
{"op": "c_b", "ns": 30, "in": [4, 2], "out": [{"id": 5, "bytes": 50}], "layer": 2, "bwd": true}
{"op": "b_b", "ns": 30, "in": [5, 1], "out": [{"id": 6, "bytes": 50}], "layer": 1, "bwd": true}
{"op": "a_b", "ns": 30, "in": [6], "out": [], "layer": 0, "bwd": true}
END
mtc plan --problem "$T/p.jsonl"
mtc plan --problem "$T/p.jsonl" --budget 850
mtc plan --problem "$T/p.jsonl" --budget 90% --json
mtc plan --problem "$T/p.jsonl" --budget 749
echo "exit $?"
echo '{"op": "a", "in": 1}' > "$T/bad.jsonl"
mtc plan --problem "$T/bad.jsonl" --budget 1G
echo "exit $?"
