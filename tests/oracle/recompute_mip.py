#!/usr/bin/env python3
"""Optimal recompute by mixed integer programming: Checkmate's formulation, solved with HiGHS through SciPy.

usage: recompute_mip.py PROBLEM.jsonl BUDGET_BYTES [SECONDS]
prints {"status", "added_ns", "bound_ns"}: optimal (0), time limit (1) or infeasible (2).

A stage is a backward op. In every stage any forward ops may run again, in original order, before the backward op runs; S[t, v]
says that value v is there when stage t begins, R[t, k] that op k runs again in it. Bytes are constrained at every event: each op
that runs again, and the backward op. Optimal among the schedules that run the forward pass once, then the backward ops in
order, and run only forward ops again. Exits with 77 when SciPy is not installed.
"""
import json
import sys

try:
    import numpy as np
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import coo_matrix
except ImportError:
    sys.exit(77)

MIB = 1048576.0


class Problem:
    def __init__(self, path):
        self.ops = [json.loads(line) for line in open(path) if line.strip()]
        self.bytes, self.maker, self.readers = {}, {}, {}
        for k, o in enumerate(self.ops):
            for out in o["out"]:
                self.bytes[out["id"]] = out["bytes"] / MIB
                self.maker[out["id"]] = k
            for v in set(o["in"]):
                if v in self.maker:
                    self.readers.setdefault(v, []).append(k)
        self.first_bwd = next(k for k, o in enumerate(self.ops) if o.get("bwd"))
        # output that an op makes in place, and the input that is gone afterwards
        self.alias = {k: (int(a), b) for k, o in enumerate(self.ops) for a, b in o.get("alias", {}).items()}
        self.consumed = {b for _, b in self.alias.values()}
        self.forward_values = [v for v in self.maker if self.maker[v] < self.first_bwd]
        last = {v: max(self.readers.get(v, []) + [self.maker[v]]) for v in self.maker}
        # bytes of backward values while a backward op runs, and just before it
        self.during, self.before = {}, {}
        backward = [v for v in self.maker if self.maker[v] >= self.first_bwd]
        for k in range(self.first_bwd, len(self.ops)):
            live = [v for v in backward if self.maker[v] <= k <= last[v]]
            if k in self.alias:
                live = [v for v in live if v != self.alias[k][1]]
            self.during[k] = self.ops[k].get("ws", 0) / MIB + sum(self.bytes[v] for v in live)
            self.before[k] = sum(self.bytes[v] for v in backward if self.maker[v] < k <= last[v])


class Model:
    def __init__(self):
        self.cost, self.lo, self.hi, self.integer = [], [], [], []
        self.rows, self.row_lo, self.row_hi = [], [], []

    def var(self, cost=0.0, hi=1.0, integer=True):
        self.cost.append(cost)
        self.lo.append(0.0)
        self.hi.append(hi)
        self.integer.append(int(integer))
        return len(self.cost) - 1

    def row(self, terms, lo=-np.inf, hi=np.inf):
        self.rows.append(terms)
        self.row_lo.append(lo)
        self.row_hi.append(hi)

    def solve(self, seconds):
        r = [i for i, t in enumerate(self.rows) for _ in t]
        c = [j for t in self.rows for j, _ in t]
        d = [x for t in self.rows for _, x in t]
        a = coo_matrix((d, (r, c)), shape=(len(self.rows), len(self.cost))).tocsr()
        return milp(np.array(self.cost), integrality=np.array(self.integer), bounds=Bounds(self.lo, self.hi),
                    constraints=LinearConstraint(a, self.row_lo, self.row_hi),
                    options=dict(time_limit=seconds, mip_rel_gap=1e-6))


class Checkmate:
    def __init__(self, problem, budget):
        self.p, self.budget, self.m = problem, budget / MIB + 1e-6, Model()
        p = problem
        self.redo = [k for k in range(p.first_bwd) if p.ops[k]["out"] and p.ops[k].get("pure", True)]
        self.outs = {k: [out["id"] for out in o["out"]] for k, o in enumerate(p.ops)}
        self.ins = {k: [v for v in set(o["in"]) if v in p.maker] for k, o in enumerate(p.ops)}
        self.forward_readers = {v: sorted(k for k in p.readers.get(v, []) if k < p.first_bwd)
                                for v in p.forward_values}
        self.stages = range(p.first_bwd, len(p.ops))
        self.make_variables()
        self.forward_pass()
        for t in self.stages:
            self.dependencies(t)
            self.memory(t)

    def make_variables(self):
        p, horizon = self.p, {}
        # last stage at which holding v can help
        for v in sorted(p.forward_values, key=lambda v: -p.maker[v]):
            later = [k for k in p.readers.get(v, []) if k >= p.first_bwd]
            horizon[v] = max(later + [horizon[w] for k in self.forward_readers[v] for w in self.outs[k]] + [-1])
        self.S, self.R = {}, {}
        for t in self.stages:
            for v in p.forward_values:
                if horizon[v] >= t:
                    self.S[t, v] = self.m.var(hi=0 if t == p.first_bwd and v in p.consumed else 1)
            for k in self.redo:
                if any(horizon[v] >= t for v in self.outs[k]):
                    self.R[t, k] = self.m.var(cost=p.ops[k]["ns"] / 1e3)

    def terms(self, t, v, scale=1.0):
        """Value v is held into stage t or made in it."""
        out = [(self.S[t, v], scale)] if (t, v) in self.S else []
        if (t, self.p.maker[v]) in self.R:
            out.append((self.R[t, self.p.maker[v]], scale))
        return out

    def forward_pass(self):
        """Each forward op runs with what later forward ops read, and what is saved for the first stage."""
        p = self.p
        for k in range(p.first_bwd):
            fixed, terms = p.ops[k].get("ws", 0) / MIB, []
            for v in p.forward_values:
                if p.maker[v] > k or (k in p.alias and p.alias[k][1] == v):
                    continue
                if max(self.forward_readers[v] + [p.maker[v]]) >= k:
                    fixed += p.bytes[v]
                elif (p.first_bwd, v) in self.S:
                    terms.append((self.S[p.first_bwd, v], p.bytes[v]))
            if fixed + sum(b for _, b in terms) > self.budget:
                self.m.row(terms, hi=self.budget - fixed)

    def dependencies(self, t):
        p, m = self.p, self.m
        for v in p.forward_values:
            if (t + 1, v) in self.S:
                m.row([(self.S[t + 1, v], 1)] + self.terms(t, v, -1), hi=0)
            if (t, v) in self.S and (t, p.maker[v]) in self.R and len(self.outs[p.maker[v]]) == 1:
                m.row(self.terms(t, v), hi=1)  # never rebuild what is there
        for v in self.ins[t]:
            if p.maker[v] < p.first_bwd:
                m.row(self.terms(t, v), lo=1)
        for k in self.redo:
            if (t, k) not in self.R:
                continue
            for u in self.ins[k]:
                m.row([(self.R[t, k], 1)] + self.terms(t, u, -1), hi=0)
            if k in p.alias and (t + 1, p.alias[k][1]) in self.S:
                m.row([(self.S[t + 1, p.alias[k][1]], 1), (self.R[t, k], 1)], hi=1)

    def live_variables(self, t, events):
        """live[v, event]: v is alive at it. Changes at its readers only; None: needed by the backward op, once made."""
        p, m, live = self.p, self.m, {}
        needed = {v for v in self.ins[t] if p.maker[v] < p.first_bwd}
        for v in p.forward_values:
            if (t, v) not in self.S:
                continue
            previous = None
            readers = [k for k in self.forward_readers[v] if (t, k) in self.R]
            for e in events:
                if e < p.maker[v]:
                    live[v, e] = self.S[t, v]
                    continue
                rest = [k for k in readers if k >= e]
                key = tuple(rest) + ((p.maker[v],) if e == p.maker[v] else ())
                if previous and previous[0] == key:
                    live[v, e] = previous[1]
                elif v in needed:
                    live[v, e] = None
                else:
                    x = live[v, e] = m.var(integer=False)
                    for k in rest:
                        m.row([(x, 1), (self.R[t, k], -1)], lo=0)
                    if (t + 1, v) in self.S:
                        m.row([(x, 1), (self.S[t + 1, v], -1)], lo=0)
                    if e == p.maker[v]:
                        m.row([(x, 1), (self.R[t, e], -1)], lo=0)
                previous = (key, live[v, e])
        return live

    def memory(self, t):
        p = self.p
        events = [k for k in self.redo if (t, k) in self.R] + [t]
        live = self.live_variables(t, events)
        for e in events:
            fixed = p.during[t] if e == t else p.before[t] + p.ops[e].get("ws", 0) / MIB
            terms = []
            for v in p.forward_values:
                if (v, e) not in live or (e != t and e in p.alias and p.alias[e][1] == v):
                    continue
                if live[v, e] is not None:
                    terms.append((live[v, e], p.bytes[v]))
                elif e == t:
                    fixed += p.bytes[v]
                else:
                    terms += self.terms(t, v, p.bytes[v])
            if fixed + sum(b for _, b in terms) > self.budget:
                self.m.row(terms, hi=self.budget - fixed)


def main():
    problem = Problem(sys.argv[1])
    seconds = float(sys.argv[3]) if len(sys.argv) > 3 else 60
    r = Checkmate(problem, float(sys.argv[2])).m.solve(seconds)
    bound = r.mip_dual_bound
    print(json.dumps(dict(status=int(r.status), added_ns=None if r.x is None else round(r.fun * 1e3),
                          bound_ns=None if bound is None or bound != bound else round(bound * 1e3))))


if __name__ == "__main__":
    main()
