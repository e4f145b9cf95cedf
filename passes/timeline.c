/* timeline.c - instances of units along a trace (see timeline.h).
 *
 * A unit that is made, dropped and made again is several instances, each alive from the step that
 * makes it to its last reader. An output takes over the buffer of an input that dies at the same
 * step where storage.c allows it. */
#include "timeline.h"

#include <string.h>

typedef struct {
  const StorageMap *m;
  Arena *arena;
  Timeline *t;
  VEC(Instance) inst;
  int *now; /* per unit: the instance that holds it */
} Walk;

static int read_instance(Walk *w, int step, int unit) {
  if (!is_made(&w->m->unit[unit])) return -1;
  int i = w->now[unit];
  ensure(i >= 0, "timeline: step %d (%s) reads a value before it is made", step,
         w->m->clusters->at[w->t->trace[step]].name);
  w->inst.at[i].last = step;
  return i;
}

/* takes is set to the input that may be overlaid; whether it dies there is known at the end only.
 */
static int write_instance(Walk *w, int step, int unit, int over) {
  const Unit *u = &w->m->unit[unit];
  if (!is_made(u)) return -1;
  int i = w->now[unit];
  if (i < 0 || (u->maker == w->t->trace[step] && w->inst.at[i].first != step)) {
    i = w->inst.n;
    Instance x = {.unit = unit, .first = step, .rebuilt = w->t->again[step], .takes = over};
    vec_push(w->arena, &w->inst, x);
    w->now[unit] = i;
  }
  w->inst.at[i].last = step;
  return i;
}

static void run_step(Walk *w, int s, int *in, int *out) {
  const StorageMap *m = w->m;
  int cluster = w->t->trace[s];
  const Cluster *c = &m->clusters->at[cluster];
  for (int k = 0; k < c->nin; k++) in[k] = read_instance(w, s, m->place[c->in[k]].unit);
  for (int k = 0; k < c->nout; k++) {
    int over = m->over[cluster][k];
    out[k] = write_instance(w, s, m->out[cluster][k].unit, over >= 0 ? in[over] : -1);
  }
}

Timeline timeline_run(const StorageMap *m, Arena *a, int nsteps, const int *trace, bool operands) {
  Timeline t = {.nsteps = nsteps, .trace = trace};
  Walk w = {.m = m, .arena = a, .t = &t};
  const Clusters *c = m->clusters;
  int most = 0;
  for (int i = 0; i < c->n; i++) {
    if (c->at[i].nin > most) most = c->at[i].nin;
    if (c->at[i].nout > most) most = c->at[i].nout;
  }
  int *in = arena_array(a, int, most + 1), *out = arena_array(a, int, most + 1);
  bool *seen = arena_array(a, bool, c->n + 1);
  t.again = arena_array(a, bool, nsteps + 1);
  w.now = arena_array(a, int, m->nunits + 1);
  for (int u = 0; u < m->nunits; u++) w.now[u] = -1;
  if (operands) {
    t.in = arena_array(a, int *, nsteps + 1);
    t.out = arena_array(a, int *, nsteps + 1);
  }
  for (int s = 0; s < nsteps; s++) {
    t.again[s] = seen[trace[s]];
    seen[trace[s]] = true;
    if (operands) {
      in = t.in[s] = arena_array(a, int, c->at[trace[s]].nin + 1);
      out = t.out[s] = arena_array(a, int, c->at[trace[s]].nout + 1);
    }
    run_step(&w, s, in, out);
  }
  for (int u = 0; u < m->nunits; u++)
    if (m->unit[u].result && w.now[u] >= 0) w.inst.at[w.now[u]].last = nsteps;
  for (int i = 0; i < w.inst.n; i++) {
    Instance *x = &w.inst.at[i];
    if (x->takes >= 0 && w.inst.at[x->takes].last != x->first) x->takes = -1;
  }
  for (int i = 0; i < w.inst.n; i++)
    if (w.inst.at[i].last == nsteps) w.inst.at[i].last = nsteps - 1;
  t.n = w.inst.n;
  t.at = w.inst.at;
  t.end = w.now;
  return t;
}

void timeline_live(const Timeline *t, const int64_t *unit_bytes, const int64_t *workspace, int64_t *live) {
  memset(live, 0, sizeof *live * (size_t)(t->nsteps + 1));
  for (int i = 0; i < t->n; i++) {
    const Instance *x = &t->at[i];
    /* Two instances share a buffer at the step where one takes over the other. */
    live[x->first + (x->takes >= 0)] += unit_bytes[x->unit];
    live[x->last + 1] -= unit_bytes[x->unit];
  }
  int64_t now = 0;
  for (int s = 0; s < t->nsteps; s++) {
    now += live[s];
    live[s] = now + workspace[t->trace[s]];
  }
}

int64_t timeline_peak(const Timeline *t, const int64_t *unit_bytes, const int64_t *workspace,
                      int64_t *scratch, int *step) {
  timeline_live(t, unit_bytes, workspace, scratch);
  int64_t peak = 0;
  for (int s = 0; s < t->nsteps; s++) {
    if (scratch[s] <= peak) continue;
    peak = scratch[s];
    if (step) *step = s;
  }
  return peak;
}
