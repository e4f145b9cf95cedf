/* test_random_graphs.c - random graphs over most operations, fused, placed, compiled and run on the
 * CPU device, against the interpreter: results and variables. RANDOM_GRAPHS=FIRST,COUNT chooses
 * other seeds than the few of every run. */
#include "../passes/random_graph.h"
#include "codegen/program.h"
#include "passes/assemble.h"
#include "passes/cost.h"
#include "runtime/replay.h"

static Plan *plan_of(Arena *a, Graph *g) {
  Clusters c = fuse_graph(g, a);
  const char *wrong = fuse_verify(&c, a);
  if (wrong) fail_msg("%s", wrong);
  cost_clusters(&c, target_by_name("cpu"), NULL);
  StorageMap *m = arena_new_of(a, StorageMap);
  Clusters *kept = arena_copy(a, &c, sizeof c);
  *m = storage_map(kept, a);
  Job *job = arena_new_of(a, Job);
  *job = (Job){.arena = a, .vars = g->vars, .model = "random", .path = "random.mt"};
  Plan *p = arena_new_of(a, Plan);
  p->job = job;
  p->target = target_by_name("cpu");
  p->budget_bytes = INT64_MAX;
  assemble_variables(p, a, NULL, NULL);
  int *order = arena_array(a, int, c.n + 1);
  for (int i = 0; i < c.n; i++) order[i] = i;
  assemble_program(p, a, "micro", m, c.n, order, 0);
  assemble_finish(p, a);
  wrong = plan_check(p, a);
  if (wrong) fail_msg("%s", wrong);
  return p;
}

static void put(Replay *r, Arena *a, const Tensor *t, const double *x, int64_t n) {
  float *packed = arena_array(a, float, n + 1);
  for (int64_t i = 0; i < n; i++) packed[i] = (float)x[i];
  Fail f = {0};
  assert_true(replay_write(r, t, packed, &f));
}

/* Rounding to bf16 in the graph can flip where sums differ in their last bits. */
static void compare(Replay *r, Arena *a, const Tensor *t, const double *want, int64_t n,
                    uint64_t seed, const char *what) {
  float *got = arena_array(a, float, n + 1);
  Fail f = {0};
  assert_int_equal(t->dtype, DT_F32);
  assert_true(replay_read(r, t, got, &f));
  double scale = 1;
  for (int64_t i = 0; i < n; i++)
    if (isfinite(want[i])) scale = fmax(scale, fabs(want[i]));
  for (int64_t i = 0; i < n; i++)
    if (!(fabs(got[i] - want[i]) <= 0.02 * scale || got[i] == want[i] ||
          (isnan(got[i]) && isnan(want[i])) || !isfinite(want[i])))
      fail_msg("seed %llu: %s[%lld] is %.9g, should be %.9g", (unsigned long long)seed, what,
               (long long)i, got[i], want[i]);
}

static void one_graph(uint64_t seed) {
  Arena *a = arena_new();
  Graph *g = random_graph(a, seed, 20 + (int)(seed % 30));
  double *vars[3];
  double **want = random_run(a, g, vars);
  Plan *p =
      plan_of(a, random_graph(a, seed, 20 + (int)(seed % 30))); /* fusion takes its graph over */
  const char *why = NULL;
  Program *program = program_build(p, a, &why);
  if (!program) fail_msg("seed %llu: %s", (unsigned long long)seed, why);
  Replay r;
  Fail f = {0};
  DeviceOptions o = {.threads = 2, .poison = true};
  if (!replay_open(&r, program, &o, &f)) fail_msg("%s", f.text);
  for (int v = 0; v < 3; v++) {
    int64_t n = shape_count(&g->vars->all.at[v].shape);
    double *start = arena_array(a, double, n);
    for (int64_t k = 0; k < n; k++) start[k] = (float)tiny_random((uint64_t)v + 9, (uint64_t)k);
    put(&r, a, &program->vars[v].at, start, n);
  }
  double x[24], y[24];
  for (int i = 0; i < 24; i++) {
    y[i] = (float)tiny_random(5, (uint64_t)i);
    x[i] = (float)tiny_random(6, (uint64_t)i);
  }
  const Tensor *tx = program_input(program, 0, "x"), *ty = program_input(program, 0, "y");
  if (tx) put(&r, a, tx, x, 12);
  if (ty) put(&r, a, ty, y, 24);
  assert_true(replay_run(&r, 0, &f));
  for (int i = 0; i < g->results.n; i++) {
    ValueId v = g->results.at[i];
    const Tensor *t = program_result(program, 0, g->result_names.at[i]);
    assert_non_null(t);
    compare(&r, a, t, want[v], shape_count(&val(g, v)->shape), seed, g->result_names.at[i]);
  }
  for (int v = 0; v < 3; v++)
    compare(&r, a, &program->vars[v].at, vars[v], shape_count(&g->vars->all.at[v].shape), seed,
            "variable");
  replay_close(&r);
  arena_free(a);
}

static void random_graphs(void **state) {
  (void)state;
  unsigned long long first = 1, count = 12;
  const char *chosen = getenv("RANDOM_GRAPHS");
  if (chosen) sscanf(chosen, "%llu,%llu", &first, &count);
  for (unsigned long long s = first; s < first + count; s++) one_graph(s);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(random_graphs)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
