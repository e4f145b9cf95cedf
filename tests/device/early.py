#!/usr/bin/env python3
"""Updates inside the backward pass, without accumulators: GPT-2 350M beside its update of its own, and GPT-2 1.5B in 24 GiB.

usage: early.py MTC [TARGET]     (default: h200; cpu takes small models, to try the script)

Six steps of eight samples of GPT-2 350M with `nonfinite = skip`, whose update waits for all gradients, and with `stop` in the least
that it needs, where each parameter is updated right after its gradient. Passes when all losses are the same, bit for bit, norms
are within 1e-6, and memory is as planned and less. Then three steps of GPT-2 1.5B, one sample each, with fp32 master weights and
moments in 24 GiB, which accumulators alone would exceed. About three minutes.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile

from jobs import Verdicts, on_budget, source, train

XL = ["-D", "L=48", "-D", "D=1600", "-D", "H=25"]


def plan(mtc, job, *flags):
    """`mtc plan --json`, also of what does not fit."""
    p = subprocess.run([mtc, "plan", job, *flags, "--json"], capture_output=True, text=True)
    return json.loads(p.stdout)


def main():
    mtc, target = os.path.abspath(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "h200"
    small, work, verdict = target == "cpu", tempfile.mkdtemp(), Verdicts()
    base = ["--target", target, "--set", "train.clip=0"]

    def run(name, job, steps, *flags):
        r = train(mtc, job, f"{work}/{name}", *flags, "--steps", str(steps), "--no-checkpoint")
        print(f"{name}: {r.seconds:.0f} s, {r.median('tokens_per_second', 1):,.0f} tokens/s, losses",
              *(f"{x['loss']:.6f}" for x in r.rows), flush=True)
        verdict.expect(on_budget(r), f"{r.measured:,} bytes of {r.planned:,} planned")
        return r

    try:
        job = source("gpt2_350m", work, small)
        batch = [*base, "--set", "train.batch=seqs(8)", "--micro-batch", "8"]
        skip, stop = [*batch, "--set", "train.nonfinite=skip"], [*batch, "--set", "train.nonfinite=stop"]
        least = [str(plan(mtc, job, *x, "--vram", "1M")["floor_bytes"]) for x in (skip, stop)]
        told = plan(mtc, job, *stop, "--vram", least[1])
        verdict.expect(told["early_update"] and int(least[1]) < int(least[0]), f"floor {least[1]} bytes, {least[0]} with accumulators")
        late, early = run("late", job, 6, *skip, "--vram", "1G" if small else "24G"), run("early", job, 6, *stop, "--vram", least[1])
        verdict.expect([x["loss"] for x in late.rows] == [x["loss"] for x in early.rows], "the same losses")
        off = max(abs(x["grad_norm"] / y["grad_norm"] - 1) for x, y in zip(late.rows, early.rows))
        verdict.expect(off <= 1e-6, f"norms within {off:.1e}")

        job = source("gpt2_774m", work, small)
        large = [*base, *([] if small else XL), "--set", "train.batch=seqs(1)", "--set", "train.nonfinite=stop"]
        vram = str(plan(mtc, job, *large, "--vram", "1M")["floor_bytes"]) if small else "24G"
        told = plan(mtc, job, *large, "--vram", vram)
        verdict.expect(told["fits"] and told["early_update"], f"{told['params']:,} parameters inside {vram}, updated early")
        xl = run("xl", job, 3, *large, "--vram", vram)
        verdict.expect(small or xl.measured <= 24 << 30, "inside 24 GiB")
    finally:
        shutil.rmtree(work)
    print("EARLY OK" if not verdict.failed else "EARLY FAILS")
    return verdict.failed != 0


if __name__ == "__main__":
    sys.exit(main())
