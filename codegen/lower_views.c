/* lower_views.c - index maps of the lowering: loads of cluster inputs through views, and gathers.
 *
 * An index map works backwards: from the index of an element of the view to that of the operand's
 * element. Pads add guards, reshapes divide and take remainders, all else is affine. */
#include <string.h>

#include "lower.h"

static KIndex space_index(const Lower *l, const AxisMap *map, int k) {
  return kindex_axis(l->axis[map->axes[k]], 1);
}

static int input_of(const Lower *l, ValueId v) {
  for (int i = 0; i < l->c->nin; i++)
    if (l->c->in[i] == v) return i;
  return -1;
}

/* A load sees what was there before the kernel: inputs at the same place are one. */
static int first_at_place(const Lower *l, int in) {
  for (int i = 0; i < in; i++)
    if (l->in_at[i].buf == l->in_at[in].buf && l->in_at[i].offset == l->in_at[in].offset &&
        val(l->g, l->c->in[i])->dtype == val(l->g, l->c->in[in])->dtype)
      return i;
  return in;
}

KReg lower_load(Lower *l, ValueId v, const KIndex *index, int nguards, const KGuard *guards) {
  int in = input_of(l, v);
  if (in < 0) return lower_fail(l, "value %d is read but neither computed nor an input", (int)v);
  KInstr load = {.kind = KI_LOAD, .param = first_at_place(l, in), .dtype = val(l->g, v)->dtype};
  for (int k = 0; k < val(l->g, v)->shape.rank; k++)
    kindex_add(l->arena, &load.at, &index[k], l->in_at[in].stride[k]);
  load.nguards = nguards;
  load.guards = guards ? arena_copy(l->arena, guards, sizeof *guards * (size_t)nguards) : NULL;
  load.mask = kindex_mask(&load.at);
  for (int g = 0; g < nguards; g++) load.mask |= kindex_mask(&load.guards[g].at);
  return lower_add(l, load);
}

/* Index of the operand's element from that of the reshape's. Runs of axes whose products agree are
 * mapped on their own, so that only what really changes shape pays for divisions. */
static void reshape_index(Lower *l, const Shape *to, const KIndex *index, const Shape *from,
                          KIndex *out) {
  int i = 0, j = 0;
  while (j < from->rank) {
    int64_t pi = 1, pj = 1;
    int i0 = i, j0 = j;
    do {
      if (pj <= pi && j < from->rank)
        pj *= from->dim[j++];
      else
        pi *= to->dim[i++];
    } while (pi != pj || (j < from->rank && from->dim[j] == 1));
    KIndex flat = kindex_zero();
    int64_t stride = 1;
    for (int x = i - 1; x >= i0; x--) {
      if (to->dim[x] > 1) kindex_add(l->arena, &flat, &index[x], stride);
      stride *= to->dim[x];
    }
    int64_t left = pj, below = 1;
    for (int x = j - 1; x >= j0; x--) {
      left /= from->dim[x];
      out[x] = from->dim[x] == 1
                   ? kindex_zero()
                   : kindex_divmod(l->arena, &flat, below, left > 1 ? from->dim[x] : 0);
      below *= from->dim[x];
    }
  }
}

/* The operand's index, from the view's; appends guards. */
static void view_index(Lower *l, const Node *n, const KIndex *index, KIndex *out, int *nguards,
                       KGuard *guards) {
  const Shape *to = &val(l->g, n->out)->shape, *from = &val(l->g, n->in[0])->shape;
  const int64_t *list, *other;
  switch (n->op) {
    case OP_BROADCAST:
      node_list(n, "axes", &list);
      for (int k = 0; k < from->rank; k++)
        out[k] = from->dim[k] == 1 ? kindex_zero() : index[list[k]];
      break;
    case OP_TRANSPOSE:
      node_list(n, "perm", &list);
      for (int k = 0; k < from->rank; k++) out[list[k]] = index[k];
      break;
    case OP_SLICE:
      node_list(n, "start", &list);
      for (int k = 0; k < from->rank; k++) {
        out[k] = index[k];
        out[k].constant += list[k];
      }
      break;
    case OP_PAD:
      node_list(n, "before", &list);
      node_list(n, "after", &other);
      for (int k = 0; k < from->rank; k++) {
        out[k] = index[k];
        out[k].constant -= list[k];
        if (list[k] || other[k]) guards[(*nguards)++] = (KGuard){out[k], from->dim[k]};
      }
      break;
    case OP_RESHAPE:
      reshape_index(l, to, index, from, out);
      break;
    default:
      bug("`%s` is no index map", op_name(n->op));
  }
}

/* A reshape that only adds or drops axes of one element, or a broadcast: the register of the
 * operand is that of the result, because registers are indexed by axes of the space. */
static bool is_alias(const Graph *g, const Node *n) {
  if (n->op == OP_BROADCAST) return true;
  if (n->op != OP_RESHAPE) return false;
  const Shape *a = &val(g, n->in[0])->shape, *b = &val(g, n->out)->shape;
  int i = 0, j = 0;
  for (;;) {
    while (i < a->rank && a->dim[i] == 1) i++;
    while (j < b->rank && b->dim[j] == 1) j++;
    if (i == a->rank || j == b->rank) return i == a->rank && j == b->rank;
    if (a->dim[i++] != b->dim[j++]) return false;
  }
}

KReg lower_view(Lower *l, const Node *n, const AxisMap *map) {
  int at = lower_inside(l, n->in[0]);
  if (at >= 0 && is_alias(l->g, n)) return l->reg[at];
  KIndex index[MAX_RANK], next[MAX_RANK];
  KGuard guards[4 * MAX_RANK];
  int nguards = 0;
  for (int k = 0; k < val(l->g, n->out)->shape.rank; k++) index[k] = space_index(l, map, k);
  for (int depth = 0; depth < 4; depth++) {
    memset(next, 0, sizeof next);
    view_index(l, n, index, next, &nguards, guards);
    at = lower_inside(l, n->in[0]);
    if (at < 0) return lower_load(l, n->in[0], next, nguards, nguards ? guards : NULL);
    n = node_at(l->g, l->c->nodes[at]);
    if (op_kind(n->op) != VIEW) break;
    memcpy(index, next, sizeof index);
  }
  return lower_fail(l, "`%s` of a value that the kernel computes itself", op_name(n->op));
}

KReg lower_gather(Lower *l, const Node *n, const AxisMap *map) {
  ValueId table = n->in[0], ids = n->in[1];
  int in = input_of(l, table), rank = val(l->g, ids)->shape.rank;
  if (in < 0) return lower_fail(l, "the table of a gather must be stored");
  KReg id = lower_value(l, ids, map);
  if (id < 0) return -1;
  KInstr load = {
      .kind = KI_LOAD, .param = in, .dtype = val(l->g, table)->dtype, .nin = 1, .in = {id}};
  load.gather = l->in_at[in].stride[0];
  for (int k = 1; k < val(l->g, table)->shape.rank; k++) {
    KIndex index = space_index(l, map, rank + k - 1);
    kindex_add(l->arena, &load.at, &index, l->in_at[in].stride[k]);
  }
  load.gather_rows = val(l->g, table)->shape.dim[0];
  load.mask = kindex_mask(&load.at);
  return lower_add(l, load);
}
