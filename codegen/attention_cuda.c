/* attention_cuda.c - picks and writes out the variants of the attention kernels. See
 * attention_cuda.h.
 *
 * The configurations were chosen by measurement on an H200 (sm_90a, wgmma and mma.sync) and by
 * resource use elsewhere. */
#include "attention_cuda.h"
#include <stdlib.h>
#include <string.h>
#include "embed.h"

EMBED_TEXT(cuda_prelude, "codegen/cuda/prelude.cu");
EMBED_TEXT(cuda_prelude_sm90, "codegen/cuda/prelude_sm90.cu");
EMBED_TEXT(philox_text, "ir/philox.h");
EMBED_TEXT(cuda_attention_order, "codegen/cuda/attention_order.cu");
EMBED_TEXT(cuda_attention_extra, "codegen/cuda/attention_extra.cu");
EMBED_TEXT(cuda_attention_simt, "codegen/cuda/attention_simt.cu");
EMBED_TEXT(cuda_attention_fwd_mma, "codegen/cuda/attention_fwd_mma.cu");
EMBED_TEXT(cuda_attention_bwd_mma, "codegen/cuda/attention_bwd_mma.cu");
EMBED_TEXT(cuda_attention_fwd_wgmma, "codegen/cuda/attention_fwd_wgmma.cu");
EMBED_TEXT(cuda_attention_bwd_wgmma, "codegen/cuda/attention_bwd_wgmma.cu");

enum { MAX_HEAD = 128, VECTOR = 8, W_GRANULE = 128, PREP_ROWS = 64, SCHEDULE_HEADS = 1 << 16 };

static const char *const entries[ATT_KERNELS] = {"attention_fwd", "attention_bwd_prep",
                                                 "attention_bwd_dkdv", "attention_bwd_dq",
                                                 "attention_bwd_dbias"};

const char *attention_unsupported(const AttProblem *p) {
  if (p->head > MAX_HEAD) return "heads of more than 128 elements";
  if (p->causal && p->tq != p->tk) return "causal attention over keys of another length";
  if (p->sm < 80) return "GPUs older than compute capability 8.0";
  return NULL;
}

static bool use_simt(const AttProblem *p) {
  return p->dtype == DT_F32 || p->head % VECTOR;
}

static bool use_wgmma(const AttProblem *p) {
  return p->sm == 90 && !p->no_wgmma && !use_simt(p) && !p->mask && !p->bias && !p->drop &&
         p->tq == p->tk && p->head > 32 && p->batch * p->heads < SCHEDULE_HEADS;
}

int attention_granule(const AttProblem *p) {
  return use_simt(p) ? 1 : VECTOR;
}

int attention_kernels(const AttProblem *p, bool backward, AttKernel kernels[ATT_MAX_LAUNCHES]) {
  static const AttKernel mma[] = {ATT_PREP, ATT_DKDV, ATT_DQ, ATT_DBIAS},
                         wgmma[] = {ATT_DQ, ATT_DKDV};
  if (!backward) return kernels[0] = ATT_FWD, 1;
  bool wg = use_wgmma(p);
  int n = wg ? COUNT_OF(wgmma) : COUNT_OF(mma) - !p->bias;
  memcpy(kernels, wg ? wgmma : mma, sizeof *kernels * (size_t)n);
  return n;
}

int64_t attention_padded(int64_t tq) {
  return round_up(tq, W_GRANULE) + W_GRANULE;
}

int64_t attention_workspace(const AttProblem *p) {
  return p->batch * p->heads * 2 * attention_padded(p->tq) * 4;
}

/* Head size on chip. */
static int padded_head(int64_t head) {
  return head <= 32 ? 32 : head <= 64 ? 64 : head <= 96 ? 96 : 128;
}

/* ---- mma.sync ---- */
/* Per kernel and on-chip head size: choices, best first. `step` = BN (fwd, dq, dbias) or SQ (dkdv); regs =
 * QREG or KREG. */
typedef struct {
  AttKernel kernel;
  int d, mi, step, regs, rt;
  bool causal_only;
} MmaChoice;
static const MmaChoice mma_choices[] = {
    {ATT_FWD, 32, 2, 64, 1, 0, false},   {ATT_FWD, 32, 2, 64, 1, 1, false},
    {ATT_FWD, 64, 2, 64, 1, 0, false},   {ATT_FWD, 64, 2, 64, 1, 1, false},
    {ATT_FWD, 64, 2, 32, 1, 0, false},   {ATT_FWD, 96, 2, 48, 0, 0, true},
    {ATT_FWD, 96, 2, 32, 0, 0, false},   {ATT_FWD, 96, 2, 32, 0, 1, false},
    {ATT_FWD, 128, 2, 48, 0, 0, true},   {ATT_FWD, 128, 2, 48, 0, 1, true},
    {ATT_FWD, 128, 2, 32, 0, 0, false},  {ATT_FWD, 128, 2, 32, 0, 1, false},
    {ATT_FWD, 128, 2, 16, 0, 0, false},  {ATT_DKDV, 32, 2, 32, 0, 0, false},
    {ATT_DKDV, 32, 2, 32, 0, 1, false},  {ATT_DKDV, 64, 2, 32, 0, 0, false},
    {ATT_DKDV, 64, 2, 32, 0, 1, false},  {ATT_DKDV, 64, 2, 16, 0, 0, false},
    {ATT_DKDV, 96, 1, 32, 0, 0, false},  {ATT_DKDV, 96, 1, 32, 0, 1, false},
    {ATT_DKDV, 96, 1, 16, 0, 0, false},  {ATT_DKDV, 128, 1, 64, 0, 0, true},
    {ATT_DKDV, 128, 1, 64, 0, 1, true},  {ATT_DKDV, 128, 1, 32, 0, 0, false},
    {ATT_DKDV, 128, 1, 32, 0, 1, false}, {ATT_DKDV, 128, 1, 16, 0, 0, false},
    {ATT_DQ, 32, 2, 32, 1, 0, false},    {ATT_DQ, 32, 2, 32, 1, 1, false},
    {ATT_DQ, 64, 2, 32, 1, 0, false},    {ATT_DQ, 64, 2, 32, 1, 1, false},
    {ATT_DQ, 64, 2, 32, 0, 0, false},    {ATT_DQ, 96, 2, 32, 0, 0, false},
    {ATT_DQ, 96, 2, 32, 0, 1, false},    {ATT_DQ, 96, 2, 16, 0, 0, false},
    {ATT_DQ, 128, 2, 32, 0, 0, false},   {ATT_DQ, 128, 2, 32, 0, 1, false},
    {ATT_DQ, 128, 2, 16, 0, 0, false},   {ATT_DQ, 128, 2, 16, 0, 1, false},
    {ATT_DKDV, 64, 1, 32, 0, 0, false},  {ATT_DKDV, 64, 1, 16, 0, 1, false},
    {ATT_DKDV, 96, 1, 16, 0, 1, false},  {ATT_DKDV, 128, 1, 16, 0, 1, false},
    {ATT_FWD, 64, 1, 32, 0, 0, false},   {ATT_FWD, 96, 1, 32, 0, 0, false},
    {ATT_FWD, 128, 1, 32, 0, 0, false},  {ATT_DQ, 64, 1, 32, 0, 0, false},
    {ATT_DQ, 96, 1, 16, 0, 0, false},    {ATT_DQ, 128, 1, 16, 0, 0, false},
    {ATT_DBIAS, 32, 2, 32, 0, 0, false}, {ATT_DBIAS, 64, 2, 32, 0, 0, false},
    {ATT_DBIAS, 96, 1, 32, 0, 0, false}, {ATT_DBIAS, 128, 1, 32, 0, 0, false},
    {ATT_DBIAS, 64, 1, 32, 0, 0, false}, {ATT_DBIAS, 96, 1, 16, 0, 0, false},
    {ATT_DBIAS, 128, 1, 16, 0, 0, false},
};

enum { MMA_WARPS = 4, MMA_QUERIES = 64, MMA_BLOCKS = 2, LAZY_LOG2 = 8 };

static void define(Str *s, const char *name, int64_t value) {
  str_addf(s, "#define %s %lld\n", name, (long long)value);
}

/* The memory type NAME with its conversions LOAD and STORE. */
static void define_memory(Str *s, DType t, const char *name, const char *load, const char *store) {
  const char *type = t == DT_F32 ? "float" : "unsigned short";
  const char *from = t == DT_F32 ? "" : t == DT_F16 ? "from_f16" : "from_bf16";
  const char *to = t == DT_F32 ? "" : t == DT_F16 ? "to_f16" : "to_bf16";
  str_addf(s, "#define %s %s\n#define %s(x) %s(x)\n#define %s(x) %s(x)\n", name, type, load, from,
           store, to);
}

/* Bias and dropout; fragments: with what the kernels of matrix instructions need. */
static void add_extra(Str *s, const AttProblem *p, bool fragments) {
  define(s, "BIAS", p->bias);
  define(s, "DROP", p->drop);
  define(s, "FRAGMENTS", fragments);
  if (p->bias) define(s, "PAIRS", p->bias_pairs);
  if (p->bias) define_memory(s, p->bias_dtype, "BELEM", "BLOAD", "BSTORE");
  if (p->drop) str_addf(s, "#define PHILOX_FN __device__ __forceinline__\n%s", philox_text);
  str_add(s, cuda_attention_extra);
}

static bool mma_variant(const AttProblem *p, AttKernel k, int choice, Arena *a, AttVariant *v) {
  int d = padded_head(p->head), pitch = d <= 64 ? 64 : 128;
  MmaChoice c = {.kernel = ATT_PREP, .d = d};
  if (k == ATT_PREP && choice > 0) return false;
  for (int i = 0, seen = 0; k != ATT_PREP; i++) {
    if (i == COUNT_OF(mma_choices)) return false;
    c = mma_choices[i];
    if (c.kernel == k && c.d == d && (p->causal || !c.causal_only) && seen++ == choice) break;
  }
  Str s = {.arena = a};
  define(&s, "HALF", p->dtype == DT_F16);
  define(&s, "DH", p->head);
  define(&s, "D", d);
  define(&s, "PITCH", pitch);
  define(&s, "CAUSAL", p->causal);
  define(&s, "MASK", p->mask);
  define(&s, "NW", MMA_WARPS);
  define(&s, "MI", c.mi);
  define(&s, "MINB", MMA_BLOCKS);
  define(&s, "RT", c.rt);
  define(&s, "LAZY", LAZY_LOG2);
  int rows = 16 * c.mi * MMA_WARPS;
  *v = (AttVariant){
      .kernel = k, .entry = entries[k], .threads = 32 * MMA_WARPS, .rows = rows, .cols = c.step};
  switch (k) {
    case ATT_FWD:
      define(&s, "BN", c.step);
      define(&s, "QREG", c.regs);
      v->shared = rows * pitch * 2 + 4 * c.step * pitch * 2;
      break;
    case ATT_PREP:
      define(&s, "KERNEL", 0);
      v->rows = PREP_ROWS;
      v->threads = 256;
      break;
    case ATT_DKDV:
      define(&s, "KERNEL", 1);
      define(&s, "BQ", MMA_QUERIES);
      define(&s, "SQ", c.step);
      define(&s, "KREG", c.regs);
      v->cols = MMA_QUERIES;
      v->shared = 2 * rows * pitch * 2 + 4 * MMA_QUERIES * pitch * 2 + 2 * MMA_QUERIES * 8;
      break;
    case ATT_DBIAS:
      define(&s, "KERNEL", 3);
      define(&s, "BN", c.step);
      v->shared = 2 * rows * pitch * 2 + 2 * c.step * pitch * 2;
      break;
    default:
      define(&s, "KERNEL", 2);
      define(&s, "BN", c.step);
      define(&s, "QREG", c.regs);
      v->shared = 2 * rows * pitch * 2 + 4 * c.step * pitch * 2;
  }
  str_add(&s, cuda_prelude);
  add_extra(&s, p, true);
  str_add(&s, cuda_attention_order);
  str_add(&s, k == ATT_FWD ? cuda_attention_fwd_mma : cuda_attention_bwd_mma);
  v->source = s.text;
  return true;
}

/* Heads of a group: causal ones fill the device about twice, so that short tiles are left for its end; of others, all
 * tiles run at once. With a bias the samples of a head stand beside each other. */
static AttGrid ordered_grid(const AttProblem *p, const AttVariant *v) {
  int64_t heads = v->kernel == ATT_DKDV ? p->kv_heads : p->heads, x = p->bias ? p->batch : heads,
          y = p->bias ? heads : p->batch;
  int64_t tiles = ceil_div(v->kernel == ATT_DKDV ? p->tk : p->tq, v->rows);
  int64_t slots = (int64_t)p->sms * MMA_BLOCKS, want = slots * (p->causal ? 3 : 1) / tiles;
  AttGrid g = {.log_more = 0};
  while (y % 2 == 0 && x << (g.log_more + 1) <= want) g.log_more++, y /= 2;
  while (x % 2 == 0 && x > want) g.log_parts++, x /= 2;
  g.size[0] = (unsigned)x;
  g.size[1] = (unsigned)(tiles << g.log_more);
  g.size[2] = (unsigned)(y << g.log_parts);
  return g;
}

AttGrid attention_grid(const AttProblem *p, const AttVariant *v) {
  if (v->kernel == ATT_DBIAS)
    return (AttGrid){.size = {(unsigned)ceil_div(p->tk, v->cols),
                              (unsigned)ceil_div(p->tq, v->rows), (unsigned)p->heads}};
  if (!use_simt(p) && v->kernel != ATT_PREP) return ordered_grid(p, v);
  int64_t rows = v->kernel == ATT_DKDV   ? p->tk
                 : v->kernel == ATT_PREP ? attention_padded(p->tq)
                                         : p->tq;
  return (AttGrid){.size = {(unsigned)ceil_div(rows, v->rows),
                            (unsigned)(v->kernel == ATT_DKDV ? p->kv_heads : p->heads),
                            (unsigned)p->batch}};
}

/* ---- wgmma ---- */
/* One warpgroup product m64 x n x k16 as a function: d[n/2] (+)= A B; A a shared descriptor or four
 * registers. */
static void add_wgmma(Str *s, const char *name, int n, bool regs_a, int trans_b) {
  int r = n / 2, k = regs_a ? 4 : 1;
  str_addf(
      s,
      "DI void %s(float *d, %s a, u64 b, int acc) {\n  asm volatile(\n      \"{\\n.reg .pred p;\\n"
      "setp.ne.b32 p,%%%d,0;\\nwgmma.mma_async.sync.aligned.m64n%dk16.f32.\" MMA_IN \" {",
      name, regs_a ? "const u32 *" : "u64", r + k + 1, n);
  for (int i = 0; i < r; i++) str_addf(s, "%s%%%d", i ? "," : "", i);
  str_add(s, "},");
  if (regs_a)
    str_addf(s, "{%%%d,%%%d,%%%d,%%%d},%%%d,p,1,1,%d;", r, r + 1, r + 2, r + 3, r + 4, trans_b);
  else
    str_addf(s, "%%%d,%%%d,p,1,1,0,%d;", r, r + 1, trans_b);
  str_add(s, "\\n}\"\n      : ");
  for (int i = 0; i < r; i++) str_addf(s, "%s\"+f\"(d[%d])", i ? "," : "", i);
  str_add(s, "\n      : ");
  if (regs_a)
    str_add(s, "\"r\"(a[0]),\"r\"(a[1]),\"r\"(a[2]),\"r\"(a[3])");
  else
    str_add(s, "\"l\"(a)");
  str_add(s, ",\"l\"(b),\"r\"(acc));\n}\n");
}

/* Registers of a producer and of a consumer thread, by the number of consumer warpgroups. */
static const struct {
  int producer, consumer;
} wgmma_registers[] = {{0, 0}, {56, 256}, {24, 240}, {32, 160}};

static bool wgmma_variant(const AttProblem *p, AttKernel k, int choice, Arena *a, AttVariant *v) {
  if (choice > 0) return false;
  int d = p->head <= 64 ? 64 : 128, groups = 2, step = d == 64 ? 128 : 64, stages = 3,
      shared = 1024 + 256;
  Str s = {.arena = a};
  define(&s, "HALF", p->dtype == DT_F16);
  define(&s, "D", d);
  define(&s, "CAUSAL", p->causal);
  switch (k) {
    case ATT_FWD:
      step = 128;
      if (d == 64 && (p->tq > 1024 || !p->causal)) groups = 3;
      if (d == 128 || groups == 3) stages = 2;
      define(&s, "PERS", 1);
      define(&s, "LAZY", LAZY_LOG2);
      define(&s, "SKIP", 0);
      define(&s, "PP", 1);
      shared += 2 * 64 * groups * d * 2 + 2 * stages * step * d * 2;
      break;
    case ATT_DKDV:
      define(&s, "KERNEL", 1);
      define(&s, "PB", 1);
      define(&s, "LEAN", 1);
      define(&s, "PS", 2);
      define(&s, "PP", 0);
      define(&s, "BQ", step);
      shared += 2 * 2 * 64 * groups * d * 2 + stages * (2 * step * d * 2 + step * 8);
      break;
    default: {
      int ps = d == 64 ? 2 : 1;
      define(&s, "KERNEL", 2);
      define(&s, "PS", ps);
      define(&s, "PP", d == 64);
      define(&s, "FD", 1);
      shared += 3 * ps * 64 * groups * d * 2 + stages * 2 * step * d * 2;
    }
  }
  if (k != ATT_DKDV) define(&s, "BN", step);
  define(&s, "NWG", groups);
  define(&s, "ST", stages);
  define(&s, "RP", wgmma_registers[groups].producer);
  define(&s, "RC", wgmma_registers[groups].consumer);
  define(&s, "PITCH", d);
  str_add(&s, cuda_prelude);
  add_wgmma(&s, "wgS", step, false, 0);
  add_wgmma(&s, "wgO", d, true, 1);
  str_add(&s, cuda_prelude_sm90);
  str_add(&s, k == ATT_FWD ? cuda_attention_fwd_wgmma : cuda_attention_bwd_wgmma);
  *v = (AttVariant){.kernel = k,
                    .wgmma = true,
                    .entry = entries[k],
                    .threads = 128 * (groups + 1),
                    .shared = shared,
                    .rows = 64 * groups,
                    .cols = step,
                    .store_rows = 64,
                    .source = s.text};
  return true;
}

/* ---- SIMT ---- */
static bool simt_variant(const AttProblem *p, AttKernel k, int choice, Arena *a, AttVariant *v) {
  static const struct {
    int macro, tiles; /* KERNEL; tiles of rows in shared memory */
  } kernels[ATT_KERNELS] = {[ATT_FWD] = {0, 3},
                            [ATT_PREP] = {1, 0},
                            [ATT_DKDV] = {2, 4},
                            [ATT_DQ] = {3, 4},
                            [ATT_DBIAS] = {4, 4}};
  enum { TILE = 32, PREP_TILE = 8 };
  if (choice > 0) return false;
  Str s = {.arena = a};
  define(&s, "KERNEL", kernels[k].macro);
  define(&s, "DH", p->head);
  define(&s, "CAUSAL", p->causal);
  define(&s, "MASK", p->mask);
  define_memory(&s, p->dtype, "ELEM", "LOAD", "STORE");
  add_extra(&s, p, false);
  str_add(&s, cuda_attention_simt);
  int tiles = kernels[k].tiles, row = (int)p->head + 4, squares = 1 + p->drop;
  *v = (AttVariant){.kernel = k,
                    .entry = entries[k],
                    .threads = 128,
                    .rows = k == ATT_PREP ? PREP_TILE : TILE,
                    .cols = TILE,
                    .shared = tiles ? (tiles * TILE * row + squares * TILE * (TILE + 1)) * 4 : 0,
                    .source = s.text};
  return true;
}

bool attention_variant(const AttProblem *p, AttKernel k, int choice, Arena *a, AttVariant *v) {
  if (use_simt(p)) return simt_variant(p, k, choice, a, v);
  return use_wgmma(p) ? wgmma_variant(p, k, choice, a, v) : mma_variant(p, k, choice, a, v);
}

/* ---- the schedule of a persistent kernel ---- */
/* Steps of a tile, in elements streamed, plus a fixed start-up. */
static int64_t tile_cost(const AttProblem *p, const AttVariant *v, int64_t tile) {
  enum { START_UP = 128 };
  int64_t steps, rep = v->kernel == ATT_DKDV ? p->heads / p->kv_heads : 1;
  if (!p->causal)
    steps = ceil_div(p->tq, v->cols);
  else if (v->kernel == ATT_DKDV)
    steps = ceil_div(p->tq, v->cols) - tile * v->rows / v->cols;
  else
    steps = ceil_div(tile * v->rows + v->rows < p->tq ? tile * v->rows + v->rows : p->tq, v->cols);
  return steps * rep * v->cols + START_UP;
}

typedef struct {
  int64_t load;
  int block;
} Slot;

static bool lighter(const Slot *a, const Slot *b) {
  return a->load != b->load ? a->load < b->load : a->block < b->block;
}

/* Restores the heap (least loaded first) after the root grew. */
static void sift(Slot *heap, int n) {
  for (int i = 0;;) {
    int c = 2 * i + 1;
    if (c >= n) return;
    if (c + 1 < n && lighter(&heap[c + 1], &heap[c])) c++;
    if (!lighter(&heap[c], &heap[i])) return;
    Slot t = heap[i];
    heap[i] = heap[c];
    heap[c] = t;
    i = c;
  }
}

AttSchedule attention_schedule(const AttProblem *p, const AttVariant *v, Arena *a) {
  const int64_t l2_bytes = 24000000; /* what a group of heads may stream without leaving L2 */
  bool dkdv = v->kernel == ATT_DKDV;
  int64_t tiles = ceil_div(p->tq, v->rows), heads = p->batch * (dkdv ? p->kv_heads : p->heads);
  int64_t rep = p->heads / p->kv_heads;
  int64_t bytes = p->tq * (p->head <= 64 ? 64 : 128) * 4;
  bytes = dkdv ? bytes * rep : bytes / rep;
  int64_t group = bytes && l2_bytes / bytes > 1 ? l2_bytes / bytes : 1;
  int blocks = (int)(tiles * heads < p->sms ? tiles * heads : p->sms);
  Slot *heap = arena_array(a, Slot, blocks);
  int *count = arena_array(a, int, blocks);
  for (int i = 0; i < blocks; i++) heap[i].block = i;
  /* causal: cost grows with the tile (queries) or falls with it (keys); longest first either way */
  VEC(int32_t) *rows = arena_alloc(a, sizeof *rows * (size_t)blocks);
  for (int64_t h0 = 0; h0 < heads; h0 += group)
    for (int64_t i = 0; i < tiles; i++) {
      int64_t tile = p->causal && !dkdv ? tiles - 1 - i : i;
      for (int64_t h = h0; h < h0 + group && h < heads; h++) {
        int b = heap[0].block;
        vec_push(a, &rows[b], (int32_t)(h | tile << 16));
        count[b]++;
        heap[0].load += tile_cost(p, v, tile);
        sift(heap, blocks);
      }
    }
  AttSchedule s = {.blocks = blocks, .rounds = 1};
  for (int b = 0; b < blocks; b++)
    if (count[b] + 1 > s.rounds) s.rounds = count[b] + 1;
  s.table = arena_array(a, int32_t, s.rounds * blocks);
  for (int r = 0; r < s.rounds; r++)
    for (int b = 0; b < blocks; b++) s.table[r * blocks + b] = r < count[b] ? rows[b].at[r] : -1;
  return s;
}
