/* random_problem.h - random recompute problems: forward ops that read recent values, backward ops
 * that read gradients and saved values in reverse, with in-place ops, several outputs, workspace,
 * ops that may not run again and values that must stay. */
#ifndef TEST_RANDOM_PROBLEM_H
#define TEST_RANDOM_PROBLEM_H
#include "passes/fixed.h"
#include "problems.h"

typedef struct {
  Maker g;
  uint64_t *rng;
  bool dead[4096]; /* taken over in place */
} RandomMaker;

static inline int random_live(RandomMaker *r, int from) {
  for (int tries = 0; tries < 20; tries++) {
    int v = from + random_below(r->rng, r->g.bytes.n - from);
    if (!r->dead[v]) return v;
  }
  return NO_VALUE;
}

/* Reads up to three live values among those from `from` on and `also`. */
static inline void random_op(RandomMaker *r, int from, int also) {
  Maker *g = &r->g;
  int ins[8], n = 0, wanted = random_below(r->rng, 3) + (also != NO_VALUE);
  if (also != NO_VALUE) ins[n++] = also;
  while (n < wanted && g->bytes.n > 0) {
    int v = random_live(r, from);
    bool twice = v == NO_VALUE;
    for (int i = 0; i < n; i++) twice |= ins[i] == v;
    if (twice) break;
    ins[n++] = v;
  }
  ins[n] = NO_VALUE;
  double outs[2] = {1 + random_below(r->rng, 100), 1 + random_below(r->rng, 8)};
  int nout = random_below(r->rng, 5) == 0 ? 2 : 1;
  bool inplace = n > 0 && random_below(r->rng, 5) == 0;
  if (inplace) r->dead[ins[0]] = true;
  maker_op(g, "op", ins, nout, outs, traffic(100000.0 * random_below(r->rng, 100)),
           random_below(r->rng, 4) ? 0 : 20, inplace);
  if (random_below(r->rng, 12) == 0) g->op.at[g->op.n - 1].redo = false;
}

static inline RecProblem random_problem(Arena *a, uint64_t *rng, int nop, int nlayer) {
  RandomMaker *r = arena_new_of(a, RandomMaker);
  int nfwd = nop / 2 > 0 ? nop / 2 : 1;
  r->g.a = a;
  r->rng = rng;
  for (int k = 0; k < nfwd; k++) {
    int n = r->g.bytes.n;
    r->g.layer = k * nlayer / nfwd;
    random_op(r, n > 6 ? n - 6 : 0, NO_VALUE);
  }
  r->g.bwd = true;
  int saved = r->g.bytes.n;
  for (int k = nfwd; k < nop; k++) {
    int back = (nop - 1 - k) * saved / (nop - nfwd + 1);
    r->g.layer = (nop - 1 - k) * nlayer / (nop - nfwd + 1);
    random_op(r, r->g.bytes.n > saved + 1 ? r->g.bytes.n - 2 : saved - 1,
              r->dead[back] ? NO_VALUE : back);
  }
  RecProblem p = maker_problem(&r->g);
  bool *keep = arena_array(a, bool, p.nval);
  for (int v = 0; v < p.nval; v++) keep[v] = !r->dead[v] && random_below(rng, 15) == 0;
  p.keep = keep;
  return p;
}

#endif
