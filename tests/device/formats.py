#!/usr/bin/env python3
"""GPT-2 124M in the number formats of `precision`, on one GPU: the same weights, data and 300 steps of 8 x 512 tokens each.

usage: formats.py MTC [TARGET]     (default: h200; with the target cpu: a small model, to try the script)

Passes when
  the mean loss of the last 20 steps of each format is within 0.01 of that of f32,
  the factor on the loss grows and falls as `dynamic(..)` says, and a resumed run ends in the same checkpoint, bit for bit,
  a hidden value that overflows f16 ends the run with a checkpoint, and the operation and the value are named,
  NaN in the gradients of one step changes nothing but counters, in f32, bf16 and f16.
"""
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
MODELS = os.path.abspath(f"{HERE}/../../models")
LIMIT, LAST = 0.01, 20

GPT2 = f"""mt 1
use "{MODELS}/gpt2.mt" (GPT2)
model Run = GPT2(%(dims)s)
data bytes = text(train = "{MODELS}/data/tinyshakespeare.txt")
precision {{ %(precision)s }}
train {{
  data      = bytes.train
  dims {{ T = %(T)d  B = auto }}
  batch     = seqs(%(B)d)
  steps     = %(steps)d
  optimizer = adamw(lr = 3e-4, betas = (0.9, 0.95), eps = 1e-8, weight_decay = 0.1)
  schedule  = cosine(warmup = 20, final = 0.1)
  clip      = 1.0
  seed      = 1337
  group "*.b", "*.ln_*.w", "ln_f.w" {{ weight_decay = 0.0 }}
}}
"""

# A residual block: `gain` is in its hidden layer; byte 255 in a sample makes the gradients NaN.
BLOCK = f"""mt 1
use "{MODELS}/std/nn.mt" (Embedding, LayerNorm, Linear)
model Block(V = 256, D = 256, gain = %(gain)s) {{
  layer e    = Embedding(V, D, init = normal(0.3))
  layer ln   = LayerNorm(D)
  layer up   = Linear(D, 4 * D, init = normal(0.1))
  layer down = Linear(4 * D, D, init = normal(0.05))
  layer out  = LayerNorm(D)
  fn forward(tokens i32[B, T]) -> [B, T, V] {{
    x = e(tokens)
    poison = where(tokens == 255, 1e38, 1.0) as [B, T, 1]
    x = x + down(relu(up(ln(x)) * gain)) * (poison * poison)
    return out(x) @ e.w.T
  }}
  fn loss(tokens i32[B, T], targets i32[B, T]) -> f32 {{ return cross_entropy(forward(tokens), targets) }}
}}
data bytes = text(train = "%(text)s", shuffle = false)
precision {{ %(precision)s }}
train {{
  data      = bytes.train
  dims {{ T = 64  B = auto }}
  batch     = seqs(8)
  steps     = %(steps)d
  optimizer = adamw(lr = 1e-3)
  clip      = 1.0
  nonfinite_limit = 5
  checkpoint {{ every = 1  keep = 3 }}
}}
"""

CASES = [
    ("f32", "compute = f32"),
    ("tf32", "compute = tf32"),
    ("bf16", "compute = bf16"),
    ("f16, dynamic scaling", "compute = f16  loss_scale = dynamic(init = 65536, interval = 50)"),
    ("bf16, 8-bit moments", "compute = bf16  moments = i8"),
    ("bf16, bf16 moments and gradients", "compute = bf16  moments = bf16  accum = bf16"),
    ("bf16, split master", "compute = bf16  master = split"),
    ("bf16 without a master", "compute = bf16  master = bf16"),
]

mtc, target = os.path.abspath(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "h200"
small = target == "cpu"
work = tempfile.mkdtemp()
bad = []


def expect(ok, what):
    if not ok:
        bad.append(what)
    return "ok" if ok else "BAD"


def write(name, text):
    open(f"{work}/{name}", "w").write(text)
    return f"{work}/{name}"


def compile_model(name, text):
    source = write(f"{name}.mt", text)
    budget = ["--vram", "4G"] if small else []
    return subprocess.Popen([mtc, "compile", source, "--target", target, *budget, "-o", f"{work}/{name}.mtx"],
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def train(name, out, *flags):
    p = subprocess.run([mtc, "train", f"{work}/{name}.mtx", "-o", f"{work}/{out}", *flags], capture_output=True, text=True)
    rows = []
    if os.path.exists(f"{work}/{out}/metrics.jsonl"):
        rows = [json.loads(line) for line in open(f"{work}/{out}/metrics.jsonl")]
    return p, rows


def variables(path):
    """Hash of every variable of a checkpoint."""
    data = open(path, "rb").read()
    offset, size = struct.unpack("<QQ", data[-32:-16])
    table = json.loads(data[offset:offset + size])
    return {v["path"] if "path" in v else v["name"]: v for v in table["variables"]}


def bits(v):
    return {k: x for k, x in v.items() if k not in ("offset", "path", "name")}


def losses():
    sizes = dict(dims="V = 256, Tmax = 64, D = 64, H = 2, L = 2", T=64, B=4, steps=60) if small else \
        dict(dims="", T=512, B=8, steps=300)
    names = [f"case{i}" for i in range(len(CASES))]
    jobs = [compile_model(n, GPT2 % {**sizes, "precision": c[1]}) for n, c in zip(names, CASES)]
    exact = None
    for name, (title, _), job in zip(names, CASES, jobs):
        said = job.communicate()[0]
        if job.returncode:
            print(f"{title:34s} {expect(False, title)}: {said[-400:]}")
            continue
        begin = time.time()
        p, rows = train(name, name, "--no-checkpoint", "-q")
        if p.returncode or len(rows) != sizes["steps"]:
            print(f"{title:34s} {expect(False, title)}: exit {p.returncode}: {(p.stdout + p.stderr)[-400:]}")
            continue
        mean = sum(r["loss"] for r in rows[-LAST:]) / LAST
        exact = mean if exact is None else exact
        step = sorted(r["step_seconds"] for r in rows)[len(rows) // 2]
        skipped = sum(r["skipped"] for r in rows)
        verdict = expect(abs(mean - exact) < LIMIT and skipped <= 3, f"loss of {title}")
        print(f"{title:34s} loss {mean:.4f} ({mean - exact:+.4f})  {skipped} skipped  {1000 * step:7.2f} ms a step"
              f"  {time.time() - begin:5.1f} s  {verdict}", flush=True)
        if "loss_scale" in rows[0]:
            scale(rows, title, 50)


def scale(rows, title, interval):
    want, good, grown, fallen, ok = rows[0]["loss_scale"], 0, 0, 0, True
    for r in rows:
        ok = ok and r["loss_scale"] == want
        good = 0 if r["skipped"] else good + 1
        if r["skipped"]:
            want, fallen = max(want / 2, 1), fallen + 1
        if good == interval:
            want, good, grown = want * 2, 0, grown + 1
    print(f"{'':34s} factor on the loss {rows[0]['loss_scale']:.0f} -> {want:.0f}: doubled {grown} times, halved {fallen} times"
          f"  {expect(ok and (small or grown > 0), f'factor of {title}')}")


def text_with(name, poisoned, steps):
    n = steps * 8 * 64 + 1
    data = bytearray((i * 7 + i // 64 * 3) % 251 for i in range(n))
    if poisoned:
        data[(poisoned - 1) * 8 * 64 + 5] = 255
    open(f"{work}/{name}", "wb").write(data)
    return f"{work}/{name}"


def resumed():
    text = text_with("plain.txt", 0, 60)
    compute = "compute = f16  loss_scale = dynamic(init = 1e9, interval = 3)"
    job = compile_model("scaled", (BLOCK % dict(gain="1.0", text=text, precision=compute, steps=60)).replace("limit = 5", "limit = 40"))
    said = job.communicate()[0]
    p, rows = train("scaled", "whole", "-q")
    q, _ = train("scaled", "cut", "-q", "--steps", "31")
    r, _ = train("scaled", "cut", "-q", "--resume")
    ok = not (job.returncode or p.returncode or q.returncode or r.returncode)
    ok = ok and open(f"{work}/whole/step-000060.mtck", "rb").read() == open(f"{work}/cut/step-000060.mtck", "rb").read()
    print(f"{'resumed, f16 with a moving factor':34s} {expect(ok, 'resume')} {'' if ok else (said + p.stderr + r.stderr)[-400:]}")
    if ok:
        scale(rows, "block", 3)


def overflow():
    text = text_with("plain.txt", 0, 20)
    compile_model("over", BLOCK % dict(gain="1e5", text=text, precision="compute = f16  loss_scale = dynamic(init = 4)",
                                       steps=20)).communicate()
    p, rows = train("over", "over", "-q")
    said = p.stderr.strip()
    ok = p.returncode == 7 and "5 steps in a row" in said and "inf at [" in said and "of relu (f16" in said
    ok = ok and os.path.exists(f"{work}/over/step-000005.mtck") and len(rows) == 5
    print(f"{'planted overflow':34s} {expect(ok, 'overflow')}\n    " + said.replace("\n", "\n    "))


def planted_nan():
    text = text_with("nan.txt", 50, 51)
    for compute in ("f32", "bf16", "f16"):
        compile_model(f"nan_{compute}", BLOCK % dict(gain="1.0", text=text, precision=f"compute = {compute}",
                                                     steps=51)).communicate()
        p, rows = train(f"nan_{compute}", f"nan_{compute}", "-q")
        ok = p.returncode == 0 and [r["step"] for r in rows if r["skipped"]] == [50]
        changed = "?"
        if ok:
            a, b, c = (variables(f"{work}/nan_{compute}/step-{s:06d}.mtck") for s in (49, 50, 51))
            changed = [k for k in a if bits(a[k]) != bits(b[k])]
            ok = set(changed) <= {"opt.scale", "opt.good", "opt.skips"} and sum(bits(b[k]) != bits(c[k]) for k in b) > 5
        print(f"{'NaN at step 50, ' + compute:34s} changed {changed} {expect(ok, 'NaN in ' + compute)}"
              f" {'' if ok else p.stderr[-300:]}", flush=True)


begin = time.time()
for part in (planted_nan, overflow, resumed, losses):
    part()
shutil.rmtree(work)
print(f"{time.time() - begin:.0f} s; " + ("bad: " + ", ".join(bad) if bad else "all good"))
sys.exit(bool(bad))
