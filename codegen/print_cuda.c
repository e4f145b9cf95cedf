/* print_cuda.c - the CUDA printer: text, vectors, indices, maps and the functions of a kernel. See
 * print_cuda.h for the orders of summation; nests with rows are in print_cuda_rows.c.
 *
 * A map nest gives each thread a vector of consecutive elements. Loads and stores are 16 bytes wide
 * wherever the strides allow. */
#include <string.h>
#include "embed.h"
#include "prelude_c.h"
#include "print_c.h"
#include "print_cuda_impl.h"
#include "target.h"

EMBED_TEXT(cuda_prelude_loops, "codegen/cuda/prelude_loops.cu");

/* ---- text ---- */
void pr_line(Printer *p, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  for (int i = 0; i < p->depth; i++) str_add(&p->out, "  ");
  str_vaddf(&p->out, fmt, ap);
  str_add(&p->out, "\n");
  va_end(ap);
}
void pr_open(Printer *p, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  pr_line(p, "%s", arena_vprintf(p->out.arena, fmt, ap));
  va_end(ap);
  p->depth++;
}
void pr_close(Printer *p) {
  p->depth--;
  pr_line(p, "}");
}
const char *pr_text(Printer *p, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  const char *s = arena_vprintf(p->out.arena, fmt, ap);
  va_end(ap);
  return s;
}

/* A quotient of an element by what is no element: its reciprocal is made once. */
static bool shares_divisor(const Printer *p, const KInstr *d) {
  return d->kind == KI_OP && d->op == OP_DIV && dtype_is_float(d->dtype) &&
         kreg_level(p->n, d) == LV_ELEM && kreg_level(p->n, pr_instr(p, d->in[1])) != LV_ELEM &&
         pr_instr(p, d->in[1])->kind != KI_CONST;
}

/* The right-hand side of register r before it is rounded. */
static const char *unrounded(Printer *p, KReg r) {
  const KInstr *d = pr_instr(p, r);
  const char *code = pr_code_value(p, r);
  if (code) return code;
  if (d->near_one) return pr_text(p, "mt_tanh_far(v%d)", (int)d->in[0]);
  if (shares_divisor(p, d)) return pr_text(p, "mt_quotient(v%d, v%d)", (int)d->in[0], (int)d->in[1]);
  Str e = {.arena = p->out.arena};
  c_unrounded(&e, p->k, p->n, r);
  return e.text;
}

static void define(Printer *p, KReg r, const char *value) {
  const KInstr *d = pr_instr(p, r);
  if (d->rounds) value = pr_text(p, "mt_round_%s(%s)", dtype_name(d->dtype), value);
  pr_line(p, "const %s v%d = %s;", c_register_type(d->dtype), (int)r, value);
}

void pr_define(Printer *p, KReg r) {
  define(p, r, unrounded(p, r));
}

void pr_uniform(Printer *p) {
  for (int i = 0; i < p->k->nkeys; i++)
    pr_line(p, "const uint64_t key%d = (uint64_t)keys[%d] << 32 | keys[%d];", i, 2 * i + 1, 2 * i);
  for (int i = 0; i < p->k->nuniform; i++) pr_define(p, p->k->uniform[i]);
}

/* ---- blocks of sums ---- */
KRanges pr_sum_ranges(const Kernel *k) {
  int64_t n = k->flat_sums ? k->cols : k->rows,
          size = ceil_div(n, cuda_sum_blocks(k->flat_sums, n));
  if (k->flat_sums) size = round_up(size, GRANULE);
  return (KRanges){ceil_div(n, size), size};
}

int64_t cuda_workspace(const Kernel *k) {
  int64_t words = 0;
  for (int i = 0; i < k->ninstrs; i++)
    if (k->instrs[i].kind == KI_SUM) words += pr_sum_ranges(k).blocks * k->instrs[i].columns;
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

/* Consecutive elements of the innermost loop are consecutive in memory, and a vector of them is
 * aligned. Of a row that ends inside a granule, a load may take in what follows: at most to the
 * next 32 bytes of the arena. */
static bool vector_access(const Printer *p, const KIndex *at, int param, int width) {
  const KParam *q = &p->k->params[param];
  int bytes = width * dtype_bytes(q->dtype);
  if (bytes > VECTOR_BYTES) bytes = VECTOR_BYTES;
  return p->n->ncols > 0 && q->align >= bytes && index_aligned(at, pr_inner(p)->last, width);
}

bool pr_vector_load(const Printer *p, KReg r) {
  const KInstr *i = pr_instr(p, r);
  if (i->kind != KI_LOAD || p->width == 1 || kreg_level(p->n, i) != LV_ELEM || i->nguards)
    return false;
  /* The gathered row must be known before the vector: a row value. */
  if (i->nin && (i->gather % p->width || kreg_level(p->n, pr_instr(p, i->in[0])) == LV_ELEM))
    return false;
  return vector_access(p, &i->at, i->param, p->width);
}

bool pr_vector_store(const Printer *p, const KStore *s) {
  return p->width > 1 && vector_access(p, &s->at, s->param, p->width);
}

const char *pr_vector_type(Printer *p, int param) {
  return pr_text(p, "MtVector<%s, %d>", c_memory_type(p->k->params[param].dtype), p->width);
}

const char *pr_vector_value(Printer *p, KReg r) {
  const KInstr *l = pr_instr(p, r);
  Str at = {.arena = p->out.arena};
  if (l->nin)
    str_addf(&at, "mt_row(v%d, %lld) * %lld + ", (int)l->in[0], (long long)l->gather_rows,
             (long long)l->gather);
  c_index(&at, &l->at, p->n);
  return pr_text(p, "mt_vector<%s, %d>(p%d + %s)", c_memory_type(p->k->params[l->param].dtype),
                 p->width, l->param, at.text);
}

static bool is_half(DType t) {
  return t == DT_BF16 || t == DT_F16;
}

/* Memory that is moved in words of several elements. */
static bool is_packed(DType t) {
  return dtype_bytes(t) == 2 || t == DT_U8 || t == DT_BOOL;
}

const char *pr_vector_element(Printer *p, DType t, const char *name, const char *at) {
  if (is_packed(t)) return pr_text(p, "mt_%s_at(%s, %s)", dtype_name(t), name, at);
  Str e = {.arena = p->out.arena};
  c_loaded(&e, t, pr_text(p, "%s.x[%s]", name, at));
  return e.text;
}

/* What a store gathers before it goes to memory: short elements are packed on the way out. */
static const char *gathered_type(DType t) {
  return is_packed(t) ? c_register_type(t) : c_memory_type(t);
}

void pr_declare_stores(Printer *p, const KPass *pass) {
  int width = p->n->map ? p->width : GRANULE;
  for (int i = 0; i < pass->nstores; i++)
    pr_line(p, "MtVector<%s, %d> o%d;", gathered_type(p->k->params[pass->stores[i].param].dtype),
            width, pass->stores[i].param);
}

/* Packing rounds: a register that is stored is gathered before its own rounding, which then is of
 * use to other readers alone. */
static bool packs(const Printer *p, const KPass *pass, KReg r) {
  const KInstr *d = pr_instr(p, r);
  if (!d->rounds || !is_half(d->dtype) || d->kept) return false;
  bool here = false, stored = false;
  for (int i = 0; i < pass->nregs; i++) here |= pass->regs[i] == r;
  for (int i = 0; i < pass->nstores; i++)
    stored |=
        pass->stores[i].value == r && p->k->params[pass->stores[i].param].dtype == d->dtype;
  return here && stored;
}

static void element_register(Printer *p, const KPass *pass, bool rows, KReg r) {
  const KInstr *d = pr_instr(p, r);
  const char *type = c_register_type(d->dtype);
  if (pr_vector_load(p, r)) {
    const char *x =
        pr_vector_element(p, p->k->params[d->param].dtype, pr_text(p, "r%d", (int)r), "j");
    pr_line(p, "const %s v%d = %s;", type, (int)r, x);
  } else if (rows && d->kept && p->held[r]) {
    pr_line(p, "const %s v%d = k%d[it][j];", type, (int)r, (int)r);
  } else if (packs(p, pass, r)) {
    pr_line(p, "const float u%d = %s;", (int)r, unrounded(p, r));
    define(p, r, pr_text(p, "u%d", (int)r));
  } else {
    pr_define(p, r);
    if (rows && d->kept) pr_line(p, "k%d[it][j] = v%d;", (int)r, (int)r);
  }
}

void pr_element(Printer *p, const KPass *pass, bool rows) {
  for (int i = 0; i < pass->nregs; i++) element_register(p, pass, rows, pass->regs[i]);
  for (int i = 0; i < pass->nstores; i++) {
    const KStore *s = &pass->stores[i];
    DType t = p->k->params[s->param].dtype;
    Str e = {.arena = p->out.arena};
    if (is_packed(t))
      str_addf(&e, "%c%d", packs(p, pass, s->value) ? 'u' : 'v', (int)s->value);
    else
      c_stored(&e, t, pr_text(p, "v%d", (int)s->value));
    pr_line(p, "o%d.x[j] = %s;", s->param, e.text);
  }
}

/* The function that moves a gathered vector of s to memory. */
static const char *put_name(const Printer *p, const KPass *pass, const KStore *s) {
  DType t = p->k->params[s->param].dtype;
  if (!is_packed(t)) return "mt_put";
  if (dtype_bytes(t) == 1) return "mt_put_u8";
  if (t != DT_BF16) return t == DT_F16 ? "mt_put_f16" : "mt_put_u16";
  bool exact = pr_instr(p, s->value)->dtype == DT_BF16 && !packs(p, pass, s->value);
  return exact ? "mt_put_bf16_top" : "mt_put_bf16";
}

/* Element j of a gathered vector as a memory element. */
static const char *gathered(Printer *p, const KStore *s) {
  DType t = p->k->params[s->param].dtype;
  Str e = {.arena = p->out.arena};
  str_addf(&e, "o%d.x[j]", s->param);
  if (!is_packed(t)) return e.text;
  Str packed = {.arena = p->out.arena};
  c_stored(&packed, t, e.text);
  return packed.text;
}

const char *pr_store_guard(Printer *p, uint32_t mask) {
  Str guard = {.arena = p->out.arena};
  for (int g = 0; g < p->n->nrows; g++)
    if (!(mask >> p->n->group[g].last & 1))
      str_addf(&guard, "%si%d == 0", guard.len ? " && " : "", p->n->group[g].last);
  return guard.text;
}

void pr_store_vectors(Printer *p, const KPass *pass, const char *end, const char *whole) {
  for (int i = 0; i < pass->nstores; i++) {
    const KStore *s = &pass->stores[i];
    if (!pr_vector_store(p, s)) continue;
    Str at = {.arena = p->out.arena};
    c_index(&at, &s->at, p->n);
    const char *put =
        pr_text(p, "%s(p%d + %s, o%d);", put_name(p, pass, s), s->param, at.text, s->param);
    if (!end && whole && dtype_bytes(p->k->params[s->param].dtype) == 4) {
      pr_line(p, "mt_put_pair(p%d + %s, o%d, %s);", s->param, at.text, s->param, whole);
      continue;
    }
    if (!end) {
      pr_line(p, "%s", put);
      continue;
    }
    pr_open(p, "if (c + %d <= %s) {", GRANULE, end);
    pr_line(p, "%s", put);
    p->depth--;
    pr_open(p, "} else {");
    pr_line(p, "#pragma unroll");
    pr_line(p, "for (int j = 0; j < %d; j++) if (c + j < %s) (p%d + %s)[j] = %s;", GRANULE, end,
            s->param, at.text, gathered(p, s));
    pr_close(p);
  }
}

bool pr_scalar_stores(const Printer *p, const KPass *pass) {
  for (int i = 0; i < pass->nstores; i++)
    if (!pr_vector_store(p, &pass->stores[i])) return true;
  return false;
}

void pr_store_scalars(Printer *p, const KPass *pass) {
  for (int i = 0; i < pass->nstores; i++) {
    const KStore *s = &pass->stores[i];
    if (pr_vector_store(p, s)) continue;
    Str at = {.arena = p->out.arena};
    c_index(&at, &s->at, p->n);
    pr_line(p, "p%d[%s] = %s;", s->param, at.text, gathered(p, s));
  }
}

/* ---- indices ---- */
void pr_split(Printer *p, const char *flat, int from, int to, int64_t step) {
  int64_t below = 1;
  for (int g = to - 1; g >= from; g--) {
    const KGroup *group = &p->n->group[g];
    int64_t dim = g == to - 1 ? group->dim / step : group->dim;
    Str e = {.arena = p->out.arena};
    str_addf(&e, below == 1 ? "%s" : "%s / %lld", flat, (long long)below);
    if (g > from) str_addf(&e, " %% %lld", (long long)dim);
    if (g == to - 1 && step > 1)
      pr_line(p, "const %s h%d = (%s)(%s) * %lld;", p->index, group->last, p->index, e.text,
              (long long)step);
    else
      pr_line(p, "const %s i%d = (%s)(%s);", p->index, group->last, p->index, e.text);
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
    const KInstr *d = pr_instr(p, i);
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
static bool any_vector(const Printer *p, int bytes) {
  const KPass *pass = &p->n->passes[0];
  for (int i = 0; i < pass->nregs; i++)
    if (pr_vector_load(p, pass->regs[i]) &&
        dtype_bytes(p->k->params[pr_instr(p, pass->regs[i])->param].dtype) >= bytes)
      return true;
  for (int i = 0; i < pass->nstores; i++)
    if (pr_vector_store(p, &pass->stores[i]) &&
        dtype_bytes(p->k->params[pass->stores[i].param].dtype) >= bytes)
      return true;
  return false;
}

/* Elements of a thread: as many as one transaction moves of the widest operand, so that the
 * transactions of a warp are whole. */
static int widest(Printer *p, int64_t dim) {
  for (p->width = p->narrow ? 1 : GRANULE; p->width > 1; p->width /= 2)
    if (dim % p->width == 0 && any_vector(p, 1) &&
        !any_vector(p, VECTOR_BYTES / p->width + 1))
      return p->width;
  return 1;
}

static void map_nest(Printer *p, CudaFunction *f) {
  const KNest *n = p->n;
  const KPass *pass = &n->passes[0];
  int groups = n->nrows + n->ncols;
  p->width = groups ? widest(p, pr_inner(p)->dim) : 1;
  int64_t vectors = n->rows * n->cols / p->width;
  f->threads = MAP_THREADS;
  f->grid = ceil_div(vectors, MAP_THREADS);
  pr_line(p, "const int64_t t = (int64_t)blockIdx.x * %d + threadIdx.x;", MAP_THREADS);
  pr_line(p, "if (t >= %lld) return;", (long long)vectors);
  const char *flat = vectors < INT32_MAX ? "(unsigned)t" : "t";
  if (groups) pr_split(p, flat, 0, groups, p->width);
  bool wide = p->width > 1;
  int last = groups ? pr_inner(p)->last : 0;
  pr_uniform(p);
  for (int i = 0; i < pass->nrow_regs; i++) pr_define(p, pass->row_regs[i]);
  if (wide) {
    for (int i = 0; i < pass->nregs; i++)
      if (pr_vector_load(p, pass->regs[i]))
        pr_line(p, "%s r%d;", pr_vector_type(p, pr_instr(p, pass->regs[i])->param),
                (int)pass->regs[i]);
    pr_open(p, "{");
    pr_line(p, "const %s i%d = h%d;", p->index, last, last);
    for (int i = 0; i < pass->nregs; i++)
      if (pr_vector_load(p, pass->regs[i]))
        pr_line(p, "r%d = %s;", (int)pass->regs[i], pr_vector_value(p, pass->regs[i]));
    pr_close(p);
  }
  pr_declare_stores(p, pass);
  pr_line(p, "#pragma unroll");
  pr_open(p, "for (int j = 0; j < %d; j++) {", p->width);
  if (wide) pr_line(p, "const %s i%d = h%d + j;", p->index, last, last);
  pr_element(p, pass, false);
  pr_close(p);
  pr_open(p, "{");
  if (wide) pr_line(p, "const %s i%d = h%d;", p->index, last, last);
  pr_store_vectors(p, pass, NULL, NULL);
  pr_close(p);
  if (!pr_scalar_stores(p, pass)) return;
  pr_line(p, "#pragma unroll");
  pr_open(p, "for (int j = 0; j < %d; j++) {", p->width);
  if (wide) pr_line(p, "const %s i%d = h%d + j;", p->index, last, last);
  pr_store_scalars(p, pass);
  pr_close(p);
}

/* ---- second stage of sums over rows ---- */
static bool uses(const Printer *p, KReg r) {
  const KPass *pass = &p->n->passes[0];
  for (int i = 0; i < pass->nregs; i++)
    if (pass->regs[i] == r) return true;
  for (int i = 0; i < pass->nrow_regs; i++)
    if (pass->row_regs[i] == r) return true;
  return false;
}

/* q<reg> for every sum that the nest reads: range by range of the blocks, a warp each, then the
 * ranges in order. */
static void fold_sums(Printer *p, int groups, int lanes) {
  int64_t blocks = pr_sum_ranges(p->k).blocks;
  for (int r = 0; r < p->k->ninstrs; r++) {
    const KInstr *d = pr_instr(p, r);
    if (d->kind != KI_SUM || !uses(p, r)) continue;
    const char *type = pr_fold_type(p, r);
    Str c = {.arena = p->out.arena};
    c_index(&c, &d->column, p->n);
    if (groups > 1) pr_line(p, "__shared__ %s f%d[%d][%d];", type, r, groups, lanes);
    pr_line(p, "%s = mt_fold_range(w%d, %s, %lld, %lld, group, %d);",
            groups > 1 ? pr_text(p, "f%d[group][lane]", r) : pr_text(p, "%s s%d", type, r), r,
            c.text, (long long)blocks, (long long)d->columns, groups);
  }
  if (groups > 1) pr_line(p, "__syncthreads();");
  pr_line(p, "if (!inside || group) return;");
  for (int r = 0; r < p->k->ninstrs; r++) {
    if (pr_instr(p, r)->kind != KI_SUM || !uses(p, r)) continue;
    const char *type = pr_fold_type(p, r);
    if (groups > 1) {
      pr_line(p, "%s s%d = 0;", type, r);
      pr_line(p, "for (int g = 0; g < %d; g++) s%d += f%d[g][lane];", groups, r, r);
    }
    pr_line(p, "const MtFolded<%s> q%d = {s%d};", type, r, r);
  }
}

/* An element a thread; its sums are folded by all warps of the block when there are many blocks of
 * partials. */
static void late_nest(Printer *p, CudaFunction *f) {
  enum { MANY = 32, WARP = 32 };
  const KNest *n = p->n;
  const KPass *pass = &n->passes[0];
  int groups = pr_sum_ranges(p->k).blocks >= MANY ? MAP_THREADS / WARP : 1,
      lanes = MAP_THREADS / groups;
  int64_t elements = n->rows * n->cols;
  f->threads = MAP_THREADS;
  f->grid = ceil_div(elements, lanes);
  pr_line(p, "const int lane = threadIdx.x %% %d, group = threadIdx.x / %d;", lanes, lanes);
  pr_line(p, "const int64_t t0 = (int64_t)blockIdx.x * %d + lane;", lanes);
  pr_line(p, "const bool inside = t0 < %lld;", (long long)elements);
  pr_line(p, "const int64_t t = inside ? t0 : 0;");
  pr_split(p, elements < INT32_MAX ? "(unsigned)t" : "t", 0, n->nrows + n->ncols, 1);
  fold_sums(p, groups, lanes);
  pr_uniform(p);
  for (int i = 0; i < pass->nrow_regs; i++) pr_define(p, pass->row_regs[i]);
  pr_declare_stores(p, pass);
  pr_open(p, "for (int j = 0; j < 1; j++) {");
  pr_element(p, pass, false);
  pr_store_scalars(p, pass);
  pr_close(p);
}

/* ---- the functions ---- */
/* The main nest makes the partial sums; the others read them. */
static void print_params(Printer *p) {
  const Kernel *k = p->k;
  str_add(&p->out, "(");
  for (int i = 0; i < k->nparams; i++)
    str_addf(&p->out, "%s\n    %s%s *p%d /* %s %s */", i ? "," : "",
             k->params[i].out ? "" : "const ", c_memory_type(k->params[i].dtype), i,
             dtype_name(k->params[i].dtype), shape_text(p->out.arena, &k->params[i].shape));
  if (k->nkeys)
    str_addf(&p->out, "%s\n    const uint32_t *keys /* of random numbers, low word first */",
             k->nparams ? "," : "");
  if (cuda_workspace(k))
    str_addf(&p->out, "%s\n    float *w /* partial sums */", k->nparams ? "," : "");
  str_add(&p->out, ") {\n");
  KRanges b = pr_sum_ranges(k);
  int64_t slot = 0;
  for (int r = 0; r < k->ninstrs; r++) {
    if (k->instrs[r].kind != KI_SUM) continue;
    const char *type = pr_fold_type(p, r);
    pr_line(p, "%s *const w%d = (%s *)w + %lld; /* [%lld, %lld] */", type, r, type, (long long)slot,
            (long long)b.blocks, (long long)k->instrs[r].columns);
    slot += b.blocks * k->instrs[r].columns;
  }
}

/* Shared memory that a block may have, by compute capability. */
static int64_t shared_bytes(int sm) {
  int kib = sm == 90 || sm == 100 ? 227 : sm == 80 ? 163 : 99;
  return (int64_t)kib << 10;
}

int kernel_print_cuda(const Kernel *k, int sm, int choice, Arena *a, CudaFunction *out, int most,
                      const char **why) {
  if (k->nnests > most) {
    *why = arena_printf(a, "a kernel of %d launches", k->nnests);
    return 0;
  }
  for (int i = 0; i < k->nnests; i++) {
    Printer p = {.k = k,
                 .n = &k->nests[i],
                 .out = {.arena = a},
                 .depth = 1,
                 .width = 1,
                 .shared_most = shared_bytes(sm)};
    p.held = arena_array(a, bool, k->ninstrs + 1);
    p.cache = arena_array(a, uint8_t, k->ninstrs + 1);
    p.index = index_type(&p);
    p.ring = arena_array(a, int64_t, k->ninstrs + 1);
    p.thrifty = choice != CUDA_FULL;
    p.narrow = choice == CUDA_NARROW;
    out[i] = (CudaFunction){0};
    print_params(&p);
    if (k->flat_sums && !p.n->late && !p.n->side && pr_count_sums(p.n))
      pr_flat_nest(&p, &out[i]);
    else if (p.n->late)
      late_nest(&p, &out[i]);
    else if (p.n->map)
      map_nest(&p, &out[i]);
    else if (!p.n->side && (pr_count_sums(p.n) || p.n->nrow_sums))
      pr_sum_nest(&p, &out[i]);
    else
      pr_row_nest(&p, &out[i]);
    str_add(&p.out, "}\n");
    out[i].body = p.out.text;
    if (choice >= CUDA_ONE_BLOCK && out[i].resident) out[i].resident = 1;
    if (p.why) {
      *why = p.why;
      return 0;
    }
  }
  return k->nnests;
}

const char *cuda_function_text(const CudaFunction *f, const char *name, Arena *a) {
  const char *bounds = f->resident ? arena_printf(a, "%d, %d", f->threads, f->resident)
                                   : arena_printf(a, "%d", f->threads);
  return arena_printf(a, "extern \"C\" __global__ void __launch_bounds__(%s) %s%s", bounds, name,
                      f->body);
}

/* ---- prelude ---- */
/* Types and builtins that the C prelude names, and its functions that prelude_loops.cu has its own
 * of. */
static const char before[] =
    "// Types of the C prelude; no header is included.\n"
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
    "#define __builtin_sqrtf sqrtf\n"
    "#define __builtin_floorf floorf\n";
static const char *const replaced[] = {"mt_round_bf16", "mt_to_bf16", "mt_from_f16", "mt_to_f16",
                                       "mt_round_f16",  "mt_max",     "mt_min",      "mt_exp",
                                       "mt_log",        "mt_tanh",    "mt_erf", "mt_index"};

const char *cuda_prelude_text(Arena *a) {
  Str s = {.arena = a};
  const char *body = prelude_c;
  static const char include[] = "#include <stdint.h>\n";
  if (str_starts(body, include)) body += sizeof include - 1;
  str_add(&s, before);
  for (int i = 0; i < COUNT_OF(replaced); i++)
    str_addf(&s, "#define %s mt_c_%s\n", replaced[i], replaced[i] + 3);
  str_add(&s, body);
  for (int i = 0; i < COUNT_OF(replaced); i++) str_addf(&s, "#undef %s\n", replaced[i]);
  str_add(&s, "#define FORMAT_MUL __fmul_rn\n#define FORMAT_ADD __fadd_rn\n");
  str_add(&s, prelude_formats);
  str_add(&s, cuda_prelude_loops);
  return s.text;
}
