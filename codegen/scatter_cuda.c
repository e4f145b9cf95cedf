/* scatter_cuda.c - writes out the kernels of scatter_add. See scatter_cuda.h. */
#include "scatter_cuda.h"
#include "embed.h"
#include "print_c.h"

EMBED_TEXT(cuda_scatter_add, "codegen/cuda/scatter_add.cu");

static void define(Str *s, const char *name, int64_t value) {
  str_addf(s, "#define %s %lld\n", name, (long long)value);
}

static void define_access(Str *s, const char *name, DType t, void (*fill)(Str *, DType, const char *)) {
  str_addf(s, "#define %s(x) ", name);
  fill(s, t, "(x)");
  str_add(s, "\n");
}

const char *scatter_source(const ScatterProblem *p, Arena *a) {
  Str s = {.arena = a};
  int bits = 1;
  while (bits < 31 && (int64_t)1 << bits < p->rows) bits++;
  define(&s, "N", p->n);
  define(&s, "V", p->rows);
  define(&s, "D", p->columns);
  define(&s, "ROW_STRIDE", p->row_stride);
  define(&s, "ACCUMULATE", p->accumulate);
  define(&s, "PASSES", (bits + 7) / 8 * 2); /* even: the last pass ends in the first buffers */
  str_addf(&s, "#define ROW_T %s\n#define OUT_T %s\n", c_memory_type(p->row_dtype), c_memory_type(p->out_dtype));
  define_access(&s, "LOAD_ROW", p->row_dtype, c_loaded);
  define_access(&s, "LOAD_OUT", p->out_dtype, c_loaded);
  define_access(&s, "STORE_OUT", p->out_dtype, c_stored);
  str_add(&s, cuda_scatter_add);
  return s.text;
}

int64_t scatter_sum_blocks(const ScatterProblem *p) { return p->n + (p->accumulate ? 0 : p->rows); }

int64_t scatter_workspace(int64_t n) { return (5 * n + 2) * 4; }
