/* test_order.c - the order of clusters: weight gradients before data gradients, a chunk's backward
 * right after its forward, variables read before they are overwritten, and as the graph stands
 * otherwise. */
#include "train_case.h"

static const Override two[] = {{"precision.compute", "bf16"}};

static Clusters micro_of(Arena *a, const char *model, int chunks) {
  Job *job = tiny_job(a, model, 1, two);
  TrainGraphs t = train_graphs(job, a, &(GraphChoice){.micro_batch = 2, .chunks = chunks});
  return fuse_graph(t.micro, a);
}

static int place_of(const Clusters *c, const char *name) {
  for (int i = 0; i < c->n; i++)
    if (!strcmp(c->at[i].name, name)) return i;
  fail_msg("no cluster `%s`", name);
  return -1;
}

static void weights_first(void **state) {
  (void)state;
  Arena *a = arena_new();
  Clusters c = micro_of(a, "gpt2", 1);
  static const char *const layers[] = {"c_attn", "c_proj", "c_fc", "m_proj"};
  for (int l = 0; l < 2; l++)
    for (int i = 0; i < COUNT_OF(layers); i++) {
      const char *dw = arena_printf(a, "h.%d.%s.dw", l, layers[i]),
                 *dx = arena_printf(a, "h.%d.%s.dx", l, layers[i]);
      assert_true(place_of(&c, dw) < place_of(&c, dx));
      assert_true(place_of(&c, dx) - place_of(&c, dw) <= 2);
    }
  assert_true(place_of(&c, "h.1.c_attn.dx") < place_of(&c, "h.0.m_proj.dw"));
  arena_free(a);
}

/* Everything of one chunk stands together: logits, loss and dlogits, dw, dx. */
static void chunks_together(void **state) {
  (void)state;
  static const char *const models[] = {"gpt2", "llama"};
  for (int m = 0; m < 2; m++) {
    Arena *a = arena_new();
    Clusters c = micro_of(a, models[m], 4);
    int first[5], last[5], count[5] = {0};
    for (int i = 0; i < c.n; i++) {
      int k = c.at[i].chunk;
      if (!count[k]++) first[k] = i;
      last[k] = i;
    }
    for (int k = 1; k <= 4; k++) {
      assert_int_equal(count[k], 5);
      assert_int_equal(last[k] - first[k], 4);
      if (k > 1) assert_int_equal(first[k], last[k - 1] + 1);
    }
    arena_free(a);
  }
}

/* Forward goes layer by layer and backward back. */
static void layers(void **state) {
  (void)state;
  Arena *a = arena_new();
  Clusters c = micro_of(a, "llama", 1);
  int up = -1, down = 1000;
  for (int i = 0; i < c.n; i++) {
    if (c.at[i].kind != CL_GEMM || c.at[i].layer < 0) continue;
    if (c.at[i].phase == PH_FORWARD) {
      assert_true(c.at[i].layer >= up);
      up = c.at[i].layer;
    } else {
      assert_true(c.at[i].layer <= down);
      down = c.at[i].layer;
    }
  }
  arena_free(a);
}

/* Readers of the old value, whatever stands later in the graph, run before the assignment. */
static void old_values(void **state) {
  (void)state;
  Arena *a = arena_new();
  Graph *g = graph_new(a, "g", vars_new(a));
  int s = var_add(g->vars, (Var){.path = "s", .role = VAR_STATE, .shape = SHAPE(4, 6), .of = -1});
  int t = var_add(g->vars, (Var){.path = "t", .role = VAR_STATE, .shape = SHAPE(6, 4), .of = -1});
  ValueId x = g_input(g, "x", DT_F32, SHAPE(4, 6));
  ValueId turned = g_transpose(g, g_var(g, s), (int64_t[]){1, 0}); /* reads s where it lies */
  ValueId sum = g_reduce(g, OP_SUM, g_var(g, s), 1, (int64_t[]){0});
  g_assign(g, t, g_unary(g, OP_EXP, turned));
  graph_result(g, "sum", sum);
  g_assign(g, s, x);
  graph_result(g, "new", g_unary(g, OP_NEG, g_var(g, s)));
  Clusters c = fuse_graph(g, a);
  assert_null(fuse_verify(&c, a));
  int wrote = -1;
  for (int i = 0; i < c.n; i++)
    for (int k = 0; k < c.at[i].nout; k++)
      if (c.at[i].out_var[k] == s) wrote = i;
  for (int i = 0; i < c.n; i++)
    for (int k = 0; k < c.at[i].nnodes; k++) {
      Op op = node_at(c.g, c.at[i].nodes[k])->op;
      if (op == OP_EXP || op == OP_SUM) assert_true(i < wrote);
      if (op == OP_NEG) assert_true(i > wrote);
    }
  arena_free(a);
}

/* The same graph gives the same clusters, names included. */
static void deterministic(void **state) {
  (void)state;
  Arena *a = arena_new();
  Str text[2] = {{.arena = a}, {.arena = a}};
  for (int i = 0; i < 2; i++) {
    Clusters c = micro_of(a, "llama", 3);
    for (int k = 0; k < c.n; k++)
      str_addf(&text[i], "%s %d %d\n", c.at[k].name, c.at[k].nnodes, c.at[k].nodes[0]);
  }
  assert_string_equal(text[0].text, text[1].text);
  arena_free(a);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(weights_first), cmocka_unit_test(chunks_together), cmocka_unit_test(layers),
      cmocka_unit_test(old_values),    cmocka_unit_test(deterministic),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
