/* test_joint.c - training graphs: micro-batches add up to the batch, simplify, remat and fusion
 * change no bit, the same variables for every choice, evaluation and sampling say what forward
 * says. */
#include "train_case.h"

static const Override f32[] = {{"precision.compute", "f32"}};
static const Override drop[] = {{"precision.compute", "f32"}, {"drop", "0.2"}};

static TrainGraphs graphs_of(const Job *job, Arena *a, int64_t micro, int chunks) {
  TrainGraphs t =
      train_graphs(job, a, &(GraphChoice){.phase = 0, .micro_batch = micro, .chunks = chunks});
  assert_non_null(t.micro);
  assert_non_null(t.update);
  return t;
}

/* ---- micro-batches ---- */

static void check_split(const char *model, int nset, const Override *set) {
  Arena *a = arena_new();
  Job *job = tiny_job(a, model, nset, set);
  Graph *whole = graphs_of(job, a, 4, 1).micro, *half = graphs_of(job, a, 2, 1).micro,
        *one = graphs_of(job, a, 1, 1).micro;
  double **x = tiny_vars(a, job), **y = tiny_vars(a, job), **z = tiny_vars(a, job);
  tiny_run(a, job, whole, x, true, 0, 4, 4);
  for (int i = 0; i < 4; i += 2) tiny_run(a, job, half, y, true, i, 2, 4);
  for (int i = 0; i < 4; i++) tiny_run(a, job, one, z, true, i, 1, 4);
  assert_vars(job, x, y, ACCUMS, 1e-11);
  assert_vars(job, x, z, ACCUMS, 1e-11);
  double loss = x[var_find(job->vars, "metric.loss")][0];
  assert_true(loss > 1 && loss < 10);
  arena_free(a);
}

static void splits_gpt2(void **state) {
  (void)state;
  check_split("gpt2", 1, f32);
}
static void splits_dropout(void **state) {
  (void)state;
  check_split("gpt2", 2, drop);
}
static void splits_llama(void **state) {
  (void)state;
  check_split("llama", 1, f32);
}

/* ---- early squares ---- */

/* Two micro-batches and an update. */
static double **one_step(const Job *job, Arena *a, const TrainGraphs *t) {
  double **x = tiny_vars(a, job);
  for (int i = 0; i < 4; i += 2) tiny_run(a, job, t->micro, x, true, i, 2, 4);
  tiny_run(a, job, t->update, x, true, 0, 2, 4);
  return x;
}

/* The same step bit for bit, and an update that reads each accumulator once. */
static void check_squares(const char *model, int chunks) {
  Arena *a = arena_new();
  Job *job = tiny_job(a, model, 0, NULL);
  GraphChoice c = {.micro_batch = 2, .chunks = chunks, .early_squares = true};
  TrainGraphs early = train_graphs(job, a, &c), plain = graphs_of(job, a, 2, chunks);
  assert_vars(job, one_step(job, a, &plain), one_step(job, a, &early),
              ALL_KEPT & ~(1U << VAR_METRIC), 0);
  int *reads = arena_array(a, int, job->vars->all.n + 1);
  for (NodeId n = 0; n < early.update->nodes.n; n++) {
    const Node *x = node_at(early.update, n);
    if (x->op != OP_VAR || job->vars->all.at[x->ints[0]].role != VAR_ACCUM) continue;
    const Uses u = graph_uses(early.update, a);
    for (int k = u.first[x->out]; k < u.first[x->out + 1]; k++) reads[x->ints[0]]++;
  }
  for (int i = 0; i < job->vars->all.n; i++)
    if (job->vars->all.at[i].role == VAR_ACCUM) assert_in_range(reads[i], 1, 2);
  arena_free(a);
}

static void squares_tied(void **state) {
  (void)state;
  check_squares("gpt2", 5);
}
static void squares_untied(void **state) {
  (void)state;
  check_squares("llama", 1);
}

/* ---- groups of micro-batches ---- */

/* A group against its members one after another: the same additions to each accumulator but those of tied weights, whose
 * parts come use by use. */
static void check_group(const char *model, int nset, const Override *set, int chunks, bool tied) {
  Arena *a = arena_new();
  Job *job = tiny_job(a, model, nset, set);
  TrainGraphs one = graphs_of(job, a, 1, chunks);
  for (int members = 2; members <= 4; members += 2) {
    GraphChoice c = {.micro_batch = 4, .chunks = chunks, .group = members};
    if (members == 2) one = graphs_of(job, a, 2, chunks);
    if (members == 4) one = graphs_of(job, a, 1, chunks);
    TrainGraphs all = train_graphs(job, a, &c);
    double **x = tiny_vars(a, job), **y = tiny_vars(a, job);
    for (int i = 0; i < 4; i += 4 / members) {
      tiny_run(a, job, one.micro, x, false, i, 4 / members, 4);
      tiny_run(a, job, one.eval, x, false, i, 4 / members, 4);
    }
    tiny_run(a, job, all.micro, y, false, 0, 4, 4);
    tiny_run(a, job, all.eval, y, false, 0, 4, 4);
    int other = tied ? var_find(job->vars, "wte.w:grad") : -1;
    assert_true(!tied || other >= 0);
    for (int i = 0; i < job->vars->all.n; i++) {
      const Var *v = &job->vars->all.at[i];
      if (!(ACCUMS >> v->role & 1) || !x[i]) continue;
      int64_t n = shape_count(&v->shape);
      if (i == other)
        assert_true(tiny_difference(x[i], y[i], n) < 1e-6);
      else if (memcmp(x[i], y[i], sizeof(double) * (size_t)n))
        fail_msg("`%s` has other bits", v->path);
    }
    assert_true(x[var_find(job->vars, "metric.loss")][0] > 1);
  }
  arena_free(a);
}

static void group_gpt2(void **state) {
  (void)state;
  check_group("gpt2", 2, drop, 1, true);
  check_group("gpt2", 2, drop, 3, true);
}
static void group_llama(void **state) {
  (void)state;
  check_group("llama", 1, f32, 1, false);
  check_group("llama", 0, NULL, 2, false);
}
static void group_rounds_at_random(void **state) {
  (void)state;
  static const Override accum[] = {{"precision.accum", "bf16"}};
  check_group("llama", 1, accum, 1, false);
}

/* The forward, and later the backward, of a layer is done for all members before the next layer begins. */
static void group_by_layers(void **state) {
  (void)state;
  Arena *a = arena_new();
  Job *job = tiny_job(a, "llama", 0, NULL);
  GraphChoice c = {.micro_batch = 4, .chunks = 1, .group = 4, .micro_only = true};
  Graph *g = train_graphs(job, a, &c).micro;
  Clusters cl = fuse_graph(g, a);
  int first[4][4], last[4][4], made[4] = {0}; /* of backward, by layer and member */
  memset(first, -1, sizeof first);
  memset(last, -1, sizeof last);
  for (int i = 0; i < cl.n; i++) {
    const Cluster *x = &cl.at[i];
    if (!x->member) continue;
    made[x->member - 1]++;
    if (x->phase == PH_FORWARD) continue;
    assert_in_range(x->layer, 0, 3); /* embedding, two layers, head */
    if (first[x->layer][x->member - 1] < 0) first[x->layer][x->member - 1] = i;
    last[x->layer][x->member - 1] = i;
  }
  for (int m = 0; m < 4; m++) {
    assert_true(made[m] > 40);
    for (int k = 0; k < 4; k++) {
      assert_in_range(first[1][k], last[2][m] + 1, cl.n);
      assert_in_range(first[0][k], last[1][m] + 1, cl.n);
    }
    for (int layer = 0; layer < 2 && m > 0; layer++)
      assert_in_range(first[layer][m], last[layer][m - 1] + 1, cl.n);
  }
  arena_free(a);
}

/* ---- chunks ---- */

static void check_chunks(const char *model, int nset, const Override *set) {
  Arena *a = arena_new();
  Job *job = tiny_job(a, model, nset, set);
  TrainGraphs t = graphs_of(job, a, 2, 1);
  double **x = tiny_vars(a, job);
  tiny_run(a, job, t.micro, x, true, 0, 2, 2);
  tiny_run(a, job, t.eval, x, true, 0, 2, 2);
  static const int chunks[] = {2, 5, 12};
  for (int i = 0; i < COUNT_OF(chunks); i++) {
    t = graphs_of(job, a, 2, chunks[i]);
    int most = 0;
    for (NodeId n = 0; n < t.micro->nodes.n; n++)
      if (node_at(t.micro, n)->chunk > most) most = node_at(t.micro, n)->chunk;
    assert_int_equal(most, chunks[i]);
    double **y = tiny_vars(a, job);
    tiny_run(a, job, t.micro, y, true, 0, 2, 2);
    tiny_run(a, job, t.eval, y, true, 0, 2, 2);
    assert_vars(job, x, y, ACCUMS, 1e-12);
  }
  arena_free(a);
}

static void chunks_tied(void **state) {
  (void)state;
  check_chunks("gpt2", 1, f32);
}
static void chunks_untied(void **state) {
  (void)state;
  check_chunks("llama", 1, f32);
}

/* ---- exact passes ---- */

/* Every graph of a job, fused and run cluster by cluster, gives the bits of the graph as it was. */
static void check_fused(const char *model, int nset, const Override *set, int chunks, bool apart) {
  Arena *a = arena_new();
  Job *job = tiny_job(a, model, nset, set);
  TrainGraphs t = graphs_of(job, a, 2, chunks);
  double **x = tiny_vars(a, job), **y = tiny_vars(a, job);
  Graph *all[] = {t.micro, t.update, t.eval, t.sample};
  for (int i = 0; i < 4; i++) {
    if (!all[i]) continue;
    double **before = tiny_run(a, job, all[i], x, false, 0, 2, 2);
    ValueId logits = i == 3 ? all[i]->results.at[0] : -1;
    Clusters c = apart ? fuse_graph_apart(all[i], a) : fuse_graph(all[i], a);
    const char *why = fuse_verify(&c, a);
    if (why) fail_msg("%s: %s", all[i]->name, why);
    Graph *g = in_cluster_order(&c, a);
    assert_null(graph_verify(g, a));
    double **after = tiny_run(a, job, g, y, false, 0, 2, 2);
    assert_vars(job, x, y, ALL_KEPT, 0);
    if (logits >= 0)
      assert_memory_equal(before[logits], after[g->results.at[0]], sizeof(double) * TINY_V);
  }
  assert_true(x[var_find(job->vars, "opt.t")][0] == 1);
  arena_free(a);
}

static const Override bf16_drop[] = {{"precision.compute", "bf16"}, {"drop", "0.2"}};
static const Override f16[] = {{"precision.compute", "f16"}};

static void fused_gpt2(void **state) {
  (void)state;
  check_fused("gpt2", 1, f32, 1, false);
  check_fused("gpt2", 1, f32, 1, true);
}
static void fused_gpt2_bf16(void **state) {
  (void)state;
  check_fused("gpt2", 2, bf16_drop, 3, false);
  check_fused("gpt2", 2, bf16_drop, 3, true);
}
static void fused_llama(void **state) {
  (void)state;
  check_fused("llama", 1, f32, 2, false);
  check_fused("llama", 1, f32, 2, true);
}
static void fused_llama_f16(void **state) {
  (void)state;
  check_fused("llama", 1, f16, 1, false);
  check_fused("llama", 1, f16, 1, true);
}

/* ---- variables ---- */

static void same_variables(void **state) {
  (void)state;
  Arena *a = arena_new();
  Job *job = tiny_job(a, "gpt2", 0, NULL);
  graphs_of(job, a, 1, 1);
  int n = job->vars->all.n;
  Str before = {.arena = a}, after = {.arena = a};
  for (int i = 0; i < n; i++)
    str_addf(&before, "%s %d\n", job->vars->all.at[i].path, job->vars->all.at[i].dtype);
  graphs_of(job, a, 4, 3);
  assert_int_equal(job->vars->all.n, n);
  for (int i = 0; i < n; i++)
    str_addf(&after, "%s %d\n", job->vars->all.at[i].path, job->vars->all.at[i].dtype);
  assert_string_equal(before.text, after.text);
  arena_free(a);
}

/* ---- sampling ---- */

static int64_t largest(const Graph *g) {
  int64_t most = 0;
  for (NodeId n = 0; n < g->nodes.n; n++) {
    const Node *x = node_at(g, n);
    if (x->op == OP_DOT && shape_count(&val(g, x->out)->shape) > most)
      most = shape_count(&val(g, x->out)->shape);
  }
  return most;
}

static void sample_row(void **state) {
  (void)state;
  Arena *a = arena_new();
  Job *job = tiny_job(a, "gpt2", 1, f32);
  TrainGraphs t = graphs_of(job, a, 2, 1);
  assert_non_null(t.sample);
  const Value *row = val(t.sample, t.sample->results.at[0]);
  assert_int_equal(row->shape.rank, 1);
  assert_int_equal(row->shape.dim[0], TINY_V);
  assert_int_equal(row->dtype, DT_F32);
  assert_true(largest(t.sample) <
              TINY_T * 4 * 16 + 1); /* the widest product is an MLP's, not the whole head's */
  double **vars = tiny_vars(a, job);
  Graph *all = job_graph(job, a, FN_FORWARD, 0, 1);
  double *logits = tiny_run(a, job, all, vars, true, 0, 1, 1)[all->results.at[0]];
  for (int at = 0; at < TINY_T; at++) {
    tiny_scalar(job, vars, "step.position", at);
    double *one = tiny_run(a, job, t.sample, vars, true, 0, 1, 1)[t.sample->results.at[0]];
    assert_true(tiny_difference(logits + at * TINY_V, one, TINY_V) < 1e-12);
  }
  arena_free(a);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(splits_gpt2),     cmocka_unit_test(splits_dropout),
      cmocka_unit_test(splits_llama),
      cmocka_unit_test(squares_tied),
      cmocka_unit_test(squares_untied),
      cmocka_unit_test(group_gpt2),
      cmocka_unit_test(group_llama),
      cmocka_unit_test(group_rounds_at_random),
      cmocka_unit_test(group_by_layers),
      cmocka_unit_test(chunks_tied),
      cmocka_unit_test(chunks_untied),   cmocka_unit_test(fused_gpt2),
      cmocka_unit_test(fused_gpt2_bf16), cmocka_unit_test(fused_llama),
      cmocka_unit_test(fused_llama_f16), cmocka_unit_test(same_variables),
      cmocka_unit_test(sample_row),      cmocka_unit_test(squares_tied),
      cmocka_unit_test(squares_untied),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
