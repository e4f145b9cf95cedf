/* test_storage.c - where values lie: views, concats, variables, in-place chances; and lives along a
 * trace. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>
#include "naive.h"
#include "passes/timeline.h"

static Shape shape2(int64_t a, int64_t b) {
  return shape_of(2, (int64_t[]){a, b});
}
static Shape shape3(int64_t a, int64_t b, int64_t c) {
  return shape_of(3, (int64_t[]){a, b, c});
}

typedef struct {
  Arena *a;
  Vars *vars;
  Graph *g;
  Clusters c;
  StorageMap m;
} Fixture;

static Fixture begin(void) {
  Fixture f = {.a = arena_new()};
  f.vars = vars_new(f.a);
  f.g = graph_new(f.a, "micro", f.vars);
  return f;
}

static void map(Fixture *f) {
  f->c = naive_clusters(f->g, f->a);
  f->m = storage_map(&f->c, f->a);
}

static const ValuePlace *at(const Fixture *f, ValueId v) {
  return &f->m.place[v];
}

static void views_share_their_operand(void **state) {
  (void)state;
  Fixture f = begin();
  ValueId x = g_input(f.g, "x", DT_F32, shape2(4, 6));
  ValueId y = g_unary(f.g, OP_EXP, x);
  ValueId t = g_transpose(f.g, y, (int64_t[]){1, 0});
  ValueId s = g_slice(f.g, y, 1, 2, 5);
  ValueId d = g_unary(f.g, OP_TANH, t);
  ValueId e = g_unary(f.g, OP_NEG, s);
  graph_result(f.g, "d", d);
  graph_result(f.g, "e", e);
  map(&f);
  assert_int_equal(at(&f, t)->unit, at(&f, y)->unit);
  assert_int_equal(at(&f, t)->stride[0], 1);
  assert_int_equal(at(&f, t)->stride[1], 6);
  assert_int_equal(at(&f, s)->unit, at(&f, y)->unit);
  assert_int_equal(at(&f, s)->offset, 2 * 4);
  assert_int_equal(at(&f, s)->stride[0], 6);
  assert_int_equal(f.m.unit[at(&f, x)->unit].input, x);
  assert_int_equal(f.m.unit[at(&f, y)->unit].bytes, 4 * 6 * 4);
  assert_true(f.m.unit[at(&f, d)->unit].result);
  arena_free(f.a);
}

static void broadcasts_have_stride_zero(void **state) {
  (void)state;
  Fixture f = begin();
  ValueId x = g_input(f.g, "x", DT_BF16, shape_of(1, (int64_t[]){6}));
  ValueId b = g_broadcast(f.g, x, shape2(4, 6), (int64_t[]){1});
  ValueId y = g_unary(f.g, OP_NEG, b);
  graph_result(f.g, "y", y);
  map(&f);
  assert_int_equal(at(&f, b)->unit, at(&f, x)->unit);
  assert_int_equal(at(&f, b)->stride[0], 0);
  assert_int_equal(at(&f, b)->stride[1], 1);
  arena_free(f.a);
}

/* A reshape of a slice: heads of a fused projection, [B,T,3D] -> [B,T,D] -> [B,T,H,Dh]. */
static void reshape_of_strided(void **state) {
  (void)state;
  Fixture f = begin();
  ValueId x = g_input(f.g, "x", DT_BF16, shape3(2, 4, 24));
  ValueId y = g_unary(f.g, OP_NEG, x);
  ValueId s = g_slice(f.g, y, 2, 8, 16);
  ValueId h = g_reshape(f.g, s, shape_of(4, (int64_t[]){2, 4, 2, 4}));
  ValueId z = g_unary(f.g, OP_NEG, h);
  graph_result(f.g, "z", z);
  map(&f);
  const int64_t want[] = {4 * 24, 24, 4, 1};
  assert_int_equal(at(&f, h)->offset, 8 * 2);
  assert_memory_equal(at(&f, h)->stride, want, sizeof want);
  arena_free(f.a);
}

/* Parts of a concat lie inside it, also behind a reshape; the unit has two makers. */
static void concat_takes_its_parts_in(void **state) {
  (void)state;
  Fixture f = begin();
  ValueId x = g_input(f.g, "x", DT_F32, shape3(2, 3, 4));
  ValueId a = g_unary(f.g, OP_EXP, x), b = g_unary(f.g, OP_TANH, x);
  ValueId ra = g_reshape(f.g, a, shape2(6, 4)), rb = g_reshape(f.g, b, shape2(6, 4));
  ValueId c = g_concat(f.g, 2, (ValueId[]){ra, rb}, 1);
  ValueId y = g_unary(f.g, OP_NEG, c);
  graph_result(f.g, "y", y);
  map(&f);
  assert_int_equal(at(&f, a)->unit, at(&f, c)->unit);
  assert_int_equal(at(&f, b)->unit, at(&f, c)->unit);
  assert_int_equal(at(&f, b)->offset, 4 * 4);
  const int64_t want[] = {3 * 8, 8, 1};
  assert_memory_equal(at(&f, b)->stride, want, sizeof want);
  assert_int_equal(f.m.unit[at(&f, c)->unit].nmakers, 2);
  assert_int_equal(f.m.unit[at(&f, c)->unit].bytes, 6 * 8 * 4);
  arena_free(f.a);
}

static void assigned_values_lie_in_the_variable(void **state) {
  (void)state;
  Fixture f = begin();
  int v = var_add(
      f.vars,
      (Var){.path = "w:grad", .role = VAR_ACCUM, .dtype = DT_F32, .shape = shape2(4, 6), .of = -1});
  ValueId old = g_var(f.g, v), x = g_input(f.g, "x", DT_F32, shape2(4, 6));
  ValueId sum = g_binary(f.g, OP_ADD, old, x);
  g_assign(f.g, v, sum);
  ValueId y = g_unary(f.g, OP_NEG, sum);
  graph_result(f.g, "y", y);
  map(&f);
  assert_int_equal(f.m.unit[at(&f, sum)->unit].var, v);
  assert_int_equal(at(&f, old)->unit, at(&f, sum)->unit);
  assert_true(f.m.overwritten[v]);
  arena_free(f.a);
}

static void in_place_only_where_the_element_is_read(void **state) {
  (void)state;
  Fixture f = begin();
  ValueId x = g_input(f.g, "x", DT_F32, shape2(4, 4));
  ValueId y = g_unary(f.g, OP_EXP, x), z = g_unary(f.g, OP_NEG, y);
  ValueId t = g_transpose(f.g, z, (int64_t[]){1, 0}), u = g_unary(f.g, OP_TANH, t);
  ValueId h = g_cast(f.g, u, DT_BF16);
  graph_result(f.g, "h", h);
  map(&f);
  int cy = naive_cluster_of(&f.c, y), cz = naive_cluster_of(&f.c, z),
      cu = naive_cluster_of(&f.c, u), ch = naive_cluster_of(&f.c, h);
  assert_int_equal(f.m.over[cy][0], -1); /* over an input */
  assert_int_equal(f.m.over[cz][0], 0);
  assert_int_equal(f.m.over[cu][0], -1); /* transposed */
  assert_int_equal(f.m.over[ch][0], -1); /* other element size */
  arena_free(f.a);
}

/* a -> b -> c, then a is read again: rebuilt, it has two lives, and b may lie over neither. */
static void a_rebuilt_value_has_two_lives(void **state) {
  (void)state;
  Fixture f = begin();
  ValueId x = g_input(f.g, "x", DT_F32, shape2(64, 64));
  ValueId a = g_unary(f.g, OP_EXP, x), b = g_unary(f.g, OP_NEG, a), c = g_unary(f.g, OP_TANH, b);
  ValueId d = g_binary(f.g, OP_ADD, c, a);
  graph_result(f.g, "d", d);
  map(&f);
  int trace[] = {0, 1, 2, 0, 3};
  assert_int_equal(naive_cluster_of(&f.c, a), 0);
  assert_int_equal(naive_cluster_of(&f.c, d), 3);
  Timeline t = timeline_run(&f.m, f.a, 5, trace, true);
  assert_int_equal(t.n, 5);
  assert_true(t.again[3] && t.at[3].rebuilt);
  assert_int_equal(t.at[0].last, 1);
  assert_int_equal(t.at[1].takes, 0); /* b over the first life of a */
  assert_int_equal(t.at[4].last, 4);
  int64_t bytes[8], none[4] = {0}, scratch[8];
  for (int i = 0; i < f.m.nunits; i++) bytes[i] = f.m.unit[i].bytes;
  int step = -1;
  int64_t peak = timeline_peak(&t, bytes, none, scratch, &step);
  assert_int_equal(peak, 2 * 64 * 64 * 4); /* c and a; d lies over c */
  int plain[] = {0, 1, 2, 3};
  Timeline p = timeline_run(&f.m, f.a, 4, plain, false);
  assert_int_equal(timeline_peak(&p, bytes, none, scratch, &step), 2 * 64 * 64 * 4);
  arena_free(f.a);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(views_share_their_operand),
      cmocka_unit_test(broadcasts_have_stride_zero),
      cmocka_unit_test(reshape_of_strided),
      cmocka_unit_test(concat_takes_its_parts_in),
      cmocka_unit_test(assigned_values_lie_in_the_variable),
      cmocka_unit_test(in_place_only_where_the_element_is_read),
      cmocka_unit_test(a_rebuilt_value_has_two_lives),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
