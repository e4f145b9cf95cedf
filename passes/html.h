/* html.h - pictures of a plan and of what was explored, as one page that needs nothing else: memory
 * in time and address, bytes live over time, the front of memory against speed. Text of the page:
 * passes/html/page.html.
 *
 * Coordinates are exact: x counts steps, y counts units of 64 KiB from the top of a region with all
 * digits, so that what the page draws can be checked from its own numbers. (Browsers lose what lies
 * beyond 2^25 units.) */
#ifndef MTC_HTML_H
#define MTC_HTML_H
#include "explore.h"

/* r has a plan. x: what was explored, or NULL for the plan alone. */
void html_page(const FitResult *r, const Explore *x, FILE *to);

/* ---- between the files of the page ---- */
typedef struct {
  const FitResult *r;
  const Plan *plan;
  const Explore *explore;
  Arena *arena;
  FILE *to;
} Page;

/* A rectangle of the map: one buffer, or several small ones of a class that lie together. */
typedef struct {
  int64_t x0, x1, y0, y1; /* steps [x0, x1) and bytes [y0, y1) of the arena */
  int buf, count;
  bool dead; /* merged into another */
} MapBox;
typedef struct {
  int nlists; /* one a program, the persistent ones, those on the host */
  struct {
    MapBox *at;
    int n;
    int64_t low, high; /* bytes of the region */
    int steps;
  } * list;
  int rects;
} MapBoxes;

enum { MAP_UNIT = 65536, MOST_RECTS = 5000, CONTEXT_COLOUR = BC_COUNT, RESERVE_COLOUR };
/* html_boxes.c: every buffer, merged where small until at most `most` rectangles are
 * left. */
MapBoxes html_boxes(const Page *p, int most);

void html_text(FILE *to, const char *s); /* escaped for text and for attributes */
void html_map(const Page *p);            /* html_map.c */
void html_live(const Page *p, int program, bool hidden);
/* html_copies.c: when the copies of a program run, if it has any. */
void html_copies(const Page *p, int program);
void html_peak(const Page *p);  /* html_peak.c */
void html_front(const Page *p); /* html_front.c */
/* "gpt2.mt:36"; "36" in the file that is planned, unless whole; "" without a place. */
const char *html_place(const Page *p, Loc at, bool whole);
#endif
