/* small_plan.h - a hand-made training program for the tests of assembly and check:
 *   h = exp(x w), k = tanh(h), y = -k;  dk = y * k, dh = dk * h, grad += x' dh   with h rebuilt
 * before its last reader. The first micro-batch of its steps is the second program. */
#ifndef TEST_SMALL_PLAN_H
#define TEST_SMALL_PLAN_H
#include "naive.h"
#include "passes/assemble.h"
#include "passes/cost.h"
#include "passes/first.h"

typedef struct {
  Arena *a;
  Job job;
  Plan *plan;
  Graph *g;
  Clusters c;
  StorageMap m;
  int grad;
  int rebuild_step;
  ValueId x, product, h, k, y, dk, dh;
} SmallPlan;

static inline int small_var(Vars *vars, const char *path, VarRole role, Shape s) {
  return var_add(vars,
                 (Var){.path = intern(path), .role = role, .dtype = DT_F32, .shape = s, .of = -1});
}

static inline SmallPlan small_plan(void) {
  SmallPlan s = {.a = arena_new()};
  Arena *a = s.a;
  Vars *vars = vars_new(a);
  Shape square = shape_of(2, (int64_t[]){64, 64}), rows = shape_of(2, (int64_t[]){32, 64});
  int w = small_var(vars, "w", VAR_PARAM, square);
  s.grad = small_var(vars, "w:grad", VAR_ACCUM, square);
  Graph *g = s.g = graph_new(a, "micro", vars);
  s.x = g_input(g, "x", DT_F32, rows);
  g->here.phase = PH_FORWARD;
  s.product = g_matmul(g, s.x, g_var(g, w));
  s.h = g_unary(g, OP_EXP, s.product);
  s.k = g_unary(g, OP_TANH, s.h);
  s.y = g_unary(g, OP_NEG, s.k);
  g->here.phase = PH_BACKWARD;
  s.dk = g_binary(g, OP_MUL, s.y, s.k);
  s.dh = g_binary(g, OP_MUL, s.dk, s.h);
  ValueId dw = g_dot(g, s.x, s.dh, 0, NULL, NULL, 1, (int64_t[]){0}, (int64_t[]){0}, DT_F32);
  ValueId sum = g_binary(g, OP_ADD, g_var(g, s.grad), dw);
  g_assign(g, s.grad, sum);
  graph_result(g, "y", s.y);

  s.c = naive_clusters(g, a);
  const Target *t = target_by_name("cpu");
  cost_clusters(&s.c, t, NULL);
  s.m = storage_map(&s.c, a);
  s.job = (Job){.arena = a, .vars = vars, .model = "small"};
  Job *job = arena_copy(a, &s.job, sizeof s.job);
  Plan *p = s.plan = arena_new_of(a, Plan);
  p->job = job;
  p->target = t;
  p->budget_bytes = INT64_MAX;
  assemble_variables(p, a, NULL, NULL);
  int order[16], n = 0;
  for (int i = 0; i < s.c.n; i++) {
    if (i == naive_cluster_of(&s.c, s.dh)) {
      s.rebuild_step = n + 1;
      order[n++] = naive_cluster_of(&s.c, s.product);
      order[n++] = naive_cluster_of(&s.c, s.h);
    }
    order[n++] = i;
  }
  assemble_program(p, a, "micro", &s.m, n, arena_copy(a, order, sizeof order), 0);
  Clusters *first = arena_new_of(a, Clusters);
  *first = first_clusters(&s.c, a);
  StorageMap fm = storage_map(first, a);
  assemble_program(p, a, "first", &fm, n, arena_copy(a, order, sizeof order), 0);
  vec_push(a, &p->phases,
           ((PlanPhase){.micro_batch = 16, .accumulation = 2, .programs = {0, 1, -1, -1, -1}}));
  assemble_finish(p, a);
  return s;
}

#endif
