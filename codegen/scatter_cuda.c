/* scatter_cuda.c - writes out the kernels of scatter_add. See scatter_cuda.h. */
#include "scatter_cuda.h"
#include "embed.h"
#include "print_c.h"

EMBED_TEXT(cuda_scatter_add, "codegen/cuda/scatter_add.cu");

static void define(Str *s, const char *name, int64_t value) {
  str_addf(s, "#define %s %lld\n", name, (long long)value);
}

/* How an element of a vector becomes a float, and a vector of floats memory. */
static const char *vector_load(DType t) {
  return t == DT_BF16 ? "mt_bf16_at(v, j)" : t == DT_F16 ? "mt_f16_at(v, j)" : "(v).x[j]";
}
static const char *vector_put(DType t) {
  return t == DT_BF16 ? "mt_put_bf16" : t == DT_F16 ? "mt_put_f16" : "mt_put";
}

enum { MOST_BITS = 9, SORT_PART = 1024, SUM_THREADS = 256, SUM_PLACES = 32, WARP = 32 };

static int scatter_passes(const ScatterProblem *p) {
  int bits = 1;
  while (bits < 31 && (int64_t)1 << bits < p->rows) bits++;
  return (int)ceil_div(bits, MOST_BITS);
}

/* Columns that a thread takes at once. */
static int width(const ScatterProblem *p) {
  int vec = 8;
  while (vec > 1 &&
         (p->columns % vec || p->row_stride % vec ||
          p->align < (vec * dtype_bytes(p->row_dtype) < 16 ? vec * dtype_bytes(p->row_dtype) : 16)))
    vec /= 2;
  return vec;
}

const char *scatter_source(const ScatterProblem *p, Arena *a) {
  Str s = {.arena = a};
  int passes = scatter_passes(p), bits = 1;
  while ((int64_t)1 << (bits * passes) < p->rows) bits++;
  define(&s, "N", p->n);
  define(&s, "V", p->rows);
  define(&s, "D", p->columns);
  define(&s, "ROW_STRIDE", p->row_stride);
  define(&s, "ACCUMULATE", p->accumulate);
  define(&s, "PASSES", passes);
  define(&s, "BITS", bits);
  define(&s, "VEC", width(p));
  str_addf(&s, "#define ROW_T %s\n#define OUT_T %s\n", c_memory_type(p->row_dtype),
           c_memory_type(p->out_dtype));
  str_addf(&s, "#define LOAD_ROW(v, j) %s\n#define LOAD_OUT(v, j) %s\n#define PUT_OUT(p, v) %s(p, v)\n",
           vector_load(p->row_dtype), vector_load(p->out_dtype), vector_put(p->out_dtype));
  str_add(&s, cuda_scatter_add);
  return s.text;
}

int scatter_launches(const ScatterProblem *p, Arena *a, ScatterLaunch out[SCATTER_LAUNCHES]) {
  int passes = scatter_passes(p), n = 0;
  int64_t parts = ceil_div(p->n, SORT_PART);
  ensure(2 * passes < SCATTER_LAUNCHES, "scatter_add into %lld rows", (long long)p->rows);
  for (int i = 0; i < passes; i++) {
    out[n++] = (ScatterLaunch){arena_printf(a, "scatter_count_%d", i), parts, 256};
    out[n++] = (ScatterLaunch){arena_printf(a, "scatter_move_%d", i), parts, 256};
  }
  int64_t blocks = ceil_div(p->n, SUM_PLACES);
  if (!p->accumulate) blocks += ceil_div(p->rows, SUM_THREADS / WARP);
  out[n++] = (ScatterLaunch){"scatter_sum", blocks * ceil_div(p->columns, WARP * width(p)),
                             SUM_THREADS};
  return n;
}

int64_t scatter_workspace(int64_t n) {
  return (4 * n + (ceil_div(n, SORT_PART) << MOST_BITS)) * 4;
}
