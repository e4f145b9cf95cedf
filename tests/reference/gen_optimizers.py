#!/usr/bin/env python3
"""Records what PyTorch's optimizers make of four parameters in ten steps of given gradients.

usage: gen_optimizers.py OUT_DIR     (needs torch >= 2.9 and safetensors; run by hand, its output is committed)

Everything runs in float64 from float32 numbers, so that a comparison measures the error of the other side alone; Muon's
Newton-Schulz steps, which PyTorch rounds to bfloat16, as well. Lion is not part of PyTorch: it is written here after
the listing in the paper (Chen et al., 2023).
The file holds init.NAME, grad.NAME [STEPS, ...], lr [STEPS] (as a share of the optimizer's), and after.CASE.NAME.
Parameters: `w` and `tall` are hidden matrices, `e` an embedding, `b` a vector.
"""
import sys

import torch
from safetensors.torch import save_file
from torch.optim import _muon

STEPS = 10
SHAPES = {"w": (8, 12), "tall": (20, 6), "e": (10, 6), "b": (5,)}
HIDDEN = ("w", "tall")


class Lion(torch.optim.Optimizer):
    def __init__(self, params, lr, betas, weight_decay):
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_((m * b1 + p.grad * (1 - b1)).sign(), alpha=-group["lr"])
                m.mul_(b2).add_(p.grad, alpha=1 - b2)


def newton_schulz(grad, ns_coefficients, ns_steps, eps):
    """torch.optim._muon's, without the rounding to bfloat16."""
    a, b, c = ns_coefficients
    x = grad.T if grad.size(0) > grad.size(1) else grad
    x = x / x.norm().clamp(min=eps)
    for _ in range(ns_steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.T if grad.size(0) > grad.size(1) else x


_muon._zeropower_via_newtonschulz = newton_schulz


def muon(p, lr, betas, eps, **rest):
    hidden = [p[n] for n in HIDDEN]
    others = [p[n] for n in p if n not in HIDDEN]
    adam = torch.optim.AdamW(others, lr=lr, betas=betas, eps=eps, weight_decay=rest["weight_decay"])
    return [torch.optim.Muon(hidden, lr=lr, **rest), adam]


OPT = torch.optim
CASES = {
    "sgd": lambda p: [OPT.SGD(p.values(), lr=0.05)],
    "momentum": lambda p: [OPT.SGD(p.values(), lr=0.05, momentum=0.9, weight_decay=0.01)],
    "nesterov": lambda p: [OPT.SGD(p.values(), lr=0.05, momentum=0.9, weight_decay=0.01, nesterov=True)],
    "adam": lambda p: [OPT.Adam(p.values(), lr=0.01, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.01)],
    "adamw": lambda p: [OPT.AdamW(p.values(), lr=0.01, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.1)],
    "lion": lambda p: [Lion(p.values(), lr=0.01, betas=(0.9, 0.99), weight_decay=0.1)],
    "adafactor": lambda p: [OPT.Adafactor(p.values(), lr=0.3, weight_decay=0.05, eps=(2.0**-23, 1e-3))],
    "muon": lambda p: muon(p, 0.02, (0.9, 0.95), 1e-8, weight_decay=0.1, momentum=0.95),
    "muon_rms": lambda p: muon(
        p, 0.01, (0.9, 0.95), 1e-8, weight_decay=0.0, momentum=0.9, nesterov=False, adjust_lr_fn="match_rms_adamw"
    ),
}


def main(folder):
    g = torch.Generator().manual_seed(5)
    init = {n: torch.randn(*s, generator=g) * 0.3 for n, s in SHAPES.items()}
    grad = {n: torch.randn(STEPS, *s, generator=g) * 0.1 for n, s in SHAPES.items()}
    share = torch.tensor([1 - 0.05 * t for t in range(STEPS)])
    out = {"lr": share}
    for n in SHAPES:
        out["init." + n], out["grad." + n] = init[n], grad[n]
    for case, make in CASES.items():
        p = {n: torch.nn.Parameter(x.double().clone()) for n, x in init.items()}
        optimizers = make(p)
        rates = [[group["lr"] for group in o.param_groups] for o in optimizers]
        for t in range(STEPS):
            for n in SHAPES:
                p[n].grad = grad[n][t].double()
            for o, lr in zip(optimizers, rates):
                for group, rate in zip(o.param_groups, lr):
                    group["lr"] = rate * share[t].item()
                o.step()
        for n in SHAPES:
            out[f"after.{case}.{n}"] = p[n].detach().float().contiguous()
    save_file(out, f"{folder}/optimizers.safetensors")


main(sys.argv[1])
