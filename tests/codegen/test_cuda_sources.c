/* test_cuda_sources.c - every emitted CUDA source compiles for every architecture without a stack
 * frame and without spills. Needs NVRTC, no GPU; skipped where NVRTC is not installed. Images are
 * cached, so that a second run is quick. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "codegen/attention_cuda.h"
#include "codegen/lower.h"
#include "codegen/nvrtc.h"
#include "codegen/print_cuda.h"
#include "codegen/scatter_cuda.h"
#include "cuda_graphs.h"
#include "passes/storage.h"

/* ---- sources wait until all are known and compile together ---- */
typedef struct {
  const char *what;
  AttProblem p;
  AttKernel kernel;
  int choice;
} Origin;

typedef struct {
  Arena *a;
  VEC(CudaSource) sources;
  VEC(Origin) origins;
} Batch;

static void batch_add(Batch *b, const char *text, int sm, bool fma, Origin o) {
  for (int i = 0; i < b->sources.n; i++)
    if (b->sources.at[i].sm == sm && !strcmp(b->sources.at[i].source, text)) return;
  vec_push(b->a, &b->sources, ((CudaSource){text, o.what, sm, fma}));
  vec_push(b->a, &b->origins, o);
}

static CudaImage *batch_compile(Batch *b) {
  CudaImage *images = arena_array(b->a, CudaImage, b->sources.n + 1);
  Fail f = {0};
  if (!nvrtc_compile(b->a, b->sources.n, b->sources.at, images, &f)) fail_msg("%s", f.text);
  return images;
}

static void assert_clean(const CudaImage *m, const CudaSource *s) {
  const KernelUse *u = image_spills(m);
  assert_true(m->use.n > 0);
  if (u)
    fail_msg("%s for %s: `%s` has %d bytes of stack, %d of spills", s->name, cuda_arch(s->sm),
             u->name, u->stack_bytes, u->spill_bytes);
}

/* ---- attention ---- */
static void add_attention(Batch *b, AttProblem p) {
  assert_null(attention_unsupported(&p));
  AttKernel kernels[ATT_MAX_LAUNCHES];
  for (int back = 0; back < 2; back++) {
    int n = attention_kernels(&p, back, kernels);
    for (int i = 0; i < n; i++) {
      AttVariant v;
      assert_true(attention_variant(&p, kernels[i], 0, b->a, &v));
      const char *what = arena_printf(
          b->a, "attention kernel %d, head size %lld, %s%s, %s", (int)kernels[i], (long long)p.head,
          p.causal ? "causal" : "full", p.mask ? ", masked" : "", dtype_name(p.dtype));
      batch_add(b, v.source, p.sm, true, (Origin){what, p, kernels[i], 0});
    }
  }
}

/* Compiles; what spills is replaced by its next variant, as the program builder does. */
static void compile_with_fallback(Batch *b) {
  while (b->sources.n) {
    CudaImage *images = batch_compile(b);
    Batch next = {.a = b->a};
    for (int i = 0; i < b->sources.n; i++) {
      Origin o = b->origins.at[i];
      if (!image_spills(&images[i]) && !images[i].serialized) continue;
      AttVariant v;
      if (!attention_variant(&o.p, o.kernel, ++o.choice, b->a, &v))
        assert_clean(&images[i], &b->sources.at[i]);
      batch_add(&next, v.source, o.p.sm, true, o);
    }
    *b = next;
  }
}

static AttProblem problem(int sm, int64_t head, bool causal, bool mask, DType t) {
  return (AttProblem){.sm = sm,
                      .batch = 2,
                      .tq = 2048,
                      .tk = 2048,
                      .heads = 4,
                      .kv_heads = 2,
                      .head = head,
                      .causal = causal,
                      .mask = mask,
                      .dtype = t,
                      .sms = 132};
}

static void attention(void **state) {
  (void)state;
  Batch b = {.a = arena_new()};
  for (int i = 0; i < cuda_arch_count; i++) {
    int sm = cuda_archs[i].sm;
    static const int64_t main_heads[] = {64, 128}, other_heads[] = {16, 32, 80, 96};
    for (int h = 0; h < COUNT_OF(main_heads); h++)
      add_attention(&b, problem(sm, main_heads[h], true, false, DT_BF16));
    /* The rest in turns over the architectures: each meets most kinds. */
    add_attention(&b, problem(sm, main_heads[(i + 1) % 2], false, false, DT_BF16));
    for (int h = i % 2; h < COUNT_OF(other_heads); h += 2)
      add_attention(&b, problem(sm, other_heads[h], (h / 2 + i / 2) % 2, false, DT_BF16));
    add_attention(&b, problem(sm, main_heads[i % 2], i % 2, true, DT_BF16));
    AttProblem plain = problem(sm, main_heads[i / 2 % 2], true, false, DT_F32);
    plain.bias = i % 3 == 0;
    plain.drop = i % 3 < 2;
    add_attention(&b, plain);
    add_attention(&b, problem(sm, other_heads[i % 4], i % 2, i % 3 == 0, DT_F32));
    add_attention(&b, problem(sm, main_heads[i % 2], i % 3 != 0, i % 3 == 2, DT_F16));
    AttProblem extra =
        problem(sm, main_heads[i / 2 % 2], i != 2, i == 2, i == 4 ? DT_F16 : DT_BF16);
    extra.bias = i != 2;
    extra.bias_pairs = i != 4;
    extra.drop = i == 0 || i == 2;
    extra.bias_dtype = i ? DT_F32 : DT_BF16;
    add_attention(&b, extra);
  }
  compile_with_fallback(&b);
  arena_free(b.a);
}

/* ---- loop nests and scatter ---- */
static Storage storage_of(const ValuePlace *p) {
  Storage s = {.buf = p->unit, .offset = p->offset};
  memcpy(s.stride, p->stride, sizeof s.stride);
  return s;
}

typedef struct {
  Arena *a;
  VEC(CudaFunction) f;
} Functions;

static void add_cluster(Functions *to, const Clusters *cl, const StorageMap *m, int i, int sm,
                        int choice) {
  const Cluster *c = &cl->at[i];
  if (c->kind != CL_LOOP) return;
  Storage *in = arena_array(to->a, Storage, c->nin + 1),
          *out = arena_array(to->a, Storage, c->nout + 1);
  for (int k = 0; k < c->nin; k++) in[k] = storage_of(&m->place[c->in[k]]);
  for (int k = 0; k < c->nout; k++) out[k] = storage_of(&m->out[i][k]);
  const char *why = NULL;
  Kernel *k = lower_cluster(cl->g, c, in, out, to->a, &why);
  if (!k) fail_msg("%s", why);
  CudaFunction f[8];
  int launches = kernel_print_cuda(k, sm, choice, to->a, f, COUNT_OF(f), &why);
  if (!launches) fail_msg("%s: %s", c->name, why);
  assert_true(cuda_workspace(k) >= 0);
  for (int x = 0; x < launches; x++) vec_push(to->a, &to->f, f[x]);
}

enum { MOST_FEATURES = 16384 }; /* of a norm's row, whose backward sums over rows too */

static Functions loops_of(Arena *a, int64_t rows, int64_t cols, DType t, int sm, int choice) {
  Functions all = {.a = a};
  for (int r = 0; r < COUNT_OF(kernel_graph_rows); r++) {
    if (cols > MOST_FEATURES && !kernel_graph_rows[r].any_width) continue;
    if (kernel_graph_rows[r].update && (t != DT_BF16 || rows < 512)) continue; /* one size is enough */
    KernelGraph k = kernel_graph(a, r, rows, cols, t);
    Clusters c = fuse_graph(k.g, a);
    StorageMap m = storage_map(&c, a);
    for (int i = 0; i < c.n; i++) add_cluster(&all, &c, &m, i, sm, choice);
  }
  return all;
}

/* Norms and what surrounds them, whose backward sums over rows: what needs most registers. */
static Functions norms_of(Arena *a, int64_t cols, DType t, int sm, int choice) {
  Functions all = {.a = a};
  for (int r = 0; r < COUNT_OF(kernel_graph_rows); r++) {
    if (strcmp(kernel_graph_rows[r].name, "block_norm") &&
        strcmp(kernel_graph_rows[r].name, "residual_norm"))
      continue;
    KernelGraph k = kernel_graph(a, r, 4096, cols, t);
    Clusters c = fuse_graph(k.g, a);
    StorageMap m = storage_map(&c, a);
    for (int i = 0; i < c.n; i++) add_cluster(&all, &c, &m, i, sm, choice);
  }
  return all;
}

/* The functions of all graphs, each by the choice that it has come to. */
static const char *loops_text(Arena *a, const Functions *choices, const int *choice) {
  Str s = {.arena = a};
  str_add(&s, cuda_prelude_text(a));
  for (int i = 0; i < choices[0].f.n; i++)
    str_addf(&s, "%s\n",
             cuda_function_text(&choices[choice[i]].f.at[i], arena_printf(a, "f%d", i), a));
  return s.text;
}

/* One source of all loop nests at one size, and what its functions may become. */
typedef struct {
  const char *what;
  int sm;
  Functions choices[CUDA_CHOICES];
  int *choice;
} LoopSource;

/* Functions that spill take their next choice, as the program builder does it. */
static bool spilled(LoopSource *l, const CudaImage *m) {
  bool any = false;
  for (int u = 0; u < m->use.n; u++) {
    const KernelUse *k = &m->use.at[u];
    if (!k->stack_bytes && !k->spill_bytes) continue;
    any = true;
    if (getenv("KERNEL_SOURCE"))
      fprintf(stderr, "%s for %s: %s spills in choice %d\n", l->what, cuda_arch(l->sm), k->name,
              l->choice[atoi(k->name + 1)]);
    if (++l->choice[atoi(k->name + 1)] == CUDA_CHOICES)
      fail_msg("%s for %s: `%s` spills in every choice: %d bytes of stack, %d of spills", l->what,
               cuda_arch(l->sm), k->name, k->stack_bytes, k->spill_bytes);
  }
  return any;
}

typedef VEC(LoopSource) LoopSources;

/* Compiles all sources until none spills. */
static void compile_loops(Arena *a, LoopSources *todo) {
  while (todo->n) {
    Batch b = {.a = a};
    for (int i = 0; i < todo->n; i++) {
      LoopSource *l = &todo->at[i];
      vec_push(a, &b.sources,
               ((CudaSource){loops_text(a, l->choices, l->choice), l->what, l->sm, false}));
    }
    const char *keep = getenv("KERNEL_SOURCE");
    for (int i = 0; keep && i < b.sources.n; i++)
      write_file_atomic(arena_printf(a, "%s.%d", keep, i), b.sources.at[i].source, strlen(b.sources.at[i].source));
    CudaImage *images = batch_compile(&b);
    int left = 0;
    for (int i = 0; i < todo->n; i++) {
      assert_true(images[i].use.n > 0);
      if (spilled(&todo->at[i], &images[i])) todo->at[left++] = todo->at[i];
    }
    todo->n = left;
  }
}

/* The widths of GPT-2 and of Llama in every format of activations, in turns over the
 * architectures. */
static void norms(void **state) {
  (void)state;
  Arena *a = arena_new();
  static const int64_t widths[] = {768, 1024, 1280, 1600, 2048, 4096};
  static const DType formats[] = {DT_F32, DT_BF16, DT_F16};
  LoopSources todo = {0};
  for (int w = 0; w < COUNT_OF(widths); w++)
    for (int t = 0; t < COUNT_OF(formats); t++) {
      LoopSource l = {.sm = cuda_archs[(w + 2 * t) % cuda_arch_count].sm};
      l.what = arena_printf(a, "norms of %lld columns of %s", (long long)widths[w],
                            dtype_name(formats[t]));
      for (int c = 0; c < CUDA_CHOICES; c++)
        l.choices[c] = norms_of(a, widths[w], formats[t], l.sm, c);
      l.choice = arena_array(a, int, l.choices[0].f.n + 1);
      vec_push(a, &todo, l);
    }
  compile_loops(a, &todo);
  arena_free(a);
}

static void loops(void **state) {
  (void)state;
  Arena *a = arena_new();
  static const struct {
    int64_t rows, cols;
    DType t;
  } sizes[] = {{512, 768, DT_BF16},
               {77, 1000, DT_F32},
               {64, 50304, DT_BF16},
               {33, 4096, DT_F32},
               {64, 768, DT_F16}};
  LoopSources todo = {0};
  for (int i = 0; i < COUNT_OF(sizes); i++)
    for (int s = 0; s < cuda_arch_count; s++) {
      if (i > 1 && s % 2 != i % 2) continue;
      LoopSource l = {.sm = cuda_archs[s].sm};
      l.what = arena_printf(a, "loop nests of %lld x %lld %s", (long long)sizes[i].rows,
                            (long long)sizes[i].cols, dtype_name(sizes[i].t));
      for (int c = 0; c < CUDA_CHOICES; c++)
        l.choices[c] = loops_of(a, sizes[i].rows, sizes[i].cols, sizes[i].t, l.sm, c);
      l.choice = arena_array(a, int, l.choices[0].f.n + 1);
      vec_push(a, &todo, l);
    }
  compile_loops(a, &todo);
  arena_free(a);
}

static void scatter(void **state) {
  (void)state;
  Batch b = {.a = arena_new()};
  for (int i = 0; i < cuda_arch_count; i++) {
    ScatterProblem p = {.n = 4096,
                        .rows = 50257,
                        .columns = 768,
                        .row_stride = 768,
                        .align = 16,
                        .row_dtype = i % 2 ? DT_F32 : DT_BF16,
                        .out_dtype = i % 3 ? DT_F32 : DT_BF16,
                        .accumulate = i % 2 == 0};
    const char *text = arena_printf(b.a, "%s%s", cuda_prelude_text(b.a), scatter_source(&p, b.a));
    batch_add(&b, text, cuda_archs[i].sm, false, (Origin){.what = "scatter_add"});
  }
  CudaImage *images = batch_compile(&b);
  for (int i = 0; i < b.sources.n; i++) assert_clean(&images[i], &b.sources.at[i]);
  arena_free(b.a);
}

static bool nvrtc_is_here(void) {
  Arena *a = arena_new();
  Fail f = {0};
  CudaImage none;
  bool here = nvrtc_compile(a, 0, NULL, &none, &f);
  if (!here) fprintf(stderr, "skipped: %s\n", f.text);
  arena_free(a);
  return here;
}

int main(void) {
  if (!nvrtc_is_here()) return 77;
  const struct CMUnitTest tests[] = {cmocka_unit_test(loops), cmocka_unit_test(norms),
                                     cmocka_unit_test(scatter), cmocka_unit_test(attention)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
