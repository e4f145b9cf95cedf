/* test_cpu_gemm.c - products on the CPU device: layouts, dtypes, batches, accumulation; the same
 * bits with any number of threads. */
#include "cpu_program.h"

typedef struct {
  DType a, b, c, product;
  int64_t batch, m, n, k, gap;
  bool ta, tb, accumulate;
} Product;

static void set_up(OneCommand *o, Arena *a, const Product *p) {
  one_new(o, a, CMD_GEMM);
  int ta = one_tensor(o, p->a, p->ta ? SHAPE(p->batch, p->k, p->m) : SHAPE(p->batch, p->m, p->k),
                      p->gap);
  int tb =
      one_tensor(o, p->b, p->tb ? SHAPE(p->batch, p->n, p->k) : SHAPE(p->batch, p->k, p->n), 0);
  int tc = one_tensor(o, p->c, SHAPE(p->batch, p->m, p->n), p->gap);
  o->cmd.gemm = (Gemm){.batch = p->batch,
                       .m = p->m,
                       .n = p->n,
                       .k = p->k,
                       .trans_a = p->ta,
                       .trans_b = p->tb,
                       .lda = o->tensors[ta].stride[1],
                       .ldb = o->tensors[tb].stride[1],
                       .ldc = o->tensors[tc].stride[1],
                       .step_a = o->tensors[ta].stride[0],
                       .step_b = o->tensors[tb].stride[0],
                       .step_c = o->tensors[tc].stride[0],
                       .accumulate = p->accumulate,
                       .product = p->product};
}

static double *expected(Arena *arena, const Product *p, const double *a, const double *b,
                        const double *old) {
  double *c = arena_array(arena, double, p->batch * p->m * p->n);
  for (int64_t x = 0; x < p->batch; x++)
    for (int64_t i = 0; i < p->m; i++)
      for (int64_t j = 0; j < p->n; j++) {
        double sum = 0;
        for (int64_t k = 0; k < p->k; k++)
          sum += a[x * p->m * p->k + (p->ta ? k * p->m + i : i * p->k + k)] *
                 b[x * p->k * p->n + (p->tb ? j * p->k + k : k * p->n + j)];
        int64_t at = (x * p->m + i) * p->n + j;
        c[at] = as_dtype(p->product, sum) + (p->accumulate ? old[at] : 0);
      }
  return c;
}

static void check(const Product *p) {
  Arena *a = arena_new();
  OneCommand o;
  set_up(&o, a, p);
  one_open(&o, 2);
  double *x = random_values(a, p->a, p->batch * p->m * p->k, -1, 1);
  double *y = random_values(a, p->b, p->batch * p->k * p->n, -1, 1);
  double *old = random_values(a, p->c, p->batch * p->m * p->n, -1, 1);
  one_put(&o, 0, x);
  one_put(&o, 1, y);
  one_put(&o, 2, old);
  one_run(&o);
  char what[160];
  snprintf(what, sizeof what, "%s x %s -> %s%s %lldx%lldx%lld%s%s", dtype_name(p->a),
           dtype_name(p->b), dtype_name(p->c), p->accumulate ? " added" : "", (long long)p->m,
           (long long)p->n, (long long)p->k, p->ta ? " ta" : "", p->tb ? " tb" : "");
  bool narrow = p->product != DT_F32;
  check_near(what, narrow ? p->product : p->c, p->batch * p->m * p->n, one_get(&o, 2),
             expected(a, p, x, y, old), 1e-5);
  replay_close(&o.replay);
  arena_free(a);
}

static void layouts(void **state) {
  (void)state;
  for (int t = 0; t < 4; t++)
    for (int batch = 1; batch <= 3; batch += 2)
      for (int acc = 0; acc < 2; acc++)
        check(&(Product){.batch = batch,
                         .m = 33,
                         .n = 20,
                         .k = 17,
                         .gap = 3,
                         .ta = t & 1,
                         .tb = t & 2,
                         .accumulate = acc});
  check(&(Product){.batch = 1, .m = 1, .n = 300, .k = 70, .tb = true});
  check(&(Product){.batch = 1, .m = 300, .n = 1, .k = 1});
  check(&(Product){.batch = 1, .m = 400, .n = 300, .k = 200, .gap = 8}); /* several tiles */
}

static void dtypes(void **state) {
  (void)state;
  for (int t = DT_BF16; t <= DT_F16; t++) {
    DType h = (DType)t;
    check(&(Product){
        .a = h, .b = h, .c = h, .product = h, .batch = 2, .m = 40, .n = 24, .k = 16, .gap = 4});
    check(&(Product){.a = h,
                     .b = h,
                     .c = DT_F32,
                     .batch = 1,
                     .m = 40,
                     .n = 24,
                     .k = 16,
                     .ta = true,
                     .accumulate = true});
    check(&(Product){.a = h,
                     .b = h,
                     .c = DT_F32,
                     .product = h,
                     .batch = 1,
                     .m = 40,
                     .n = 24,
                     .k = 16,
                     .accumulate = true});
    check(&(Product){.a = h,
                     .b = DT_F32,
                     .c = h,
                     .product = h,
                     .batch = 1,
                     .m = 40,
                     .n = 24,
                     .k = 16,
                     .tb = true});
  }
}

static void any_number_of_threads(void **state) {
  (void)state;
  const int64_t sizes[][3] = {
      {768, 384, 128}, {128, 512, 768}, {1, 512, 2000}, {3, 256, 2000}, {250, 130, 999}};
  for (int i = 0; i < COUNT_OF(sizes); i++)
    for (int batch = 1; batch < 3; batch++) {
      Arena *a = arena_new();
      Product p = {.batch = batch, .m = sizes[i][0], .n = sizes[i][1], .k = sizes[i][2]};
      double *x = random_values(a, DT_F32, batch * p.m * p.k, -1, 1),
             *y = random_values(a, DT_F32, batch * p.k * p.n, -1, 1);
      double *got[3];
      for (int threads = 1; threads <= 3; threads++) {
        OneCommand o;
        set_up(&o, a, &p);
        one_open(&o, threads);
        one_put(&o, 0, x);
        one_put(&o, 1, y);
        one_run(&o);
        got[threads - 1] = one_get(&o, 2);
        replay_close(&o.replay);
      }
      size_t bytes = sizeof(double) * (size_t)(batch * p.m * p.n);
      assert_memory_equal(got[0], got[1], bytes);
      assert_memory_equal(got[0], got[2], bytes);
      arena_free(a);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(layouts), cmocka_unit_test(dtypes),
                                     cmocka_unit_test(any_number_of_threads)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
