/* check_space.c - part of the independent proof of a plan: every buffer lies in its part of the
 * arena, buffers that live together lie apart, the sizes add up. Input: buffers of a Plan. Output:
 * NULL or the first fault as a sentence. */
#include "check.h"

#include <stdlib.h>

static int by_address(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

/* Counts of live buffers over compressed addresses: add on a range, maximum of a range. */
typedef struct {
  int n, *add, *max;
} Cover;

static int cover_max(const Cover *t, int v, int lo, int hi, int from, int to) {
  if (to <= lo || hi <= from) return 0;
  if (from <= lo && hi <= to) return t->max[v];
  int mid = (lo + hi) / 2, a = cover_max(t, 2 * v, lo, mid, from, to),
      b = cover_max(t, 2 * v + 1, mid, hi, from, to);
  return t->add[v] + (a > b ? a : b);
}

static void cover_add(Cover *t, int v, int lo, int hi, int from, int to, int by) {
  if (to <= lo || hi <= from) return;
  if (from <= lo && hi <= to) {
    t->add[v] += by;
    t->max[v] += by;
    return;
  }
  int mid = (lo + hi) / 2;
  cover_add(t, 2 * v, lo, mid, from, to, by);
  cover_add(t, 2 * v + 1, mid, hi, from, to, by);
  t->max[v] = t->add[v] + (t->max[2 * v] > t->max[2 * v + 1] ? t->max[2 * v] : t->max[2 * v + 1]);
}

typedef struct {
  int64_t *cut; /* sorted addresses */
  int ncut;
} Cuts;

static int cut_of(const Cuts *c, int64_t at) {
  const int64_t *x = bsearch(&at, c->cut, (size_t)c->ncut, sizeof *c->cut, by_address);
  return (int)(x - c->cut);
}

/* Buffers of one space and program (the persistent ones when program is -1) that are alive in [0,
 * steps). */
static const char *apart(const Plan *p, Arena *a, Space space, int program, int steps) {
  VEC(int) list = {0};
  for (int i = 0; i < p->bufs.n; i++)
    if (p->bufs.at[i].program == program && p->bufs.at[i].space == space) vec_push(a, &list, i);
  Cuts c = {.cut = arena_array(a, int64_t, 2 * list.n + 2)};
  int *born = arena_array(a, int, steps + 2), *next = arena_array(a, int, p->bufs.n + 1);
  int *died = arena_array(a, int, steps + 2), *after = arena_array(a, int, p->bufs.n + 1);
  for (int i = 0; i <= steps; i++) born[i] = died[i] = -1;
  int64_t *all = arena_array(a, int64_t, 2 * list.n + 2);
  for (int i = 0; i < list.n; i++) {
    const PlanBuf *b = &p->bufs.at[list.at[i]];
    all[2 * i] = b->offset;
    all[2 * i + 1] = b->offset + b->bytes;
    int first = program < 0 ? 0 : b->first, last = program < 0 ? 0 : b->last;
    if (first < 0 || last < first || last >= steps)
      return arena_printf(a, "buffer %s has no lifetime", b->name);
    next[list.at[i]] = born[first];
    born[first] = list.at[i];
    after[list.at[i]] = died[last];
    died[last] = list.at[i];
  }
  qsort(all, (size_t)(2 * list.n), sizeof *all, by_address);
  for (int i = 0; i < 2 * list.n; i++)
    if (c.ncut == 0 || c.cut[c.ncut - 1] != all[i]) c.cut[c.ncut++] = all[i];
  Cover t = {.n = c.ncut,
             .add = arena_array(a, int, 4 * c.ncut + 4),
             .max = arena_array(a, int, 4 * c.ncut + 4)};
  for (int s = 0; s < steps; s++) {
    for (int i = born[s]; i >= 0; i = next[i]) {
      int from = cut_of(&c, p->bufs.at[i].offset),
          to = cut_of(&c, p->bufs.at[i].offset + p->bufs.at[i].bytes);
      if (cover_max(&t, 1, 0, t.n, from, to) > 0)
        return arena_printf(
            a, "buffer %s (%d) overlaps another that is alive in step %d of program %d",
            p->bufs.at[i].name, i, s, program);
      cover_add(&t, 1, 0, t.n, from, to, 1);
    }
    for (int i = died[s]; i >= 0; i = after[i])
      cover_add(&t, 1, 0, t.n, cut_of(&c, p->bufs.at[i].offset),
                cut_of(&c, p->bufs.at[i].offset + p->bufs.at[i].bytes), -1);
  }
  return NULL;
}

const char *check_buffers(const Plan *p, Arena *a) {
  for (int i = 0; i < p->bufs.n; i++) {
    const PlanBuf *b = &p->bufs.at[i];
    if (b->bytes <= 0 || b->bytes % PLAN_ALIGN || b->offset % PLAN_ALIGN)
      return arena_printf(a, "buffer %s is not aligned", b->name);
    bool host = b->space == SPACE_HOST;
    int64_t variables = host ? p->host_persistent_bytes : p->persistent_bytes;
    int64_t end = b->program < 0 ? variables : host ? p->host_bytes : p->arena_bytes;
    if (b->offset < (b->program < 0 ? 0 : variables) || b->offset + b->bytes > end)
      return arena_printf(a, "buffer %s lies outside its part of the arena", b->name);
    if (b->program >= p->programs.n) return arena_printf(a, "buffer %s is of no program", b->name);
  }
  if (p->peak_bytes != p->arena_bytes + p->overhead_bytes + p->reserve_bytes)
    return "the peak does not add up";
  if (p->peak_bytes > p->budget_bytes) return "the peak exceeds the budget";
  if (p->host_bytes > p->host_budget_bytes) return "the host's arena exceeds its budget";
  const char *why = apart(p, a, SPACE_DEVICE, -1, 1);
  if (!why) why = apart(p, a, SPACE_HOST, -1, 1);
  for (int i = 0; i < p->programs.n && !why; i++) {
    why = apart(p, a, SPACE_DEVICE, i, p->programs.at[i].nsteps + 1);
    if (!why) why = apart(p, a, SPACE_HOST, i, p->programs.at[i].nsteps + 1);
  }
  return why;
}
