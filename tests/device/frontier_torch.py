#!/usr/bin/env python3
"""mtc beside PyTorch's frontier of memory and speed: as much memory as PyTorch took, and the same tokens a step.

usage: frontier_torch.py MTC [TARGET] [--anchor] [--no-bench] [MODEL..]   (default: h200; cpu takes small models, to try the script)

frontier_torch.jsonl has what torch_point.py measured on one NVIDIA H200 with PyTorch 2.11 (CUDA 13): micro-batch, checkpointing,
`activation_memory_budget`, `torch.compile`, and the memory that the GPU had in use, context and all. Each row is planned with
`--vram` = that memory, nothing of it reserved for others, and `master = split`: 16 bytes a parameter as in PyTorch, with the same
results as `f32`. Before that `mtc bench` calibrates the row and finds the algorithms of its products (--no-bench: neither).

Passes when mtc trains each row at 1.1 times PyTorch's speed or more, takes no more memory than PyTorch and what was planned to
within 1 %; and when GPT-2 350M at micro-batch 16 loses at most half as much speed at the two smaller sizes, against its largest, as
PyTorch loses by `activation_memory_budget`. --anchor measures PyTorch's first row again (a minute) and says how far it is from the
record, which speaks for this card only. About five minutes.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile

from jobs import HERE, Failed, Verdicts, bench, compile_all, on_budget, source, train

LENGTH = {"gpt2_350m": 1024, "gpt2_774m": 1024, "tinyllama": 2048}
FASTER, STEPS, SKIP = 1.1, 14, 4


def calibrated(mtc, out, args, target):
    """A target measured on the row; the table's where there is no plan, which the compilation says."""
    try:
        bench(mtc, out, *args, "--target", target)
        return out
    except Failed:
        return target


def main():
    words = [w for w in sys.argv[1:] if not w.startswith("--")]
    mtc, target, models = os.path.abspath(words[0]), words[1] if len(words) > 1 else "h200", words[2:] or list(LENGTH)
    small, work, verdict = target == "cpu", tempfile.mkdtemp(), Verdicts()
    rows = [json.loads(line) for line in open(f"{HERE}/frontier_torch.jsonl")]
    rows = [r for r in rows if r["model"] in models]
    rates = {}

    def arguments(row):
        tokens = row["mb"] * (32 if small else LENGTH[row["model"]])
        return [source(row["model"], work, small), "--vram", "1G" if small else f"{row['used_gib']}G", "--reserve", "0",
                "--set", "precision.master=split", "--set", f"train.batch=tokens({tokens})"]

    def measure(name, row):
        """Tokens a second and the micro-batch; zeros when it does not run."""
        try:
            r = train(mtc, f"{work}/{name}.mtx", f"{work}/run", "--steps", str(STEPS), "--no-checkpoint", "--force")
        except Failed as e:
            verdict.expect(False, str(e))
            return 0, 0
        verdict.expect(on_budget(r) and (small or r.measured <= row["used_gib"] * 2**30),
                       f"{r.measured:,} bytes of {r.planned:,} planned; PyTorch {row['used_gib'] * 2**30:,.0f}")
        return r.median("tokens_per_second", SKIP), r.micro_batch()

    try:
        programs = {}
        for i, row in enumerate(rows):
            args = arguments(row)
            use = target if "--no-bench" in sys.argv else calibrated(mtc, f"{work}/{i}.json", args, target)
            programs[f"{work}/{i}.mtx"] = [*args, "--target", use]
            if row["model"] == "gpt2_350m":
                programs[f"{work}/pinned{i}.mtx"] = [*args, "--target", use, "--micro-batch", str(row["mb"])]
        failed = compile_all(mtc, programs)
        for i, row in enumerate(rows):
            how = f"micro-batch {row['mb']}{', compiled' * row['compile']}{', checkpointing' * row['ckpt']}, budget {row['budget']}"
            print(f"{row['model']} in {row['used_gib']} GiB; PyTorch with {how}", flush=True)
            program = f"{work}/{i}.mtx"
            if program in failed:
                verdict.expect(False, failed[program])
                continue
            rate, micro = measure(str(i), row)
            verdict.expect(small or rate >= FASTER * row["tok_s"], f"{rate:,.0f} tokens/s, {rate / row['tok_s']:.3f} x PyTorch's "
                           f"{row['tok_s']:,}; micro-batch {micro}")
            if row["model"] == "gpt2_350m":
                rates[i] = rate if micro == row["mb"] else measure(f"pinned{i}", row)[0]
        for i in rates:
            ours, theirs = 1 - rates[i] / (rates.get(0) or 1), 1 - rows[i]["tok_s"] / rows[0]["tok_s"]
            if i:
                verdict.expect(small or ours <= theirs / 2, f"gpt2_350m, micro-batch 16, {rows[i]['used_gib']} GiB: {rates[i]:,.0f} "
                               f"tokens/s, {100 * ours:.2f} % less than in {rows[0]['used_gib']} GiB; PyTorch {100 * theirs:.2f} %")
        if "--anchor" in sys.argv:
            p = subprocess.run([sys.executable, f"{HERE}/torch_point.py", "gpt2_350m", "16", "--cap", "24"], capture_output=True,
                               text=True)
            print("anchor, PyTorch's first row measured again:", p.stdout.strip() or p.stderr[-300:])
    finally:
        shutil.rmtree(work)
    print("FRONTIER OK" if not verdict.failed else f"FRONTIER FAILS {verdict.failed} times")
    return verdict.failed != 0


if __name__ == "__main__":
    sys.exit(main())
