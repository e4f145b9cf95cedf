/* mtx_check.c - proves that a program that was read stays inside its bounds: every tensor and copy
 * inside its arena, every index inside its array, every operand list as long and shaped as its
 * command wants, on the device but for variables. What passes can be replayed without further
 * checks; ids inside batches are the data reader's to check, and that a copy's ends are left alone
 * until it is awaited is the planner's (passes/check.c). */
#include "../ir/graph.h"
#include "convert.h"
#include "mtx_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  const Program *p;
  Arena *arena;
  const char *why;
} Check;

__attribute__((format(printf, 2, 3))) static void wrong(Check *c, const char *fmt, ...) {
  if (c->why) return;
  va_list ap;
  va_start(ap, fmt);
  c->why = arena_vprintf(c->arena, fmt, ap);
  va_end(ap);
}

static bool within(int64_t size, int64_t offset, int64_t bytes) {
  return offset >= 0 && bytes >= 0 && offset <= size && bytes <= size - offset;
}
/* True when `bytes` bytes from `offset` lie inside the device's arena. */
static bool inside(const Check *c, int64_t offset, int64_t bytes) {
  return within(c->p->arena_bytes, offset, bytes);
}

/* `host`: it may lie in the host's arena. */
static void check_tensor(Check *c, const char *what, const Tensor *t, bool host) {
  int64_t size = t->host ? c->p->host_bytes : c->p->arena_bytes;
  if (t->host && !host) {
    wrong(c, "%s: lies on the host, where only variables do", what);
    return;
  }
  int64_t last = 0, count = 1;
  for (int i = 0; i < t->rank; i++) {
    int64_t step;
    if (t->dim[i] < 1 || t->stride[i] < 0) {
      wrong(c, "%s: axis %d has size %lld and stride %lld", what, i, (long long)t->dim[i],
            (long long)t->stride[i]);
      return;
    }
    if (__builtin_mul_overflow(t->dim[i] - 1, t->stride[i], &step) ||
        __builtin_add_overflow(last, step, &last) ||
        __builtin_mul_overflow(count, t->dim[i], &count)) {
      wrong(c, "%s: its shape is too large", what);
      return;
    }
  }
  int64_t bytes;
  if (__builtin_mul_overflow(last + 1, dtype_bytes(t->dtype), &bytes) ||
      !within(size, t->offset, bytes))
    wrong(c, "%s: offset %lld lies outside the %sarena of %lld bytes", what, (long long)t->offset,
          t->host ? "host's " : "", (long long)size);
  else if (t->offset % dtype_bytes(t->dtype))
    wrong(c, "%s: offset %lld is not aligned", what, (long long)t->offset);
}

/* ---- commands ---- */

/* One operand of a GEMM: `batch` matrices of rows x cols. */
static void check_matrix(Check *c, const char *what, const Tensor *t, int64_t batch, int64_t step,
                         int64_t rows, int64_t cols, int64_t ld) {
  int64_t over_batch, over_rows, last;
  if (ld < cols || step < 0 || __builtin_mul_overflow(batch - 1, step, &over_batch) ||
      __builtin_mul_overflow(rows - 1, ld, &over_rows) ||
      __builtin_add_overflow(over_batch, over_rows, &last) ||
      __builtin_add_overflow(last, cols, &last) ||
      __builtin_mul_overflow(last, dtype_bytes(t->dtype), &last) || !inside(c, t->offset, last))
    wrong(c, "%s: a matrix of its product lies outside the arena", what);
}

static void check_gemm(Check *c, const char *what, const Cmd *k) {
  const Gemm *g = &k->gemm;
  const int64_t max = INT32_MAX;
  if (g->batch < 1 || g->m < 1 || g->n < 1 || g->k < 1 || g->m > max || g->n > max || g->k > max ||
      g->lda > max || g->ldb > max || g->ldc > max) {
    wrong(c, "%s: sizes of its product are out of range", what);
    return;
  }
  const Tensor *t = k->tensors;
  for (int i = 0; i < 3; i++)
    if (!dtype_is_float(t[i].dtype) || !dtype_is_float(g->product))
      wrong(c, "%s: a product of integers", what);
  check_matrix(c, what, &t[0], g->batch, g->step_a, g->trans_a ? g->k : g->m,
               g->trans_a ? g->m : g->k, g->lda);
  check_matrix(c, what, &t[1], g->batch, g->step_b, g->trans_b ? g->n : g->k,
               g->trans_b ? g->k : g->n, g->ldb);
  check_matrix(c, what, &t[2], g->batch, g->step_c, g->m, g->n, g->ldc);
}

static bool has_dims(const Tensor *t, int rank, const int64_t *dim) {
  return t->rank == rank && !memcmp(t->dim, dim, sizeof *dim * (size_t)rank);
}

static void check_attention(Check *c, const char *what, const Cmd *k) {
  bool bwd = k->kind == CMD_ATTENTION_BWD;
  const Attention *at = &k->attention;
  int extra = at->has_mask + at->has_bias + 3 * at->has_drop;
  int want = bwd ? 9 + extra + at->has_bias : 5 + extra;
  if (k->ntensors != want) {
    wrong(c, "%s: attention takes %d tensors, not %d", what, want, k->ntensors);
    return;
  }
  const Tensor *q = &k->tensors[0], *key = &k->tensors[1], *value = &k->tensors[2];
  if (q->rank != 4 || key->rank != 4 || q->dim[0] != key->dim[0] || q->dim[3] != key->dim[3] ||
      q->dim[2] % key->dim[2] || !has_dims(value, 4, key->dim)) {
    wrong(c, "%s: shapes of q, k and v do not fit", what);
    return;
  }
  int64_t mask[] = {q->dim[0], key->dim[1]}, bias[] = {q->dim[2], q->dim[1], key->dim[1]};
  int64_t lse[] = {q->dim[0], q->dim[2], q->dim[1]}, seed[] = {2};
  const Tensor *t = &k->tensors[3];
  bool ok = true;
  if (bwd)
    ok = has_dims(&t[0], 4, q->dim) && has_dims(&t[1], 3, lse) && has_dims(&t[2], 4, q->dim),
    t += 3;
  if (at->has_mask) ok = ok && has_dims(t++, 2, mask);
  if (at->has_bias) ok = ok && has_dims(t++, 3, bias);
  if (at->has_drop) ok = ok && has_dims(t, 1, seed) && !t[1].rank && !t[2].rank, t += 3;
  ok = ok && has_dims(&t[0], 4, q->dim);
  if (bwd)
    ok = ok && has_dims(&t[1], 4, key->dim) && has_dims(&t[2], 4, key->dim) &&
         (!at->has_bias || has_dims(&t[3], 3, bias));
  else
    ok = ok && has_dims(&t[1], 3, lse);
  if (!ok) wrong(c, "%s: shapes of its tensors do not fit", what);
}

static void check_scatter(Check *c, const char *what, const Cmd *k) {
  const Tensor *ids = &k->tensors[0], *rows = &k->tensors[1], *out = &k->tensors[2];
  int rest = out->rank - 1;
  if (ids->dtype != DT_I32 || rest < 0 || rows->rank != ids->rank + rest ||
      memcmp(rows->dim, ids->dim, sizeof *ids->dim * (size_t)ids->rank) ||
      memcmp(rows->dim + ids->rank, out->dim + 1, sizeof *out->dim * (size_t)rest))
    wrong(c, "%s: shapes of ids, rows and result do not fit", what);
}

static void check_transfer(Check *c, const char *what, const Copy *y) {
  if (y->bytes < 1 || !inside(c, y->device_offset, y->bytes) ||
      !within(c->p->host_bytes, y->host_offset, y->bytes))
    wrong(c, "%s: a copy of %lld bytes lies outside its arenas", what, (long long)y->bytes);
}

/* `awaited`: per command, whether a wait for it was met. */
static void check_wait(Check *c, const ProgramCode *code, const char *what, int index,
                       bool *awaited) {
  int of = code->cmds[index].copy.awaited;
  if (of < 0 || of >= index || code->cmds[of].kind != CMD_COPY)
    wrong(c, "%s: it waits for no copy before it", what);
  else if (awaited[of])
    wrong(c, "%s: the copy of command %d was awaited before", what, of);
  else
    awaited[of] = true;
}

static void check_launch(Check *c, const char *what, const Launch *l) {
  if (l->kernel < 0 || l->kernel >= c->p->nkernels)
    wrong(c, "%s: there is no kernel %d", what, l->kernel);
  bool grid = l->grid[0] > 0 && l->grid[1] > 0 && l->grid[2] > 0;
  if (!grid || l->threads < 1 || l->threads > 1024 || l->shared < 0 || l->rows < 0 || l->cols < 0 ||
      l->store_rows < 0)
    wrong(c, "%s: a launch is out of range", what);
  if (l->table_offset < 0 || l->table_offset % 4) wrong(c, "%s: a schedule is out of range", what);
}

static void check_cmd(Check *c, const ProgramCode *code, int index, bool *awaited) {
  const Cmd *k = &code->cmds[index];
  const char *what = arena_printf(c->arena, "command %d of `%s` (%s)", index,
                                  code->name ? code->name : "?", k->name ? k->name : "?");
  for (int i = 0; i < k->ntensors; i++) check_tensor(c, what, &k->tensors[i], false);
  if (k->workspace_bytes && !inside(c, k->workspace_offset, k->workspace_bytes))
    wrong(c, "%s: its workspace lies outside the arena", what);
  static const int at_least[] = {
      [CMD_KERNEL] = 0,  [CMD_GEMM] = 3, [CMD_ATTENTION] = 5, [CMD_ATTENTION_BWD] = 9,
      [CMD_SCATTER] = 3, [CMD_FILL] = 1, [CMD_COPY] = 0,      [CMD_WAIT] = 0};
  if (k->ntensors < at_least[k->kind]) wrong(c, "%s: too few tensors", what);
  if (c->why) return;
  if (k->kind == CMD_KERNEL && !k->nlaunches && (k->kernel < 0 || k->kernel >= c->p->nkernels))
    wrong(c, "%s: there is no kernel %d", what, k->kernel);
  for (int i = 0; i < k->nlaunches; i++) check_launch(c, what, &k->launches[i]);
  if (k->kind == CMD_GEMM) check_gemm(c, what, k);
  if (k->kind == CMD_ATTENTION || k->kind == CMD_ATTENTION_BWD) check_attention(c, what, k);
  if (k->kind == CMD_SCATTER) check_scatter(c, what, k);
  if (k->kind == CMD_COPY) check_transfer(c, what, &k->copy);
  if (k->kind == CMD_WAIT) check_wait(c, code, what, index, awaited);
  if ((k->kind == CMD_COPY || k->kind == CMD_WAIT) && (k->ntensors || k->nlaunches))
    wrong(c, "%s: a copy has no operands of its own", what);
}

static void check_code(Check *c, const ProgramCode *code) {
  if (!code->name) wrong(c, "a program has no name");
  bool *awaited = arena_array(c->arena, bool, code->ncmds + 1);
  for (int i = 0; i < code->ncmds && !c->why; i++) check_cmd(c, code, i, awaited);
  for (int i = 0; i < code->ninputs; i++) {
    if (!code->inputs[i].name) wrong(c, "an input of `%s` has no name", code->name);
    check_tensor(c, "an input", &code->inputs[i].at, false);
  }
  for (int i = 0; i < code->nresults; i++) {
    if (!code->results[i].name) wrong(c, "a result of `%s` has no name", code->name);
    check_tensor(c, "a result", &code->results[i].at, false);
  }
  for (int i = 0; i < code->ndeaths; i++)
    if (code->deaths[i].cmd < 0 || code->deaths[i].cmd >= code->ncmds ||
        !inside(c, code->deaths[i].offset, code->deaths[i].bytes))
      wrong(c, "a dead buffer of `%s` lies outside the arena", code->name);
}

/* ---- tables ---- */

static int by_text(const void *a, const void *b) {
  return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* A copy must lead to a value of as many elements in fewer than nvars steps. */
static void check_copy(Check *c, int i) {
  const Program *p = c->p;
  const ProgramVar *v = &p->vars[i];
  int at = i, steps = 0;
  while (at >= 0 && at < p->nvars && p->vars[at].init_kind == INIT_COPY && steps++ < p->nvars)
    at = p->vars[at].init_from;
  if (at < 0 || at >= p->nvars || steps > p->nvars ||
      tensor_count(&p->vars[at].at) != tensor_count(&v->at))
    wrong(c, "%s: its initial value is a copy of nothing", v->path);
}

static void check_vars(Check *c) {
  const Program *p = c->p;
  const char **paths = arena_array(c->arena, const char *, p->nvars + 1);
  for (int i = 0; i < p->nvars && !c->why; i++) {
    const ProgramVar *v = &p->vars[i];
    if (!v->path) {
      wrong(c, "variable %d has no path", i);
      return;
    }
    paths[i] = v->path;
    check_tensor(c, v->path, &v->at, true);
    if (v->of < -1 || v->of >= p->nvars) wrong(c, "%s: belongs to no variable", v->path);
    if (v->init_kind < 0 || v->init_kind > INIT_COPY)
      wrong(c, "%s: unknown initial value", v->path);
    if (!isfinite(v->init_a) || !isfinite(v->init_b))
      wrong(c, "%s: its initial value is not finite", v->path);
  }
  for (int i = 0; i < p->nvars && !c->why; i++) check_copy(c, i);
  if (c->why) return;
  qsort(paths, (size_t)p->nvars, sizeof *paths, by_text);
  for (int i = 1; i < p->nvars; i++)
    if (!strcmp(paths[i - 1], paths[i])) wrong(c, "two variables are called %s", paths[i]);
}

static bool in_programs(const Program *p, int i) {
  return i >= -1 && i < p->nprograms;
}

static void check_phase(Check *c, const ProgramPhase *f) {
  const Program *p = c->p;
  if (f->micro < 0 || !in_programs(p, f->micro) || !in_programs(p, f->update) ||
      !in_programs(p, f->eval) || !in_programs(p, f->sample) || !in_programs(p, f->first))
    wrong(c, "a phase names a program that is not there");
  if (f->update < 0 && f->accumulation != 1)
    wrong(c, "a phase without an update has several micro-batches");
  int64_t samples;
  if (f->micro_batch < 1 || f->accumulation < 1 ||
      __builtin_mul_overflow(f->micro_batch, f->accumulation, &samples) || samples > INT32_MAX)
    wrong(c, "a phase's batch is out of range");
  if (f->tokens_per_sample < 1 || f->tokens_per_sample > INT32_MAX)
    wrong(c, "a phase's sample length is out of range");
  if (f->steps < 0 || f->data < -1 || f->data >= p->ndata)
    wrong(c, "a phase's settings are out of range");
  const double numbers[] = {f->epochs, f->lr,     f->warmup,          f->final,
                            f->decay,  f->cycles, f->est_step_seconds};
  for (int i = 0; i < COUNT_OF(numbers); i++)
    if (!isfinite(numbers[i]) || numbers[i] < 0) wrong(c, "a phase's settings are out of range");
  if (!f->steps && !(f->epochs > 0)) wrong(c, "a phase has neither steps nor epochs");
}

static void check_rest(Check *c) {
  const Program *p = c->p;
  for (int i = 0; i < p->ndata; i++) {
    const ProgramData *d = &p->data[i];
    if (!(d->holdout >= 0 && d->holdout < 1)) wrong(c, "a holdout is not a share");
    if (d->dtype && strcmp(d->dtype, "u16") && strcmp(d->dtype, "u32"))
      wrong(c, "token files of %s", d->dtype);
  }
  for (int i = 0; i < p->nweights; i++)
    if (!p->weights[i].key || p->weights[i].var < 0 || p->weights[i].var >= p->nvars)
      wrong(c, "the weights map names a variable that is not there");
  for (int i = 0; i < p->nkernels; i++)
    if (!p->kernel_names[i]) wrong(c, "a kernel has no name");
  if (p->eval_data < -1 || p->eval_data >= p->ndata || p->eval_every < 0 || p->eval_batches < 0)
    wrong(c, "the evaluation's settings are out of range");
  if (p->ckpt_every < 0 || p->ckpt_keep < 0 || p->nonfinite_limit < 0 || p->vocab < 0)
    wrong(c, "settings are out of range");
}

const char *mtx_check(const Program *p, Arena *a) {
  Check c = {p, a, NULL};
  const int64_t most = (int64_t)1 << 56;
  if (p->arena_bytes < 0 || p->arena_bytes > most || p->host_bytes < 0 || p->host_bytes > most ||
      p->persistent_bytes < 0 || p->persistent_bytes > p->arena_bytes)
    wrong(&c, "sizes of the arenas are out of range");
  if (!p->source || !p->model || !p->target) wrong(&c, "source, model or target is missing");
  check_vars(&c);
  for (int i = 0; i < p->nprograms && !c.why; i++) check_code(&c, &p->programs[i]);
  for (int i = 0; i < p->nphases; i++) check_phase(&c, &p->phases[i]);
  check_rest(&c);
  return c.why;
}
