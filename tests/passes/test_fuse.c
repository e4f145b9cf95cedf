/* test_fuse.c - clusters: how many a block takes and what they are, that random graphs keep their
 * bits and every invariant, and that the verifier sees what is broken. */
#include "random_graph.h"

#include "passes/remat.h"
#include "passes/simplify.h"
#include "passes/storage.h"

/* ---- random graphs ---- */

static void random_graphs(void **state) {
  (void)state;
  for (uint64_t seed = 1; seed <= 400; seed++) {
    Arena *a = arena_new();
    Graph *g = random_graph(a, seed, 20 + (int)(seed % 60));
    const char *why = graph_verify(g, a);
    if (why) fail_msg("seed %d: %s", (int)seed, why);
    Graph *copy = arena_copy(a, g, sizeof *g);
    Clusters c = fuse_graph(copy, a);
    why = fuse_verify(&c, a);
    if (why) fail_msg("seed %d: %s", (int)seed, why);
    storage_map(&c, a); /* ends with bug() where storage cannot follow */
    assert_same_run(a, g, in_cluster_order(&c, a));
    arena_free(a);
  }
}

static void random_simplified(void **state) {
  (void)state;
  for (uint64_t seed = 1000; seed <= 1400; seed++) {
    Arena *a = arena_new();
    Graph *g = random_graph(a, seed, 60);
    Graph *s = graph_simplify(g, a, false);
    const char *why = graph_verify(s, a);
    if (why) fail_msg("seed %d: %s", (int)seed, why);
    assert_true(s->nodes.n <= g->nodes.n);
    assert_same_run(a, g, s);
    Graph *r = graph_remat(s, a);
    assert_null(graph_verify(r, a));
    assert_same_run(a, s, r);
    Clusters c = fuse_graph(r, a);
    why = fuse_verify(&c, a);
    if (why) fail_msg("seed %d: %s", (int)seed, why);
    assert_same_run(a, s, in_cluster_order(&c, a));
    arena_free(a);
  }
}

/* ---- blocks ---- */

typedef struct {
  int loops, gemms, attention, scatters;
} Count;

static Count count_layer(const Clusters *c, int layer, Phase phase) {
  Count n = {0};
  for (int i = 0; i < c->n; i++) {
    const Cluster *x = &c->at[i];
    if (x->layer != layer || x->phase != phase) continue;
    n.loops += x->kind == CL_LOOP;
    n.gemms += x->kind == CL_GEMM;
    n.attention += x->kind == CL_ATTENTION || x->kind == CL_ATTENTION_BWD;
    n.scatters += x->kind == CL_SCATTER;
  }
  return n;
}

static Clusters micro_of(Arena *a, Job **job, const char *model, int nset, const Override *set,
                         int chunks) {
  *job = tiny_job(a, model, nset, set);
  TrainGraphs t = train_graphs(*job, a, &(GraphChoice){.micro_batch = 2, .chunks = chunks});
  assert_non_null(t.micro);
  return fuse_graph(t.micro, a);
}

static const Cluster *find_cluster(const Clusters *c, const char *name) {
  for (int i = 0; i < c->n; i++)
    if (!strcmp(c->at[i].name, name)) return &c->at[i];
  fail_msg("no cluster `%s`", name);
  return NULL;
}

static const Override three[] = {{"L", "3"}, {"precision.compute", "bf16"}};

static void gpt2_block(void **state) {
  (void)state;
  Arena *a = arena_new();
  Job *job;
  Clusters c = micro_of(a, &job, "gpt2", 2, three, 1);
  /* Forward of a layer: bias of qkv; bias, residual and norm; bias and gelu; bias, residual and the
   * next norm. */
  Count n = count_layer(&c, 2, PH_FORWARD);
  assert_int_equal(n.gemms, 4);
  assert_int_equal(n.attention, 1);
  assert_true(n.loops <= 4);
  /* Backward: gelu, two norms, the sum of dqkv. Vectors are accumulated in second stages. */
  n = count_layer(&c, 2, PH_BACKWARD);
  assert_int_equal(n.gemms, 8);
  assert_int_equal(n.attention, 1);
  assert_true(n.loops <= 4);
  arena_free(a);
}

static void llama_block(void **state) {
  (void)state;
  Arena *a = arena_new();
  Job *job;
  Clusters c = micro_of(a, &job, "llama", 2, three, 1);
  Count n = count_layer(&c, 2, PH_FORWARD);
  assert_int_equal(n.gemms, 7);
  assert_true(n.loops <= 5); /* two ropes, silu, two residuals with their norms */
  n = count_layer(&c, 2, PH_BACKWARD);
  assert_int_equal(n.gemms, 14);
  assert_true(n.loops <= 5);
  arena_free(a);
}

static bool stores(const Clusters *c, const Cluster *x, int rank, DType t) {
  for (int k = 0; k < x->nout; k++) {
    const Value *v = val(c->g, x->out[k]);
    if (v->shape.rank == rank && v->dtype == t) return true;
  }
  return false;
}

/* A norm's backward is one kernel: dx and the sums of dgamma and dbeta; nothing wider than bf16 is
 * saved per element. */
static void norm_backward(void **state) {
  (void)state;
  Arena *a = arena_new();
  Job *job;
  Clusters c = micro_of(a, &job, "gpt2", 2, three, 1);
  const Cluster *f = find_cluster(&c, "h.1.ln_2.layernorm"),
                *b = find_cluster(&c, "h.1.ln_2.layernorm.bwd");
  assert_int_equal(f->outer, 2);
  assert_false(stores(&c, f, 3, DT_F32));
  assert_true(stores(&c, f, 2, DT_F32)); /* row statistics */
  assert_true(stores(&c, b, 3, DT_BF16) && stores(&c, b, 1, DT_F32));
  assert_false(stores(&c, b, 3, DT_F32));
  const Cluster *gelu = find_cluster(&c, "h.1.gelu");
  assert_int_equal(gelu->nout, 1);
  arena_free(a);
}

/* Apart: the norm reads the residual stream and its own weights, nothing that was made before it.
 */
static void norm_apart(void **state) {
  (void)state;
  Arena *a = arena_new();
  Job *job = tiny_job(a, "gpt2", 2, three);
  Graph *g[2];
  for (int i = 0; i < 2; i++)
    g[i] = train_graphs(job, a, &(GraphChoice){.micro_batch = 2, .chunks = 1}).micro;
  Clusters joined = fuse_graph(g[0], a), apart = fuse_graph_apart(g[1], a);
  assert_null(fuse_verify(&apart, a));
  assert_int_equal(find_cluster(&joined, "h.1.ln_2.layernorm")->nin, 5);
  const Cluster *norm = find_cluster(&apart, "h.1.ln_2.layernorm");
  assert_int_equal(norm->nin, 3);
  assert_int_equal(apart.n - joined.n, 2 * 3); /* the last norm's input is not kept */
  arena_free(a);
}

/* Loss and gradient of a chunk are one row kernel over its logits, and chunks follow one another.
 */
static void loss_head(void **state) {
  (void)state;
  Arena *a = arena_new();
  Job *job;
  Clusters c = micro_of(a, &job, "gpt2", 2, three, 4);
  const Cluster *ce = find_cluster(&c, "cross_entropy.bwd#2");
  assert_int_equal(ce->kind, CL_LOOP);
  assert_int_equal(ce->outer, 1);
  assert_int_equal(ce->nout, 2);
  assert_true(stores(&c, ce, 1, DT_F32) && stores(&c, ce, 2, DT_BF16));
  int last = 0, most = 0;
  for (int i = 0; i < c.n; i++) {
    if (!c.at[i].chunk) continue;
    assert_true(c.at[i].chunk >= last);
    last = c.at[i].chunk;
    if (last > most) most = last;
  }
  assert_int_equal(most, 4);
  int accumulating = 0;
  for (int i = 0; i < c.n; i++)
    accumulating += c.at[i].chunk && c.at[i].kind == CL_GEMM && c.at[i].accumulate;
  assert_int_equal(accumulating, 4);
  arena_free(a);
}

/* Weight gradients: products straight into the accumulators, ids straight into the table's. */
static void accumulations(void **state) {
  (void)state;
  Arena *a = arena_new();
  Job *job;
  Clusters c = micro_of(a, &job, "gpt2", 2, three, 1);
  for (int i = 0; i < job->vars->all.n; i++) {
    const Var *v = &job->vars->all.at[i];
    if (v->role != VAR_ACCUM || v->shape.rank != 2 || str_starts(v->path, "wpe")) continue;
    int times = 0;
    for (int k = 0; k < c.n; k++)
      for (int o = 0; o < c.at[k].nout; o++)
        if (c.at[k].out_var[o] == i) {
          assert_true(c.at[k].accumulate);
          assert_int_equal(c.at[k].nnodes, 3);
          times++;
        }
    assert_int_equal(times, str_starts(v->path, "wte") ? 2 : 1);
  }
  arena_free(a);
}

/* No copy kernels in a transformer: parts of qkv are written where they belong. */
static void no_copies(void **state) {
  (void)state;
  static const char *const models[] = {"gpt2", "llama"};
  for (int m = 0; m < 2; m++) {
    Arena *a = arena_new();
    Job *job;
    Clusters c = micro_of(a, &job, models[m], 2, three, 2);
    for (int i = 0; i < c.n; i++) {
      bool work = c.at[i].kind != CL_LOOP;
      for (int k = 0; k < c.at[i].nnodes; k++) {
        Op op = node_at(c.g, c.at[i].nodes[k])->op;
        work |= op != OP_HOLD && op != OP_ASSIGN && op_kind(op) != VIEW;
      }
      if (!work) fail_msg("`%s` only copies", c.at[i].name);
    }
    arena_free(a);
  }
}

/* ---- the verifier ---- */

static void expect_fault(Clusters *c, Arena *a, const char *what) {
  const char *why = fuse_verify(c, a);
  assert_non_null(why);
  if (!strstr(why, what)) fail_msg("\"%s\" does not say \"%s\"", why, what);
}

static void verifier(void **state) {
  (void)state;
  Arena *a = arena_new();
  Job *job;
  Clusters c = micro_of(a, &job, "gpt2", 1, three, 1);
  assert_null(fuse_verify(&c, a));
  Cluster *loop = (Cluster *)find_cluster(&c, "h.1.gelu"), saved = *loop;
  loop->nout = 0;
  expect_fault(&c, a, "not stored");
  *loop = saved;
  loop->nin--;
  expect_fault(&c, a, "no input");
  *loop = saved;
  loop->nnodes--;
  expect_fault(&c, a, "in no cluster");
  *loop = saved;
  Cluster *norm = (Cluster *)find_cluster(&c, "h.1.ln_2.layernorm");
  norm->outer = 1;
  expect_fault(&c, a, "reduces");
  norm->outer = 2;
  Cluster swap = c.at[3];
  c.at[3] = c.at[4];
  c.at[4] = swap;
  expect_fault(&c, a, "before it is computed");
  arena_free(a);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(random_graphs), cmocka_unit_test(random_simplified),
      cmocka_unit_test(gpt2_block),    cmocka_unit_test(llama_block),
      cmocka_unit_test(norm_backward), cmocka_unit_test(loss_head),
      cmocka_unit_test(norm_apart),    cmocka_unit_test(accumulations),
      cmocka_unit_test(no_copies),     cmocka_unit_test(verifier),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
