/* saved.c - which values wait on the host between forward and backward (see saved.h). */
#include "saved.h"

#include "stage.h"

/* What may wait: made whole by one forward step, once, and no result. */
static bool *once_made(const StorageMap *m, const Timeline *t, Arena *a) {
  bool *may = arena_array(a, bool, m->nunits + 1);
  int *lives = arena_array(a, int, m->nunits + 1);
  for (int i = 0; i < t->n; i++) lives[t->at[i].unit]++;
  for (int u = 0; u < m->nunits; u++) {
    const Unit *x = &m->unit[u];
    may[u] = x->var < 0 && x->input < 0 && x->nmakers == 1 && !x->result && lives[u] == 1 &&
             m->clusters->at[x->maker].phase == PH_FORWARD;
  }
  return may;
}

typedef struct {
  int64_t *wait; /* per unit: the longest time between two uses */
  int64_t *used; /* per unit: end of its last use, -1 before the first */
} Waits;

static void use(Waits *w, int unit, int64_t begin, int64_t end) {
  if (w->used[unit] >= 0 && begin - w->used[unit] > w->wait[unit])
    w->wait[unit] = begin - w->used[unit];
  w->used[unit] = end;
}

static const int64_t *longest_waits(const StorageMap *m, const Timeline *t, const int64_t *ns,
                                    Arena *a) {
  Waits w = {arena_array(a, int64_t, m->nunits + 1), arena_array(a, int64_t, m->nunits + 1)};
  for (int u = 0; u < m->nunits; u++) w.used[u] = -1;
  int64_t now = 0;
  for (int s = 0; s < t->nsteps; s++) {
    int cluster = t->trace[s];
    const Cluster *c = &m->clusters->at[cluster];
    int64_t end = now + ns[cluster];
    for (int k = 0; k < c->nin; k++) use(&w, m->place[c->in[k]].unit, now, end);
    for (int k = 0; k < c->nout; k++) use(&w, m->out[cluster][k].unit, now, end);
    now = end;
  }
  return w.wait;
}

/* A copy has a price of its own: what is smaller than this part of the whole stays. */
enum { SMALLEST_OF = 4096 };

SavedSet saved_values(const StorageMap *m, const Timeline *t, const int64_t *ns,
                      const int64_t *unit_bytes, const Target *target, Arena *a) {
  bool *may = once_made(m, t, a);
  const int64_t *wait = longest_waits(m, t, ns, a);
  int64_t sum = 0;
  for (int u = 0; u < m->nunits; u++) {
    may[u] &= wait[u] >= stage_long_wait(target, unit_bytes[u]);
    if (may[u]) sum += unit_bytes[u];
  }
  int *unit = arena_array(a, int, t->n + 1);
  SavedSet all = {.unit = unit};
  for (int i = 0; i < t->n; i++) { /* in the order of their makers */
    int u = t->at[i].unit;
    if (!may[u] || unit_bytes[u] < sum / SMALLEST_OF) continue;
    unit[all.n++] = u;
    all.bytes += unit_bytes[u];
  }
  return all;
}

SavedSet saved_part(const SavedSet *all, int part, const int64_t *unit_bytes, Arena *a) {
  int *unit = arena_array(a, int, all->n + 1);
  SavedSet some = {.unit = unit};
  int64_t owed = 0; /* parts of bytes that should have been taken */
  for (int i = 0; i < all->n; i++) {
    int64_t bytes = unit_bytes[all->unit[i]];
    owed += bytes * part;
    if (owed * 2 < bytes * SAVED_PARTS) continue;
    owed -= bytes * SAVED_PARTS;
    unit[some.n++] = all->unit[i];
    some.bytes += bytes;
  }
  return some;
}

Timeline saved_apart(const Timeline *t, const SavedSet *s, int nunits, Arena *a) {
  bool *apart = arena_array(a, bool, nunits + 1);
  for (int i = 0; i < s->n; i++) apart[s->unit[i]] = true;
  Timeline out = *t;
  out.at = arena_copy(a, t->at, sizeof *t->at * (size_t)t->n);
  for (int i = 0; i < t->n; i++) {
    Instance *x = &out.at[i];
    if (x->takes >= 0 && (apart[x->unit] || apart[t->at[x->takes].unit])) x->takes = -1;
  }
  return out;
}
