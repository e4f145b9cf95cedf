/* fit_translate.c - traces of one family for another (see fit.h). Input: two programs that are cut differently. Output: the rebuilds
 * of the first before the same clusters of the second, where they can run. */
#include <stdlib.h>
#include <string.h>

#include "fit.h"

/* MOST_TIMES: that a trace rebuilds all, for its like with chunks to be worth a look. */
enum { MOST_TRACES_OF_PARTS = 16, MOST_TIMES = 4 };

typedef struct {
  uint64_t name;
  int cluster;
} Named;

static int by_name(const void *a, const void *b) {
  const Named *x = a, *y = b;
  if (x->name != y->name) return x->name < y->name ? -1 : 1;
  return (x->cluster > y->cluster) - (x->cluster < y->cluster);
}

/* Which clusters of a program: of one member of a group or of none, of one chunk of MLPs or of no MLP; 0: all. */
typedef struct {
  int member, tile;
} Part;

static Named *sorted_names(const Clusters *c, Part part, Arena *a, int *count) {
  Named *list = arena_array(a, Named, c->n + 1);
  int n = 0;
  for (int i = 0; i < c->n; i++) {
    const Cluster *x = &c->at[i];
    if (part.member && x->member != part.member) continue;
    if (part.tile && x->tile && x->tile != part.tile) continue;
    const char *name = part.tile ? cluster_whole_name(x) : x->name ? x->name : "";
    list[n++] = (Named){hash_text(name) + (uint64_t)x->kind, i};
  }
  qsort(list, (size_t)n, sizeof *list, by_name);
  *count = n;
  return list;
}

/* Per cluster of `from`: the part's of equal name and occurrence, or -1. */
static void match_clusters(const Clusters *from, const Clusters *to, Part part, Arena *a,
                           int *map) {
  int nx, ny;
  Named *x = sorted_names(from, (Part){0}, a, &nx), *y = sorted_names(to, part, a, &ny);
  for (int i = 0; i < from->n; i++) map[i] = -1;
  for (int i = 0, j = 0; i < nx && j < ny;) {
    if (x[i].name == y[j].name) {
      map[x[i++].cluster] = y[j++].cluster;
    } else if (x[i].name < y[j].name) {
      i++;
    } else {
      j++;
    }
  }
}

/* Every input of every step was made by an earlier one, and no variable is read that a later cluster has assigned: a rebuild
 * after the update of its weight. last_assign: per unit, -1. */
static bool can_run(const StorageMap *m, int n, const int *order, bool *made, int *last_assign) {
  for (int s = 0; s < n; s++) {
    const Cluster *c = &m->clusters->at[order[s]];
    for (int k = 0; k < c->nin; k++) {
      int unit = m->place[c->in[k]].unit;
      if (is_made(&m->unit[unit]) && !made[unit]) return false;
      if (last_assign[unit] > order[s]) return false;
    }
    for (int k = 0; k < c->nout; k++) {
      int unit = m->out[order[s]][k].unit;
      made[unit] = true;
      if (m->unit[unit].var >= 0 && last_assign[unit] < order[s]) last_assign[unit] = order[s];
    }
  }
  return true;
}

/* How a program stands in one that has it once per member of a group. */
typedef struct {
  int nfrom, nto, members;
  int *map;  /* per member and cluster of the first: its like, or -1 */
  int *back; /* per cluster of the second: its like, or -1 */
  int *of;   /* per cluster of the second: its member, from 0 */
  bool *seen, *done;
  int *at; /* per member: how far its trace has come */
} Match;

static Match match_programs(const Built *from, const Built *to, int members, Arena *a) {
  const Clusters *x = &from->clusters, *y = &to->clusters;
  Match m = {.nfrom = x->n, .nto = y->n, .members = members};
  m.map = arena_array(a, int, members * x->n + 1);
  m.back = arena_array(a, int, y->n + 1);
  m.of = arena_array(a, int, y->n + 1);
  m.seen = arena_array(a, bool, members * x->n + 1);
  m.done = arena_array(a, bool, y->n + 1);
  m.at = arena_array(a, int, members + 1);
  for (int j = 0; j < y->n; j++) {
    m.back[j] = -1;
    m.of[j] = members > 1 && y->at[j].member > 0 ? y->at[j].member - 1 : 0;
  }
  for (int k = 0; k < members; k++) {
    int *map = m.map + k * x->n;
    match_clusters(x, y, (Part){.member = members > 1 ? k + 1 : 0}, a, map);
    for (int i = 0; i < x->n; i++) {
      if (map[i] >= 0)
        m.back[map[i]] = i;
      else
        map[i] = m.map[i]; /* what all members share stands with the first */
    }
  }
  return m;
}

/* Walks both programs: before each cluster of `to` stand the rebuilds that stood before its like, those of its member.
 * 0: not possible. */
static int translate_trace(const Trace *t, Match *m, int *out) {
  int n = 0;
  memset(m->seen, 0, sizeof *m->seen * (size_t)(m->nfrom * m->members));
  memset(m->done, 0, sizeof *m->done * (size_t)m->nto);
  memset(m->at, 0, sizeof *m->at * (size_t)m->members);
  for (int j = 0; j < m->nto; j++) {
    int *at = &m->at[m->of[j]];
    const int *map = m->map + m->of[j] * m->nfrom;
    bool *seen = m->seen + m->of[j] * m->nfrom;
    while (m->back[j] >= 0 && !seen[m->back[j]] && *at < t->n) {
      int i = t->order[(*at)++];
      if (!seen[i]) {
        seen[i] = true;
        continue;
      }
      if (map[i] < 0 || !m->done[map[i]]) return 0;
      out[n++] = map[i];
    }
    out[n++] = j;
    m->done[j] = true;
  }
  return n;
}

/* ---- whole MLPs to MLPs in chunks ---- */

/* Both programs, and what of a trace of the first waits to run in the second. */
typedef struct {
  const Clusters *from, *to;
  const StorageMap *storage; /* of the second */
  int tiles;
  bool each;   /* each chunk is rebuilt for its backward, also where a whole MLP would not be */
  int *map;    /* per tile and cluster of the first: its like, or -1 */
  int *back;   /* per cluster of the second: its like, or -1 */
  bool *seen;  /* per cluster of the first */
  bool *done;  /* per cluster of the second */
  bool *fresh; /* the same: was rebuilt for the backward of its chunk */
  int *wait;   /* rebuilds in MLPs, clusters of the first, in order */
  int *begun;  /* per tile: how many of them it has run */
  int nwait, n;
  int *out;
} Tiles;

static Tiles match_tiles(const Built *from, const Built *to, int tiles, int longest, Arena *a) {
  Tiles x = {.from = &from->clusters, .to = &to->clusters, .storage = &to->map, .tiles = tiles};
  x.map = arena_array(a, int, tiles *x.from->n + 1);
  x.back = arena_array(a, int, x.to->n + 1);
  x.seen = arena_array(a, bool, x.from->n + 1);
  x.done = arena_array(a, bool, x.to->n + 1);
  x.fresh = arena_array(a, bool, x.to->n + 1);
  x.wait = arena_array(a, int, longest + 1);
  x.begun = arena_array(a, int, tiles + 1);
  for (int j = 0; j < x.to->n; j++) x.back[j] = -1;
  for (int k = 0; k < tiles; k++) {
    int *map = x.map + k * x.from->n;
    match_clusters(x.from, x.to, (Part){.tile = k + 1}, a, map);
    for (int i = 0; i < x.from->n; i++)
      if (map[i] >= 0) x.back[map[i]] = i;
  }
  return x;
}

static bool rebuild(Tiles *x, int cluster, bool fresh) {
  if (cluster < 0 || !x->done[cluster]) return false;
  x->out[x->n++] = cluster;
  x->fresh[cluster] = fresh;
  return true;
}

/* The rebuilds that wait, for one tile. */
static bool run_waiting(Tiles *x, int tile, bool fresh) {
  bool ok = true;
  for (int *k = &x->begun[tile]; *k < x->nwait && ok; ++*k)
    ok = rebuild(x, x->map[tile * x->from->n + x->wait[*k]], fresh);
  return ok;
}

/* What cluster j reads of its chunk's forward, and what that is made of. */
static bool refresh(Tiles *x, int j) {
  const Cluster *c = &x->to->at[j];
  for (int k = 0; k < c->nin; k++) {
    const Unit *u = &x->storage->unit[x->storage->place[c->in[k]].unit];
    if (!is_made(u) || x->to->at[u->maker].tile != c->tile ||
        x->to->at[u->maker].phase != PH_FORWARD)
      continue;
    if (!x->fresh[u->maker] && !(refresh(x, u->maker) && rebuild(x, u->maker, true))) return false;
  }
  return true;
}

static bool run_all_waiting(Tiles *x) {
  bool ok = true;
  for (int k = 0; k < x->tiles && ok; k++) ok = run_waiting(x, k, false);
  x->nwait = 0;
  memset(x->begun, 0, sizeof *x->begun * (size_t)x->tiles);
  return ok;
}

/* Rebuilds a cluster outside of MLPs; before it those that the first program does not have - what joins chunks - and before these
 * the chunks. */
static bool rebuild_outside(Tiles *x, int cluster) {
  const Cluster *c = &x->to->at[cluster];
  for (int k = 0; k < c->nin; k++) {
    const Unit *u = &x->storage->unit[x->storage->place[c->in[k]].unit];
    if (!is_made(u)) continue;
    const Cluster *maker = &x->to->at[u->maker];
    if (maker->tile && !run_all_waiting(x)) return false;
    if (!maker->tile && maker->phase == PH_FORWARD && x->back[u->maker] < 0 &&
        !rebuild_outside(x, u->maker))
      return false;
  }
  return rebuild(x, cluster, false);
}

/* Cluster i of the first program is rebuilt: outside of MLPs now, inside chunk by chunk, when each is about to be read. */
static bool add_rebuild(Tiles *x, int i) {
  int to = x->map[i];
  if (to >= 0 && x->to->at[to].tile) {
    x->wait[x->nwait++] = i;
    return true;
  }
  return to >= 0 && rebuild_outside(x, to);
}

/* Walks both programs: before each cluster of the second stand the rebuilds that stood before its like. 0: not possible. */
static int translate_tiled(const Trace *t, Tiles *x, int *out) {
  int at = 0;
  x->n = x->nwait = 0;
  x->out = out;
  memset(x->seen, 0, sizeof *x->seen * (size_t)x->from->n);
  memset(x->done, 0, sizeof *x->done * (size_t)x->to->n);
  memset(x->fresh, 0, sizeof *x->fresh * (size_t)x->to->n);
  memset(x->begun, 0, sizeof *x->begun * (size_t)x->tiles);
  for (int j = 0; j < x->to->n; j++) {
    int tile = x->to->at[j].tile;
    bool backward = tile && x->to->at[j].phase == PH_BACKWARD;
    while (x->back[j] >= 0 && !x->seen[x->back[j]] && at < t->n) {
      int i = t->order[at++];
      if (x->seen[i] && !add_rebuild(x, i)) return 0;
      x->seen[i] = true;
    }
    if (!(backward ? run_waiting(x, tile - 1, true) : run_all_waiting(x))) return 0;
    if (backward && x->each && !refresh(x, j)) return 0;
    x->out[x->n++] = j;
    x->done[j] = true;
  }
  return x->n;
}

/* ---- the traces ---- */

/* Of those of a family: all; but some of many where each becomes a longer one. */
static bool worth(const Family *from, int trace, int parts) {
  int stride = parts > 1 ? ceil_div(from->traces.n, MOST_TRACES_OF_PARTS) : 1;
  return trace % stride == 0 || trace == from->full || trace == from->traces.n - 1;
}

/* What is needed to see whether a trace can run. */
typedef struct {
  const FitContext *x;
  Family *to;
  bool *made;
  int *assign;
} Adder;

/* Index of the trace, -1 when it cannot run. */
static int add_if_it_runs(const Adder *a, int n, const int *order) {
  const Built *b = a->to->micro[0];
  memset(a->made, 0, sizeof *a->made * (size_t)b->map.nunits);
  memset(a->assign, -1, sizeof *a->assign * (size_t)b->map.nunits);
  if (n <= b->clusters.n || !can_run(&b->map, n, order, a->made, a->assign)) return -1;
  return fit_add_trace(a->x, a->to, n, order);
}

static void translate_parts(const Adder *a, const Family *from, int members) {
  Arena *arena = a->x->arena;
  Match m = match_programs(from->micro[0], a->to->micro[0], members, arena);
  for (int k = 1; k < from->traces.n; k++) {
    if (!worth(from, k, members)) continue;
    const Trace *t = &from->traces.at[k];
    int *order = arena_array(arena, int, members * t->n + m.nto + 1);
    int at = add_if_it_runs(a, translate_trace(t, &m, order), order);
    if (at >= 0 && k == from->full && !a->to->full) a->to->full = at;
  }
}

/* Also the trace that rebuilds nothing, for it may rebuild the chunks. */
static void translate_tiles(const Adder *a, const Family *from, int tiles) {
  Arena *arena = a->x->arena;
  int longest = 0;
  for (int k = 0; k < from->traces.n; k++)
    if (from->traces.at[k].n > longest) longest = from->traces.at[k].n;
  Tiles x = match_tiles(from->micro[0], a->to->micro[0], tiles, longest, arena);
  for (int k = 0; k < from->traces.n; k++) {
    const Trace *t = &from->traces.at[k];
    if (t->n > MOST_TIMES * x.from->n) continue;
    for (int each = 0; each < 2; each++) {
      x.each = each;
      int *order = arena_array(arena, int, (tiles + 1) * t->n + 2 * x.to->n + 1);
      int at = add_if_it_runs(a, translate_tiled(t, &x, order), order);
      if (at >= 0 && each && k == from->full) a->to->full = at;
    }
  }
}

void fit_translate(const FitContext *x, const Family *from, Family *to) {
  if (x->recompute == RC_NONE || from->apart != to->apart) return;
  const StorageMap *map = &to->micro[0]->map;
  Adder a = {.x = x, .to = to};
  a.made = arena_array(x->arena, bool, map->nunits + 1);
  a.assign = arena_array(x->arena, int, map->nunits + 1);
  int tiles =
      from->cut.mlp_chunks == to->cut.mlp_chunks ? 1 : fit_mlp_chunks_of(to->micro[0]->clusters.g);
  if (tiles > 1)
    translate_tiles(&a, from, tiles);
  else
    translate_parts(&a, from, from->cut.group == to->cut.group ? 1 : to->cut.group);
}

bool fit_add_like(const FitContext *x, Cut cut, Cut like, const int64_t *batch, int n, PhasePool *pool) {
  int from = pool->families.n;
  if (!fit_families(x, cut, batch, n, pool)) return false;
  for (int i = from; i < pool->families.n; i++)
    for (int j = 0; j < from; j++)
      if (same_cut(pool->families.at[j].cut, like)) fit_translate(x, &pool->families.at[j], &pool->families.at[i]);
  return true;
}
