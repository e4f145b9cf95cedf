/* cpu_scatter.c - the transpose of gather: out[id] += row, in the order of positions for every id.
 *
 * Threads share the columns, so that each number is added by one thread in the order of positions.
 * Sums are f32: a narrower output is gathered in scratch. */
#include <string.h>

#include "cpu_parts.h"

static int64_t count(const Tensor *t, int from, int to) {
  int64_t n = 1;
  for (int k = from; k < to; k++) n *= t->dim[k];
  return n;
}

int64_t cpu_scatter_scratch(const Cmd *c, int threads) {
  const Tensor *out = &c->tensors[2];
  int64_t width = count(out, 1, out->rank);
  return (out->dtype == DT_F32 ? 0 : count(out, 0, out->rank)) + threads * width;
}

/* Elements from the start of `rows` to position i's row, whatever the strides of the axes before.
 */
static int64_t row_offset(const Tensor *rows, int axes, int64_t i) {
  int64_t at = 0;
  for (int k = axes - 1; k >= 0; k--) {
    at += i % rows->dim[k] * rows->stride[k];
    i /= rows->dim[k];
  }
  return at;
}

/* Same for the elements of a row: contiguous but for outer axes. */
static void load_row(const Tensor *rows, void *base, int axes, int64_t from, int64_t to,
                     float *row) {
  int64_t inner = rows->rank > axes ? rows->dim[rows->rank - 1] : 1;
  for (int64_t j = from; j < to;) {
    int64_t rest = j / inner, at = rows->rank > axes ? j % inner * rows->stride[rows->rank - 1] : 0;
    for (int k = rows->rank - 2; k >= axes; k--) {
      at += rest % rows->dim[k] * rows->stride[k];
      rest /= rows->dim[k];
    }
    int64_t n = inner - j % inner < to - j ? inner - j % inner : to - j;
    cpu_load(rows->dtype, cpu_element(base, rows->dtype, at), n, row);
    row += n;
    j += n;
  }
}

void cpu_scatter(const CpuRun *r, const Cmd *c) {
  const Tensor *ids = &c->tensors[0], *rows = &c->tensors[1], *out = &c->tensors[2];
  int64_t n = count(ids, 0, ids->rank), width = count(out, 1, out->rank), all = out->dim[0] * width;
  float *sums = out->dtype == DT_F32 ? cpu_at(r, out) : r->scratch;
  float *lines = r->scratch + (out->dtype == DT_F32 ? 0 : all);
  const int32_t *id = cpu_at(r, ids);
  if (!c->accumulate)
    memset(sums, 0, sizeof(float) * (size_t)all);
  else if (out->dtype != DT_F32)
    cpu_load(out->dtype, cpu_at(r, out), all, sums);
  int64_t pieces = n * width > 1 << 14 ? r->threads : 1,
          piece = round_up(ceil_div(width, pieces), 16);
#pragma omp parallel for schedule(static) num_threads(r->threads) if (pieces > 1)
  for (int64_t p = 0; p < pieces; p++) {
    int64_t from = p * piece, to = from + piece < width ? from + piece : width;
    if (from >= to) continue;
    float *line = lines + p * width;
    for (int64_t i = 0; i < n; i++) {
      if (id[i] < 0 || id[i] >= out->dim[0]) continue;
      void *base = cpu_element(cpu_at(r, rows), rows->dtype, row_offset(rows, ids->rank, i));
      load_row(rows, base, ids->rank, from, to, line);
      float *sum = sums + id[i] * width + from;
      for (int64_t j = 0; j < to - from; j++) sum[j] += line[j];
    }
  }
  if (out->dtype != DT_F32) cpu_store(out->dtype, cpu_at(r, out), all, sums);
}
