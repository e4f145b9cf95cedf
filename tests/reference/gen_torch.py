#!/usr/bin/env python3
"""Records what PyTorch computes for tiny GPT-2 and Llama models: loss, every gradient, weights after ten AdamW steps.

usage: gen_torch.py OUT_DIR        (needs torch and safetensors; run by hand, its output is committed)

Everything runs in float64 from float32 weights, so that a comparison measures the error of the other side alone.
The files hold, in safetensors form: init.KEY, grad.KEY (of step 0), after.KEY (weights after STEPS steps), tokens and
targets [STEPS, B, T], losses [STEPS]. KEYs are those of the `weights` maps of models/gpt2.mt and models/llama.mt.
Some targets are -1 (ignored), so that samples have unequal numbers of valid tokens.
"""
import math
import sys

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

STEPS, B, T, V, D, H, L = 10, 4, 16, 96, 32, 4, 2
KV, FF = 2, 80
ADAM = dict(lr=1e-2, betas=(0.9, 0.95), eps=1e-4)
DECAY = 0.1
CLIP = 1.0


def attention(q, k, v):
    """q [B,H,T,Dh], k and v [B,KV,T,Dh], causal."""
    k = k.repeat_interleave(q.shape[1] // k.shape[1], 1)
    v = v.repeat_interleave(q.shape[1] // v.shape[1], 1)
    s = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    s = s.masked_fill(torch.ones(T, T).triu(1).bool(), float("-inf"))
    return s.softmax(-1) @ v


def heads(x, n):
    return x.view(B, T, n, -1).transpose(1, 2)


def joined(x):
    return x.transpose(1, 2).reshape(B, T, -1)


def gpt2_init(g):
    def n(*shape, std=0.08):
        return torch.randn(*shape, generator=g) * std

    w = {"wte.weight": n(V, D), "wpe.weight": n(T, D, std=0.04)}
    for i in range(L):
        p = f"h.{i}."
        for ln in ("ln_1", "ln_2"):
            w[p + ln + ".weight"] = 1 + n(D)
            w[p + ln + ".bias"] = n(D)
        for name, a, b in (("attn.c_attn", D, 3 * D), ("attn.c_proj", D, D), ("mlp.c_fc", D, 4 * D),
                           ("mlp.c_proj", 4 * D, D)):
            w[p + name + ".weight"] = n(a, b)
            w[p + name + ".bias"] = n(b)
    w["ln_f.weight"], w["ln_f.bias"] = 1 + n(D), n(D)
    return w


def gpt2(w, tokens):
    def linear(x, p):
        return x @ w[p + ".weight"] + w[p + ".bias"]

    def norm(x, p):
        return F.layer_norm(x, (D,), w[p + ".weight"], w[p + ".bias"], 1e-5)

    x = w["wte.weight"][tokens] + w["wpe.weight"]
    for i in range(L):
        p = f"h.{i}."
        q, k, v = linear(norm(x, p + "ln_1"), p + "attn.c_attn").split(D, -1)
        x = x + linear(joined(attention(heads(q, H), heads(k, H), heads(v, H))), p + "attn.c_proj")
        h = F.gelu(linear(norm(x, p + "ln_2"), p + "mlp.c_fc"), approximate="tanh")
        x = x + linear(h, p + "mlp.c_proj")
    return norm(x, "ln_f") @ w["wte.weight"].T


def llama_init(g):
    def n(*shape, std=0.08):
        return torch.randn(*shape, generator=g) * std

    w = {"model.embed_tokens.weight": n(V, D)}
    for i in range(L):
        p = f"model.layers.{i}."
        w[p + "input_layernorm.weight"] = 1 + n(D)
        w[p + "post_attention_layernorm.weight"] = 1 + n(D)
        for name, a, b in (("self_attn.q_proj", D, D), ("self_attn.k_proj", KV * D // H, D),
                           ("self_attn.v_proj", KV * D // H, D), ("self_attn.o_proj", D, D),
                           ("mlp.gate_proj", FF, D), ("mlp.up_proj", FF, D), ("mlp.down_proj", D, FF)):
            shape = (D, D) if name.endswith(("q_proj", "o_proj")) else (a, b)
            w[p + name + ".weight"] = n(*shape)
    w["model.norm.weight"] = 1 + n(D)
    w["lm_head.weight"] = n(V, D)
    return w


def rope(x, theta=10_000.0):
    dh = x.shape[-1]
    angle = torch.arange(T, dtype=x.dtype)[:, None] * theta ** (-torch.arange(0, dh, 2, dtype=x.dtype) / dh)
    c, s = angle.cos(), angle.sin()
    a, b = x.chunk(2, -1)
    return torch.cat((a * c - b * s, b * c + a * s), -1)


def llama(w, tokens):
    def norm(x, p):
        return x * (x.pow(2).mean(-1, keepdim=True) + 1e-5).rsqrt() * w[p + ".weight"]

    x = w["model.embed_tokens.weight"][tokens]
    for i in range(L):
        p = f"model.layers.{i}."
        y = norm(x, p + "input_layernorm")
        q, k, v = (heads(y @ w[f"{p}self_attn.{n}_proj.weight"].T, c) for n, c in (("q", H), ("k", KV), ("v", KV)))
        x = x + joined(attention(rope(q), rope(k), v)) @ w[p + "self_attn.o_proj.weight"].T
        y = norm(x, p + "post_attention_layernorm")
        h = F.silu(y @ w[p + "mlp.gate_proj.weight"].T) * (y @ w[p + "mlp.up_proj.weight"].T)
        x = x + h @ w[p + "mlp.down_proj.weight"].T
    return norm(x, "model.norm") @ w["lm_head.weight"].T


def decays(key):
    return not (key.endswith(".bias") or "ln_" in key or "norm" in key)


def record(path, init, forward):
    g = torch.Generator().manual_seed(20)
    start = {k: v.float() for k, v in init(g).items()}
    w = {k: v.double().requires_grad_() for k, v in start.items()}
    tokens = torch.randint(0, V, (STEPS, B, T), generator=g)
    targets = torch.randint(0, V, (STEPS, B, T), generator=g)
    targets[:, 0, 5:] = -1
    targets[:, 2, 14:] = -1
    optimizer = torch.optim.AdamW([
        {"params": [v for k, v in w.items() if decays(k)], "weight_decay": DECAY},
        {"params": [v for k, v in w.items() if not decays(k)], "weight_decay": 0.0}], **ADAM)
    out, losses = {f"init.{k}": v for k, v in start.items()}, []
    for step in range(STEPS):
        loss = F.cross_entropy(forward(w, tokens[step]).view(-1, V), targets[step].view(-1), ignore_index=-1)
        optimizer.zero_grad()
        loss.backward()
        losses.append(loss.item())
        if step == 0:
            out.update({f"grad.{k}": v.grad.float().clone() for k, v in w.items()})
        torch.nn.utils.clip_grad_norm_(list(w.values()), CLIP)
        optimizer.step()
    out.update({f"after.{k}": v.detach().float() for k, v in w.items()})
    out["tokens"], out["targets"] = tokens.int(), targets.int()
    out["losses"] = torch.tensor(losses, dtype=torch.float32)
    save_file({k: v.contiguous() for k, v in out.items()}, path)
    print(path, losses[0], losses[-1])


if __name__ == "__main__":
    torch.set_default_dtype(torch.float32)
    record(f"{sys.argv[1]}/gpt2_tiny.safetensors", gpt2_init, gpt2)
    record(f"{sys.argv[1]}/llama_tiny.safetensors", llama_init, llama)
