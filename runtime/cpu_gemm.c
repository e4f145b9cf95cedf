/* cpu_gemm.c - matrix products on the CPU: OpenBLAS in f32, over tiles fixed by the shape.
 *
 * A product is cut into tiles of c; each tile is one call of sgemm on one thread, because sgemm
 * with several threads gives other sums than with one. OpenBLAS takes one inside a parallel region,
 * or when OpenMP is set to one. 16-bit operands are converted to f32 scratch first; a c that is not
 * f32, or whose product is rounded before it is added, is made in scratch and then stored. */
#include <cblas.h>
#include <omp.h>

#include "cpu_parts.h"

/* Multiply-adds that are worth a tile of their own, and the least side of one. */
enum { TILE_WORK = 4 << 20, TILE_SIDE = 64, MAX_TILES = 64 };

typedef struct {
  int64_t rows, cols;   /* of a tile */
  int64_t nrows, ncols; /* tiles */
} Tiles;

static Tiles tiles_of(const Gemm *g) {
  Tiles t = {g->m, g->n, 1, 1};
  int64_t want = g->m * g->n / TILE_WORK * g->k + g->m * g->n % TILE_WORK * g->k / TILE_WORK;
  if (want > MAX_TILES) want = MAX_TILES;
  while (t.nrows * t.ncols * g->batch < want) {
    if (t.rows >= t.cols && t.rows >= 2 * TILE_SIDE)
      t.rows = round_up(ceil_div(t.rows, 2), 16);
    else if (t.cols >= 2 * TILE_SIDE)
      t.cols = round_up(ceil_div(t.cols, 2), 16);
    else if (t.rows >= 2 * TILE_SIDE)
      t.rows = round_up(ceil_div(t.rows, 2), 16);
    else
      break;
    t.nrows = ceil_div(g->m, t.rows);
    t.ncols = ceil_div(g->n, t.cols);
  }
  return t;
}

/* c is computed in scratch when it is not simply what sgemm leaves. */
static bool staged(const Cmd *c) {
  return c->tensors[2].dtype != DT_F32 || (c->gemm.product != DT_F32);
}

/* Scratch of the whole command: a and b as f32 where they are not, then c when staged. */
typedef struct {
  int64_t a, b, c; /* floats of one matrix; 0 = used where it lies */
} Sizes;
static Sizes sizes_of(const Cmd *c) {
  const Gemm *g = &c->gemm;
  return (Sizes){c->tensors[0].dtype == DT_F32 ? 0 : g->m * g->k,
                 c->tensors[1].dtype == DT_F32 ? 0 : g->k * g->n, staged(c) ? g->m * g->n : 0};
}

int64_t cpu_gemm_scratch(const Cmd *c, int threads) {
  (void)threads;
  Sizes s = sizes_of(c);
  return (s.a + s.b + s.c) * c->gemm.batch;
}

/* Rows of all matrices of the batch, converted side by side. */
static void convert_matrices(const Tensor *t, char *base, int64_t batch, int64_t step, int64_t rows,
                             int64_t cols, int64_t ld, float *to) {
#pragma omp parallel for schedule(static) if (batch * rows * cols > 1 << 15)
  for (int64_t r = 0; r < batch * rows; r++)
    cpu_load(t->dtype, cpu_element(base, t->dtype, r / rows * step + r % rows * ld), cols,
             to + r * cols);
}

/* Where a tile's operands start. */
typedef struct {
  const float *a, *b;
  int64_t lda, ldb, step_a, step_b;
} Operands;

/* Adds or stores the finished rows of a staged tile. */
static void finish_rows(const Cmd *c, char *base, float *made, int64_t ld_made, int64_t rows,
                        int64_t cols) {
  const Tensor *t = &c->tensors[2];
  enum { CHUNK = 256 };
  float old[CHUNK];
  for (int64_t i = 0; i < rows; i++) {
    float *row = made + i * ld_made;
    cpu_round(c->gemm.product, row, cols);
    for (int64_t j = 0; j < cols; j += CHUNK) {
      int64_t n = cols - j < CHUNK ? cols - j : CHUNK;
      void *at = cpu_element(base, t->dtype, i * c->gemm.ldc + j);
      if (c->gemm.accumulate) {
        cpu_load(t->dtype, at, n, old);
        for (int64_t x = 0; x < n; x++) row[j + x] += old[x];
      }
      cpu_store(t->dtype, at, n, row + j);
    }
  }
}

static void one_tile(const CpuRun *r, const Cmd *c, const Operands *o, float *made, const Tiles *t,
                     int64_t tile) {
  const Gemm *g = &c->gemm;
  int64_t col = tile % t->ncols * t->cols, rest = tile / t->ncols;
  int64_t row = rest % t->nrows * t->rows, batch = rest / t->nrows;
  int64_t rows = g->m - row < t->rows ? g->m - row : t->rows,
          cols = g->n - col < t->cols ? g->n - col : t->cols;
  const float *a = o->a + batch * o->step_a + (g->trans_a ? row : row * o->lda);
  const float *b = o->b + batch * o->step_b + (g->trans_b ? col * o->ldb : col);
  int64_t at = batch * g->step_c + row * g->ldc + col;
  char *base = cpu_element(cpu_at(r, &c->tensors[2]), c->tensors[2].dtype, at);
  float *out = made ? made + (batch * g->m + row) * g->n + col : (float *)(void *)base;
  int64_t ldc = made ? g->n : g->ldc;
  cblas_sgemm(CblasRowMajor, g->trans_a ? CblasTrans : CblasNoTrans,
              g->trans_b ? CblasTrans : CblasNoTrans, (int)rows, (int)cols, (int)g->k, 1, a,
              (int)o->lda, b, (int)o->ldb, g->accumulate && !made ? 1 : 0, out, (int)ldc);
  if (made) finish_rows(c, base, out, ldc, rows, cols);
}

void cpu_gemm(const CpuRun *r, const Cmd *c) {
  const Gemm *g = &c->gemm;
  const Tensor *t = c->tensors;
  Sizes s = sizes_of(c);
  int64_t rows_a = g->trans_a ? g->k : g->m, cols_a = g->trans_a ? g->m : g->k;
  int64_t rows_b = g->trans_b ? g->n : g->k, cols_b = g->trans_b ? g->k : g->n;
  Operands o = {cpu_at(r, &t[0]), cpu_at(r, &t[1]), g->lda, g->ldb, g->step_a, g->step_b};
  float *free = r->scratch, *made = NULL;
  if (s.a) {
    convert_matrices(&t[0], cpu_at(r, &t[0]), g->batch, g->step_a, rows_a, cols_a, g->lda, free);
    o.a = free;
    o.lda = cols_a;
    o.step_a = s.a;
    free += s.a * g->batch;
  }
  if (s.b) {
    convert_matrices(&t[1], cpu_at(r, &t[1]), g->batch, g->step_b, rows_b, cols_b, g->ldb, free);
    o.b = free;
    o.ldb = cols_b;
    o.step_b = s.b;
    free += s.b * g->batch;
  }
  if (s.c) made = free;
  Tiles tiles = tiles_of(g);
  int64_t n = tiles.nrows * tiles.ncols * g->batch;
  if (n == 1) {
    omp_set_num_threads(1);
    one_tile(r, c, &o, made, &tiles, 0);
    omp_set_num_threads(r->threads);
    return;
  }
#pragma omp parallel for schedule(dynamic) num_threads(r->threads)
  for (int64_t i = 0; i < n; i++) one_tile(r, c, &o, made, &tiles, i);
}
