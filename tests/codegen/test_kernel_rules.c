/* test_kernel_rules.c - what kernels promise beyond right numbers: the same bits in every fusion
 * and with any number of threads, NaN and infinity kept, results that overlay operands, refusal of
 * what cannot be. */
#include "kernel_case.h"

/* Runs case i of lib and returns a copy of its outputs' bytes, one after another. */
static char *bytes_of(Case *c, void *lib, int i, size_t *n) {
  case_run(c, case_fn(lib, i));
  *n = 0;
  for (int o = 0; o < c->c.nout; o++) {
    const Value *v = val(c->g, c->c.out[o]);
    *n += (size_t)shape_bytes(&v->shape, v->dtype);
  }
  char *all = arena_alloc(c->a, *n), *at = all;
  for (int o = 0; o < c->c.nout; o++) {
    const Value *v = val(c->g, c->c.out[o]);
    size_t bytes = (size_t)shape_bytes(&v->shape, v->dtype);
    memcpy(at, c->out_memory[o], bytes);
    at += bytes;
  }
  return all;
}

/* ---- one value, several fusions ---- */

enum { ROWS = 96, COLS = 5003 };

/* y = x^2 by row: alone, beside other results, and as the end of a longer kernel. */
static Case *row_sums(Arena *a, bool more) {
  Case *c = case_new(a, more ? "row sums beside others" : "row sums");
  ValueId x = case_input(c, DT_F32, SHAPE(ROWS, COLS), -1, 1, PLAIN);
  ValueId s = g_reduce(c->g, OP_SUM, g_binary(c->g, OP_MUL, x, x), 1, (int64_t[]){1});
  case_out(c, s);
  if (more) {
    ValueId wide = g_broadcast(c->g, s, SHAPE(ROWS, COLS), (int64_t[]){0});
    ValueId top = g_reduce(c->g, OP_AMAX, x, 1, (int64_t[]){1});
    case_out(c, g_binary(c->g, OP_ADD, x, g_unary(c->g, OP_TANH, wide)));
    case_out(c, top);
    case_out(c, g_reduce(c->g, OP_SUM, x, 1, (int64_t[]){0}));
    case_map(c, c->outs.at[3], 1, (int[]){1});
  }
  case_cluster(c, SHAPE(ROWS, COLS), 1);
  return c;
}

/* The sum of a vector: over all of a flat kernel, over the columns of its one row, and over the
 * rows of a wider kernel. */
static Case *whole_sum(Arena *a, int form, int64_t n) {
  Case *c = case_new(a, arena_printf(a, "whole sum %d", form));
  ValueId x = case_input(c, DT_F32, SHAPE(n), -1, 1, PLAIN);
  case_out(c, g_reduce(c->g, OP_SUM, x, 1, (int64_t[]){0}));
  if (form == 2) {
    ValueId y = case_input(c, DT_F32, SHAPE(n, 3), -1, 1, PLAIN);
    case_out(
        c, g_reduce(c->g, OP_AMAX,
                    g_binary(c->g, OP_MUL, y, g_broadcast(c->g, x, SHAPE(n, 3), (int64_t[]){0})), 1,
                    (int64_t[]){1}));
    case_map(c, c->outs.at[1], 1, (int[]){0});
    case_cluster(c, SHAPE(n, 3), 1);
  } else {
    case_cluster(c, SHAPE(n), form == 0 ? 1 : 0);
  }
  return c;
}

static void same_bits_in_every_fusion(void **state) {
  (void)state;
  const int64_t sizes[] = {7, 100, 5000, 70001, 300000};
  for (int s = -1; s < COUNT_OF(sizes); s++) {
    Arena *a = arena_new();
    Case *cases[3];
    int n = s < 0 ? 2 : 3;
    for (int i = 0; i < n; i++) {
      case_random_state = 1234567; /* the same x in each */
      cases[i] = s < 0 ? row_sums(a, i) : whole_sum(a, i, sizes[s]);
    }
    void *lib;
    uint64_t seed = case_random_state;
    lib = case_compile(a, n, cases);
    size_t first, other;
    for (int i = 1; i < n; i++) {
      /* Inputs were drawn one case after another: give all of them the first one's. */
      const Value *v = val(cases[0]->g, cases[0]->c.in[0]);
      memcpy(cases[i]->inputs.at[0].memory, cases[0]->inputs.at[0].memory,
             (size_t)shape_bytes(&v->shape, v->dtype));
      char *x = bytes_of(cases[0], lib, 0, &first), *y = bytes_of(cases[i], lib, i, &other);
      assert_true(other >= first);
      assert_memory_equal(x, y, first);
    }
    case_random_state = seed;
    arena_free(a);
  }
}

/* ---- threads ---- */

static void same_bits_with_any_threads(void **state) {
  (void)state;
  Arena *a = arena_new();
  Case *cases[] = {row_sums(a, true), whole_sum(a, 0, 1 << 20), whole_sum(a, 2, 1 << 16)};
  void *lib = case_compile(a, COUNT_OF(cases), cases);
  for (int i = 0; i < COUNT_OF(cases); i++) {
    char *first = NULL;
    for (int threads = 1; threads <= 3; threads++) {
      omp_set_num_threads(threads);
      size_t n;
      char *now = bytes_of(cases[i], lib, i, &n);
      if (!first) first = now;
      assert_memory_equal(first, now, n);
    }
  }
  arena_free(a);
}

/* ---- NaN and infinity ---- */

static void nonfinite_values_stay(void **state) {
  (void)state;
  static const Op ops[] = {OP_NEG, OP_ABS, OP_EXP,   OP_LOG, OP_SQRT, OP_RSQRT, OP_TANH, OP_ERF,
                           OP_SIN, OP_COS, OP_FLOOR, OP_ADD, OP_MUL,  OP_MAX,   OP_MIN,  OP_POW};
  static const Op reductions[] = {OP_SUM, OP_AMAX, OP_ARGMAX};
  Arena *a = arena_new();
  Case *cases[COUNT_OF(ops) * 3 + COUNT_OF(reductions)];
  int n = 0;
  for (int t = DT_F32; t <= DT_F16; t++)
    for (int i = 0; i < COUNT_OF(ops); i++) {
      Case *c = cases[n++] =
          case_new(a, arena_printf(a, "%s of NaN in %s", op_name(ops[i]), dtype_name((DType)t)));
      ValueId x = case_input(c, (DType)t, SHAPE(40), 1, 2, PLAIN),
              y = case_input(c, (DType)t, SHAPE(40), 1, 2, PLAIN);
      case_out(c, ops[i] < OP_ADD ? g_unary(c->g, ops[i], x) : g_binary(c->g, ops[i], x, y));
      case_cluster(c, SHAPE(40), 1);
    }
  for (int i = 0; i < COUNT_OF(reductions); i++) {
    Case *c = cases[n++] = case_new(a, arena_printf(a, "%s of NaN", op_name(reductions[i])));
    ValueId x = case_input(c, DT_F32, SHAPE(40, 40), 1, 2, PLAIN);
    case_out(c, g_reduce(c->g, reductions[i], x, 1, (int64_t[]){1}));
    case_cluster(c, SHAPE(40, 40), 1);
  }
  void *lib = case_compile(a, n, cases);
  for (int i = 0; i < n; i++)
    for (int k = 0; k < cases[i]->inputs.n; k++) {
      CaseInput *in = &cases[i]->inputs.at[k];
      const Value *v = val(cases[i]->g, in->value);
      const double odd[] = {NAN, INFINITY, -INFINITY, 0, -0.0};
      for (int64_t e = 0; e < shape_count(&v->shape); e += 7) {
        in->data[e] = odd[e / 7 % 5];
        if (!k || e % 2)
          element_put(v->dtype, in->memory + e * dtype_bytes(v->dtype), in->data[e]);
        else
          in->data[e] = element_get(v->dtype, in->memory + e * dtype_bytes(v->dtype));
      }
    }
  for (int i = 0; i < n; i++) {
    case_run(cases[i], case_fn(lib, i));
    case_compare(cases[i]);
  }
  arena_free(a);
}

/* ---- in place ---- */

static void results_over_operands(void **state) {
  (void)state;
  Arena *a = arena_new();
  Case *c = case_new(a, "in place");
  ValueId x = case_input(c, DT_F32, SHAPE(30, 50), -2, 2, PLAIN);
  ValueId early = g_unary(c->g, OP_EXP, x); /* known in the first pass, x is wanted in the second */
  ValueId m = g_reduce(c->g, OP_AMAX, x, 1, (int64_t[]){1});
  ValueId late = g_binary(c->g, OP_SUB, x, g_broadcast(c->g, m, SHAPE(30, 50), (int64_t[]){0}));
  case_out(c, early);
  case_out(c, late);
  case_cluster(c, SHAPE(30, 50), 1);
  case_fill_inputs(c);
  case_lower(c);
  c->out_at[0].buf = c->in_at[0].buf;
  const char *why = NULL;
  c->kernel = lower_cluster(c->g, &c->c, c->in_at, c->out_at, a, &why);
  assert_non_null(c->kernel);
  Str source = {.arena = a};
  str_addf(&source, "%s%svoid k0%s", prelude_c, prelude_formats, kernel_print_c(c->kernel, a));
  const void *image;
  size_t size;
  Fail f = {0};
  assert_true(cpu_compile(a, source.text, &image, &size, NULL, &f));
  int fd = memfd_create("kernels", MFD_CLOEXEC);
  assert_true(write(fd, image, size) == (ssize_t)size);
  void *lib = dlopen(arena_printf(a, "/proc/self/fd/%d", fd), RTLD_NOW);
  assert_non_null(lib);
  char *second = case_memory(c, 30 * 50, DT_F32);
  c->out_memory = arena_array(a, char *, 2);
  c->out_memory[0] = c->inputs.at[0].memory;
  c->out_memory[1] = second;
  case_fn(lib, 0)((void *[]){c->inputs.at[0].memory, c->out_memory[0], second});
  case_compare(c);
  arena_free(a);
}

/* ---- refusals ---- */

static void impossible_clusters_are_named(void **state) {
  (void)state;
  Arena *a = arena_new();
  const char *why = NULL;
  Case *c = case_new(a, "a maximum over rows");
  ValueId x = case_input(c, DT_F32, SHAPE(6, 7), -2, 2, PLAIN),
          y = g_reduce(c->g, OP_AMAX, x, 1, (int64_t[]){0});
  case_map(c, y, 1, (int[]){1});
  case_out(c, y);
  case_cluster(c, SHAPE(6, 7), 1);
  int64_t extent;
  Storage in = {.buf = 0}, out = {.buf = 1, .stride = {1}};
  case_strides(&val(c->g, x)->shape, PLAIN, in.stride, &extent);
  assert_null(lower_cluster(c->g, &c->c, &in, &out, a, &why));
  assert_non_null(strstr(why, "only sums reduce over rows"));
  c = case_new(a, "a transpose of what it computes");
  x = case_input(c, DT_F32, SHAPE(6, 6), -2, 2, PLAIN);
  case_out(c, g_transpose(c->g, g_unary(c->g, OP_EXP, x), (int64_t[]){1, 0}));
  case_cluster(c, SHAPE(6, 6), 2);
  out = in;
  out.buf = 1;
  assert_null(lower_cluster(c->g, &c->c, &in, &out, a, &why));
  assert_non_null(strstr(why, "transpose"));
  arena_free(a);
}

/* ---- text ---- */

static void equal_layers_share_a_text(void **state) {
  (void)state;
  Arena *a = arena_new();
  const char *text[3];
  for (int i = 0; i < 3; i++) {
    Case *c = case_new(a, i ? "h.1.mlp" : "h.0.mlp");
    ValueId x = case_input(c, DT_F32, SHAPE(6, i == 2 ? 8 : 7), -2, 2, PLAIN);
    case_out(c, g_unary(c->g, OP_EXP, x));
    case_cluster(c, val(c->g, x)->shape, 2);
    case_fill_inputs(c);
    case_lower(c);
    text[i] = kernel_print_c(c->kernel, a);
  }
  assert_string_equal(text[0], text[1]);
  assert_string_not_equal(text[0], text[2]);
  assert_non_null(strstr(text[0], "const float *const p0 = arg[0]; /* f32 [6, 7] */"));
  arena_free(a);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(same_bits_in_every_fusion),     cmocka_unit_test(same_bits_with_any_threads),
      cmocka_unit_test(nonfinite_values_stay),         cmocka_unit_test(results_over_operands),
      cmocka_unit_test(impossible_clusters_are_named), cmocka_unit_test(equal_layers_share_a_text),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
