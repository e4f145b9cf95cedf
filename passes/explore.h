/* explore.h - what each budget buys: the pool of one fit read as a front of memory against speed,
 * and a few of its plans made in full for people to look at.
 *
 * A setting is one way to elaborate and to bound a job ("T=512, nothing rebuilt"). It costs one
 * fit, whatever the number of budgets. Points are candidates of the pool; rows are plans that were
 * assembled, and their --vram, as it is written, gives the same plan again. Sizes are rounded up to
 * what is written: a hundredth of a GiB, or a tenth of a MiB below one GiB. */
#ifndef MTC_EXPLORE_H
#define MTC_EXPLORE_H
#include "plan.h"

/* A candidate that is faster than all smaller ones. */
typedef struct {
  Candidate at;
  const char *vram; /* "31.82G" */
  int64_t vram_bytes;
  double rate; /* tokens or samples a second */
} ExplorePoint;

typedef enum {
  ROW_FLOOR = 1, /* the smallest budget that has a plan */
  ROW_FIRST = 2, /* most speed for the first bytes above the floor */
  ROW_KNEE = 4,  /* beyond it speed costs much more memory */
  ROW_SIZE = 8,  /* the best in a round size */
  ROW_LAST = 16, /* the fastest in the range */
  ROW_END = 32,  /* the fastest of all: more memory buys nothing */
  ROW_MARK = 64  /* the plan for --vram */
} RowKind;

typedef struct {
  unsigned kinds;
  int point; /* in the setting's points */
  const char *vram;
  int64_t vram_bytes, peak_bytes, step_ns;
  double rate, more_rate; /* more_rate: with Explore.more_bytes more */
  int64_t micro_batch, accumulation;
  int chunks;
  int64_t recompute_ns;  /* in a whole step */
  int64_t host_bytes;    /* pinned */
  bool early_update;     /* right after each gradient */
  const char *recompute; /* "nothing", "gelu, ln_1 in 11/36" */
  const char *remark;    /* "knee: the next +2.3 % costs 2.10 GiB" */
  uint64_t plan_id;
} ExploreRow;

typedef struct {
  const char *label; /* "T=512, recompute=none"; "" for the only one */
  const char *flags; /* " -D T=512 --recompute none" */
  const char *unit;  /* "tok/s" */
  int64_t floor_bytes;
  int layers;
  VEC(Candidate) all;       /* everything weighed that the card could hold, fastest first */
  VEC(ExplorePoint) points; /* by rising memory */
  VEC(ExploreRow) rows;     /* by rising memory; none when nothing fits */
} ExploreSetting;

typedef struct {
  const Job *job; /* as given, for titles */
  const Target *target;
  const char *command; /* "models/gpt2.mt --preset xl" : what `mtc plan` would be given */
  int64_t low, high;   /* the budgets of interest */
  int64_t mark;        /* the budget asked for, 0 = a range was */
  int64_t more_bytes;
  bool brief; /* floor, knee and best alone */
  bool host;  /* some setting may pin host memory */
  VEC(ExploreSetting) settings;
} Explore;

/* "31.82G", "48.5M": the shortest size of its kind that is not below. */
const char *explore_vram(Arena *a, int64_t bytes, int64_t *rounded);
/* Names of what a plan's program rebuilds, without layers: "gelu, ln_1 in 11/36 layers". */
const char *explore_recompute(Arena *a, const Plan *p, int program);

/* What more memory brings to a row: "+2.1 %", "x26"; "-" when nothing. */
const char *explore_more(Arena *a, const ExploreRow *r);

/* Points and rows of one setting, appended to x->settings; they live in a. Returns the plan for the
 * marked budget, else for the upper end of the range, in the arena `own`, for pictures; its plan is
 * NULL when nothing fits there. */
FitResult explore_setting(Explore *x, Arena *a, Arena *own, const Job *job, const PlanArgs *args,
                          const char *label, const char *flags);
/* explore_text.c, explore_json.c */
void explore_text(const Explore *x, FILE *to, int columns);
void explore_json(const Explore *x, FILE *to);
void explore_csv(const Explore *x, FILE *to);

#endif
