/* device_case.h - harness of the programs that run on a GPU: hand-made programs of a few commands
 * in one arena, opened through the runtime's own CUDA device or another that takes its place, with
 * host copies of what goes in and what must come out. */
#ifndef DEVICE_CASE_H
#define DEVICE_CASE_H
#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "codegen/cuda_build.h"
#include "codegen/lower.h"
#include "codegen/print_cuda.h"
#include "passes/storage.h"
#include "runtime/convert.h"
#include "runtime/cuda_parts.h"
#include "../codegen/cuda_graphs.h"
#include "../support/elements.h"

extern const DeviceApi device_cuda;

enum { MAX_CASES = 400, MAX_CMDS = 24 };

/* One program: commands over tensors that it takes from the arena. */
typedef struct {
  const char *name;
  Cmd cmds[MAX_CMDS];
  int ncmds;
  int64_t bytes; /* of the arena that it uses */
} DeviceCase;

typedef struct {
  Arena *a;
  const Target *target;
  CudaBuild *build;
  DeviceCase *cases[MAX_CASES];
  int n;
  Program program;
  const DeviceApi *api;
  Device *device;
  Fail fail;
  int bad;
} Bench;

static inline double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static inline void need(Bench *b, bool ok) {
  if (ok) return;
  fprintf(stderr, "stopped: %s\n", b->fail.text);
  exit(1);
}

static inline Bench bench_for(const Target *target) {
  Bench b = {.a = arena_new(), .target = target, .api = &device_cuda};
  b.build = cuda_build_new(b.a, b.target, "device checks");
  return b;
}
static inline Bench bench_new(const char *target) {
  return bench_for(target_by_name(target));
}

static inline DeviceCase *case_new(Bench *b, const char *name) {
  ensure(b->n < MAX_CASES, "too many cases");
  DeviceCase *c = arena_new_of(b->a, DeviceCase);
  c->name = name;
  return b->cases[b->n++] = c;
}

static inline int64_t case_take(DeviceCase *c, int64_t bytes) {
  int64_t at = c->bytes;
  c->bytes = round_up(at + bytes, 512);
  return at;
}

static inline Tensor tensor_at(int64_t offset, DType t, Shape s) {
  Tensor x = {.offset = offset, .dtype = t, .rank = s.rank};
  memcpy(x.dim, s.dim, sizeof x.dim);
  shape_strides(&s, x.stride);
  return x;
}
static inline Tensor case_tensor(DeviceCase *c, DType t, Shape s) {
  return tensor_at(case_take(c, shape_bytes(&s, t)), t, s);
}

static inline Cmd *case_cmd(Bench *b, DeviceCase *c, CmdKind kind, int n, const Tensor *tensors) {
  ensure(c->ncmds < MAX_CMDS, "too many commands");
  Cmd *x = &c->cmds[c->ncmds++];
  *x = (Cmd){.kind = kind, .name = c->name, .where = "", .ntensors = n};
  x->tensors = arena_copy(b->a, tensors, sizeof *tensors * (size_t)n);
  return x;
}
static inline void cmd_workspace(DeviceCase *c, Cmd *x, int64_t bytes) {
  x->workspace_bytes = bytes;
  x->workspace_offset = bytes ? case_take(c, bytes) : 0;
}

/* The cases as a program, kernels aside. */
static inline void bench_program(Bench *b) {
  Program *p = &b->program;
  p->arena = b->a;
  p->cuda = true;
  p->target = b->target->name;
  p->nprograms = b->n;
  p->programs = arena_array(b->a, ProgramCode, b->n + 1);
  for (int i = 0; i < b->n; i++) {
    p->programs[i] = (ProgramCode){
        .name = b->cases[i]->name, .ncmds = b->cases[i]->ncmds, .cmds = b->cases[i]->cmds};
    if (b->cases[i]->bytes > p->arena_bytes) p->arena_bytes = b->cases[i]->bytes;
  }
}

static inline void bench_open(Bench *b) {
  double t0 = now();
  Program *p = &b->program;
  bench_program(b);
  need(b, cuda_build_finish(b->build, p, &b->fail));
  double t1 = now();
  DeviceOptions o = {0};
  b->device = b->api->open(p, &o, &b->fail);
  need(b, b->device != NULL);
  printf("%d programs, %d functions, %d images: compiled in %.1f s, opened in %.1f s\n", b->n,
         p->nkernels, p->nimages, t1 - t0, now() - t1);
}

/* ---- data ---- */
static uint64_t random_state = 88172645463325252ull;
static inline double draw(double lo, double hi) {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return lo + (hi - lo) * (double)(random_state >> 11) * 0x1p-53;
}

static inline double *draw_values(Arena *a, DType t, int64_t n, double lo, double hi) {
  double *x = arena_array(a, double, n);
  for (int64_t i = 0; i < n; i++) x[i] = element_round(t, draw(lo, hi));
  return x;
}

/* Offset in elements of row-major element `flat`. */
static inline int64_t element_at(const Tensor *t, int64_t flat) {
  int64_t at = 0;
  for (int k = t->rank - 1; k >= 0; k--) {
    at += flat % t->dim[k] * t->stride[k];
    flat /= t->dim[k];
  }
  return at;
}

static inline void put_tensor(Bench *b, const Tensor *t, const double *x) {
  int64_t extent = tensor_extent(t), n = tensor_count(t);
  char *host = malloc((size_t)(extent * dtype_bytes(t->dtype)) + 1);
  need(b, b->api->read(b->device, false, t->offset, host, extent * dtype_bytes(t->dtype), &b->fail));
  for (int64_t i = 0; i < n; i++)
    element_put(t->dtype, host + element_at(t, i) * dtype_bytes(t->dtype), x[i]);
  need(b, b->api->write(b->device, false, t->offset, host, extent * dtype_bytes(t->dtype), &b->fail));
  free(host);
}

static inline double *get_tensor(Bench *b, Arena *a, const Tensor *t) {
  int64_t extent = tensor_extent(t), n = tensor_count(t);
  char *host = malloc((size_t)(extent * dtype_bytes(t->dtype)) + 1);
  need(b, b->api->read(b->device, false, t->offset, host, extent * dtype_bytes(t->dtype), &b->fail));
  double *x = arena_array(a, double, n);
  for (int64_t i = 0; i < n; i++)
    x[i] = element_get(t->dtype, host + element_at(t, i) * dtype_bytes(t->dtype));
  free(host);
  return x;
}

/* NaN patterns over all that the case uses. */
static inline void poison(Bench *b, const DeviceCase *c) {
  char *nan = malloc((size_t)c->bytes + 1);
  memset(nan, 0xff, (size_t)c->bytes);
  need(b, b->api->write(b->device, false, 0, nan, c->bytes, &b->fail));
  free(nan);
}
static inline void run_case(Bench *b, int i) {
  need(b, b->api->run(b->device, i, &b->fail) && b->api->wait(b->device, &b->fail));
}

/* ||got - want|| / ||want||; NaN and infinities never pass. */
static inline double distance(int64_t n, const double *got, const double *want) {
  double d = 0, w = 0;
  for (int64_t i = 0; i < n; i++) {
    if (isnan(want[i]) || (isinf(want[i]) && got[i] == want[i])) continue;
    d += (got[i] - want[i]) * (got[i] - want[i]);
    w += want[i] * want[i];
  }
  if (isnan(d)) return INFINITY;
  return d == 0 ? 0 : sqrt(d / (w > 0 ? w : 1));
}

static inline void judge(Bench *b, const char *name, const char *what, double error, double limit) {
  bool ok = error <= limit;
  if (!ok) {
    printf("FAILED %s: %s is off by %.2g (allowed %.2g)\n", name, what, error, limit);
    b->bad++;
  }
}

/* ---- time ---- */
/* Fills the arena with one random block over and over: floats of any width in about -2 .. 2. */
static inline void fill_random(Bench *b, int64_t bytes) {
  enum { BLOCK = 4 << 20 };
  uint16_t *x = malloc(BLOCK);
  for (int i = 0; i < BLOCK / 2; i++) x[i] = f32_to_bf16((float)draw(-2, 2));
  for (int64_t at = 0; at < bytes; at += BLOCK) {
    int64_t n = bytes - at < BLOCK ? bytes - at : BLOCK;
    need(b, b->api->write(b->device, false, at, x, n, &b->fail));
  }
  free(x);
}

/* Milliseconds of one run of command c: about `ms` of the same work first, then as much measured.
 */
static inline double time_cmd(Bench *b, int program, int c, double ms) {
  Device *d = b->device;
  CudaCmd *r = &d->cmds[program][c];
  const Cmd *cmd = &d->p->programs[program].cmds[c];
  CUevent from, to;
  need(b, cuda_ok(cu.cuEventCreate(&from, 0), &b->fail, "event") &&
              cuda_ok(cu.cuEventCreate(&to, 0), &b->fail, "event"));
  float took = 0;
  int n = 4;
  for (int round = 0; round < 3; round++) {
    cu.cuEventRecord(from, d->stream);
    for (int i = 0; i < n; i++)
      need(b, r->gemm ? cuda_gemm_run(d, cmd, r->gemm, &b->fail)
                      : cuda_launch(d, cmd, r->launch, &b->fail));
    cu.cuEventRecord(to, d->stream);
    need(b, b->api->wait(d, &b->fail));
    cu.cuEventElapsedTime(&took, from, to);
    if (round < 2) n = (int)fmin(2000, fmax(4, ms / (took / n)));
    took /= (float)(round == 2 ? n : 1);
  }
  cu.cuEventDestroy(from);
  cu.cuEventDestroy(to);
  return took;
}

static inline double tensor_size(const Tensor *t) {
  double n = dtype_bytes(t->dtype);
  for (int k = 0; k < t->rank; k++)
    if (t->stride[k] || t->dim[k] == 1) n *= (double)t->dim[k];
  return n;
}

/* ---- loop nests: a whole graph, cluster by cluster, each value at its place ---- */
typedef struct {
  DeviceCase *c;
  int index; /* among the programs */
  KernelGraph k;
  Clusters clusters;
  StorageMap map;
  int64_t *unit_at;
} LoopCase;

static inline Tensor place_tensor(const LoopCase *l, const ValuePlace *p, ValueId v) {
  const Value *x = val(l->k.g, v);
  Tensor t = tensor_at(l->unit_at[p->unit] + p->offset, x->dtype, x->shape);
  memcpy(t.stride, p->stride, sizeof t.stride);
  return t;
}
static inline Storage place_storage(const ValuePlace *p) {
  Storage s = {.buf = p->unit, .offset = p->offset};
  memcpy(s.stride, p->stride, sizeof s.stride);
  return s;
}

static inline void add_loop_cluster(Bench *b, LoopCase *l, int i) {
  const Cluster *c = &l->clusters.at[i];
  if (c->kind != CL_LOOP) bug("%s: a cluster that is no loop", l->c->name);
  Tensor *t = arena_array(b->a, Tensor, c->nin + c->nout + 1);
  Storage *in = arena_array(b->a, Storage, c->nin + 1),
          *out = arena_array(b->a, Storage, c->nout + 1);
  for (int k = 0; k < c->nin; k++) {
    in[k] = place_storage(&l->map.place[c->in[k]]);
    t[k] = place_tensor(l, &l->map.place[c->in[k]], c->in[k]);
  }
  for (int k = 0; k < c->nout; k++) {
    out[k] = place_storage(&l->map.out[i][k]);
    t[c->nin + k] = place_tensor(l, &l->map.out[i][k], c->out[k]);
  }
  const char *why = NULL;
  Kernel *k = lower_cluster(l->k.g, c, in, out, b->a, &why);
  if (!k) bug("%s: %s", l->c->name, why);
  k->name = arena_printf(b->a, "%s.%d", l->c->name, i);
  Cmd *x = case_cmd(b, l->c, CMD_KERNEL, c->nin + c->nout, t);
  x->name = k->name;
  cmd_workspace(l->c, x, cuda_workspace(k));
  if (!cuda_build_kernel(b->build, x, k, &why)) bug("%s: %s", l->c->name, why);
}

static inline LoopCase *loop_case(Bench *b, int row, int64_t rows, int64_t cols, DType t) {
  LoopCase *l = arena_new_of(b->a, LoopCase);
  l->index = b->n;
  l->c = case_new(b, arena_printf(b->a, "%s %lldx%lld %s", kernel_graph_rows[row].name,
                                  (long long)rows, (long long)cols, dtype_name(t)));
  l->k = kernel_graph(b->a, row, rows, cols, t);
  l->clusters = fuse_graph(l->k.g, b->a);
  l->k.g = l->clusters.g;
  l->map = storage_map(&l->clusters, b->a);
  l->unit_at = arena_array(b->a, int64_t, l->map.nunits + 1);
  for (int u = 0; u < l->map.nunits; u++) l->unit_at[u] = case_take(l->c, l->map.unit[u].bytes);
  for (int i = 0; i < l->clusters.n; i++) add_loop_cluster(b, l, i);
  return l;
}

/* The values of the interpreter, every input written to the device. */
static inline double **loop_inputs(Bench *b, Arena *a, LoopCase *l) {
  Graph *g = l->k.g;
  InterpInput *in = arena_array(a, InterpInput, l->k.inputs.n + 1);
  double **vars = arena_array(a, double *, g->vars->all.n + 1);
  for (int i = 0; i < g->vars->all.n; i++) {
    const Var *v = &g->vars->all.at[i];
    double below = v->dtype == DT_U8 ? 256 : v->dtype == DT_U16 ? 65536 : 1000;
    vars[i] = draw_values(a, v->dtype, shape_count(&v->shape), dtype_is_float(v->dtype) ? .01 : 0,
                          dtype_is_float(v->dtype) ? 1 : below);
  }
  for (int i = 0; i < l->k.inputs.n; i++) in[i].name = l->k.inputs.at[i].name;
  for (int n = 0; n < g->nodes.n; n++) {
    const Node *x = node_at(g, n);
    if (x->op != OP_INPUT && x->op != OP_VAR) continue;
    const ValuePlace *p = &l->map.place[x->out];
    const Value *v = val(g, x->out);
    double *data = x->op == OP_VAR ? vars[node_int(x, "var")] : NULL;
    for (int i = 0; i < l->k.inputs.n && !data; i++) {
      if (x->sym != l->k.inputs.at[i].name) continue;
      data = draw_values(a, v->dtype, shape_count(&v->shape), l->k.inputs.at[i].lo,
                         l->k.inputs.at[i].hi);
      in[i].data = data;
    }
    if (p->unit < 0) continue;
    Tensor t = place_tensor(l, p, x->out);
    put_tensor(b, &t, data);
  }
  Interp run = {.arena = a, .inputs = in, .ninputs = l->k.inputs.n, .vars = vars};
  return graph_interp(g, &run);
}

static inline void check_loop(Bench *b, LoopCase *l) {
  Arena *a = arena_new();
  poison(b, l->c);
  double **want = loop_inputs(b, a, l);
  run_case(b, l->index);
  double worst = 0;
  for (int i = 0; i < l->clusters.n; i++)
    for (int k = 0; k < l->clusters.at[i].nout; k++) {
      ValueId v = l->clusters.at[i].out[k];
      const Value *x = val(l->k.g, v);
      Tensor t = place_tensor(l, &l->map.out[i][k], v);
      double *got = get_tensor(b, a, &t);
      double error = distance(shape_count(&x->shape), got, want[v]);
      /* Codes of 8 bits may be the neighbour's; the low halves of f32 may wrap around. */
      double limit = x->dtype == DT_F32         ? (l->k.t == DT_F32 ? 1e-5 : 1e-2)
                     : dtype_is_float(x->dtype) ? 1e-2
                     : x->dtype == DT_U8        ? 1e-2
                     : x->dtype == DT_U16       ? 5e-2
                                                : 0;
      judge(b, l->c->name,
            arena_printf(a, "output %d of cluster %d (%s)", k, i, dtype_name(x->dtype)), error,
            limit);
      if (dtype_is_float(x->dtype) && error > worst) worst = error;
    }
  printf("loops      %-34s %2d kernels  worst %.1e\n", l->c->name, l->clusters.n, worst);
  arena_free(a);
}

/* ---- scatter ---- */
typedef struct {
  DeviceCase *c;
  int index;
  int64_t n, rows, cols;
  bool accumulate;
  Tensor ids, values, out;
} ScatterCase;

static inline ScatterCase *scatter_case(Bench *b, int64_t n, int64_t rows, int64_t cols, DType in,
                                        DType out, bool accumulate) {
  ScatterCase *x = arena_new_of(b->a, ScatterCase);
  x->index = b->n;
  x->n = n, x->rows = rows, x->cols = cols, x->accumulate = accumulate;
  x->c = case_new(
      b, arena_printf(b->a, "%lld ids into %lldx%lld %s>%s%s", (long long)n, (long long)rows,
                      (long long)cols, dtype_name(in), dtype_name(out), accumulate ? " +=" : ""));
  x->ids = case_tensor(x->c, DT_I32, SHAPE(n));
  x->values = case_tensor(x->c, in, SHAPE(n, cols));
  x->out = case_tensor(x->c, out, SHAPE(rows, cols));
  Cmd *cmd = case_cmd(b, x->c, CMD_SCATTER, 3, (Tensor[]){x->ids, x->values, x->out});
  cmd->accumulate = accumulate;
  const char *why = NULL;
  cmd_workspace(x->c, cmd, cuda_scatter_bytes(cmd));
  if (!cuda_build_scatter(b->build, cmd, &why)) bug("%s: %s", x->c->name, why);
  return x;
}

static inline void check_scatter(Bench *b, ScatterCase *x) {
  Arena *a = arena_new();
  double *ids = draw_values(a, DT_I32, x->n, 0, (double)x->rows * .7),
         *v = draw_values(a, x->values.dtype, x->n * x->cols, -1, 1);
  double *want = arena_array(a, double, x->rows * x->cols);
  if (x->accumulate) want = draw_values(a, x->out.dtype, x->rows * x->cols, -1, 1);
  poison(b, x->c);
  put_tensor(b, &x->ids, ids);
  put_tensor(b, &x->values, v);
  if (x->accumulate) put_tensor(b, &x->out, want);
  for (int64_t i = 0; i < x->n; i++)
    for (int64_t c = 0; c < x->cols; c++) want[(int64_t)ids[i] * x->cols + c] += v[i * x->cols + c];
  run_case(b, x->index);
  double error = distance(x->rows * x->cols, get_tensor(b, a, &x->out), want);
  judge(b, x->c->name, "the sum", error, x->out.dtype == DT_BF16 ? 1e-2 : 1e-5);
  printf("scatter    %-46s %.1e\n", x->c->name, error);
  arena_free(a);
}

#endif
