/* test_chunk.c - where the loss head and MLPs are found and where not, that chunks give the same loss,
 * and what they leave alive. */
#include "train_case.h"

#include "passes/chunk.h"
#include "passes/simplify.h"

enum { B = 3, T = 4, D = 8, V = 20 };

typedef struct {
  Arena *a;
  Graph *g;
  ValueId x, w, targets, logits;
} Head;

/* x[B,T,D] through a norm and a projection of `width` numbers a token. */
static Head head_of(int64_t width, bool bias) {
  Head h = {.a = arena_new()};
  Graph *g = h.g = graph_new(h.a, "loss", vars_new(h.a));
  int w = var_add(
      g->vars,
      (Var){.path = "w", .role = VAR_PARAM, .shape = SHAPE(D, width), .trainable = true, .of = -1});
  int b = var_add(
      g->vars,
      (Var){.path = "b", .role = VAR_PARAM, .shape = SHAPE(width), .trainable = true, .of = -1});
  h.x = g_unary(g, OP_TANH, g_input(g, "x", DT_F32, SHAPE(B, T, D)));
  h.targets = g_input(g, "targets", DT_I32, SHAPE(B, T));
  h.w = g_var(g, w);
  h.logits = g_matmul(g, h.x, h.w);
  if (bias) h.logits = g_bin(g, OP_ADD, h.logits, g_var(g, b));
  return h;
}

static double loss_of(Arena *a, const Graph *g) {
  double x[B * T * D], targets[B * T], **vars = arena_array(a, double *, g->vars->all.n + 1);
  for (int i = 0; i < B * T * D; i++) x[i] = tiny_random(1, (uint64_t)i);
  for (int i = 0; i < B * T; i++) targets[i] = i % 5 == 2 ? -1 : (i * 7) % 16;
  for (int v = 0; v < g->vars->all.n; v++) {
    int64_t n = shape_count(&g->vars->all.at[v].shape);
    vars[v] = arena_array(a, double, n);
    for (int64_t k = 0; k < n; k++) vars[v][k] = tiny_random((uint64_t)v + 9, (uint64_t)k);
  }
  InterpInput in[] = {{"x", x}, {"targets", targets}};
  return graph_interp(g, &(Interp){.arena = a,
                                   .exact = true,
                                   .inputs = in,
                                   .ninputs = 2,
                                   .vars = vars})[g->results.at[0]][0];
}

static int64_t widest_dot(const Graph *g) {
  int64_t most = 0;
  for (NodeId n = 0; n < g->nodes.n; n++) {
    const Node *x = node_at(g, n);
    if (x->op == OP_DOT && shape_count(&val(g, x->out)->shape) > most)
      most = shape_count(&val(g, x->out)->shape);
  }
  return most;
}

static void expect_chunks(Head *h, ValueId loss) {
  graph_result(h->g, "loss", loss);
  assert_int_equal(chunk_limit(h->g), B * T);
  double whole = loss_of(h->a, h->g);
  static const int counts[] = {2, 5, B * T, 1000};
  for (int i = 0; i < COUNT_OF(counts); i++) {
    Graph *c = graph_chunk(h->g, h->a, counts[i]);
    assert_null(graph_verify(c, h->a));
    int used = counts[i] < B * T ? counts[i] : B * T;
    assert_true(widest_dot(c) <= (B * T + used - 1) / used * val(h->g, h->logits)->shape.dim[2]);
    assert_true(fabs(loss_of(h->a, c) - whole) <= 1e-13 * fabs(whole));
  }
  assert_ptr_equal(graph_chunk(h->g, h->a, 1), h->g);
  arena_free(h->a);
}

static void expect_whole(Head *h, ValueId loss) {
  graph_result(h->g, "loss", loss);
  assert_int_equal(chunk_limit(h->g), 1);
  assert_ptr_equal(graph_chunk(h->g, h->a, 4), h->g);
  arena_free(h->a);
}

static void cross_entropy(void **state) {
  (void)state;
  Head h = head_of(V, false);
  expect_chunks(&h, c_cross_entropy(h.g, h.logits, h.targets, -1, 0));
}
static void bias_and_smoothing(void **state) {
  (void)state;
  Head h = head_of(V, true);
  expect_chunks(&h, c_cross_entropy(h.g, h.logits, h.targets, -1, 0.1));
}

/* Two sums leave the head: the loss and a penalty on the size of the logits; logits are reshaped on
 * the way. */
static void two_exits(void **state) {
  (void)state;
  Head h = head_of(V, false);
  Graph *g = h.g;
  ValueId flat = g_reshape(g, h.logits, SHAPE(B * T, V));
  ValueId squares = g_reduce(g, OP_SUM, g_binary(g, OP_MUL, flat, flat), 2, (int64_t[]){0, 1});
  ValueId penalty = g_bin(g, OP_MUL, squares, g_const(g, DT_F32, shape_scalar(), 1e-3));
  expect_chunks(&h, g_binary(g, OP_ADD, c_cross_entropy(g, h.logits, h.targets, -1, 0), penalty));
}

/* Values that do not depend on the head: a mask per token, a row per number, a full table. */
static void outside_values(void **state) {
  (void)state;
  Head h = head_of(V, false);
  Graph *g = h.g;
  ValueId x2 = g_binary(g, OP_MUL, h.x, h.x);
  ValueId weight = g_reduce(g, OP_SUM, x2, 1, (int64_t[]){2});
  ValueId position = g_broadcast(g, g_iota(g, DT_F32, SHAPE(T), 0), SHAPE(B, T), (int64_t[]){1});
  ValueId scaled = g_binary(g, OP_MUL, weight, g_binary(g, OP_ADD, position, weight));
  ValueId spread = g_broadcast(g, scaled, SHAPE(B, T, V), (int64_t[]){0, 1});
  ValueId cut = g_slice(g, g_binary(g, OP_MUL, h.logits, spread), 2, 2, V - 1);
  expect_chunks(&h, g_reduce(g, OP_SUM, g_unary(g, OP_TANH, cut), 3, (int64_t[]){0, 1, 2}));
}

/* ---- no head ---- */

static void narrow_head(void **state) {
  (void)state;
  Head h = head_of(D / 2, false);
  expect_whole(&h, g_reduce(h.g, OP_SUM, h.logits, 3, (int64_t[]){0, 1, 2}));
}
static void mixes_tokens(void **state) {
  (void)state;
  Head h = head_of(V, false);
  ValueId shifted = g_slice(h.g, h.logits, 1, 1, T); /* tokens 1.. only */
  expect_whole(&h, g_reduce(h.g, OP_SUM, shifted, 3, (int64_t[]){0, 1, 2}));
}
static void largest_of_all(void **state) {
  (void)state;
  Head h = head_of(V, false);
  expect_whole(&h, g_reduce(h.g, OP_AMAX, h.logits, 3, (int64_t[]){0, 1, 2}));
}
static void logits_are_a_result(void **state) {
  (void)state;
  Head h = head_of(V, false);
  ValueId loss = c_cross_entropy(h.g, h.logits, h.targets, -1, 0);
  graph_result(h.g, "loss", loss);
  graph_result(h.g, "logits", h.logits);
  assert_int_equal(chunk_limit(h.g), 1);
  arena_free(h.a);
}

/* ---- MLPs ---- */

enum { F = 48 };

static ValueId weight(Graph *g, const char *path, Shape s) {
  return g_var(
      g, var_add(g->vars,
                 (Var){.path = path, .role = VAR_PARAM, .shape = s, .trainable = true, .of = -1}));
}

/* x + down(tanh(gate(x) + b) * up(x)), twice; hidden: also what lies between, of the first. */
static ValueId two_mlps(Head *h, ValueId *hidden) {
  Graph *g = h->g;
  ValueId x = h->x;
  for (int i = 0; i < 2; i++) {
    ValueId b = weight(g, i ? "b1" : "b0", SHAPE(F));
    ValueId gate = g_matmul(g, x, weight(g, i ? "g1" : "g0", SHAPE(D, F)));
    ValueId up = g_matmul(g, x, weight(g, i ? "u1" : "u0", SHAPE(D, F)));
    ValueId inside = g_binary(g, OP_MUL, g_unary(g, OP_TANH, g_bin(g, OP_ADD, gate, b)), up);
    if (i == 0) *hidden = inside;
    x = g_binary(g, OP_ADD, x, g_matmul(g, inside, weight(g, i ? "d1" : "d0", SHAPE(F, D))));
  }
  return x;
}

static ValueId sum_of_all(Graph *g, ValueId x) {
  return g_reduce(g, OP_SUM, g_unary(g, OP_TANH, x), 3, (int64_t[]){0, 1, 2});
}

static int tiles_of(const Graph *g) {
  int most = 0;
  for (NodeId n = 0; n < g->nodes.n; n++)
    if (node_at(g, n)->tile > most) most = node_at(g, n)->tile;
  return most;
}

static void mlps_in_chunks(void **state) {
  (void)state;
  Head h = head_of(D, false);
  ValueId hidden;
  graph_result(h.g, "loss", sum_of_all(h.g, two_mlps(&h, &hidden)));
  double whole = loss_of(h.a, h.g);
  assert_int_equal(widest_dot(h.g), B * T * F);
  static const int counts[] = {2, 5, B * T, 1000};
  for (int i = 0; i < COUNT_OF(counts); i++) {
    Graph *c = graph_chunk_mlps(h.g, h.a, counts[i]), *parted = graph_part_tiles(c, h.a);
    int used = counts[i] < B * T ? counts[i] : B * T;
    assert_int_equal(tiles_of(c), used);
    assert_true(widest_dot(c) <= (B * T + used - 1) / used * F);
    assert_null(graph_verify(c, h.a));
    assert_null(graph_verify(parted, h.a));
    assert_true(fabs(loss_of(h.a, c) - whole) <= 1e-13 * fabs(whole));
    assert_true(fabs(loss_of(h.a, parted) - whole) <= 1e-13 * fabs(whole));
    for (NodeId n = 0; n < parted->nodes.n; n++) assert_true(node_at(parted, n)->op != OP_CONCAT);
  }
  assert_ptr_equal(graph_chunk_mlps(h.g, h.a, 1), h.g);
  arena_free(h.a);
}

static void expect_one_mlp(Head *h) {
  Graph *c = graph_chunk_mlps(h->g, h->a, 3);
  int chunked = 0;
  for (NodeId n = 0; n < c->nodes.n; n++) chunked += node_at(c, n)->op == OP_CONCAT;
  assert_int_equal(chunked, 1);
  arena_free(h->a);
}

/* What lies inside of the first one is read elsewhere, or is a result. */
static void inside_is_read(void **state) {
  (void)state;
  Head h = head_of(D, false);
  ValueId hidden, x = two_mlps(&h, &hidden);
  graph_result(h.g, "loss",
               g_binary(h.g, OP_ADD, sum_of_all(h.g, x),
                        g_reduce(h.g, OP_AMAX, hidden, 3, (int64_t[]){0, 1, 2})));
  expect_one_mlp(&h);
}
static void inside_is_a_result(void **state) {
  (void)state;
  Head h = head_of(D, false);
  ValueId hidden;
  graph_result(h.g, "loss", sum_of_all(h.g, two_mlps(&h, &hidden)));
  graph_result(h.g, "hidden", hidden);
  expect_one_mlp(&h);
}

/* Tokens meet inside; a large value from outside is read there. */
static void no_mlp(void **state) {
  (void)state;
  for (int kind = 0; kind < 2; kind++) {
    Head h = head_of(D, false);
    ValueId wide = g_matmul(h.g, h.x, weight(h.g, "up", SHAPE(D, F)));
    ValueId inside =
        kind == 0 ? g_slice(h.g, wide, 1, 1, T)
                  : g_binary(h.g, OP_MUL, wide, g_input(h.g, "mask", DT_F32, SHAPE(B, T, F)));
    graph_result(h.g, "loss",
                 sum_of_all(h.g, g_matmul(h.g, inside, weight(h.g, "down", SHAPE(F, D)))));
    assert_ptr_equal(graph_chunk_mlps(h.g, h.a, 4), h.g);
    assert_ptr_equal(graph_part_tiles(h.g, h.a), h.g);
    arena_free(h.a);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(cross_entropy),      cmocka_unit_test(bias_and_smoothing),
      cmocka_unit_test(two_exits),          cmocka_unit_test(outside_values),
      cmocka_unit_test(narrow_head),        cmocka_unit_test(mixes_tokens),
      cmocka_unit_test(largest_of_all),     cmocka_unit_test(logits_are_a_result),
      cmocka_unit_test(mlps_in_chunks),     cmocka_unit_test(inside_is_read),
      cmocka_unit_test(inside_is_a_result), cmocka_unit_test(no_mlp),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
