/* test_cuda_print.c - what the text of emitted CUDA loops promises, which needs no compiler to see:
 * layers that differ in their random keys share functions, choices of a function have the same
 * launches, transactions are whole, rows come ahead where they can. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "codegen/lower.h"
#include "codegen/print_cuda.h"
#include "cuda_graphs.h"
#include "passes/storage.h"

enum { MOST_FUNCTIONS = 8, SM = 90 };

typedef struct {
  int n;
  CudaFunction f[MOST_FUNCTIONS];
} Printed;

static Storage storage_of(const ValuePlace *p) {
  Storage s = {.buf = p->unit, .offset = p->offset};
  memcpy(s.stride, p->stride, sizeof s.stride);
  return s;
}

static int row_of(const char *name) {
  for (int r = 0; r < COUNT_OF(kernel_graph_rows); r++)
    if (!strcmp(kernel_graph_rows[r].name, name)) return r;
  fail_msg("no graph `%s`", name);
  return -1;
}

/* A cluster of a graph of cuda_graphs.h; the last one for -1. */
static Kernel *cluster_of(Arena *a, const char *name, int64_t rows, int64_t cols, DType t,
                          int which) {
  KernelGraph k = kernel_graph(a, row_of(name), rows, cols, t);
  Clusters cl = fuse_graph(k.g, a);
  StorageMap m = storage_map(&cl, a);
  int index = which < 0 ? cl.n - 1 : which;
  const Cluster *c = &cl.at[index];
  Storage *in = arena_array(a, Storage, c->nin + 1), *out = arena_array(a, Storage, c->nout + 1);
  for (int i = 0; i < c->nin; i++) in[i] = storage_of(&m.place[c->in[i]]);
  for (int i = 0; i < c->nout; i++) out[i] = storage_of(&m.out[index][i]);
  const char *why = NULL;
  Kernel *kernel = lower_cluster(cl.g, c, in, out, a, &why);
  if (!kernel) fail_msg("%s", why);
  return kernel;
}
static Kernel *kernel_of(Arena *a, const char *name, int64_t rows, int64_t cols, DType t) {
  return cluster_of(a, name, rows, cols, t, 0);
}

static Printed print(Arena *a, const Kernel *k, int choice) {
  Printed p;
  const char *why = NULL;
  p.n = kernel_print_cuda(k, SM, choice, a, p.f, MOST_FUNCTIONS, &why);
  if (!p.n) fail_msg("%s", why);
  return p;
}

static void layers_share_random_kernels(void **state) {
  (void)state;
  Arena *a = arena_new();
  Kernel *k = kernel_of(a, "dropout", 64, 768, DT_BF16);
  Printed one = print(a, k, CUDA_FULL);
  assert_true(k->nkeys > 0);
  for (int i = 0; i < k->nkeys; i++) k->keys[i] ^= 0x123456789abcdefull;
  for (int r = 0; r < k->ninstrs; r++) k->instrs[r].key ^= 0x123456789abcdefull;
  Printed other = print(a, k, CUDA_FULL);
  assert_int_equal(one.n, other.n);
  for (int i = 0; i < one.n; i++) assert_string_equal(one.f[i].body, other.f[i].body);
  assert_non_null(strstr(one.f[0].body, "keys[1]"));
  arena_free(a);
}

/* Choices give the same bits, and so have equal launches; the last has blocks of its own, which
 * leave a thread as many registers as there can be. */
static void choices_have_equal_launches(void **state) {
  (void)state;
  Arena *a = arena_new();
  static const int64_t cols[] = {64, 768, 1000, 1600, 4096, 5003, 20480};
  for (int r = 0; r < COUNT_OF(kernel_graph_rows); r++)
    for (int i = 0; i < COUNT_OF(cols); i++) {
      if (cols[i] % 64 || (cols[i] > 4096 && !kernel_graph_rows[r].any_width)) continue;
      Kernel *k = kernel_of(a, kernel_graph_rows[r].name, 96, cols[i], i % 2 ? DT_F32 : DT_BF16);
      Printed full = print(a, k, CUDA_FULL);
      for (int choice = CUDA_FULL + 1; choice < CUDA_CHOICES; choice++) {
        Printed p = print(a, k, choice);
        assert_int_equal(p.n, full.n);
        for (int f = 0; f < p.n; f++) {
          if (choice == CUDA_NARROW) {
            assert_in_range(p.f[f].threads, 1, full.f[f].threads > 256 ? 512 : 256);
            assert_in_range(p.f[f].resident, 0, 1);
            continue;
          }
          assert_int_equal(p.f[f].grid, full.f[f].grid);
          assert_int_equal(p.f[f].threads, full.f[f].threads);
          assert_int_equal(p.f[f].shared, full.f[f].shared);
          assert_int_equal(p.f[f].per_sm, full.f[f].per_sm);
        }
      }
    }
  arena_free(a);
}

static void transactions_are_whole(void **state) {
  (void)state;
  Arena *a = arena_new();
  Printed wide = print(a, kernel_of(a, "copy", 64, 768, DT_F32), CUDA_FULL),
          half = print(a, kernel_of(a, "copy", 64, 768, DT_BF16), CUDA_FULL);
  assert_non_null(strstr(wide.f[0].body, "mt_vector<float, 4>"));
  assert_non_null(strstr(half.f[0].body, "mt_vector<uint16_t, 8>"));
  assert_int_equal(wide.f[0].grid, 2 * half.f[0].grid);
  arena_free(a);
}

/* Sums over rows and rows of a vocabulary come through a ring; blocks beyond those that an SM holds
 * are of no use to the latter. */
static void rows_come_ahead(void **state) {
  (void)state;
  Arena *a = arena_new();
  Printed norm = print(a, kernel_of(a, "layernorm", 4096, 768, DT_BF16), CUDA_FULL),
          loss = print(a, kernel_of(a, "cross_entropy", 4096, 50304, DT_BF16), CUDA_FULL),
          softmax = print(a, kernel_of(a, "softmax", 4096, 768, DT_BF16), CUDA_FULL);
  assert_non_null(strstr(norm.f[0].body, "mt_ring_fill"));
  assert_int_equal(norm.f[0].per_sm, 0);
  assert_non_null(strstr(loss.f[0].body, "mt_ring_fill"));
  assert_int_equal(loss.f[0].per_sm, 1);
  assert_int_equal(loss.f[0].grid, 4096);
  assert_true(loss.f[0].shared > 2 * 50304 * 2);
  assert_null(strstr(softmax.f[0].body, "mt_ring_fill"));
  arena_free(a);
}

/* The sum that picks the target's logit reads one element. */
static void picked_column_is_read_alone(void **state) {
  (void)state;
  Arena *a = arena_new();
  Printed loss = print(a, kernel_of(a, "cross_entropy", 64, 50304, DT_BF16), CUDA_FULL);
  assert_non_null(strstr(loss.f[0].body, " < 50304) {"));
  int sums = 0;
  for (const char *at = loss.f[0].body; (at = strstr(at, "mt_row_sum<")); at++) sums++;
  assert_int_equal(sums, 1);
  arena_free(a);
}

static int count_of(const char *text, const char *what) {
  int n = 0;
  for (const char *at = text; (at = strstr(at, what)); at++) n++;
  return n;
}

/* The new moments are kept from the pass that finds their maximum to the one that encodes them, and
 * the weight in place is written where the update is computed: nothing is loaded or computed twice. */
static void updates_are_computed_once(void **state) {
  (void)state;
  Arena *a = arena_new();
  static const char *const graphs[] = {"adamw_blocks", "adamw_split_blocks", "lion_blocks"};
  for (int i = 0; i < COUNT_OF(graphs); i++) {
    Kernel *k = cluster_of(a, graphs[i], 64, 2048, DT_BF16, -1);
    Printed p = print(a, k, CUDA_FULL);
    int moments = i < 2 ? 2 : 1;
    assert_int_equal(count_of(p.f[0].body, "mt_sqrt("), moments - 1);
    assert_int_equal(count_of(p.f[0].body, " mt_entry("), moments);
    assert_int_equal(count_of(p.f[0].body, " = mt_vector<"), i == 1 ? 5 : moments + 2);
  }
  arena_free(a);
}

/* The three draws of an element are made of one word. */
static void draws_share_a_word(void **state) {
  (void)state;
  Arena *a = arena_new();
  Kernel *k = cluster_of(a, "adamw_random", 64, 2048, DT_BF16, -1);
  int draws = 0;
  for (int r = 0; r < k->ninstrs; r++) draws += k->instrs[r].kind == KI_RANDOM;
  assert_int_equal(draws, 1);
  assert_int_equal(k->nkeys, 1);
  arena_free(a);
}

/* A sum over everything has the elements themselves in flight, not the row and column factors that
 * come again and again. */
static void factors_are_loaded_at_their_use(void **state) {
  (void)state;
  Arena *a = arena_new();
  int found = 0;
  for (int c = 0; c < 8; c++) {
    Printed p = print(a, cluster_of(a, "adafactor", 4096, 2048, DT_BF16, c), CUDA_FULL);
    const char *factor = strstr(p.f[0].body, "= mt_vector<float, 8>(p3 + i1)");
    if (!factor || !strstr(p.f[0].body, "hi = lo + ")) continue;
    found++;
    assert_true(factor > strstr(p.f[0].body, "> r0 = b0[u]"));
    assert_int_equal(count_of(p.f[0].body, "[4];"), 1);
  }
  assert_int_equal(found, 1);
  arena_free(a);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(layers_share_random_kernels),
      cmocka_unit_test(choices_have_equal_launches),
      cmocka_unit_test(transactions_are_whole),
      cmocka_unit_test(rows_come_ahead),
      cmocka_unit_test(picked_column_is_read_alone),
      cmocka_unit_test(updates_are_computed_once),
      cmocka_unit_test(draws_share_a_word),
      cmocka_unit_test(factors_are_loaded_at_their_use),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
