/* dot.c - a contraction as a batch of matrix products.
 *
 * Axes of one kind (batch, rows, columns, contracted) have to step together, and one axis of each
 * matrix has to be contiguous; the fuser copies operands that do not. */
#include "program.h"

/* Axes that count as one: elements, and elements from one to the next. */
typedef struct {
  int64_t dim, stride;
} Axis;

static bool join(const Tensor *t, const int64_t *axis, int n, Axis *out) {
  *out = (Axis){1, 0};
  for (int k = n - 1; k >= 0; k--) {
    int64_t dim = t->dim[axis[k]], stride = t->stride[axis[k]];
    if (dim == 1) continue;
    if (out->dim == 1)
      out->stride = stride;
    else if (stride != out->stride * out->dim)
      return false;
    out->dim *= dim;
  }
  return true;
}

static int free_axes(int rank, const int64_t *batch, int nbatch, const int64_t *con, int ncon,
                     int64_t *out) {
  int n = 0;
  for (int k = 0; k < rank; k++) {
    bool bound = false;
    for (int i = 0; i < nbatch; i++) bound |= batch[i] == k;
    for (int i = 0; i < ncon; i++) bound |= con[i] == k;
    if (!bound) out[n++] = k;
  }
  return n;
}

/* The matrix rows x cols as BLAS wants it: stored by rows, or transposed, with a leading dimension.
 */
static bool matrix(Axis rows, Axis cols, bool *trans, int64_t *ld) {
  if ((cols.dim == 1 || cols.stride == 1) && (rows.dim == 1 || rows.stride >= cols.dim)) {
    *trans = false;
    *ld = rows.dim == 1 ? cols.dim : rows.stride;
    return true;
  }
  if ((rows.dim == 1 || rows.stride == 1) && (cols.dim == 1 || cols.stride >= rows.dim)) {
    *trans = true;
    *ld = cols.dim == 1 ? rows.dim : cols.stride;
    return true;
  }
  return false;
}

bool dot_gemm(const Graph *g, const Cluster *c, const Tensor *a, const Tensor *b, const Tensor *to,
              Gemm *out, const char **why) {
  const Node *n = node_at(g, c->nodes[0]);
  const int64_t *batch_a, *batch_b, *con_a, *con_b;
  int64_t free_a[MAX_RANK], free_b[MAX_RANK], axis[MAX_RANK];
  int nbatch = node_list(n, "batch_a", &batch_a), ncon = node_list(n, "con_a", &con_a);
  node_list(n, "batch_b", &batch_b);
  node_list(n, "con_b", &con_b);
  int na = free_axes(a->rank, batch_a, nbatch, con_a, ncon, free_a);
  int nb = free_axes(b->rank, batch_b, nbatch, con_b, ncon, free_b);
  for (int k = 0; k < to->rank; k++) axis[k] = k;
  Axis ab, am, ak, bb, bn, bk, cb, cm, cn;
  bool trans_c = false;
  *out = (Gemm){.accumulate = c->accumulate, .product = val(g, n->out)->dtype};
  bool fits =
      join(a, batch_a, nbatch, &ab) && join(a, free_a, na, &am) && join(a, con_a, ncon, &ak) &&
      join(b, batch_b, nbatch, &bb) && join(b, free_b, nb, &bn) && join(b, con_b, ncon, &bk) &&
      join(to, axis, nbatch, &cb) && join(to, axis + nbatch, na, &cm) &&
      join(to, axis + nbatch + na, nb, &cn) && matrix(am, ak, &out->trans_a, &out->lda) &&
      matrix(bk, bn, &out->trans_b, &out->ldb) && matrix(cm, cn, &trans_c, &out->ldc) && !trans_c;
  if (!fits) {
    *why = "a matrix product's operands do not lie as matrices";
    return false;
  }
  out->batch = ab.dim;
  out->m = am.dim;
  out->n = bn.dim;
  out->k = ak.dim;
  out->step_a = ab.stride;
  out->step_b = bb.stride;
  out->step_c = cb.stride;
  return true;
}
