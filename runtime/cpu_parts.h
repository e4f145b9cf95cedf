/* cpu_parts.h - what the files of the CPU device share.
 *
 * Results never depend on the number of threads: work is cut into pieces by shapes alone, each
 * piece is done by one thread in a fixed order, and OpenBLAS only ever runs on one thread, inside a
 * piece. */
#ifndef MTC_CPU_PARTS_H
#define MTC_CPU_PARTS_H
#include "program.h"

/* Where a command's operands are while it runs. */
typedef struct {
  char *arena;
  float *scratch; /* f32 memory outside the arena, as much as the command asked for */
  int threads;
} CpuRun;

static inline void *cpu_at(const CpuRun *r, const Tensor *t) {
  return r->arena + t->offset;
}

/* Floats of scratch that a command needs with this many threads. */
int64_t cpu_gemm_scratch(const Cmd *c, int threads);
int64_t cpu_attention_scratch(const Cmd *c, int threads);
int64_t cpu_scatter_scratch(const Cmd *c, int threads);

void cpu_gemm(const CpuRun *r, const Cmd *c);
void cpu_attention(const CpuRun *r, const Cmd *c);
void cpu_attention_bwd(const CpuRun *r, const Cmd *c);
void cpu_scatter(const CpuRun *r, const Cmd *c);

/* ---- conversion of rows; vector code ---- */
/* n elements at p as f32. */
void cpu_load(DType t, const void *p, int64_t n, float *to);
/* Every element of an f32 row rounded to t and stored. */
void cpu_store(DType t, void *p, int64_t n, const float *from);
/* Rounded to t, kept in f32. */
void cpu_round(DType t, float *x, int64_t n);
static inline void *cpu_element(void *base, DType t, int64_t i) {
  return (char *)base + i * dtype_bytes(t);
}

#endif
