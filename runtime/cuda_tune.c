/* cuda_tune.c - times the candidates of cuBLASLt for each product of a program, and writes down
 * which algorithms a program uses.
 *
 * Every product is timed where its operands lie in the arena, which is full of random numbers then:
 * a GPU is faster on zeros. Another algorithm than the rule's is taken when it is clearly faster, so
 * that noise does not change a table. A product that the rule cuts in two is also timed whole. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "cuda_parts.h"
#include "rng.h"

enum { CANDIDATES = 12, ROUNDS = 3, MOST_REPEATS = 20 };
static const double round_seconds = 2e-3, clearly = 0.98;
static const uint32_t sign_and_fraction = 0x807f807f, around_one = 0x3f003f00; /* of two bf16 */

typedef struct {
  Device *d;
  Arena *arena;
  GemmTable table;
  DeviceTune *to;
  CUevent from, until;
  VEC(uint64_t) seen;
} Tune;

/* ---- data ---- */
/* One block of bf16 numbers around 1, over and over: they are f16 numbers, too, and two are an f32. */
static bool fill_arena(Tune *t, Fail *f) {
  enum { BLOCK = 4 << 20 };
  Device *d = t->d;
  int64_t all = d->p->arena_bytes, done = all < BLOCK ? all : BLOCK;
  uint32_t *block = arena_alloc(t->arena, BLOCK);
  for (int i = 0; i < BLOCK / 4; i += 4) {
    rng_philox(1, (uint64_t)i, 0, &block[i]);
    for (int k = i; k < i + 4; k++) block[k] = (block[k] & sign_and_fraction) | around_one;
  }
  if (!cuda_ok(cu.cuMemcpyHtoD(d->arena, block, (size_t)done), f, "writing random numbers"))
    return false;
  for (int64_t n; done < all; done += n) {
    n = all - done < done ? all - done : done;
    if (!cuda_ok(cu.cuMemcpyDtoDAsync(device_at(d, done), d->arena, (size_t)n, d->stream), f,
                 "copying random numbers"))
      return false;
  }
  return cuda_ok(cu.cuStreamSynchronize(d->stream), f, "copying random numbers");
}

/* ---- times ---- */
static bool time_runs(Tune *t, const Cmd *c, const GemmPart *g, const LtHeuristic *x, int n,
                      double *seconds, Fail *f) {
  Device *d = t->d;
  float ms = 0;
  int status = 0;
  if (!cuda_ok(cu.cuEventRecord(t->from, d->stream), f, "recording an event")) return false;
  for (int i = 0; i < n && !status; i++)
    status = cuda_gemm_multiply(d, c, g, &x->algo, x->workspace);
  if (!cuda_ok(cu.cuEventRecord(t->until, d->stream), f, "recording an event") ||
      !cuda_ok(cu.cuStreamSynchronize(d->stream), f, "timing %s (%s)", c->name, c->where) ||
      !cuda_ok(cu.cuEventElapsedTime(&ms, t->from, t->until), f, "timing a product"))
    return false;
  *seconds = status ? INFINITY : 1e-3 * (double)ms / n;
  return true;
}

/* The least time of several rounds; infinite when the library refuses the algorithm. */
static bool time_candidate(Tune *t, const Cmd *c, const GemmPart *g, const LtHeuristic *x,
                           double *best, Fail *f) {
  double once;
  if (!time_runs(t, c, g, x, 1, best, f)) return false; /* loads its kernel */
  if (*best == INFINITY) return true;
  if (!time_runs(t, c, g, x, 2, &once, f)) return false;
  double fit = round_seconds / once;
  int n = fit < 2 ? 2 : fit > MOST_REPEATS ? MOST_REPEATS : (int)fit;
  *best = INFINITY;
  for (int i = 0; i < ROUNDS; i++) {
    if (!time_runs(t, c, g, x, n, &once, f)) return false;
    if (once < *best) *best = once;
  }
  return true;
}

/* ---- products ---- */
/* The best algorithm of one product, and what it and the rule's take. */
static bool tune_part(Tune *t, const Cmd *c, const GemmPart *g, GemmChoice *to, Fail *f) {
  LtHeuristic all[CANDIDATES] = {0};
  int n = cuda_gemm_candidates(t->d, c, g, CANDIDATES, all, f), best = 0;
  double rule = INFINITY, least = INFINITY;
  if (!n) return false;
  for (int i = 0; i < n; i++) {
    double seconds;
    if (!time_candidate(t, c, g, &all[i], &seconds, f)) return false;
    if (i == 0) rule = least = seconds;
    if (seconds < least && seconds < clearly * rule) least = seconds, best = i;
  }
  *to = (GemmChoice){.key = cuda_gemm_key(c, g),
                     .workspace = all[best].workspace,
                     .us = 1e6 * least,
                     .rule_us = 1e6 * rule,
                     .what = cuda_gemm_text(t->arena, c, g)};
  memcpy(to->algo, &all[best].algo, sizeof to->algo);
  return true;
}

static bool tune_whole(Tune *t, const Cmd *c, GemmChoice *to, Fail *f) {
  GemmPart whole = cuda_gemm_whole(c);
  bool ok = cuda_gemm_part(t->d, c, &whole, f) && tune_part(t, c, &whole, to, f);
  cuda_gemm_drop_part(&whole);
  return ok;
}

static bool tune_command(Tune *t, const Cmd *c, Fail *f) {
  GemmPart whole = cuda_gemm_whole(c);
  uint64_t key = cuda_gemm_key(c, &whole);
  for (int i = 0; i < t->seen.n; i++)
    if (t->seen.at[i] == key) return true;
  vec_push(t->arena, &t->seen, key);
  CudaGemm g = {0};
  GemmChoice part[2] = {0}, one;
  double rule = 0, best = 0;
  bool ok = cuda_gemm_ready(t->d, c, &g, f);
  for (int i = 0; ok && i < g.nparts; i++) {
    ok = tune_part(t, c, &g.part[i], &part[i], f);
    rule += part[i].rule_us, best += part[i].us;
  }
  ok = ok && (g.nparts == 1 || tune_whole(t, c, &one, f));
  if (ok) {
    bool take_whole = g.nparts > 1 && one.us < clearly * best;
    if (take_whole) {
      best = one.us;
      gemm_table_put(&t->table, one);
    }
    for (int i = 0; i < g.nparts && !take_whole; i++) gemm_table_put(&t->table, part[i]);
    if (g.nparts > 1 && !take_whole) gemm_table_drop(&t->table, key);
    t->to->products++;
    t->to->faster += best < rule;
    t->to->rule += 1e-6 * rule;
    t->to->best += 1e-6 * best;
  }
  cuda_gemm_drop(&g);
  return ok;
}

static bool tune_all(Tune *t, Fail *f) {
  Device *d = t->d;
  if (!d->lt) return true;
  GemmTable none = gemm_table_new(d->memory, d->gemms.machine);
  t->table = gemm_table_new(t->arena, arena_printf(t->arena, "%s", d->gemms.machine));
  t->to->machine = t->table.machine;
  t->to->path = gemm_table_path(t->arena, t->table.machine);
  gemm_table_read(&t->table, t->to->path); /* other programs' products stay */
  d->gemms = none;                         /* `ready` follows the rule from here on */
  bool ok = fill_arena(t, f) &&
            cuda_ok(cu.cuEventCreate(&t->from, CU_EVENT_TIMING), f, "making an event") &&
            cuda_ok(cu.cuEventCreate(&t->until, CU_EVENT_TIMING), f, "making an event");
  for (int i = 0; i < d->p->nprograms; i++)
    for (int k = 0; ok && k < d->p->programs[i].ncmds; k++) {
      const Cmd *c = &d->p->programs[i].cmds[k];
      ok = c->kind != CMD_GEMM || tune_command(t, c, f);
    }
  if (t->from) cu.cuEventDestroy(t->from);
  if (t->until) cu.cuEventDestroy(t->until);
  if (ok && !gemm_table_write(&t->table, t->to->path))
    return fail_set(f, EXIT_IO, "cannot write %s: %s", t->to->path, strerror(errno));
  return ok;
}

bool cuda_tune(const Program *p, const DeviceOptions *o, Arena *a, DeviceTune *to, Fail *f) {
  *to = (DeviceTune){0};
  Tune t = {.d = cuda_open_cold(p, o, f), .arena = a, .to = to};
  if (!t.d) return false;
  bool ok = tune_all(&t, f);
  cuda_close(t.d);
  return ok;
}

/* ---- the algorithms in use ---- */
bool cuda_record(Device *d, const char *path, Fail *f) {
  if (!d->lt) return true;
  GemmTable used = gemm_table_new(d->memory, d->gemms.machine);
  for (int i = 0; i < d->p->nprograms; i++)
    for (int k = 0; k < d->p->programs[i].ncmds; k++) {
      const Cmd *c = &d->p->programs[i].cmds[k];
      const CudaGemm *g = d->cmds[i][k].gemm;
      for (int part = 0; g && part < g->nparts; part++) {
        const GemmPart *x = &g->part[part];
        GemmChoice choice = {.key = cuda_gemm_key(c, x), .workspace = x->workspace};
        const GemmChoice *known = gemm_table_find(&d->gemms, choice.key);
        choice.what = cuda_gemm_text(d->memory, c, x);
        if (known) choice.us = known->us, choice.rule_us = known->rule_us;
        memcpy(choice.algo, &x->algo, sizeof choice.algo);
        gemm_table_put(&used, choice);
      }
    }
  return gemm_table_write(&used, path) ||
         fail_set(f, EXIT_IO, "cannot write %s: %s", path, strerror(errno));
}
