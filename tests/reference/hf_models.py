#!/usr/bin/env python3
"""Tiny random models of the families that models/*.mt knows, made and computed by Hugging Face's Transformers.

usage: hf_models.py record OUT [SEED]          (needs torch, transformers, safetensors)

For each family OUT/FAMILY holds the checkpoint as save_pretrained writes it (Llama 3 in shards with an index) and
expected.safetensors: tokens and targets [B, T], logits [B, T, V] and loss in fp32, grad.KEY of each parameter. Some targets are
-1 (ignored). tests/train/test_transformers.c compares; its copy in tests/reference/transformers was made by
`hf_models.py record tests/reference/transformers --fixture`, which leaves out the configurations.
"""
import os
import sys

import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import save_file

B, T, V, D, H, L = 2, 16, 32, 16, 4, 2
SHARD = 6_000
COMMON = dict(vocab_size=V, hidden_size=D, num_attention_heads=H, num_hidden_layers=L, intermediate_size=24,
              max_position_embeddings=64)
ROPE3 = dict(rope_type="llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0,
             original_max_position_embeddings=32, rope_theta=10.0)


def configs():
    llama, qwen, gpt2 = transformers.LlamaConfig, transformers.Qwen2Config, transformers.GPT2Config
    old = dict(rope_type="default", rope_theta=10_000.0)
    new = dict(rope_type="default", rope_theta=1_000_000.0)
    return {
        "llama2": llama(**COMMON, num_key_value_heads=4, rms_norm_eps=1e-5, rope_parameters=old),
        "llama3": llama(**COMMON, num_key_value_heads=2, head_dim=8, rms_norm_eps=1e-5, rope_parameters=ROPE3,
                        tie_word_embeddings=True),
        "qwen2": qwen(**COMMON, num_key_value_heads=2, rms_norm_eps=1e-6, rope_parameters=new,
                      tie_word_embeddings=True),
        "qwen2_untied": qwen(**COMMON, num_key_value_heads=1, rms_norm_eps=1e-6, rope_parameters=new,
                             tie_word_embeddings=False),
        "gpt2": gpt2(vocab_size=V, n_positions=T, n_embd=D, n_layer=L, n_head=H, resid_pdrop=0, embd_pdrop=0,
                     attn_pdrop=0),
    }


def make(config, seed):
    """Weights large enough that every part of the model matters, norms and biases not at their neutral values."""
    torch.manual_seed(seed)
    config._attn_implementation = "eager"
    m = transformers.AutoModelForCausalLM.from_config(config).float().eval()
    with torch.no_grad():
        for p in m.parameters():
            p.copy_(torch.randn_like(p) * 0.15 + (1.0 if p.dim() == 1 and p.mean() > 0.5 else 0.0))
    return m


def keys(m):
    """Parameters under the keys of the file: published GPT-2 files hold the body alone."""
    return {k.removeprefix("transformer."): p for k, p in m.named_parameters()}


def record(folder, name, config, seed):
    m = make(config, seed)
    out = os.path.join(folder, name)
    body = m.transformer if name == "gpt2" else m
    body.save_pretrained(out, max_shard_size=SHARD if name == "llama3" else "5GB")
    g = torch.Generator().manual_seed(seed + 1)
    tokens = torch.randint(0, V, (B, T), generator=g)
    targets = torch.randint(0, V, (B, T), generator=g)
    targets[1, 11:] = -1
    logits = m(tokens, use_cache=False).logits
    loss = F.cross_entropy(logits.view(-1, V), targets.view(-1), ignore_index=-1)
    loss.backward()
    expected = {f"grad.{k}": p.grad for k, p in keys(m).items()}
    expected.update(tokens=tokens.int(), targets=targets.int(), logits=logits.detach(), loss=loss.detach().view(1))
    save_file({k: v.contiguous() for k, v in expected.items()}, os.path.join(out, "expected.safetensors"))
    return m


def main():
    fixture = "--fixture" in sys.argv
    args = [a for a in sys.argv[1:] if a != "--fixture"]
    if len(args) < 2 or args[0] != "record":
        sys.exit(__doc__)
    for i, (name, config) in enumerate(configs().items()):
        record(args[1], name, config, (int(args[2]) if len(args) > 2 else 100) + 10 * i)
        for extra in ("config.json", "generation_config.json") if fixture else ():
            path = os.path.join(args[1], name, extra)
            if os.path.exists(path):
                os.remove(path)


if __name__ == "__main__":
    main()
