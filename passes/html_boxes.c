/* html_boxes.c - the rectangles of the memory map. Input: a plan. Output: one box a buffer; where
 * there are too many, boxes of one class that are too small to see are joined, as long as what they
 * cover together touches no other. */
#include <stdlib.h>

#include "assemble.h"
#include "html.h"

enum { MAP_WIDTH = 1120, MAP_HEIGHT = 440, STRIP_HEIGHT = 120 }; /* pixels, to tell what is small */

static int class_of(const Page *p, const MapBox *b) {
  return p->plan->bufs.at[b->buf].cls;
}

static const Plan *sorted_plan; /* of the sort in progress */

static int by_class_and_place(const void *a, const void *b) {
  const MapBox *x = a, *y = b;
  int cx = sorted_plan->bufs.at[x->buf].cls, cy = sorted_plan->bufs.at[y->buf].cls;
  if (cx != cy) return cx < cy ? -1 : 1;
  if (x->x0 != y->x0) return x->x0 < y->x0 ? -1 : 1;
  if (x->y0 != y->y0) return x->y0 < y->y0 ? -1 : 1;
  return (x->buf > y->buf) - (x->buf < y->buf);
}

static void add_buffers(const Page *p, MapBoxes *m) {
  const Plan *plan = p->plan;
  int persistent = plan->programs.n, saver = plan_saver(plan);
  for (int i = 0; i < plan->bufs.n; i++) {
    const PlanBuf *b = &plan->bufs.at[i];
    bool host = b->space == SPACE_HOST, whole = b->program < 0 || host;
    if (b->bytes == 0 || (host && b->program >= 0 && b->program != saver)) continue;
    int l = host ? persistent + 1 : whole ? persistent : b->program;
    MapBox box = {.x0 = whole ? 0 : b->first,
                  .x1 = whole ? 1 : b->last + 1,
                  .y0 = b->offset,
                  .y1 = b->offset + b->bytes,
                  .buf = i,
                  .count = 1};
    m->list[l].at[m->list[l].n++] = box;
    m->rects++;
  }
  sorted_plan = plan;
  for (int l = 0; l <= persistent + 1; l++)
    qsort(m->list[l].at, (size_t)m->list[l].n, sizeof(MapBox), by_class_and_place);
}

static void set_regions(const Page *p, MapBoxes *m) {
  const Plan *plan = p->plan;
  for (int l = 0; l < plan->programs.n; l++) {
    const PlanProgram *x = &plan->programs.at[l];
    m->list[l].low = plan->persistent_bytes;
    m->list[l].high =
        plan->persistent_bytes + (x->transient_bytes > 0 ? x->transient_bytes : PLAN_ALIGN);
    m->list[l].steps = x->nsteps > 0 ? x->nsteps : 1;
  }
  int64_t whole[] = {plan->persistent_bytes, plan->host_bytes};
  for (int i = 0; i < COUNT_OF(whole); i++) {
    m->list[plan->programs.n + i].high = whole[i] > 0 ? whole[i] : PLAN_ALIGN;
    m->list[plan->programs.n + i].steps = 1;
  }
}

/* Does the box meet any live one of the list but i and j? */
static bool meets(const MapBoxes *m, int l, const MapBox *u, int i, int j) {
  for (int k = 0; k < m->list[l].n; k++) {
    const MapBox *b = &m->list[l].at[k];
    if (k == i || k == j || b->dead) continue;
    if (b->x0 < u->x1 && u->x0 < b->x1 && b->y0 < u->y1 && u->y0 < b->y1) return true;
  }
  return false;
}

static int64_t low64(int64_t a, int64_t b) {
  return a < b ? a : b;
}
static int64_t high64(int64_t a, int64_t b) {
  return a > b ? a : b;
}

/* One pass over a list with `pixels` as what is too small to see. */
static void merge(const Page *p, MapBoxes *m, int l, double pixels) {
  double height = l >= p->plan->programs.n ? STRIP_HEIGHT : MAP_HEIGHT;
  double per_byte = height / (double)(m->list[l].high - m->list[l].low),
         per_step = (double)MAP_WIDTH / m->list[l].steps;
  int group = -1;
  for (int i = 0; i < m->list[l].n; i++) {
    MapBox *b = &m->list[l].at[i];
    if (b->dead) continue;
    bool small =
        (double)(b->y1 - b->y0) * per_byte < pixels || (double)(b->x1 - b->x0) * per_step < pixels;
    if (!small) continue;
    if (group >= 0) {
      MapBox *g = &m->list[l].at[group];
      MapBox u = *g;
      u.x0 = low64(g->x0, b->x0);
      u.x1 = high64(g->x1, b->x1);
      u.y0 = low64(g->y0, b->y0);
      u.y1 = high64(g->y1, b->y1);
      if (class_of(p, g) == class_of(p, b) && !meets(m, l, &u, group, i)) {
        u.count += b->count;
        *g = u;
        b->dead = true;
        m->rects--;
        continue;
      }
    }
    group = i;
  }
}

MapBoxes html_boxes(const Page *p, int most) {
  int lists = p->plan->programs.n + 2;
  MapBoxes m = {.nlists = lists, .list = arena_alloc(p->arena, sizeof *m.list * (size_t)lists)};
  for (int l = 0; l < lists; l++) m.list[l].at = arena_array(p->arena, MapBox, p->plan->bufs.n + 1);
  add_buffers(p, &m);
  set_regions(p, &m);
  for (double pixels = 0.5; m.rects > most && pixels < MAP_HEIGHT; pixels *= 2)
    for (int l = 0; l < lists; l++) merge(p, &m, l, pixels);
  return m;
}
