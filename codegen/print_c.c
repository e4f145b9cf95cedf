/* print_c.c - a Kernel as one C function: loops, passes, reductions. See kir.h for the orders of
 * summation.
 *
 * Inner loops run over 16 lanes or over all columns under `omp simd`: operands may be the same
 * memory as results, but then element by element, so that iterations are independent. Threads share
 * rows, fixed blocks or elements, and only where the work is worth starting them. */
#include "print_c.h"

#include <stdlib.h>
#include <string.h>

enum { THREAD_WORK = 60000 }; /* about operations: some 10 microseconds */

typedef struct {
  const Kernel *k;
  const KNest *n;
  Str out;
  int depth;
  bool *buffered; /* kept registers that an earlier pass has put into their buffer */
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
static void open(Printer *p, const char *text) {
  line(p, "%s", text);
  p->depth++;
}
static void openf(Printer *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void openf(Printer *p, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  open(p, arena_vprintf(p->out.arena, fmt, ap));
  va_end(ap);
}
static void close(Printer *p) {
  p->depth--;
  line(p, "}");
}
static void pragma(Printer *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void pragma(Printer *p, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  line(p, "#pragma omp %s", arena_vprintf(p->out.arena, fmt, ap));
  va_end(ap);
}

static const KInstr *instr(const Printer *p, KReg r) {
  return &p->k->instrs[r];
}
static bool threads_pay(const Printer *p) {
  return p->n->work >= THREAD_WORK;
}

/* ---- registers ---- */

static void define(Printer *p, KReg r) {
  Str e = {.arena = p->out.arena};
  c_expression(&e, p->k, p->n, r);
  line(p, "const %s v%d = %s;", c_register_type(instr(p, r)->dtype), (int)r, e.text);
}

/* `flat` is the column's name in row buffers. */
static void define_element(Printer *p, KReg r, const char *flat, bool first) {
  if (!instr(p, r)->kept) {
    define(p, r);
  } else if (first) {
    define(p, r);
    line(p, "k%d[%s] = v%d;", (int)r, flat, (int)r);
  } else {
    line(p, "const %s v%d = k%d[%s];", c_register_type(instr(p, r)->dtype), (int)r, (int)r, flat);
  }
}

static void store(Printer *p, const KStore *s) {
  Str e = {.arena = p->out.arena};
  c_store(&e, p->k, p->n, s);
  line(p, "%s", e.text);
}

/* ---- reductions ---- */

/* Type, neutral element and the function that folds lanes, of a register that a reduction makes. */
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
static const char *fold_name(const Printer *p, KReg r) {
  return instr(p, r)->op == OP_SUM ? "sum" : "max";
}

static void lanes_begin(Printer *p, char name, KReg r) {
  Fold f = fold_of(p, r);
  line(p, "%s %c%d[16];", f.type, name, (int)r);
  line(p, "for (int l = 0; l < 16; l++) %c%d[l] = %s;", name, (int)r, f.start);
  if (instr(p, r)->op == OP_ARGMAX) {
    line(p, "int32_t %c%dat[16];", name, (int)r);
    line(p, "for (int l = 0; l < 16; l++) %c%dat[l] = l;", name, (int)r);
  }
}

/* Folds register `value` into lane `lane` of the lanes of r. */
static void lanes_add(Printer *p, KReg r, const char *lane, const char *flat) {
  KReg v = instr(p, r)->in[0];
  switch (instr(p, r)->op) {
    case OP_SUM:
      line(p, "s%d[%s] += v%d;", (int)r, lane, (int)v);
      break;
    case OP_AMAX:
      line(p, "s%d[%s] = mt_max_%s(s%d[%s], v%d);", (int)r, lane, fold_of(p, r).suffix, (int)r,
           lane, (int)v);
      break;
    default:
      line(p, "const int o%d = mt_over_%s(v%d, s%d[%s]);", (int)r, fold_of(p, r).suffix, (int)v,
           (int)r, lane);
      line(p, "s%dat[%s] = o%d ? (int32_t)(%s) : s%dat[%s];", (int)r, lane, (int)r, flat, (int)r,
           lane);
      line(p, "s%d[%s] = o%d ? v%d : s%d[%s];", (int)r, lane, (int)r, (int)v, (int)r, lane);
  }
}

/* Lanes of a block become one entry of the lanes of blocks. */
static void block_end(Printer *p, KReg r, const char *block) {
  if (instr(p, r)->op == OP_ARGMAX)
    line(p, "mt_argmax_block_%s(t%d, t%dat, s%d, s%dat);", fold_of(p, r).suffix, (int)r, (int)r,
         (int)r, (int)r);
  else if (instr(p, r)->op == OP_SUM)
    line(p, "t%d[%s & 15] += mt_lanes_sum_%s(s%d);", (int)r, block, fold_of(p, r).suffix, (int)r);
  else
    line(p, "t%d[%s & 15] = mt_max_%s(t%d[%s & 15], mt_lanes_max_%s(s%d));", (int)r, block,
         fold_of(p, r).suffix, (int)r, block, fold_of(p, r).suffix, (int)r);
}

static const char *lanes_value(Printer *p, char name, KReg r) {
  if (instr(p, r)->op == OP_ARGMAX)
    return arena_printf(p->out.arena, "mt_lanes_argmax_%s(%c%d, %c%dat)", fold_of(p, r).suffix,
                        name, (int)r, name, (int)r);
  return arena_printf(p->out.arena, "mt_lanes_%s_%s(%c%d)", fold_name(p, r), fold_of(p, r).suffix,
                      name, (int)r);
}

/* ---- one pass over the columns ---- */

typedef struct {
  const KPass *pass;
  int nfolds; /* reductions, and sums over everything */
  KReg *folds;
} PassView;

static bool lane_sum(const Printer *p, KReg r) {
  return p->k->flat_sums && instr(p, r)->kind == KI_SUM;
}

static const char *inner_name(const Printer *p) {
  return arena_printf(p->out.arena, "i%d", p->n->group[p->n->nrows + p->n->ncols - 1].last);
}

/* Computes the registers of the pass for one element and does what the pass is for. */
static void element_body(Printer *p, const PassView *v, const char *flat, const char *lane) {
  const KPass *pass = v->pass;
  for (int i = 0; i < pass->nregs; i++)
    define_element(p, pass->regs[i], flat, !p->buffered[pass->regs[i]]);
  for (int i = 0; i < v->nfolds; i++) lanes_add(p, v->folds[i], lane, flat);
  for (int i = 0; i < pass->nsums; i++) {
    KReg r = pass->sums[i];
    if (lane_sum(p, r)) continue;
    Str at = {.arena = p->out.arena};
    c_index(&at, &instr(p, r)->column, p->n);
    line(p, "q%d[%s] += v%d;", (int)r, at.text, (int)instr(p, r)->in[0]);
  }
  for (int i = 0; i < pass->nstores; i++) store(p, &pass->stores[i]);
}

/* Indices of several column loops from the flat one. */
static void split_flat(Printer *p, const char *flat) {
  int64_t below = 1;
  for (int g = p->n->nrows + p->n->ncols - 1; g >= p->n->nrows; g--) {
    const KGroup *group = &p->n->group[g];
    const char *part =
        below == 1 ? flat : arena_printf(p->out.arena, "%s / %lld", flat, (long long)below);
    if (g == p->n->nrows)
      line(p, "const int64_t i%d = %s;", group->last, part);
    else
      line(p, "const int64_t i%d = %s %% %lld;", group->last, part, (long long)group->dim);
    below *= group->dim;
  }
}

static void lane_body(Printer *p, const PassView *v, const char *flat_value) {
  const char *flat = "f";
  if (p->n->ncols == 1) {
    flat = inner_name(p);
    line(p, "const int64_t %s = %s;", flat, flat_value);
  } else {
    line(p, "const int64_t f = %s;", flat_value);
    if (p->n->ncols)
      split_flat(p, "f");
    else
      line(p, "(void)f;");
  }
  element_body(p, v, flat, "l");
}

/* Sixteen at a time from `from` to `to` (from "0": `to` is a number), a multiple of 16 elements but
 * for a tail of `tail` at the end of the row. */
static void lane_loops(Printer *p, const PassView *v, const char *from, const char *to, bool whole,
                       bool tail) {
  if (whole) {
    openf(p, "for (int64_t c = %s; c + 16 <= %s; c += 16) {", from, to);
    pragma(p, "simd");
    open(p, "for (int l = 0; l < 16; l++) {");
    lane_body(p, v, "c + l");
    close(p);
    close(p);
  }
  if (tail) {
    const char *start = strcmp(from, "0")
                            ? arena_printf(p->out.arena, "%s + (%s - %s) / 16 * 16", from, to, from)
                            : arena_printf(p->out.arena, "%lld", atoll(to) / 16 * 16);
    openf(p, "for (int64_t c = %s, l = 0; c + l < %s; l++) {", start, to);
    lane_body(p, v, "c + l");
    close(p);
  }
}

/* The elements [from, to), at most `size` of them, into lanes; the result is in s, or in t when
 * there are blocks. */
static char range_loops(Printer *p, const PassView *v, const char *from, const char *to,
                        int64_t size, bool tail) {
  if (size <= KIR_BLOCK) {
    for (int i = 0; i < v->nfolds; i++) lanes_begin(p, 's', v->folds[i]);
    lane_loops(p, v, from, to, size >= KIR_LANES, tail);
    return 's';
  }
  for (int i = 0; i < v->nfolds; i++) lanes_begin(p, 't', v->folds[i]);
  openf(p, "for (int64_t b = %s, bi = 0; b < %s; b += %d, bi++) {", from, to, KIR_BLOCK);
  line(p, "const int64_t e = b + %d < %s ? b + %d : %s;", KIR_BLOCK, to, KIR_BLOCK, to);
  for (int i = 0; i < v->nfolds; i++) lanes_begin(p, 's', v->folds[i]);
  lane_loops(p, v, "b", "e", true, tail);
  for (int i = 0; i < v->nfolds; i++) block_end(p, v->folds[i], "bi");
  close(p);
  return 't';
}

static void fold_results(Printer *p, const PassView *v, char lanes) {
  for (int i = 0; i < v->nfolds; i++) {
    KReg r = v->folds[i];
    const char *value = lanes_value(p, lanes, r);
    if (instr(p, r)->rounds)
      value = arena_printf(p->out.arena, "mt_round_%s(%s)", dtype_name(instr(p, r)->dtype), value);
    line(p, "v%d = %s;", (int)r, value);
  }
}

/* Sums in full order over the elements: ranges, each folded on its own. */
static void full_pass(Printer *p, const PassView *v) {
  KRanges ranges = kir_ranges(p->n->cols);
  bool tail = ranges.size % KIR_LANES || p->n->cols % KIR_LANES;
  for (int i = 0; i < v->nfolds; i++) {
    KReg r = v->folds[i];
    if (!lane_sum(p, r))
      line(p, "%s u%d[%lld];", fold_of(p, r).type, (int)r, (long long)ranges.blocks);
  }
  if (threads_pay(p)) pragma(p, "parallel for schedule(static)");
  openf(p, "for (int64_t q = 0; q < %lld; q++) {", (long long)ranges.blocks);
  line(p, "const int64_t lo = q * %lld, hi = lo + %lld < %lld ? lo + %lld : %lld;",
       (long long)ranges.size, (long long)ranges.size, (long long)p->n->cols,
       (long long)ranges.size, (long long)p->n->cols);
  char lanes = range_loops(p, v, "lo", "hi", ranges.size, tail);
  for (int i = 0; i < v->nfolds; i++) {
    KReg r = v->folds[i];
    line(p, "%c%d[q] = %s;", lane_sum(p, r) ? 'q' : 'u', (int)r, lanes_value(p, lanes, r));
  }
  close(p);
  for (int i = 0; i < v->nfolds; i++) {
    KReg r = v->folds[i];
    if (lane_sum(p, r)) continue; /* folded before the nests that read it */
    const char *value = arena_printf(p->out.arena, "mt_%s_%s(u%d, %lld)", fold_name(p, r),
                                     fold_of(p, r).suffix, (int)r, (long long)ranges.blocks);
    if (instr(p, r)->rounds)
      value = arena_printf(p->out.arena, "mt_round_%s(%s)", dtype_name(instr(p, r)->dtype), value);
    line(p, "v%d = %s;", (int)r, value);
  }
}

static void plain_pass(Printer *p, const PassView *v) {
  const KNest *n = p->n;
  if (!n->ncols) {
    open(p, "{");
    element_body(p, v, "0", "0");
    close(p);
    return;
  }
  for (int g = n->nrows; g < n->nrows + n->ncols; g++) {
    if (g == n->nrows + n->ncols - 1) {
      bool threads = n->map && !n->nrows && threads_pay(p);
      pragma(p, threads ? "parallel for simd schedule(static)" : "simd");
    }
    int x = n->group[g].last;
    openf(p, "for (int64_t i%d = 0; i%d < %lld; i%d++) {", x, x, (long long)n->group[g].dim, x);
  }
  Str where = {.arena = p->out.arena};
  int64_t below = 1;
  for (int g = n->nrows + n->ncols - 1; g >= n->nrows; g--) {
    str_addf(&where, "%si%d * %lld", below == 1 ? "" : " + ", n->group[g].last, (long long)below);
    below *= n->group[g].dim;
  }
  element_body(p, v, n->ncols == 1 ? inner_name(p) : where.text, NULL);
  for (int g = 0; g < n->ncols; g++) close(p);
}

static bool in_full_order(const Printer *p, KReg r) {
  return instr(p, r)->full && instr(p, r)->op == OP_SUM;
}

static void row_pass(Printer *p, const PassView *v) {
  int64_t n = p->n->cols;
  open(p, "{");
  char lanes =
      range_loops(p, v, "0", arena_printf(p->out.arena, "%lld", (long long)n), n, n % KIR_LANES);
  fold_results(p, v, lanes);
  close(p);
}

/* The loops of a pass: reductions in full order go by ranges, others through the row; where both
 * occur, the rest of the pass goes with the latter. */
static void one_pass(Printer *p, const KPass *pass) {
  PassView full = {.pass = pass}, row = {.pass = pass};
  int most = pass->nreduces + pass->nsums + 1;
  full.folds = arena_array(p->out.arena, KReg, most);
  row.folds = arena_array(p->out.arena, KReg, most);
  for (int i = 0; i < most - 1; i++) {
    KReg r = i < pass->nreduces ? pass->reduces[i] : pass->sums[i - pass->nreduces];
    if (i >= pass->nreduces && !lane_sum(p, r)) continue;
    PassView *v = in_full_order(p, r) ? &full : &row;
    v->folds[v->nfolds++] = r;
    if (i < pass->nreduces) line(p, "%s v%d;", c_register_type(instr(p, r)->dtype), (int)r);
  }
  KPass bare = *pass;
  if (full.nfolds && row.nfolds) {
    bare.nstores = bare.nsums = 0;
    full.pass = &bare;
  }
  if (full.nfolds) full_pass(p, &full);
  if (row.nfolds) row_pass(p, &row);
  if (!full.nfolds && !row.nfolds && (pass->nsums || pass->nstores)) plain_pass(p, &row);
  for (int i = 0; i < pass->nregs; i++)
    if (instr(p, pass->regs[i])->kept) p->buffered[pass->regs[i]] = true;
}

/* ---- rows ---- */

static void row_body(Printer *p) {
  const KNest *n = p->n;
  memset(p->buffered, 0, (size_t)p->k->ninstrs);
  for (int r = 0; r < p->k->ninstrs; r++)
    if (instr(p, r)->kept && !n->side && !n->late)
      line(p, "%s k%d[%lld] __attribute__((aligned(64)));", c_register_type(instr(p, r)->dtype), r,
           (long long)n->cols);
  for (int i = 0; i <= n->npasses; i++) {
    const KPass *pass = &n->passes[i];
    for (int r = 0; r < pass->nrow_regs; r++) define(p, pass->row_regs[r]);
    if (i < n->npasses) one_pass(p, pass);
  }
  for (int i = 0; i < n->nrow_stores; i++) {
    const KStore *s = &n->row_stores[i];
    /* A value that lacks some of the rows' axes is the same for all of them: one row stores it. */
    Str guard = {.arena = p->out.arena};
    for (int g = 0; g < n->nrows; g++)
      if (!(s->mask >> n->group[g].last & 1))
        str_addf(&guard, "%si%d == 0", guard.len ? " && " : "if (", n->group[g].last);
    if (guard.len) openf(p, "%s) {", guard.text);
    store(p, s);
    if (guard.len) close(p);
  }
}

static void row_indices(Printer *p, const char *row) {
  int64_t below = 1;
  for (int g = p->n->nrows - 1; g >= 0; g--) {
    const KGroup *group = &p->n->group[g];
    const char *part =
        below == 1 ? row : arena_printf(p->out.arena, "%s / %lld", row, (long long)below);
    if (g)
      line(p, "const int64_t i%d = %s %% %lld;", group->last, part, (long long)group->dim);
    else
      line(p, "const int64_t i%d = %s;", group->last, part);
    below *= group->dim;
  }
}

static bool has_block_sums(const KNest *n, const Kernel *k) {
  if (n->late || n->side || k->flat_sums) return false;
  int sums = n->nrow_sums;
  for (int i = 0; i < n->npasses; i++) sums += n->passes[i].nsums;
  return sums > 0;
}

/* Rows in fixed blocks, each with partials of its own. */
static void block_rows(Printer *p) {
  const KNest *n = p->n;
  KRanges ranges = kir_ranges(n->rows);
  if (threads_pay(p)) pragma(p, "parallel for schedule(static)");
  openf(p, "for (int64_t q = 0; q < %lld; q++) {", (long long)ranges.blocks);
  line(p, "const int64_t r0 = q * %lld, r1 = r0 + %lld < %lld ? r0 + %lld : %lld;",
       (long long)ranges.size, (long long)ranges.size, (long long)n->rows, (long long)ranges.size,
       (long long)n->rows);
  for (int i = 0; i < n->npasses; i++)
    for (int j = 0; j < n->passes[i].nsums; j++) {
      KReg r = n->passes[i].sums[j];
      line(p, "%s *const q%d = w%d + q * %lld;", fold_of(p, r).type, (int)r, (int)r,
           (long long)instr(p, r)->columns);
      line(p, "for (int64_t c = 0; c < %lld; c++) q%d[c] = 0;", (long long)instr(p, r)->columns,
           (int)r);
    }
  bool blocks = ranges.size > KIR_BLOCK;
  for (int i = 0; i < n->nrow_sums; i++) {
    lanes_begin(p, 's', n->row_sums[i]);
    if (blocks) lanes_begin(p, 't', n->row_sums[i]);
  }
  open(p, "for (int64_t r = r0; r < r1; r++) {");
  row_indices(p, "r");
  row_body(p);
  for (int i = 0; i < n->nrow_sums; i++) {
    KReg r = n->row_sums[i];
    line(p, "s%d[(r - r0) & 15] += v%d;", (int)r, (int)instr(p, r)->in[0]);
    if (!blocks) continue;
    openf(p, "if (((r - r0) & %d) == %d || r == r1 - 1) {", KIR_BLOCK - 1, KIR_BLOCK - 1);
    block_end(p, r, arena_printf(p->out.arena, "(r - r0) / %d", KIR_BLOCK));
    line(p, "for (int l = 0; l < 16; l++) s%d[l] = 0;", (int)r);
    close(p);
  }
  close(p);
  for (int i = 0; i < n->nrow_sums; i++)
    line(p, "w%d[q] = %s;", (int)n->row_sums[i],
         lanes_value(p, blocks ? 't' : 's', n->row_sums[i]));
  close(p);
}

static void plain_rows(Printer *p) {
  const KNest *n = p->n;
  if (n->nrows && threads_pay(p)) {
    if (n->nrows > 1)
      pragma(p, "parallel for collapse(%d) schedule(static)", n->nrows);
    else
      pragma(p, "parallel for schedule(static)");
  }
  for (int g = 0; g < n->nrows; g++) {
    int x = n->group[g].last;
    openf(p, "for (int64_t i%d = 0; i%d < %lld; i%d++) {", x, x, (long long)n->group[g].dim, x);
  }
  row_body(p);
  for (int g = 0; g < n->nrows; g++) close(p);
}

/* ---- the function ---- */

/* Second stage of the sums over rows: afterwards q holds one sum for each column. */
static void fold_sums(Printer *p) {
  for (int i = 0; i < p->k->nnests; i++) {
    const KNest *n = &p->k->nests[i];
    if (n->late || n->side) continue;
    int64_t blocks = kir_ranges(p->k->flat_sums ? n->cols : n->rows).blocks;
    for (int r = 0; r < p->k->ninstrs; r++) {
      const KInstr *s = instr(p, r);
      if (s->kind != KI_SUM) continue;
      const char *suffix = fold_of(p, r).suffix;
      if (s->full)
        line(p, "w%d[0] = mt_sum_%s(w%d, %lld);", r, suffix, r, (long long)blocks);
      else
        line(p, "mt_fold_%s(w%d, %lld, %lld);", suffix, r, (long long)blocks,
             (long long)s->columns);
    }
  }
}

static void print_nest(Printer *p, const KNest *n) {
  p->n = n;
  open(p, "{");
  if (n->late || p->k->flat_sums)
    for (int r = 0; r < p->k->ninstrs; r++)
      if (instr(p, r)->kind == KI_SUM) line(p, "%s *const q%d = w%d;", fold_of(p, r).type, r, r);
  if (has_block_sums(n, p->k))
    block_rows(p);
  else
    plain_rows(p);
  close(p);
}

static void print_params(Printer *p) {
  const Kernel *k = p->k;
  for (int i = 0; i < k->nparams; i++) {
    const KParam *param = &k->params[i];
    const char *type = c_memory_type(param->dtype);
    line(p, "%s%s *const p%d = arg[%d]; /* %s %s */", param->out ? "" : "const ", type, i, i,
         dtype_name(param->dtype), shape_text(p->out.arena, &param->shape));
  }
  for (int r = 0; r < k->ninstrs; r++)
    if (instr(p, r)->kind == KI_SUM)
      line(p, "%s *const w%d = (%s *)arg[%d] + %lld; /* partial sums [%lld, %lld] */",
           fold_of(p, r).type, r, fold_of(p, r).type, k->nparams, (long long)instr(p, r)->slot,
           (long long)k->blocks, (long long)instr(p, r)->columns);
}

const char *kernel_print_c(const Kernel *k, Arena *a) {
  Printer p = {.k = k, .out = {.arena = a}, .depth = 1};
  p.buffered = arena_array(a, bool, k->ninstrs + 1);
  str_add(&p.out, "(void *const *arg");
  for (int i = 0; i < k->nkeys; i++) str_addf(&p.out, ", const uint64_t key%d", i);
  str_add(&p.out, ") {\n");
  print_params(&p);
  for (int i = 0; i < k->nuniform; i++) define(&p, k->uniform[i]);
  bool folded = !k->has_workspace;
  for (int i = 0; i < k->nnests; i++) {
    if (k->nests[i].late && !folded) {
      fold_sums(&p);
      folded = true;
    }
    print_nest(&p, &k->nests[i]);
  }
  str_add(&p.out, "}\n");
  return p.out.text;
}
