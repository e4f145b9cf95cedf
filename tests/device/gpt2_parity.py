#!/usr/bin/env python3
"""GPT-2 124M from the same weights and tokens in PyTorch and in mtc, on one GPU.

usage: gpt2_parity.py MTC [STEPS]        (needs torch and safetensors)

Passes when, from step 50 on, mtc's loss is at most twice as far from PyTorch eager (bf16 autocast) as PyTorch compiled is;
two runs of mtc and a resumed run end in the same checkpoint, bit for bit; runs without and with full recompute have the same
losses and end in the same fp32 weights, bit for bit (their checkpoints name their plans, which differ).
"""
import json
import os
import shutil
import subprocess
import sys
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from safetensors.torch import save_file

HERE = os.path.dirname(os.path.abspath(__file__))
B, T, V, D, H, L = 8, 512, 50257, 768, 12, 12
LR, WARMUP, DECAY, CLIP = 6e-4, 20, 0.1, 1.0


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(D), nn.LayerNorm(D)
        self.c_attn, self.c_proj = nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.c_fc, self.m_proj = nn.Linear(D, 4 * D), nn.Linear(4 * D, D)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = (y.view(b, t, H, D // H).transpose(1, 2) for y in self.c_attn(self.ln_1(x)).split(D, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(y.transpose(1, 2).reshape(b, t, D))
        return x + self.m_proj(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class GPT2(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(V, D), nn.Embedding(1024, D)
        self.h = nn.ModuleList(Block() for _ in range(L))
        self.ln_f = nn.LayerNorm(D)

    def forward(self, x, y):
        z = self.wte(x) + self.wpe(torch.arange(x.shape[1], device=x.device))
        for b in self.h:
            z = b(z)
        logits = F.linear(self.ln_f(z), self.wte.weight)
        return F.cross_entropy(logits.view(-1, V).float(), y.view(-1))


def model():
    torch.manual_seed(7)
    m = GPT2()
    for n, p in m.named_parameters():
        if n.endswith("bias"):
            nn.init.zeros_(p)
        elif p.dim() == 2:
            std = 0.01 if n.startswith("wpe") else 0.02 / (2 * L) ** 0.5 if "_proj" in n else 0.02
            nn.init.normal_(p, std=std)
    return m


def hf_state(m):
    """Names and layouts of the `weights` map of models/gpt2.mt (Conv1D: [in, out])."""
    names = {"c_attn": "attn.c_attn", "c_proj": "attn.c_proj", "c_fc": "mlp.c_fc", "m_proj": "mlp.c_proj"}
    out = {}
    for n, p in m.state_dict().items():
        parts = n.split(".")
        if parts[0] == "h" and parts[2] in names:
            n = ".".join(parts[:2] + [names[parts[2]], parts[3]])
            p = p.T if parts[3] == "weight" else p
        out[n] = p.detach().float().contiguous().cpu()
    return out


def train_torch(tokens, steps, compiled):
    m = model().cuda()
    decay = [p for n, p in m.named_parameters() if p.dim() == 2]
    rest = [p for n, p in m.named_parameters() if p.dim() != 2]
    opt = torch.optim.AdamW([{"params": decay, "weight_decay": DECAY}, {"params": rest, "weight_decay": 0.0}], lr=LR,
                            betas=(0.9, 0.95), eps=1e-8, fused=True)
    run = torch.compile(m) if compiled else m
    losses = []
    for s in range(steps):
        x = torch.stack([tokens[(s * B + i) * T:(s * B + i) * T + T] for i in range(B)])
        y = torch.stack([tokens[(s * B + i) * T + 1:(s * B + i) * T + T + 1] for i in range(B)])
        for g in opt.param_groups:
            g["lr"] = LR * min(1, (s + 1) / WARMUP)
        with torch.autocast("cuda", torch.bfloat16):
            loss = run(x, y)
        loss.backward()
        nn.utils.clip_grad_norm_(m.parameters(), CLIP)
        opt.step()
        opt.zero_grad(set_to_none=True)
        losses.append(loss.detach())
    return torch.stack(losses).cpu().numpy()


def mtc(binary, out, *flags):
    run = os.path.join("/tmp", out)
    if "--resume" not in flags:
        shutil.rmtree(run, ignore_errors=True)
    t = time.time()
    p = subprocess.run([binary, "train", os.path.join(HERE, "gpt2_parity.mt"), "-o", run, *flags], capture_output=True, text=True)
    if p.returncode:
        print(p.stdout[-3000:], p.stderr[-6000:])
        raise SystemExit(f"mtc train {flags} exited with {p.returncode}")
    print(f"mtc {' '.join(flags)}: {time.time() - t:.1f} s;", next((l for l in (p.stdout + p.stderr).splitlines() if "planned" in l), ""))
    return [json.loads(l) for l in open(os.path.join(run, "metrics.jsonl"))], run


def checkpoint(run):
    names = sorted(n for n in os.listdir(run) if n.endswith(".mtck"))
    return open(os.path.join(run, names[-1]), "rb").read()


def exported(binary, run):
    """The weights in fp32, as safetensors."""
    out = f"{run}.safetensors"
    subprocess.run([binary, "export", run, "-o", out, "--force", "-q"], check=True)
    return open(out, "rb").read()


def main():
    binary, steps = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 200
    text = np.frombuffer(open(os.path.join(HERE, "../../models/data/tinyshakespeare.txt"), "rb").read(), dtype=np.uint8)
    text.astype(np.uint16).tofile(os.path.join(HERE, "parity_tokens.bin"))
    save_file(hf_state(model()), os.path.join(HERE, "parity_init.safetensors"))
    flags = ["--steps", str(steps)]
    first, run = mtc(binary, "parity_a", *flags)
    second, run2 = mtc(binary, "parity_b", *flags)
    mtc(binary, "parity_c", "--steps", str(steps // 2))
    _, run3 = mtc(binary, "parity_c", "--resume", *flags)
    micro = ["--micro-batch", "4", "--chunks", "1"]
    _, run4 = mtc(binary, "parity_d", *flags, *micro, "--recompute", "none")
    _, run5 = mtc(binary, "parity_e", *flags, *micro, "--recompute", "full")
    same = {"two runs": checkpoint(run) == checkpoint(run2), "resume": checkpoint(run) == checkpoint(run3),
            "recompute": losses_of(run4) == losses_of(run5) and exported(binary, run4) == exported(binary, run5)}
    ours = np.array([m["loss"] for m in first if "loss" in m][:steps])
    tokens = torch.from_numpy(text.astype(np.int64)).cuda()  # from here on PyTorch takes memory of the GPU as well
    eager = train_torch(tokens, steps, False)
    compiled = train_torch(tokens, steps, True)
    a, b = np.abs(ours - eager)[50:], np.abs(compiled - eager)[50:]
    for s in (0, 1, 10, 49, 99, 149, steps - 1):
        if s < steps:
            print(f"step {s + 1:4d}  mtc {ours[s]:.5f}  eager {eager[s]:.5f}  compiled {compiled[s]:.5f}")
    print(f"distance to eager from step 50: mtc mean {a.mean():.5f} max {a.max():.5f}; compiled mean {b.mean():.5f} max {b.max():.5f}")
    print("bitwise equal:", same)
    ok = all(same.values()) and a.mean() <= 2 * b.mean()
    print("PARITY OK" if ok else "PARITY FAILS")
    raise SystemExit(0 if ok else 1)


def losses_of(run):
    return [json.loads(l).get("loss") for l in open(os.path.join(run, "metrics.jsonl"))]


if __name__ == "__main__":
    main()
