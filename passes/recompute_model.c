/* recompute_model.c - from a RecProblem to the model that the solvers work on: events, storage
 * sizes, items.
 *
 * Invariants of the model: events of a value are consecutive and in op order, its producer (if any)
 * first; bytes[v] is the size of the storage that v lies in; an op that could not give the same
 * result later has redo = false. */
#include "recompute_impl.h"

#include <string.h>

static void number_events(RecModel *m) {
  const RecProblem *p = m->p;
  Arena *a = m->arena;
  int *count = arena_array(a, int, m->nval + 1);
  for (int k = 0; k < m->nop; k++) {
    for (int i = 0; i < p->op[k].nin; i++) count[p->op[k].in[i]]++;
    for (int i = 0; i < p->op[k].nout; i++) count[p->op[k].out[i]]++;
  }
  m->first_event = arena_array(a, int, m->nval + 1);
  for (int v = 0; v < m->nval; v++) m->first_event[v + 1] = m->first_event[v] + count[v];
  m->nevent = m->first_event[m->nval];
  m->event_op = arena_array(a, int, m->nevent);
  m->event_value = arena_array(a, int, m->nevent);
  memcpy(count, m->first_event, (size_t)m->nval * sizeof *count);
  for (int k = 0; k < m->nop; k++) {
    const RecOp *o = &p->op[k];
    for (int i = 0; i < o->nin; i++) {
      int e = count[o->in[i]]++;
      m->event_op[e] = k;
      m->event_value[e] = o->in[i];
    }
    for (int i = 0; i < o->nout; i++) {
      int e = count[o->out[i]]++;
      m->event_op[e] = k;
      m->event_value[e] = o->out[i];
    }
  }
}

/* Nothing may read a value after an op has taken over its storage. */
static void check_aliases(const RecModel *m) {
  for (int k = 0; k < m->nop; k++) {
    int v = m->op[k].alias;
    if (v < 0 || m->prod[v] < 0) continue;
    int last = m->event_op[m->first_event[v + 1] - 1];
    ensure(last == k, "op %d reads value %d, which op %d overwrote", last, v, k);
  }
}

/* Layers are numbered anew, in order of first appearance. */
static void number_layers(RecModel *m) {
  int most = 0;
  for (int k = 0; k < m->nop; k++)
    if (m->op[k].layer > most) most = m->op[k].layer;
  int *number = arena_array(m->arena, int, most + 1);
  for (int k = 0; k < m->nop; k++) {
    int *n = &number[m->op[k].layer];
    if (!*n) *n = ++m->nlayer;
    m->layer[k] = *n - 1;
  }
}

/* An op may not run again when it is backward, or writes or reads a persistent value that some op
 * overwrites. */
static void find_redo(RecModel *m) {
  bool *written = arena_array(m->arena, bool, m->nval);
  for (int k = 0; k < m->nop; k++) {
    int v = m->op[k].alias;
    if (v >= 0 && m->prod[v] < 0) written[v] = true;
  }
  for (int k = 0; k < m->nop; k++) {
    const RecOp *o = &m->op[k];
    m->redo[k] = o->redo && !o->bwd && o->nout > 0;
    for (int i = 0; i < o->nin; i++)
      if (written[o->in[i]]) m->redo[k] = false;
  }
}

static bool crosses(const RecModel *m, int e) {
  return m->event_op[e] < m->first_bwd && m->event_op[e + 1] >= m->first_bwd;
}

static bool is_last_event(const RecModel *m, int e) {
  return e + 1 >= m->first_event[m->event_value[e] + 1];
}

/* Uses of the values listed, of which some op makes `made`; at[v] is the next event of v. */
static const RecUse *find_uses(const RecModel *m, const int *values, int n, int *at, int *made) {
  RecUse *use = arena_array(m->arena, RecUse, n);
  *made = 0;
  for (int i = 0; i < n; i++) {
    int v = values[i], e = at[v]++;
    if (m->prod[v] < 0) continue;
    if (is_last_event(m, e)) e = m->p->keep && m->p->keep[v] ? KEPT_USE : LAST_USE;
    use[(*made)++] = (RecUse){v, e};
  }
  return use;
}

static void find_all_uses(RecModel *m) {
  int *at = arena_copy(m->arena, m->first_event, (size_t)m->nval * sizeof *at);
  m->uses = arena_array(m->arena, RecUses, m->nop);
  for (int k = 0; k < m->nop; k++) {
    const RecOp *o = &m->op[k];
    RecUses *u = &m->uses[k];
    *u = (RecUses){.ns = o->ns, .ws = o->ws, .takes = -1, .redo = m->redo[k]};
    u->in = find_uses(m, o->in, o->nin, at, &u->nin);
    u->out = find_uses(m, o->out, o->nout, at, &u->nout);
    if (o->alias >= 0 && m->prod[o->alias] >= 0) u->takes = o->alias;
  }
}

static void find_crossings(RecModel *m) {
  m->crossing = arena_array(m->arena, RecCrossing, m->nval);
  for (int v = 0; v < m->nval; v++) {
    m->crossing[v].event = -1;
    for (int e = m->first_event[v]; e + 1 < m->first_event[v + 1]; e++)
      if (crosses(m, e)) m->crossing[v] = (RecCrossing){e, m->event_op[e + 1]};
  }
}

RecModel *rec_model(Arena *a, const RecProblem *p) {
  RecModel *m = arena_new_of(a, RecModel);
  *m = (RecModel){.p = p, .arena = a, .nop = p->nop, .nval = p->nval, .op = p->op};
  m->first_bwd = m->nop;
  m->prod = arena_array(a, int, m->nval);
  m->redo = arena_array(a, bool, m->nop);
  m->layer = arena_array(a, int, m->nop);
  m->bytes = arena_array(a, int64_t, m->nval);
  for (int v = 0; v < m->nval; v++) m->prod[v] = -1;
  for (int k = 0; k < m->nop; k++) {
    const RecOp *o = &m->op[k];
    if (o->bwd && m->first_bwd == m->nop) m->first_bwd = k;
    for (int i = 0; i < o->nout; i++) {
      int v = o->out[i];
      ensure(m->prod[v] < 0, "value %d is made by ops %d and %d", v, m->prod[v], k);
      m->prod[v] = k;
      m->bytes[v] = p->bytes[v];
    }
    if (o->alias >= 0) {
      ensure(o->nout > 0, "op %d takes over storage for no output", k);
      m->bytes[o->out[0]] = m->prod[o->alias] < 0 ? 0 : m->bytes[o->alias];
    }
  }
  number_layers(m);
  number_events(m);
  check_aliases(m);
  find_redo(m);
  find_all_uses(m);
  find_crossings(m);
  return m;
}

/* leader[e]: the gap whose state gap e takes. A small output (a norm's statistics) follows its op's
 * largest output when it is read again no sooner. */
static int *find_leaders(const RecModel *m) {
  enum { SMALL = 16 };
  int *leader = arena_array(m->arena, int, m->nevent);
  for (int e = 0; e < m->nevent; e++) leader[e] = e;
  for (int k = 0; k < m->first_bwd; k++) {
    const RecOp *o = &m->op[k];
    if (!m->redo[k] || o->nout < 2) continue;
    int big = o->out[0];
    for (int i = 1; i < o->nout; i++)
      if (m->bytes[o->out[i]] > m->bytes[big]) big = o->out[i];
    int lead = m->crossing[big].event;
    if (lead < 0 || (m->p->keep && m->p->keep[big])) continue;
    for (int i = 0; i < o->nout; i++) {
      int v = o->out[i], e = m->crossing[v].event;
      if (v == big || e < 0 || m->bytes[v] * SMALL > m->bytes[big]) continue;
      if (m->p->keep && m->p->keep[v]) continue;
      if (m->event_op[e + 1] >= m->event_op[lead + 1]) leader[e] = lead;
    }
  }
  return leader;
}

static void find_followers(RecModel *m, const int *leader) {
  int *count = arena_array(m->arena, int, m->nevent);
  for (int e = 0; e < m->nevent; e++)
    if (leader[e] != e) count[leader[e]]++;
  for (int i = 0; i < m->nitem; i++) {
    RecItem *it = &m->item[i];
    if (!count[it->event]) continue;
    int *follow = arena_array(m->arena, int, count[it->event]);
    for (int e = 0; e < m->nevent; e++) {
      if (leader[e] != it->event || e == it->event) continue;
      follow[it->nfollow++] = e;
      m->item_of_event[e] = i;
    }
    it->follow = follow;
  }
}

/* Ops at which an input of the item's producer dies inside the gap: where EAGER would rebuild. */
static void find_eager_ops(RecModel *m) {
  VEC(int) ops = {0};
  m->eager_first = arena_array(m->arena, int, m->nitem + 1);
  for (int i = 0; i < m->nitem; i++) {
    const RecItem *it = &m->item[i];
    const RecOp *o = &m->op[m->prod[it->value]];
    for (int j = 0; j < o->nin; j++) {
      int u = o->in[j], last = m->event_op[m->first_event[u + 1] - 1];
      if (m->prod[u] >= 0 && last > m->event_op[it->event] && last < m->event_op[it->event + 1])
        vec_push(m->arena, &ops, last);
    }
    m->eager_first[i + 1] = ops.n;
  }
  m->eager_ops = ops.at;
}

void rec_find_items(RecModel *m, int64_t smallest) {
  const int *leader = find_leaders(m);
  m->item = arena_array(m->arena, RecItem, m->nevent);
  m->item_of_event = arena_array(m->arena, int, m->nevent);
  for (int e = 0; e < m->nevent; e++) {
    int v = m->event_value[e];
    m->item_of_event[e] = -1;
    if (leader[e] != e || is_last_event(m, e) || m->prod[v] < 0 || !m->redo[m->prod[v]]) continue;
    if (m->bytes[v] < smallest || m->event_op[e + 1] - m->event_op[e] < 2) continue;
    if (m->p->keep && m->p->keep[v]) continue;
    m->item_of_event[e] = m->nitem;
    m->item[m->nitem++] = (RecItem){.event = e, .value = v, .crosses = crosses(m, e)};
  }
  find_followers(m, leader);
  find_eager_ops(m);
  m->flag_op = arena_array(m->arena, int, m->nop);
  for (int k = 0; k < m->nop; k++) {
    bool any = false;
    for (int i = 0; i < m->op[k].nin; i++) {
      int v = m->op[k].in[i];
      any |= m->prod[v] >= 0 && m->redo[m->prod[v]] && m->bytes[v] >= smallest;
    }
    if (any) m->flag_op[m->nflag++] = k;
  }
}

uint8_t *decision_new(const RecModel *m, Arena *a) {
  return arena_alloc(a, decision_size(m));
}
