/* kernel_case.h - harness of the kernel tests: small graphs as hand-made clusters, lowered,
 * printed, compiled together and compared with the interpreter on random data.
 *
 * A case is one graph whose nodes, leaves aside, form one cluster over a given space. Inputs may
 * lie in memory in any layout; unused memory around them holds NaN patterns, so that a stray read
 * shows. */
#ifndef KERNEL_CASE_H
#define KERNEL_CASE_H
#include <dlfcn.h>
#include <fcntl.h>
#include <math.h>
#include <omp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

#include "codegen/lower.h"
#include "codegen/prelude_c.h"
#include "runtime/convert.h"
#include "runtime/cpu_cc.h"
#include "tests/support/elements.h"

typedef enum { PLAIN, TRANSPOSED, PADDED, EVERY_OTHER } Layout;

typedef struct {
  ValueId value;
  const char *name;
  Layout layout;
  double lo, hi;
  double *data;
  char *memory; /* element 0 */
} CaseInput;

typedef struct {
  const char *name;
  Arena *a;
  Graph *g;
  Cluster c;
  VEC(CaseInput) inputs;
  VEC(ValueId) outs;
  VEC(int) out_var;
  struct {
    ValueId v;
    AxisMap map;
  } maps[16];
  int nmaps;
  double tolerance; /* relative, f32 results */
  Kernel *kernel;
  Storage *in_at, *out_at;
  char **out_memory;
  double **want; /* per value */
  double **vars;
} Case;

static uint64_t case_random_state = 88172645463325252ull;
static double case_random(double lo, double hi) {
  case_random_state ^= case_random_state << 13;
  case_random_state ^= case_random_state >> 7;
  case_random_state ^= case_random_state << 17;
  return lo + (hi - lo) * (double)(case_random_state >> 11) * 0x1p-53;
}

static Case *case_new(Arena *a, const char *name) {
  Case *c = arena_new_of(a, Case);
  c->name = name;
  c->a = a;
  c->g = graph_new(a, "test", vars_new(a));
  c->tolerance = 4e-6;
  return c;
}

static ValueId case_input(Case *c, DType t, Shape s, double lo, double hi, Layout layout) {
  const char *name = arena_printf(c->a, "x%d", c->inputs.n);
  CaseInput in = {.name = name, .layout = layout, .lo = lo, .hi = hi};
  in.value = g_input(c->g, name, t, s);
  vec_push(c->a, &c->inputs, in);
  return in.value;
}

static void case_out(Case *c, ValueId v) {
  vec_push(c->a, &c->outs, v);
  vec_push(c->a, &c->out_var, -1);
}

static inline void case_map(Case *c, ValueId v, int n, const int *axes) {
  c->maps[c->nmaps].v = v;
  for (int k = 0; k < n; k++) c->maps[c->nmaps].map.axes[k] = (int8_t)axes[k];
  c->nmaps++;
}

/* Axes of a value by its shape: the space's, its rows, its columns - or as told by case_map. */
static AxisMap case_axes(const Case *c, ValueId v) {
  for (int i = 0; i < c->nmaps; i++)
    if (c->maps[i].v == v) return c->maps[i].map;
  const Shape *s = &val(c->g, v)->shape, *space = &c->c.space;
  AxisMap map = {{0}};
  int first = 0;
  if (s->rank != space->rank && s->rank == space->rank - c->c.outer) first = c->c.outer;
  if (s->rank == c->c.outer && s->rank && s->dim[0] == space->dim[0]) first = 0;
  for (int k = 0; k < s->rank; k++) {
    map.axes[k] = (int8_t)(first + k);
    assert_int_equal(s->dim[k], space->dim[first + k]);
  }
  return map;
}

static void case_add_input(Case *c, ValueId v) {
  for (int i = 0; i < c->c.nin; i++)
    if (c->c.in[i] == v) return;
  c->c.in[c->c.nin++] = v;
}

static void case_cluster(Case *c, Shape space, int outer) {
  Graph *g = c->g;
  c->c.kind = CL_LOOP;
  c->c.space = space;
  c->c.outer = outer;
  c->c.name = c->name;
  c->c.nodes = arena_array(c->a, NodeId, g->nodes.n);
  c->c.node_axes = arena_array(c->a, AxisMap, g->nodes.n);
  c->c.in = arena_array(c->a, ValueId, 4 * g->nodes.n);
  for (int i = 0; i < g->nodes.n; i++) {
    const Node *n = node_at(g, i);
    if (n->op == OP_INPUT || n->op == OP_VAR) continue;
    if (n->nout) c->c.node_axes[c->c.nnodes] = case_axes(c, n->out);
    c->c.nodes[c->c.nnodes++] = i;
    for (int k = 0; k < n->nin; k++) {
      Op def = node_of(g, n->in[k])->op;
      if (def == OP_INPUT || def == OP_VAR) case_add_input(c, n->in[k]);
    }
  }
  c->c.out = c->outs.at;
  c->c.nout = c->outs.n;
  c->c.out_var = c->out_var.at;
}

/* ---- memory ---- */

static void case_strides(const Shape *s, Layout layout, int64_t *stride, int64_t *extent) {
  int order[MAX_RANK];
  for (int k = 0; k < s->rank; k++) order[k] = k;
  if (layout == TRANSPOSED && s->rank > 1) {
    order[s->rank - 1] = s->rank - 2;
    order[s->rank - 2] = s->rank - 1;
  }
  int64_t step = layout == EVERY_OTHER ? 2 : 1;
  for (int k = s->rank - 1; k >= 0; k--) {
    stride[order[k]] = step;
    step *= s->dim[order[k]];
    if (layout == PADDED && k == s->rank - 1) step += 5;
  }
  *extent = step + 8;
}

static char *case_at(char *base, DType t, const Shape *s, const int64_t *stride, int64_t flat) {
  int64_t at = 0;
  for (int k = s->rank - 1; k >= 0; k--) {
    at += flat % s->dim[k] * stride[k];
    flat /= s->dim[k];
  }
  return base + at * dtype_bytes(t);
}

static char *case_memory(Case *c, int64_t elements, DType t) {
  size_t bytes = (size_t)(elements * dtype_bytes(t)) + 64;
  char *m = arena_alloc(c->a, bytes);
  memset(m, 0xff, bytes);
  return m;
}

static void case_fill_inputs(Case *c) {
  for (int i = 0; i < c->inputs.n; i++) {
    CaseInput *in = &c->inputs.at[i];
    const Value *v = val(c->g, in->value);
    int64_t n = shape_count(&v->shape), stride[MAX_RANK], extent;
    in->data = arena_array(c->a, double, n);
    case_strides(&v->shape, in->layout, stride, &extent);
    in->memory = case_memory(c, extent, v->dtype);
    for (int64_t e = 0; e < n; e++) {
      in->data[e] = element_round(v->dtype, case_random(in->lo, in->hi));
      element_put(v->dtype, case_at(in->memory, v->dtype, &v->shape, stride, e), in->data[e]);
    }
  }
}

static const CaseInput *case_find(const Case *c, ValueId v) {
  for (int i = 0; i < c->inputs.n; i++)
    if (c->inputs.at[i].value == v) return &c->inputs.at[i];
  fail_msg("value is no input");
  return NULL;
}

static void case_lower(Case *c) {
  int64_t extent;
  c->in_at = arena_array(c->a, Storage, c->c.nin + 1);
  c->out_at = arena_array(c->a, Storage, c->c.nout + 1);
  for (int i = 0; i < c->c.nin; i++) {
    c->in_at[i].buf = i;
    case_strides(&val(c->g, c->c.in[i])->shape, case_find(c, c->c.in[i])->layout,
                 c->in_at[i].stride, &extent);
  }
  for (int i = 0; i < c->c.nout; i++) {
    c->out_at[i].buf = c->c.nin + i;
    case_strides(&val(c->g, c->c.out[i])->shape, PLAIN, c->out_at[i].stride, &extent);
  }
  const char *why = NULL;
  c->kernel = lower_cluster(c->g, &c->c, c->in_at, c->out_at, c->a, &why);
  if (!c->kernel) fail_msg("%s: %s", c->name, why);
}

typedef void CaseFn(void *const *arg);

/* Fresh output memory, then one run. */
static void case_run(Case *c, CaseFn *fn) {
  void **arg = arena_array(c->a, void *, c->c.nin + c->c.nout + 1);
  c->out_memory = arena_array(c->a, char *, c->c.nout + 1);
  for (int i = 0; i < c->c.nin; i++) arg[i] = case_find(c, c->c.in[i])->memory;
  for (int i = 0; i < c->c.nout; i++) {
    const Value *v = val(c->g, c->c.out[i]);
    arg[c->c.nin + i] = c->out_memory[i] = case_memory(c, shape_count(&v->shape), v->dtype);
  }
  if (c->kernel->has_workspace)
    arg[c->c.nin + c->c.nout] = case_memory(c, c->kernel->workspace_bytes / 4, DT_F32);
  fn(arg);
}

static inline void case_compare(Case *c) {
  InterpInput *in = arena_array(c->a, InterpInput, c->inputs.n + 1);
  for (int i = 0; i < c->inputs.n; i++)
    in[i] = (InterpInput){c->inputs.at[i].name, c->inputs.at[i].data};
  Interp run = {
      .arena = c->a, .inputs = in, .ninputs = c->inputs.n, .vars = arena_array(c->a, double *, 8)};
  double **want = graph_interp(c->g, &run);
  for (int o = 0; o < c->c.nout; o++) {
    const Value *v = val(c->g, c->c.out[o]);
    double unit = v->dtype == DT_BF16 ? 0x1p-7 : v->dtype == DT_F16 ? 0x1p-10 : c->tolerance;
    for (int64_t e = 0; e < shape_count(&v->shape); e++) {
      double got = element_get(v->dtype, c->out_memory[o] + e * dtype_bytes(v->dtype));
      double expect = want[c->c.out[o]][e], bound = unit * fmax(1, fabs(expect));
      if (!dtype_is_float(v->dtype)) bound = 0;
      if (got == expect || (isnan(got) && isnan(expect)) || fabs(got - expect) <= bound) continue;
      fail_msg("%s: output %d element %lld is %.9g, should be %.9g", c->name, o, (long long)e, got,
               expect);
    }
  }
}

/* One shared object for all cases. */
static void *case_compile(Arena *a, int n, Case **cases) {
  Str source = {.arena = a};
  str_add(&source, prelude_c);
  str_add(&source, prelude_formats);
  for (int i = 0; i < n; i++) {
    case_fill_inputs(cases[i]);
    case_lower(cases[i]);
    const Kernel *k = cases[i]->kernel;
    str_addf(&source, "/* %s */\n%svoid k%d%s%s", cases[i]->name, k->nkeys ? "static " : "", i,
             k->nkeys ? "body" : "", kernel_print_c(k, a));
    if (!k->nkeys) continue;
    str_addf(&source, "void k%d(void *const *arg) { k%dbody(arg", i, i);
    for (int j = 0; j < k->nkeys; j++)
      str_addf(&source, ", 0x%llxull", (unsigned long long)k->keys[j]);
    str_add(&source, "); }\n");
  }
  const char *keep = getenv("KERNEL_SOURCE");
  if (keep) write_file_atomic(keep, source.text, source.len);
  const void *image;
  size_t size;
  Fail f = {0};
  if (!cpu_compile(a, source.text, &image, &size, NULL, &f)) fail_msg("%s", f.text);
  int fd = memfd_create("kernels", MFD_CLOEXEC);
  assert_true(fd >= 0 && write(fd, image, size) == (ssize_t)size);
  void *lib = dlopen(arena_printf(a, "/proc/self/fd/%d", fd), RTLD_NOW);
  if (!lib) fail_msg("%s", dlerror());
  return lib; /* the file stays open: its number is the library's name */
}

static CaseFn *case_fn(void *lib, int i) {
  char name[16];
  snprintf(name, sizeof name, "k%d", i);
  CaseFn *fn = (CaseFn *)dlsym(lib, name);
  assert_non_null(fn);
  return fn;
}

/* Compiles, runs and compares them all. */
static inline void cases_check(Arena *a, int n, Case **cases) {
  assert_true(omp_get_max_threads() >
              0); /* keeps the threads' library when the kernels' is closed */
  void *lib = case_compile(a, n, cases);
  for (int i = 0; i < n; i++) {
    case_run(cases[i], case_fn(lib, i));
    case_compare(cases[i]);
  }
  dlclose(lib);
}

#endif
