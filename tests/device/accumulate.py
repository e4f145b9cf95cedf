#!/usr/bin/env python3
"""Steps of 524,288 tokens inside 24 GiB, with master weights, moments and accumulation in fp32, parts of them on the host if need be.

usage: accumulate.py MTC [TARGET [MODEL..]]      (default: h200, all models; cpu takes small ones, to try the script)

Calibrates with `mtc bench`, which also finds the algorithms of the matrix products, then trains three steps of each model. Fails
when the last two are slower than the bar, or memory is above 24 GiB or more than 1 % off the plan. About a minute a model.
"""
import os
import shutil
import sys
import tempfile

from jobs import Verdicts, bench, on_budget, source, train

BARS = {"qwen25_15b": (54_000, ["--host-ram", "24G"]), "tinyllama": (55_000, [])}


def main():
    mtc, target = os.path.abspath(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "h200"
    small, work, verdict = target == "cpu", tempfile.mkdtemp(), Verdicts()
    try:
        for name in sys.argv[3:] or BARS:
            bar, host = BARS[name]
            job = source(name, work, small)
            budget = ["--vram", "64M", *host, "--set", "train.batch=seqs(8)"] if small else ["--vram", "24G", *host]
            measured = f"{work}/{name}.json"
            bench(mtc, measured, job, "--target", target, *budget)
            run = train(mtc, job, f"{work}/{name}", "--target", measured, *budget, "--steps", "3", "--no-checkpoint")
            rate = run.median("tokens_per_second", 1)
            print(f"{name}: {run.seconds:.0f} s, micro-batch {run.micro_batch()}, losses", *(f"{r['loss']:.4f}" for r in run.rows))
            verdict.expect(on_budget(run) and run.measured <= 24 << 30, f"{run.measured:,} bytes of {run.planned:,} planned")
            verdict.expect(small or rate >= bar, f"{rate:,.0f} tokens/s of {bar:,}")
    finally:
        shutil.rmtree(work)
    return verdict.failed != 0


if __name__ == "__main__":
    sys.exit(main())
