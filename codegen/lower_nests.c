/* lower_nests.c - the schedule inside a kernel: which nest, pass and level computes each register.
 *
 * The main nest covers all axes and holds all reductions. Outputs that lack some of its axes get
 * nests of their own after it, and what depends on sums over rows comes last. A pass computes just
 * what its reductions, sums and stores need; what an earlier pass had is computed again from loads
 * (they are in the cache), unless it is expensive, or made of what is, and a row of it fits the row
 * buffers. A result that lies over an operand is stored when no later pass reads the operand. */
#include <string.h>

#include "lower.h"

enum { ROW_BUFFER_FLOATS = 16384 }; /* 64 KiB of stack for the kept values of one row */

typedef struct {
  Lower *l;
  Kernel *k;
  bool *need;      /* per register: in the closure being built */
  bool *row_need;  /* row registers needed by the nest */
  bool *uniform;   /* needed by any nest */
  uint8_t *passes; /* element registers: number of passes that need it */
  int *first;      /* and the first of these */
  bool *hold; /* per store: waits for the last pass, because a later one reads what it replaces */
} Nesting;

static KInstr *at(const Nesting *s, KReg r) {
  return &s->k->instrs[r];
}

/* Marks r and all below it: element registers in need, row registers in row_need, the rest in
 * uniform. In passes after the first that has it, a kept register ends the walk. */
static void mark(Nesting *s, const KNest *n, KReg r) {
  KInstr *i = at(s, r);
  KLevel level = kreg_level(n, i);
  bool *set = level == LV_UNIFORM ? s->uniform : level == LV_ROW ? s->row_need : s->need;
  if (set[r]) return;
  set[r] = true;
  if (i->kind == KI_SUM) return;    /* the main nest computes it */
  if (i->kind == KI_REDUCE) return; /* its operand is a root of the pass that finishes it */
  if (level == LV_ELEM && i->kept && s->passes[r] > 0) return;
  for (int k = 0; k < i->nin; k++) mark(s, n, i->in[k]);
}

static int collect(const Nesting *s, const bool *set, KReg **out) {
  int n = 0;
  for (int r = 0; r < s->k->ninstrs; r++) n += set[r];
  *out = arena_array(s->k->arena, KReg, n + 1);
  n = 0;
  for (int r = 0; r < s->k->ninstrs; r++)
    if (set[r]) (*out)[n++] = r;
  return n;
}

static void clear(const Nesting *s, bool *set) {
  memset(set, 0, (size_t)s->k->ninstrs);
}

/* ---- main nest ---- */

static int pass_of_store(const Nesting *s, const KNest *n, int store) {
  const KStore *st = &s->l->stores.at[store];
  return s->hold[store] ? n->npasses - 1 : at(s, st->value)->stage;
}

static void element_roots(Nesting *s, KNest *n, int p) {
  KPass *pass = &n->passes[p];
  for (int i = 0; i < pass->nreduces; i++) mark(s, n, at(s, pass->reduces[i])->in[0]);
  for (int i = 0; i < pass->nsums; i++) mark(s, n, at(s, pass->sums[i])->in[0]);
  for (int i = 0; i < pass->nstores; i++) mark(s, n, pass->stores[i].value);
}

/* Fills regs of every pass; counts in s->passes how many passes need a register, which first. */
static void element_closures(Nesting *s, KNest *n) {
  memset(s->passes, 0, (size_t)s->k->ninstrs);
  for (int p = 0; p < n->npasses; p++) {
    clear(s, s->need);
    element_roots(s, n, p);
    n->passes[p].nregs = collect(s, s->need, &n->passes[p].regs);
    for (int i = 0; i < n->passes[p].nregs; i++) {
      KReg r = n->passes[p].regs[i];
      if (!s->passes[r]++) s->first[r] = p;
    }
  }
}

/* Element values that are expensive or made of such. */
static void mark_costly(Nesting *s, bool *costly) {
  for (int r = 0; r < s->k->ninstrs; r++) {
    const KInstr *i = at(s, r);
    costly[r] = kir_expensive(i);
    for (int k = 0; k < i->nin && i->kind != KI_REDUCE && i->kind != KI_SUM; k++)
      costly[r] |= costly[i->in[k]];
    costly[r] &= s->passes[r] > 0;
  }
}

/* Values that a pass needs of an earlier one: operands of what it is the first to compute, of its
 * reductions, sums and stores. */
static void mark_handed_over(Nesting *s, const KNest *n, bool *set) {
  clear(s, set);
  for (int p = 1; p < n->npasses; p++) {
    const KPass *pass = &n->passes[p];
    clear(s, s->need);
    for (int i = 0; i < pass->nregs; i++) {
      const KInstr *d = at(s, pass->regs[i]);
      for (int k = 0; k < d->nin && s->first[pass->regs[i]] == p; k++) s->need[d->in[k]] = true;
    }
    for (int i = 0; i < pass->nreduces; i++) s->need[at(s, pass->reduces[i])->in[0]] = true;
    for (int i = 0; i < pass->nsums; i++) s->need[at(s, pass->sums[i])->in[0]] = true;
    for (int i = 0; i < pass->nstores; i++) s->need[pass->stores[i].value] = true;
    for (int r = 0; r < s->k->ninstrs; r++) set[r] |= s->need[r] && s->passes[r] && s->first[r] < p;
  }
}

/* What is kept between passes: what is made of the expensive values, where that is no more. */
static void keep_expensive(Nesting *s, const KNest *n) {
  int count = s->k->ninstrs, expensive = 0, over = 0;
  bool *costly = arena_array(s->k->arena, bool, count + 1),
       *handed = arena_array(s->k->arena, bool, count + 1);
  mark_costly(s, costly);
  mark_handed_over(s, n, handed);
  for (int r = 0; r < count; r++) {
    handed[r] &= costly[r];
    over += handed[r];
    expensive += s->passes[r] > 1 && kir_expensive(at(s, r));
  }
  int64_t left = ROW_BUFFER_FLOATS;
  for (int r = 0; r < count; r++) {
    KInstr *i = at(s, r);
    i->kept =
        (over <= expensive ? handed[r] : s->passes[r] > 1 && kir_expensive(i)) && n->cols <= left;
    if (i->kept) left -= n->cols;
  }
}

/* Row registers are computed before the first pass that they do not have to wait for. */
static void row_registers(Nesting *s, KNest *n) {
  for (int p = 0; p <= n->npasses; p++) {
    KPass *pass = &n->passes[p];
    clear(s, s->need);
    for (int r = 0; r < s->k->ninstrs; r++) {
      const KInstr *i = at(s, r);
      s->need[r] = s->row_need[r] && i->kind != KI_REDUCE && (i->kind != KI_SUM || n->late) &&
                   (i->stage == p || (p == n->npasses && i->stage > p));
    }
    pass->nrow_regs = collect(s, s->need, &pass->row_regs);
  }
}

/* All registers of all passes: element values, then the row values below them and those that only
 * other row values, sums or stores of rows need. */
static void fill_registers(Nesting *s, KNest *n) {
  clear(s, s->row_need);
  element_closures(s, n);
  for (int i = 0; i < n->nrow_stores; i++) mark(s, n, n->row_stores[i].value);
  for (int i = 0; i < n->nrow_sums; i++) mark(s, n, at(s, n->row_sums[i])->in[0]);
  row_registers(s, n);
}

/* Reductions of a row that nobody needs are not computed; one that is needed brings its operand
 * along. */
static void place_reductions(Nesting *s, KNest *n) {
  for (int p = 0; p < n->npasses; p++) {
    KPass *pass = &n->passes[p];
    clear(s, s->need);
    for (int r = 0; r < s->k->ninstrs; r++)
      s->need[r] = s->row_need[r] && at(s, r)->kind == KI_REDUCE && at(s, r)->stage == p + 1;
    pass->nreduces = collect(s, s->need, &pass->reduces);
  }
}

/* What the nest needs in all, reductions included, whatever the pass. */
static void mark_all(Nesting *s, const KNest *n, const bool *sum_needed) {
  clear(s, s->row_need);
  clear(s, s->need);
  for (int i = 0; i < s->l->stores.n; i++)
    if (s->l->main_store[i]) mark(s, n, s->l->stores.at[i].value);
  for (int r = 0; r < s->k->ninstrs; r++)
    if (sum_needed[r]) mark(s, n, at(s, r)->in[0]);
  for (int r = s->k->ninstrs - 1; r >= 0; r--)
    if (at(s, r)->kind == KI_REDUCE && (s->row_need[r] || s->uniform[r]))
      mark(s, n, at(s, r)->in[0]);
}

static void place_sums(Nesting *s, KNest *n, const bool *sum_needed) {
  n->row_sums = arena_array(s->k->arena, KReg, s->k->ninstrs + 1);
  for (int p = 0; p < n->npasses; p++)
    n->passes[p].sums = arena_array(s->k->arena, KReg, s->k->ninstrs + 1);
  for (int r = 0; r < s->k->ninstrs; r++) {
    if (!sum_needed[r]) continue;
    KReg in = at(s, r)->in[0];
    if (!s->k->flat_sums && at(s, r)->full)
      n->row_sums[n->nrow_sums++] = r;
    else {
      KPass *pass = &n->passes[at(s, in)->stage];
      pass->sums[pass->nsums++] = r;
    }
  }
}

static void place_stores(Nesting *s, KNest *n) {
  int count = s->l->stores.n;
  n->row_stores = arena_array(s->k->arena, KStore, count + 1);
  for (int p = 0; p < n->npasses; p++)
    n->passes[p].stores = arena_array(s->k->arena, KStore, count + 1);
  for (int i = 0; i < count; i++) {
    if (!s->l->main_store[i]) continue;
    KStore store = s->l->stores.at[i];
    if (store.mask & n->col_axes || !n->row_level) {
      KPass *pass = &n->passes[pass_of_store(s, n, i)];
      pass->stores[pass->nstores++] = store;
    } else {
      n->row_stores[n->nrow_stores++] = store;
    }
  }
}

static bool reads_buffer(const Nesting *s, int n, const KReg *regs, int buf) {
  for (int i = 0; i < n; i++) {
    const KInstr *r = at(s, regs[i]);
    if (r->kind == KI_LOAD && s->l->in_at[r->param].buf == buf) return true;
  }
  return false;
}

/* Whether a pass after that of store i reads, for its elements or rows, what the store replaces. */
static bool read_later(const Nesting *s, const KNest *n, int i) {
  int buf = s->l->out_at[i].buf;
  for (int p = pass_of_store(s, n, i) + 1; p <= n->npasses; p++) {
    const KPass *pass = &n->passes[p];
    if (reads_buffer(s, pass->nrow_regs, pass->row_regs, buf)) return true;
    if (p < n->npasses && reads_buffer(s, pass->nregs, pass->regs, buf)) return true;
  }
  return false;
}

/* Has stores wait that have to; false when there were any. What they bring along to the last pass
 * may be read from where another store puts something. */
static bool stores_in_time(Nesting *s, const KNest *n) {
  bool in_time = true;
  for (int i = 0; i < s->l->stores.n; i++) {
    if (!s->l->main_store[i] || !s->l->in_place[i] || s->hold[i]) continue;
    s->hold[i] = read_later(s, n, i);
    in_time &= !s->hold[i];
  }
  return in_time;
}

static uint32_t all_axes(const Kernel *k) {
  return (1u << k->naxes) - 1;
}

/* Passes of the main nest; 0 when there is nothing for it. */
static int count_passes(const Nesting *s, const bool *sum_needed) {
  const Kernel *k = s->k;
  bool any = false;
  int last = 0;
  for (int i = 0; i < s->l->stores.n; i++) {
    if (!s->l->main_store[i]) continue;
    any = true;
    if (at(s, s->l->stores.at[i].value)->stage > last)
      last = at(s, s->l->stores.at[i].value)->stage;
  }
  for (int r = 0; r < k->ninstrs; r++) {
    if (!sum_needed[r]) continue;
    any = true;
    if (at(s, at(s, r)->in[0])->stage > last) last = at(s, at(s, r)->in[0])->stage;
  }
  return any ? last + 1 : 0;
}

static void schedule(Nesting *s, KNest *n, int npasses, const bool *sum_needed) {
  Kernel *k = s->k;
  *n = (KNest){.axes = all_axes(k), .npasses = npasses};
  n->col_axes = all_axes(k) & ~((1u << k->outer) - 1);
  n->passes = arena_array(k->arena, KPass, npasses + 1);
  for (int r = 0; r < k->ninstrs; r++) k->instrs[r].kept = false;
  clear(s, s->uniform);
  memset(s->passes, 0, (size_t)k->ninstrs);
  mark_all(s, n, sum_needed);
  place_sums(s, n, sum_needed);
  place_reductions(s, n);
  n->row_level = n->nrow_sums > 0;
  for (int p = 0; p < n->npasses; p++) n->row_level |= n->passes[p].nreduces || n->passes[p].nsums;
  place_stores(s, n);
  fill_registers(s, n);
  kir_group(k, n);
  fill_registers(s, n); /* levels follow the loops, which may have changed */
  keep_expensive(s, n);
  fill_registers(s, n);
}

static bool main_nest(Nesting *s, KNest *n, const bool *sum_needed) {
  int npasses = count_passes(s, sum_needed);
  if (!npasses) return false;
  do schedule(s, n, npasses, sum_needed);
  while (!stores_in_time(s, n));
  return true;
}

/* ---- nests of one pass ---- */

/* Stores of the same axes, after the main nest. */
static void side_nest(Nesting *s, KNest *n, uint32_t axes, bool late) {
  Kernel *k = s->k;
  *n = (KNest){.axes = axes, .late = late, .npasses = 1};
  n->passes = arena_array(k->arena, KPass, 2);
  n->passes[0].stores = arena_array(k->arena, KStore, s->l->stores.n);
  for (int i = 0; i < s->l->stores.n; i++) {
    const KStore *store = &s->l->stores.at[i];
    if (s->l->main_store[i] || store->mask != axes || at(s, store->value)->late != late) continue;
    n->passes[0].stores[n->passes[0].nstores++] = *store;
  }
  n->col_axes = axes;
  fill_registers(s, n);
  kir_group(k, n);
  fill_registers(s, n);
  for (int r = 0; r < k->ninstrs; r++) {
    const KInstr *i = at(s, r);
    if (!(s->passes[r] || s->row_need[r])) continue;
    if (i->stage || (i->mask & ~axes))
      lower_fail(s->l, "an output that needs a value of a larger nest");
  }
}

static void side_nests(Nesting *s, bool late) {
  Kernel *k = s->k;
  for (int i = 0; i < s->l->stores.n; i++) {
    uint32_t axes = s->l->stores.at[i].mask;
    if (s->l->main_store[i] || at(s, s->l->stores.at[i].value)->late != late) continue;
    bool done = false;
    for (int n = 0; n < k->nnests; n++)
      done |= k->nests[n].axes == axes && k->nests[n].late == late && k->nests[n].side;
    if (done) continue;
    side_nest(s, &k->nests[k->nnests], axes, late);
    k->nests[k->nnests++].side = true;
  }
}

/* Sums over rows that stores need. */
static void needed_sums(Nesting *s, bool *needed) {
  KNest everything = {.late = true, .col_axes = all_axes(s->k)};
  clear(s, s->need);
  clear(s, s->row_need);
  for (int i = 0; i < s->l->stores.n; i++)
    if (at(s, s->l->stores.at[i].value)->late) mark(s, &everything, s->l->stores.at[i].value);
  for (int r = 0; r < s->k->ninstrs; r++)
    needed[r] = at(s, r)->kind == KI_SUM && (s->need[r] || s->row_need[r]);
}

/* Outputs that the main nest writes: those with all its axes, and row values that follow a
 * reduction. */
static void split_stores(Nesting *s, const bool *sum_needed) {
  Lower *l = s->l;
  uint32_t all = all_axes(s->k), rows = (1u << s->k->outer) - 1;
  bool reductions = false;
  for (int r = 0; r < s->k->ninstrs; r++)
    reductions |= sum_needed[r] || at(s, r)->kind == KI_REDUCE;
  l->main_store = arena_array(l->arena, bool, l->stores.n + 1);
  for (int i = 0; i < l->stores.n; i++) {
    const KStore *store = &l->stores.at[i];
    const KInstr *v = at(s, store->value);
    if (v->late) continue;
    l->main_store[i] = v->stage > 0 || store->mask == all || (store->mask == rows && reductions);
  }
}

static int64_t weight(const KInstr *i) {
  if (kir_expensive(i)) return 12;
  return i->kind == KI_OP && (i->op == OP_DIV || i->op == OP_SQRT || i->op == OP_RSQRT) ? 3 : 1;
}

static void count_work(Kernel *k) {
  for (int n = 0; n < k->nnests; n++) {
    KNest *nest = &k->nests[n];
    int64_t row = 4, element = 0;
    for (int p = 0; p <= nest->npasses; p++) {
      const KPass *pass = &nest->passes[p];
      for (int i = 0; i < pass->nrow_regs; i++) row += weight(&k->instrs[pass->row_regs[i]]);
      for (int i = 0; i < pass->nregs; i++) element += weight(&k->instrs[pass->regs[i]]);
      element += pass->nstores + pass->nreduces + pass->nsums;
    }
    nest->work = nest->rows * (row + nest->cols * element);
  }
}

void lower_nests(Lower *l) {
  Kernel *k = l->k;
  size_t n = (size_t)k->ninstrs + 1;
  Nesting s = {.l = l,
               .k = k,
               .need = arena_array(l->arena, bool, n),
               .row_need = arena_array(l->arena, bool, n),
               .uniform = arena_array(l->arena, bool, n),
               .passes = arena_array(l->arena, uint8_t, n),
               .first = arena_array(l->arena, int, n),
               .hold = arena_array(l->arena, bool, l->stores.n + 1)};
  bool *sum_needed = arena_array(l->arena, bool, n);
  k->nests = arena_array(l->arena, KNest, 2 * l->stores.n + 2);
  needed_sums(&s, sum_needed);
  split_stores(&s, sum_needed);
  if (main_nest(&s, &k->nests[0], sum_needed)) k->nnests++;
  side_nests(&s, false);
  side_nests(&s, true);
  k->nuniform = collect(&s, s.uniform, &k->uniform);
  count_work(k);
}
