/* job_loss.c - the loss as a sum of parts, each weighted for the whole optimizer step.
 *
 * Cross entropy carries the weight 1 / valid tokens of the step already. Every other additive part
 * is a value of this micro-batch alone and is multiplied by 1 / accumulation, so that the parts of
 * all micro-batches add up. */
#include "elab.h"

static bool is_weighted(const Build *b, ValueId v) {
  for (int i = 0; i < b->weighted.n; i++)
    if (b->weighted.at[i] == v) return true;
  return false;
}

static bool is_constant(const Graph *g, ValueId v) {
  const Node *n = node_of((Graph *)g, v);
  bool view = n->op == OP_BROADCAST || n->op == OP_RESHAPE || n->op == OP_CAST;
  return n->op == OP_CONST || (view && is_constant(g, n->in[0]));
}

/* Does a weighted value lie anywhere below v? Visited values are marked, so that each is looked at
 * once. */
static bool holds_weighted(Build *b, ValueId v, int8_t *seen) {
  if (is_weighted(b, v)) return true;
  if (seen[v]) return seen[v] > 1;
  seen[v] = 1;
  const Node *n = node_of(b->g, v);
  for (int i = 0; i < n->nin; i++)
    if (holds_weighted(b, n->in[i], seen)) seen[v] = 2;
  return seen[v] > 1;
}

typedef struct {
  Elab *e;
  Build *b;
  int8_t *seen; /* of the values that existed before weighting */
  Loc at;
  bool failed;
} Weigh;

static ValueId weigh(Weigh *w, ValueId v);

/* Sums and constant factors let the weights through; nothing else does. */
static ValueId weigh_inside(Weigh *w, ValueId v) {
  Graph *g = w->b->g;
  const Node n = *node_of(g, v);
  switch (n.op) {
    case OP_ADD:
    case OP_SUB: {
      ValueId a = weigh(w, n.in[0]), b = weigh(w, n.in[1]);
      return a == n.in[0] && b == n.in[1] ? v : g_binary(g, n.op, a, b);
    }
    case OP_MUL:
    case OP_DIV: {
      bool left = n.op == OP_MUL && is_constant(g, n.in[0]);
      if (!left && !is_constant(g, n.in[1])) break;
      ValueId x = weigh(w, n.in[left]), k = n.in[!left];
      if (x == n.in[left]) return v;
      return left ? g_binary(g, n.op, k, x) : g_binary(g, n.op, x, k);
    }
    case OP_NEG:
    case OP_CAST:
    case OP_RESHAPE: {
      ValueId x = weigh(w, n.in[0]);
      if (x == n.in[0]) return v;
      return n.op == OP_NEG ? g_unary(g, OP_NEG, x) : n.op == OP_CAST ? g_cast(g, x, DT_F32) : x;
    }
    default:
      break;
  }
  Diag *d = diag_error(w->e->d, E_TYPE, loc_ok(n.loc) ? n.loc : w->at,
                       "cross entropy goes through `%s` on its way to the loss", op_name(n.op));
  diag_note(w->e->d, d,
            "a loss is a sum of cross entropies and means, each times a constant: only then do "
            "micro-batches add up to the batch");
  w->failed = true;
  return v;
}

static ValueId weigh(Weigh *w, ValueId v) {
  Graph *g = w->b->g;
  if (is_weighted(w->b, v)) return v;
  if (holds_weighted(w->b, v, w->seen)) return weigh_inside(w, v);
  return g_binary(g, OP_MUL, v, g_var(g, var_scalar(g->vars, SC_INV_ACCUM)));
}

ValueId job_weigh_loss(Elab *e, Build *b, ValueId loss, Loc at) {
  b->g->here.loc = at;
  if (val(b->g, loss)->shape.rank) loss = g_reshape(b->g, loss, shape_scalar());
  Weigh w = {.e = e, .b = b, .at = at, .seen = arena_array(b->g->arena, int8_t, b->g->values.n)};
  ValueId v = loss < 0 ? -1 : weigh(&w, loss);
  return w.failed ? -1 : v;
}
