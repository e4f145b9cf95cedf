#!/usr/bin/env python3
"""TinyLlama 1.1B, T = 2048, with its variables in three places: the same job on the GPU alone and with parts of it on the host.

usage: residency.py MTC [TARGET]     (default: h200; cpu takes a small model, to try the script)

Four steps of 65,536 tokens, micro-batches of 2 samples, 4 chunks of the loss and each layer rebuilt, so that all run the same
kernels. The budgets leave everything on the GPU; moments and master weights on the host; and most of the accumulators as well.
One more run stops after two steps and is resumed. Passes when all four have the same losses and norms and end in the same
variables, bit for bit, and memory is as planned.

Variables are compared by the XXH3-64 that the table of a checkpoint holds for each; of 15 GB on a disk one file is there at a time.
About two minutes, most of them to write five checkpoints.
"""
import json
import os
import shutil
import struct
import sys
import tempfile

from jobs import Verdicts, compile_all, on_budget, source, train

BIG = {"tokens": 65_536, "budgets": [("24G", None), ("8G", "40G"), ("6G", "40G")]}
SMALL = {"tokens": 1024, "budgets": [("64M", None), ("2200K", "8M"), ("1200K", "8M")]}


def variables(path):
    """What a checkpoint holds: {path of the variable: (dtype, shape, bytes, hash)}."""
    with open(path, "rb") as f:
        f.seek(-32, os.SEEK_END)
        offset, size, _, end = struct.unpack("<QQQ8s", f.read(32))
        assert end == b"MTCKEND1", path
        f.seek(offset)
        table = json.loads(f.read(size))
    return {v["path"]: tuple(str(v[k]) for k in v if k not in ("path", "offset")) for v in table["variables"]}


def main():
    mtc, target = os.path.abspath(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "h200"
    work, verdict = tempfile.mkdtemp(), Verdicts()
    job = SMALL if target == "cpu" else BIG
    text = source("tinyllama", work, target == "cpu")
    fixed = ["--target", target, "--set", f"train.batch=tokens({job['tokens']})", "--micro-batch", "2", "--chunks", "4",
             "--recompute", "full"]

    def flags(vram, host):
        return ["--vram", vram, *(["--host-ram", host] if host else [])]

    def results(i, name, cut):
        """Losses and norms of the steps, and the variables at the end; the folder is removed."""
        program, out = f"{work}/{i}.mtx", f"{work}/run"
        first = train(mtc, program, out, "--steps", "2" if cut else "4")
        run = train(mtc, program, out, "--steps", "4", "--resume") if cut else first
        state = variables(f"{out}/step-000004.mtck")
        shutil.rmtree(out)
        print(f"{name}: {run.seconds + cut * first.seconds:.0f} s, losses", *(f"{r['loss']:.6f}" for r in run.rows), flush=True)
        verdict.expect(on_budget(first), f"{first.measured:,} bytes of {first.planned:,} planned")
        return [(r["loss"], r["grad_norm"]) for r in run.rows], state

    try:
        failed = compile_all(mtc, {f"{work}/{i}.mtx": [text, *fixed, *flags(*b)] for i, b in enumerate(job["budgets"])})
        assert not failed, failed
        names = [(i, " ".join(flags(*b))) for i, b in enumerate(job["budgets"])]
        want, first = None, None
        for n, (i, name) in enumerate([*names, names[2]]):
            cut = n == len(names)
            steps, state = results(i, name + ", stopped and resumed" * cut, cut)
            if n == 0:
                want, first = steps, state
                verdict.expect(len(want) == 4 and want[0][0] > want[-1][0], f"{len(state)} variables; the loss falls")
                continue
            differ = sorted(n for n in first.keys() | state.keys() if first.get(n) != state.get(n))
            verdict.expect(steps == want, "the same losses and norms")
            verdict.expect(not differ, "the same variables" if not differ else
                           f"{len(differ)} of {len(first)} variables differ: {', '.join(differ[:4])}, ..")
    finally:
        shutil.rmtree(work)
    print("RESIDENCY OK" if not verdict.failed else "RESIDENCY FAILS")
    return verdict.failed != 0


if __name__ == "__main__":
    sys.exit(main())
