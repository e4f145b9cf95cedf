/* fuse_group.c - which nodes run in one kernel: greedy merging of producers and consumers in graph
 * order.
 *
 * Input: a legal graph (fuse_legal.c). Output: groups; each is a loop nest over one space, or a
 * kernel call with the ADD and ASSIGN that it absorbs. A merge is made whenever it is legal, since
 * it saves the bytes between the two. It is legal when one of the two spaces holds the other, axes
 * matched through the value between them; when what reduces agrees on which axes are rows, and
 * nobody but a second stage reads sums over all rows; when nobody inside reads from storage what is
 * computed inside; when no path leads from one to the other through a third; when backward does not
 * run with forward that recompute may want apart, nor one chunk, tile or member of a group with another; and when an ASSIGN
 * runs with readers of the old value only where they read the same element. */
#include <string.h>

#include "fuse.h"
#include "remat.h"
#include "rewrite.h"

/* Columns of a nest that reduces its rows and sums over them as well: more than that stay on no chip. */
enum { MAX_BOTH = 16384 };
enum { MAX_INPUTS = 200, MAX_EMBEDDED = 16, MAX_VISITS = 4000, MAX_DISTANCE = 128 };

typedef struct {
  int parent; /* union-find; itself for a root */
  bool loop;
  Shape space;
  int outer;         /* -1: nothing reduces yet */
  NodeId head, tail; /* members, in no order */
  int size, inputs;  /* inputs: operands from outside, with repeats */
  NodeId late;       /* at least the largest node of it and of all that it waits for */
  int chunk, member, tile;
  bool forward, backward; /* holds far forward nodes, backward nodes */
  bool assigns;
  bool row_reduces, sums_rows;
  int seen;
} Nest;

typedef struct {
  const Graph *g;
  const Layout *l;
  Arena *arena;
  Nest *group;  /* per node */
  NodeId *next; /* per node: next member */
  AxisMap *axes;
  bool *column; /* per node: a sum over all rows, or made of such sums in the second stage */
  bool apart;   /* forward values that backward keeps end their groups */
  bool *tail;
  NodeId **after;
  int *nafter;
  int *first_waiter; /* per node: start in waiter of the nodes whose `after` names it */
  NodeId *waiter;
  Uses uses;
  int stamp;
  NodeId *stack;
  int now; /* node at work */
} Fuse;

static int root(Fuse *f, NodeId n) {
  while (f->group[n].parent != n) n = f->group[n].parent = f->group[f->group[n].parent].parent;
  return n;
}

/* ---- variables ---- */

/* Adds the readers of v, through views and concats that are not computed, to list. */
static void add_readers(const Graph *g, const Layout *l, const Uses *u, ValueId v, NodeId before,
                        NodeId *list, int *n, int max) {
  for (int i = u->first[v]; i < u->first[v + 1]; i++) {
    NodeId r = u->user[i];
    const Node *x = node_at(g, r);
    bool through = op_kind(x->op) == JOIN || (op_kind(x->op) == VIEW && !l->mapped[x->out]);
    if (through)
      add_readers(g, l, u, x->out, before, list, n, max);
    else if (r < before && *n < max)
      list[(*n)++] = r;
  }
}

void fuse_var_order(const Graph *g, const Layout *l, Arena *a, NodeId ***after_out,
                    int **nafter_out) {
  NodeId **after = arena_array(a, NodeId *, g->nodes.n + 1);
  int *nafter = arena_array(a, int, g->nodes.n + 1);
  NodeId *before = graph_assign_before(g, a);
  NodeId *read =
      arena_array(a, NodeId, g->vars->all.n + 1);         /* last VAR node since the last assign */
  NodeId *older = arena_array(a, NodeId, g->nodes.n + 1); /* VAR node before of the same value */
  Uses u = graph_uses(g, a);
  enum { MAX_READERS = 4096 };
  NodeId *list = arena_array(a, NodeId, MAX_READERS);
  for (int i = 0; i < g->vars->all.n; i++) read[i] = -1;
  for (NodeId n = 0; n < g->nodes.n; n++) {
    const Node *x = node_at(g, n);
    if (x->op == OP_VAR) {
      older[n] = read[x->ints[0]];
      read[x->ints[0]] = n;
    }
    if (x->op != OP_VAR && x->op != OP_ASSIGN) continue;
    int count = 0;
    if (before[n] >= 0) list[count++] = before[n];
    if (x->op == OP_ASSIGN) {
      for (NodeId v = read[x->ints[0]]; v >= 0; v = older[v])
        add_readers(g, l, &u, node_at(g, v)->out, n, list, &count, MAX_READERS);
      ensure(count < MAX_READERS, "fuse: too many readers of a variable");
      read[x->ints[0]] = -1;
    }
    after[n] = arena_copy(a, list, sizeof *list * (size_t)count);
    nafter[n] = count;
  }
  /* The HOLD of an assign waits with it: both run in one kernel. */
  for (NodeId n = 0; n < g->nodes.n; n++) {
    const Node *x = node_at(g, n);
    if (x->op != OP_ASSIGN || node_of(g, x->in[0])->op != OP_HOLD) continue;
    NodeId h = val(g, x->in[0])->def;
    after[h] = after[n];
    nafter[h] = nafter[n];
  }
  *after_out = after;
  *nafter_out = nafter;
}

/* The reverse of `after`. */
static void list_waiters(Fuse *f) {
  int n = f->g->nodes.n;
  f->first_waiter = arena_array(f->arena, int, n + 2);
  for (NodeId i = 0; i < n; i++)
    for (int k = 0; k < f->nafter[i]; k++) f->first_waiter[f->after[i][k] + 1]++;
  for (NodeId i = 0; i < n; i++) f->first_waiter[i + 1] += f->first_waiter[i];
  f->waiter = arena_array(f->arena, NodeId, f->first_waiter[n] + 1);
  int *at = arena_copy(f->arena, f->first_waiter, sizeof *at * (size_t)(n + 1));
  for (NodeId i = 0; i < n; i++)
    for (int k = 0; k < f->nafter[i]; k++) f->waiter[at[f->after[i][k]]++] = i;
}

/* The assign that stores node n, or -1. */
static NodeId assign_of(const Fuse *f, NodeId n) {
  const Node *x = node_at(f->g, n);
  if (x->op != OP_HOLD) return -1;
  for (int i = f->uses.first[x->out]; i < f->uses.first[x->out + 1]; i++)
    if (node_at(f->g, f->uses.user[i])->op == OP_ASSIGN) return f->uses.user[i];
  return -1;
}

/* ---- paths ---- */

/* Pushes the groups that node n waits for; true when `to` is one of them. What waits for a group is
 * at least as late. */
static bool push_waits(Fuse *f, NodeId n, int to, int from, int *depth) {
  const Node *x = node_at(f->g, n);
  int total = x->nin + f->nafter[n];
  NodeId floor = f->group[to].late;
  for (int k = 0; k < total; k++) {
    NodeId d = k < x->nin ? val(f->g, x->in[k])->def : f->after[n][k - x->nin];
    int r = root(f, d);
    Nest *q = &f->group[r];
    if (r == to) {
      if (from < 0) return true;
      continue;
    }
    if (r == from || q->seen == f->stamp || q->late < floor) continue;
    q->seen = f->stamp;
    f->stack[(*depth)++] = r;
  }
  return false;
}

/* A path from group `to` to group `from` through a third one. */
static bool path_between(Fuse *f, int to, int from) {
  if (f->group[from].late < f->group[to].late) return false;
  f->stamp++;
  int depth = 0, visits = 0;
  for (NodeId n = f->group[from].head; n >= 0; n = f->next[n]) push_waits(f, n, to, from, &depth);
  while (depth > 0) {
    int r = f->stack[--depth];
    for (NodeId n = f->group[r].head; n >= 0; n = f->next[n]) {
      if (++visits > MAX_VISITS) return true;
      if (push_waits(f, n, to, -1, &depth)) return true;
    }
  }
  return false;
}

static void raise_one(Fuse *f, NodeId n, NodeId late, int *depth) {
  if (n > f->now) return;
  int r = root(f, n);
  if (f->group[r].late >= late) return;
  f->group[r].late = late;
  f->stack[(*depth)++] = r;
}

/* Group r has become this late; so has all that waits for it. */
static void raise_late(Fuse *f, int r, NodeId late) {
  int depth = 0;
  f->group[r].late = late;
  f->stack[depth++] = r;
  while (depth > 0) {
    int q = f->stack[--depth];
    for (NodeId n = f->group[q].head; n >= 0; n = f->next[n]) {
      const Node *x = node_at(f->g, n);
      for (int k = 0; k < x->nout; k++)
        for (int i = f->uses.first[x->out + k]; i < f->uses.first[x->out + k + 1]; i++)
          raise_one(f, f->uses.user[i], late, &depth);
      for (int i = f->first_waiter[n]; i < f->first_waiter[n + 1]; i++)
        raise_one(f, f->waiter[i], late, &depth);
    }
  }
}

/* ---- spaces ---- */

/* Appends axis k of s to u; false when u is full. */
static bool add_axis(Shape *u, const Shape *s, int k, const char *name) {
  int r = u->rank;
  if (r < 0 || r >= MAX_RANK) return false;
  u->dim[r] = s->dim[k];
  u->axis[r] = name;
  u->rank = r + 1;
  return true;
}

/* The union of two spaces whose axes ma[k] and mb[k] are the same; to_a and to_b: where their axes
 * are in it. Axes between two common ones are the same when both spaces have as many there, of
 * equal sizes. */
static bool unite(const Shape *a, const Shape *b, int n, const int8_t *ma, const int8_t *mb,
                  Shape *u, int8_t *to_a, int8_t *to_b) {
  int i = 0, j = 0;
  u->rank = 0;
  for (int k = 0; k <= n; k++) {
    int ei = k < n ? ma[k] : a->rank, ej = k < n ? mb[k] : b->rank;
    int ni = ei - i, nj = ej - j;
    if (ni < 0 || nj < 0 || (ni && nj && ni != nj)) return false;
    for (int c = 0; c < (ni ? ni : nj); c++) {
      if (ni && nj && a->dim[i + c] != b->dim[j + c]) return false;
      if (ni) to_a[i + c] = (int8_t)u->rank;
      if (nj) to_b[j + c] = (int8_t)u->rank;
      if (!(ni ? add_axis(u, a, i + c, a->axis[i + c]) : add_axis(u, b, j + c, b->axis[j + c])))
        return false;
    }
    if (k == n) break;
    to_a[ei] = to_b[ej] = (int8_t)u->rank;
    if (!add_axis(u, a, ei, a->axis[ei] ? a->axis[ei] : b->axis[ej])) return false;
    i = ei + 1;
    j = ej + 1;
  }
  return true;
}

/* All readers of the group's values are in it, in group `other`, or the node at work. */
static bool used_within(Fuse *f, int group, int other) {
  for (NodeId n = f->group[group].head; n >= 0; n = f->next[n]) {
    const Node *x = node_at(f->g, n);
    if (x->nout == 0) return false;
    for (int i = f->uses.first[x->out]; i < f->uses.first[x->out + 1]; i++) {
      NodeId r = f->uses.user[i];
      if (r > f->now) return false;
      int q = root(f, r);
      if (q != group && q != other) return false;
    }
  }
  return true;
}

/* Levels fit: `small` (whose axes are `to` in the space of `large`) may run inside `large`. */
static bool embeds(Fuse *f, int small, int large, const int8_t *to) {
  const Nest *s = &f->group[small], *l = &f->group[large];
  if (s->outer >= 0) return false;
  bool rows = l->outer == s->space.rank;
  for (int k = 0; k < s->space.rank; k++) rows &= to[k] == k;
  if (rows && s->space.rank > 0) return true;
  return s->size <= MAX_EMBEDDED && used_within(f, small, large);
}

typedef struct {
  Shape space;
  int outer;
  int8_t to[2][MAX_RANK]; /* axes of the two groups in it */
} Union;

/* Group b, element-wise, has just the columns of group a. */
static bool is_second_stage(const Nest *a, const Nest *b, const int8_t *to) {
  if (b->outer >= 0 || a->outer < 0 || b->space.rank != a->space.rank - a->outer) return false;
  for (int k = 0; k < b->space.rank; k++)
    if (to[k] != a->outer + k) return false;
  return b->space.rank > 0;
}

static bool spaces_fit(Fuse *f, int a, int b, int n, const int8_t *ma, const int8_t *mb,
                       bool second, Union *u) {
  const Nest *x = &f->group[a], *y = &f->group[b];
  if (!unite(&x->space, &y->space, n, ma, mb, &u->space, u->to[0], u->to[1])) return false;
  int ra = x->space.rank, rb = y->space.rank, r = u->space.rank;
  if (r != (ra > rb ? ra : rb)) return false;
  u->outer = ra == r && x->outer >= 0 ? x->outer : rb == r ? y->outer : -1;
  if (second) return r == ra && is_second_stage(x, y, u->to[1]);
  if (ra == rb) return x->outer < 0 || y->outer < 0 || x->outer == y->outer;
  return ra < rb ? embeds(f, a, b, u->to[0]) : embeds(f, b, a, u->to[1]);
}

/* ---- merging ---- */

/* Axes, in the space of n's group, of operand k. False when the operand does not go with the loop.
 */
static bool operand_axes(const Fuse *f, NodeId id, int k, int8_t *axes) {
  const Node *n = node_at(f->g, id);
  int rank = val(f->g, n->in[k])->shape.rank;
  const AxisMap *m = &f->axes[id];
  const int64_t *list;
  if (fuse_needs_storage(f->g, f->l, n, k)) return false;
  if (n->op == OP_BROADCAST) node_list(n, "axes", &list);
  if (op_kind(n->op) == REDUCE) {
    int naxes = node_list(n, "axes", &list),
        next = naxes && list[0] == 0 && naxes < rank ? 0 : rank - naxes;
    for (int i = 0, cut = 0, kept = 0; i < rank; i++) {
      bool gone = cut < naxes && list[cut] == i;
      axes[i] = (int8_t)(gone ? next++ : m->axes[kept++]);
      cut += gone;
    }
    return true;
  }
  for (int i = 0; i < rank; i++) axes[i] = m->axes[n->op == OP_BROADCAST ? list[i] : i];
  return true;
}

static AxisMap mapped(const AxisMap *m, const int8_t *to) {
  AxisMap r = *m;
  for (int k = 0; k < MAX_RANK; k++)
    if (m->axes[k] >= 0) r.axes[k] = to[m->axes[k]];
  return r;
}

/* Edges between the members of two groups; -1 when one of them must come from storage, joins other
 * axes than u, or takes column results where it should not: with `second`, group b becomes the
 * second stage of a and takes nothing else of it; otherwise nobody reads them. */
static int edges_between(Fuse *f, int a, int b, const Union *u, bool second) {
  int edges = 0;
  for (int side = 0; side < 2; side++) {
    for (NodeId n = f->group[side ? b : a].head; n >= 0; n = f->next[n]) {
      const Node *x = node_at(f->g, n);
      for (int k = 0; k < x->nin; k++) {
        NodeId d = val(f->g, x->in[k])->def;
        int8_t axes[MAX_RANK];
        if (root(f, d) != (side ? a : b)) continue;
        if (f->column[d] != second || !operand_axes(f, n, k, axes)) return -1;
        if (second && side == 0) return -1;
        for (int i = 0; i < val(f->g, x->in[k])->shape.rank; i++)
          if (u->to[side][axes[i]] != u->to[!side][f->axes[d].axes[i]]) return -1;
        edges++;
      }
    }
  }
  return edges;
}

/* Node r reads, element by element and at the same place, the variable that HOLD h is assigned to.
 */
static bool reads_in_step(Fuse *f, NodeId r, NodeId h, const AxisMap *mr, const AxisMap *mh) {
  const Node *x = node_at(f->g, r);
  int var = (int)node_at(f->g, assign_of(f, h))->ints[0];
  if (op_kind(x->op) == EFFECT) return false;
  if (op_kind(x->op) != ELEM || memcmp(mr, mh, sizeof *mr)) return false;
  bool reads = false;
  for (int k = 0; k < x->nin; k++) {
    const Node *d = node_of(f->g, x->in[k]), *from = d;
    bool same_order = true; /* the elements of the variable, row-major, in another shape */
    while (op_kind(from->op) == VIEW && !f->l->mapped[from->out]) {
      same_order &= from->op == OP_RESHAPE;
      from = node_of(f->g, from->in[0]);
    }
    if (from->op != OP_VAR || from->ints[0] != var) continue;
    if (!same_order || fuse_needs_storage(f->g, f->l, x, k)) return false;
    if (!shape_equal(&val(f->g, x->in[k])->shape, &val(f->g, node_at(f->g, h)->out)->shape))
      return false;
    reads = true;
  }
  return reads;
}

static bool variables_fit(Fuse *f, int a, int b, const Union *u) {
  if (!f->group[a].assigns && !f->group[b].assigns) return true;
  for (int side = 0; side < 2; side++) {
    for (NodeId h = f->group[side ? b : a].head; h >= 0; h = f->next[h]) {
      if (assign_of(f, h) < 0) continue;
      AxisMap mh = mapped(&f->axes[h], u->to[side]);
      for (int i = 0; i < f->nafter[h]; i++) {
        NodeId r = f->after[h][i];
        int q = root(f, r);
        if (q != a && q != b) continue;
        AxisMap mr = mapped(&f->axes[r], u->to[q == b]);
        if (!reads_in_step(f, r, h, &mr, &mh)) return false;
      }
    }
  }
  return true;
}

static void merge(Fuse *f, int a, int b, const Union *u, int edges) {
  if (f->group[a].size < f->group[b].size) { /* b goes into a */
    Union v = *u;
    memcpy(v.to[0], u->to[1], sizeof v.to[0]);
    memcpy(v.to[1], u->to[0], sizeof v.to[1]);
    merge(f, b, a, &v, edges);
    return;
  }
  Nest *x = &f->group[a], *y = &f->group[b];
  for (int side = 0; side < 2; side++) {
    const Nest *q = side ? y : x;
    bool same = q->space.rank == u->space.rank;
    for (NodeId n = q->head; n >= 0 && !same; n = f->next[n])
      f->axes[n] = mapped(&f->axes[n], u->to[side]);
  }
  f->next[x->tail] = y->head;
  x->tail = y->tail;
  y->parent = a;
  x->space = u->space;
  x->outer = u->outer;
  x->size += y->size;
  x->inputs += y->inputs - edges;
  x->forward |= y->forward;
  x->backward |= y->backward;
  x->assigns |= y->assigns;
  x->row_reduces |= y->row_reduces;
  x->sums_rows |= y->sums_rows;
  if (x->late != y->late) raise_late(f, a, x->late > y->late ? x->late : y->late);
}

static int64_t columns_of(const Union *u) {
  int64_t n = 1;
  for (int k = u->outer < 0 ? u->space.rank : u->outer; k < u->space.rank; k++)
    n = mul64(n, u->space.dim[k]);
  return n;
}

/* Merges the groups of two nodes when that is legal; axes ma[k] and mb[k] of their spaces are the
 * same. */
static bool try_merge(Fuse *f, NodeId na, NodeId nb, int n, const int8_t *ma, const int8_t *mb) {
  int a = root(f, na), b = root(f, nb);
  const Nest *x = &f->group[a], *y = &f->group[b];
  Union u;
  bool second = f->column[na];
  if (a == b) return true;
  if (!x->loop || !y->loop || x->chunk != y->chunk || x->member != y->member || x->tile != y->tile)
    return false;
  if ((x->forward || y->forward) && (x->backward || y->backward)) return false;
  if (!spaces_fit(f, a, b, n, ma, mb, second, &u)) return false;
  bool both = (x->row_reduces || y->row_reduces) && (x->sums_rows || y->sums_rows);
  if (both && columns_of(&u) > MAX_BOTH) return false;
  int edges = edges_between(f, a, b, &u, second);
  if (edges < 0 || x->inputs + y->inputs - edges > MAX_INPUTS) return false;
  if (!variables_fit(f, a, b, &u) || path_between(f, a, b) || path_between(f, b, a)) return false;
  for (NodeId k = y->head; k >= 0 && second; k = f->next[k]) f->column[k] = true;
  merge(f, a, b, &u, edges);
  return true;
}

/* ---- nodes ---- */

/* A new group of one node: its space, and how the node stands in it. */
static void start_group(Fuse *f, NodeId id) {
  const Node *n = node_at(f->g, id);
  Nest *q = &f->group[id];
  *q = (Nest){.parent = id,
              .outer = -1,
              .head = id,
              .tail = id,
              .size = 1,
              .inputs = n->nin,
              .late = id,
              .chunk = n->chunk,
              .member = n->member,
              .tile = n->tile};
  for (int k = 0; k < n->nin + f->nafter[id]; k++) {
    NodeId d = k < n->nin ? val(f->g, n->in[k])->def : f->after[id][k - n->nin];
    NodeId late = f->group[root(f, d)].late;
    if (late > q->late) q->late = late;
  }
  f->next[id] = -1;
  memset(&f->axes[id], -1, sizeof f->axes[id]);
  q->forward = n->phase == PH_FORWARD && !f->tail[id];
  q->backward = n->phase == PH_BACKWARD;
  if (!fuse_is_loop(f->l, n)) return;
  q->loop = true;
  q->space = val(f->g, n->out)->shape;
  for (int k = 0; k < q->space.rank; k++) f->axes[id].axes[k] = (int8_t)k;
  if (op_kind(n->op) != REDUCE) return;
  const int64_t *list;
  int naxes = node_list(n, "axes", &list);
  q->space = val(f->g, n->in[0])->shape;
  bool rows = n->op == OP_SUM && naxes > 0 && list[0] == 0; /* leading axes: a sum over all rows */
  q->outer = rows ? naxes : q->space.rank - naxes;
  q->sums_rows = rows;
  q->row_reduces = !rows;
  if (rows) {
    f->column[id] = true;
    for (int k = 0; k < q->space.rank - naxes; k++) f->axes[id].axes[k] = (int8_t)(k + naxes);
  }
}

/* A cheap value joins its operands with its reader, not before: it is the reader's own copy. */
static bool waits_for_reader(const Fuse *f, NodeId id) {
  const Node *n = node_at(f->g, id);
  if (!fuse_cheap(f->g, f->l, n)) return false;
  for (int i = f->uses.first[n->out]; i < f->uses.first[n->out + 1]; i++) {
    const Node *r = node_at(f->g, f->uses.user[i]);
    if (!fuse_is_loop(f->l, r)) return false;
    for (int k = 0; k < r->nin; k++)
      if (r->in[k] == n->out && fuse_needs_storage(f->g, f->l, r, k)) return false;
  }
  return true;
}

/* Forward node d makes a value that is kept for backward; reader n, of forward as well, takes it
 * from storage, so that it can run again without d. Row statistics go with their row. */
static bool ends_group(Fuse *f, NodeId d, const Node *n) {
  const Node *x = node_at(f->g, d);
  bool forward = x->phase == PH_FORWARD && n->phase == PH_FORWARD && !f->tail[d];
  if (!f->apart || !forward || val(f->g, x->out)->shape.rank < f->group[root(f, d)].space.rank)
    return false;
  for (int i = f->uses.first[x->out]; i < f->uses.first[x->out + 1]; i++)
    if (node_at(f->g, f->uses.user[i])->phase == PH_BACKWARD) return true;
  return false;
}

static void join_operands(Fuse *f, NodeId id) {
  const Node *n = node_at(f->g, id);
  bool done[3] = {false};
  for (int round = 0; round < n->nin && n->nin <= 3;
       round++) { /* the operand of most bytes first */
    int best = -1;
    int64_t most = -1;
    for (int k = 0; k < n->nin; k++) {
      const Value *v = val(f->g, n->in[k]);
      int64_t bytes = shape_bytes(&v->shape, v->dtype);
      if (!done[k] && bytes > most) best = k, most = bytes;
    }
    done[best] = true;
    NodeId d = val(f->g, n->in[best])->def;
    if (!f->group[d].loop && !f->group[root(f, d)].loop) continue;
    if (!fuse_is_loop(f->l, node_at(f->g, d)) || ends_group(f, d, n)) continue;
    int8_t mb[MAX_RANK];
    if (!operand_axes(f, id, best, mb)) continue;
    int8_t ma[MAX_RANK];
    memcpy(ma, f->axes[d].axes, sizeof ma);
    bool merged = try_merge(f, d, id, val(f->g, n->in[best])->shape.rank, ma, mb);
    if (merged && waits_for_reader(f, d)) join_operands(f, d);
  }
}

/* A value that is assigned without depending on the old one goes with the last reader of that. */
static void join_readers(Fuse *f, NodeId id) {
  for (int i = f->nafter[id] - 1; i >= 0; i--) {
    NodeId r = f->after[id][i];
    const Node *x = node_at(f->g, r);
    if (op_kind(x->op) != ELEM || !f->group[root(f, r)].loop) continue;
    int rank = val(f->g, node_at(f->g, id)->out)->shape.rank;
    if (val(f->g, x->out)->shape.rank != rank) continue;
    int8_t ma[MAX_RANK], mb[MAX_RANK];
    memcpy(ma, f->axes[r].axes, sizeof ma);
    memcpy(mb, f->axes[id].axes, sizeof mb);
    if (try_merge(f, r, id, rank, ma, mb)) return;
  }
}

static void absorb(Fuse *f, NodeId id, int into) {
  Nest *q = &f->group[into];
  start_group(f, id);
  f->group[id].parent = into;
  f->next[q->tail] = id;
  q->tail = id;
  q->size++;
  raise_late(f, into, f->group[id].late > q->late ? f->group[id].late : q->late);
}

static void group_node(Fuse *f, NodeId id, const NodeId *product) {
  const Node *n = node_at(f->g, id);
  f->now = id;
  if (product[id] >= 0) {
    absorb(f, id, root(f, product[id]));
    return;
  }
  if (n->op == OP_ASSIGN) {
    int into = root(f, val(f->g, n->in[0])->def);
    absorb(f, id, into);
    f->axes[id] = f->axes[val(f->g, n->in[0])->def];
    return;
  }
  start_group(f, id);
  if (!f->group[id].loop) return;
  f->group[id].assigns = assign_of(f, id) >= 0;
  if (!waits_for_reader(f, id)) join_operands(f, id);
  if (f->group[root(f, id)].assigns && f->nafter[id]) join_readers(f, id);
}

/* Loops that read the same stored value, near each other in the graph, read it once. */
static void join_siblings(Fuse *f, ValueId v) {
  int rank = val(f->g, v)->shape.rank;
  NodeId last = -1;
  int8_t ma[MAX_RANK], mb[MAX_RANK];
  for (int i = f->uses.first[v]; i < f->uses.first[v + 1]; i++) {
    NodeId r = f->uses.user[i];
    const Node *x = node_at(f->g, r);
    const Nest *q = &f->group[root(f, r)];
    if (!fuse_is_loop(f->l, x) || !q->loop || q->space.rank != rank) continue;
    int k = 0;
    while (x->in[k] != v) k++;
    if (!operand_axes(f, r, k, mb)) continue;
    if (last >= 0 && r - last <= MAX_DISTANCE) try_merge(f, last, r, rank, ma, mb);
    operand_axes(f, r, k, ma);
    last = r;
  }
}

/* ---- result ---- */

static ClusterKind kind_of(const Node *n) {
  switch (n->op) {
    case OP_DOT:
      return CL_GEMM;
    case OP_ATTENTION:
      return CL_ATTENTION;
    case OP_ATTENTION_BWD:
      return CL_ATTENTION_BWD;
    case OP_SCATTER_ADD:
      return CL_SCATTER;
    default:
      return CL_LOOP;
  }
}

static Groups finish(Fuse *f) {
  const Graph *g = f->g;
  Groups r = {.axes = f->axes, .after = f->after, .nafter = f->nafter};
  r.of = arena_array(f->arena, int, g->nodes.n + 1);
  r.group = arena_array(f->arena, struct FuseGroup, g->nodes.n + 1);
  int *number = arena_array(f->arena, int, g->nodes.n + 1);
  for (NodeId n = 0; n < g->nodes.n; n++) number[n] = -1;
  for (NodeId n = 0; n < g->nodes.n; n++) {
    const Node *x = node_at(g, n);
    int at = root(f, n);
    Nest *q = &f->group[at];
    r.of[n] = GROUP_NONE;
    if (!q->loop && op_kind(node_at(g, at)->op) != CALL) continue;
    if (number[at] < 0) {
      number[at] = r.ngroups++;
      int outer = q->outer < 0 ? q->space.rank : q->outer;
      r.group[number[at]] = (struct FuseGroup){
          .kind = q->loop ? CL_LOOP : kind_of(x), .space = q->space, .outer = outer};
    }
    r.of[n] = number[at];
  }
  return r;
}

Groups fuse_groups(const Graph *g, const Layout *l, Arena *a, bool apart) {
  Fuse f = {.g = g, .l = l, .arena = a, .apart = apart};
  f.uses = graph_uses(g, a);
  f.tail = graph_tail(g, a);
  f.group = arena_array(a, Nest, g->nodes.n + 1);
  f.next = arena_array(a, NodeId, g->nodes.n + 1);
  f.axes = arena_array(a, AxisMap, g->nodes.n + 1);
  f.column = arena_array(a, bool, g->nodes.n + 1);
  f.stack = arena_array(a, NodeId, g->nodes.n + 1);
  fuse_var_order(g, l, a, &f.after, &f.nafter);
  list_waiters(&f);
  NodeId *before = graph_assign_before(g, a), *product = arena_array(a, NodeId, g->nodes.n + 1);
  for (NodeId n = 0; n < g->nodes.n; n++) product[n] = -1;
  for (NodeId n = 0; n < g->nodes.n; n++) {
    if (node_at(g, n)->op != OP_ASSIGN) continue;
    NodeId p = fuse_accumulates(g, &f.uses, before, n);
    if (p < 0) continue;
    product[n] = product[val(g, node_at(g, n)->in[0])->def] = p;
  }
  for (NodeId n = 0; n < g->nodes.n; n++) group_node(&f, n, product);
  f.now = g->nodes.n;
  for (ValueId v = 0; v < g->values.n; v++)
    if (val(g, v)->shape.rank > 0 && f.uses.first[v + 1] - f.uses.first[v] > 1)
      join_siblings(&f, v);
  return finish(&f);
}
