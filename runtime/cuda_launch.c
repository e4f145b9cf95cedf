/* cuda_launch.c - arguments and launches of emitted kernels: loop nests, scatter and attention. */
#include "cuda_parts.h"
#include <math.h>
#include <string.h>

/* Roles of attention launches, in the order of AttKernel. */
enum { ROLE_FWD, ROLE_PREP, ROLE_DKDV, ROLE_DQ, ROLE_DBIAS };

static void add_word(CudaLaunch *l, uint64_t w) {
  ensure(l->n < l->most, "a kernel with more than %d arguments", l->most);
  l->word[l->n] = w;
  l->arg[l->n] = &l->word[l->n];
  l->n++;
}
static void add_ptr(CudaLaunch *l, const Device *d, const Tensor *t) {
  add_word(l, t ? device_at(d, t->offset) : 0);
}
static void add_int(CudaLaunch *l, int64_t v) {
  int32_t i = (int32_t)v;
  uint64_t w = 0;
  memcpy(&w, &i, sizeof i);
  add_word(l, w);
}
static void add_float(CudaLaunch *l, double v) {
  float x = (float)v;
  uint64_t w = 0;
  memcpy(&w, &x, sizeof x);
  add_word(l, w);
}

/* A tensor map over [B, T, heads, head] in boxes of `rows` tokens of one head, 64 elements wide:
 * the layout in shared memory that the wgmma kernels read (128-byte swizzle). */
static bool add_map(CudaLaunch *l, Device *d, const Cmd *c, const Tensor *t, int rows, int *nmaps,
                    Fail *f) {
  enum { BOX_WIDTH = 64 };
  CUtensorMap *m = &l->map[(*nmaps)++];
  uint64_t dims[4] = {(uint64_t)t->dim[3], (uint64_t)t->dim[2], (uint64_t)t->dim[1],
                      (uint64_t)t->dim[0]};
  uint64_t strides[3] = {(uint64_t)t->stride[2] * 2, (uint64_t)t->stride[1] * 2,
                         (uint64_t)t->stride[0] * 2};
  uint32_t box[4] = {BOX_WIDTH, 1, (uint32_t)rows, 1}, steps[4] = {1, 1, 1, 1};
  l->arg[l->n++] = m;
  return cuda_ok(
      cu.cuTensorMapEncodeTiled(m, t->dtype == DT_F16 ? CU_MAP_F16 : CU_MAP_BF16, 4,
                                (void *)(uintptr_t)device_at(d, t->offset), dims, strides, box,
                                steps, 0, CU_MAP_SWIZZLE_128, CU_MAP_L2_256, 0),
      f, "%s (%s): describing a tensor to the copy engine", c->name, c->where);
}

/* The tensors of an attention command by name; see program.h for their order. */
typedef struct {
  const Tensor *q, *k, *v, *o, *lse, *grad, *mask, *bias, *seed, *step, *sample0, *dq, *dk, *dv,
      *dbias;
} AttTensors;

static AttTensors attention_tensors(const Cmd *c) {
  const Tensor *t = c->tensors;
  bool bwd = c->kind == CMD_ATTENTION_BWD;
  int at = bwd ? 6 : 3;
  AttTensors r = {.q = &t[0], .k = &t[1], .v = &t[2]};
  if (bwd) r.o = &t[3], r.lse = &t[4], r.grad = &t[5];
  if (c->attention.has_mask) r.mask = &t[at++];
  if (c->attention.has_bias) r.bias = &t[at++];
  if (c->attention.has_drop) r.seed = &t[at++], r.step = &t[at++], r.sample0 = &t[at++];
  if (bwd) {
    r.dq = &t[at], r.dk = &t[at + 1], r.dv = &t[at + 2];
    if (c->attention.has_bias) r.dbias = &t[at + 3];
  } else {
    r.o = &t[at], r.lse = &t[at + 1];
  }
  return r;
}

/* Row length of W: the queries rounded up to 128, plus 128. */
static int64_t work_row(int64_t tq) {
  return round_up(tq, 128) + 128;
}

/* What a bias and dropout add at the end. */
static void extra_args(CudaLaunch *l, const Device *d, const Cmd *c, const AttTensors *t) {
  if (t->bias) add_ptr(l, d, t->bias), add_int(l, t->bias->stride[1]);
  if (!t->seed) return;
  add_ptr(l, d, t->seed), add_ptr(l, d, t->step), add_ptr(l, d, t->sample0);
  add_word(l, c->attention.key), add_float(l, 1 - c->attention.drop);
}

static void plain_args(CudaLaunch *l, const Device *d, const Cmd *c, const Launch *s,
                       const AttTensors *t) {
  const double scale = c->attention.scale, sl2 = scale * M_LOG2E;
  int64_t tq = t->q->dim[1], tk = t->k->dim[1], heads = t->q->dim[2], kv = t->k->dim[2];
  int64_t ldq = t->q->stride[1], ldk = t->k->stride[1], ldv = t->v->stride[1];
  CUdeviceptr w = device_at(d, c->workspace_offset);
  if (s->role == ROLE_PREP) {
    add_ptr(l, d, t->o), add_ptr(l, d, t->grad), add_ptr(l, d, t->lse), add_word(l, w);
    add_int(l, tq), add_int(l, work_row(tq)), add_int(l, heads);
    add_int(l, t->o->stride[1]), add_int(l, t->grad->stride[1]);
    return;
  }
  add_ptr(l, d, t->q), add_ptr(l, d, t->k), add_ptr(l, d, t->v);
  if (s->role == ROLE_FWD) {
    add_ptr(l, d, t->o), add_ptr(l, d, t->lse);
  } else {
    add_ptr(l, d, t->grad), add_word(l, w);
    if (s->role == ROLE_DKDV)
      add_ptr(l, d, t->dk), add_ptr(l, d, t->dv);
    else
      add_ptr(l, d, s->role == ROLE_DQ ? t->dq : t->dbias);
  }
  add_ptr(l, d, t->mask);
  add_int(l, tq), add_int(l, tk);
  if (s->role != ROLE_FWD) add_int(l, work_row(tq));
  add_int(l, heads), add_int(l, kv), add_int(l, ldq), add_int(l, ldk), add_int(l, ldv);
  if (s->role == ROLE_FWD) {
    add_int(l, t->o->stride[1]);
  } else {
    add_int(l, t->grad->stride[1]);
    if (s->role == ROLE_DKDV)
      add_int(l, t->dk->stride[1]), add_int(l, t->dv->stride[1]);
    else
      add_int(l, (s->role == ROLE_DQ ? t->dq : t->dbias)->stride[1]);
    add_float(l, scale);
  }
  add_float(l, sl2);
  if (s->role == ROLE_DBIAS) add_int(l, t->q->dim[0]);
  extra_args(l, d, c, t);
  add_int(l,
          s->rows |
              s->cols << 8); /* the order of tiles; the last, as only kernels of mma.sync have it */
}

static bool wgmma_args(CudaLaunch *l, Device *d, const Cmd *c, const Launch *s, const AttTensors *t,
                       Fail *f) {
  const double scale = c->attention.scale, sl2 = scale * M_LOG2E;
  int64_t tq = t->q->dim[1], heads = t->q->dim[2], kv = t->k->dim[2];
  int n = 0, own = s->rows, stream = s->cols, store = s->store_rows;
  bool dkdv = s->role == ROLE_DKDV, ok;
  ok = add_map(l, d, c, t->q, dkdv ? stream : own, &n, f) &&
       add_map(l, d, c, t->k, dkdv ? own : stream, &n, f) &&
       add_map(l, d, c, t->v, dkdv ? own : stream, &n, f);
  if (s->role == ROLE_FWD) {
    ok = ok && add_map(l, d, c, t->o, store, &n, f);
    add_ptr(l, d, t->lse);
  } else {
    ok = ok && add_map(l, d, c, t->grad, dkdv ? stream : own, &n, f);
    if (dkdv) {
      ok = ok && add_map(l, d, c, t->dk, store, &n, f) && add_map(l, d, c, t->dv, store, &n, f);
    } else {
      ok = ok && add_map(l, d, c, t->dq, store, &n, f) && add_map(l, d, c, t->o, own, &n, f);
      add_ptr(l, d, t->lse);
    }
    add_word(l, device_at(d, c->workspace_offset));
  }
  add_word(l, d->schedules + (CUdeviceptr)s->table_offset);
  add_int(l, tq);
  if (s->role != ROLE_FWD) add_int(l, work_row(tq));
  add_int(l, heads), add_int(l, kv);
  if (s->role != ROLE_FWD) add_float(l, scale);
  add_float(l, sl2);
  return ok;
}

bool cuda_launches_ready(Device *d, const Cmd *c, CudaLaunch *launches, Fail *f) {
  bool attention = c->kind == CMD_ATTENTION || c->kind == CMD_ATTENTION_BWD;
  AttTensors t = {0};
  if (attention) t = attention_tensors(c);
  for (int i = 0; i < c->nlaunches; i++) {
    CudaLaunch *l = &launches[i];
    const Launch *s = &c->launches[i];
    enum { SIZES = 24 }; /* arguments of attention besides its tensors */
    l->function = d->functions[s->kernel];
    l->most = c->ntensors + SIZES;
    l->arg = arena_array(d->memory, void *, l->most);
    l->word = arena_array(d->memory, uint64_t, l->most);
    if (attention && c->attention.wgmma) {
      if (!wgmma_args(l, d, c, s, &t, f)) return false;
    } else if (attention) {
      plain_args(l, d, c, s, &t);
    } else {
      for (int k = 0; k < c->ntensors; k++) add_ptr(l, d, &c->tensors[k]);
      if (s->rows) add_word(l, d->schedules + (CUdeviceptr)s->table_offset);
      if (c->workspace_bytes) add_word(l, device_at(d, c->workspace_offset));
    }
    if (s->shared &&
        !cuda_ok(cu.cuFuncSetAttribute(l->function, CU_FUNC_DYNAMIC_SHARED, s->shared), f,
                 "%s (%s): %d bytes of shared memory", c->name, c->where, s->shared))
      return false;
  }
  return true;
}

bool cuda_launch(Device *d, const Cmd *c, CudaLaunch *launches, Fail *f) {
  for (int i = 0; i < c->nlaunches; i++) {
    const Launch *s = &c->launches[i];
    CUresult r = cu.cuLaunchKernel(launches[i].function, (unsigned)s->grid[0], (unsigned)s->grid[1],
                                   (unsigned)s->grid[2], (unsigned)s->threads, 1, 1,
                                   (unsigned)s->shared, d->stream, launches[i].arg, NULL);
    if (!cuda_ok(r, f, "launching %s (%s)", c->name, c->where)) return false;
  }
  return true;
}
