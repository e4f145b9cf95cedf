/* recompute_baselines.c - plans that every graph has, so that the solver is never worse than the
 * usual methods: knapsacks by rebuild time per byte, each layer rebuilt in full, everything
 * dropped.
 *
 * In: the model. Out: plans in the pool, each simulated in full. */
#include "recompute_impl.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_RATIOS = 100, FEWEST_RATIOS = 16, RATIO_STEPS = 300000, STRIDE_STEPS = 300000 };

typedef struct {
  int item;
  int64_t ns, bytes;
} Worth;

/* Dearest to rebuild, per byte, first. */
static int compare_worth(const void *a, const void *b) {
  const Worth *x = a, *y = b;
  __int128 l = (__int128)x->ns * y->bytes, r = (__int128)y->ns * x->bytes;
  if (l != r) return l > r ? -1 : 1;
  return x->item - y->item;
}

/* Keeps the dearest values that fit a share of all saved bytes; drops the others until they are
 * read. */
static void knapsacks(RecModel *m, RecSim *s, RecPool *pool, uint8_t *d) {
  Worth *worth = arena_array(m->arena, Worth, m->nitem);
  int n = 0, ratios = RATIO_STEPS / m->nop;
  __int128 total = 0;
  for (int i = 0; i < m->nitem; i++) {
    const RecItem *it = &m->item[i];
    if (!it->crosses) continue;
    worth[n++] = (Worth){i, m->op[m->prod[it->value]].ns, m->bytes[it->value] + 1};
    total += m->bytes[it->value];
  }
  qsort(worth, (size_t)n, sizeof *worth, compare_worth);
  if (ratios > MOST_RATIOS) ratios = MOST_RATIOS;
  if (ratios < FEWEST_RATIOS) ratios = FEWEST_RATIOS;
  for (int r = 0; r <= ratios; r++) {
    __int128 room = total * r / ratios;
    memset(d, 0, decision_size(m));
    for (int i = 0; i < n; i++) {
      if (worth[i].bytes <= room) {
        room -= worth[i].bytes;
      } else {
        decision_set(m, d, worth[i].item, ONCE);
      }
    }
    pool_add(pool, sim_run(s, d, NULL), d);
  }
}

/* True when all events of the item's value lie in one layer. */
static bool inside_layer(const RecModel *m, const RecItem *it) {
  int v = it->value;
  for (int e = m->first_event[v]; e < m->first_event[v + 1]; e++)
    if (m->layer[m->event_op[e]] != m->layer[m->prod[v]]) return false;
  return true;
}

bool rec_full(const RecModel *m, uint8_t *d) {
  memset(d, 0, decision_size(m));
  for (int i = 0; i < m->nitem; i++)
    if (m->item[i].crosses && inside_layer(m, &m->item[i])) decision_set(m, d, i, OWN);
  return m->nlayer > 1;
}

/* Drops what lies inside layers. Of what passes between them, that of every kept-th layer stays,
 * that of every once-th is rebuilt once, and the rest as `between` says, at least for each layer
 * anew: the checkpoints of checkpoints that very small budgets need. */
static void whole_layers(RecModel *m, RecSim *s, RecPool *pool, uint8_t *d, GapState inside,
                         GapState between, int kept, int once) {
  memset(d, 0, decision_size(m));
  for (int i = 0; i < m->nitem; i++) {
    const RecItem *it = &m->item[i];
    int layer = m->layer[m->prod[it->value]];
    if (!it->crosses) continue;
    if (inside_layer(m, it)) {
      decision_set(m, d, i, inside);
    } else if (layer % kept) {
      decision_set(m, d, i, layer % once ? between : ONCE);
    }
  }
  pool_add(pool, sim_run(s, d, NULL), d);
}

/* 1, 2, 3, 4, 6, 8, 12, .. */
static int next_stride(int stride) {
  bool power = (stride & (stride - 1)) == 0;
  return stride == 1 ? 2 : power ? stride / 2 * 3 : stride / 3 * 4;
}

static void layer_strides(RecModel *m, RecSim *s, RecPool *pool, uint8_t *d, GapState between) {
  int64_t limit = sim_work(s) + STRIDE_STEPS;
  for (int kept = 1;; kept = next_stride(kept)) {
    for (int once = 1; once <= kept && sim_work(s) < limit; once = next_stride(once)) {
      whole_layers(m, s, pool, d, OWN, between, kept, once);
      whole_layers(m, s, pool, d, NEVER, between, kept, once);
    }
    if (kept >= m->nlayer) return;
  }
}

void rec_baselines(RecModel *m, RecSim *s, RecPool *pool) {
  uint8_t *d = decision_new(m, m->arena);
  knapsacks(m, s, pool, d);
  layer_strides(m, s, pool, d, NEVER);
  memset(d, 0, decision_size(m));
  for (int i = 0; i < m->nitem; i++) decision_set(m, d, i, NEVER);
  pool_add(pool, sim_run(s, d, NULL), d);
}

void rec_held(RecModel *m, RecSim *s, RecPool *pool) {
  layer_strides(m, s, pool, decision_new(m, m->arena), HOLD);
}
