/* place.h - static buffer placement: offsets in one arena for buffers with known lifetimes (offline
 * dynamic storage allocation). Deterministic: effort counts work, never a clock. */
#ifndef MTC_PLACE_H
#define MTC_PLACE_H
#include "../ir/base.h"

typedef struct {
  int64_t lower, upper; /* live in [lower, upper) */
  int64_t size;         /* > 0 */
} PlaceBuf;

typedef struct {
  int64_t target; /* stop as soon as height <= target; 0 = the liveness bound */
  int64_t align;  /* sizes and offsets in multiples of this; 0 = 1 */
  double effort;  /* about a second of a 2020s core each; 0 = 10 */
} PlaceOptions;

typedef struct {
  int64_t bound;  /* max over time of the live sizes (aligned): no plan is lower */
  int64_t height; /* of the offsets returned */
  bool refuted;   /* search proved that no plan has height <= target */
  bool optimal;   /* and that none is lower than `height`; also at the bound */
  const char
      *method; /* phase that found the plan: "none", "greedy", "squeaky", "exact", "ejection" */
  double work;
} PlaceInfo;

/* Fills offset[0..n), also for a height above the target: the lowest found. When the target is the
 * bound and it is refuted, the search goes on for the lowest height there is. Sizes must add up to
 * less than 2^62 units. Returns the height. */
int64_t place_buffers(int n, const PlaceBuf *buf, int64_t *offset, const PlaceOptions *opt,
                      PlaceInfo *info);
#endif
