/* fit.h - between the files of the outer search: families of programs, their traces, and the pool
 * of candidates.
 *
 * A family is the programs of one training phase with one number of chunks, for a range of
 * micro-batches: built at two of them, everything is linear between and beyond (shapes are), so
 * that a micro-batch costs arithmetic and no graph. */
#ifndef MTC_FIT_H
#define MTC_FIT_H
#include "cost.h"
#include "first.h"
#include "recompute.h"
#include "residency.h"
#include "saved.h"

/* What a micro program does besides gradients: nothing; the squares for the norm (GraphChoice.early_squares); the updates
 * (early_update). */
typedef enum { MICRO_PLAIN, MICRO_SQUARES, MICRO_UPDATES, MICRO_KINDS } MicroKind;
/* That of the families whose programs go with a residency. */
static inline MicroKind micro_kind(const Residency *r) {
  return r->absent ? MICRO_UPDATES : r->micro ? MICRO_SQUARES : MICRO_PLAIN;
}

/* One program at one micro-batch. */
typedef struct Built {
  Clusters clusters;
  StorageMap map;
  KernelCost *cost;     /* per cluster */
  int64_t inputs_bytes; /* aligned */
  const struct Built *first; /* a micro program as the first micro-batch runs it; else NULL */
} Built;

typedef struct {
  int n;
  const int *order; /* cluster ids */
  Timeline time;
} Trace;

/* What copies of host variables make of a family's traces, so that families of the same programs find it out once. Keys are
 * hashes of the micro-batch, the trace, the room and the units that live on the host. */
typedef struct {
  Arena *arena; /* of the pool that built the family */
  struct {
    uint64_t key; /* 0: free */
    int64_t bytes, ns;
  } * slot;
  int n, cap; /* cap: a power of two, or 0 */
} StagedCache;

/* How a micro-batch program is cut. */
typedef struct {
  int chunks, mlp_chunks; /* of the loss head, of each MLP; 1 = whole */
  int group;           /* members of a micro-batch that go through a layer one after another; 1 = whole */
  MicroKind kind;      /* group > 1: not MICRO_UPDATES */
} Cut;

static inline bool same_cut(Cut a, Cut b) {
  return a.chunks == b.chunks && a.mlp_chunks == b.mlp_chunks && a.group == b.group && a.kind == b.kind;
}
static inline GraphChoice cut_choice(int phase, int64_t micro_batch, Cut cut) {
  return (GraphChoice){.phase = phase,
                       .micro_batch = micro_batch,
                       .chunks = cut.chunks,
                       .mlp_chunks = cut.mlp_chunks,
                       .group = cut.group,
                       .early_squares = cut.kind == MICRO_SQUARES,
                       .early_update = cut.kind == MICRO_UPDATES};
}

typedef struct {
  int phase;
  Cut cut;
  bool apart;          /* kernels end at what backward keeps: less is rebuilt, more is launched */
  int64_t at_a, at_b;  /* micro-batches that were built; equal when there is one */
  int64_t least, most; /* micro-batches that it stands for */
  const Built *micro[2];
  VEC(Trace) traces;      /* the first rebuilds nothing */
  int full;               /* the one that rebuilds each layer once, 0 when there is none */
  struct FitSolve *solve; /* under way */
  StagedCache *staged;    /* shared with those that were taken over from it */
} Family;

/* A program of a phase that does not depend on the micro-batch. */
typedef struct {
  int64_t bytes, ns; /* transient bytes by liveness, time */
  int64_t exact;     /* as placed, 0 not yet known */
  int room;          /* of its copies */
} Fixed;

/* What a residency makes of a phase. */
typedef struct {
  VEC(Fixed) update; /* by rising bytes and falling time: more room for copies */
  Fixed sample;
  VEC(int) frontier; /* choices of the phase, fastest first, by falling peak */
} Resident;

typedef struct {
  const Family *family;
  int64_t micro_batch;
  int trace;
  int res;          /* in the pool's residencies */
  int room;         /* of the micro program's copies */
  const SavedSet *saved; /* what waits on the host between forward and backward, or NULL */
  int update;       /* in the residency's list */
  int64_t estimate; /* peak by liveness */
  int64_t peak;     /* exact, -1 not yet known */
  int64_t step_ns;
} Choice;

/* Sizes and times of one program of a family at one micro-batch. */
typedef struct {
  int64_t *unit_bytes; /* aligned */
  int64_t *workspace;  /* per cluster, aligned */
  int64_t *ns;         /* per cluster */
  int64_t *first_ns;   /* the same in the first micro-batch of a step; NULL where there is none */
  int64_t inputs_bytes;
} Priced;

typedef struct {
  const Job *job;
  const Target *target;
  Arena *arena;
  int recompute; /* RecomputeMode */
  RecSegments *segments; /* while families are solved */
} FitContext;

typedef struct PhasePool PhasePool;

/* ---- fit_family.c ---- */
/* Programs to be built, on all cores; their graphs, which may be the same, are left as they are. */
typedef struct {
  const Graph *graph; /* or NULL: nothing is built */
  const Built *like;  /* copied instead, with what its arena holds, or NULL */
  bool micro;         /* with what the first micro-batch makes of it */
  bool apart;
  const Built *built; /* NULL: nothing was asked for */
} FitBuild;
void fit_build_all(const FitContext *x, int n, FitBuild *list, Arena *a);
/* Same clusters, units and in-place chances: a trace of one is a trace of the other. */
bool fit_same_structure(const Built *a, const Built *b);
/* Families of a phase and cut for those of the micro-batches all[0..nall) (ascending) that divide into its group
 * members. first is a graph that was built for the least of them already, or NULL. */
typedef struct FitGraphs FitGraphs;
FitGraphs *fit_graphs(const FitContext *x, int phase, Cut cut, const int64_t *all, int nall,
                      const Graph *first);
/* Adds those of one way of fusing, if they are wanted; false when a graph cannot be planned, which the job's diagnostics tell. */
bool fit_add_fused(FitGraphs *g, bool apart, PhasePool *out);
/* Joined ones, then those apart. */
bool fit_families(const FitContext *x, Cut cut, const int64_t *all, int nall, PhasePool *out);
/* Finds what can be rebuilt at the smallest micro-batch, in a thread of its own from begin on, and
 * adds the traces that are new at the end. An end without a begin does nothing. */
void fit_solve_begin(const FitContext *x, Family *f);
void fit_solve_end(const FitContext *x, Family *f);
/* Adds a trace, unless there is one with the same steps; its index. `order` is the arena's. */
int fit_add_trace(const FitContext *x, Family *f, int n, const int *order);
/* ---- fit_translate.c ---- */
/* Adds the traces of another family of the same fusion, clusters matched by name and occurrence,
 * where they can run.
 * Any trace whose inputs were made before is right; what it is worth is priced like any other. */
void fit_translate(const FitContext *x, const Family *from, Family *to);
/* Adds the families of `cut`, with the traces of those of `like` that are there. False as fit_families. */
bool fit_add_like(const FitContext *x, Cut cut, Cut like, const int64_t *batch, int n, PhasePool *pool);
Priced fit_price(const FitContext *x, const Built *const b[2], int64_t at_a, int64_t at_b,
                 int64_t at);
/* Transient bytes of a program: inputs and the most that is alive. */
int64_t fit_height(const Priced *p, const Trace *t, int64_t *scratch);

/* ---- fit.c ---- */
struct PhasePool {
  int phase;
  VEC(Family) families;
  const Built *update[MICRO_KINDS]; /* NULL: MICRO_UPDATES, and where no residency has that kind */
  const Built *sample;          /* NULL when there is none */
  Resident *res;                /* per residency */
  VEC(Choice) all;              /* every candidate, fastest first */
  VEC(int) frontier;            /* of all residencies: fastest first, by falling peak */
};

struct FitPool {
  FitContext x;
  PlanArgs args;
  Residencies res;
  const FitPool *like; /* whose families are taken over, or NULL */
  const int *number;   /* its variables' numbers in this job; -1: the update's */
  int nphases;
  PhasePool *phase; /* NULL when there is no hope or the job cannot be planned */
};

/* A plan with the variables of a residency and nothing else. */
Plan *fit_new_plan(const FitPool *f, Arena *a, int res);
enum { PLAIN_ROOM = 2 }; /* of the copies of programs that leave no choice */
/* Appends a program that is run as it stands; -1 when it is NULL. */
int fit_assemble_plain(Plan *p, Arena *a, const char *name, const Built *b, int room);
/* Context and what pinning takes of the card: of the variables of a residency, and of saved values (NULL: none). */
int64_t fit_overhead(const FitPool *f, int res, const SavedSet *saved);
/* Peak of the whole process, as the granule of the target rounds the arena. */
int64_t fit_whole_peak(const FitPool *f, int res, const SavedSet *saved, int64_t transient);
/* Pinned host memory of a choice. */
int64_t fit_host_bytes(const FitPool *f, const Choice *c);
/* The budget, or the card where that is less. */
int64_t fit_capped_budget(const PlanArgs *args);
/* Least transient bytes of a micro-batch of `at` samples by a phase's families from..to-1, of those that stand for it; 0: of the
 * smallest one of each. */
int64_t fit_least_height(const FitPool *f, const PhasePool *pool, int from, int to, int64_t at);
/* Chunks that the graph really has. */
int fit_chunks_of(const Graph *g);
int fit_mlp_chunks_of(const Graph *g);
static inline int64_t max64(int64_t a, int64_t b) {
  return a > b ? a : b;
}

/* ---- fit_early.c ---- */
/* The plain families of a phase once more, of another kind, for these micro-batches, with the same traces; false as fit_families. */
bool fit_add_kind(const FitPool *f, PhasePool *pool, MicroKind kind, const int64_t *batch, int n);
/* The step of every phase may be one micro-batch whose backward pass updates (optimizer.h). */
bool fit_may_update_early(const FitPool *f);
/* Per variable: an accumulator that no family with early updates uses; all of them when there are no families yet (NULL). */
const bool *fit_unused_accumulators(const FitPool *f, const PhasePool *pool);
/* Adds families with early updates to all phases, for the micro-batch that is a whole step, where they pay. *absent: what they have
 * no use for, NULL where there are none. False as fit_families. */
bool fit_add_early(const FitPool *f, PhasePool *pool, const bool **absent);
/* About the floor if updates were early, where this one is not: FitResult.early_floor_bytes. */
int64_t fit_early_floor(const FitPool *f, const FitResult *r);

/* ---- fit_share.c ---- */
/* Numbers in `to` of the variables of `from` that micro-batches may use, those that `to` lacks added to it; NULL when they
 * are not the same in both, masters and moments aside. */
int *fit_same_variables(const Vars *from, Vars *to, Arena *a);
/* The families and the sample of a phase with other numbers of variables; those with early squares where they are wanted, and
 * not those with early updates. What was taken lives as long as the pool that it comes from. */
void fit_take_families(const PhasePool *from, const int *number, int nvars, bool squares, Arena *a,
                       PhasePool *to);

/* ---- fit_price.c: the candidates of a phase, once all variables exist ---- */
void fit_fill_pool(const FitPool *f, PhasePool *pool, const int64_t *batch, int n);

#endif
