/* kir.c - index arithmetic and loop grouping of the kernel IR: see kir.h. */
#include "kir.h"

#include <string.h>

#include "embed.h"
#include "prelude_c.h"
#include "target.h"

EMBED_TEXT(prelude_formats, "ir/formats.h");

KIndex kindex_zero(void) {
  return (KIndex){0};
}

KIndex kindex_axis(int axis, int64_t coef) {
  KIndex i = {0};
  if (axis >= 0) i.coef[axis] = coef;
  return i;
}

void kindex_add(Arena *a, KIndex *to, const KIndex *b, int64_t coef) {
  if (!coef) return;
  to->constant += coef * b->constant;
  for (int k = 0; k < MAX_RANK; k++) to->coef[k] += coef * b->coef[k];
  if (!b->nsubs) return;
  KSub *subs = arena_array(a, KSub, to->nsubs + b->nsubs);
  if (to->nsubs) memcpy(subs, to->subs, sizeof *subs * (size_t)to->nsubs);
  for (int s = 0; s < b->nsubs; s++) {
    KSub sub = b->subs[s];
    sub.coef *= coef;
    subs[to->nsubs++] = sub;
  }
  to->subs = subs;
}

KIndex kindex_divmod(Arena *a, const KIndex *i, int64_t div, int64_t mod) {
  if (div == 1 && !mod) return *i;
  KIndex out = {0};
  KSub *sub = arena_new_of(a, KSub);
  *sub = (KSub){1, div, mod, arena_copy(a, i, sizeof *i)};
  out.nsubs = 1;
  out.subs = sub;
  return out;
}

uint32_t kindex_mask(const KIndex *i) {
  uint32_t mask = 0;
  for (int k = 0; k < MAX_RANK; k++)
    if (i->coef[k]) mask |= 1u << k;
  for (int s = 0; s < i->nsubs; s++) mask |= kindex_mask(i->subs[s].of);
  return mask;
}

KLevel kreg_level(const KNest *n, const KInstr *i) {
  if (!i->mask && !i->late && !i->stage) return LV_UNIFORM;
  return i->mask & n->col_axes ? LV_ELEM : LV_ROW;
}

bool kir_expensive(const KInstr *i) {
  return i->kind == KI_RANDOM || (i->kind == KI_OP && op_is_slow(i->op));
}

KRanges kir_ranges(int64_t n) {
  int64_t blocks = column_blocks(n);
  int64_t size = ceil_div(n, blocks);
  return (KRanges){ceil_div(n, size), size};
}

/* ---- grouping ---- */

/* Axes a < b, next to each other in the nest, run as one loop when every index counts them as one.
 */
static bool index_joins(const KIndex *i, int a, int b, int64_t dim_b) {
  if (i->coef[a] != i->coef[b] * dim_b) return false;
  for (int s = 0; s < i->nsubs; s++)
    if (!index_joins(i->subs[s].of, a, b, dim_b)) return false;
  return true;
}

static bool instr_joins(const KInstr *i, int a, int b, int64_t dim_b) {
  if (!index_joins(&i->at, a, b, dim_b) || !index_joins(&i->element, a, b, dim_b) ||
      !index_joins(&i->column, a, b, dim_b))
    return false;
  for (int g = 0; g < i->nguards; g++)
    if (!index_joins(&i->guards[g].at, a, b, dim_b)) return false;
  return true;
}

static bool regs_join(const Kernel *k, int n, const KReg *regs, int a, int b) {
  for (int i = 0; i < n; i++)
    if (!instr_joins(&k->instrs[regs[i]], a, b, k->dim[b])) return false;
  return true;
}

static bool axes_join(const Kernel *k, const KNest *n, int a, int b) {
  for (int p = 0; p <= n->npasses; p++) {
    const KPass *pass = &n->passes[p];
    if (!regs_join(k, pass->nrow_regs, pass->row_regs, a, b)) return false;
    if (!regs_join(k, pass->nregs, pass->regs, a, b)) return false;
    if (!regs_join(k, pass->nsums, pass->sums, a, b)) return false;
    for (int s = 0; s < pass->nstores; s++)
      if (!index_joins(&pass->stores[s].at, a, b, k->dim[b])) return false;
  }
  if (!regs_join(k, n->nrow_sums, n->row_sums, a, b)) return false;
  for (int s = 0; s < n->nrow_stores; s++) {
    if (!index_joins(&n->row_stores[s].at, a, b, k->dim[b])) return false;
    /* A guarded store needs the axes that it lacks on their own. */
    if ((n->row_stores[s].mask >> a & 1) != (n->row_stores[s].mask >> b & 1)) return false;
  }
  return true;
}

static bool has_reductions(const KNest *n) {
  if (n->nrow_stores || n->nrow_sums) return true;
  for (int p = 0; p < n->npasses; p++)
    if (n->passes[p].nreduces || n->passes[p].nsums) return true;
  return false;
}

void kir_group(const Kernel *k, KNest *n) {
  bool map = n->map = !has_reductions(n);
  n->nrows = n->ncols = 0;
  n->rows = n->cols = 1;
  n->col_axes = 0;
  int groups = 0, last = -1;
  for (int x = 0; x < k->naxes; x++) {
    if (!(n->axes >> x & 1)) continue;
    bool same_side = map || (last < k->outer) == (x < k->outer);
    if (groups && same_side && axes_join(k, n, last, x)) {
      n->group[groups - 1].last = x;
      n->group[groups - 1].dim *= k->dim[x];
    } else {
      n->group[groups++] = (KGroup){x, x, k->dim[x]};
      if (x < k->outer) n->nrows++;
    }
    last = x;
  }
  if (map) n->nrows = groups ? groups - 1 : 0;
  n->ncols = groups - n->nrows;
  for (int g = 0; g < groups; g++) {
    *(g < n->nrows ? &n->rows : &n->cols) *= n->group[g].dim;
    for (int x = n->group[g].first; g >= n->nrows && x <= n->group[g].last; x++)
      n->col_axes |= 1u << x;
  }
  n->col_axes &= n->axes;
}
