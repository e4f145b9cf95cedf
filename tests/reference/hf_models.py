#!/usr/bin/env python3
"""Tiny random models of the families that models/*.mt knows, made and computed by Hugging Face's Transformers.

usage: hf_models.py record OUT [SEED]          (needs torch, transformers, safetensors)
       hf_models.py roundtrip BUILD WORK

For each family OUT/FAMILY holds the checkpoint as save_pretrained writes it (Llama 3 in shards with an index) and
expected.safetensors: tokens and targets [B, T], logits [B, T, V] and loss in fp32, grad.KEY of each parameter. Some targets are
-1 (ignored). tests/train/test_transformers.c compares; its copy in tests/reference/transformers was made by
`hf_models.py record tests/reference/transformers --fixture`, which leaves out the configurations.

roundtrip makes other weights in the folder WORK and has mtc of BUILD import, export in shards, train and export again. Transformers
must load each export without a key missing or left over: the first with the same logits bit for bit, the second with a next token
that is mtc's at every position of a text that `mtc sample` generates.
"""
import os
import subprocess
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


def mtc(build, *args):
    p = subprocess.run([os.path.join(build, "mtc"), *args], capture_output=True, text=True)
    if p.returncode:
        sys.exit(f"mtc {' '.join(args)} exited with {p.returncode}\n{p.stdout}{p.stderr}")
    return p.stdout


def load(folder, config):
    """The model of an export; every key of it and of the model must be used."""
    config.save_pretrained(folder)
    m, info = transformers.AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True, dtype=torch.float32,
                                                                attn_implementation="eager")
    left = {k: v for k, v in info.items() if v}
    if left:
        sys.exit(f"{folder} does not fit: {left}")
    return m.eval()


def greedy(m, tokens, n):
    with torch.no_grad():
        while len(tokens) < n:
            tokens = tokens + [int(m(torch.tensor([tokens]), use_cache=False).logits[0, -1].argmax())]
    return tokens


def round_trip(build, work, name, config, original):
    source = open(f"tests/train/models/hf_{name}.mt").read().replace("../../../models", os.path.abspath("models"))
    base = os.path.join(work, "out", name)
    os.makedirs(base)
    path = os.path.join(base, "model.mt")
    with open(path, "w") as f:
        f.write(source)
    torch.randint(0, V, (4096,), generator=torch.Generator().manual_seed(3)).to(torch.uint16).numpy().tofile(
        os.path.join(base, "tokens.bin"))
    mtc(build, "import", os.path.join(work, name), "--map", path, "-o", f"{base}/start.mtck")
    mtc(build, "export", f"{base}/start.mtck", "--map", path, "-o", f"{base}/same/", "--max-shard", str(SHARD))
    if not os.path.exists(f"{base}/same/model.safetensors.index.json"):
        sys.exit(f"{name}: the export is not in shards")
    x = torch.randint(0, V, (B, T), generator=torch.Generator().manual_seed(4))
    with torch.no_grad():
        same = torch.equal(load(f"{base}/same", config)(x, use_cache=False).logits, original(x, use_cache=False).logits)
    if not same:
        sys.exit(f"{name}: the export of what was imported has other logits")
    mtc(build, "train", path, "--device", "cpu", "--set", 'train.init="start.mtck"', "-o", f"{base}/run")
    mtc(build, "export", f"{base}/run", "-o", f"{base}/trained/")
    text = mtc(build, "sample", f"{base}/run", "--prompt", "1 2 3", "--tokens", str(T - 3), "--temperature", "0")
    trained = load(f"{base}/trained", config)
    if [int(t) for t in text.split()] != greedy(trained, [1, 2, 3], T):
        sys.exit(f"{name}: after training mtc says {text.strip()}, Transformers {greedy(trained, [1, 2, 3], T)}")
    print(f"{name}: imported, exported in shards, trained, exported: agrees")


def run_all(build, work):
    transformers.utils.logging.set_verbosity_error()
    for i, (name, config) in enumerate(configs().items()):
        m = record(work, name, config, 1000 + 10 * i)
        round_trip(build, work, name, config, m)
    subprocess.run([os.path.join(build, "tests/t_train_transformers"), work], check=True)


def main():
    if len(sys.argv) == 4 and sys.argv[1] == "roundtrip":
        run_all(sys.argv[2], sys.argv[3])
        return
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
