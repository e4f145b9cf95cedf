/* remat.c - free recompute by a minimum cut (see remat.h).
 *
 * Input: a simplified graph with forward and backward. Output: the same with clones. The network
 * has two vertices for each element-wise forward value that backward reads or that such a value is
 * made of; the edge between the two costs what saving the value costs. Values that are stored for
 * backward anyway - operands of its kernels, parameters, inputs - cost nothing and end the search.
 */
#include "remat.h"

#include "maxflow.h"
#include "rewrite.h"

bool *graph_tail(const Graph *g, Arena *a) {
  bool *tail = arena_array(a, bool, g->nodes.n + 1), *far = arena_array(a, bool, g->nodes.n + 1);
  for (NodeId n = g->nodes.n - 1; n >= 0; n--) {
    const Node *x = node_at(g, n);
    if (x->phase != PH_FORWARD) continue;
    tail[n] = !far[n];
    bool call = op_kind(x->op) == CALL;
    for (int k = 0; k < x->nin; k++)
      if (call || far[n]) far[val(g, x->in[k])->def] = true;
  }
  return tail;
}

typedef struct {
  const Graph *g;
  Arena *arena;
  bool *tail;
  bool *free;     /* per value: there in backward at no cost */
  bool *needed;   /* per value: a backward loop reads it */
  bool *stored;   /* per value: forward stores it in any case */
  bool *assigned; /* per variable: the graph assigns it, so that backward may not read it again */
  bool *table;    /* per node: depends on constants alone, through a function that takes time */
  int *vertex;    /* per value: its first vertex, -1 not in the network */
  bool *again;    /* per value: computed again in backward */
  VEC(ValueId) work;
  Rewrite r;
  int nslots; /* power of two */
  struct Clone {
    ValueId v, now; /* now: in the new graph; -1 = empty slot */
    int64_t key;
  } * slot;
  int nclones;
} Remat;

/* ---- what is what ---- */

static bool is_forward(const Remat *m, NodeId n) {
  return node_at(m->g, n)->phase == PH_FORWARD && !m->tail[n];
}

static bool recomputable(const Remat *m, ValueId v) {
  const Node *n = node_of(m->g, v);
  if (n->op == OP_GATHER || n->op == OP_HOLD || m->table[val(m->g, v)->def]) return false;
  for (int k = 0; k < n->nin; k++) {
    const Node *d = node_of(m->g, n->in[k]);
    if (d->op == OP_VAR && m->assigned[d->ints[0]]) return false;
  }
  return op_kind(n->op) == ELEM || n->op == OP_BROADCAST;
}

/* Tables, such as rotary angles: made once and kept, since they are small and slow to make for each
 * element. */
static void find_tables(Remat *m) {
  bool *constant = arena_array(m->arena, bool, m->g->nodes.n + 1);
  for (NodeId n = 0; n < m->g->nodes.n; n++) {
    const Node *x = node_at(m->g, n);
    constant[n] = (op_kind(x->op) == ELEM && x->op != OP_RANDOM) || x->op == OP_BROADCAST;
    bool slow = op_is_slow(x->op);
    for (int k = 0; k < x->nin; k++) {
      NodeId d = val(m->g, x->in[k])->def;
      constant[n] &= constant[d];
      slow |= m->table[d];
    }
    m->table[n] = constant[n] && slow && x->op != OP_BROADCAST;
  }
}

static bool is_view(const Node *n) {
  return (op_kind(n->op) == VIEW && n->op != OP_BROADCAST) || op_kind(n->op) == JOIN;
}

/* Reads its operand k from storage only. */
static bool reads_storage(const Node *n, int k) {
  if (is_view(n) || op_kind(n->op) == CALL) return true;
  return (n->op == OP_GATHER && k == 0) || n->op == OP_RANDOM;
}

static void classify(Remat *m) {
  const Graph *g = m->g;
  bool *assigned = m->assigned = arena_array(m->arena, bool, g->vars->all.n + 1);
  int *depth = arena_array(m->arena, int, g->nodes.n + 1); /* calls on the longest way to it */
  bool *used_late = arena_array(m->arena, bool, g->nodes.n + 1); /* views: read by backward */
  for (NodeId n = 0; n < g->nodes.n; n++) {
    const Node *x = node_at(g, n);
    if (x->op == OP_ASSIGN) assigned[x->ints[0]] = true;
    for (int k = 0; k < x->nin; k++) {
      const Node *d = node_of(g, x->in[k]);
      int here = depth[val(g, x->in[k])->def] + (op_kind(d->op) == CALL);
      if (here > depth[n]) depth[n] = here;
    }
    bool makes = op_kind(x->op) == CALL || op_kind(x->op) == REDUCE;
    for (int k = 0; k < x->nout && makes; k++) m->stored[x->out + k] = true;
  }
  for (NodeId n = g->nodes.n - 1; n >= 0; n--) {
    const Node *x = node_at(g, n);
    bool leaf = x->op == OP_INPUT || x->op == OP_CONST || x->op == OP_IOTA ||
                (x->op == OP_VAR && !assigned[x->ints[0]]);
    if (leaf) m->free[x->out] = true;
    bool late = !is_forward(m, n) || (is_view(x) && used_late[n]);
    for (int k = 0; k < x->nin; k++) {
      ValueId v = x->in[k];
      NodeId d = val(g, v)->def;
      if (!is_forward(m, d)) continue;
      if (late && reads_storage(x, k)) m->free[v] = true;
      if (late && !reads_storage(x, k)) m->needed[v] = true;
      if (late) used_late[d] = true;
      if (!late && (reads_storage(x, k) || depth[n] > depth[d])) m->stored[v] = true;
    }
  }
}

/* ---- the cut ---- */

static void visit(Remat *m, ValueId v) {
  if (m->vertex[v] >= 0 || m->free[v]) return;
  m->vertex[v] = 2 * m->work.n + 2;
  vec_push(m->arena, &m->work, v);
}

/* A byte saved counts most; to store what would have stayed in a register counts for the rest. */
static int64_t cost_of(const Remat *m, ValueId v) {
  const Value *x = val(m->g, v);
  int64_t bytes = shape_bytes(&x->shape, x->dtype);
  return 8 * bytes + (m->stored[v] ? 0 : bytes);
}

static void cut(Remat *m) {
  const Graph *g = m->g;
  for (ValueId v = 0; v < g->values.n; v++) m->vertex[v] = -1;
  for (ValueId v = 0; v < g->values.n; v++)
    if (m->needed[v]) visit(m, v);
  for (int i = 0; i < m->work.n; i++) {
    const Node *n = node_of(g, m->work.at[i]);
    for (int k = 0; k < n->nin && recomputable(m, m->work.at[i]); k++) visit(m, n->in[k]);
  }
  enum { SOURCE, SINK };
  Flow *f = flow_new(m->arena, 2 * m->work.n + 2);
  for (int i = 0; i < m->work.n; i++) {
    ValueId v = m->work.at[i];
    const Node *n = node_of(g, v);
    int in = m->vertex[v], out = in + 1;
    flow_edge(f, in, out, cost_of(m, v));
    if (m->needed[v]) flow_edge(f, out, SINK, FLOW_INFINITE);
    if (!recomputable(m, v)) flow_edge(f, SOURCE, in, FLOW_INFINITE);
    for (int k = 0; k < n->nin && recomputable(m, v); k++)
      if (!m->free[n->in[k]]) flow_edge(f, m->vertex[n->in[k]] + 1, in, FLOW_INFINITE);
  }
  bool *sink_side = arena_array(m->arena, bool, 2 * m->work.n + 2);
  flow_min_cut(f, SOURCE, SINK, sink_side);
  for (int i = 0; i < m->work.n; i++) m->again[m->work.at[i]] = sink_side[m->vertex[m->work.at[i]]];
}

/* ---- clones ---- */

static struct Clone *slot_of(Remat *m, ValueId v, int64_t key) {
  int64_t both[] = {v, key};
  uint64_t mask = (uint64_t)(m->nslots - 1), at = hash_bytes(both, sizeof both, 0) & mask;
  while (m->slot[at].now >= 0 && (m->slot[at].v != v || m->slot[at].key != key))
    at = (at + 1) & mask;
  return &m->slot[at];
}

static void new_slots(Remat *m, int n) {
  struct Clone *old = m->slot;
  int nold = m->nslots;
  m->nslots = n;
  m->slot = arena_array(m->arena, struct Clone, n);
  for (int i = 0; i < n; i++) m->slot[i].now = -1;
  for (int i = 0; i < nold; i++)
    if (old[i].now >= 0) *slot_of(m, old[i].v, old[i].key) = old[i];
}

/* Old value v for a reader of backward: the saved one, or a clone shared by readers of equal key.
 */
static ValueId for_backward(Remat *m, ValueId v, const Node *reader, int64_t key) {
  if (!m->again[v] || m->free[v]) return m->r.map[v];
  struct Clone *c = slot_of(m, v, key);
  if (c->now >= 0) return c->now;
  const Node *n = node_of(m->g, v);
  ValueId *in = arena_array(m->arena, ValueId, n->nin + 1);
  for (int k = 0; k < n->nin; k++) in[k] = for_backward(m, n->in[k], reader, key);
  Graph *to = m->r.to;
  graph_at(to, n);
  to->here.phase = PH_BACKWARD;
  to->here.chunk = reader->chunk;
  to->here.member = reader->member;
  to->here.tile = reader->tile;
  to->here.tag_id = reader->tag_id;
  if (!n->tag) to->here.tag = reader->tag_id ? reader->tag : NULL;
  Proto p = proto_of(n, in);
  ValueId now = graph_add_proto(to, &p);
  to->values.at[now].shape = val(m->g, v)->shape;
  if (++m->nclones * 2 > m->nslots) new_slots(m, 2 * m->nslots);
  *slot_of(m, v, key) = (struct Clone){v, now, key};
  return now;
}

static void clone_backward(Remat *m, NodeId id) {
  const Node *n = node_at(m->g, id);
  ValueId few[8];
  ValueId *in = n->nin <= COUNT_OF(few) ? few : arena_array(m->arena, ValueId, n->nin);
  int64_t key = n->tag_id ? n->tag_id : -1 - (int64_t)id;
  for (int k = 0; k < n->nin; k++) {
    bool again = m->again[n->in[k]] && !reads_storage(n, k);
    in[k] = again ? for_backward(m, n->in[k], n, key) : m->r.map[n->in[k]];
  }
  ValueId out = graph_clone_node(m->r.to, m->g, id, in);
  for (int k = 0; k < n->nout; k++) m->r.map[n->out + k] = out + k;
}

Graph *graph_remat(Graph *g, Arena *a) {
  Remat m = {.g = g, .arena = a, .tail = graph_tail(g, a)};
  bool **flags[] = {&m.free, &m.needed, &m.stored, &m.again};
  for (int i = 0; i < COUNT_OF(flags); i++) *flags[i] = arena_array(a, bool, g->values.n + 1);
  m.vertex = arena_array(a, int, g->values.n + 1);
  m.table = arena_array(a, bool, g->nodes.n + 1);
  classify(&m);
  find_tables(&m);
  cut(&m);
  new_slots(&m, 1024);
  m.r = rewrite_begin(g, a);
  for (NodeId n = 0; n < g->nodes.n; n++) {
    if (is_forward(&m, n))
      rewrite_node(&m.r, n);
    else
      clone_backward(&m, n);
  }
  return graph_drop_dead(rewrite_end(&m.r), a);
}
