/* test_shape.c - typed builders: broadcasting, promotion, axis names, and what mistakes say. */
#include "case.h"

static Shape named(int rank, const char *const *name, const int64_t *dim) {
  Shape s = shape_of(rank, dim);
  for (int k = 0; k < rank; k++) s.axis[k] = name[k] ? intern(name[k]) : NULL;
  return s;
}
#define NAMED(names, ...) \
  named(COUNT_OF(((int64_t[]){__VA_ARGS__})), (const char *const[])names, (int64_t[]){__VA_ARGS__})
#define N(...) \
  { __VA_ARGS__ }

static void shape_is(const Case *c, ValueId v, const char *want) {
  assert_true(v >= 0);
  assert_string_equal(shape_text(c->a, &val(c->g, v)->shape), want);
}

static void names_propagate(void **state) {
  (void)state;
  Case c = case_new();
  Graph *g = c.g;
  ValueId x = g_input(g, "x", DT_F32, NAMED(N("B", "T", "D"), 2, 3, 4));
  ValueId b = g_input(g, "b", DT_F32, NAMED(N("D"), 4)),
          u = g_input(g, "u", DT_F32, SHAPE(2, 3, 4));
  ValueId w = g_input(g, "w", DT_F32, NAMED(N("D", "V"), 4, 7));
  static const int64_t swap[] = {0, 2, 1}, last[] = {2}, pad[] = {0, 0, 0}, more[] = {0, 1, 0};
  shape_is(&c, g_bin(g, OP_ADD, u, b), "[2, 3, D=4]");
  shape_is(&c, g_bin(g, OP_ADD, u, x), "[B=2, T=3, D=4]");
  shape_is(&c, g_unary(g, OP_EXP, x), "[B=2, T=3, D=4]");
  shape_is(&c, g_matmul(g, x, w), "[B=2, T=3, V=7]");
  shape_is(&c, g_transpose(g, x, swap), "[B=2, D=4, T=3]");
  shape_is(&c, g_reduce(g, OP_SUM, x, 1, last), "[B=2, T=3]");
  shape_is(&c, g_slice(g, x, 1, 0, 2), "[B=2, 2, D=4]");
  shape_is(&c, g_slice(g, x, 1, 0, 3), "[B=2, T=3, D=4]");
  shape_is(&c, g_pad(g, x, pad, more), "[B=2, 4, D=4]");
  shape_is(&c, g_reshape(g, x, NAMED(N("B", NULL, "H"), 2, 6, 2)), "[B=2, 6, H=2]");
  shape_is(&c, g_concat(g, 2, (ValueId[]){u, x}, 1), "[B=2, 6, D=4]");
  ValueId ids = g_input(g, "ids", DT_I32, NAMED(N("B", "T"), 2, 3));
  shape_is(&c, g_gather(g, w, ids), "[B=2, T=3, V=7]");
  shape_is(&c, c_layernorm(g, u, b, -1, 1e-5), "[2, 3, D=4]");
  case_sound(&c, "names");
  case_free(&c);
}

static void broadcasting(void **state) {
  (void)state;
  Case c = case_new();
  ValueId a = case_input(&c, DT_F32, SHAPE(2, 1, 3), -1, 1),
          b = case_input(&c, DT_F32, SHAPE(4, 1), -1, 1);
  double *want = case_result(&c, g_bin(c.g, OP_SUB, a, b));
  for (int i = 0; i < 24; i++)
    want[i] = case_data(&c, 0)[i / 12 * 3 + i % 3] - case_data(&c, 1)[i / 3 % 4];
  shape_is(&c, c.out[0], "[2, 4, 3]");
  case_values(&c, "broadcast");
  case_gradients(&c, "broadcast");
  case_free(&c);
}

/* Numbers take the other side's dtype; a number with a fraction does not become an integer. */
static void promotion(void **state) {
  (void)state;
  Case c = case_new();
  Graph *g = c.g;
  g->diags = diags_new(c.a);
  g->here.loc = (Loc){0, 1, 1, 1};
  ValueId h = case_input(&c, DT_BF16, SHAPE(3), -1, 1), i = case_input(&c, DT_I32, SHAPE(3), 0, 9);
  ValueId half = g_const(g, DT_F32, shape_scalar(), 0.5),
          two = g_const(g, DT_I32, shape_scalar(), 2);
  assert_int_equal(val(g, g_bin(g, OP_MUL, h, half))->dtype, DT_BF16);
  assert_int_equal(val(g, g_bin(g, OP_MUL, two, h))->dtype, DT_BF16);
  assert_int_equal(val(g, g_bin(g, OP_MUL, i, two))->dtype, DT_I32);
  assert_int_equal(val(g, g_bin(g, OP_ADD, two, half))->dtype, DT_F32);
  assert_int_equal(g->diags->errors, 0);
  assert_int_equal(g_bin(g, OP_MUL, i, half), -1);
  assert_int_equal(g_bin(g, OP_MUL, i, h), -1);
  assert_int_equal(g->diags->all.at[0]->id, E_TYPE);
  case_free(&c);
}

typedef struct {
  Graph *g;
  ValueId x, w, b, ids, mask;
} Operands;

static ValueId bad_add(const Operands *o) {
  return g_bin(o->g, OP_ADD, o->x, o->b);
}
static ValueId bad_matmul(const Operands *o) {
  return g_matmul(o->g, o->x, o->w);
}
static ValueId bad_reshape(const Operands *o) {
  return g_reshape(o->g, o->x, SHAPE(2, 3, 5));
}
static ValueId bad_slice(const Operands *o) {
  return g_slice(o->g, o->x, 1, 2, 5);
}
static ValueId bad_axis(const Operands *o) {
  return g_slice(o->g, o->x, 3, 0, 1);
}
static ValueId bad_type(const Operands *o) {
  return g_unary(o->g, OP_EXP, o->ids);
}
static ValueId bad_gather(const Operands *o) {
  return g_gather(o->g, o->w, o->x);
}
static ValueId bad_concat(const Operands *o) {
  return g_concat(o->g, 2, (ValueId[]){o->x, o->w}, 0);
}
static ValueId bad_softmax(const Operands *o) {
  return c_softmax(o->g, o->x, 3);
}
static ValueId bad_targets(const Operands *o) {
  return c_cross_entropy(o->g, o->x, o->b, -100, 0);
}
static ValueId bad_heads(const Operands *o) {
  AttentionArgs a = {.q = o->x, .k = o->x, .v = o->x, .mask = -1, .bias = -1, .scale = 1};
  return g_attention(o->g, &a);
}

static void mistakes_speak(void **state) {
  (void)state;
  static const struct {
    ValueId (*build)(const Operands *);
    const char *code, *message, *note; /* note NULL = none looked for */
  } rows[] = {
      {bad_add, "E0202",
       "shapes do not broadcast: [B=2, T=3, D=4] and [K=5] have D=4 and K=5 as first axis from "
       "the right",
       "`+` of [B=2, T=3, D=4] and [K=5]"},
      {bad_matmul, "E0203", "inner dimensions of `@` differ: 4 and 7",
       "[B=2, T=3, D=4] @ [V=7, D=4]"},
      {bad_reshape, "E0207", "`as` must keep the element count: 24 in, 30 out",
       "from [B=2, T=3, D=4] to [2, 3, 5]"},
      {bad_slice, "E0205", "slice 2..5 is outside axis 1 of [B=2, T=3, D=4]",
       "indices of that axis run from 0 to 2"},
      {bad_axis, "E0205", "[B=2, T=3, D=4] has no axis 3 to slice", NULL},
      {bad_type, "E0201", "`exp` takes floats, not i32", NULL},
      {bad_gather, "E0201", "`gather` takes i32 indices, not f32", NULL},
      {bad_concat, "E0206", "`concat` along axis 0 of [B=2, T=3, D=4] and [V=7, D=4]",
       "all other axes must be equal"},
      {bad_softmax, "E0205", "`amax` names axis 3 of a value with 3 axes", NULL},
      {bad_targets, "E0206", "`cross_entropy` of [B=2, T=3, D=4] and targets f32[K=5]",
       "targets are i32, one for each row of logits: i32[B=2, T=3]"},
      {bad_heads, "E0204",
       "`attention` takes floats [batch, time, heads, width], not [B=2, T=3, D=4], "
       "[B=2, T=3, D=4]",
       NULL},
  };
  for (int i = 0; i < COUNT_OF(rows); i++) {
    Case c = case_new();
    Operands o = {.g = c.g};
    o.x = g_input(c.g, "x", DT_F32, NAMED(N("B", "T", "D"), 2, 3, 4));
    o.w = g_input(c.g, "w", DT_F32, NAMED(N("V", "D"), 7, 4));
    o.b = g_input(c.g, "b", DT_F32, NAMED(N("K"), 5));
    o.ids = g_input(c.g, "ids", DT_I32, SHAPE(2));
    c.g->diags = diags_new(c.a);
    c.g->here.loc = (Loc){0, 30 + i, 7, 1};
    int before = c.g->nodes.n;
    assert_int_equal(rows[i].build(&o), -1);
    assert_int_equal(c.g->diags->errors, 1);
    const Diag *d = c.g->diags->all.at[0];
    assert_string_equal(err_code(d->id), rows[i].code);
    assert_string_equal(d->message, rows[i].message);
    assert_int_equal(d->primary.loc.line, 30 + i);
    if (rows[i].note) assert_string_equal(d->notes.at[0], rows[i].note);
    assert_true(c.g->nodes.n <= before + 1);
    if (rows[i].build == bad_matmul)
      assert_string_equal(d->help, "the right side transposed, `.T`, is [D=4, V=7]");
    /* what was refused passes on in silence */
    assert_int_equal(g_unary(c.g, OP_EXP, g_bin(c.g, OP_ADD, -1, o.x)), -1);
    assert_int_equal(c.g->diags->errors, 1);
    case_free(&c);
  }
}

/* Sizes that no memory holds are refused, not wrapped. */
static void enormous(void **state) {
  (void)state;
  Case c = case_new();
  c.g->diags = diags_new(c.a);
  c.g->here.loc = (Loc){0, 1, 1, 1};
  int64_t big = (int64_t)1 << 40;
  assert_int_equal(g_const(c.g, DT_F32, SHAPE(big, big), 0), -1);
  c.g->here.loc.line++;
  ValueId row = g_const(c.g, DT_F32, SHAPE(big), 0);
  assert_int_equal(g_dot(c.g, row, row, 0, NULL, NULL, 0, NULL, NULL, DT_F32), -1);
  assert_int_equal(c.g->diags->errors, 2);
  case_free(&c);
}

static void uses_are_listed_once(void **state) {
  (void)state;
  Case c = case_new();
  ValueId x = case_input(&c, DT_F32, SHAPE(2), -1, 1), y = g_binary(c.g, OP_MUL, x, x);
  ValueId z = g_binary(c.g, OP_ADD, x, y);
  Uses u = graph_uses(c.g, c.a);
  assert_int_equal(u.first[x + 1] - u.first[x], 2);
  assert_int_equal(u.user[u.first[x]], val(c.g, y)->def);
  assert_int_equal(u.user[u.first[x] + 1], val(c.g, z)->def);
  assert_int_equal(u.first[z + 1] - u.first[z], 0);
  case_free(&c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(names_propagate), cmocka_unit_test(broadcasting),
      cmocka_unit_test(promotion),       cmocka_unit_test(mistakes_speak),
      cmocka_unit_test(enormous),        cmocka_unit_test(uses_are_listed_once),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
