"""Runs of mtc for the scripts of this folder: what they logged, measured and left."""
import json
import os
import re
import subprocess
import time

HERE = os.path.dirname(os.path.abspath(__file__))
MODELS = os.path.abspath(f"{HERE}/../../models")
SMALL = {"Llama": "V = 256, D = 64, H = 4, KV = 2, L = 4, F = 128", "Qwen2": "V = 256, D = 64, H = 4, KV = 2, L = 4, F = 128",
         "GPT2": "V = 256, D = 64, H = 4, L = 4"}


class Failed(Exception):
    pass


class Run:
    """A finished run: `rows` of metrics.jsonl, bytes `planned` and `measured` (None where a device measures none), `seconds`."""

    def __init__(self, out, log, seconds):
        self.out, self.log, self.seconds = out, log, seconds
        self.rows = [json.loads(line) for line in open(f"{out}/metrics.jsonl")]
        found = re.search(r"memory planned ([\d,]+) bytes.*?: ([\d,]+) bytes", log)
        self.planned, self.measured = (int(x.replace(",", "")) for x in found.groups()) if found else (None, None)

    def median(self, key, skip):
        """Of the steps behind the first `skip`."""
        values = sorted(r[key] for r in self.rows[skip:])
        return (values[(len(values) - 1) // 2] + values[len(values) // 2]) / 2

    def micro_batch(self):
        """Samples in one micro-batch, after the first line of the log: plan HASH FILE TARGET B x T x ACCUMULATION."""
        return int(re.search(r"^plan .* ([\d,]+) x [\d,]+ x [\d,]+ ", self.log, re.M).group(1).replace(",", ""))


def source(name, folder, small):
    """The job NAME.mt of this folder; `small`: a copy in `folder` with small dimensions, to try a script on a CPU."""
    path = f"{HERE}/{name}.mt"
    if not small:
        return path
    text = open(path).read().replace("../../models", MODELS)
    text = re.sub(r"^(model .* = (\w+))\(.*\)", lambda m: f"{m[1]}({SMALL[m[2]]})", text, flags=re.M)
    text = re.sub(r"T = \d+  B", "T = 32  B", text)
    with open(f"{folder}/{name}.mt", "w") as f:
        f.write(text)
    return f.name


def train(mtc, source, out, *flags):
    """Trains into the folder `out`; Failed with the end of the log when mtc does not exit with 0."""
    begin = time.time()
    p = subprocess.run([mtc, "train", source, "-o", out, *flags], capture_output=True, text=True)
    log = p.stdout + p.stderr
    if p.returncode:
        raise Failed(f"mtc train {' '.join(flags)}: exit {p.returncode}\n" + "\n".join(log.splitlines()[-6:]))
    return Run(out, log, time.time() - begin)


def bench(mtc, out, source, *flags):
    """Calibrates a target: writes the file `out` and the algorithms of matrix products. Failed as `train` is."""
    p = subprocess.run([mtc, "bench", source, *flags, "--runs", "4", "-o", out], capture_output=True, text=True)
    if p.returncode:
        raise Failed(f"mtc bench {' '.join(flags)}: exit {p.returncode}\n" + "\n".join((p.stdout + p.stderr).splitlines()[-6:]))


def compile_all(mtc, programs):
    """Compiles side by side: {out.mtx: [source, flags..]}. Returns {out.mtx: the end of its log} of those that failed."""
    begun = {out: subprocess.Popen([mtc, "compile", *args, "-o", out], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
             for out, args in programs.items()}
    logs = {out: p.communicate()[0] for out, p in begun.items()}
    return {out: "\n".join(log.splitlines()[:3]) for out, log in logs.items() if begun[out].returncode}


def on_budget(run):
    """Measured memory is at most what was planned, and at least 99 % of it."""
    return run.measured is None or -0.01 <= run.measured / run.planned - 1 <= 0


class Verdicts:
    """Prints what holds and what does not; `failed` counts the latter."""

    def __init__(self):
        self.failed = 0

    def expect(self, holds, what):
        print("ok " if holds else "BAD", what, flush=True)
        self.failed += not holds
