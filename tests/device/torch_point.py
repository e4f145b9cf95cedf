#!/usr/bin/env python3
"""One training setting of PyTorch: its speed and the memory that the GPU has in use, as a row of frontier_torch.jsonl.

usage: torch_point.py MODEL MB [--budget X] [--ckpt] [--eager] [--cap GIB]      (needs torch; TinyLlama: transformers)

MODEL is gpt2_350m, gpt2_774m or tinyllama (gpt2_tiny, llama_tiny: to try the script on a CPU); MB samples of 1024 or 2048
tokens are a step. bf16 autocast over fp32 weights, fused AdamW, clipping. --budget: `activation_memory_budget` of torch.compile;
--ckpt: every layer is checkpointed; --cap: memory that PyTorch may take.
"""
import argparse
import json
import statistics
import time

import torch
import torch._functorch.config as functorch
from torch.utils.checkpoint import checkpoint

GPT2 = {"gpt2_350m": (24, 16, 1024), "gpt2_774m": (36, 20, 1280), "gpt2_tiny": (2, 2, 64)}
LLAMA = {"tinyllama": (22, 2048, 5632, 32, 4), "llama_tiny": (2, 64, 128, 4, 2)}  # layers, width, hidden, heads, of keys
WARM, STEPS = 3, 8


class Checkpointed(torch.nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return checkpoint(self.layer, x, use_reentrant=False)


class Loss(torch.nn.Module):
    """A model of Transformers as GPT2 of gpt2_parity.py: (tokens, targets) to the loss. Targets are shifted there."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x, y):
        return self.model(input_ids=x, labels=y, use_cache=False).loss


def build(name, ckpt):
    """A model, its length and its vocabulary; GPT-2's is 50304, which suits PyTorch better than 50257."""
    if name in GPT2:
        import gpt2_parity as ref
        ref.V, (ref.L, ref.H, ref.D) = 50304, GPT2[name]
        m = ref.model()
        if ckpt:
            m.h = torch.nn.ModuleList(Checkpointed(b) for b in m.h)
        return m, 1024, 50304
    from transformers import LlamaConfig, LlamaForCausalLM
    layers, width, hidden, heads, kv = LLAMA[name]
    m = LlamaForCausalLM(LlamaConfig(vocab_size=32000, hidden_size=width, intermediate_size=hidden, num_hidden_layers=layers,
                                     num_attention_heads=heads, num_key_value_heads=kv, max_position_embeddings=2048,
                                     attn_implementation="sdpa"))
    if ckpt:
        m.gradient_checkpointing_enable()
    return Loss(m).train(), 2048, 32000


def main():
    p = argparse.ArgumentParser(usage=__doc__)
    p.add_argument("model", choices=[*GPT2, *LLAMA])
    p.add_argument("mb", type=int)
    p.add_argument("--budget", type=float, default=1.0)
    p.add_argument("--cap", type=float)
    p.add_argument("--ckpt", action="store_true")
    p.add_argument("--eager", action="store_true")
    a = p.parse_args()
    gpu = torch.cuda.is_available()
    where = "cuda" if gpu else "cpu"
    if a.cap:
        torch.cuda.set_per_process_memory_fraction(a.cap * 2**30 / torch.cuda.mem_get_info()[1])
    functorch.activation_memory_budget = a.budget
    torch.backends.cuda.matmul.allow_tf32 = True
    m, length, vocabulary = build(a.model, a.ckpt)
    m = m.to(where)
    opt = torch.optim.AdamW(m.parameters(), lr=1e-4, fused=True)
    run = m if a.eager else torch.compile(m)
    x = torch.randint(0, vocabulary, (a.mb, length), device=where)
    times = []
    for _ in range(WARM + STEPS):
        begin = time.time()
        opt.zero_grad(set_to_none=True)
        with torch.autocast(where, torch.bfloat16):
            loss = run(x, x)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        opt.step()
        if gpu:
            torch.cuda.synchronize()
        times.append(time.time() - begin)
    free, total = torch.cuda.mem_get_info() if gpu else (0, 0)
    print(json.dumps({"model": a.model, "mb": a.mb, "budget": a.budget, "ckpt": a.ckpt, "compile": not a.eager,
                      "tok_s": round(a.mb * length / statistics.median(times[WARM:])), "used_gib": round((total - free) / 2**30, 3)}))


if __name__ == "__main__":
    main()
