/* test_cpu_attention.c - attention and scatter on the CPU device against the interpreter: causal or
 * not, grouped heads, mask, bias, dropout, 16-bit floats, odd sizes, strided operands; the same
 * bits with any number of threads. */
#include "cpu_program.h"

typedef struct {
  int64_t B, Tq, Tk, H, KV, D, gap;
  bool causal, mask, bias;
  double drop;
  DType t;
} Problem;

typedef struct {
  Graph *g;
  ValueId in[12], out[4];
  int nin, nout;
  InterpInput data[12];
} Reference;

static ValueId input(Reference *r, Arena *a, DType t, Shape s, double *x) {
  const char *name = arena_printf(a, "x%d", r->nin);
  r->data[r->nin] = (InterpInput){name, x};
  return r->in[r->nin++] = g_input(r->g, name, t, s);
}

static double *draw(Arena *a, DType t, Shape s, double lo, double hi) {
  return random_values(a, t, shape_count(&s), lo, hi);
}

/* The node with its operands; backward takes o and lse of the forward pass. */
static void build(Reference *r, Arena *a, const Problem *p, bool backward, double *const *forward) {
  Shape q = SHAPE(p->B, p->Tq, p->H, p->D), k = SHAPE(p->B, p->Tk, p->KV, p->D),
        l = SHAPE(p->B, p->H, p->Tq);
  Shape mask = SHAPE(p->B, p->Tk), bias = SHAPE(p->H, p->Tq, p->Tk);
  *r = (Reference){.g = graph_new(a, "test", vars_new(a))};
  uint64_t saved = rnd_state;
  rnd_state = 12345; /* forward and backward see the same q, k, v */
  input(r, a, p->t, q, draw(a, p->t, q, -2, 2));
  input(r, a, p->t, k, draw(a, p->t, k, -2, 2));
  input(r, a, p->t, k, draw(a, p->t, k, -2, 2));
  double *open = draw(a, DT_I32, mask, 0, 2), *tilt = draw(a, DT_F32, bias, -1, 1);
  for (int64_t i = 0; i < p->Tk; i++) open[i] = p->B > 1 ? open[i] : i % 3 != 0;
  rnd_state = saved;
  if (backward) {
    input(r, a, p->t, q, forward[0]);
    input(r, a, DT_F32, l, forward[1]);
    input(r, a, p->t, q, draw(a, p->t, q, -1, 1));
  }
  if (p->mask) input(r, a, DT_BOOL, mask, open);
  if (p->bias) input(r, a, DT_F32, bias, tilt);
  if (p->drop > 0) {
    static double seed[2] = {17, 99}, step[1] = {5}, sample[1] = {3};
    input(r, a, DT_U32, SHAPE(2), seed);
    input(r, a, DT_I32, shape_scalar(), step);
    input(r, a, DT_I32, shape_scalar(), sample);
  }
  int64_t flags = p->mask | p->bias << 1 | (p->drop > 0) << 2,
          ints[] = {p->causal, flags, 7777777777};
  double num[] = {1 / sqrt((double)p->D), p->drop};
  ValueId v = graph_add(r->g, backward ? OP_ATTENTION_BWD : OP_ATTENTION, r->nin, r->in, 3, ints,
                        num, NULL);
  r->nout = backward ? 3 + p->bias : 2;
  for (int i = 0; i < r->nout; i++) r->out[i] = v + i;
}

static double **device(Arena *a, const Problem *p, const Reference *r, bool backward, int threads) {
  OneCommand o;
  one_new(&o, a, backward ? CMD_ATTENTION_BWD : CMD_ATTENTION);
  o.cmd.attention = (Attention){.causal = p->causal,
                                .has_mask = p->mask,
                                .has_bias = p->bias,
                                .has_drop = p->drop > 0,
                                .scale = 1 / sqrt((double)p->D),
                                .drop = p->drop,
                                .key = 7777777777};
  for (int i = 0; i < r->nin + r->nout; i++) {
    const Value *v = val(r->g, i < r->nin ? r->in[i] : r->out[i - r->nin]);
    one_tensor(&o, v->dtype, v->shape, v->shape.rank == 4 ? p->gap : 0);
  }
  one_open(&o, threads);
  for (int i = 0; i < r->nin; i++) one_put(&o, i, r->data[i].data);
  one_run(&o);
  double **got = arena_array(a, double *, 4);
  for (int i = 0; i < r->nout; i++) got[i] = one_get(&o, r->nin + i);
  replay_close(&o.replay);
  return got;
}

static void check(const Problem *p) {
  Arena *a = arena_new();
  double *forward[2] = {NULL, NULL};
  for (int backward = 0; backward < 2; backward++) {
    Reference r;
    build(&r, a, p, backward, forward);
    Interp run = {
        .arena = a, .inputs = r.data, .ninputs = r.nin, .vars = arena_array(a, double *, 1)};
    double **want = graph_interp(r.g, &run), **got = device(a, p, &r, backward, 2);
    double **alone = device(a, p, &r, backward, 1);
    for (int i = 0; i < r.nout; i++) {
      const Value *v = val(r.g, r.out[i]);
      int64_t n = shape_count(&v->shape);
      char what[96];
      snprintf(what, sizeof what, "%s result %d of B%lld Tq%lld Tk%lld H%lld/%lld D%lld",
               backward ? "backward" : "forward", i, (long long)p->B, (long long)p->Tq,
               (long long)p->Tk, (long long)p->H, (long long)p->KV, (long long)p->D);
      check_near(what, v->dtype, n, got[i], want[r.out[i]], 1e-5);
      assert_memory_equal(got[i], alone[i], sizeof(double) * (size_t)n);
      if (!backward) forward[i] = want[r.out[i]];
    }
  }
  arena_free(a);
}

static void plain(void **state) {
  (void)state;
  check(&(Problem){.B = 2, .Tq = 64, .Tk = 64, .H = 4, .KV = 4, .D = 32, .causal = true});
  check(
      &(Problem){.B = 1, .Tq = 37, .Tk = 37, .H = 3, .KV = 3, .D = 20, .causal = true, .gap = 12});
  check(&(Problem){.B = 2, .Tq = 33, .Tk = 70, .H = 2, .KV = 2, .D = 16});
  check(&(Problem){.B = 1, .Tq = 1, .Tk = 5, .H = 1, .KV = 1, .D = 8});
  check(&(Problem){.B = 1, .Tq = 520, .Tk = 520, .H = 1, .KV = 1, .D = 8, .causal = true});
}
static void grouped_heads(void **state) {
  (void)state;
  check(&(Problem){.B = 2, .Tq = 40, .Tk = 40, .H = 6, .KV = 2, .D = 16, .causal = true});
  check(&(Problem){.B = 2, .Tq = 40, .Tk = 40, .H = 4, .KV = 1, .D = 16});
}
static void masks_and_biases(void **state) {
  (void)state;
  check(&(Problem){.B = 3, .Tq = 20, .Tk = 33, .H = 2, .KV = 2, .D = 16, .mask = true});
  check(&(Problem){
      .B = 1, .Tq = 20, .Tk = 20, .H = 2, .KV = 2, .D = 16, .mask = true, .causal = true});
  check(&(Problem){.B = 3, .Tq = 20, .Tk = 33, .H = 4, .KV = 2, .D = 16, .bias = true});
  check(&(Problem){.B = 2,
                   .Tq = 35,
                   .Tk = 35,
                   .H = 2,
                   .KV = 2,
                   .D = 16,
                   .bias = true,
                   .mask = true,
                   .causal = true});
}
static void dropout(void **state) {
  (void)state;
  check(&(Problem){
      .B = 2, .Tq = 36, .Tk = 36, .H = 2, .KV = 2, .D = 16, .causal = true, .drop = 0.25});
  check(
      &(Problem){.B = 2, .Tq = 21, .Tk = 35, .H = 4, .KV = 2, .D = 16, .drop = 0.1, .mask = true});
}
static void short_floats(void **state) {
  (void)state;
  for (int t = DT_BF16; t <= DT_F16; t++)
    check(&(Problem){.B = 2,
                     .Tq = 40,
                     .Tk = 40,
                     .H = 4,
                     .KV = 2,
                     .D = 16,
                     .causal = true,
                     .t = (DType)t,
                     .gap = 4});
}

/* ---- scatter ---- */

static void scatter_add(void **state) {
  (void)state;
  for (int t = DT_F32; t <= DT_BF16; t++)
    for (int accumulate = 0; accumulate < 2; accumulate++)
      for (int wide = 0; wide < 2; wide++) {
        Arena *a = arena_new();
        int64_t n = 150, width = wide ? 300 : 7, rows = 20;
        double *ids = random_values(a, DT_I32, n, 0, (double)rows),
               *x = random_values(a, DT_F32, n * width, -1, 1);
        double *old = random_values(a, (DType)t, rows * width, -1, 1),
               *want = arena_array(a, double, rows *width);
        for (int64_t i = 0; accumulate && i < rows * width; i++) want[i] = old[i];
        for (int64_t i = 0; i < n * width; i++)
          want[(int64_t)ids[i / width] * width + i % width] += x[i];
        OneCommand o;
        one_new(&o, a, CMD_SCATTER);
        o.cmd.accumulate = accumulate;
        one_tensor(&o, DT_I32, SHAPE(n), 0);
        one_tensor(&o, DT_F32, SHAPE(n, width), 5);
        one_tensor(&o, (DType)t, SHAPE(rows, width), 0);
        one_open(&o, 2);
        one_put(&o, 0, ids);
        one_put(&o, 1, x);
        one_put(&o, 2, old);
        one_run(&o);
        check_near("scatter_add", (DType)t, rows * width, one_get(&o, 2), want, 1e-6);
        replay_close(&o.replay);
        arena_free(a);
      }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(plain),
      cmocka_unit_test(grouped_heads),
      cmocka_unit_test(masks_and_biases),
      cmocka_unit_test(dropout),
      cmocka_unit_test(short_floats),
      cmocka_unit_test(scatter_add),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
