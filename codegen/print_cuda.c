/* print_cuda.c - the CUDA printer: nests as __global__ functions. See print_cuda.h for the orders of summation.
 *
 * A map nest gives each thread a vector of consecutive elements. A nest with row values gives each row to a warp or to a
 * block; a thread owns granules of 8 consecutive columns and keeps what several passes load in registers. Loads and
 * stores are 16 bytes wide wherever the strides allow. */
#include "print_cuda.h"
#include <string.h>
#include "prelude_c.h"
#include "print_c.h"

enum {
  WARP = 32,
  GRANULE = 8,        /* columns that a thread takes at a time */
  WARP_ITEMS = 4,     /* granules of a thread before a row gets more than a warp */
  KEEP_ITEMS = 4,     /* rows of more granules a thread are loaded again in each pass */
  BLOCK_ROWS = 4,     /* rows of a block when a row takes a warp */
  MAP_THREADS = 256,
  MAX_THREADS = 512, /* of a row: leaves each 128 registers */
  VECTOR_BYTES = 16,
  COLUMN_BLOCK_ROWS = 32, /* rows of a block of a column sum, at least */
  COLUMN_BLOCKS = 264,    /* blocks of a column sum, at most: two for each multiprocessor of the largest targets */
  FLAT_BLOCKS = 256,
  FLAT_BLOCK = 8192       /* elements of a range of a full sum, at least */
};

typedef struct {
  const Kernel *k;
  const KNest *n;
  Str out;
  int depth;
  const char *index;  /* type of index variables: int or int64_t */
  int width;          /* elements a thread takes at a time */
  int threads, groups; /* of a row, and rows of a block */
  int64_t items;      /* granules of a thread in a row */
  bool whole;         /* no granule crosses the end of a row */
  bool *held;         /* kept registers and loads that an earlier pass put into their array */
  bool *shared_load;  /* vector loads that several passes use */
  const char *why;
} Printer;

static void line(Printer *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void line(Printer *p, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  for (int i = 0; i < p->depth; i++) str_add(&p->out, "  ");
  str_vaddf(&p->out, fmt, ap);
  str_add(&p->out, "\n");
  va_end(ap);
}
static void openf(Printer *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void openf(Printer *p, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  line(p, "%s", arena_vprintf(p->out.arena, fmt, ap));
  va_end(ap);
  p->depth++;
}
static void close(Printer *p) {
  p->depth--;
  line(p, "}");
}

static const KInstr *instr(const Printer *p, KReg r) { return &p->k->instrs[r]; }
static const KGroup *inner(const Printer *p) { return &p->n->group[p->n->nrows + p->n->ncols - 1]; }

static void define(Printer *p, KReg r) {
  Str e = {.arena = p->out.arena};
  c_expression(&e, p->k, p->n, r);
  line(p, "const %s v%d = %s;", c_register_type(instr(p, r)->dtype), (int)r, e.text);
}

/* ---- blocks of sums ---- */
static KRanges ranges_of(int64_t n, int64_t least, int64_t most) {
  int64_t blocks = ceil_div(n, least);
  if (blocks > most) blocks = most;
  int64_t size = ceil_div(n, blocks);
  return (KRanges){ceil_div(n, size), size};
}
static KRanges sum_ranges(const Kernel *k) {
  return k->flat_sums ? ranges_of(k->cols, FLAT_BLOCK, FLAT_BLOCKS)
                      : ranges_of(k->rows, COLUMN_BLOCK_ROWS, COLUMN_BLOCKS);
}

int64_t cuda_workspace(const Kernel *k) {
  int64_t words = 0;
  for (int i = 0; i < k->ninstrs; i++)
    if (k->instrs[i].kind == KI_SUM) words += sum_ranges(k).blocks * k->instrs[i].columns;
  return words * 4;
}

/* ---- vector access ---- */
static bool index_aligned(const KIndex *i, int inner_axis, int width) {
  if (i->constant % width) return false;
  for (int x = 0; x < MAX_RANK; x++)
    if (x != inner_axis && i->coef[x] % width) return false;
  for (int s = 0; s < i->nsubs; s++)
    if (i->subs[s].coef % width || (kindex_mask(i->subs[s].of) >> inner_axis & 1)) return false;
  return i->coef[inner_axis] == 1;
}

/* Consecutive elements of the innermost loop are consecutive in memory, and a vector of them is aligned. */
static bool vector_access(const Printer *p, const KIndex *at, int param, int width) {
  const KParam *q = &p->k->params[param];
  int bytes = width * dtype_bytes(q->dtype);
  if (bytes > VECTOR_BYTES) bytes = VECTOR_BYTES;
  return p->n->ncols > 0 && q->align >= bytes && index_aligned(at, inner(p)->last, width);
}

static bool vector_load(const Printer *p, KReg r) {
  const KInstr *i = instr(p, r);
  if (i->kind != KI_LOAD || p->width == 1 || kreg_level(p->n, i) != LV_ELEM) return false;
  int axis = inner(p)->last;
  for (int g = 0; g < i->nguards; g++)
    if (kindex_mask(&i->guards[g].at) >> axis & 1) return false;
  if (i->nin && (instr(p, i->in[0])->mask >> axis & 1)) return false;
  if (i->nin && i->gather % p->width) return false;
  /* The gathered row or the guard must be known before the vector: row values only. */
  if ((i->nin && kreg_level(p->n, instr(p, i->in[0])) == LV_ELEM) || i->nguards) return false;
  return vector_access(p, &i->at, i->param, p->width);
}

static bool vector_store(const Printer *p, const KStore *s) {
  return p->width > 1 && vector_access(p, &s->at, s->param, p->width);
}

/* Loads registers[..] that are vectors into b<reg> (or b<reg>[it]). */
static void load_vectors(Printer *p, const KPass *pass) {
  for (int i = 0; i < pass->nregs; i++) {
    KReg r = pass->regs[i];
    if (!vector_load(p, r) || p->held[r]) continue;
    const KInstr *l = instr(p, r);
    Str at = {.arena = p->out.arena};
    if (l->nin)
      str_addf(&at, "mt_row(v%d, %lld) * %lld + ", (int)l->in[0], (long long)l->gather_rows,
               (long long)l->gather);
    c_index(&at, &l->at, p->n);
    const char *type = c_memory_type(p->k->params[l->param].dtype);
    if (p->shared_load[r])
      line(p, "b%d[it] = mt_vector<%s, %d>(p%d + %s);", (int)r, type, p->width, l->param, at.text);
    else
      line(p, "b%d = mt_vector<%s, %d>(p%d + %s);", (int)r, type, p->width, l->param, at.text);
  }
}

static void declare_vectors(Printer *p, const KPass *pass, int width) {
  for (int i = 0; i < pass->nregs; i++) {
    KReg r = pass->regs[i];
    if (vector_load(p, r) && !p->shared_load[r])
      line(p, "MtVector<%s, %d> b%d;", c_memory_type(p->k->params[instr(p, r)->param].dtype), p->width, (int)r);
  }
  for (int i = 0; i < pass->nstores; i++)
    line(p, "MtVector<%s, %d> o%d;", c_memory_type(p->k->params[pass->stores[i].param].dtype), width,
         pass->stores[i].param);
}

/* Element j of the vectors: registers in order; stores go to their vectors. */
static void element_registers(Printer *p, const KPass *pass, bool rows) {
  for (int i = 0; i < pass->nregs; i++) {
    KReg r = pass->regs[i];
    const KInstr *d = instr(p, r);
    const char *it = rows ? "[it]" : "";
    if (vector_load(p, r)) {
      Str e = {.arena = p->out.arena};
      c_loaded(&e, p->k->params[d->param].dtype,
               arena_printf(p->out.arena, "b%d%s.x[j]", (int)r, p->shared_load[r] ? it : ""));
      line(p, "const %s v%d = %s;", c_register_type(d->dtype), (int)r, e.text);
    } else if (d->kept && p->held[r]) {
      line(p, "const %s v%d = k%d[it][j];", c_register_type(d->dtype), (int)r, (int)r);
    } else {
      define(p, r);
      if (d->kept) line(p, "k%d[it][j] = v%d;", (int)r, (int)r);
    }
  }
  for (int i = 0; i < pass->nstores; i++) {
    const KStore *s = &pass->stores[i];
    Str e = {.arena = p->out.arena};
    c_stored(&e, p->k->params[s->param].dtype, arena_printf(p->out.arena, "v%d", (int)s->value));
    line(p, "o%d.x[j] = %s;", s->param, e.text);
  }
}

/* Values that lack some of the rows' axes are the same for all of them: one row stores them. */
static const char *store_guard(Printer *p, uint32_t mask) {
  Str guard = {.arena = p->out.arena};
  for (int g = 0; g < p->n->nrows; g++)
    if (!(mask >> p->n->group[g].last & 1))
      str_addf(&guard, "%si%d == 0", guard.len ? " && " : "", p->n->group[g].last);
  return guard.text;
}

/* The vectors of the pass's stores. Scope: indices stand at the first element; `base` is that of the inner loop. */
static void store_vectors(Printer *p, const KPass *pass) {
  for (int i = 0; i < pass->nstores; i++) {
    const KStore *s = &pass->stores[i];
    if (!vector_store(p, s)) continue;
    Str at = {.arena = p->out.arena};
    c_index(&at, &s->at, p->n);
    line(p, "mt_put(p%d + %s, o%d);", s->param, at.text, s->param);
  }
}

static bool scalar_stores(const Printer *p, const KPass *pass) {
  for (int i = 0; i < pass->nstores; i++)
    if (!vector_store(p, &pass->stores[i])) return true;
  return false;
}

static void store_scalars(Printer *p, const KPass *pass) {
  for (int i = 0; i < pass->nstores; i++) {
    const KStore *s = &pass->stores[i];
    if (vector_store(p, s)) continue;
    Str at = {.arena = p->out.arena};
    c_index(&at, &s->at, p->n);
    line(p, "p%d[%s] = o%d.x[j];", s->param, at.text, s->param);
  }
}

/* ---- indices ---- */
static void split(Printer *p, const char *flat, int from, int to, int64_t last_div) {
  int64_t below = 1;
  for (int g = to - 1; g >= from; g--) {
    const KGroup *group = &p->n->group[g];
    int64_t dim = g == to - 1 ? group->dim / last_div : group->dim;
    Str e = {.arena = p->out.arena};
    str_addf(&e, below == 1 ? "%s" : "%s / %lld", flat, (long long)below);
    if (g > from) str_addf(&e, " %% %lld", (long long)dim);
    if (g == to - 1 && last_div > 1)
      line(p, "const %s h%d = (%s)(%s) * %lld;", p->index, group->last, p->index, e.text, (long long)last_div);
    else
      line(p, "const %s i%d = (%s)(%s);", p->index, group->last, p->index, e.text);
    below *= dim;
  }
}

/* Largest absolute element index that the nest uses. */
static int64_t reach(const Printer *p, const KIndex *i) {
  int64_t most = i->constant < 0 ? -i->constant : i->constant;
  for (int x = 0; x < p->k->naxes; x++)
    most += (i->coef[x] < 0 ? -i->coef[x] : i->coef[x]) * (p->k->dim[x] - 1);
  for (int s = 0; s < i->nsubs; s++) {
    int64_t coef = i->subs[s].coef < 0 ? -i->subs[s].coef : i->subs[s].coef;
    most += coef * (reach(p, i->subs[s].of) / i->subs[s].div);
  }
  return most;
}

static const char *index_type(const Printer *p) {
  int64_t most = p->k->rows * p->k->cols;
  for (int i = 0; i < p->k->ninstrs; i++) {
    const KInstr *d = instr(p, i);
    int64_t r = reach(p, &d->at) + d->gather * d->gather_rows;
    if (r > most) most = r;
    if (d->kind == KI_RANDOM && reach(p, &d->element) > most) most = reach(p, &d->element);
  }
  for (int n = 0; n < p->k->nnests; n++)
    for (int i = 0; i < p->k->nests[n].npasses; i++)
      for (int s = 0; s < p->k->nests[n].passes[i].nstores; s++) {
        int64_t r = reach(p, &p->k->nests[n].passes[i].stores[s].at);
        if (r > most) most = r;
      }
  return most < INT32_MAX / 2 ? "int" : "int64_t";
}

/* ---- map nests ---- */
static int widest(Printer *p, int64_t dim) {
  for (int w = GRANULE; w > 1; w /= 2) {
    p->width = w;
    if (dim % w) continue;
    const KPass *pass = &p->n->passes[0];
    for (int i = 0; i < pass->nregs; i++)
      if (vector_load(p, pass->regs[i])) return w;
    for (int i = 0; i < pass->nstores; i++)
      if (vector_store(p, &pass->stores[i])) return w;
  }
  return 1;
}

static void map_nest(Printer *p, CudaFunction *f) {
  const KNest *n = p->n;
  const KPass *pass = &n->passes[0];
  int groups = n->nrows + n->ncols;
  p->width = groups ? widest(p, inner(p)->dim) : 1;
  int64_t vectors = n->rows * n->cols / p->width;
  f->threads = MAP_THREADS;
  f->grid = ceil_div(vectors, MAP_THREADS);
  line(p, "const int64_t t = (int64_t)blockIdx.x * %d + threadIdx.x;", MAP_THREADS);
  line(p, "if (t >= %lld) return;", (long long)vectors);
  const char *flat = vectors < INT32_MAX ? "(unsigned)t" : "t";
  if (groups) split(p, flat, 0, groups, p->width);
  bool wide = p->width > 1;
  int last = groups ? inner(p)->last : 0;
  for (int i = 0; i < p->k->nuniform; i++) define(p, p->k->uniform[i]);
  for (int i = 0; i < pass->nrow_regs; i++) define(p, pass->row_regs[i]);
  declare_vectors(p, pass, p->width);
  if (wide) {
    openf(p, "{");
    line(p, "const %s i%d = h%d;", p->index, last, last);
    load_vectors(p, pass);
    close(p);
  }
  line(p, "#pragma unroll");
  openf(p, "for (int j = 0; j < %d; j++) {", p->width);
  if (wide) line(p, "const %s i%d = h%d + j;", p->index, last, last);
  element_registers(p, pass, false);
  close(p);
  openf(p, "{");
  if (wide) line(p, "const %s i%d = h%d;", p->index, last, last);
  store_vectors(p, pass);
  close(p);
  if (!scalar_stores(p, pass)) return;
  line(p, "#pragma unroll");
  openf(p, "for (int j = 0; j < %d; j++) {", p->width);
  if (wide) line(p, "const %s i%d = h%d + j;", p->index, last, last);
  store_scalars(p, pass);
  close(p);
}

/* ---- nests with rows ---- */
typedef struct {
  const char *type, *suffix, *start;
} Fold;
static Fold fold_of(const Printer *p, KReg r) {
  DType t = instr(p, instr(p, r)->in[0])->dtype;
  bool sum = instr(p, r)->op == OP_SUM;
  if (dtype_is_float(t)) return (Fold){"float", "f32", sum ? "0.0f" : "mt_float(0xff800000u)"};
  if (t == DT_U32) return (Fold){"uint32_t", "u32", "0u"};
  return (Fold){"int32_t", "i32", sum ? "0" : "INT32_MIN"};
}

static void fold_begin(Printer *p, KReg r) {
  line(p, "%s s%d = %s;", fold_of(p, r).type, (int)r, fold_of(p, r).start);
  if (instr(p, r)->op == OP_ARGMAX) line(p, "int32_t a%d = 0x7fffffff;", (int)r);
}

static void fold_add(Printer *p, KReg r) {
  int v = instr(p, r)->in[0];
  const char *suffix = fold_of(p, r).suffix;
  switch (instr(p, r)->op) {
    case OP_SUM: line(p, "s%d += v%d;", (int)r, v); break;
    case OP_AMAX: line(p, "s%d = mt_max_%s(s%d, v%d);", (int)r, suffix, (int)r, v); break;
    default: line(p, "mt_argmax(s%d, a%d, v%d, (int32_t)(c + j));", (int)r, (int)r, v);
  }
}

static void fold_end(Printer *p, KReg r) {
  const KInstr *d = instr(p, r);
  const char *name = d->op == OP_SUM ? "sum" : d->op == OP_AMAX ? "max" : "argmax";
  const char *value = d->op == OP_ARGMAX
                          ? arena_printf(p->out.arena, "mt_row_argmax<%d>(s%d, a%d)", p->threads, (int)r, (int)r)
                          : arena_printf(p->out.arena, "mt_row_%s<%d>(s%d)", name, p->threads, (int)r);
  if (d->rounds) value = arena_printf(p->out.arena, "mt_round_%s(%s)", dtype_name(d->dtype), value);
  line(p, "v%d = %s;", (int)r, value);
}

static bool lane_sum(const Printer *p, KReg r) { return p->k->flat_sums && instr(p, r)->kind == KI_SUM; }

/* How a thread walks its granules: c is the first column of the granule. */
static void granule_loop(Printer *p, const char *from, const char *to) {
  if (p->items <= 2 * KEEP_ITEMS) line(p, "#pragma unroll");
  openf(p, "for (int it = 0; it < %lld; it++) {", (long long)p->items);
  line(p, "const %s c = %s + (it * %d + lane) * %d;", p->index, from, p->threads, GRANULE);
  openf(p, "if (c < %s) {", to);
}

/* Indices of the columns from the flat one. */
static void column_indices(Printer *p, const char *flat) {
  if (p->n->ncols > 1)
    split(p, flat, p->n->nrows, p->n->nrows + p->n->ncols, 1);
  else if (p->n->ncols == 1)
    line(p, "const %s i%d = %s;", p->index, inner(p)->last, flat);
}

static void row_pass(Printer *p, const KPass *pass, const char *from, const char *to) {
  for (int i = 0; i < pass->nreduces; i++) {
    line(p, "%s v%d;", c_register_type(instr(p, pass->reduces[i])->dtype), (int)pass->reduces[i]);
  }
  if (!pass->nreduces && !pass->nsums && !pass->nstores) return;
  openf(p, "{");
  for (int i = 0; i < pass->nreduces; i++) fold_begin(p, pass->reduces[i]);
  granule_loop(p, from, to);
  declare_vectors(p, pass, GRANULE);
  openf(p, "{");
  column_indices(p, "c");
  load_vectors(p, pass);
  close(p);
  line(p, "#pragma unroll");
  openf(p, "for (int j = 0; j < %d; j++) {", GRANULE);
  if (!p->whole) line(p, "if (c + j >= %s) break;", to);
  openf(p, "{");
  line(p, "const %s cj = c + j;", p->index);
  column_indices(p, "cj");
  element_registers(p, pass, true);
  for (int i = 0; i < pass->nreduces; i++) fold_add(p, pass->reduces[i]);
  for (int i = 0; i < pass->nsums; i++) {
    KReg r = pass->sums[i];
    if (lane_sum(p, r))
      line(p, "q%d += v%d;", (int)r, (int)instr(p, r)->in[0]);
    else
      line(p, "q%d[it][j] += v%d;", (int)r, (int)instr(p, r)->in[0]);
  }
  store_scalars(p, pass);
  close(p);
  close(p);
  openf(p, "{");
  column_indices(p, "c");
  store_vectors(p, pass);
  close(p);
  close(p);
  close(p);
  for (int i = 0; i < pass->nreduces; i++) fold_end(p, pass->reduces[i]);
  close(p);
  for (int i = 0; i < pass->nregs; i++)
    if (instr(p, pass->regs[i])->kept || p->shared_load[pass->regs[i]]) p->held[pass->regs[i]] = true;
}

static void row_body(Printer *p, const char *from, const char *to) {
  const KNest *n = p->n;
  memset(p->held, 0, (size_t)p->k->ninstrs);
  for (int r = 0; r < p->k->ninstrs; r++) {
    const KInstr *d = instr(p, r);
    if (d->kept) line(p, "%s k%d[%lld][%d];", c_register_type(d->dtype), r, (long long)p->items, GRANULE);
    if (p->shared_load[r])
      line(p, "MtVector<%s, %d> b%d[%lld];", c_memory_type(p->k->params[d->param].dtype), GRANULE, r,
           (long long)p->items);
  }
  for (int i = 0; i <= n->npasses; i++) {
    const KPass *pass = &n->passes[i];
    for (int r = 0; r < pass->nrow_regs; r++) define(p, pass->row_regs[r]);
    if (i < n->npasses) row_pass(p, pass, from, to);
  }
  if (!n->nrow_stores) return;
  openf(p, "if (lane == 0) {");
  for (int i = 0; i < n->nrow_stores; i++) {
    const char *guard = store_guard(p, n->row_stores[i].mask);
    if (guard) openf(p, "if (%s) {", guard);
    Str e = {.arena = p->out.arena};
    c_store(&e, p->k, n, &n->row_stores[i]);
    line(p, "%s", e.text);
    if (guard) close(p);
  }
  close(p);
}

static int count_sums(const KNest *n) {
  int sums = 0;
  for (int i = 0; i < n->npasses; i++) sums += n->passes[i].nsums;
  return sums;
}

/* Threads of a row by its length alone. */
static void row_shape(Printer *p, int64_t cols) {
  int64_t granules = ceil_div(cols, GRANULE);
  p->threads = WARP;
  while (p->threads * WARP_ITEMS < granules && p->threads < MAX_THREADS) p->threads *= 2;
  p->groups = p->threads == WARP ? BLOCK_ROWS : 1;
  p->items = ceil_div(granules, p->threads);
  p->whole = cols % GRANULE == 0;
  p->width = p->whole && p->n->ncols && inner(p)->dim % GRANULE == 0 ? GRANULE : 1;
  memset(p->shared_load, 0, (size_t)p->k->ninstrs);
  if (p->items > KEEP_ITEMS) return;
  for (int r = 0; r < p->k->ninstrs; r++) {
    int uses = 0;
    for (int i = 0; i < p->n->npasses; i++)
      for (int x = 0; x < p->n->passes[i].nregs; x++) uses += p->n->passes[i].regs[x] == r;
    p->shared_load[r] = uses > 1 && vector_load(p, r);
  }
}

static void partial_begin(Printer *p) {
  for (int i = 0; i < p->n->npasses; i++)
    for (int s = 0; s < p->n->passes[i].nsums; s++) {
      KReg r = p->n->passes[i].sums[s];
      if (lane_sum(p, r))
        line(p, "%s q%d = 0;", fold_of(p, r).type, (int)r);
      else
        line(p, "%s q%d[%lld][%d] = {};", fold_of(p, r).type, (int)r, (long long)p->items, GRANULE);
    }
  for (int i = 0; i < p->n->nrow_sums; i++) line(p, "%s q%d = 0;", fold_of(p, p->n->row_sums[i]).type, (int)p->n->row_sums[i]);
}

/* The partials of this block: row groups are added in order through shared memory. */
static void partial_end(Printer *p, CudaFunction *f) {
  int64_t cols = p->n->cols;
  if (p->groups > 1 && count_sums(p->n)) {
    line(p, "extern __shared__ float mt_shared[];");
    f->shared = (int)(p->groups * p->items * p->threads * GRANULE * 4);
  }
  for (int i = 0; i < p->n->npasses; i++)
    for (int s = 0; s < p->n->passes[i].nsums; s++) {
      KReg r = p->n->passes[i].sums[s];
      const char *type = fold_of(p, r).type;
      if (p->groups == 1) {
        granule_loop(p, "0", arena_printf(p->out.arena, "%lld", (long long)cols));
        line(p, "#pragma unroll");
        line(p, "for (int j = 0; j < %d; j++) if (c + j < %lld) w%d[blockIdx.x * %lld + c + j] = q%d[it][j];", GRANULE,
             (long long)cols, (int)r, (long long)cols, (int)r);
        close(p);
        close(p);
        continue;
      }
      int64_t width = p->items * p->threads * GRANULE;
      line(p, "__syncthreads();");
      line(p, "#pragma unroll");
      openf(p, "for (int it = 0; it < %lld; it++) {", (long long)p->items);
      line(p, "#pragma unroll");
      line(p, "for (int j = 0; j < %d; j++) ((%s *)mt_shared)[group * %lld + (it * %d + j) * %d + lane] = q%d[it][j];",
           GRANULE, type, (long long)width, GRANULE, p->threads, (int)r);
      close(p);
      line(p, "__syncthreads();");
      openf(p, "for (int x = threadIdx.x; x < %lld; x += %d) {", (long long)width, p->groups * p->threads);
      line(p, "%s sum = 0;", type);
      line(p, "for (int g = 0; g < %d; g++) sum += ((%s *)mt_shared)[g * %lld + x];", p->groups, type,
           (long long)width);
      line(p, "const int c = (x / %d / %d * %d + x %% %d) * %d + x / %d %% %d;", p->threads, GRANULE, p->threads,
           p->threads, GRANULE, p->threads, GRANULE);
      line(p, "if (c < %lld) w%d[blockIdx.x * %lld + c] = sum;", (long long)cols, (int)r, (long long)cols);
      close(p);
    }
  for (int i = 0; i < p->n->nrow_sums; i++) {
    KReg r = p->n->row_sums[i];
    const char *type = fold_of(p, r).type;
    line(p, "__shared__ %s rows%d[%d];", type, (int)r, p->groups);
    line(p, "if (lane == 0) rows%d[group] = q%d;", (int)r, (int)r);
    line(p, "__syncthreads();");
    openf(p, "if (threadIdx.x == 0) {");
    line(p, "%s sum = 0;", type);
    line(p, "for (int g = 0; g < %d; g++) sum += rows%d[g];", p->groups, (int)r);
    line(p, "w%d[blockIdx.x] = sum;", (int)r);
    close(p);
  }
}

static bool columns_are_flat(const Printer *p) {
  for (int r = 0; r < p->k->ninstrs; r++) {
    const KInstr *d = instr(p, r);
    if (d->kind != KI_SUM || d->full) continue;
    int64_t below = 1;
    for (int x = p->k->naxes - 1; x >= p->k->outer; x--) {
      if (d->column.coef[x] != below || d->column.nsubs) return false;
      below *= p->k->dim[x];
    }
  }
  return true;
}

static void row_nest(Printer *p, CudaFunction *f) {
  const KNest *n = p->n;
  bool sums = count_sums(n) + n->nrow_sums > 0 && !n->late && !n->side;
  row_shape(p, n->cols);
  if (sums && !columns_are_flat(p)) {
    p->why = "a sum over rows whose columns are permuted";
    return;
  }
  f->threads = p->threads * p->groups;
  line(p, "const int lane = threadIdx.x %% %d, group = threadIdx.x / %d;", p->threads, p->threads);
  line(p, "(void)group;");
  for (int i = 0; i < p->k->nuniform; i++) define(p, p->k->uniform[i]);
  const char *cols = arena_printf(p->out.arena, "%lld", (long long)n->cols);
  if (sums) {
    KRanges b = sum_ranges(p->k);
    f->grid = b.blocks;
    partial_begin(p);
    line(p, "const %s r1 = ((int)blockIdx.x + 1) * %lld < %lld ? ((int)blockIdx.x + 1) * %lld : %lld;", p->index,
         (long long)b.size, (long long)n->rows, (long long)b.size, (long long)n->rows);
    openf(p, "for (%s r = blockIdx.x * %lld + group; r < r1; r += %d) {", p->index, (long long)b.size, p->groups);
  } else {
    f->grid = ceil_div(n->rows, p->groups);
    line(p, "const int64_t r = (int64_t)blockIdx.x * %d + group;", p->groups);
    line(p, "if (r >= %lld) return;", (long long)n->rows);
    openf(p, "{");
  }
  split(p, n->rows < INT32_MAX ? "(unsigned)r" : "r", 0, n->nrows, 1);
  row_body(p, "0", cols);
  for (int i = 0; sums && i < n->nrow_sums; i++)
    line(p, "q%d += v%d;", (int)n->row_sums[i], (int)instr(p, n->row_sums[i])->in[0]);
  close(p);
  if (sums) partial_end(p, f);
}

/* Sums over all elements of one row: a block for each range. */
static void flat_nest(Printer *p, CudaFunction *f) {
  const KNest *n = p->n;
  KRanges b = sum_ranges(p->k);
  row_shape(p, n->cols);
  p->threads = MAP_THREADS;
  p->groups = 1;
  p->items = ceil_div(ceil_div(b.size, GRANULE), MAP_THREADS);
  p->whole = p->whole && b.size % GRANULE == 0;
  if (!p->whole) p->width = 1;
  memset(p->shared_load, 0, (size_t)p->k->ninstrs);
  if (n->npasses != 1 || n->passes[0].nreduces) {
    p->why = "a row reduction next to sums over everything";
    return;
  }
  f->threads = p->threads;
  f->grid = b.blocks;
  line(p, "const int lane = threadIdx.x;");
  for (int i = 0; i < p->k->nuniform; i++) define(p, p->k->uniform[i]);
  line(p, "const int64_t lo = (int64_t)blockIdx.x * %lld, hi = lo + %lld < %lld ? lo + %lld : %lld;", (long long)b.size,
       (long long)b.size, (long long)n->cols, (long long)b.size, (long long)n->cols);
  partial_begin(p);
  row_body(p, "lo", "hi");
  for (int s = 0; s < n->passes[0].nsums; s++) {
    KReg r = n->passes[0].sums[s];
    line(p, "const %s f%d = mt_row_sum<%d>(q%d);", fold_of(p, r).type, (int)r, p->threads, (int)r);
    line(p, "if (lane == 0) w%d[blockIdx.x] = f%d;", (int)r, (int)r);
  }
}

/* ---- the functions ---- */
/* The main nest makes the partial sums; the others read them. */
static void print_params(Printer *p) {
  const Kernel *k = p->k;
  str_add(&p->out, "(");
  for (int i = 0; i < k->nparams; i++)
    str_addf(&p->out, "%s\n    %s%s *p%d /* %s %s */", i ? "," : "", k->params[i].out ? "" : "const ",
             c_memory_type(k->params[i].dtype), i, dtype_name(k->params[i].dtype),
             shape_text(p->out.arena, &k->params[i].shape));
  if (cuda_workspace(k)) str_addf(&p->out, "%s\n    float *w /* partial sums */", k->nparams ? "," : "");
  str_add(&p->out, ") {\n");
  KRanges b = sum_ranges(k);
  int64_t slot = 0;
  for (int r = 0; r < k->ninstrs; r++) {
    if (k->instrs[r].kind != KI_SUM) continue;
    const char *type = fold_of(p, r).type;
    line(p, "%s *const w%d = (%s *)w + %lld; /* [%lld, %lld] */", type, r, type, (long long)slot, (long long)b.blocks,
         (long long)k->instrs[r].columns);
    if (p->n->late || p->n->side)
      line(p, "const MtSums<%s> q%d = {w%d, %lld, %lld};", type, r, r, (long long)b.blocks,
           (long long)k->instrs[r].columns);
    slot += b.blocks * k->instrs[r].columns;
  }
}

int kernel_print_cuda(const Kernel *k, Arena *a, CudaFunction *out, int most, const char **why) {
  if (k->nnests > most) {
    *why = arena_printf(a, "a kernel of %d launches", k->nnests);
    return 0;
  }
  for (int i = 0; i < k->nnests; i++) {
    Printer p = {.k = k, .n = &k->nests[i], .out = {.arena = a}, .depth = 1, .width = 1};
    p.held = arena_array(a, bool, k->ninstrs + 1);
    p.shared_load = arena_array(a, bool, k->ninstrs + 1);
    p.index = index_type(&p);
    out[i] = (CudaFunction){0};
    print_params(&p);
    bool flat = k->flat_sums && !p.n->late && !p.n->side && count_sums(p.n);
    if (flat)
      flat_nest(&p, &out[i]);
    else if (p.n->map)
      map_nest(&p, &out[i]);
    else
      row_nest(&p, &out[i]);
    str_add(&p.out, "}\n");
    out[i].body = p.out.text;
    if (p.why) {
      *why = p.why;
      return 0;
    }
  }
  return k->nnests;
}

/* ---- prelude ---- */
static const char before[] =
    "/* Types and builtins that the C prelude names; no header is included. */\n"
    "typedef signed char int8_t;\n"
    "typedef unsigned char uint8_t;\n"
    "typedef unsigned short uint16_t;\n"
    "typedef int int32_t;\n"
    "typedef unsigned int uint32_t;\n"
    "typedef long long int64_t;\n"
    "typedef unsigned long long uint64_t;\n"
    "#define INT32_MAX 2147483647\n"
    "#define INT32_MIN (-2147483647 - 1)\n"
    "#define UINT32_MAX 4294967295u\n"
    "#define __builtin_fabsf fabsf\n"
    "#define __builtin_sqrtf __fsqrt_rn\n"
    "#define __builtin_floorf floorf\n";

static const char after[] =
    "\n/* ---- vectors: 16 bytes a transaction ---- */\n"
    "template <class T, int N> struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) MtVector { T x[N]; };\n"
    "template <class T, int N> __device__ __forceinline__ MtVector<T, N> mt_vector(const T *p) {\n"
    "  return *(const MtVector<T, N> *)p;\n"
    "}\n"
    "template <class T, int N> __device__ __forceinline__ void mt_put(T *p, const MtVector<T, N> &v) {\n"
    "  *(MtVector<T, N> *)p = v;\n"
    "}\n"
    "\n/* ---- folds of a row over its threads: a butterfly of each warp, then the warps in order ---- */\n"
    "template <class T> struct MtSum { static __device__ __forceinline__ T f(T a, T b) { return a + b; } };\n"
    "template <class T> struct MtMax;\n"
    "template <> struct MtMax<float> { static __device__ __forceinline__ float f(float a, float b) { return mt_max(a, b); } };\n"
    "template <> struct MtMax<int32_t> { static __device__ __forceinline__ int32_t f(int32_t a, int32_t b) { return a > b ? a : b; } };\n"
    "template <> struct MtMax<uint32_t> { static __device__ __forceinline__ uint32_t f(uint32_t a, uint32_t b) { return a > b ? a : b; } };\n"
    "template <class F, int N, class T> __device__ __forceinline__ T mt_fold(T x) {\n"
    "  #pragma unroll\n"
    "  for (int o = 16; o; o /= 2) x = F::f(x, __shfl_xor_sync(0xffffffffu, x, o));\n"
    "  if (N == 32) return x;\n"
    "  __shared__ T warps[N / 32];\n"
    "  __syncthreads();\n"
    "  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = x;\n"
    "  __syncthreads();\n"
    "  T y = warps[0];\n"
    "  for (int i = 1; i < N / 32; i++) y = F::f(y, warps[i]);\n"
    "  return y;\n"
    "}\n"
    "template <int N, class T> __device__ __forceinline__ T mt_row_sum(T x) { return mt_fold<MtSum<T>, N>(x); }\n"
    "template <int N, class T> __device__ __forceinline__ T mt_row_max(T x) { return mt_fold<MtMax<T>, N>(x); }\n"
    "\n/* First maximum: NaN counts as the largest. */\n"
    "template <class T> __device__ __forceinline__ void mt_argmax(T &best, int32_t &at, T x, int32_t i) {\n"
    "  const bool over = x > best || (x != x && best == best);\n"
    "  const bool same = x == best || (x != x && best != best);\n"
    "  if (over || (same && i < at)) best = x, at = i;\n"
    "}\n"
    "template <int N, class T> __device__ __forceinline__ int32_t mt_row_argmax(T x, int32_t at) {\n"
    "  #pragma unroll\n"
    "  for (int o = 16; o; o /= 2) {\n"
    "    const T y = __shfl_xor_sync(0xffffffffu, x, o);\n"
    "    mt_argmax(x, at, y, __shfl_xor_sync(0xffffffffu, at, o));\n"
    "  }\n"
    "  if (N == 32) return at;\n"
    "  __shared__ T warps[N / 32];\n"
    "  __shared__ int32_t where[N / 32];\n"
    "  __syncthreads();\n"
    "  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = x, where[threadIdx.x / 32] = at;\n"
    "  __syncthreads();\n"
    "  for (int i = 0; i < N / 32; i++) mt_argmax(x, at, warps[i], where[i]);\n"
    "  return at;\n"
    "}\n"
    "\n/* Partial sums [blocks, columns]: reading a column adds its blocks in order. */\n"
    "template <class T> struct MtSums {\n"
    "  const T *at;\n"
    "  int blocks, columns;\n"
    "  __device__ __forceinline__ T operator[](int64_t c) const {\n"
    "    T sum = 0;\n"
    "    for (int b = 0; b < blocks; b++) sum += at[(int64_t)b * columns + c];\n"
    "    return sum;\n"
    "  }\n"
    "};\n";

const char *cuda_prelude_text(Arena *a) {
  const char *body = prelude_c;
  static const char include[] = "#include <stdint.h>\n";
  if (str_starts(body, include)) body += sizeof include - 1;
  return arena_printf(a, "%s%s%s", before, body, after);
}
