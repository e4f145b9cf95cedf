/* print_cuda_sums.c - sums over rows: partial sums of blocks of rows.
 *
 * A block takes consecutive rows (pr_sum_ranges), deals them to its groups in turn, and each thread
 * adds its own columns; then the groups are added in order through shared memory. Rows come through
 * a ring (print_cuda_ring.c). A second launch adds the blocks' partial sums (print_cuda.c). */
#include <string.h>
#include "print_c.h"
#include "print_cuda_impl.h"

enum {
  WARP = 32,
  MAX_THREADS = 512,   /* of a row */
  LIGHT_BLOCK = 512,   /* threads of a block whose threads have few sums: two share an SM */
  MIDDLE_BLOCK = 256,  /* of more sums, two with 128 registers each */
  HEAVY_BLOCK = 384,   /* of most sums, one with 168 registers */
  LIGHT_NEED = 46,     /* registers of sums and of one granule that leave room for the rest in 64 */
  MIDDLE_NEED = 84,    /* the same in 128 */
  HEAVY_NEED = 100,    /* the same in 168 */
  ALONE_NEED = 60,     /* the same in 128, without a ring */
  NARROW_NEED = 160,   /* the same in 255 */
  MOST_SUMS = 72,      /* registers of sums where a row folds: fewer threads fold faster */
  PLAIN_SUMS = 24,     /* where it does not */
  SLICE_THREADS = 128, /* of a slice of the columns */
  SLICE_BLOCKS = 8,    /* of an SM */
  FLAT_ITEMS = 4,      /* granules in flight of a sum of everything */
  MOST_ITEMS = 8,
  SM_REGISTERS = 65536,
  IN_FLIGHT = 24 << 10, /* bytes on their way to each of two blocks */
  LEAST_THREADS = 256,  /* of an SM, so that it is busy */
  KEEP_ALONE = 48,      /* registers of vectors that stay for a row, without a ring */
  SHARED_MARGIN = 2048  /* bytes for the folds of rows */
};

int pr_count_sums(const KNest *n) {
  int sums = 0;
  for (int i = 0; i < n->npasses; i++) sums += n->passes[i].nsums;
  return sums;
}

/* ---- partial sums ---- */
static void partial_begin(Printer *p) {
  for (int i = 0; i < p->n->npasses; i++)
    for (int s = 0; s < p->n->passes[i].nsums; s++) {
      KReg r = p->n->passes[i].sums[s];
      if (pr_lane_sum(p, r))
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
  pr_granules_open(p, from, to);
  pr_line(p, "#pragma unroll");
  pr_line(p, "for (int j = 0; j < %d; j++) if (c + j < %s) w%d[block * %lld + c + j] = q%d[it][j];",
          GRANULE, to, (int)r, (long long)p->n->cols, (int)r);
  pr_granules_close(p);
  pr_close(p);
}

/* Several: they are added in order through shared memory, as many sums at a time as it holds. */
static void write_groups(Printer *p, KReg r, int64_t at) {
  int64_t width = p->items * p->threads * GRANULE;
  pr_line(p, "#pragma unroll");
  pr_open(p, "for (int it = 0; it < %lld; it++) {", (long long)p->items);
  pr_line(p, "#pragma unroll");
  pr_line(
      p,
      "for (int j = 0; j < %d; j++) ((%s *)mt_shared)[%lld + group * %lld + (it * %d + j) * %d + "
      "lane] = q%d[it][j];",
      GRANULE, pr_fold_type(p, r), (long long)at, (long long)width, GRANULE, p->threads, (int)r);
  pr_close(p);
}

static void add_groups(Printer *p, KReg r, int64_t at, const char *from, const char *to) {
  int64_t width = p->items * p->threads * GRANULE;
  const char *type = pr_fold_type(p, r);
  pr_open(p, "for (int x = threadIdx.x; x < %lld; x += %d) {", (long long)width,
          p->groups * p->threads);
  pr_line(p, "%s sum = 0;", type);
  pr_line(p, "#pragma unroll");
  pr_line(p, "for (int g = 0; g < %d; g++) sum += ((%s *)mt_shared)[%lld + g * %lld + x];",
          p->groups, type, (long long)at, (long long)width);
  pr_line(p, "const int c = %s + (x / %d * %d + x %% %d) * %d + x / %d %% %d;", from,
          p->threads * GRANULE, p->threads, p->threads, GRANULE, p->threads, GRANULE);
  pr_line(p, "if (c < %s) w%d[block * %lld + c] = sum;", to, (int)r, (long long)p->n->cols);
  pr_close(p);
}

static void fold_partials(Printer *p, int n, const KReg *sums, int shared, const char *from,
                          const char *to) {
  int64_t width = p->groups * p->items * p->threads * GRANULE;
  int most = (int)(shared / (width * 4));
  for (int i = 0; i < n; i += most) {
    int end = i + most < n ? i + most : n;
    pr_line(p, "__syncthreads();");
    for (int k = i; k < end; k++) write_groups(p, sums[k], (k - i) * width);
    pr_line(p, "__syncthreads();");
    for (int k = i; k < end; k++) add_groups(p, sums[k], (k - i) * width, from, to);
  }
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

static void partial_end(Printer *p, const CudaFunction *f, const char *from, const char *to) {
  int n = 0;
  KReg *sums = arena_array(p->out.arena, KReg, p->k->ninstrs + 1);
  for (int i = 0; i < p->n->npasses; i++)
    for (int s = 0; s < p->n->passes[i].nsums; s++) sums[n++] = p->n->passes[i].sums[s];
  if (p->groups > 1 && n) {
    pr_line(p, "extern __shared__ __align__(16) char mt_shared[];");
    fold_partials(p, n, sums, f->shared, from, to);
  } else {
    for (int i = 0; i < n; i++) store_partials(p, sums[i], from, to);
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

/* ---- shape ---- */
static bool folds(const KNest *n) {
  for (int i = 0; i < n->npasses; i++)
    if (n->passes[i].nreduces) return true;
  return false;
}

/* Sums of columns alone: blocks take slices of a long row. */
static bool can_slice(const KNest *n) {
  return !n->nrow_sums && !n->nrow_stores && n->npasses == 1 && !folds(n);
}

/* Registers of a thread for the sums of its columns and for vectors: those of one granule where
 * rows come through a ring, else those of all. */
static int64_t need(const Printer *p, int64_t items, int nsums, bool ring) {
  int stores = 0;
  for (int i = 0; i < p->n->npasses; i++) stores += p->n->passes[i].nstores;
  return items * nsums * GRANULE + (ring ? 1 : items) * pr_granule_registers(p) + stores * GRANULE;
}

/* Vectors that are not in the ring, as those of a norm's weights, are loaded for all granules at
 * once where a quarter of a thread's registers is left for the rest. */
static bool loads_at_use(const Printer *p, int nsums, int registers) {
  int64_t beside = pr_granule_registers(p) - pr_ring_bytes(p) / 4;
  return need(p, p->items, nsums, true) + (p->items - 1) * beside > registers * 3 / 4;
}

/* Granules of a thread, at most, for which there are registers. */
static int most_items(const Printer *p, int nsums, bool ring) {
  int most = (folds(p->n) ? MOST_SUMS : PLAIN_SUMS) / (nsums * GRANULE);
  int64_t room = p->narrow ? NARROW_NEED : ring ? HEAVY_NEED : ALONE_NEED;
  most = most < 1 ? 1 : most > MOST_ITEMS ? MOST_ITEMS : most;
  while (most > 1 && need(p, most, nsums, ring) > room) most--;
  return most;
}

/* As few threads of a row as take so many granules each, so that many rows are worked on. */
static void sum_shape(Printer *p, int most) {
  int64_t granules = ceil_div(p->n->cols, GRANULE),
          threads = round_up(ceil_div(granules, most), WARP);
  bool narrow = p->narrow && granules <= NARROW_THREADS * MOST_ITEMS;
  int most_threads = narrow ? NARROW_THREADS : MAX_THREADS;
  p->threads = threads > most_threads ? most_threads : (int)threads;
  p->items = ceil_div(granules, p->threads);
  p->unroll = (int)p->items;
  p->slices = 1;
  pr_granules(p, p->n->cols);
}

static void slice_shape(Printer *p) {
  p->threads = SLICE_THREADS;
  p->items = p->unroll = 1;
  p->slices = ceil_div(p->n->cols, SLICE_THREADS * GRANULE);
  pr_granules(p, p->n->cols);
  p->exact = false;
}

/* Blocks an SM, by what a thread needs; and groups of such a block. */
static int residents(Printer *p, int nsums) {
  if (p->slices > 1) {
    p->groups = 1;
    return SLICE_BLOCKS;
  }
  int64_t n = need(p, p->items, nsums, true);
  int block = p->narrow          ? NARROW_THREADS
              : n <= LIGHT_NEED  ? LIGHT_BLOCK
              : n <= MIDDLE_NEED ? MIDDLE_BLOCK
                                 : HEAVY_BLOCK;
  p->groups = p->threads < block ? block / p->threads : 1;
  return block == HEAVY_BLOCK || p->narrow ? 1 : 2;
}

/* A ring for each block; fewer groups of rows if that is what it takes, one block an SM as a last
 * resort. False when too few threads are left to keep an SM busy. */
static bool ring_block(Printer *p, CudaFunction *f, int resident) {
  int64_t one = p->shared_most - SHARED_MARGIN, most = one / resident - (resident - 1) * 1024;
  int groups = p->groups, flight = 2 * IN_FLIGHT / resident;
  f->resident = resident;
  for (; p->groups * p->threads * resident >= LEAST_THREADS; p->groups /= 2) {
    f->shared = (int)pr_ring_choose(p, most, flight);
    if (p->stages) return true;
  }
  p->groups = groups;
  f->shared = resident > 1 ? (int)pr_ring_choose(p, one, flight) : 0;
  return p->stages > 0 && p->groups * p->threads >= LEAST_THREADS;
}

static void sum_block(Printer *p, CudaFunction *f, int nsums) {
  int most = most_items(p, nsums, true);
  p->width = pr_row_width(p);
  p->loop = true;
  sum_shape(p, most);
  bool ring = pr_ring_bytes(p) > 0, found = false;
  if (p->items > most && can_slice(p->n)) slice_shape(p);
  for (; ring && !found && most >= 1; most--) {
    if (p->slices == 1) sum_shape(p, most);
    found = ring_block(p, f, residents(p, nsums));
  }
  if (!found) {
    p->stages = 0;
    memset(p->cache, CACHE_NONE, (size_t)p->k->ninstrs);
    if (p->slices == 1) sum_shape(p, most_items(p, nsums, false));
    int block = p->narrow ? NARROW_THREADS : LIGHT_BLOCK;
    p->groups = p->threads < block && p->slices == 1 ? block / p->threads : 1;
    f->resident = 1;
    f->shared = 0;
  }
  int registers = SM_REGISTERS / (p->threads * p->groups * f->resident);
  p->at_use = p->thrifty || (found && loads_at_use(p, nsums, registers));
  int64_t partials = p->groups * p->items * p->threads * GRANULE * 4;
  if (p->groups > 1 && partials > f->shared) f->shared = (int)partials;
}

/* Row values are summed, not columns. */
static void row_sum_block(Printer *p, CudaFunction *f) {
  pr_row_shape(p, p->n->cols);
  f->resident = 1;
  if (pr_long_rows(p, f)) return;
  p->loop = true;
  int block = p->narrow ? NARROW_THREADS : LIGHT_BLOCK;
  p->groups = p->threads < block ? block / p->threads : 1;
  f->resident = 2;
  if (!ring_block(p, f, 2)) {
    p->stages = 0;
    memset(p->cache, CACHE_NONE, (size_t)p->k->ninstrs);
    f->shared = 0;
  }
}

/* ---- nests ---- */
static void add_row_sums(Printer *p) {
  for (int i = 0; i < p->n->nrow_sums; i++)
    pr_line(p, "q%d += v%d;", (int)p->n->row_sums[i], (int)pr_instr(p, p->n->row_sums[i])->in[0]);
}

static void sum_rows(Printer *p, CudaFunction *f) {
  KRanges b = pr_sum_ranges(p->k);
  const char *cols = pr_text(p, "%lld", (long long)p->n->cols);
  RowLoop l = {.step = pr_text(p, "%d", p->groups), .from = "0", .to = cols};
  f->grid = b.blocks * p->slices;
  if (p->slices > 1) {
    int64_t width = p->threads * p->items * GRANULE;
    pr_line(p, "const int block = blockIdx.x / %lld;", (long long)p->slices);
    pr_line(p,
            "const %s c0 = (int)(blockIdx.x %% %lld) * %lld, c1 = c0 + %lld < %s ? c0 + %lld : %s;",
            p->index, (long long)p->slices, (long long)width, (long long)width, cols,
            (long long)width, cols);
    l.from = "c0";
    l.to = "c1";
  } else {
    pr_line(p, "const int block = blockIdx.x;");
  }
  partial_begin(p);
  const char *size = pr_text(p, "%lld", (long long)b.size),
             *rows = pr_text(p, "%lld", (long long)p->n->rows);
  l.first = pr_text(p, "(%s)block * %s", p->index, size);
  l.end = pr_text(p, "(%s)(block + 1) * %s < %s ? (%s)(block + 1) * %s : %s", p->index, size, rows,
                  p->index, size, rows);
  pr_row_loop(p, &l, add_row_sums);
  partial_end(p, f, l.from, l.to);
}

void pr_sum_nest(Printer *p, CudaFunction *f) {
  const KNest *n = p->n;
  int nsums = pr_count_sums(n);
  if (!columns_are_flat(p)) {
    p->why = "a sum over rows whose columns are permuted";
    return;
  }
  if (nsums)
    sum_block(p, f, nsums);
  else
    row_sum_block(p, f);
  if (nsums && p->items > MOST_ITEMS) {
    p->why = "sums over rows of so many columns next to reductions of each row";
    return;
  }
  f->threads = p->threads * p->groups;
  pr_line(p, "const int lane = threadIdx.x %% %d, group = threadIdx.x / %d;", p->threads,
          p->threads);
  pr_line(p, "(void)group;");
  int shared = f->shared;
  pr_choose_caches(p, f, p->stages ? 0 : KEEP_ALONE);
  if (f->shared > shared && !p->stages) f->resident = 1;
  pr_uniform(p);
  sum_rows(p, f);
}

/* A block for each range of elements. */
void pr_flat_nest(Printer *p, CudaFunction *f) {
  const KNest *n = p->n;
  KRanges b = pr_sum_ranges(p->k);
  if (n->npasses != 1 || n->passes[0].nreduces) {
    p->why = "a row reduction next to sums over everything";
    return;
  }
  pr_row_shape(p, n->cols);
  p->threads = MAX_THREADS;
  p->groups = 1;
  p->items = ceil_div(ceil_div(b.size, GRANULE), p->threads);
  int most = p->narrow ? 1 : FLAT_ITEMS;
  p->unroll = p->items < most ? (int)p->items : most;
  p->exact = p->tail = false;
  f->threads = p->threads;
  f->resident = 2;
  f->grid = b.blocks;
  pr_line(p, "const int lane = threadIdx.x;");
  pr_uniform(p);
  pr_line(
      p, "const int64_t lo = (int64_t)blockIdx.x * %lld, hi = lo + %lld < %lld ? lo + %lld : %lld;",
      (long long)b.size, (long long)b.size, (long long)n->cols, (long long)b.size,
      (long long)n->cols);
  partial_begin(p);
  pr_row_body(p, "lo", "hi");
  for (int s = 0; s < n->passes[0].nsums; s++) {
    KReg r = n->passes[0].sums[s];
    pr_line(p, "const %s f%d = mt_row_sum<%d, 1, %d>(q%d, 0);", pr_fold_type(p, r), (int)r,
            p->threads, (int)r, (int)r);
    pr_line(p, "if (lane == 0) w%d[blockIdx.x] = f%d;", (int)r, (int)r);
  }
}
