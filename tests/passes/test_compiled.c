/* test_compiled.c - random graphs all the way: fused, placed, emitted as C, compiled and run at
 * their places; results and variables agree with the interpreter. Contractions and scatters run as
 * plain loops over the same places. */
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "random_graph.h"

#include "codegen/lower.h"
#include "codegen/prelude_c.h"
#include "passes/storage.h"
#include "runtime/convert.h"
#include "runtime/cpu_cc.h"

enum { GRAPHS = 16 };

typedef struct {
  Arena *a;
  Graph *g; /* as drawn */
  Clusters c;
  StorageMap m;
  Kernel **kernel; /* per cluster; NULL for calls */
  char **memory;   /* per unit */
} Built;

/* ---- building ---- */

static Storage storage_at(const ValuePlace *p) {
  Storage s = {.buf = p->unit, .offset = p->offset};
  memcpy(s.stride, p->stride, sizeof s.stride);
  return s;
}

static Built build(Arena *a, uint64_t seed) {
  Built p = {.a = a, .g = random_graph(a, seed, 50)};
  p.c = fuse_graph(arena_copy(a, p.g, sizeof *p.g), a);
  p.m = storage_map(&p.c, a);
  p.kernel = arena_array(a, Kernel *, p.c.n + 1);
  for (int i = 0; i < p.c.n; i++) {
    const Cluster *c = &p.c.at[i];
    if (c->kind != CL_LOOP) continue;
    Storage *in = arena_array(a, Storage, c->nin + 1), *out = arena_array(a, Storage, c->nout + 1);
    for (int k = 0; k < c->nin; k++) in[k] = storage_at(&p.m.place[c->in[k]]);
    for (int k = 0; k < c->nout; k++) out[k] = storage_at(&p.m.out[i][k]);
    const char *why = NULL;
    p.kernel[i] = lower_cluster(p.c.g, c, in, out, a, &why);
    if (!p.kernel[i]) fail_msg("seed %d: `%s`: %s", (int)seed, c->name, why);
  }
  return p;
}

static void emit(Str *source, const Built *p, int graph) {
  for (int i = 0; i < p->c.n; i++)
    if (p->kernel[i])
      str_addf(source, "void k%d_%d%s", graph, i, kernel_print_c(p->kernel[i], p->a));
}

static void *load(Arena *a, const char *source) {
  Fail f = {0};
  const void *image;
  size_t size;
  if (!cpu_compile(a, source, &image, &size, NULL, &f)) fail_msg("%s", f.text);
  int fd = memfd_create("kernels", 0);
  assert_int_equal(write(fd, image, size), (ssize_t)size);
  void *lib = dlopen(arena_printf(a, "/proc/self/fd/%d", fd), RTLD_NOW);
  if (!lib) fail_msg("%s", dlerror());
  close(fd);
  return lib;
}

/* ---- running ---- */

static double get(DType t, const char *at) {
  uint16_t h;
  float f;
  int32_t i;
  if (t == DT_F32) return memcpy(&f, at, 4), f;
  if (t == DT_BF16) return memcpy(&h, at, 2), bf16_to_f32(h);
  assert_int_equal(t, DT_I32);
  return memcpy(&i, at, 4), i;
}

static char *element(const Built *p, const ValuePlace *at, const Shape *s, DType t, int64_t flat) {
  int64_t where = 0;
  for (int k = s->rank - 1; k >= 0; k--) {
    where += flat % s->dim[k] * at->stride[k];
    flat /= s->dim[k];
  }
  return p->memory[at->unit] + at->offset + where * dtype_bytes(t);
}

static double *gathered(const Built *p, ValueId v) {
  const Value *x = val(p->c.g, v);
  int64_t n = shape_count(&x->shape);
  double *d = arena_array(p->a, double, n);
  for (int64_t i = 0; i < n; i++)
    d[i] = get(x->dtype, element(p, &p->m.place[v], &x->shape, x->dtype, i));
  return d;
}

/* The call itself is the interpreter's; operands and result lie where the plan says. */
static void run_call(const Built *p, int i) {
  const Cluster *c = &p->c.at[i];
  const Graph *g = p->c.g;
  Graph *one = graph_new(p->a, "call", g->vars);
  ValueId *map = arena_array(p->a, ValueId, g->values.n);
  InterpInput *in = arena_array(p->a, InterpInput, c->nin);
  for (int k = 0; k < c->nin; k++) {
    const Value *x = val(g, c->in[k]);
    in[k] = (InterpInput){arena_printf(p->a, "i%d", k), gathered(p, c->in[k])};
    map[c->in[k]] = g_input(one, in[k].name, x->dtype, x->shape);
  }
  for (int k = 0; k < c->nnodes; k++) {
    const Node *n = node_at(g, c->nodes[k]);
    if (n->op == OP_ASSIGN) continue;
    ValueId args[8];
    for (int o = 0; o < n->nin; o++) args[o] = map[n->in[o]];
    map[n->out] = graph_clone_node(one, g, c->nodes[k], args);
  }
  double **v = graph_interp(
      one,
      &(Interp){
          .arena = p->a, .inputs = in, .ninputs = c->nin, .vars = arena_array(p->a, double *, 8)});
  const Value *y = val(g, c->out[0]);
  assert_int_equal(y->dtype, DT_F32);
  for (int64_t e = 0; e < shape_count(&y->shape); e++) {
    float f = (float)v[map[c->out[0]]][e];
    memcpy(element(p, &p->m.out[i][0], &y->shape, y->dtype, e), &f, 4);
  }
}

static void run_loop(const Built *p, int i, void *lib, int graph) {
  const Cluster *c = &p->c.at[i];
  void **arg = arena_array(p->a, void *, c->nin + c->nout + 1);
  for (int k = 0; k < c->nin; k++) {
    const ValuePlace *at = &p->m.place[c->in[k]];
    arg[k] = p->memory[at->unit] + at->offset;
  }
  for (int k = 0; k < c->nout; k++)
    arg[c->nin + k] = p->memory[p->m.out[i][k].unit] + p->m.out[i][k].offset;
  arg[c->nin + c->nout] = arena_alloc(p->a, (size_t)p->kernel[i]->workspace_bytes + 64);
  void *sym = dlsym(lib, arena_printf(p->a, "k%d_%d", graph, i));
  assert_non_null(sym);
  void (*fn)(void *const *);
  memcpy(&fn, &sym, sizeof fn);
  fn(arg);
}

static void put_f32(char *to, const double *from, int64_t n) {
  for (int64_t i = 0; i < n; i++) memcpy(to + 4 * i, &(float){(float)from[i]}, 4);
}

/* Memory as it is before the run: variables and inputs filled, the rest NaN. */
static void fill(Built *p, double **vars, double *x, double *y) {
  p->memory = arena_array(p->a, char *, p->m.nunits + 1);
  for (int u = 0; u < p->m.nunits; u++) {
    const Unit *unit = &p->m.unit[u];
    p->memory[u] = arena_alloc(p->a, (size_t)unit->bytes + 64);
    memset(p->memory[u], 0xff, (size_t)unit->bytes + 64);
    if (unit->var >= 0) put_f32(p->memory[u], vars[unit->var], unit->bytes / 4);
    if (unit->input >= 0) {
      bool is_x = !strcmp(node_of(p->c.g, unit->input)->sym, "x");
      put_f32(p->memory[u], is_x ? x : y, unit->bytes / 4);
    }
  }
}

static void expect_near(double got, double want, const char *what, int graph, int64_t e) {
  bool same =
      got == want || (isnan(got) && isnan(want)) || fabs(got - want) <= 2e-2 * fmax(1, fabs(want));
  if (!same)
    fail_msg("graph %d, %s, element %d: %.9g, should be %.9g", graph, what, (int)e, got, want);
}

static void run_and_compare(Built *p, void *lib, int graph) {
  const Graph *g = p->g;
  double *x = arena_array(p->a, double, 12), *y = arena_array(p->a, double, 24);
  double *start[3], *after[3];
  double **want = random_run(p->a, g, after);
  random_start(p->a, g, start, x, y);
  fill(p, start, x, y);
  for (int i = 0; i < p->c.n; i++) {
    if (p->kernel[i])
      run_loop(p, i, lib, graph);
    else
      run_call(p, i);
  }
  for (int r = 0; r < g->results.n; r++) {
    double *got = gathered(p, p->c.g->results.at[r]);
    for (int64_t e = 0; e < shape_count(&val(g, g->results.at[r])->shape); e++)
      expect_near(got[e], want[g->results.at[r]][e], g->result_names.at[r], graph, e);
  }
  for (int u = 0; u < p->m.nunits; u++)
    for (int64_t e = 0; p->m.unit[u].var >= 0 && e < p->m.unit[u].bytes / 4; e++)
      expect_near(get(DT_F32, p->memory[u] + 4 * e), after[p->m.unit[u].var][e], "variable", graph,
                  e);
}

static void compiled(void **state) {
  (void)state;
  const char *first = getenv("FIRST_SEED"), *count = getenv("GRAPHS");
  uint64_t seed = first ? strtoull(first, NULL, 10) : 1;
  int n = count ? atoi(count) : GRAPHS;
  Arena *a = arena_new();
  Built *p = arena_array(a, Built, n);
  Str source = {.arena = a};
  str_add(&source, prelude_c);
  for (int i = 0; i < n; i++) {
    p[i] = build(a, seed + (uint64_t)i);
    emit(&source, &p[i], i);
  }
  void *lib = load(a, source.text);
  for (int i = 0; i < n; i++) run_and_compare(&p[i], lib, i);
  dlclose(lib);
  arena_free(a);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(compiled)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
