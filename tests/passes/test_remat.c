/* test_remat.c - what backward keeps of forward: the fewest bytes, nothing that takes long to make,
 * the same bits. */
#include "train_case.h"

#include "passes/maxflow.h"
#include "passes/remat.h"
#include "passes/simplify.h"

/* ---- minimum cuts ---- */

static void cut_small(void **state) {
  (void)state;
  Arena *a = arena_new();
  Flow *f = flow_new(a, 6);
  static const int edges[][3] = {{0, 1, 16}, {0, 2, 13}, {1, 2, 10}, {2, 1, 4},  {1, 3, 12},
                                 {3, 2, 9},  {2, 4, 14}, {4, 3, 7},  {3, 5, 20}, {4, 5, 4}};
  for (int i = 0; i < COUNT_OF(edges); i++) flow_edge(f, edges[i][0], edges[i][1], edges[i][2]);
  bool side[6];
  assert_int_equal(flow_min_cut(f, 0, 5, side), 23);
  assert_true(side[5] && side[3] && !side[0]);
  arena_free(a);
}

/* Against every subset of a random graph's vertices; of all minimum cuts the one nearest to the
 * sink is told. */
static void cut_brute_force(void **state) {
  (void)state;
  for (int seed = 0; seed < 200; seed++) {
    Arena *a = arena_new();
    enum { N = 7 };
    int64_t cap[N][N] = {{0}};
    Flow *f = flow_new(a, N);
    for (int i = 0; i < N; i++)
      for (int j = 0; j < N; j++) {
        double x = tiny_random((uint64_t)seed, (uint64_t)(i * N + j));
        if (i == j || x < 0) continue;
        cap[i][j] = (int64_t)(x * 5);
        flow_edge(f, i, j, cap[i][j]);
      }
    int64_t best = INT64_MAX;
    int smallest = 0;
    for (int set = 0; set < 1 << N; set++) { /* the sink's side */
      if (set & 1 || !(set >> (N - 1) & 1)) continue;
      int64_t cost = 0;
      for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++)
          if (!(set >> i & 1) && set >> j & 1) cost += cap[i][j];
      if (cost < best)
        smallest = set;
      else if (cost == best)
        smallest &= set;
      if (cost < best) best = cost;
    }
    bool side[N];
    assert_int_equal(flow_min_cut(f, 0, N - 1, side), best);
    for (int i = 0; i < N; i++) assert_int_equal(side[i], smallest >> i & 1);
    arena_free(a);
  }
}

/* ---- hand-made graphs ---- */

static bool forward_read_late(const Graph *g, NodeId n) {
  const Node *x = node_at(g, n);
  if (x->phase != PH_FORWARD || op_kind(x->op) == LEAF || x->op == OP_CONST) return false;
  for (NodeId r = n + 1; r < g->nodes.n; r++)
    for (int k = 0; k < node_at(g, r)->nin; k++)
      for (int o = 0; o < x->nout; o++)
        if (node_at(g, r)->phase == PH_BACKWARD && node_at(g, r)->in[k] == x->out + o) return true;
  return false;
}

/* Ops of the forward values that backward reads, in order: "tanh dot". */
static const char *kept(const Graph *g, Arena *a) {
  Str s = {.arena = a};
  for (NodeId n = 0; n < g->nodes.n; n++)
    if (forward_read_late(g, n)) str_addf(&s, "%s%s", s.len ? " " : "", op_name(node_at(g, n)->op));
  return s.text ? s.text : "";
}

typedef struct {
  Arena *a;
  Graph *g;
  ValueId x, w;
} Net;

static Net net(void) {
  Net n = {.a = arena_new()};
  n.g = graph_new(n.a, "micro", vars_new(n.a));
  int w = var_add(
      n.g->vars,
      (Var){.path = "w", .role = VAR_PARAM, .shape = SHAPE(8, 8), .trainable = true, .of = -1});
  n.x = g_input(n.g, "x", DT_F32, SHAPE(4, 8));
  n.w = g_var(n.g, w);
  return n;
}

/* Backward of a chain by hand: result = y * f, where f is the forward value that it reads. */
static const char *kept_for(Net *n, ValueId y, ValueId f) {
  Graph *g = n->g;
  ValueId out = g_matmul(
      g, y, n->w); /* forward goes on: its last product is the tail, whose operand is kept */
  out = g_matmul(g, g_unary(g, OP_TANH, out), n->w);
  g->here.phase = PH_BACKWARD;
  graph_result(g, "r", g_binary(g, OP_MUL, g_matmul(g, out, n->w), f));
  Graph *r = graph_remat(g, n->a);
  assert_null(graph_verify(r, n->a));
  return kept(r, n->a);
}

/* exp(dot) costs nothing to make again from the product, which is stored in any case. */
static void from_product(void **state) {
  (void)state;
  Net n = net();
  ValueId e = g_unary(n.g, OP_EXP, g_unary(n.g, OP_NEG, g_matmul(n.g, n.x, n.w)));
  assert_string_equal(kept_for(&n, g_unary(n.g, OP_TANH, e), e), "dot dot");
  arena_free(n.a);
}

/* Two products would have to be kept for one sum that forward stores itself: the sum is kept. */
static void sum_of_two(void **state) {
  (void)state;
  Net n = net();
  ValueId s =
      g_binary(n.g, OP_ADD, g_matmul(n.g, n.x, n.w), g_matmul(n.g, g_unary(n.g, OP_NEG, n.x), n.w));
  ValueId y = g_binary(n.g, OP_ADD, g_matmul(n.g, g_unary(n.g, OP_EXP, s), n.w), s);
  assert_string_equal(kept_for(&n, y, s), "add dot");
  arena_free(n.a);
}

/* Reductions are never run again; the row's number is kept, the row is made again from the input.
 */
static void keeps_statistics(void **state) {
  (void)state;
  Net n = net();
  ValueId m = g_reduce(n.g, OP_AMAX, n.x, 1, (int64_t[]){1});
  ValueId c = g_binary(n.g, OP_SUB, n.x, g_broadcast(n.g, m, SHAPE(4, 8), (int64_t[]){0}));
  assert_string_equal(kept_for(&n, c, c), "amax dot");
  arena_free(n.a);
}

/* A narrow copy is kept rather than the wide value it was made of. */
static void keeps_narrow(void **state) {
  (void)state;
  Net n = net();
  ValueId d = g_matmul(n.g, n.x, n.w);
  ValueId narrow = g_cast(n.g, g_unary(n.g, OP_EXP, d), DT_BF16);
  ValueId wide = g_cast(n.g, narrow, DT_F32);
  assert_string_equal(kept_for(&n, wide, wide), "cast dot");
  arena_free(n.a);
}

/* Random bits come from counters: nothing of a dropout is kept. */
static void dropout_mask(void **state) {
  (void)state;
  Net n = net();
  ValueId y = c_dropout(n.g, n.x, 0.5, true);
  assert_string_equal(kept_for(&n, y, y), "dot");
  arena_free(n.a);
}

/* Tables of constants through slow functions are kept: made once, read often. */
static void keeps_tables(void **state) {
  (void)state;
  Net n = net();
  ValueId table = g_unary(n.g, OP_COS, g_iota(n.g, DT_F32, SHAPE(8), 0));
  ValueId wide = g_broadcast(n.g, table, SHAPE(4, 8), (int64_t[]){1});
  assert_string_equal(kept_for(&n, g_binary(n.g, OP_MUL, n.x, wide), wide), "cos dot");
  arena_free(n.a);
}

/* ---- models ---- */

static const Override bf16[] = {{"precision.compute", "bf16"}, {"drop", "0.1"}};

/* Bytes that a layer of GPT-2 keeps per token, in units of its width: norms' outputs 2, qkv 3,
 * attention 1, residuals 2, the MLP's product and gelu 8, all of them bf16; and row statistics. */
static void bytes_kept(void **state) {
  (void)state;
  Arena *a = arena_new();
  Job *job = tiny_job(a, "gpt2", 2, bf16);
  TrainGraphs t = train_graphs(job, a, &(GraphChoice){.micro_batch = 2, .chunks = 1});
  int64_t bytes = 0;
  for (NodeId n = 0; n < t.micro->nodes.n; n++) {
    const Node *x = node_at(t.micro, n);
    if (!forward_read_late(t.micro, n) || !str_starts(x->path, "h.1") || op_kind(x->op) == VIEW)
      continue;
    for (int k = 0; k < x->nout; k++) {
      const Value *v = val(t.micro, x->out + k);
      if (v->shape.rank >= 3 && v->dtype == DT_F32)
        assert_string_equal(op_name(x->op), "attention");
      bytes += v->shape.rank >= 3 && v->dtype == DT_BF16 ? shape_bytes(&v->shape, v->dtype) : 0;
    }
  }
  int64_t width = 2 * TINY_T * 16 * 2; /* bytes of one value of a layer's width */
  assert_true(bytes <= 17 * width);
  assert_true(bytes >= 12 * width);
  arena_free(a);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(cut_small),        cmocka_unit_test(cut_brute_force),
      cmocka_unit_test(from_product),     cmocka_unit_test(sum_of_two),
      cmocka_unit_test(keeps_statistics), cmocka_unit_test(keeps_narrow),
      cmocka_unit_test(dropout_mask),     cmocka_unit_test(keeps_tables),
      cmocka_unit_test(bytes_kept),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
