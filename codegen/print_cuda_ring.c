/* print_cuda_ring.c - rows that are loaded ahead: while a group works on a row, asynchronous copies
 * bring its next ones into a ring in shared memory.
 *
 * Input: a nest whose groups take row after row. A thread copies just the granules that it uses
 * itself (a warp, where they are 32 bytes), so that waiting for them takes no barrier. Rows are
 * read from the ring in every pass: what is in flight or waits takes no registers. Values of the
 * next row as such are loaded into registers. */
#include "print_c.h"
#include "print_cuda_impl.h"

enum { MOST_STAGES = 8, WHOLE_WARP = 256 }; /* columns of a warp */

/* Loads that step with the rows and need nothing of the row but its indices. */
static bool steps_alone(const Printer *p, KReg r) {
  const KInstr *d = pr_instr(p, r);
  return p->loop && d->kind == KI_LOAD && !d->nin && !d->nguards &&
         (kindex_mask(&d->at) & ((1u << p->k->outer) - 1));
}

/* Granules of 32 bytes come in the order of memory, which is that of the columns when they are one
 * axis. */
static bool loads_ahead(const Printer *p, KReg r) {
  return steps_alone(p, r) && pr_vector_load(p, r) && pr_in_passes(p, r, false) &&
         (dtype_bytes(p->k->params[pr_instr(p, r)->param].dtype) < 4 || p->n->ncols == 1);
}

bool pr_scalar_ahead(const Printer *p, KReg r) {
  return steps_alone(p, r) && kreg_level(p->n, pr_instr(p, r)) == LV_ROW &&
         pr_in_passes(p, r, true);
}

static int granule_bytes(const Printer *p, KReg r) {
  return GRANULE * dtype_bytes(p->k->params[pr_instr(p, r)->param].dtype);
}

int pr_ring_bytes(const Printer *p) {
  int bytes = 0;
  for (int r = 0; r < p->k->ninstrs; r++)
    if (loads_ahead(p, r)) bytes += granule_bytes(p, r);
  return bytes;
}

int64_t pr_ring_choose(Printer *p, int64_t most, int64_t flight) {
  int64_t row = pr_ring_bytes(p) * p->groups * p->items * p->threads, at = 0;
  p->stages = 0;
  if (!row || 2 * row > most) return 0;
  p->stages = 2;
  while (p->stages < MOST_STAGES && (p->stages - 1) * row < flight && (p->stages + 1) * row <= most)
    p->stages++;
  for (int r = 0; r < p->k->ninstrs; r++) {
    if (!loads_ahead(p, r)) continue;
    p->cache[r] = CACHE_RING;
    p->ring[r] = at;
    at += p->stages * p->groups * p->items * p->threads * granule_bytes(p, r);
  }
  return at;
}

/* The slot of load r at granule `it` of the row `stage`. */
static const char *slot(Printer *p, KReg r, const char *stage) {
  int64_t item = (int64_t)p->threads * granule_bytes(p, r), row = p->groups * p->items * item;
  return pr_text(p, "x%d + %s * %lld + it * %lld", (int)r, stage, (long long)row, (long long)item);
}

const char *pr_ring_value(Printer *p, KReg r) {
  return pr_text(p, "mt_ring_read<%s, %s>(%s)",
                 c_memory_type(p->k->params[pr_instr(p, r)->param].dtype),
                 p->thrifty ? "true" : "false", slot(p, r, "stage"));
}

/* Threads of a warp exchange the halves of their granules. */
static void meet(Printer *p) {
  for (int r = 0; r < p->k->ninstrs; r++)
    if (p->cache[r] == CACHE_RING && granule_bytes(p, r) == 32) {
      pr_line(p, "__syncwarp();");
      return;
    }
}

static void fill_granule(Printer *p, const char *stage, const char *left) {
  pr_columns(p, "c");
  for (int r = 0; r < p->k->ninstrs; r++) {
    if (p->cache[r] != CACHE_RING) continue;
    const KInstr *d = pr_instr(p, r);
    Str at = {.arena = p->out.arena};
    c_index(&at, &d->at, p->n);
    pr_line(p, "mt_ring_fill(%s, p%d + %s, %s);", slot(p, r, stage), d->param, at.text, left);
  }
}

/* Starts the copies of row `row`, when there is one. */
static void fill(Printer *p, const RowLoop *l, const char *row, const char *stage) {
  pr_open(p, "if (%s < %s) {", row, l->end);
  pr_row_index(p, row);
  pr_line(p, "#pragma unroll");
  pr_open(p, "for (int it = 0; it < %lld; it++) {", (long long)p->items);
  pr_line(p, "const %s c = %s + (it * %d + lane) * %d;", p->index, l->from, p->threads, GRANULE);
  fill_granule(p, stage,
               p->exact ? pr_text(p, "%d", WHOLE_WARP) : pr_text(p, "(int)(%s - c)", l->to));
  pr_close(p);
  pr_close(p);
  pr_line(p, "mt_copy_commit();");
}

void pr_refill(Printer *p) {
  pr_open(p, "if (later < end) {");
  pr_row_index(p, "later");
  fill_granule(p, "stage", pr_text(p, "%d", GRANULE));
  pr_close(p);
}

static void begin(Printer *p, const RowLoop *l) {
  pr_line(p, "extern __shared__ __align__(16) char mt_shared[];");
  for (int r = 0; r < p->k->ninstrs; r++)
    if (p->cache[r] == CACHE_RING)
      pr_line(p, "const uint32_t x%d = mt_ring<%s>(mt_shared + %lld, group * %lld + lane);", r,
              c_memory_type(p->k->params[pr_instr(p, r)->param].dtype), (long long)p->ring[r],
              (long long)(p->items * p->threads));
  pr_line(p, "int stage = 0;");
  pr_line(p, "#pragma unroll");
  pr_open(p, "for (int s = 0; s < %d; s++) {", p->stages);
  fill(p, l, pr_text(p, "%s + group + s * %s", l->first, l->step), "s");
  pr_close(p);
}

/* ---- values of rows ---- */
static bool any_scalar(const Printer *p) {
  for (int r = 0; r < p->k->ninstrs; r++)
    if (pr_scalar_ahead(p, r)) return true;
  return false;
}

static void load_scalars(Printer *p, const char *row, const char *end) {
  pr_open(p, "if (%s < %s) {", row, end);
  pr_row_index(p, row);
  for (int r = 0; r < p->k->ninstrs; r++) {
    if (!pr_scalar_ahead(p, r)) continue;
    Str at = {.arena = p->out.arena};
    c_index(&at, &pr_instr(p, r)->at, p->n);
    pr_line(p, "n%d = p%d[%s];", r, pr_instr(p, r)->param, at.text);
  }
  pr_close(p);
}

static void begin_scalars(Printer *p, const RowLoop *l) {
  if (!any_scalar(p)) return;
  for (int r = 0; r < p->k->ninstrs; r++)
    if (pr_scalar_ahead(p, r))
      pr_line(p, "%s n%d = 0;", c_memory_type(p->k->params[pr_instr(p, r)->param].dtype), r);
  load_scalars(p, pr_text(p, "%s + group", l->first), l->end);
}

void pr_next_scalars(Printer *p) {
  if (any_scalar(p)) load_scalars(p, "next", "end");
}

/* ---- the loop ---- */
void pr_row_loop(Printer *p, const RowLoop *l, void (*after)(Printer *p)) {
  pr_line(p, "const %s end = %s;", p->index, l->end);
  RowLoop loop = *l;
  loop.end = "end";
  if (p->stages) begin(p, &loop);
  begin_scalars(p, &loop);
  pr_line(p, "int odd = 0;");
  pr_line(p, "#pragma unroll 1");
  pr_open(p, "for (%s r = %s + group; r < end; r += %s, odd ^= 1) {", p->index, l->first, l->step);
  pr_line(p, "const %s next = r + %s;", p->index, l->step);
  if (p->stages) pr_line(p, "const %s later = r + %d * %s;", p->index, p->stages, l->step);
  pr_row_index(p, "r");
  if (p->stages) {
    pr_line(p, "mt_copy_wait<%d>();", p->stages - 1);
    meet(p);
  }
  pr_row_body(p, l->from, l->to);
  if (after) after(p);
  if (p->stages) {
    meet(p);
    if (p->refills)
      pr_line(p, "mt_copy_commit();");
    else
      fill(p, &loop, "later", "stage");
    pr_line(p, "stage = stage == %d ? 0 : stage + 1;", p->stages - 1);
  }
  pr_close(p);
}
