/* order.c - a topological order of clusters by smallest key: position in the graph, chunks grouped
 * (see order.h).
 *
 * Autodiff makes the gradient of a weight before that of the data, so that the graph's order
 * already frees activations early. Views and concats take part as steps of their own that cost
 * nothing. */
#include "order.h"

#include <string.h>

typedef struct {
  NodeId stage;
  int member, chunk;
  NodeId first;
} Key;

typedef struct {
  Clusters *c;
  const Groups *q;
  int n; /* vertices: clusters, then nodes that run nowhere */
  Key *key;
  int *waits;     /* per vertex: unfinished vertices it waits for */
  int *first_out; /* edges by source */
  int *out;
  int *fill; /* next free slot of each source while edges are stored */
  int *heap, nheap;
} Order;

static bool before(const Key *a, const Key *b) {
  if (a->stage != b->stage) return a->stage < b->stage;
  if (a->member != b->member) return a->member < b->member;
  if (a->chunk != b->chunk) return a->chunk < b->chunk;
  return a->first < b->first;
}

static void push(Order *o, int v) {
  int i = o->nheap++;
  for (; i > 0 && before(&o->key[v], &o->key[o->heap[(i - 1) / 2]]); i = (i - 1) / 2)
    o->heap[i] = o->heap[(i - 1) / 2];
  o->heap[i] = v;
}

static int pop(Order *o) {
  int top = o->heap[0], last = o->heap[--o->nheap], i = 0;
  for (;;) {
    int c = 2 * i + 1;
    if (c >= o->nheap) break;
    if (c + 1 < o->nheap && before(&o->key[o->heap[c + 1]], &o->key[o->heap[c]])) c++;
    if (!before(&o->key[o->heap[c]], &o->key[last])) break;
    o->heap[i] = o->heap[c];
    i = c;
  }
  o->heap[i] = last;
  return top;
}

static int vertex(const Order *o, NodeId n) {
  return o->q->of[n] >= 0 ? o->q->of[n] : o->c->n + n;
}

/* Calls visit for each edge: `from` must run before `to`. Edges may repeat. */
static void each_edge(Order *o, void (*visit)(Order *, int from, int to)) {
  const Graph *g = o->c->g;
  for (NodeId n = 0; n < g->nodes.n; n++) {
    const Node *x = node_at(g, n);
    int to = vertex(o, n);
    for (int k = 0; k < x->nin + o->q->nafter[n]; k++) {
      NodeId d = k < x->nin ? val(g, x->in[k])->def : o->q->after[n][k - x->nin];
      int from = vertex(o, d);
      if (from != to) visit(o, from, to);
    }
  }
}

static void count_edge(Order *o, int from, int to) {
  o->first_out[from + 1]++;
  o->waits[to]++;
}

static void store_edge(Order *o, int from, int to) {
  o->out[o->fill[from]++] = to;
}

static void build_edges(Order *o, Arena *a) {
  o->waits = arena_array(a, int, o->n + 1);
  o->first_out = arena_array(a, int, o->n + 2);
  each_edge(o, count_edge);
  for (int v = 0; v < o->n; v++) o->first_out[v + 1] += o->first_out[v];
  o->out = arena_array(a, int, o->first_out[o->n] + 1);
  o->fill = arena_copy(a, o->first_out, sizeof *o->fill * (size_t)(o->n + 1));
  each_edge(o, store_edge);
}

static void set_keys(Order *o, Arena *a) {
  const Graph *g = o->c->g;
  o->key = arena_array(a, Key, o->n + 1);
  NodeId head = g->nodes.n;
  for (NodeId n = g->nodes.n - 1; n >= 0; n--)
    if (node_at(g, n)->chunk > 0) head = n;
  for (NodeId n = g->nodes.n - 1; n >= 0; n--) {
    int chunk = node_at(g, n)->chunk, member = node_at(g, n)->member;
    o->key[vertex(o, n)] = (Key){chunk > 0 ? head : n, chunk > 0 ? member : 0, chunk, n};
  }
}

void order_clusters(Clusters *c, const Groups *q, Arena *scratch) {
  Order o = {.c = c, .q = q, .n = c->n + c->g->nodes.n};
  set_keys(&o, scratch);
  build_edges(&o, scratch);
  o.heap = arena_array(scratch, int, o.n + 1);
  int *sorted = arena_array(scratch, int, c->n + 1);
  int nsorted = 0;
  for (int v = 0; v < o.n; v++) {
    bool there = v < c->n || q->of[v - c->n] < 0;
    if (there && !o.waits[v]) push(&o, v);
  }
  while (o.nheap > 0) {
    int v = pop(&o);
    if (v < c->n) sorted[nsorted++] = v;
    for (int i = o.first_out[v]; i < o.first_out[v + 1]; i++)
      if (--o.waits[o.out[i]] == 0) push(&o, o.out[i]);
  }
  ensure(nsorted == c->n, "order: %d of %d clusters of `%s` wait for each other", c->n - nsorted,
         c->n, c->g->name);
  const Cluster *at = arena_copy(scratch, c->at, sizeof *at * (size_t)(c->n + 1));
  for (int i = 0; i < c->n; i++) c->at[i] = at[sorted[i]];
}
