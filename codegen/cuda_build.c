/* cuda_build.c - see cuda_build.h. Names and order of functions follow the order of the commands
 * alone, so that equal plans give equal files. */
#include "cuda_build.h"
#include <ctype.h>
#include <string.h>
#include "attention_cuda.h"
#include "nvrtc.h"
#include "print_cuda.h"
#include "scatter_cuda.h"

enum { PROGRAM_FUNCTIONS = 12 }; /* small functions that share an NVRTC program */

typedef struct {
  const char *name, *head; /* head: a comment */
  CudaFunction f;
  uint64_t key; /* of its first choice */
  const Kernel *kernel;
  int part, choice; /* launch of the kernel */
} SmallFn;

/* A launch of a function of b->small. */
typedef struct {
  Cmd *cmd;
  int launch, small;
} SmallLaunch;

/* A source of its own, with the variants that may replace it. */
typedef struct {
  bool attention;
  AttProblem problem;
  AttKernel kernel;
  int choice;
  AttVariant variant;
  uint64_t key;
  const char *source;
  int first, nentries;  /* in own_names */
  const char **entries; /* what the source calls them */
  CudaImage image;
} OwnSource;

typedef struct {
  Cmd *cmd;
  int launch, own;
} Pending;

/* Layers share one schedule: the table of a source and of the sizes that its order depends on. */
typedef struct {
  int own, blocks;
  int64_t batch, tq, heads, kv_heads, offset;
} Scheduled;

struct CudaBuild {
  Arena *arena;
  const Target *target;
  const char *source;
  const char *prelude;
  VEC(SmallFn) small;
  VEC(SmallLaunch) small_launches;
  VEC(OwnSource) own;
  VEC(const char *) own_names;
  VEC(Pending) pending;
  VEC(int32_t) tables;
  VEC(Scheduled) scheduled;
  bool no_wgmma;
  int choice;
};

CudaBuild *cuda_build_new(Arena *a, const Target *t, const char *source) {
  CudaBuild *b = arena_new_of(a, CudaBuild);
  b->arena = a;
  b->target = t;
  b->source = source;
  b->prelude = cuda_prelude_text(a);
  return b;
}

void cuda_build_no_wgmma(CudaBuild *b, bool without) {
  b->no_wgmma = without;
}

void cuda_build_choice(CudaBuild *b, int choice) {
  b->choice = choice;
}

/* Where in mt_schedules these words lie, in bytes. */
static int64_t add_table(CudaBuild *b, int n, const int32_t *words) {
  for (int at = 0; at + n <= b->tables.n; at += 4)
    if (!memcmp(b->tables.at + at, words, (size_t)n * 4)) return (int64_t)at * 4;
  int at = b->tables.n;
  for (int i = 0; i < n; i++) vec_push(b->arena, &b->tables, words[i]);
  while (b->tables.n % 4) vec_push(b->arena, &b->tables, -1);
  return (int64_t)at * 4;
}

/* ---- loop nests ---- */
/* The last words of a path as a C name: "h.3.mlp.gelu" -> "mlp_gelu". Layers share functions, so
 * numbers go. */
static const char *short_name(Arena *a, const char *path) {
  Str s = {.arena = a};
  int words = 0;
  const char *from = path ? path + strlen(path) : "";
  while (path && from > path && words < 2) {
    from--;
    if (*from == '.') words++;
  }
  for (; *from; from++) {
    char c = isalnum((unsigned char)*from) ? *from : '_';
    if (!s.len && (c == '_' || isdigit((unsigned char)c))) continue;
    str_add_n(&s, &c, 1);
  }
  return s.len ? s.text : "loop";
}

/* Functions of a kernel, with the hash of what they are. */
struct CudaPrinted {
  int n;
  CudaFunction f[MAX_LAUNCHES];
  uint64_t key[MAX_LAUNCHES];
  const char *why; /* when there are none */
};

CudaPrinted *cuda_print_kernel(const CudaBuild *b, const Kernel *k, Arena *a) {
  CudaPrinted *p = arena_new_of(a, CudaPrinted);
  p->n = kernel_print_cuda(k, b->target->sm, b->choice, a, p->f, MAX_LAUNCHES, &p->why);
  for (int i = 0; i < p->n; i++) p->key[i] = hash_text(cuda_function_text(&p->f[i], "", a));
  return p;
}

static int small_function(CudaBuild *b, const Kernel *k, const CudaPrinted *p, int part) {
  uint64_t key = p->key[part];
  for (int i = 0; i < b->small.n; i++)
    if (b->small.at[i].key == key) return i;
  const char *name = arena_printf(b->arena, "k%d_%s%s", b->small.n, short_name(b->arena, k->name),
                                  part ? "_2" : "");
  const char *head =
      arena_printf(b->arena, "// %s (%s)", k->name ? k->name : "", k->where ? k->where : "");
  vec_push(b->arena, &b->small, ((SmallFn){name, head, p->f[part], key, k, part, b->choice}));
  return b->small.n - 1;
}

/* The plan's workspace is made before kernels are. */
static void check_workspace(const Cmd *c, int64_t need) {
  ensure(need <= c->workspace_bytes, "`%s` needs %lld bytes of workspace, the plan has %lld",
         c->name, (long long)need, (long long)c->workspace_bytes);
}

/* Keys of random numbers lie with the schedules, so that layers share their functions. */
static int64_t add_keys(CudaBuild *b, const Kernel *k) {
  int32_t *words = arena_array(b->arena, int32_t, 2 * k->nkeys + 1);
  for (int i = 0; i < k->nkeys; i++) {
    uint32_t halves[] = {(uint32_t)k->keys[i], (uint32_t)(k->keys[i] >> 32)};
    memcpy(words + 2 * i, halves, sizeof halves);
  }
  return k->nkeys ? add_table(b, 2 * k->nkeys, words) : 0;
}

bool cuda_build_printed(CudaBuild *b, Cmd *c, const Kernel *k, const CudaPrinted *printed, const char **why) {
  check_workspace(c, cuda_workspace(k));
  int64_t keys = add_keys(b, k);
  *why = printed->why;
  for (int i = 0; i < printed->n; i++) {
    int small = small_function(b, k, printed, i);
    c->launches[i] = (Launch){.kernel = small, .rows = k->nkeys, .table_offset = keys};
    vec_push(b->arena, &b->small_launches, ((SmallLaunch){c, i, small}));
  }
  c->nlaunches = printed->n;
  return printed->n > 0;
}

bool cuda_build_kernel(CudaBuild *b, Cmd *c, const Kernel *k, const char **why) {
  return cuda_build_printed(b, c, k, cuda_print_kernel(b, k, b->arena), why);
}

/* ---- sources of their own ---- */
static int own_source(CudaBuild *b, const OwnSource *s, int nentries, const char *const *entries) {
  for (int i = 0; i < b->own.n; i++)
    if (b->own.at[i].key == s->key) return i;
  OwnSource n = *s;
  n.first = b->own_names.n;
  n.nentries = nentries;
  n.entries = arena_copy(b->arena, entries, sizeof *entries * (size_t)nentries);
  for (int i = 0; i < nentries; i++)
    vec_push(b->arena, &b->own_names,
             (const char *)arena_printf(b->arena, "%s_%08x", entries[i], (unsigned)(s->key >> 32)));
  vec_push(b->arena, &b->own, n);
  return b->own.n - 1;
}

/* The text of a source with its functions renamed: names are one space over all images. */
static const char *own_text(const CudaBuild *b, const OwnSource *s) {
  Str t = {.arena = b->arena};
  for (int i = 0; i < s->nentries; i++)
    str_addf(&t, "#define %s %s\n", s->entries[i], b->own_names.at[s->first + i]);
  str_add(&t, s->source);
  return t.text;
}

static void launch_own(CudaBuild *b, Cmd *c, int launch, int own) {
  vec_push(b->arena, &b->pending, ((Pending){c, launch, own}));
}

static ScatterProblem scatter_problem(const Cmd *c) {
  const Tensor *ids = &c->tensors[0], *rows = &c->tensors[1], *out = &c->tensors[2];
  ScatterProblem p = {.n = 1,
                      .rows = out->dim[0],
                      .columns = 1,
                      .row_dtype = rows->dtype,
                      .out_dtype = out->dtype,
                      .accumulate = c->accumulate};
  for (int k = 0; k < ids->rank; k++) p.n *= ids->dim[k];
  for (int k = 1; k < out->rank; k++) p.columns *= out->dim[k];
  p.row_stride = ids->rank ? rows->stride[ids->rank - 1] : p.columns;
  for (p.align = 16; rows->offset % p.align || out->offset % p.align;) p.align /= 2;
  return p;
}

int64_t cuda_scatter_bytes(const Cmd *c) {
  return scatter_workspace(scatter_problem(c).n);
}

bool cuda_build_scatter(CudaBuild *b, Cmd *c, const char **why) {
  ScatterProblem p = scatter_problem(c);
  check_workspace(c, cuda_scatter_bytes(c));
  if (p.n >= INT32_MAX / 8 || p.n == 0) return *why = "scatter_add of that many rows", false;
  OwnSource s = {.source = arena_printf(b->arena, "%s%s", b->prelude, scatter_source(&p, b->arena))};
  s.key = hash_text(s.source);
  ScatterLaunch l[SCATTER_LAUNCHES];
  const char *entries[SCATTER_LAUNCHES];
  c->nlaunches = scatter_launches(&p, b->arena, l);
  for (int i = 0; i < c->nlaunches; i++) entries[i] = l[i].entry;
  int own = own_source(b, &s, c->nlaunches, entries);
  for (int i = 0; i < c->nlaunches; i++) {
    c->launches[i] = (Launch){.grid = {(int)l[i].grid, 1, 1}, .threads = l[i].threads};
    launch_own(b, c, i, own);
  }
  return true;
}

/* ---- attention ---- */
/* Whether rows start at a multiple of two elements. */
static bool pairs_of(const Tensor *bias) {
  return bias->stride[1] % 2 == 0 && bias->offset % (2 * dtype_bytes(bias->dtype)) == 0;
}

static AttProblem attention_problem(const Target *t, const Cmd *c) {
  const Tensor *q = &c->tensors[0], *k = &c->tensors[1];
  const Attention *x = &c->attention;
  int bias = (c->kind == CMD_ATTENTION_BWD ? 6 : 3) + x->has_mask;
  return (AttProblem){.sm = t->sm,
                      .batch = q->dim[0],
                      .tq = q->dim[1],
                      .tk = k->dim[1],
                      .heads = q->dim[2],
                      .kv_heads = k->dim[2],
                      .head = q->dim[3],
                      .causal = x->causal,
                      .mask = x->has_mask,
                      .bias = x->has_bias,
                      .drop = x->has_drop,
                      .dtype = q->dtype,
                      .bias_dtype = x->has_bias ? c->tensors[bias].dtype : DT_F32,
                      .bias_pairs = x->has_bias && pairs_of(&c->tensors[bias]),
                      .sms = t->units};
}

int64_t cuda_attention_bytes(const Cmd *c) {
  if (c->kind != CMD_ATTENTION_BWD) return 0;
  AttProblem p = attention_problem(&(Target){.sm = 80}, c);
  return attention_workspace(&p);
}

/* The kernels step over heads by the head size and over the batch by T token strides; over a bias
 * by its rows. */
static const char *layout_fault(Arena *a, const Cmd *c, int64_t granule) {
  for (int i = 0; i < c->ntensors; i++) {
    const Tensor *t = &c->tensors[i];
    bool bias = c->attention.has_bias && t->rank == 3 && t->dim[1] == c->tensors[0].dim[1] &&
                t->dim[2] == c->tensors[1].dim[1];
    if (bias && (t->stride[2] != 1 || t->stride[0] != t->dim[1] * t->stride[1]))
      return arena_printf(a, "attention with a bias %d that is not laid out row by row", i);
    if (t->rank != 4) continue;
    bool ok = (t->stride[3] == 1 || t->dim[3] == 1) &&
              (t->stride[2] == t->dim[3] || t->dim[2] == 1) &&
              (t->stride[0] == t->dim[1] * t->stride[1] || t->dim[0] == 1) &&
              t->stride[1] % granule == 0 && t->offset % (granule * dtype_bytes(t->dtype)) == 0;
    if (!ok)
      return arena_printf(a, "attention over a tensor %d that is not laid out token by token", i);
  }
  return NULL;
}

static const Scheduled *schedule_of(CudaBuild *b, const AttProblem *p, int own) {
  for (int i = 0; i < b->scheduled.n; i++) {
    const Scheduled *s = &b->scheduled.at[i];
    if (s->own == own && s->batch == p->batch && s->tq == p->tq && s->heads == p->heads &&
        s->kv_heads == p->kv_heads)
      return s;
  }
  AttSchedule t = attention_schedule(p, &b->own.at[own].variant, b->arena);
  vec_push(b->arena, &b->scheduled,
           ((Scheduled){own, t.blocks, p->batch, p->tq, p->heads, p->kv_heads, add_table(b, t.rounds * t.blocks, t.table)}));
  return &vec_last(&b->scheduled);
}

/* What of the problem is in the text of its kernels; the rest is in launches. */
static uint64_t variant_key(const AttVariant *v) {
  return hash_text(v->source);
}

bool cuda_build_attention(CudaBuild *b, Cmd *c, const char **why) {
  AttProblem p = attention_problem(b->target, c);
  p.no_wgmma = b->no_wgmma;
  check_workspace(c, cuda_attention_bytes(c));
  *why = attention_unsupported(&p);
  if (!*why) *why = layout_fault(b->arena, c, attention_granule(&p));
  if (*why) return false;
  AttKernel kernels[ATT_MAX_LAUNCHES];
  int n = attention_kernels(&p, c->kind == CMD_ATTENTION_BWD, kernels);
  c->nlaunches = n;
  for (int i = 0; i < n; i++) {
    OwnSource s = {.attention = true, .problem = p, .kernel = kernels[i]};
    ensure(attention_variant(&p, kernels[i], 0, b->arena, &s.variant), "attention has no variant");
    s.source = s.variant.source;
    s.key = variant_key(&s.variant);
    c->attention.wgmma = s.variant.wgmma;
    c->launches[i] = (Launch){.role = kernels[i]};
    launch_own(b, c, i, own_source(b, &s, 1, &s.variant.entry));
  }
  return true;
}

/* The launch of an attention kernel, once its variant is known. */
static void finish_attention(CudaBuild *b, Cmd *c, Launch *l, int own) {
  AttProblem p =
      attention_problem(b->target, c); /* sizes may differ between commands of one source */
  const AttVariant *v = &b->own.at[own].variant;
  p.no_wgmma = !v->wgmma;
  l->threads = v->threads;
  l->shared = v->shared;
  if (v->wgmma) {
    const Scheduled *t = schedule_of(b, &p, own);
    l->grid[0] = t->blocks;
    l->grid[1] = l->grid[2] = 1;
    l->rows = v->rows;
    l->cols = v->cols;
    l->store_rows = v->store_rows;
    l->table_offset = t->offset;
  } else {
    AttGrid grid = attention_grid(&p, v);
    for (int k = 0; k < 3; k++) l->grid[k] = (int)grid.size[k];
    l->rows = grid.log_more;
    l->cols = grid.log_parts;
  }
}

/* ---- compiling ---- */
static const char *tables_text(const CudaBuild *b) {
  Str s = {.arena = b->arena};
  str_addf(&s,
           "// orders of tiles of persistent attention kernels, keys of random numbers\nextern \"C\" __device__ int "
           "mt_schedules[%d] = {",
           b->tables.n);
  for (int i = 0; i < b->tables.n; i++) str_addf(&s, "%s%d", i ? "," : "", b->tables.at[i]);
  str_add(&s, "};\n");
  return s.text;
}

static const char *small_source(const CudaBuild *b, int first) {
  Str s = {.arena = b->arena};
  str_add(&s, b->prelude);
  if (first == 0 && b->tables.n) str_add(&s, tables_text(b));
  for (int i = first; i < b->small.n && i < first + PROGRAM_FUNCTIONS; i++) {
    const SmallFn *f = &b->small.at[i];
    str_addf(&s, "\n%s\n%s\n", f->head, cuda_function_text(&f->f, f->name, b->arena));
  }
  return s.text;
}

static bool clean(const CudaImage *m) {
  return !image_spills(m) && !m->serialized;
}

/* Compiles the listed sources of b->own; those that spill move to their next variant. */
static bool compile_own(CudaBuild *b, Fail *f) {
  int n = b->own.n, *todo = arena_array(b->arena, int, n + 1), left = n;
  for (int i = 0; i < n; i++) todo[i] = i;
  while (left) {
    CudaSource *sources = arena_array(b->arena, CudaSource, left);
    CudaImage *images = arena_array(b->arena, CudaImage, left);
    for (int i = 0; i < left; i++) {
      OwnSource *s = &b->own.at[todo[i]];
      sources[i] =
          (CudaSource){own_text(b, s), s->attention ? "attention kernels" : "scatter kernels",
                       b->target->sm, s->attention};
    }
    if (!nvrtc_compile(b->arena, left, sources, images, f)) return false;
    int again = 0;
    for (int i = 0; i < left; i++) {
      OwnSource *s = &b->own.at[todo[i]];
      s->image = images[i];
      if (clean(&images[i])) continue;
      if (!s->attention ||
          !attention_variant(&s->problem, s->kernel, ++s->choice, b->arena, &s->variant))
        bug("every variant of %s for head size %lld spills registers on %s",
            b->own_names.at[s->first], (long long)s->problem.head, cuda_arch(b->target->sm));
      s->source = s->variant.source;
      todo[again++] = todo[i];
    }
    left = again;
  }
  return true;
}

/* Functions that spill take their next choice. False when one has none left. */
static bool next_choice(CudaBuild *b, const CudaImage *m) {
  for (int u = 0; u < m->use.n; u++)
    for (int i = 0; i < b->small.n; i++) {
      SmallFn *s = &b->small.at[i];
      if (!(m->use.at[u].stack_bytes || m->use.at[u].spill_bytes) ||
          strcmp(s->name, m->use.at[u].name))
        continue;
      if (++s->choice == CUDA_CHOICES) return false;
      CudaFunction f[MAX_LAUNCHES];
      const char *why;
      kernel_print_cuda(s->kernel, b->target->sm, s->choice, b->arena, f, MAX_LAUNCHES, &why);
      s->f = f[s->part];
    }
  return true;
}

/* sources: filled with what was compiled at last. */
static bool compile_small(CudaBuild *b, int n, CudaSource *sources, CudaImage *images, Fail *f) {
  const char *name = arena_printf(b->arena, "kernels of %s", b->source);
  for (int i = 0; i < n; i++)
    sources[i] = (CudaSource){small_source(b, i * PROGRAM_FUNCTIONS), name, b->target->sm, false};
  if (!nvrtc_compile(b->arena, n, sources, images, f)) return false;
  for (int i = 0; i < n; i++) {
    while (image_spills(&images[i]) && next_choice(b, &images[i])) {
      sources[i].source = small_source(b, i * PROGRAM_FUNCTIONS);
      if (!nvrtc_compile(b->arena, 1, &sources[i], &images[i], f)) return false;
    }
    const KernelUse *u = image_spills(&images[i]);
    if (u)
      bug("kernel %s spills %d bytes on %s", u->name, u->spill_bytes + u->stack_bytes,
          cuda_arch(b->target->sm));
  }
  return true;
}

static void set_image(const CudaBuild *b, Program *p, const CudaImage *m) {
  p->images[p->nimages].arch = cuda_arch(b->target->sm);
  p->images[p->nimages].data = m->cubin;
  p->images[p->nimages++].size = m->size;
}

static int small_programs(const CudaBuild *b) {
  int n = (int)ceil_div(b->small.n, PROGRAM_FUNCTIONS);
  return !n && b->tables.n ? 1 : n;
}

/* Launches of loop nests, by the choices that these have come to. */
static void finish_small_launches(CudaBuild *b) {
  for (int i = 0; i < b->small_launches.n; i++) {
    const SmallLaunch *x = &b->small_launches.at[i];
    const CudaFunction *f = &b->small.at[x->small].f;
    int64_t grid = f->grid, most = (int64_t)f->per_sm * b->target->units;
    if (most && most < grid) grid = most;
    ensure(grid < INT32_MAX, "a grid of %lld blocks", (long long)grid);
    Launch *l = &x->cmd->launches[x->launch];
    l->grid[0] = (int)grid;
    l->grid[1] = l->grid[2] = 1;
    l->threads = f->threads;
    l->shared = f->shared;
  }
}

/* Launches of sources of their own, by the variants that these have come to. */
static void finish_launches(CudaBuild *b) {
  for (int i = 0; i < b->pending.n; i++) {
    Pending *x = &b->pending.at[i];
    const OwnSource *s = &b->own.at[x->own];
    Launch *l = &x->cmd->launches[x->launch];
    l->kernel = b->small.n + s->first + (s->attention ? 0 : x->launch);
    if (s->attention) finish_attention(b, x->cmd, l, x->own);
  }
}

/* sources: of small programs. */
static void set_text(CudaBuild *b, Program *p, const CudaSource *sources) {
  p->nkernels = b->small.n + b->own_names.n;
  p->kernel_names = arena_array(b->arena, const char *, p->nkernels + 1);
  for (int i = 0; i < b->small.n; i++) p->kernel_names[i] = b->small.at[i].name;
  for (int i = 0; i < b->own_names.n; i++) p->kernel_names[b->small.n + i] = b->own_names.at[i];
  Str text = {.arena = b->arena};
  int nsmall = small_programs(b);
  for (int i = 0; i < nsmall; i++)
    str_addf(&text, "// ==== program %d ====\n%s", i, sources[i].source);
  for (int i = 0; i < b->own.n; i++)
    str_addf(&text, "// ==== program %d ====\n%s", nsmall + i, own_text(b, &b->own.at[i]));
  p->kernel_source = text.text;
}

void cuda_build_text(CudaBuild *b, Program *p) {
  finish_launches(b);
  finish_small_launches(b);
  int n = small_programs(b);
  CudaSource *sources = arena_array(b->arena, CudaSource, n + 1);
  for (int i = 0; i < n; i++) sources[i].source = small_source(b, i * PROGRAM_FUNCTIONS);
  set_text(b, p, sources);
}

bool cuda_build_finish(CudaBuild *b, Program *p, Fail *f) {
  if (!compile_own(b, f)) return false;
  finish_launches(b);
  int nsmall = small_programs(b);
  CudaImage *images = arena_array(b->arena, CudaImage, nsmall + 1);
  CudaSource *sources = arena_array(b->arena, CudaSource, nsmall + 1);
  if (!compile_small(b, nsmall, sources, images, f)) return false;
  finish_small_launches(b);
  p->images = arena_alloc(b->arena, sizeof *p->images * (size_t)(nsmall + b->own.n + 1));
  for (int i = 0; i < nsmall; i++) set_image(b, p, &images[i]);
  for (int i = 0; i < b->own.n; i++) set_image(b, p, &b->own.at[i].image);
  set_text(b, p, sources);
  return true;
}
