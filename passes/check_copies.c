/* check_copies.c - part of the independent proof of a plan: host variables, saved values and their stages. Input: a
 * program's copies, between its steps. Output: the first fault as a sentence.
 *
 * A variable's content is known by how many of its assigns it holds, accumulators hold nothing in front of a step; a saved
 * value's by the stage that it was written to, which nothing writes once a copy of it has begun. Proved: each copy lies between a buffer on the host and a
 * living stage of it; nothing touches either end while a copy is under way but what may; a copy carries the newest
 * content; at the end of the program every host variable holds its newest content. */
#include "check.h"

/* What a place holds that nobody may read. */
enum { NOTHING = -1 };

static const char *bad_copy(Arena *a, const Copying *x, const PlanCopy *c, const char *what) {
  return arena_printf(a, "copy of %s %s, steps %d..%d: %s",
                      c->host >= 0 && c->host < x->p->bufs.n ? x->p->bufs.at[c->host].name : "?",
                      c->to_host ? "to the host" : "to the device", c->begin, c->end, what);
}

static bool holds_nothing(const Copying *x, const PlanBuf *b) {
  return b->space != SPACE_HOST || (x->fresh && x->p->job->vars->all.at[b->var].role == VAR_ACCUM);
}

Copying copying_begin(const Plan *p, int program, bool fresh, Arena *a) {
  Copying x = {.p = p, .program = program, .fresh = fresh};
  int n = p->bufs.n;
  x.holds = arena_array(a, int, n + 1);
  x.under_way = arena_array(a, int, n + 1);
  x.leaving = arena_array(a, int, n + 1);
  x.saves = arena_array(a, bool, n + 1);
  x.left = arena_array(a, bool, n + 1);
  x.carries = arena_array(a, int, p->programs.at[program].ncopies + 1);
  for (int i = 0; i < n; i++) x.holds[i] = p->bufs.at[i].var < 0 || holds_nothing(&x, &p->bufs.at[i]) ? NOTHING : 0;
  for (int i = 0; i < p->programs.at[program].ncopies; i++) {
    const PlanCopy *c = &p->programs.at[program].copies[i];
    if (c->stage >= 0 && c->stage < n && p->bufs.at[c->stage].var < 0) x.saves[c->stage] = true;
  }
  return x;
}

static const char *shape_ok(Copying *x, const PlanCopy *c, Arena *a) {
  const Plan *p = x->p;
  const PlanProgram *prog = &p->programs.at[x->program];
  if (c->host < 0 || c->host >= p->bufs.n || c->stage < 0 || c->stage >= p->bufs.n)
    return bad_copy(a, x, c, "it has no buffers");
  const PlanBuf *h = &p->bufs.at[c->host], *s = &p->bufs.at[c->stage];
  bool saves = h->cls == BC_SAVED;
  if (h->space != SPACE_HOST || (saves ? h->program != x->program : h->program >= 0 || h->var < 0))
    return bad_copy(a, x, c, "its host end is neither a host variable nor where a saved value waits");
  if (s->space != SPACE_DEVICE || s->program != x->program || s->var != h->var || s->cls != BC_STAGES)
    return bad_copy(a, x, c, "its device end is no stage of that variable");
  if (s->bytes != h->bytes) return bad_copy(a, x, c, "its ends differ in size");
  if (c->begin < 0 || c->end < c->begin || c->end > prog->nsteps) return bad_copy(a, x, c, "its steps are out of order");
  int from = c->begin, to = c->end > c->begin ? c->end - 1 : c->begin;
  if (c->to_host && c->end == c->begin) from = to = c->begin - 1; /* over before that step */
  if (c->to_host && from == prog->nsteps) from = to = prog->nsteps - 1;
  if (from < s->first || to > s->last) return bad_copy(a, x, c, "its stage is not alive");
  if (saves && (from < h->first || to > h->last)) return bad_copy(a, x, c, "its place on the host is not its own");
  return NULL;
}

static const char *begin_copy(Copying *x, int i, Arena *a) {
  const PlanCopy *c = &x->p->programs.at[x->program].copies[i];
  const char *why = shape_ok(x, c, a);
  if (why) return why;
  int from = c->to_host ? c->stage : c->host, to = c->to_host ? c->host : c->stage;
  if (x->under_way[from] || x->under_way[to] || x->leaving[to])
    return bad_copy(a, x, c, "another copy of it is under way");
  if (x->holds[from] == NOTHING) return bad_copy(a, x, c, "it carries nothing");
  x->carries[i] = x->holds[from];
  x->left[from] = true;
  x->leaving[from]++;
  x->under_way[to]++;
  x->holds[to] = NOTHING;
  return NULL;
}

static void end_copy(Copying *x, int i) {
  const PlanCopy *c = &x->p->programs.at[x->program].copies[i];
  int from = c->to_host ? c->stage : c->host, to = c->to_host ? c->host : c->stage;
  x->leaving[from]--;
  x->under_way[to]--;
  x->holds[to] = x->carries[i];
}

const char *copying_boundary(Copying *x, int step, Arena *a) {
  const PlanProgram *prog = &x->p->programs.at[x->program];
  for (int i = 0; i < x->begun; i++)
    if (prog->copies[i].end == step && prog->copies[i].begin < step) end_copy(x, i);
  bool device = false;
  for (; x->begun < prog->ncopies && prog->copies[x->begun].begin <= step; x->begun++) {
    const PlanCopy *c = &prog->copies[x->begun];
    if (c->begin < step) return bad_copy(a, x, c, "it stands behind a later one");
    if (c->to_host && device) return bad_copy(a, x, c, "it stands behind one to the device");
    device |= !c->to_host;
    const char *why = begin_copy(x, x->begun, a);
    if (why) return why;
    if (c->end == step) end_copy(x, x->begun);
  }
  return NULL;
}

const char *copying_read(const Copying *x, int buf, int assigned, Arena *a) {
  const char *name = x->p->bufs.at[buf].name;
  if (x->under_way[buf]) return arena_printf(a, "reads the stage of %s while it is copied in", name);
  if (x->holds[buf] == NOTHING) return arena_printf(a, "reads the stage of %s, which holds nothing", name);
  if (x->holds[buf] != assigned)
    return arena_printf(a, "reads the stage of %s after %d of its %d assigns", name, x->holds[buf], assigned);
  return NULL;
}

const char *copying_write(Copying *x, int buf, int assigned, Arena *a) {
  const char *name = x->p->bufs.at[buf].name;
  if (x->under_way[buf] || x->leaving[buf]) return arena_printf(a, "writes the stage of %s while it is copied", name);
  x->holds[buf] = assigned;
  return NULL;
}

int copying_source(const Copying *x, int buf, Arena *a, const char **why) {
  const char *name = x->p->bufs.at[buf].name;
  *why = NULL;
  if (x->under_way[buf]) *why = arena_printf(a, "reads the stage of %s while it is copied in", name);
  else if (x->holds[buf] == NOTHING) *why = arena_printf(a, "reads the stage of %s, which holds nothing", name);
  return *why ? -1 : x->holds[buf];
}

const char *copying_make(Copying *x, int buf, Arena *a) {
  const char *name = x->p->bufs.at[buf].name;
  if (x->under_way[buf] || x->left[buf]) return arena_printf(a, "writes the stage of %s after a copy of it has begun", name);
  x->holds[buf] = buf;
  return NULL;
}

const char *copying_end(const Copying *x, const int *assigned, Arena *a) {
  for (int i = 0; i < x->p->bufs.n; i++) {
    const PlanBuf *b = &x->p->bufs.at[i];
    if (b->space != SPACE_HOST || b->var < 0 || (holds_nothing(x, b) && assigned[b->var] == 0)) continue;
    if (x->holds[i] != assigned[b->var])
      return arena_printf(a, "host variable %s ends with %d of its %d assigns", b->name, x->holds[i], assigned[b->var]);
  }
  return NULL;
}
