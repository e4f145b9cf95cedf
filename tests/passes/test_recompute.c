/* test_recompute.c - the recompute solver as a whole: proven optima of small problems, the bars of
 * the large ones, exhaustive search on tiny ones, and what must hold for any graph: sorted front,
 * valid traces, monotone, the same twice. About 5 s. */
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "passes/fixed.h"
#include "passes/recompute.h"
#include "problems.h"
#include "random_problem.h"

static const RecPlan *select_plan(const RecFront *f, int64_t budget) {
  for (int i = 0; i < f->n; i++)
    if (f->at[i].peak <= budget) return &f->at[i];
  return NULL;
}

/* Added time in percent of the step, at a budget in percent of the peak without drops. */
static double added_percent(const RecFront *f, int budget_percent) {
  const RecPlan *p = select_plan(f, (int64_t)((double)f->at[0].peak * budget_percent / 100));
  return p ? 100.0 * (double)(p->ns - f->at[0].ns) / (double)f->at[0].ns : INFINITY;
}

static void sorted_and_valid(Arena *a, const RecProblem *p, const RecFront *f, int stride) {
  assert_true(f->n >= 1);
  assert_int_equal(f->floor, f->at[f->n - 1].peak);
  for (int i = 1; i < f->n; i++) {
    assert_true(f->at[i].peak < f->at[i - 1].peak);
    assert_true(f->at[i].ns > f->at[i - 1].ns);
  }
  for (int i = 0; i < f->n; i += stride) {
    const char *why = "";
    recompute_trace(a, p, &f->at[i]);
    if (!recompute_check(p, &f->at[i], a, &why)) fail_msg("plan %d of %d: %s", i, f->n, why);
  }
}

typedef struct {
  int budget;
  double added; /* percent */
} Bar;

static void meets_bars(const RecProblem *p, double effort, int n, const Bar *bar) {
  Arena *a = arena_new();
  RecFront f = recompute_front(a, p, &(RecOptions){.effort = effort});
  for (int i = 0; i < n; i++) {
    double added = added_percent(&f, bar[i].budget);
    if (added > bar[i].added)
      fail_msg("%d ops at %d %%: %.4f %% added, not %.4f %%", p->nop, bar[i].budget, added,
               bar[i].added);
  }
  sorted_and_valid(a, p, &f, f.n / 16 + 1);
  arena_free(a);
}
#define MEETS(problem, effort, ...) \
  meets_bars(&(problem), effort, COUNT_OF(((const Bar[]){__VA_ARGS__})), (const Bar[]){__VA_ARGS__})

/* Proven with a mixed integer programme (tests/oracle), to 0.001 points. */
static void small_optima(void **state) {
  (void)state;
  enum { V = 50304 };
  Arena *a = arena_new();
  RecProblem gpt2l = transformer(a, (Transformer){2, 768, 12, 1024, 16, V, 0, false});
  RecProblem gpt3l = transformer(a, (Transformer){3, 768, 12, 1024, 16, V, 0, false});
  RecProblem gpt4l = transformer(a, (Transformer){4, 768, 12, 1024, 16, V, 0, false});
  RecProblem llama2l = transformer(a, (Transformer){2, 4096, 32, 2048, 1, 32000, 11008, true});
  RecProblem llama3l = transformer(a, (Transformer){3, 4096, 32, 2048, 1, 32000, 11008, true});
  RecProblem mlp8 = mlp(a, 8, 2, (int[]){1024, 4096});
  RecProblem mlp12 = mlp(a, 12, 3, (int[]){1024, 4096, 2048});
  RecProblem unet1 = unet(a, 16, 128, 1, 64, 2), unet2 = unet(a, 16, 128, 2, 64, 2);
  RecProblem unet3 = unet(a, 16, 128, 3, 64, 1);
  RecProblem resnet3 = resnet(a, 64, 2, (Stage[]){{1, 64}, {2, 128}});
  RecProblem resnet4 = resnet(a, 64, 4, (Stage[]){{1, 64}, {1, 128}, {1, 256}, {1, 512}});
  MEETS(gpt2l, 0.2, {80, 1.388}, {60, 3.764}, {40, 7.075});
  MEETS(gpt3l, 0.2, {80, 1.542}, {60, 4.004}, {40, 7.360});
  MEETS(gpt4l, 0.2, {80, 1.784}, {60, 4.418}, {40, 8.065}, {30, 9.843});
  MEETS(llama2l, 0.2, {80, 1.772}, {60, 8.576});
  MEETS(llama3l, 0.2, {80, 0.929}, {60, 7.980}, {40, 15.139});
  MEETS(mlp8, 0.2, {80, 2.697}, {60, 5.913}, {40, 13.267}, {30, 16.753});
  MEETS(mlp12, 0.5, {80, 2.188}, {60, 4.461}, {40, 9.440}, {30, 13.633});
  MEETS(unet1, 0.5, {80, 2.961}, {60, 6.887}, {40, 18.384});
  MEETS(unet2, 0.2, {80, 2.535}, {60, 5.789}, {40, 13.693});
  MEETS(unet3, 0.5, {80, 2.051}, {60, 5.645}, {40, 15.453});
  MEETS(resnet3, 0.2, {80, 3.634}, {60, 7.587}, {40, 14.061});
  MEETS(resnet4, 0.2, {80, 2.890}, {60, 6.196}, {40, 11.413});
  arena_free(a);
}

/* The layered programme alone; each within 0.1 points of a lower bound. */
static void transformers(void **state) {
  (void)state;
  Arena *a = arena_new();
  RecProblem gpt2 = transformer(a, (Transformer){12, 768, 12, 1024, 16, 50304, 0, false});
  RecProblem llama1 = transformer(a, (Transformer){32, 4096, 32, 2048, 1, 32000, 11008, true});
  RecProblem llama4 = transformer(a, (Transformer){32, 4096, 32, 2048, 4, 32000, 11008, true});
  MEETS(gpt2, 0, {80, 2.24}, {60, 5.26}, {40, 10.10}, {30, 12.48});
  MEETS(llama1, 0, {80, 0.93}, {60, 5.75}, {40, 13.35}, {30, 17.29});
  MEETS(llama4, 0, {80, 0.81}, {60, 5.65}, {40, 13.32}, {30, 17.22});
  arena_free(a);
}

/* Not stacks of layers. */
static void convolutions(void **state) {
  (void)state;
  Arena *a = arena_new();
  RecProblem resnet50 = resnet(a, 128, 4, (Stage[]){{3, 64}, {4, 128}, {6, 256}, {3, 512}});
  RecProblem unet4 = unet(a, 16, 256, 4, 64, 2);
  MEETS(resnet50, 0.5, {80, 2.53}, {60, 6.06}, {40, 12.00});
  MEETS(unet4, 0.5, {80, 1.63}, {60, 3.70}, {40, 10.00});
  arena_free(a);
}

static void any_graph(void **state) {
  (void)state;
  uint64_t rng = 4242;
  for (int round = 0; round < 60; round++) {
    Arena *a = arena_new();
    RecProblem p = random_problem(a, &rng, 4 + random_below(&rng, 40), 1 + random_below(&rng, 6));
    RecFront f = recompute_front(a, &p, &(RecOptions){.effort = round % 2 ? 0.02 : 0});
    sorted_and_valid(a, &p, &f, 1);
    arena_free(a);
  }
}

static void same_twice(void **state) {
  (void)state;
  uint64_t rng = 99;
  Arena *a = arena_new();
  for (int round = 0; round < 4; round++) {
    RecProblem p = random_problem(a, &rng, 40, 5);
    RecFront f = recompute_front(a, &p, &(RecOptions){.effort = 0.05});
    RecFront g = recompute_front(a, &p, &(RecOptions){.effort = 0.05});
    assert_int_equal(f.n, g.n);
    for (int i = 0; i < f.n; i++) {
      assert_int_equal(f.at[i].peak, g.at[i].peak);
      assert_int_equal(f.at[i].ns, g.at[i].ns);
      recompute_trace(a, &p, &f.at[i]);
      recompute_trace(a, &p, &g.at[i]);
      assert_int_equal(f.at[i].ntrace, g.at[i].ntrace);
      assert_memory_equal(f.at[i].trace, g.at[i].trace, sizeof(int) * (size_t)f.at[i].ntrace);
    }
  }
  arena_free(a);
}

typedef struct {
  RecProblem problem;
  RecSegments *segments;
  Arena *arena;
  RecFront front;
} Sharing;

static void *solve_sharing(void *arg) {
  Sharing *x = arg;
  x->front = recompute_front(x->arena, &x->problem, &(RecOptions){.segments = x->segments});
  return NULL;
}

/* Problems that are solved at the same time and share what they find get what each gets alone: stacks of the same layers, of
 * other layers, and the first once more. */
static void shared_segments(void **state) {
  (void)state;
  enum { PROBLEMS = 4 };
  static const Transformer of[PROBLEMS] = {{6, 768, 12, 1024, 16, 50304, 0, false},
                                           {8, 768, 12, 1024, 16, 50304, 0, false},
                                           {6, 768, 12, 1024, 8, 32000, 2048, true},
                                           {6, 768, 12, 1024, 16, 50304, 0, false}};
  RecSegments *segments = rec_segments_new();
  Sharing x[PROBLEMS];
  pthread_t thread[PROBLEMS];
  for (int i = 0; i < PROBLEMS; i++) {
    x[i] = (Sharing){.segments = segments, .arena = arena_new()};
    x[i].problem = transformer(x[i].arena, of[i]);
    assert_int_equal(pthread_create(&thread[i], NULL, solve_sharing, &x[i]), 0);
  }
  for (int i = 0; i < PROBLEMS; i++) {
    assert_int_equal(pthread_join(thread[i], NULL), 0);
    RecFront alone = recompute_front(x[i].arena, &x[i].problem, NULL);
    assert_int_equal(x[i].front.n, alone.n);
    for (int k = 0; k < alone.n; k++) {
      assert_int_equal(x[i].front.at[k].peak, alone.at[k].peak);
      assert_int_equal(x[i].front.at[k].ns, alone.at[k].ns);
    }
    sorted_and_valid(x[i].arena, &x[i].problem, &x[i].front, alone.n / 4 + 1);
  }
  for (int i = 0; i < PROBLEMS; i++) arena_free(x[i].arena);
  rec_segments_free(segments);
}

/* ---- exhaustive search: the least time within a budget over all schedules, forward rebuilds
 * included ---- */
enum { TINY_VALUES = 12 };

typedef struct {
  const RecProblem *p;
  int64_t budget;
  int64_t best[TINY_VALUES + 2]
              [1 << TINY_VALUES]; /* [next op][resident values]: least time so far, -1 none */
  bool done[TINY_VALUES + 2][1 << TINY_VALUES];
} Tiny;
static Tiny tiny;

/* Of the storage that v lies in. */
static int64_t storage_bytes(const RecProblem *p, int v) {
  for (int k = 0; k < p->nop; k++)
    if (p->op[k].alias >= 0 && p->op[k].out[0] == v) return storage_bytes(p, p->op[k].alias);
  return p->bytes[v];
}

static int64_t bytes_of(const RecProblem *p, int mask) {
  int64_t sum = 0;
  for (int v = 0; v < p->nval; v++)
    if (mask >> v & 1) sum += storage_bytes(p, v);
  return sum;
}

static void reach(int next, int mask, int64_t ns) {
  int64_t *b = &tiny.best[next][mask];
  if (*b < 0 || ns < *b) *b = ns;
}

/* Runs op k from `mask`, when its inputs are there and it fits; outputs that are still there are
 * written twice. */
static void run_op(int next, int mask, int64_t ns, int k) {
  const RecProblem *p = tiny.p;
  const RecOp *o = &p->op[k];
  int after = mask;
  int64_t twice = 0;
  for (int i = 0; i < o->nin; i++)
    if (!(mask >> o->in[i] & 1)) return;
  for (int i = 0; i < o->nout; i++) {
    if (mask >> o->out[i] & 1) twice += storage_bytes(p, o->out[i]);
    after |= 1 << o->out[i];
  }
  if (o->alias >= 0) after &= ~(1 << o->alias);
  if (bytes_of(p, after) + twice + o->ws > tiny.budget) return;
  reach(next + (k == next), after, ns + o->ns);
}

static int64_t exhaustive(const RecProblem *p, int64_t budget) {
  tiny.p = p;
  tiny.budget = budget;
  memset(tiny.best, -1, sizeof tiny.best);
  memset(tiny.done, 0, sizeof tiny.done);
  tiny.best[0][0] = 0;
  for (;;) {
    int next = -1, mask = 0;
    for (int k = 0; k <= p->nop; k++)
      for (int m = 0; m < 1 << p->nval; m++)
        if (!tiny.done[k][m] && tiny.best[k][m] >= 0 &&
            (next < 0 || tiny.best[k][m] < tiny.best[next][mask])) {
          next = k;
          mask = m;
        }
    if (next < 0) return -1;
    int64_t ns = tiny.best[next][mask];
    if (next == p->nop) return ns;
    tiny.done[next][mask] = true;
    for (int v = 0; v < p->nval; v++)
      if (mask >> v & 1 && !(p->keep && p->keep[v])) reach(next, mask & ~(1 << v), ns);
    for (int k = 0; k <= next; k++)
      if (k == next || (p->op[k].redo && !p->op[k].bwd)) run_op(next, mask, ns, k);
  }
}

/* No plan may beat the optimum over all schedules - that would be a fault of the accounting - and
 * most reach it. */
static void tiny_graphs(void **state) {
  (void)state;
  uint64_t rng = 31337;
  int reached = 0, all = 0;
  for (int round = 0; round < 60; round++) {
    Arena *a = arena_new();
    RecProblem p = random_problem(a, &rng, 5 + random_below(&rng, 4), 2);
    if (p.nval > 9) {
      arena_free(a);
      continue;
    }
    RecFront f = recompute_front(a, &p, &(RecOptions){.effort = 0.02});
    for (int percent = 60; percent < 100; percent += 15) {
      int64_t budget = f.at[0].peak * percent / 100, best = exhaustive(&p, budget);
      const RecPlan *plan = select_plan(&f, budget);
      assert_true(!plan || (best >= 0 && plan->ns >= best));
      if (best < 0) continue;
      all++;
      reached += plan && plan->ns == best;
    }
    arena_free(a);
  }
  assert_true(all > 20);
  if (reached * 10 < all * 8) fail_msg("%d of %d optima reached", reached, all);
}

/* ---- the check must be able to say no ---- */
static RecProblem chain_problem(Arena *a) {
  Maker g = {.a = a};
  int x = maker_op(&g, "a", NO_INS, OUTS(100), traffic(0), 0, false);
  int y = maker_op(&g, "b", INS(x), OUTS(200), traffic(0), 0, false);
  int z = maker_op(&g, "c", INS(y), OUTS(200), traffic(0), 0, true);
  g.bwd = true;
  g.layer = 1;
  int d = maker_op(&g, "d", INS(z), OUTS(50), traffic(0), 10, false);
  maker_op(&g, "e", INS(d, x), NO_OUTS, traffic(0), 0, false);
  return maker_problem(&g);
}

static void refuses(const RecProblem *p, Arena *a, const int *trace, int n, int64_t peak,
                    int64_t ns, const char *part) {
  RecPlan plan = {.peak = peak, .ns = ns, .ntrace = n, .trace = (int *)trace};
  const char *why = NULL;
  bool ok = recompute_check(p, &plan, a, &why);
  if (!part) {
    if (!ok) fail_msg("refused: %s", why);
    return;
  }
  assert_false(ok);
  if (!strstr(why, part)) fail_msg("`%s` does not say `%s`", why, part);
}
#define REFUSES(peak, ns, part, ...) \
  refuses(&p, a, (const int[]){__VA_ARGS__}, COUNT_OF(((const int[]){__VA_ARGS__})), peak, ns, part)

static void check_refuses(void **state) {
  (void)state;
  enum { NS = 5 * LAUNCH_NS };
  Arena *a = arena_new();
  RecProblem p = chain_problem(a);
  REFUSES(360, NS, NULL, 0, 1, 2, 3, 4);
  REFUSES(300, NS + LAUNCH_NS, NULL, 0, 1, 2, 3, 0, 4); /* x twice, not held between */
  REFUSES(359, NS, "peak", 0, 1, 2, 3, 4);
  REFUSES(360, NS - 1, "peak", 0, 1, 2, 3, 4);
  REFUSES(360, NS, "does not run", 0, 1, 2, 3);
  REFUSES(360, NS, "before its time", 0, 2, 1, 3, 4);
  REFUSES(360, NS + LAUNCH_NS, "runs twice", 0, 1, 2, 3, 3, 4);
  REFUSES(360, NS + LAUNCH_NS, "overwritten", 0, 1, 2, 2, 3, 4);
  REFUSES(360, NS, "no op", 0, 1, 2, 3, 4, 5);
  arena_free(a);
}

static void nothing_to_drop(void **state) {
  (void)state;
  Arena *a = arena_new();
  Maker g = {.a = a, .bwd = true};
  int x = maker_op(&g, "a", NO_INS, OUTS(100), traffic(0), 7, false);
  maker_op(&g, "b", INS(x), NO_OUTS, traffic(0), 0, false);
  RecProblem p = maker_problem(&g);
  RecFront f = recompute_front(a, &p, NULL);
  assert_int_equal(f.n, 1);
  assert_int_equal(f.floor, 107);
  sorted_and_valid(a, &p, &f, 1);
  arena_free(a);
}

/* More budget is never slower, and what a budget gets does not depend on which budgets were asked
 * before. */
static void monotone(void **state) {
  (void)state;
  Arena *a = arena_new();
  RecProblem p = unet(a, 16, 128, 2, 64, 2);
  RecFront f = recompute_front(a, &p, &(RecOptions){.effort = 0.05});
  int64_t last = INT64_MAX;
  for (int i = 0; i <= 64; i++) {
    int64_t budget = f.floor + (f.at[0].peak - f.floor) * i / 64;
    const RecPlan *plan = select_plan(&f, budget);
    assert_non_null(plan);
    assert_true(plan->peak <= budget);
    assert_true(plan->ns <= last);
    last = plan->ns;
  }
  assert_null(select_plan(&f, f.floor - 1));
  arena_free(a);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(check_refuses), cmocka_unit_test(nothing_to_drop),
      cmocka_unit_test(any_graph),     cmocka_unit_test(same_twice),
      cmocka_unit_test(tiny_graphs),   cmocka_unit_test(monotone),
      cmocka_unit_test(transformers),  cmocka_unit_test(convolutions),
      cmocka_unit_test(small_optima),  cmocka_unit_test(shared_segments),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
