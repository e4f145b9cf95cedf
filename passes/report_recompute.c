/* report_recompute.c - what a program rebuilds and what of it waits on the host, grouped over layers for people. Input: a
 * plan. Output: groups. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "report.h"

const char *name_without_layer(const char *name, int *layer) {
  *layer = -1;
  for (const char *p = name; p && *p; p++) {
    if (*p != '.' || !isdigit((unsigned char)p[1])) continue;
    char *end;
    long n = strtol(p + 1, &end, 10);
    if (*end != '.' && *end != 0) continue;
    *layer = (int)n;
    return intern_printf("%.*s[*]%s", (int)(p - name), name, end);
  }
  return intern(name ? name : "");
}

typedef struct {
  const char *name;
  int layer;
  int64_t bytes, ns;
} LayerItem;

static int by_name_and_layer(const void *a, const void *b) {
  const LayerItem *x = a, *y = b;
  int c = strcmp(x->name, y->name);
  return c ? c : (x->layer > y->layer) - (x->layer < y->layer);
}

static int by_bytes(const void *a, const void *b) {
  const LayerGroup *x = a, *y = b;
  if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
  return strcmp(x->name, y->name);
}

/* "0..3,5" of ascending layers. */
static char *layer_ranges(Arena *a, const LayerItem *it, int n, int *distinct) {
  Str s = {.arena = a};
  *distinct = 0;
  for (int i = 0; i < n;) {
    int j = i;
    while (j + 1 < n && it[j + 1].layer <= it[j].layer + 1) j++;
    int from = it[i].layer, to = it[j].layer;
    *distinct += to - from + 1;
    str_addf(&s, from == to ? "%s%d" : "%s%d..%d", s.len ? "," : "", from, to);
    i = j + 1;
  }
  return s.text ? s.text : arena_printf(a, "%s", "");
}

static int64_t output_bytes(const Clusters *c, int cluster) {
  int64_t sum = 0;
  for (int k = 0; k < c->at[cluster].nout; k++) {
    const Value *v = val(c->g, c->at[cluster].out[k]);
    sum += round_up(shape_bytes(&v->shape, v->dtype), PLAN_ALIGN);
  }
  return sum;
}

static LayerGroups grouped(LayerItem *item, int n, Arena *a) {
  LayerGroups out = {.at = arena_array(a, LayerGroup, n + 1)};
  qsort(item, (size_t)n, sizeof *item, by_name_and_layer);
  for (int i = 0; i < n;) {
    int j = i;
    LayerGroup *g = &out.at[out.n++];
    for (; j < n && item[j].name == item[i].name; j++) {
      g->bytes += item[j].bytes;
      g->ns += item[j].ns;
    }
    out.bytes += g->bytes;
    out.ns += g->ns;
    g->name = item[i].name;
    const char *star = strstr(g->name, "[*]");
    if (star && item[i].layer >= 0) {
      char *ranges = layer_ranges(a, item + i, j - i, &g->layers);
      g->name = arena_printf(a, "%.*s[%s]%s", (int)(star - g->name), g->name, ranges, star + 3);
    }
    i = j;
  }
  qsort(out.at, (size_t)out.n, sizeof *out.at, by_bytes);
  return out;
}

LayerGroups plan_rebuilt(const Plan *p, int program, Arena *a) {
  const PlanProgram *x = &p->programs.at[program];
  LayerItem *item = arena_array(a, LayerItem, x->nsteps + 1);
  bool *counted = arena_array(a, bool, x->clusters.n + 1);
  bool *layer_seen = arena_array(a, bool, p->job->layers + 1);
  int n = 0, layers = 0;
  for (int s = 0; s < x->nsteps; s++) {
    int cluster = x->steps[s].cluster;
    if (!x->steps[s].recomputed) continue;
    const Cluster *c = &x->clusters.at[cluster];
    LayerItem *it = &item[n++];
    it->name = name_without_layer(cluster_whole_name(c), &it->layer);
    it->ns = c->ns;
    if (!counted[cluster]) it->bytes = output_bytes(&x->clusters, cluster);
    counted[cluster] = true;
    if (c->layer >= 0 && c->layer < p->job->layers && !layer_seen[c->layer]) {
      layer_seen[c->layer] = true;
      layers++;
    }
  }
  LayerGroups out = grouped(item, n, a);
  out.layers = layers;
  return out;
}

LayerGroups plan_waiting(const Plan *p, int program, Arena *a) {
  LayerItem *item = arena_array(a, LayerItem, p->bufs.n + 1);
  int n = 0;
  for (int i = 0; i < p->bufs.n; i++) {
    const PlanBuf *b = &p->bufs.at[i];
    if (b->program != program || b->space != SPACE_HOST) continue;
    LayerItem *it = &item[n++];
    it->name = name_without_layer(b->name, &it->layer);
    it->bytes = b->bytes;
  }
  return grouped(item, n, a);
}
