/* print_cuda_rows.c - nests with rows: reductions of a row on chip, sums over rows in two stages.
 *
 * A row is dealt to the threads of a warp or of a part of a block, in granules of 8 columns. A
 * thread loads all its granules first, then computes; what a later pass uses again stays in
 * registers, or for long rows in shared memory. */
#include <string.h>
#include "print_c.h"
#include "print_cuda_impl.h"

enum {
  WARP = 32,
  MAX_THREADS = 512,   /* of a row: leaves each 128 registers */
  ROW_BLOCK = 256,     /* threads of a block, at least */
  SUM_BLOCK = 512,     /* the same when it makes partial sums */
  SLICE_THREADS = 128, /* of a slice of the columns */
  UNROLLED = 8,        /* granules of a thread that are in registers together */
  IN_FLIGHT = 4,       /* of longer rows */
  KEEP_REGISTERS =
      64,             /* of loads that stay for the length of a row, of the 128 that a thread has */
  ROW_REGISTERS = 48, /* of all vectors of a row in registers at once */
  SUM_REGISTERS = 44, /* the same, partial sums included, when two blocks share an SM */
  ROWS_AHEAD = 4      /* rows whose loads go together in sums of columns alone, at most */
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
  if (pr_instr(p, r)->op == OP_ARGMAX) pr_line(p, "int32_t a%d = 0x7fffffff;", (int)r);
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
      pr_line(p, "mt_argmax(s%d, a%d, v%d, (int32_t)(c + j));", (int)r, (int)r, v);
  }
}

static void fold_end(Printer *p, KReg r) {
  const KInstr *d = pr_instr(p, r);
  const char *name = d->op == OP_SUM ? "sum" : d->op == OP_AMAX ? "max" : "argmax";
  const char *index = d->op == OP_ARGMAX ? pr_text(p, ", a%d", (int)r) : "";
  const char *value =
      pr_text(p, "mt_row_%s<%d, %d>(s%d%s)", name, p->threads, p->groups, (int)r, index);
  if (d->rounds) value = pr_text(p, "mt_round_%s(%s)", dtype_name(d->dtype), value);
  pr_line(p, "v%d = %s;", (int)r, value);
}

static bool lane_sum(const Printer *p, KReg r) {
  return p->k->flat_sums && pr_instr(p, r)->kind == KI_SUM;
}

int pr_count_sums(const KNest *n) {
  int sums = 0;
  for (int i = 0; i < n->npasses; i++) sums += n->passes[i].nsums;
  return sums;
}

/* ---- passes ---- */
/* Indices of the columns from the flat one. */
static void column_indices(Printer *p, const char *flat) {
  if (p->n->ncols > 1)
    pr_split(p, flat, p->n->nrows, p->n->nrows + p->n->ncols, 1);
  else if (p->n->ncols == 1)
    pr_line(p, "const %s i%d = %s;", p->index, pr_inner(p)->last, flat);
}

/* Granules `it` of this thread that are in flight together; c is the first column of one. */
static void granules_open(Printer *p, const char *from, const char *to) {
  pr_line(p, "#pragma unroll");
  pr_open(p, "for (int u = 0; u < %d; u++) {", p->unroll);
  pr_line(p, "const int it = it0 + u;");
  pr_line(p, "const %s c = %s + (it * %d + lane) * %d;", p->index, from, p->threads, GRANULE);
  if (!p->exact) pr_open(p, "if (c < %s) {", to);
}
static void granules_close(Printer *p) {
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
static bool in_passes(const Printer *p, KReg r, bool row_level) {
  for (int i = 0; i <= p->n->npasses; i++) {
    const KPass *x = &p->n->passes[i];
    if (row_level ? needed(x->nrow_regs, x->row_regs, r)
                  : i < p->n->npasses && needed(x->nregs, x->regs, r))
      return true;
  }
  return false;
}
/* Loads that step with the rows and need nothing of the row but its indices. */
static bool steps_alone(const Printer *p, KReg r) {
  const KInstr *d = pr_instr(p, r);
  return p->ahead && d->kind == KI_LOAD && !d->nin && !d->nguards &&
         (kindex_mask(&d->at) & ((1u << p->k->outer) - 1));
}
static bool loads_ahead(const Printer *p, KReg r) {
  return steps_alone(p, r) && pr_vector_load(p, r) && in_passes(p, r, false);
}
static bool scalar_ahead(const Printer *p, KReg r) {
  return steps_alone(p, r) && kreg_level(p->n, pr_instr(p, r)) == LV_ROW && in_passes(p, r, true);
}

/* n<reg> = the vectors of row `row`, when there is one. */
static void load_ahead(Printer *p, const char *row, const char *from, const char *to) {
  pr_open(p, "if (%s < r1) {", row);
  pr_split(p, p->n->rows < INT32_MAX ? pr_text(p, "(unsigned)(%s)", row) : pr_text(p, "(%s)", row),
           0, p->n->nrows, 1);
  for (int r = 0; r < p->k->ninstrs; r++) {
    if (!scalar_ahead(p, r)) continue;
    Str at = {.arena = p->out.arena};
    c_index(&at, &pr_instr(p, r)->at, p->n);
    pr_line(p, "n%d = p%d[%s];", r, pr_instr(p, r)->param, at.text);
  }
  pr_line(p, "const int it0 = 0;");
  granules_open(p, from, to);
  column_indices(p, "c");
  for (int r = 0; r < p->k->ninstrs; r++)
    if (loads_ahead(p, r)) pr_line(p, "n%d[it] = %s;", r, pr_vector_value(p, r));
  granules_close(p);
  pr_close(p);
}

/* Vectors and row values that were loaded ahead: declared before the rows, filled for the first of
 * them. */
static void begin_ahead(Printer *p, const char *first, const char *from, const char *to) {
  for (int r = 0; r < p->k->ninstrs; r++) {
    int param = pr_instr(p, r)->param;
    if (loads_ahead(p, r))
      pr_line(p, "%s n%d[%lld];", pr_vector_type(p, param), r, (long long)p->items);
    if (scalar_ahead(p, r)) pr_line(p, "%s n%d;", c_memory_type(p->k->params[param].dtype), r);
  }
  load_ahead(p, first, from, to);
}

static void row_value(Printer *p, KReg r) {
  if (!scalar_ahead(p, r)) {
    pr_define(p, r);
    return;
  }
  Str e = {.arena = p->out.arena};
  c_loaded(&e, p->k->params[pr_instr(p, r)->param].dtype, pr_text(p, "n%d", (int)r));
  pr_line(p, "const %s v%d = %s;", c_register_type(pr_instr(p, r)->dtype), (int)r, e.text);
}

/* Loads of the pass; the first takes over all vectors that were loaded ahead and starts the next
 * row's. */
static void load_stage(Printer *p, const KPass *pass, const char *from, const char *to) {
  bool first = p->ahead && pass == p->n->passes;
  int loads = 0;
  for (int i = 0; i < pass->nregs; i++) {
    KReg r = pass->regs[i];
    if (!pr_vector_load(p, r) || p->held[r] || loads_ahead(p, r)) continue;
    loads++;
    if (p->cache[r] == CACHE_NONE)
      pr_line(p, "%s b%d[%d];", pr_vector_type(p, pr_instr(p, r)->param), (int)r, p->unroll);
  }
  if (!loads && !first) return;
  granules_open(p, from, to);
  column_indices(p, "c");
  for (int i = 0; i < pass->nregs; i++) {
    KReg r = pass->regs[i];
    if (pr_vector_load(p, r) && !p->held[r] && !loads_ahead(p, r))
      pr_line(p, "%s = %s;", vector_slot(p, r), pr_vector_value(p, r));
  }
  for (int r = 0; first && r < p->k->ninstrs; r++)
    if (loads_ahead(p, r)) pr_line(p, "%s = n%d[it];", vector_slot(p, r), r);
  granules_close(p);
  if (first) load_ahead(p, pr_text(p, "r0 + group + %d", p->groups), from, to);
}

static void use_stage(Printer *p, const KPass *pass, const char *from, const char *to) {
  granules_open(p, from, to);
  for (int i = 0; i < pass->nregs; i++) {
    KReg r = pass->regs[i];
    if (!pr_vector_load(p, r)) continue;
    const KParam *q = &p->k->params[pr_instr(p, r)->param];
    if (p->cache[r] == CACHE_REGISTERS && GRANULE * dtype_bytes(q->dtype) % 4 == 0)
      pr_line(p, "mt_keep(%s);", vector_slot(p, r));
    pr_line(p, "const %s r%d = %s;", pr_vector_type(p, pr_instr(p, r)->param), (int)r,
            vector_slot(p, r));
  }
  pr_declare_stores(p, pass);
  pr_line(p, "#pragma unroll");
  pr_open(p, "for (int j = 0; j < %d; j++) {", GRANULE);
  if (!p->whole) pr_open(p, "if (c + j < %s) {", to);
  pr_line(p, "const %s cj = c + j;", p->index);
  column_indices(p, "cj");
  pr_element(p, pass, true);
  for (int i = 0; i < pass->nreduces; i++) fold_add(p, pass->reduces[i]);
  for (int i = 0; i < pass->nsums; i++) {
    KReg r = pass->sums[i];
    pr_line(p, lane_sum(p, r) ? "q%d += v%d;" : "q%d[it][j] += v%d;", (int)r,
            (int)pr_instr(p, r)->in[0]);
  }
  pr_store_scalars(p, pass);
  if (!p->whole) pr_close(p);
  pr_close(p);
  pr_open(p, "{");
  column_indices(p, "c");
  pr_store_vectors(p, pass, p->whole ? NULL : to);
  pr_close(p);
  granules_close(p);
}

static void row_pass(Printer *p, const KPass *pass, const char *from, const char *to) {
  for (int i = 0; i < pass->nreduces; i++)
    pr_line(p, "%s v%d;", c_register_type(pr_instr(p, pass->reduces[i])->dtype),
            (int)pass->reduces[i]);
  if (!pass->nreduces && !pass->nsums && !pass->nstores) return;
  pr_open(p, "{");
  for (int i = 0; i < pass->nreduces; i++) fold_begin(p, pass->reduces[i]);
  if (p->items > p->unroll) {
    pr_line(p, "#pragma unroll 1");
    pr_open(p, "for (int it0 = 0; it0 < %lld; it0 += %d) {", (long long)p->items, p->unroll);
  } else {
    pr_open(p, "{");
    pr_line(p, "const int it0 = 0;");
  }
  if (p->lockstep) pr_open(p, "if (live) {");
  load_stage(p, pass, from, to);
  use_stage(p, pass, from, to);
  if (p->lockstep) pr_close(p);
  pr_close(p);
  for (int i = 0; i < pass->nreduces; i++) fold_end(p, pass->reduces[i]);
  pr_close(p);
  for (int i = 0; i < pass->nregs; i++)
    if (pr_instr(p, pass->regs[i])->kept || p->cache[pass->regs[i]] != CACHE_NONE)
      p->held[pass->regs[i]] = true;
}

static void row_stores(Printer *p) {
  if (!p->n->nrow_stores) return;
  pr_open(p, p->lockstep ? "if (lane == 0 && live) {" : "if (lane == 0) {");
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

static void row_body(Printer *p, const char *from, const char *to) {
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
    if (i < n->npasses) row_pass(p, pass, from, to);
  }
  row_stores(p);
}

/* ---- shape ---- */
static bool used_again(const Printer *p, KReg r) {
  int uses = 0;
  for (int i = 0; i < p->n->npasses; i++)
    for (int x = 0; x < p->n->passes[i].nregs; x++) uses += p->n->passes[i].regs[x] == r;
  return uses > 1 && pr_vector_load(p, r);
}

/* Loads that several passes use stay in registers, or of long rows in shared memory, as far as
 * there is room. */
static void choose_caches(Printer *p, CudaFunction *f) {
  bool unrolled = p->items <= p->unroll;
  int64_t left = unrolled ? KEEP_REGISTERS * 4 : p->shared_most, used = 0;
  for (int r = 0; r < p->k->ninstrs; r++) {
    if (!used_again(p, r) && !loads_ahead(p, r)) continue;
    int64_t bytes = p->items * GRANULE * dtype_bytes(p->k->params[pr_instr(p, r)->param].dtype);
    if (!unrolled) bytes *= p->threads;
    if (bytes > left && !loads_ahead(p, r)) continue;
    left -= bytes;
    p->cache[r] = unrolled ? CACHE_REGISTERS : CACHE_SHARED;
    if (unrolled) continue;
    if (!used) pr_line(p, "extern __shared__ __align__(16) char mt_shared[];");
    pr_line(p, "%s *const b%d = (%s *)(mt_shared + %lld) + lane;",
            pr_vector_type(p, pr_instr(p, r)->param), r, pr_vector_type(p, pr_instr(p, r)->param),
            (long long)used);
    used += bytes;
  }
  if (used > 0) f->shared = (int)used;
  if (used > 0 && 2 * (used + 1024) <= p->shared_most + 1024) f->resident = 2;
}

/* Registers that one granule of a thread takes for as long as its row: partial sums, its vectors
 * and those of the next. */
static int granule_registers(const Printer *p, int nsums) {
  int bytes = nsums * GRANULE * 4;
  for (int r = 0; r < p->k->ninstrs; r++)
    if (pr_vector_load(p, r))
      bytes += (loads_ahead(p, r) ? 2 : 1) * GRANULE *
               dtype_bytes(p->k->params[pr_instr(p, r)->param].dtype);
  return bytes / 4;
}

/* Threads of a row by its length and the kernel's loads alone: as many granules a thread as there
 * are registers for, as few idle threads as possible. */
static void row_shape(Printer *p, int64_t cols, int nsums) {
  int64_t granules = ceil_div(cols, GRANULE);
  bool one_axis = p->n->ncols == 1;
  p->width = p->n->ncols && (one_axis || pr_inner(p)->dim % GRANULE == 0) ? GRANULE : 1;
  int most = IN_FLIGHT, each = granule_registers(p, nsums);
  while (most > 1 && most * each > (nsums ? SUM_REGISTERS : KEEP_REGISTERS)) most--;
  double best = 0;
  p->threads = MAX_THREADS;
  for (int threads = WARP; threads <= MAX_THREADS; threads += WARP) {
    int64_t items = ceil_div(granules, threads);
    double share = (double)granules / (double)(items * threads);
    if (items > most || share <= best) continue;
    best = share;
    p->threads = threads;
  }
  p->items = ceil_div(granules, p->threads);
  bool few = p->items <= UNROLLED && (p->items <= IN_FLIGHT || p->items * each <= ROW_REGISTERS);
  p->unroll = few ? (int)p->items : p->width == 1 ? 1 : p->thrifty ? IN_FLIGHT / 2 : IN_FLIGHT;
  p->whole = cols % GRANULE == 0;
  p->exact = granules == p->items * p->threads && p->items % p->unroll == 0;
  p->slices = 1;
}

/* Sums of columns alone: blocks take slices of a long row. */
static bool slice_columns(Printer *p) {
  const KNest *n = p->n;
  if (p->items <= IN_FLIGHT || n->nrow_sums || n->nrow_stores || n->npasses != 1 ||
      n->passes[0].nreduces)
    return false;
  p->threads = SLICE_THREADS;
  p->items = p->unroll = IN_FLIGHT;
  p->slices = ceil_div(n->cols, SLICE_THREADS * IN_FLIGHT * GRANULE);
  p->exact = false;
  return true;
}

/* ---- partial sums ---- */
static void partial_begin(Printer *p) {
  for (int i = 0; i < p->n->npasses; i++)
    for (int s = 0; s < p->n->passes[i].nsums; s++) {
      KReg r = p->n->passes[i].sums[s];
      if (lane_sum(p, r))
        pr_line(p, "%s q%d = 0;", pr_fold_type(p, r), (int)r);
      else
        pr_line(p, "%s q%d[%lld][%d] = {};", pr_fold_type(p, r), (int)r, (long long)p->items,
                GRANULE);
    }
  for (int i = 0; i < p->n->nrow_sums; i++)
    pr_line(p, "%s q%d = 0;", pr_fold_type(p, p->n->row_sums[i]), (int)p->n->row_sums[i]);
}

/* One row group: its registers are the partials. */
static void store_partials(Printer *p, KReg r, const char *from, const char *to) {
  pr_open(p, "{");
  pr_line(p, "const int it0 = 0;");
  granules_open(p, from, to);
  pr_line(p, "#pragma unroll");
  pr_line(p, "for (int j = 0; j < %d; j++) if (c + j < %s) w%d[block * %lld + c + j] = q%d[it][j];",
          GRANULE, to, (int)r, (long long)p->n->cols, (int)r);
  granules_close(p);
  pr_close(p);
}

/* Several: they are added in order through shared memory. */
static void fold_partials(Printer *p, KReg r, const char *from, const char *to) {
  int64_t width = p->items * p->threads * GRANULE;
  const char *type = pr_fold_type(p, r);
  pr_line(p, "__syncthreads();");
  pr_line(p, "#pragma unroll");
  pr_open(p, "for (int it = 0; it < %lld; it++) {", (long long)p->items);
  pr_line(p, "#pragma unroll");
  pr_line(p,
          "for (int j = 0; j < %d; j++) ((%s *)mt_shared)[group * %lld + (it * %d + j) * %d + "
          "lane] = q%d[it][j];",
          GRANULE, type, (long long)width, GRANULE, p->threads, (int)r);
  pr_close(p);
  pr_line(p, "__syncthreads();");
  pr_open(p, "for (int x = threadIdx.x; x < %lld; x += %d) {", (long long)width,
          p->groups * p->threads);
  pr_line(p, "%s sum = 0;", type);
  pr_line(p, "#pragma unroll");
  pr_line(p, "for (int g = 0; g < %d; g++) sum += ((%s *)mt_shared)[g * %lld + x];", p->groups,
          type, (long long)width);
  pr_line(p, "const int c = %s + (x / %d * %d + x %% %d) * %d + x / %d %% %d;", from,
          p->threads * GRANULE, p->threads, p->threads, GRANULE, p->threads, GRANULE);
  pr_line(p, "if (c < %s) w%d[block * %lld + c] = sum;", to, (int)r, (long long)p->n->cols);
  pr_close(p);
}

static void fold_row_sum(Printer *p, KReg r) {
  const char *type = pr_fold_type(p, r);
  pr_line(p, "__shared__ %s rows%d[%d];", type, (int)r, p->groups);
  pr_line(p, "if (lane == 0) rows%d[group] = q%d;", (int)r, (int)r);
  pr_line(p, "__syncthreads();");
  pr_open(p, "if (threadIdx.x == 0) {");
  pr_line(p, "%s sum = 0;", type);
  pr_line(p, "for (int g = 0; g < %d; g++) sum += rows%d[g];", p->groups, (int)r);
  pr_line(p, "w%d[block] = sum;", (int)r);
  pr_close(p);
}

static void partial_end(Printer *p, CudaFunction *f, const char *from, const char *to) {
  if (p->groups > 1 && pr_count_sums(p->n)) {
    pr_line(p, "extern __shared__ __align__(16) char mt_shared[];");
    f->shared = (int)(p->groups * p->items * p->threads * GRANULE * 4);
  }
  for (int i = 0; i < p->n->npasses; i++)
    for (int s = 0; s < p->n->passes[i].nsums; s++) {
      KReg r = p->n->passes[i].sums[s];
      (p->groups == 1 ? store_partials : fold_partials)(p, r, from, to);
    }
  for (int i = 0; i < p->n->nrow_sums; i++) fold_row_sum(p, p->n->row_sums[i]);
}

static bool columns_are_flat(const Printer *p) {
  for (int r = 0; r < p->k->ninstrs; r++) {
    const KInstr *d = pr_instr(p, r);
    if (d->kind != KI_SUM || d->full) continue;
    int64_t below = 1;
    for (int x = p->k->naxes - 1; x >= p->k->outer; x--) {
      if (d->column.coef[x] != below || d->column.nsubs) return false;
      below *= p->k->dim[x];
    }
  }
  return true;
}

/* ---- nests ---- */
/* Rows that the compiler may load together: where no store stands between them. */
static int rows_together(const Printer *p) {
  if (p->n->npasses != 1 || p->n->passes[0].nstores || p->n->nrow_stores || p->items > UNROLLED)
    return 1;
  int each = granule_registers(p, 0) * (int)p->items, rows = each ? KEEP_REGISTERS / 2 / each : 1;
  return rows < 1 ? 1 : rows > ROWS_AHEAD ? ROWS_AHEAD : rows;
}

/* The row of this group after r0, and its indices; a row past the end becomes the last one, and is
 * not live. */
static void row_index(Printer *p, const char *end) {
  if (p->lockstep) {
    pr_line(p, "const bool live = r0 + group < %s;", end);
    pr_line(p, "const auto r = live ? r0 + group : %s - 1;", end);
  } else {
    pr_line(p, "const auto r = r0 + group;");
  }
  pr_split(p, p->n->rows < INT32_MAX ? "(unsigned)r" : "r", 0, p->n->nrows, 1);
}

static void sum_rows(Printer *p, CudaFunction *f, const char *cols) {
  const KNest *n = p->n;
  KRanges b = pr_sum_ranges(p->k);
  const char *from = "0", *to = cols;
  f->grid = b.blocks * p->slices;
  if (p->slices > 1) {
    int64_t width = p->threads * p->items * GRANULE;
    pr_line(p, "const int block = blockIdx.x / %lld;", (long long)p->slices);
    pr_line(p,
            "const %s first = (int)(blockIdx.x %% %lld) * %lld, end = first + %lld < %s ? first + "
            "%lld : %s;",
            p->index, (long long)p->slices, (long long)width, (long long)width, cols,
            (long long)width, cols);
    from = "first";
    to = "end";
  } else {
    pr_line(p, "const int block = blockIdx.x;");
  }
  partial_begin(p);
  const char *size = pr_text(p, "%lld", (long long)b.size),
             *rows = pr_text(p, "%lld", (long long)n->rows);
  pr_line(p, "const %s r1 = (%s)(block + 1) * %s < %s ? (%s)(block + 1) * %s : %s;", p->index,
          p->index, size, rows, p->index, size, rows);
  const char *first = pr_text(p, "(%s)block * %s + group", p->index, size);
  if (p->ahead) {
    begin_ahead(p, first, from, to);
  } else {
    pr_line(p, "#pragma unroll %d", rows_together(p));
  }
  pr_open(p, "for (%s r0 = (%s)block * %s; r0 %s; r0 += %d) {", p->index, p->index, size,
          p->lockstep ? "< r1" : "+ group < r1", p->groups);
  row_index(p, "r1");
  row_body(p, from, to);
  for (int i = 0; i < n->nrow_sums; i++)
    pr_line(p, "%sq%d += v%d;", p->lockstep ? "if (live) " : "", (int)n->row_sums[i],
            (int)pr_instr(p, n->row_sums[i])->in[0]);
  pr_close(p);
  partial_end(p, f, from, to);
}

void pr_row_nest(Printer *p, CudaFunction *f) {
  const KNest *n = p->n;
  int nsums = pr_count_sums(n);
  bool sums = nsums + n->nrow_sums > 0 && !n->late && !n->side;
  bool wanted = p->ahead;
  p->ahead = sums && nsums && (n->npasses > 1 || n->passes[0].nstores || n->passes[0].nreduces);
  row_shape(p, n->cols, nsums);
  p->ahead &= wanted && p->items <= UNROLLED;
  if (sums && !columns_are_flat(p)) {
    p->why = "a sum over rows whose columns are permuted";
    return;
  }
  if (sums && nsums && !slice_columns(p) && p->items > UNROLLED) {
    p->why = "sums over rows of so many columns next to reductions of each row";
    return;
  }
  int block = sums ? SUM_BLOCK : ROW_BLOCK;
  p->groups = p->threads < block ? block / p->threads : 1;
  p->lockstep = p->groups > 1 && p->threads > WARP;
  f->threads = p->threads * p->groups;
  pr_line(p, "const int lane = threadIdx.x %% %d, group = threadIdx.x / %d;", p->threads,
          p->threads);
  pr_line(p, "(void)group;");
  f->resident = 1; /* ptxas may take all registers that a block leaves it */
  choose_caches(p, f);
  pr_uniform(p);
  const char *cols = pr_text(p, "%lld", (long long)n->cols);
  if (sums) {
    f->resident = 2;
    sum_rows(p, f, cols);
    return;
  }
  f->grid = ceil_div(n->rows, p->groups);
  const char *end = pr_text(p, "%lld", (long long)n->rows);
  pr_line(p, "const int64_t r0 = (int64_t)blockIdx.x * %d;", p->groups);
  if (!p->lockstep) pr_line(p, "if (r0 + group >= %s) return;", end);
  row_index(p, end);
  row_body(p, "0", cols);
}

void pr_flat_nest(Printer *p, CudaFunction *f) {
  const KNest *n = p->n;
  KRanges b = pr_sum_ranges(p->k);
  if (n->npasses != 1 || n->passes[0].nreduces) {
    p->why = "a row reduction next to sums over everything";
    return;
  }
  p->ahead = false;
  row_shape(p, n->cols, 0);
  p->threads = MAP_THREADS;
  p->groups = 1;
  p->items = ceil_div(ceil_div(b.size, GRANULE), MAP_THREADS);
  p->unroll = p->items < IN_FLIGHT ? (int)p->items : IN_FLIGHT;
  p->exact = false;
  f->threads = p->threads;
  f->grid = b.blocks;
  pr_line(p, "const int lane = threadIdx.x;");
  pr_uniform(p);
  pr_line(
      p, "const int64_t lo = (int64_t)blockIdx.x * %lld, hi = lo + %lld < %lld ? lo + %lld : %lld;",
      (long long)b.size, (long long)b.size, (long long)n->cols, (long long)b.size,
      (long long)n->cols);
  partial_begin(p);
  row_body(p, "lo", "hi");
  for (int s = 0; s < n->passes[0].nsums; s++) {
    KReg r = n->passes[0].sums[s];
    pr_line(p, "const %s f%d = mt_row_sum<%d, 1>(q%d);", pr_fold_type(p, r), (int)r, p->threads,
            (int)r);
    pr_line(p, "if (lane == 0) w%d[blockIdx.x] = f%d;", (int)r, (int)r);
  }
}
