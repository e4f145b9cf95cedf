/* print_cuda_rows.c - nests with rows: passes over the granules of a row, reductions on chip.
 *
 * A row is dealt to the threads of a warp or of a part of a block, in granules of 8 columns. A
 * thread loads all its granules first, then computes; what a later pass uses again stays in
 * registers, or for long rows in shared memory. Rows of a vocabulary's length are taken one after
 * another by a block that fills an SM, each loaded while the one before is worked on. */
#include <string.h>
#include "print_c.h"
#include "print_cuda_impl.h"

enum {
  WARP = 32,
  SCHEDULERS = 4,      /* of an SM: warps are dealt to them */
  MAX_THREADS = 512,   /* of a row: leaves each 128 registers */
  LONG_THREADS = 1024, /* of a row that fills an SM */
  ROW_BLOCK = 256,     /* threads of a block, at least */
  UNROLLED = 8,        /* granules of a thread that are in registers together */
  IN_FLIGHT = 4,       /* of longer rows */
  KEEP_REGISTERS =
      64,             /* of loads that stay for the length of a row, of the 128 that a thread has */
  ROW_REGISTERS = 48, /* of all vectors of a row in registers at once */
  SHARED_MARGIN = 2048, /* bytes for the folds of rows */
  CODED_BLOCKS =
      4 /* of an SM, whose rows have 8-bit codes: as many as leave threads 64 registers */
};

typedef struct {
  const char *type, *suffix, *start;
} Fold;
static Fold fold_of(const Printer *p, KReg r) {
  DType t = pr_instr(p, pr_instr(p, r)->in[0])->dtype;
  bool sum = pr_instr(p, r)->op == OP_SUM;
  if (dtype_is_float(t)) return (Fold){"float", "", sum ? "0.0f" : "mt_float(0xff800000u)"};
  if (t == DT_U32) return (Fold){"uint32_t", "_u32", "0u"};
  return (Fold){"int32_t", "_i32", sum ? "0" : "INT32_MIN"};
}
const char *pr_fold_type(const Printer *p, KReg r) {
  return fold_of(p, r).type;
}

static void fold_begin(Printer *p, KReg r) {
  pr_line(p, "%s s%d = %s;", fold_of(p, r).type, (int)r, fold_of(p, r).start);
  if (pr_instr(p, r)->op == OP_ARGMAX) pr_line(p, "int32_t a%d = lane * %d;", (int)r, GRANULE);
}

static void fold_add(Printer *p, KReg r) {
  int v = pr_instr(p, r)->in[0];
  switch (pr_instr(p, r)->op) {
    case OP_SUM:
      pr_line(p, "s%d += v%d;", (int)r, v);
      break;
    case OP_AMAX:
      pr_line(p, "s%d = mt_max%s(s%d, v%d);", (int)r, fold_of(p, r).suffix, (int)r, v);
      break;
    default:
      pr_line(p, "mt_argmax_next(s%d, a%d, v%d, (int32_t)(c + j));", (int)r, (int)r, v);
  }
}

static void fold_end(Printer *p, KReg r) {
  const KInstr *d = pr_instr(p, r);
  const char *name = d->op == OP_SUM ? "sum" : d->op == OP_AMAX ? "max" : "argmax";
  const char *index = d->op == OP_ARGMAX ? pr_text(p, ", a%d", (int)r) : "";
  const char *value = pr_text(p, "mt_row_%s<%d, %d, %d>(s%d, %s%s)", name, p->threads, p->groups,
                              (int)r, (int)r, p->loop ? "odd" : "0", index);
  if (d->rounds) value = pr_text(p, "mt_round_%s(%s)", dtype_name(d->dtype), value);
  pr_line(p, "v%d = %s;", (int)r, value);
}

/* ---- sums of which one column is not zero ---- */
/* The row's integer that the innermost index must equal for r to be 1, or -1. */
static KReg column_named(const Printer *p, KReg r) {
  const KInstr *d = pr_instr(p, r);
  if (d->kind != KI_OP || d->op != OP_EQ || p->n->ncols != 1) return -1;
  for (int i = 0; i < 2; i++) {
    const KInstr *a = pr_instr(p, d->in[i]), *b = pr_instr(p, d->in[1 - i]);
    KIndex column = kindex_axis(pr_inner(p)->last, 1);
    if (a->kind == KI_IOTA && a->dtype == DT_I32 && !a->at.nsubs && !a->at.constant &&
        !memcmp(a->at.coef, column.coef, sizeof column.coef) && b->dtype == DT_I32 &&
        kreg_level(p->n, b) != LV_ELEM)
      return d->in[1 - i];
  }
  return -1;
}

/* A sum over select(column is the named one, x, 0): x of that column. */
static KReg picked_column(const Printer *p, KReg sum) {
  const KInstr *d = pr_instr(p, sum), *select = pr_instr(p, d->in[0]);
  if (d->op != OP_SUM || select->kind != KI_OP || select->op != OP_SELECT ||
      !dtype_is_float(select->dtype))
    return -1;
  const KInstr *zero = pr_instr(p, select->in[2]);
  return zero->kind == KI_CONST && zero->value == 0 ? column_named(p, select->in[0]) : -1;
}

/* The column is read from memory before anything is stored: a fold of the pass stands between. */
static bool picks(const Printer *p, const KPass *pass, KReg r) {
  bool folds = false;
  if (pass->nstores || picked_column(p, r) < 0) return false;
  for (int i = 0; i < pass->nreduces; i++) folds |= picked_column(p, pass->reduces[i]) < 0;
  for (int i = 0; i < pass->nregs; i++) folds &= !pr_instr(p, pass->regs[i])->kept;
  return folds;
}

static void mark_below(const Printer *p, bool *set, KReg r) {
  if (set[r]) return;
  set[r] = true;
  for (int i = 0; i < pr_instr(p, r)->nin; i++) mark_below(p, set, pr_instr(p, r)->in[i]);
}

static void pick(Printer *p, const KPass *pass, KReg r) {
  const KInstr *d = pr_instr(p, r);
  int column = picked_column(p, r);
  bool *below = arena_array(p->out.arena, bool, p->k->ninstrs + 1);
  mark_below(p, below, d->in[0]);
  pr_open(p, "{");
  pr_line(p, "float s%d = 0.0f;", (int)r);
  pr_open(p, "if (v%d >= 0 && v%d < %lld) {", column, column, (long long)p->n->cols);
  pr_line(p, "const %s i%d = v%d;", p->index, pr_inner(p)->last, column);
  for (int i = 0; i < pass->nregs; i++)
    if (below[pass->regs[i]]) pr_define(p, pass->regs[i]);
  pr_line(p, "s%d += v%d;", (int)r, (int)d->in[0]);
  pr_close(p);
  if (p->threads == WARP) pr_line(p, "__syncwarp();");
  pr_line(p, d->rounds ? "v%d = mt_round_%s(s%d);" : "v%d = %.0ss%d;", (int)r, dtype_name(d->dtype),
          (int)r);
  pr_close(p);
}

/* ---- passes ---- */
void pr_columns(Printer *p, const char *flat) {
  if (p->n->ncols > 1)
    pr_split(p, flat, p->n->nrows, p->n->nrows + p->n->ncols, 1);
  else if (p->n->ncols == 1)
    pr_line(p, "const %s i%d = %s;", p->index, pr_inner(p)->last, flat);
}

void pr_granules_open(Printer *p, const char *from, const char *limit) {
  pr_line(p, "#pragma unroll");
  pr_open(p, "for (int u = 0; u < %d; u++) {", p->unroll);
  pr_line(p, "const int it = it0 + u;");
  pr_line(p, "const %s c = %s + (it * %d + lane) * %d;", p->index, from, p->threads, GRANULE);
  if (!p->exact) pr_open(p, "if (c < %s) {", limit);
}
void pr_granules_close(Printer *p) {
  if (!p->exact) pr_close(p);
  pr_close(p);
}

/* Where the vector of load r waits between loading and use. */
static const char *vector_slot(Printer *p, KReg r) {
  switch (p->cache[r]) {
    case CACHE_REGISTERS:
      return pr_text(p, "b%d[it]", (int)r);
    case CACHE_SHARED:
      return pr_text(p, "b%d[it * %d]", (int)r, p->threads);
    default:
      return pr_text(p, "b%d[u]", (int)r);
  }
}

static bool needed(int n, const KReg *regs, KReg r) {
  for (int i = 0; i < n; i++)
    if (regs[i] == r) return true;
  return false;
}
bool pr_in_passes(const Printer *p, KReg r, bool row_level) {
  for (int i = 0; i <= p->n->npasses; i++) {
    const KPass *x = &p->n->passes[i];
    if (row_level ? needed(x->nrow_regs, x->row_regs, r)
                  : i < p->n->npasses && needed(x->nregs, x->regs, r))
      return true;
  }
  return false;
}

static void row_value(Printer *p, KReg r) {
  if (!pr_scalar_ahead(p, r)) {
    pr_define(p, r);
    return;
  }
  Str e = {.arena = p->out.arena};
  c_loaded(&e, p->k->params[pr_instr(p, r)->param].dtype, pr_text(p, "n%d", (int)r));
  pr_line(p, "const %s v%d = %s;", c_register_type(pr_instr(p, r)->dtype), (int)r, e.text);
}

/* A vector that is loaded where its granule is used: all that nothing keeps, or in a sum over
 * everything those of a few numbers that come again and again, and are in the cache. */
static bool loads_at_use(const Printer *p, KReg r) {
  uint32_t axes = p->n->axes;
  bool again = p->k->flat_sums && (pr_instr(p, r)->mask & axes) != axes;
  return p->cache[r] == CACHE_NONE && (p->at_use || again);
}

/* A vector that is loaded for all granules of the stage before the first is used. */
static bool loads_before_use(const Printer *p, KReg r) {
  bool later = p->cache[r] == CACHE_RING || loads_at_use(p, r);
  return pr_vector_load(p, r) && !p->held[r] && !later;
}

static bool any_at_use(const Printer *p, const KPass *pass) {
  for (int i = 0; i < pass->nregs; i++)
    if (pr_vector_load(p, pass->regs[i]) && loads_at_use(p, pass->regs[i])) return true;
  return false;
}

/* Vectors that the pass loads, in registers until they are used. */
static void load_stage(Printer *p, const KPass *pass, const char *from, const char *to) {
  int loads = 0;
  for (int i = 0; i < pass->nregs; i++) {
    KReg r = pass->regs[i];
    if (!loads_before_use(p, r)) continue;
    loads++;
    if (p->cache[r] == CACHE_NONE)
      pr_line(p, "%s b%d[%d];", pr_vector_type(p, pr_instr(p, r)->param), (int)r, p->unroll);
  }
  if (!loads) return;
  pr_granules_open(p, from, to);
  pr_columns(p, "c");
  for (int i = 0; i < pass->nregs; i++) {
    KReg r = pass->regs[i];
    if (loads_before_use(p, r)) pr_line(p, "%s = %s;", vector_slot(p, r), pr_vector_value(p, r));
  }
  pr_granules_close(p);
}

/* r<reg> for each vector of the pass; in the tail, all that nothing keeps are loaded here. */
static void vectors(Printer *p, const KPass *pass, bool tail) {
  for (int i = 0; i < pass->nregs; i++) {
    KReg r = pass->regs[i];
    if (!pr_vector_load(p, r)) continue;
    const KParam *q = &p->k->params[pr_instr(p, r)->param];
    bool here = loads_at_use(p, r) || (tail && p->cache[r] == CACHE_NONE);
    const char *value = p->cache[r] == CACHE_RING ? pr_ring_value(p, r)
                        : here                    ? pr_vector_value(p, r)
                                                  : vector_slot(p, r);
    if (p->cache[r] == CACHE_REGISTERS && GRANULE * dtype_bytes(q->dtype) % 4 == 0)
      pr_line(p, "mt_keep(%s);", value);
    pr_line(p, "const %s r%d = %s;", pr_vector_type(p, pr_instr(p, r)->param), (int)r, value);
  }
}

/* Whether the warp's granules at c, which lie beside each other, are all before `to`. */
static const char *whole_warp(Printer *p, const char *to) {
  if (p->n->ncols != 1) return NULL;
  return p->exact ? "true" : pr_text(p, "c + (%d - lane %% %d) * %d <= %s", WARP, WARP, GRANULE, to);
}

/* The elements of granule c; `end` is where the row ends, for granules that may cross it, `whole` as for
 * pr_store_vectors. */
static void granule(Printer *p, const KPass *pass, const char *end, const char *whole) {
  bool within = p->n->ncols > 1 && p->width == GRANULE;
  if (within) { /* the granule lies within a run of the innermost axis: all others stay */
    pr_open(p, "{");
    pr_columns(p, "c");
    pr_line(p, "const %s first = i%d;", p->index, pr_inner(p)->last);
  }
  pr_declare_stores(p, pass);
  pr_line(p, "#pragma unroll");
  pr_open(p, "for (int j = 0; j < %d; j++) {", GRANULE);
  if (end) pr_open(p, "if (c + j < %s) {", end);
  pr_line(p, "const %s cj = c + j;", p->index);
  if (within)
    pr_line(p, "const %s i%d = first + j;", p->index, pr_inner(p)->last);
  else
    pr_columns(p, "cj");
  pr_element(p, pass, true);
  for (int i = 0; i < pass->nreduces; i++)
    if (!picks(p, pass, pass->reduces[i])) fold_add(p, pass->reduces[i]);
  for (int i = 0; i < pass->nsums; i++) {
    KReg r = pass->sums[i];
    pr_line(p, pr_lane_sum(p, r) ? "q%d += v%d;" : "q%d[it][j] += v%d;", (int)r,
            (int)pr_instr(p, r)->in[0]);
  }
  pr_store_scalars(p, pass);
  if (end) pr_close(p);
  pr_close(p);
  pr_open(p, "{");
  pr_columns(p, "c");
  pr_store_vectors(p, pass, end, whole);
  pr_close(p);
  if (within) pr_close(p);
}

static void use_stage(Printer *p, const KPass *pass, const char *from, const char *to) {
  pr_granules_open(p, from, p->tail ? pr_text(p, "%s - %d", to, GRANULE - 1) : to);
  bool at_use = any_at_use(p, pass);
  if (at_use) {
    pr_open(p, "{");
    pr_columns(p, "c");
  }
  vectors(p, pass, false);
  granule(p, pass, p->whole || p->tail ? NULL : to, whole_warp(p, to));
  if (at_use) pr_close(p);
  if (p->refills && pass == p->n->passes + p->n->npasses - 1) pr_refill(p);
  pr_granules_close(p);
}

/* The granule that crosses the end of the row: its thread takes it last. */
static void tail_stage(Printer *p, const KPass *pass) {
  int64_t last = p->n->cols / GRANULE;
  pr_open(p, "if (lane == %lld) {", (long long)(last % p->threads));
  pr_line(p, "const int it = %lld;", (long long)(last / p->threads));
  pr_line(p, "const %s c = %lld;", p->index, (long long)(last * GRANULE));
  pr_open(p, "{");
  pr_columns(p, "c");
  vectors(p, pass, true);
  granule(p, pass, pr_text(p, "%lld", (long long)p->n->cols), NULL);
  if (p->refills && pass == p->n->passes + p->n->npasses - 1) pr_refill(p);
  pr_close(p);
  pr_close(p);
}

static void row_pass(Printer *p, const KPass *pass, const char *from, const char *to) {
  for (int i = 0; i < pass->nreduces; i++)
    pr_line(p, "%s v%d;", c_register_type(pr_instr(p, pass->reduces[i])->dtype),
            (int)pass->reduces[i]);
  if (!pass->nreduces && !pass->nsums && !pass->nstores) return;
  for (int i = 0; i < pass->nreduces; i++)
    if (picks(p, pass, pass->reduces[i])) pick(p, pass, pass->reduces[i]);
  pr_open(p, "{");
  for (int i = 0; i < pass->nreduces; i++)
    if (!picks(p, pass, pass->reduces[i])) fold_begin(p, pass->reduces[i]);
  if (p->items > p->unroll) {
    pr_line(p, "#pragma unroll 1");
    pr_open(p, "for (int it0 = 0; it0 < %lld; it0 += %d) {", (long long)p->items, p->unroll);
  } else {
    pr_open(p, "{");
    pr_line(p, "const int it0 = 0;");
  }
  load_stage(p, pass, from, to);
  use_stage(p, pass, from, to);
  pr_close(p);
  if (p->tail) tail_stage(p, pass);
  for (int i = 0; i < pass->nreduces; i++)
    if (!picks(p, pass, pass->reduces[i])) fold_end(p, pass->reduces[i]);
  pr_close(p);
  for (int i = 0; i < pass->nregs; i++)
    if (pr_instr(p, pass->regs[i])->kept || p->cache[pass->regs[i]] != CACHE_NONE)
      p->held[pass->regs[i]] = true;
}

static void row_stores(Printer *p) {
  if (!p->n->nrow_stores) return;
  pr_open(p, "if (lane == 0) {");
  for (int i = 0; i < p->n->nrow_stores; i++) {
    const char *guard = pr_store_guard(p, p->n->row_stores[i].mask);
    if (guard) pr_open(p, "if (%s) {", guard);
    Str e = {.arena = p->out.arena};
    c_store(&e, p->k, p->n, &p->n->row_stores[i]);
    pr_line(p, "%s", e.text);
    if (guard) pr_close(p);
  }
  pr_close(p);
}

void pr_row_body(Printer *p, const char *from, const char *to) {
  const KNest *n = p->n;
  memset(p->held, 0, (size_t)p->k->ninstrs);
  for (int r = 0; r < p->k->ninstrs; r++) {
    const KInstr *d = pr_instr(p, r);
    if (d->kept)
      pr_line(p, "%s k%d[%lld][%d];", c_register_type(d->dtype), r, (long long)p->items, GRANULE);
    if (p->cache[r] == CACHE_REGISTERS)
      pr_line(p, "%s b%d[%lld];", pr_vector_type(p, d->param), r, (long long)p->items);
  }
  for (int i = 0; i <= n->npasses; i++) {
    const KPass *pass = &n->passes[i];
    for (int r = 0; r < pass->nrow_regs; r++) row_value(p, pass->row_regs[r]);
    if (i == 0) pr_next_scalars(p);
    if (i < n->npasses) row_pass(p, pass, from, to);
  }
  row_stores(p);
}

void pr_row_index(Printer *p, const char *row) {
  pr_split(p, pr_text(p, p->n->rows < INT32_MAX ? "(unsigned)(%s)" : "(%s)", row), 0, p->n->nrows,
           1);
}

/* ---- shape ---- */
static bool used_again(const Printer *p, KReg r) {
  int uses = 0;
  for (int i = 0; i < p->n->npasses; i++)
    for (int x = 0; x < p->n->passes[i].nregs; x++) uses += p->n->passes[i].regs[x] == r;
  return uses > 1 && pr_vector_load(p, r);
}

void pr_choose_caches(Printer *p, CudaFunction *f, int registers) {
  bool unrolled = p->items <= p->unroll;
  int64_t left = unrolled ? registers * 4 : p->shared_most - f->shared, used = f->shared;
  for (int r = 0; r < p->k->ninstrs; r++) {
    if (!used_again(p, r) || p->cache[r] != CACHE_NONE) continue;
    int64_t bytes = p->items * GRANULE * dtype_bytes(p->k->params[pr_instr(p, r)->param].dtype);
    if (!unrolled) bytes *= p->threads * p->groups;
    if (bytes > left) continue;
    left -= bytes;
    p->cache[r] = unrolled ? CACHE_REGISTERS : CACHE_SHARED;
    if (unrolled) continue;
    if (used == 0) pr_line(p, "extern __shared__ __align__(16) char mt_shared[];");
    pr_line(p, "%s *const b%d = (%s *)(mt_shared + %lld) + group * %lld + lane;",
            pr_vector_type(p, pr_instr(p, r)->param), r, pr_vector_type(p, pr_instr(p, r)->param),
            (long long)used, (long long)(p->items * p->threads));
    used += bytes;
  }
  f->shared = (int)used;
}

int pr_granule_registers(const Printer *p) {
  int bytes = 0;
  for (int r = 0; r < p->k->ninstrs; r++)
    if (pr_vector_load(p, r) && pr_in_passes(p, r, false))
      bytes += GRANULE * dtype_bytes(p->k->params[pr_instr(p, r)->param].dtype);
  return bytes / 4;
}

int pr_row_width(const Printer *p) {
  bool one_axis = p->n->ncols == 1;
  return p->n->ncols && (one_axis || pr_inner(p)->dim % GRANULE == 0) ? GRANULE : 1;
}

void pr_granules(Printer *p, int64_t cols) {
  p->whole = cols % GRANULE == 0;
  p->exact = p->whole && cols == p->items * p->threads * GRANULE && p->items % p->unroll == 0;
  p->tail = !p->whole && p->slices == 1;
}

/* As many granules a thread as there are registers for, as few idle threads as possible. */
void pr_row_shape(Printer *p, int64_t cols) {
  int64_t granules = ceil_div(cols, GRANULE);
  p->width = pr_row_width(p);
  int most = IN_FLIGHT, each = pr_granule_registers(p);
  int most_threads = p->narrow ? NARROW_THREADS : MAX_THREADS;
  while (most > 1 && most * each > KEEP_REGISTERS) most--;
  double best = 0;
  p->threads = most_threads;
  for (int threads = WARP; threads <= most_threads; threads += WARP) {
    int64_t items = ceil_div(granules, threads);
    double share = (double)granules / (double)(items * threads);
    if (items > most || share <= best) continue;
    best = share;
    p->threads = threads;
  }
  p->items = ceil_div(granules, p->threads);
  bool few = p->items <= UNROLLED && (p->items <= IN_FLIGHT || p->items * each <= ROW_REGISTERS);
  p->unroll = few ? (int)p->items : p->width == 1 ? 1 : p->thrifty ? IN_FLIGHT / 2 : IN_FLIGHT;
  p->slices = 1;
  p->at_use = p->narrow;
  pr_granules(p, cols);
}

/* A row that fills an SM: as many threads as keep its ring small. False when two do not fit. */
static bool long_shape(Printer *p, CudaFunction *f) {
  Printer was = *p;
  int64_t granules = ceil_div(p->n->cols, GRANULE);
  int64_t least = 0;
  p->loop = true;
  p->groups = 1;
  p->unroll = 2;
  for (int threads = LONG_THREADS; threads >= MAX_THREADS; threads -= SCHEDULERS * WARP) {
    int64_t slots = round_up(ceil_div(granules, threads), p->unroll) * threads;
    if (least && slots >= least) continue;
    least = slots;
    p->threads = threads;
    p->items = slots / threads;
  }
  if (p->thrifty) p->unroll = 1;
  pr_granules(p, p->n->cols);
  f->shared = (int)pr_ring_choose(p, p->shared_most - SHARED_MARGIN, 0);
  p->refills = true;
  for (int r = 0; r < p->k->ninstrs; r++)
    p->refills &=
        p->cache[r] != CACHE_RING || dtype_bytes(p->k->params[pr_instr(p, r)->param].dtype) < 4;
  if (p->stages) return true;
  *p = was;
  return false;
}

bool pr_long_rows(Printer *p, CudaFunction *f) {
  return p->items > p->unroll && !p->narrow && p->width > 1 && p->slices == 1 && long_shape(p, f);
}

/* ---- nests ---- */
static void loop_nest(Printer *p, CudaFunction *f, const char *cols) {
  f->grid = p->n->rows;
  f->per_sm = 1;
  RowLoop l = {"(int)blockIdx.x", pr_text(p, "%lld", (long long)p->n->rows), "(int)gridDim.x", "0",
               cols};
  pr_row_loop(p, &l, NULL);
}

/* Blocks that stay, each for its share of the rows: tables are filled once. */
static void coded_nest(Printer *p, CudaFunction *f, const char *cols) {
  p->loop = true;
  f->per_sm = f->resident = CODED_BLOCKS;
  f->grid = ceil_div(p->n->rows, p->groups);
  pr_code_tables(p);
  RowLoop l = {pr_text(p, "(int)blockIdx.x * %d", p->groups),
               pr_text(p, "%lld", (long long)p->n->rows),
               pr_text(p, "(int)gridDim.x * %d", p->groups), "0", cols};
  pr_row_loop(p, &l, NULL);
}

void pr_row_nest(Printer *p, CudaFunction *f) {
  const KNest *n = p->n;
  const char *cols = pr_text(p, "%lld", (long long)n->cols),
             *end = pr_text(p, "%lld", (long long)n->rows);
  pr_row_shape(p, n->cols);
  p->groups = p->threads < ROW_BLOCK ? ROW_BLOCK / p->threads : 1;
  bool loop = pr_long_rows(p, f);
  f->threads = p->threads * p->groups;
  f->resident = 1; /* ptxas may take all registers that a block leaves it */
  pr_line(p, "const int lane = threadIdx.x %% %d, group = threadIdx.x / %d;", p->threads,
          p->threads);
  pr_line(p, "(void)group;");
  if (!loop) {
    pr_choose_caches(p, f, KEEP_REGISTERS);
    if (f->shared && 2 * (f->shared + 1024) <= p->shared_most + 1024) f->resident = 2;
  }
  pr_uniform(p);
  if (loop) {
    loop_nest(p, f, cols);
    return;
  }
  if (p->items <= p->unroll && pr_any_codes(p)) {
    coded_nest(p, f, cols);
    return;
  }
  f->grid = ceil_div(n->rows, p->groups);
  pr_line(p, "const int64_t r = (int64_t)blockIdx.x * %d + group;", p->groups);
  pr_line(p, "if (r >= %s) return;", end);
  pr_row_index(p, "r");
  pr_row_body(p, "0", cols);
}
