/* maxflow.c - Dinic's algorithm: blocking flows along shortest paths, without recursion (see
 * maxflow.h). */
#include "maxflow.h"

typedef struct {
  int to, next; /* next edge of the same source, -1 the last */
  int64_t left; /* capacity that is not used; edge i ^ 1 is its reverse */
} Edge;

struct Flow {
  Arena *arena;
  int n;
  int *head, *level, *now, *queue, *path;
  VEC(Edge) edges;
};

Flow *flow_new(Arena *a, int vertices) {
  Flow *f = arena_new_of(a, Flow);
  f->arena = a;
  f->n = vertices;
  int **lists[] = {&f->head, &f->level, &f->now, &f->queue, &f->path};
  for (int i = 0; i < COUNT_OF(lists); i++) *lists[i] = arena_array(a, int, vertices + 1);
  for (int v = 0; v < vertices; v++) f->head[v] = -1;
  return f;
}

void flow_edge(Flow *f, int from, int to, int64_t capacity) {
  vec_push(f->arena, &f->edges, ((Edge){to, f->head[from], capacity}));
  f->head[from] = f->edges.n - 1;
  vec_push(f->arena, &f->edges, ((Edge){from, f->head[to], 0}));
  f->head[to] = f->edges.n - 1;
}

/* Distances from the source over unused capacity; false when the sink is cut off. */
static bool levels(Flow *f, int source, int sink) {
  for (int v = 0; v < f->n; v++) f->level[v] = -1;
  int first = 0, last = 0;
  f->queue[last++] = source;
  f->level[source] = 0;
  while (first < last) {
    int v = f->queue[first++];
    for (int e = f->head[v]; e >= 0; e = f->edges.at[e].next) {
      const Edge *x = &f->edges.at[e];
      if (x->left <= 0 || f->level[x->to] >= 0) continue;
      f->level[x->to] = f->level[v] + 1;
      f->queue[last++] = x->to;
    }
  }
  return f->level[sink] >= 0;
}

/* Pushes along one shortest path; 0 when none is left at these levels. path: edges from the source
 * on. */
static int64_t push_path(Flow *f, int source, int sink) {
  int depth = 0, v = source;
  while (v != sink) {
    int e = f->now[v];
    for (; e >= 0; e = f->edges.at[e].next)
      if (f->edges.at[e].left > 0 && f->level[f->edges.at[e].to] == f->level[v] + 1) break;
    f->now[v] = e;
    if (e >= 0) {
      f->path[depth++] = e;
      v = f->edges.at[e].to;
    } else {
      if (v == source) return 0;
      f->level[v] = -1; /* dead end */
      v = f->edges.at[f->path[--depth] ^ 1].to;
    }
  }
  int64_t most = FLOW_INFINITE;
  for (int i = 0; i < depth; i++)
    if (f->edges.at[f->path[i]].left < most) most = f->edges.at[f->path[i]].left;
  for (int i = 0; i < depth; i++) {
    f->edges.at[f->path[i]].left -= most;
    f->edges.at[f->path[i] ^ 1].left += most;
  }
  return most;
}

int64_t flow_min_cut(Flow *f, int source, int sink, bool *sink_side) {
  int64_t total = 0, pushed;
  while (levels(f, source, sink)) {
    for (int v = 0; v < f->n; v++) f->now[v] = f->head[v];
    while ((pushed = push_path(f, source, sink)) > 0) total += pushed;
  }
  for (int v = 0; v < f->n; v++) sink_side[v] = false;
  int first = 0, last = 0;
  f->queue[last++] = sink;
  sink_side[sink] = true;
  while (first < last) {
    int v = f->queue[first++];
    for (int e = f->head[v]; e >= 0; e = f->edges.at[e].next) {
      int u = f->edges.at[e].to;
      if (sink_side[u] || f->edges.at[e ^ 1].left <= 0) continue;
      sink_side[u] = true;
      f->queue[last++] = u;
    }
  }
  return total;
}
