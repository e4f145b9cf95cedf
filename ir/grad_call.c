/* grad_call.c - gradient rules of the ops with kernels of their own: contraction and attention. */
#include <string.h>
#include "grad.h"

/* The role of each axis of an operand or result of a dot: which batch axis, free axis or contracted
 * pair it is. */
enum { BATCH = 0, FREE = 100, CON = 200 };

typedef struct {
  int64_t batch[MAX_RANK], con[MAX_RANK], free[MAX_RANK];
  int nfree;
} Side;

typedef struct {
  int nbatch, ncon;
  Side side[2];
} Dot;

static Dot dot_of(Ad *ad, const Node *n) {
  static const char *const batch[] = {"batch_a", "batch_b"}, *const con[] = {"con_a", "con_b"};
  Dot d = {0};
  for (int i = 0; i < 2; i++) {
    Side *s = &d.side[i];
    const int64_t *list;
    unsigned bound = 0;
    d.nbatch = node_list(n, batch[i], &list);
    memcpy(s->batch, list, sizeof *list * d.nbatch);
    for (int k = 0; k < d.nbatch; k++) bound |= 1u << list[k];
    d.ncon = node_list(n, con[i], &list);
    memcpy(s->con, list, sizeof *list * d.ncon);
    for (int k = 0; k < d.ncon; k++) bound |= 1u << list[k];
    int rank = val(ad_graph(ad), n->in[i])->shape.rank;
    for (int k = 0; k < rank; k++)
      if (!(bound >> k & 1)) s->free[s->nfree++] = k;
  }
  return d;
}

/* Roles of the contracted axes in the order in which they stand in a side. */
static void con_roles(const Dot *d, const Side *s, int *role) {
  for (int i = 0; i < d->ncon; i++) {
    int before = 0;
    for (int k = 0; k < d->ncon; k++) before += s->con[k] < s->con[i];
    role[before] = CON + i;
  }
}

/* Operand `which` of n: dot of the cotangent with the other operand over the other's free axes.
 * Both orders of the two give the same numbers with the result's axes in different order: the one
 * that fits the operand is taken, so that nothing has to be moved afterwards. */
static ValueId dot_cotangent(Ad *ad, const Node *n, const Dot *d, int which, ValueId ct) {
  Graph *g = ad_graph(ad);
  const Side *own = &d->side[which], *other = &d->side[!which];
  const Value v = *val(g, n->in[which]);
  int64_t ct_batch[MAX_RANK], ct_con[MAX_RANK];
  for (int i = 0; i < d->nbatch; i++) ct_batch[i] = i;
  int first = d->nbatch + (which ? 0 : d->side[0].nfree); /* of the other's free axes in ct */
  for (int i = 0; i < other->nfree; i++) ct_con[i] = first + i;

  int want[MAX_RANK] = {0}, con[MAX_RANK];
  for (int i = 0; i < d->nbatch; i++) want[own->batch[i]] = BATCH + i;
  for (int i = 0; i < own->nfree; i++) want[own->free[i]] = FREE + i;
  for (int i = 0; i < d->ncon; i++) want[own->con[i]] = CON + i;
  con_roles(d, other, con);

  int have[2][MAX_RANK]; /* [0] with the cotangent first, [1] with the other operand first */
  for (int order = 0; order < 2; order++) {
    int at = 0, *h = have[order];
    for (int i = 0; i < d->nbatch; i++) h[at++] = BATCH + i;
    for (int i = 0; order && i < d->ncon; i++) h[at++] = con[i];
    for (int i = 0; i < own->nfree; i++) h[at++] = FREE + i;
    for (int i = 0; !order && i < d->ncon; i++) h[at++] = con[i];
  }
  int rank = v.shape.rank;
  int order = memcmp(have[1], want, sizeof *want * rank) == 0;
  ValueId o = n->in[!which];
  ValueId out = order ? g_dot(g, o, ct, d->nbatch, other->batch, ct_batch, other->nfree,
                              other->free, ct_con, v.dtype)
                      : g_dot(g, ct, o, d->nbatch, ct_batch, other->batch, other->nfree, ct_con,
                              other->free, v.dtype);
  if (!memcmp(have[order], want, sizeof *want * rank)) return out;
  int64_t perm[MAX_RANK];
  for (int k = 0; k < rank; k++)
    for (int j = 0; j < rank; j++)
      if (have[order][j] == want[k]) perm[k] = j;
  return g_transpose(g, out, perm);
}

/* The weight's gradient comes first: it is final then, and data gradients follow one another. */
void gr_dot(Ad *ad, const Node *n) {
  Graph *g = ad_graph(ad);
  Dot d = dot_of(ad, n);
  ValueId ct = g_cast(g, ad_cot(ad, n, 0), val(g, n->in[0])->dtype);
  int first = ad_is_weight(ad, n->in[1]);
  for (int i = 0; i < 2; i++) {
    int which = i ? !first : first;
    if (ad_needs(ad, n->in[which])) ad_give(ad, n->in[which], dot_cotangent(ad, n, &d, which, ct));
  }
}

void gr_attention(Ad *ad, const Node *n) {
  Graph *g = ad_graph(ad);
  ValueId d = ad_cot(ad, n, 0);
  if (ad_cot(ad, n, 1) >= 0) {
    ad_refuse(ad, n, E_NO_GRADIENT);
    return;
  }
  ValueId in[6 + 5] = {n->in[0], n->in[1], n->in[2], n->out, n->out + 1, d};
  for (int i = 3; i < n->nin; i++) in[3 + i] = n->in[i];
  ValueId out = graph_add(g, OP_ATTENTION_BWD, n->nin + 3, in, n->nints, n->ints, n->num, NULL);
  if (out < 0) return;
  for (int i = 0; i < 3; i++) ad_give(ad, n->in[i], out + i);
  int64_t flags = node_int(n, "flags");
  if (flags & 2) ad_give(ad, n->in[3 + (flags & 1)], out + 3);
}
