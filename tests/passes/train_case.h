/* train_case.h - tiny jobs from the repository's models, and the interpreter running their training
 * graphs. */
#ifndef TEST_TRAIN_CASE_H
#define TEST_TRAIN_CASE_H
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "passes/fuse.h"
#include "passes/plan.h"
#include "passes/rewrite.h"

enum { TINY_T = 8, TINY_V = 40 };

static inline Job *tiny_job(Arena *a, const char *model, int nset, const Override *set) {
  static const Override gpt2[] = {{"L", "2"},  {"D", "16"},   {"H", "2"},
                                  {"V", "40"}, {"Tmax", "8"}, {"T", "8"}};
  static const Override llama[] = {{"L", "2"},  {"D", "16"}, {"H", "2"}, {"KV", "1"},
                                   {"F", "24"}, {"V", "40"}, {"T", "8"}};
  bool is_gpt2 = !strcmp(model, "gpt2");
  const Override *dims = is_gpt2 ? gpt2 : llama;
  JobArgs args = {.path = arena_printf(a, MTC_SOURCE_DIR "/models/%s.mt", model)};
  for (int i = 0; i < (is_gpt2 ? COUNT_OF(gpt2) : COUNT_OF(llama)); i++)
    vec_push(a, &args.dims, dims[i]);
  for (int i = 0; i < nset; i++) {
    if (strchr(set[i].name, '.'))
      vec_push(a, &args.settings, set[i]);
    else
      vec_push(a, &args.dims, set[i]);
  }
  Diags *d = diags_new(a);
  Job *job = elaborate(a, d, &args);
  if (!job) diag_render(d, stderr, false);
  assert_non_null(job);
  return job;
}

/* A number in (-1, 1) that depends on its two arguments alone. */
static inline double tiny_random(uint64_t a, uint64_t b) {
  uint64_t both[] = {a, b};
  return (double)(int64_t)(hash_bytes(both, sizeof both, 7) >> 11) / 0x1p52 - 1;
}

/* Values of all variables as a training run would start: parameters small and random, copies
 * copied, constants as they say, the rest zero. */
static inline double **tiny_vars(Arena *a, const Job *job) {
  const Vars *vars = job->vars;
  double **v = arena_array(a, double *, vars->all.n + 64);
  for (int i = 0; i < vars->all.n; i++) {
    const Var *x = &vars->all.at[i];
    int64_t n = shape_count(&x->shape);
    v[i] = arena_array(a, double, n);
    uint64_t key = hash_text(x->path);
    for (int64_t k = 0; k < n && x->role == VAR_PARAM; k++)
      v[i][k] = (float)((x->init.kind == INIT_ONES ? 1 : 0) + 0.2 * tiny_random(key, (uint64_t)k));
    for (int64_t k = 0; k < n && x->role == VAR_MASTER; k++) v[i][k] = v[x->of][k];
    for (int64_t k = 0; k < n && x->role == VAR_OPT && x->init.kind == INIT_CONST; k++)
      v[i][k] = x->init.a;
  }
  return v;
}

static inline void tiny_scalar(const Job *job, double **v, const char *path, double x) {
  int var = var_find(job->vars, path);
  if (var >= 0) v[var][0] = x;
}

/* Runs g on samples first..first+n-1 of a fixed data set whose step has `total` samples. Every
 * fifth target is ignored. */
static inline double **tiny_run(Arena *a, const Job *job, const Graph *g, double **vars, bool exact,
                                int first, int n, int total) {
  if (!g) return NULL; /* a job without evaluation */
  double *tokens = arena_array(a, double, n *TINY_T), *targets = arena_array(a, double, n *TINY_T);
  int valid = 0;
  for (int i = 0; i < total * TINY_T; i++) {
    int in = i - first * TINY_T;
    double target = i % 5 == 4 ? -1 : floor((tiny_random(2, (uint64_t)i) + 1) / 2 * TINY_V);
    valid += target >= 0;
    if (in < 0 || in >= n * TINY_T) continue;
    tokens[in] = floor((tiny_random(1, (uint64_t)i) + 1) / 2 * TINY_V);
    targets[in] = target;
  }
  tiny_scalar(job, vars, "step.seed", 1234);
  tiny_scalar(job, vars, "step.step", 3);
  tiny_scalar(job, vars, "step.sample0", first);
  tiny_scalar(job, vars, "step.inv_count", 1.0 / valid);
  tiny_scalar(job, vars, "step.inv_accum", (double)n / total);
  tiny_scalar(job, vars, "step.lr", 1e-2);
  InterpInput in[] = {{"tokens", tokens}, {"targets", targets}};
  Interp run = {.arena = a, .exact = exact, .inputs = in, .ninputs = 2, .vars = vars};
  return graph_interp(g, &run);
}

/* The nodes of fused clusters in their order of execution: variables are read when the first reader
 * runs. */
static inline void place_operand(Rewrite *r, ValueId v) {
  if (r->map[v] >= 0) return;
  NodeId d = val(r->from, v)->def;
  for (int k = 0; k < node_at(r->from, d)->nin; k++) place_operand(r, node_at(r->from, d)->in[k]);
  rewrite_node(r, d);
}
static inline Graph *in_cluster_order(const Clusters *c, Arena *a) {
  Rewrite r = rewrite_begin(c->g, a);
  for (int i = 0; i < c->n; i++) {
    for (int k = 0; k < c->at[i].nnodes; k++) {
      const Node *n = node_at(c->g, c->at[i].nodes[k]);
      for (int o = 0; o < n->nin; o++) place_operand(&r, n->in[o]);
      rewrite_node(&r, c->at[i].nodes[k]);
    }
  }
  for (int i = 0; i < c->g->results.n; i++) place_operand(&r, c->g->results.at[i]);
  return rewrite_end(&r);
}

/* Largest difference of two arrays relative to the largest element. */
static inline double tiny_difference(const double *a, const double *b, int64_t n) {
  double worst = 0, most = 0;
  for (int64_t i = 0; i < n; i++) {
    double d = fabs(a[i] - b[i]);
    if (!(d <= worst)) worst = d;
    if (fabs(a[i]) > most) most = fabs(a[i]);
  }
  return worst / (most + 1e-30);
}

/* Fails when a variable of one of the roles differs by more than `tolerance` (0: in a single bit).
 */
static inline void assert_vars(const Job *job, double **a, double **b, unsigned roles,
                               double tolerance) {
  for (int i = 0; i < job->vars->all.n; i++) {
    const Var *x = &job->vars->all.at[i];
    if (!(roles >> x->role & 1) || !a[i] || !b[i]) continue;
    int64_t n = shape_count(&x->shape);
    if (tolerance == 0 && memcmp(a[i], b[i], sizeof(double) * (size_t)n))
      fail_msg("`%s` has other bits", x->path);
    double d = tiny_difference(a[i], b[i], n);
    if (!(d <= tolerance)) fail_msg("`%s` differs by %g", x->path, d);
  }
}
enum { ACCUMS = 1 << VAR_ACCUM | 1 << VAR_METRIC, ALL_KEPT = 0xff & ~(1 << VAR_SCALAR) };

#endif
