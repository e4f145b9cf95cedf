/* test_first.c - the first micro-batch of a step: no accumulator is read before it is written, the bits are those of adding to
 * zeros, and nothing else of the plan changes; the check finds a first micro-batch that is none. */
#include "train_case.h"
#include "passes/first.h"
#include "passes/storage.h"
#include "passes/timeline.h"

static const Override f32[] = {{"precision.compute", "f32"}};
static const Override bf16[] = {{"precision.compute", "bf16"}};
static const Override narrow[] = {{"precision.compute", "bf16"}, {"precision.accum", "bf16"}};

/* ---- clusters ---- */

/* Reads of accumulators that were not assigned, in order of execution. */
static int early_reads(const Clusters *c, Arena *a) {
  const Graph *g = in_cluster_order(c, a);
  bool *assigned = arena_array(a, bool, g->vars->all.n + 1);
  int n = 0;
  for (NodeId i = 0; i < g->nodes.n; i++) {
    const Node *x = node_at(g, i);
    if (x->op == OP_ASSIGN) assigned[x->ints[0]] = true;
    n += x->op == OP_VAR && g->vars->all.at[x->ints[0]].role == VAR_ACCUM && !assigned[x->ints[0]];
  }
  return n;
}

static void nan_accumulators(const Job *job, double **v) {
  for (int i = 0; i < job->vars->all.n; i++)
    for (int64_t k = 0; k < shape_count(&job->vars->all.at[i].shape); k++)
      if (job->vars->all.at[i].role == VAR_ACCUM) v[i][k] = NAN;
}

static void overwrites(const char *model, int nset, const Override *set, int chunks, bool early,
                       bool apart) {
  Arena *a = arena_new();
  Job *job = tiny_job(a, model, nset, set);
  GraphChoice choice = {.micro_batch = 2, .chunks = chunks, .early_squares = early};
  TrainGraphs t = train_graphs(job, a, &choice);
  Clusters micro = apart ? fuse_graph_apart(t.micro, a) : fuse_graph(t.micro, a);
  Clusters first = first_clusters(&micro, a);
  assert_true(early_reads(&micro, a) > 4);
  assert_int_equal(early_reads(&first, a), 0);
  assert_int_equal(first.n, micro.n);
  for (int i = 0; i < micro.n; i++) {
    assert_int_equal(first.at[i].kind, micro.at[i].kind);
    assert_int_equal(first.at[i].nout, micro.at[i].nout);
    assert_true(first.at[i].nin <= micro.at[i].nin);
  }
  for (int exact = 0; exact < 2; exact++) {
    double **x = tiny_vars(a, job), **y = tiny_vars(a, job);
    nan_accumulators(job, y);
    for (int i = 0; i < 4; i += 2) {
      tiny_run(a, job, in_cluster_order(&micro, a), x, exact, i, 2, 4);
      tiny_run(a, job, in_cluster_order(i ? &micro : &first, a), y, exact, i, 2, 4);
    }
    assert_vars(job, x, y, ALL_KEPT, 0);
  }
  arena_free(a);
}

static void tied_weights(void **state) {
  (void)state;
  overwrites("gpt2", 1, f32, 1, false, false);
  overwrites("gpt2", 1, bf16, 1, false, true);
}
static void chunks_of_the_loss(void **state) {
  (void)state;
  overwrites("gpt2", 1, bf16, 4, false, false);
  overwrites("llama", 1, f32, 4, true, true);
}
static void early_squares(void **state) {
  (void)state;
  overwrites("gpt2", 1, f32, 1, true, false);
  overwrites("llama", 1, bf16, 1, true, false);
}
static void narrow_accumulators(void **state) {
  (void)state;
  overwrites("gpt2", 2, narrow, 2, false, false);
  overwrites("llama", 2, narrow, 1, true, true);
}

/* ---- programs ---- */

/* The same units, and the same bytes alive at each step. */
static void traces_carry_over(void **state) {
  (void)state;
  Arena *a = arena_new();
  Job *job = tiny_job(a, "gpt2", 1, bf16);
  TrainGraphs t = train_graphs(job, a, &(GraphChoice){.micro_batch = 2, .chunks = 2});
  Clusters micro = fuse_graph(t.micro, a), first = first_clusters(&micro, a);
  StorageMap m = storage_map(&micro, a), f = storage_map(&first, a);
  assert_int_equal(f.nunits, m.nunits);
  for (int u = 0; u < m.nunits; u++) {
    assert_int_equal(f.unit[u].bytes, m.unit[u].bytes);
    assert_int_equal(f.unit[u].var, m.unit[u].var);
    assert_int_equal(f.unit[u].maker, m.unit[u].maker);
    if (m.unit[u].var < 0) assert_int_equal(f.unit[u].last, m.unit[u].last);
  }
  int *order = arena_array(a, int, micro.n);
  for (int i = 0; i < micro.n; i++) order[i] = i;
  Timeline x = timeline_run(&m, a, micro.n, order, false),
           y = timeline_run(&f, a, micro.n, order, false);
  assert_int_equal(x.n, y.n);
  for (int i = 0; i < x.n; i++) {
    assert_int_equal(x.at[i].first, y.at[i].first);
    assert_int_equal(x.at[i].last, y.at[i].last);
    assert_int_equal(x.at[i].takes, y.at[i].takes);
  }
  arena_free(a);
}

static const Override split[] = {{"train.batch", "seqs(8)"}, {"precision.compute", "f32"}};

static Plan *planned_at(Arena *a, int64_t micro_batch, int64_t host) {
  Job *job = tiny_job(a, "llama", COUNT_OF(split), split);
  PlanArgs args = {.target = target_by_name("cpu"),
                   .budget_bytes = INT64_MAX,
                   .recompute = -1,
                   .micro_batch = micro_batch,
                   .chunks = 1,
                   .host_bytes = host,
                   .check = true};
  FitPool *pool = fit_pool(job, a, &args);
  Plan *p = fit_within(pool, a, host ? fit_within(pool, a, 1).floor_bytes : INT64_MAX).plan;
  assert_non_null(p);
  return p;
}

static const PlanProgram *program_of(const Plan *p, int which) {
  int i = p->phases.at[0].programs[which];
  return i < 0 ? NULL : &p->programs.at[i];
}

/* Placed like the others, and a part of the step's time. */
static void a_step_is_a_first_and_others(void **state) {
  (void)state;
  Arena *a = arena_new();
  Plan *p = planned_at(a, 2, 0);
  const PlanProgram *micro = program_of(p, PROG_MICRO), *first = program_of(p, PROG_FIRST);
  assert_int_equal(first->nsteps, micro->nsteps);
  assert_int_equal(first->transient_bytes, micro->transient_bytes);
  assert_true(first->ns < micro->ns);
  assert_int_equal(p->phases.at[0].step_ns,
                   first->ns + 3 * micro->ns + program_of(p, PROG_UPDATE)->ns);
  for (int i = 0; i < first->ninputs; i++)
    assert_int_equal(p->bufs.at[first->inputs[i].at.buf].offset,
                     p->bufs.at[micro->inputs[i].at.buf].offset);
  arena_free(a);
}

/* Of one micro-batch there are no others. */
static void one_micro_batch_overwrites(void **state) {
  (void)state;
  Arena *a = arena_new();
  Plan *p = planned_at(a, 8, 0);
  assert_null(program_of(p, PROG_FIRST));
  const PlanProgram *micro = program_of(p, PROG_MICRO);
  assert_string_equal(micro->name, "micro");
  assert_int_equal(early_reads(&micro->clusters, a), 0);
  assert_int_equal(p->phases.at[0].step_ns, micro->ns + program_of(p, PROG_UPDATE)->ns);
  arena_free(a);
}

static int copies_of(const Plan *p, const PlanProgram *x, VarRole role, bool to_host) {
  int n = 0;
  for (int i = 0; i < x->ncopies; i++)
    n += x->copies[i].to_host == to_host &&
         p->job->vars->all.at[p->bufs.at[x->copies[i].host].var].role == role;
  return n;
}

/* Accumulators on the host: out of the first micro-batch, in and out of the others, into the update. */
static void host_accumulators_are_copied_out(void **state) {
  (void)state;
  Arena *a = arena_new();
  Plan *p = planned_at(a, 2, 1 << 30);
  const PlanProgram *micro = program_of(p, PROG_MICRO), *first = program_of(p, PROG_FIRST),
                    *update = program_of(p, PROG_UPDATE);
  assert_true(copies_of(p, micro, VAR_ACCUM, false) > 0);
  assert_int_equal(copies_of(p, first, VAR_ACCUM, false), 0);
  assert_int_equal(copies_of(p, first, VAR_ACCUM, true), copies_of(p, micro, VAR_ACCUM, true));
  assert_true(copies_of(p, update, VAR_ACCUM, false) > 0);
  assert_int_equal(copies_of(p, update, VAR_ACCUM, true), 0);
  arena_free(a);
}

/* ---- the check ---- */

static void the_check_knows_a_first(void **state) {
  (void)state;
  for (int64_t host = 0; host <= 1 << 30; host += 1 << 30) {
    Arena *a = arena_new();
    Plan *p = planned_at(a, 2, host);
    assert_null(plan_check(p, a));
    p->phases.at[0].programs[PROG_FIRST] = -1; /* the others' would begin the step */
    const char *why = plan_check(p, a);
    assert_non_null(why);
    if (!strstr(why, host ? "carries nothing" : "is read before the step has written it"))
      fail_msg("%s", why);
    arena_free(a);
  }
}

static void the_check_misses_an_accumulator(void **state) {
  (void)state;
  Arena *a = arena_new();
  Plan *p = planned_at(a, 2, 0);
  p->phases.at[0].programs[PROG_FIRST] =
      p->phases.at[0].programs[PROG_SAMPLE]; /* which writes none */
  const char *why = plan_check(p, a);
  assert_non_null(why);
  if (!strstr(why, "is left as the step before had it")) fail_msg("%s", why);
  arena_free(a);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(tied_weights),
      cmocka_unit_test(chunks_of_the_loss),
      cmocka_unit_test(early_squares),
      cmocka_unit_test(narrow_accumulators),
      cmocka_unit_test(traces_carry_over),
      cmocka_unit_test(a_step_is_a_first_and_others),
      cmocka_unit_test(one_micro_batch_overwrites),
      cmocka_unit_test(host_accumulators_are_copied_out),
      cmocka_unit_test(the_check_knows_a_first),
      cmocka_unit_test(the_check_misses_an_accumulator),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
