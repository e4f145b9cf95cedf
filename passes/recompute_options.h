/* recompute_options.h - segments of consecutive layers and the options of saving and rebuilding
 * inside them, for the layered programme. */
#ifndef MTC_RECOMPUTE_OPTIONS_H
#define MTC_RECOMPUTE_OPTIONS_H
#include "recompute_impl.h"

enum { MAX_SEGMENT = REC_LONGEST };    /* layers */
#define NO_BYTES (-((int64_t)1 << 60)) /* less than any; sums of a few do not overflow */

/* One way to run a segment. */
typedef struct {
  int64_t saved; /* bytes that it holds from forward to backward */
  int64_t work;  /* most bytes live at one of its ops, beyond what the layers before it hold */
  int64_t ns;    /* added time */
  const uint8_t *choice; /* states of the segment's items, then flags of its flag ops */
} Option;
typedef VEC(Option) Options; /* none as good as another in all three */

typedef struct {
  int layer, count;
  RecWindow window;
  int nfwd; /* forward ops come first in the window */
  int nitem, nflag;
  int *item, *flag_op; /* both ascending; of equal segments they correspond */
  int64_t *outside;   /* per op: bytes live there that the window does not see and the layers before
                         do not hold */
  uint64_t signature; /* equal: same ops, bytes, wiring and surroundings */
  const Options *options; /* shared by equal segments */
} Segment;

typedef struct {
  RecModel *m;
  RecSim *sim;
  Arena *arena;
  Segment *seg[MAX_SEGMENT + 1]; /* [count][layer] */
  /* base run */
  int64_t *live; /* per op */
  int64_t *held; /* per layer: bytes that the layers before it hold at the loss */
  /* scratch */
  uint8_t *d; /* decision of the window in work; all KEEP outside it */
  int64_t *wlive, *wafter;
  int *position;                           /* per op: place in the window, or -1 */
  int *item_first_layer, *item_last_layer; /* per item: layers that its value's events span */
  RecSegments *shared;                     /* of other problems, or NULL */
} Layers;

/* False when the problem has too few layers or no backward part. */
bool layers_init(Layers *ls, RecModel *m, RecSim *sim, Arena *a);
/* Segment of `count` layers from `layer` on, with its options. Smaller segments come first. */
void layers_segment(Layers *ls, int layer, int count);
/* Writes an option's choice into a decision. */
void segment_apply(const Layers *ls, const Segment *g, const uint8_t *choice, uint8_t *d);

/* ---- recompute_share.c ---- */
/* Options of the segment as another problem found them, once it has; or NULL: it falls to the caller, who puts them. */
const Options *segments_take(RecSegments *all, const Segment *g);
/* Keeps a copy of g->options. */
void segments_put(RecSegments *all, const Segment *g);

#endif
