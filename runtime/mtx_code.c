/* mtx_code.c - the binary program inside a .mtx: one description of each record that both writes
 * and reads.
 *
 * Little-endian; integers are i32 or i64, numbers f64, booleans one byte, strings a u32 length and
 * bytes (length 0xffffffff: NULL), arrays an i32 count and items. Reading never goes past the end
 * and never allocates more than a fixed multiple of what is left to read. */
#include "mtx_parts.h"

#include <string.h>

typedef struct {
  Arena *arena;
  Str *out; /* writing; NULL: reading */
  const uint8_t *in;
  size_t size, at;
  const char *why; /* first thing that was wrong */
} Codec;

static void fail(Codec *c, const char *why) {
  if (!c->why) c->why = why;
  c->at = c->size;
}

static void io_bytes(Codec *c, void *p, size_t n) {
  if (c->out) {
    str_add_n(c->out, p, n);
  } else if (c->size - c->at < n) {
    memset(p, 0, n);
    fail(c, "the program section ends too early");
  } else {
    memcpy(p, c->in + c->at, n);
    c->at += n;
  }
}

static void io_u64(Codec *c, uint64_t *x) {
  uint8_t b[8];
  for (int i = 0; i < 8; i++) b[i] = (uint8_t)(*x >> 8 * i);
  io_bytes(c, b, sizeof b);
  *x = 0;
  for (int i = 0; i < 8; i++) *x |= (uint64_t)b[i] << 8 * i;
}

static void io_i64(Codec *c, int64_t *x) {
  uint64_t u = (uint64_t)*x;
  io_u64(c, &u);
  *x = (int64_t)u;
}

static void io_int(Codec *c, int *x) {
  uint32_t u = (uint32_t)*x;
  uint8_t b[4];
  for (int i = 0; i < 4; i++) b[i] = (uint8_t)(u >> 8 * i);
  io_bytes(c, b, sizeof b);
  u = 0;
  for (int i = 0; i < 4; i++) u |= (uint32_t)b[i] << 8 * i;
  *x = (int)u;
}

static void io_f64(Codec *c, double *x) {
  uint64_t u;
  memcpy(&u, x, sizeof u);
  io_u64(c, &u);
  memcpy(x, &u, sizeof u);
}

static void io_bool(Codec *c, bool *x) {
  uint8_t b = *x;
  io_bytes(c, &b, 1);
  if (b > 1) fail(c, "a flag is neither 0 nor 1");
  *x = b == 1;
}

static void io_str(Codec *c, const char **s) {
  int n = c->out ? *s ? (int)strlen(*s) : -1 : 0;
  io_int(c, &n);
  if (c->out) {
    if (n > 0) str_add_n(c->out, *s, (size_t)n);
    return;
  }
  *s = NULL;
  if (n == -1) return;
  if (n < 0 || (size_t)n > c->size - c->at) {
    fail(c, "a string is longer than the program section");
    return;
  }
  if (memchr(c->in + c->at, 0, (size_t)n)) {
    fail(c, "a string holds a zero byte");
    return;
  }
  char *copy = arena_alloc(c->arena, (size_t)n + 1);
  memcpy(copy, c->in + c->at, (size_t)n);
  c->at += (size_t)n;
  *s = copy;
}

/* The count of an array whose items take at least min bytes. */
static void io_count(Codec *c, int *n, size_t min) {
  io_int(c, n);
  if (c->out) return;
  if (*n < 0 || (size_t)*n > (c->size - c->at) / min) {
    fail(c, "an array is longer than the program section");
    *n = 0;
  }
}

/* Count and storage of an array; the caller codes the items. */
#define IO_ARRAY(c, n, items, min)                                                         \
  do {                                                                                     \
    io_count((c), &(n), (min));                                                            \
    if (!(c)->out) (items) = arena_alloc((c)->arena, sizeof *(items) * (size_t)((n) + 1)); \
  } while (0)

static void io_tensor(Codec *c, Tensor *t) {
  io_i64(c, &t->offset);
  io_bool(c, &t->host);
  int dtype = (int)t->dtype;
  io_int(c, &dtype);
  if (dtype < 0 || dtype >= DT_COUNT) fail(c, "an unknown element type"), dtype = 0;
  t->dtype = (DType)dtype;
  io_int(c, &t->rank);
  if (t->rank < 0 || t->rank > MAX_RANK) fail(c, "a tensor has too many axes"), t->rank = 0;
  for (int i = 0; i < t->rank; i++) {
    io_i64(c, &t->dim[i]);
    io_i64(c, &t->stride[i]);
  }
}

static void io_gemm(Codec *c, Gemm *g) {
  int64_t *numbers[] = {&g->batch, &g->m,   &g->n,      &g->k,      &g->lda,
                        &g->ldb,   &g->ldc, &g->step_a, &g->step_b, &g->step_c};
  for (int i = 0; i < COUNT_OF(numbers); i++) io_i64(c, numbers[i]);
  io_bool(c, &g->trans_a);
  io_bool(c, &g->trans_b);
  io_bool(c, &g->accumulate);
  int product = (int)g->product;
  io_int(c, &product);
  if (product < 0 || product >= DT_COUNT) fail(c, "an unknown element type"), product = 0;
  g->product = (DType)product;
  io_bool(c, &g->tf32);
}

static void io_attention(Codec *c, Attention *t) {
  io_bool(c, &t->causal);
  io_bool(c, &t->has_mask);
  io_bool(c, &t->has_bias);
  io_bool(c, &t->has_drop);
  io_bool(c, &t->wgmma);
  io_f64(c, &t->scale);
  io_f64(c, &t->drop);
  io_u64(c, &t->key);
}

static void io_copy(Codec *c, Copy *y) {
  io_bool(c, &y->to_host);
  io_i64(c, &y->device_offset);
  io_i64(c, &y->host_offset);
  io_i64(c, &y->bytes);
  io_int(c, &y->awaited);
}

static void io_launch(Codec *c, Launch *l) {
  int *numbers[] = {&l->kernel, &l->grid[0], &l->grid[1], &l->grid[2], &l->threads,
                    &l->shared, &l->role,    &l->rows,    &l->cols,    &l->store_rows};
  for (int i = 0; i < COUNT_OF(numbers); i++) io_int(c, numbers[i]);
  io_i64(c, &l->table_offset);
}

static void io_cmd(Codec *c, Cmd *k) {
  int kind = (int)k->kind;
  io_int(c, &kind);
  if (kind < CMD_KERNEL || kind > CMD_WAIT) fail(c, "an unknown command"), kind = CMD_FILL;
  k->kind = (CmdKind)kind;
  io_int(c, &k->kernel);
  io_int(c, &k->nlaunches);
  if (k->nlaunches < 0 || k->nlaunches > MAX_LAUNCHES)
    fail(c, "a command has too many launches"), k->nlaunches = 0;
  for (int i = 0; i < k->nlaunches; i++) io_launch(c, &k->launches[i]);
  IO_ARRAY(c, k->ntensors, k->tensors, 16);
  for (int i = 0; i < k->ntensors; i++) io_tensor(c, &k->tensors[i]);
  if (k->kind == CMD_GEMM) io_gemm(c, &k->gemm);
  if (k->kind == CMD_ATTENTION || k->kind == CMD_ATTENTION_BWD) io_attention(c, &k->attention);
  if (k->kind == CMD_COPY || k->kind == CMD_WAIT) io_copy(c, &k->copy);
  io_bool(c, &k->accumulate);
  io_i64(c, &k->workspace_offset);
  io_i64(c, &k->workspace_bytes);
  io_str(c, &k->name);
  io_str(c, &k->where);
}

static void io_program(Codec *c, ProgramCode *p) {
  io_str(c, &p->name);
  IO_ARRAY(c, p->ncmds, p->cmds, 41);
  for (int i = 0; i < p->ncmds; i++) io_cmd(c, &p->cmds[i]);
  IO_ARRAY(c, p->ninputs, p->inputs, 20);
  for (int i = 0; i < p->ninputs; i++)
    io_str(c, &p->inputs[i].name), io_tensor(c, &p->inputs[i].at);
  IO_ARRAY(c, p->nresults, p->results, 20);
  for (int i = 0; i < p->nresults; i++)
    io_str(c, &p->results[i].name), io_tensor(c, &p->results[i].at);
  IO_ARRAY(c, p->ndeaths, p->deaths, 20);
  for (int i = 0; i < p->ndeaths; i++) {
    io_int(c, &p->deaths[i].cmd);
    io_i64(c, &p->deaths[i].offset);
    io_i64(c, &p->deaths[i].bytes);
  }
}

static void io_var(Codec *c, ProgramVar *v) {
  io_str(c, &v->path);
  int role = (int)v->role;
  io_int(c, &role);
  if (role < PV_PARAM || role > PV_OPT) fail(c, "an unknown kind of variable"), role = PV_PARAM;
  v->role = (ProgramVarRole)role;
  io_tensor(c, &v->at);
  io_bool(c, &v->trainable);
  io_int(c, &v->of);
  io_int(c, &v->init_kind);
  io_f64(c, &v->init_a);
  io_f64(c, &v->init_b);
  io_int(c, &v->init_from);
}

static void io_phase(Codec *c, ProgramPhase *p) {
  io_str(c, &p->name);
  int *indices[] = {&p->micro, &p->update, &p->eval, &p->sample, &p->first};
  for (int i = 0; i < COUNT_OF(indices); i++) io_int(c, indices[i]);
  int64_t *counts[] = {&p->micro_batch, &p->accumulation, &p->tokens_per_sample, &p->steps};
  for (int i = 0; i < COUNT_OF(counts); i++) io_i64(c, counts[i]);
  io_f64(c, &p->epochs);
  io_f64(c, &p->lr);
  io_int(c, &p->sched_kind);
  double *numbers[] = {&p->warmup, &p->final, &p->decay, &p->cycles};
  for (int i = 0; i < COUNT_OF(numbers); i++) io_f64(c, numbers[i]);
  io_bool(c, &p->final_is_lr);
  io_int(c, &p->data);
  io_bool(c, &p->data_val);
  io_f64(c, &p->est_step_seconds);
}

static void io_data(Codec *c, ProgramData *d) {
  io_str(c, &d->name);
  io_int(c, &d->kind);
  const char **texts[] = {&d->train, &d->val, &d->dtype, &d->tokenizer};
  for (int i = 0; i < COUNT_OF(texts); i++) io_str(c, texts[i]);
  io_f64(c, &d->holdout);
  io_bool(c, &d->prompt_loss);
  io_bool(c, &d->shuffle);
  io_int(c, &d->too_long);
}

static void io_settings(Codec *c, Program *p) {
  const char **texts[] = {&p->source,      &p->model,        &p->preset,
                          &p->target,      &p->weights_name, &p->init,
                          &p->eval_metric, &p->ckpt_only,    &p->target_input};
  for (int i = 0; i < COUNT_OF(texts); i++) io_str(c, texts[i]);
  bool *flags[] = {&p->cuda, &p->eval_val, &p->nonfinite_stop};
  for (int i = 0; i < COUNT_OF(flags); i++) io_bool(c, flags[i]);
  io_u64(c, &p->plan_id);
  io_u64(c, &p->seed);
  int64_t *numbers[] = {&p->params,           &p->vocab,          &p->arena_bytes, &p->host_bytes,
                        &p->persistent_bytes, &p->peak_bytes,     &p->budget_bytes,
                        &p->overhead_bytes,   &p->reserve_bytes,  &p->eval_every,
                        &p->eval_batches,     &p->ckpt_every,     &p->ckpt_keep,
                        &p->ignore,           &p->nonfinite_limit};
  for (int i = 0; i < COUNT_OF(numbers); i++) io_i64(c, numbers[i]);
  io_int(c, &p->eval_data);
}

static void io_all(Codec *c, Program *p) {
  io_settings(c, p);
  IO_ARRAY(c, p->nvars, p->vars, 53);
  for (int i = 0; i < p->nvars; i++) io_var(c, &p->vars[i]);
  IO_ARRAY(c, p->nprograms, p->programs, 20);
  for (int i = 0; i < p->nprograms; i++) io_program(c, &p->programs[i]);
  IO_ARRAY(c, p->nphases, p->phases, 112);
  for (int i = 0; i < p->nphases; i++) io_phase(c, &p->phases[i]);
  IO_ARRAY(c, p->ndata, p->data, 38);
  for (int i = 0; i < p->ndata; i++) io_data(c, &p->data[i]);
  IO_ARRAY(c, p->nweights, p->weights, 9);
  for (int i = 0; i < p->nweights; i++) {
    io_str(c, &p->weights[i].key);
    io_int(c, &p->weights[i].var);
    io_bool(c, &p->weights[i].transposed);
  }
  IO_ARRAY(c, p->nkernels, p->kernel_names, 4);
  for (int i = 0; i < p->nkernels; i++) io_str(c, &p->kernel_names[i]);
}

void mtx_encode(const Program *p, Str *out) {
  Codec c = {.out = out};
  Program copy = *p; /* the description takes mutable records; writing changes none */
  io_all(&c, &copy);
}

bool mtx_decode(Arena *a, const void *data, size_t n, Program *p, const char **why) {
  Codec c = {.arena = a, .in = data, .size = n};
  io_all(&c, p);
  if (!c.why && c.at != c.size) c.why = "the program section is longer than the program";
  *why = c.why;
  return !c.why;
}
