#!/usr/bin/env python3
"""Speed of GPT-2 training in mtc beside torch.compile, on one GPU in one run.

usage: speed.py MTC [TARGET]     (needs torch)

Equal model, batch and tokens a step; bf16 autocast, fused AdamW with fp32 weights and clipping in PyTorch, bf16 with fp32 master in
mtc. Prints tokens a second (median of the steps after the first ones) and the memory of each.
"""
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
import torch

HERE = os.path.dirname(os.path.abspath(__file__))
CASES = [  # name, preset, micro-batch, tokens a step, mtc's budget
    ("124M, 16 x 1024", None, 16, 16_384, "24G"),
    ("124M, 64 x 1024", None, 64, 65_536, "40G"),
    ("350M, 24 GiB", "medium", 16, 65_536, "24G"),
]
SIZES = {None: (12, 12, 768), "medium": (24, 16, 1024)}
STEPS, SKIP = 14, 4


def mtc(binary, target, work, preset, batch, tokens, vram):
    args = [binary, "train", f"{work}/gpt2.mt", "--target", target, "--vram", vram, "--set", "train.dims.T=1024", "--set",
            f"train.batch=tokens({tokens})", "-o", f"{work}/run", "--force", "--steps", str(STEPS)]
    if preset:
        args += ["--preset", preset]
    p = subprocess.run(args, capture_output=True, text=True)
    if p.returncode:
        return f"exit {p.returncode}: {(p.stdout + p.stderr)[-300:]}"
    rows = [json.loads(l) for l in open(f"{work}/run/metrics.jsonl")]
    rate = statistics.median([r["tokens_per_second"] for r in rows if "tokens_per_second" in r][SKIP:])
    memory = next(l for l in (p.stdout + p.stderr).splitlines() if l.startswith("memory"))
    return rate, int(memory.split("step 1: ")[1].split(" bytes")[0].replace(",", ""))


def compiled(preset, batch, tokens):
    import gpt2_parity as ref
    ref.L, ref.H, ref.D = SIZES[preset]
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    m = ref.model().cuda()
    opt = torch.optim.AdamW(m.parameters(), lr=1e-4, fused=True)
    run = torch.compile(m)
    x = torch.randint(0, 50257, (batch, 1024), device="cuda")
    times = []
    for s in range(STEPS):
        torch.cuda.synchronize()
        t = time.time()
        for _ in range(tokens // (batch * 1024)):
            with torch.autocast("cuda", torch.bfloat16):
                loss = run(x, x)
            loss.backward()
        torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        opt.step()
        opt.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        times.append(time.time() - t)
    free, total = torch.cuda.mem_get_info()
    return tokens / statistics.median(times[SKIP:]), total - free


def main():
    binary, target = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "h200"
    work = tempfile.mkdtemp()
    text = np.frombuffer(open(f"{HERE}/../../models/data/tinyshakespeare.txt", "rb").read(), dtype=np.uint8)
    text.astype(np.uint16).tofile(f"{work}/tokens.bin")
    source = open(f"{HERE}/gpt2_parity.mt").read().replace("parity_tokens.bin", f"{work}/tokens.bin")
    source = source.replace("../../models/", os.path.abspath(f"{HERE}/../../models") + "/")
    open(f"{work}/gpt2.mt", "w").write("\n".join(l for l in source.splitlines() if " init " not in l))
    ours = [mtc(binary, target, work, *c[1:]) for c in CASES]
    for c, r in zip(CASES, ours):
        print(c[0], "mtc:", f"{r[0]:,.0f} tok/s, {r[1] / 2**30:.2f} GiB" if isinstance(r, tuple) else r, flush=True)
    sys.path.insert(0, HERE)
    for c, r in zip(CASES, ours):
        rate, memory = compiled(c[1], c[2], c[3])
        print(c[0], f"torch.compile: {rate:,.0f} tok/s, {memory / 2**30:.2f} GiB",
              f"-> mtc {r[0] / rate:.3f} x the speed, {r[1] / memory:.2f} x the memory" if isinstance(r, tuple) else "", flush=True)
    shutil.rmtree(work)


if __name__ == "__main__":
    main()
