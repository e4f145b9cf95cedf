/* recompute_impl.h - what the parts of the recompute solver share: the model of a problem,
 * decisions, the simulator and the pool of plans.
 *
 * Events of a value are its producer and its readers, in op order. An item is a gap between two
 * consecutive events of a value whose producer may run again; a decision gives each gap a state and
 * each op two flags. The order of ops is fixed: an op whose input is missing is preceded by a
 * chain, the ops that rebuild it in original order.
 *
 * All bytes are exact: the simulator allocates outputs, runs, frees, for every op and every op of a
 * chain. */
#ifndef MTC_RECOMPUTE_IMPL_H
#define MTC_RECOMPUTE_IMPL_H
#include "recompute.h"

#define REC_INFEASIBLE INT64_MAX

/* What happens to a value in a gap. */
typedef enum {
  KEEP, /* stays */
  OWN, /* freed; a chain for an op of the producer's layer keeps it to the gap's end, others free it
          again */
  NEVER, /* freed; every chain that rebuilds it frees it again */
  ONCE,  /* freed; the first chain that rebuilds it keeps it */
  EAGER, /* as ONCE, but rebuilt at the last event of an input, while that is still there */
  RELAY, /* as ONCE, but the next chain that reads it frees it */
  UNTIL, /* stays until a chain has read it */
  LOOSE, /* as NEVER, but followers are ONCE: being small, they should not make the op run for them
            alone */
  SEARCHED,        /* the search takes the states above */
  HOLD = SEARCHED, /* as OWN, for the layer that reads it next */
  STATE_COUNT
} GapState;

/* Flags of an op: how its chain runs. */
enum {
  CHAIN_ORDER =
      3, /* 0: one chain in original order; 1, 2: input by input, first to last or last to first */
  CHAIN_EARLY = 4 /* before the previous op's outputs exist */
};

typedef struct {
  int event, value;
  bool crosses; /* from a forward op to a backward op */
  int nfollow;
  const int *follow; /* gaps of small sibling outputs (a norm's statistics) that share the state */
} RecItem;

/* An op's use of a value that some op makes. */
typedef struct {
  int value;
  int event; /* where the gap after this use begins, or one of: */
} RecUse;
enum { LAST_USE = -1, KEPT_USE = -2 /* the last of a value that is kept */ };

/* What the simulator asks of an op, in one place. */
typedef struct {
  int64_t ns, ws;
  const RecUse *in, *out; /* without values that no op makes: those are always there */
  int nin, nout;
  int takes; /* input whose storage out[0] takes over, -1 none */
  bool redo;
} RecUses;

/* Gap of a value from forward to backward. */
typedef struct {
  int event, end; /* end: op of the next event; event -1: no such gap */
} RecCrossing;

typedef struct {
  const RecProblem *p;
  Arena *arena;
  int nop, nval, nlayer;
  int first_bwd; /* first op that is backward; nop when none is */
  const RecOp *op;
  int *prod;        /* per value: op that makes it, -1 none */
  bool *redo;       /* per op: may run again */
  int *layer;       /* per op: 0 .. nlayer - 1 */
  int64_t *bytes;   /* per value: of its storage, which an in-place output takes over */
  int *first_event; /* per value, and one more: its events are first_event[v] .. first_event[v + 1]
                       - 1 */
  int nevent;
  int *event_op; /* per event */
  int *event_value;
  RecUses *uses;         /* per op */
  RecCrossing *crossing; /* per value */
  int nitem;
  RecItem *item;
  int *item_of_event; /* item that decides a gap, or -1; followers too */
  int nflag;
  int *flag_op; /* ops whose flags matter: they read something that may be rebuilt */
  int *eager_first, *eager_ops; /* per item, CSR: ops at which an input of its producer dies */
  int64_t base_peak, base_ns;   /* with nothing dropped */
} RecModel;

/* Decisions: state of the gap that starts at each event, then flags of each op. */
static inline size_t decision_size(const RecModel *m) {
  return (size_t)m->nevent + (size_t)m->nop;
}
static inline uint8_t *op_flags(const RecModel *m, uint8_t *d, int op) {
  return d + m->nevent + op;
}
uint8_t *decision_new(const RecModel *m, Arena *a);
static inline GapState follower_state(GapState leader) {
  return leader == LOOSE || leader == RELAY ? ONCE : leader;
}
static inline void decision_set(const RecModel *m, uint8_t *d, int item, GapState s) {
  const RecItem *it = &m->item[item];
  d[it->event] = (uint8_t)s;
  for (int i = 0; i < it->nfollow; i++) d[it->follow[i]] = (uint8_t)follower_state(s);
}
static inline GapState decision_get(const RecModel *m, const uint8_t *d, int item) {
  return (GapState)d[m->item[item].event];
}

RecModel *rec_model(Arena *a, const RecProblem *p);
/* Items smaller than `share`-th of the peak are left alone: they cost search and bring nothing.
 * Needs base_peak. */
void rec_find_items(RecModel *m, int64_t smallest);

/* ---- simulation ---- */
typedef struct {
  int64_t peak, ns; /* REC_INFEASIBLE when an input cannot be rebuilt */
  int at;           /* first op at which the peak is reached */
  int64_t watched;  /* bytes at the watched op */
  int twins;        /* rebuilt values that were still there: a replay may need fewer bytes */
} RecResult;

typedef struct RecSim RecSim;
RecSim *sim_new(const RecModel *m, Arena *a);
/* Steps evaluated so far: the measure of work, about 50 ns each. */
int64_t sim_work(const RecSim *s);

/* All ops. live (may be NULL) gets the most bytes while each op, its chain included, runs. */
RecResult sim_run(RecSim *s, const uint8_t *d, int64_t *live);
/* Execution order, rebuilt ops standing again. */
int sim_trace(RecSim *s, const uint8_t *d, Arena *a, int **trace);

/* A window: some ops in order, everything made outside resident at no cost. */
typedef struct {
  const int *ops;
  int n;
} RecWindow;
void sim_window_begin(RecSim *s, RecWindow w);
/* live and after get the most bytes while each op runs, and those after it. Returns the time. */
int64_t sim_window_run(RecSim *s, RecWindow w, const uint8_t *d, int64_t *live, int64_t *after);
void sim_window_end(RecSim *s);

/* Trials: the change of a few decisions against a base, at the cost of the steps that it touches.
 */
typedef struct {
  int item; /* or -1: flags of op */
  int op;
  uint8_t to; /* state or flags */
} RecChange;
enum { MAX_CHANGES = 16 };
void sim_load(RecSim *s, const uint8_t *d); /* sets the base; d must be feasible */
RecResult sim_base(const RecSim *s);
const uint8_t *sim_decision(
    const RecSim *s); /* of the base; of the trial between try and accept or reject */
void sim_watch(RecSim *s, int op);
RecResult sim_try(RecSim *s, const RecChange *change, int n);
void sim_accept(RecSim *s);
void sim_reject(RecSim *s);

/* ---- pool: every plan worth keeping; no plan in it is as good as another in both peak and time
 * ---- */
typedef struct {
  int64_t peak, ns;
  const uint8_t *decision;
  bool twins;    /* RecResult.twins > 0 */
  bool explored; /* all its neighbours were tried */
} PoolPlan;
typedef struct {
  const RecModel *m;
  Arena *arena;
  VEC(PoolPlan) plan; /* by rising peak and falling time */
} RecPool;
void pool_add(RecPool *pool, RecResult r, const uint8_t *d);
/* Fastest plan with peak <= budget, or NULL. */
const PoolPlan *pool_pick(const RecPool *pool, int64_t budget);

/* ---- the solvers; each adds what it finds to the pool ---- */
/* For stacks of three layers or more; adds nothing to the pool for other graphs. longest: layers
 * between which nothing is kept, at most REC_LONGEST. shared: may be NULL. */
enum { REC_LONGEST = 8 };
void rec_layered(RecModel *m, RecSim *s, RecPool *pool, int longest, RecSegments *shared);
/* Knapsack by time per byte at many ratios, and the whole of each layer dropped. */
void rec_baselines(RecModel *m, RecSim *s, RecPool *pool);
/* Checkpoints of checkpoints, what passes between layers once for each layer. */
void rec_held(RecModel *m, RecSim *s, RecPool *pool);
/* Drops what lies inside layers, to be rebuilt once; false when there is one layer only. */
bool rec_full(const RecModel *m, uint8_t *d);
/* Lowers the smallest peak. */
void rec_squeeze(RecModel *m, RecSim *s, RecPool *pool, int64_t work);
/* Every single change of every plan, as far as `work` steps go. */
void rec_explore(RecModel *m, RecSim *s, RecPool *pool, int64_t work);
/* Exploration, and annealing at a fixed grid of budgets, within `work` steps. */
void rec_search(RecModel *m, RecSim *s, RecPool *pool, int64_t work);

#endif
