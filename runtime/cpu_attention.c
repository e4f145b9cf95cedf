/* cpu_attention.c - attention on the CPU, forward and backward, in f32 by blocks of queries.
 *
 * One thread does one K/V head of one sample (of all samples when there is a bias gradient, which
 * sums over them): blocks of queries in order, each a few calls of sgemm on one thread, so that
 * results do not depend on the number of threads. Keys after the last query of a causal block are
 * never touched. Probabilities are rebuilt in the backward pass from the log-sum-exp. Dropout draws
 * are those of ir/philox.h. */
#include <cblas.h>
#include <math.h>
#include <omp.h>
#include <string.h>

#include "../ir/philox.h"
#include "cpu_parts.h"

/* Row loops are compiled for several vector widths; not under sanitizers, which start after the
 * choice is made. */
#if defined __x86_64__ && !defined __SANITIZE_ADDRESS__ && !defined __clang__
#define WIDE __attribute__((target_clones("default", "avx2", "avx512f")))
#else
#define WIDE
#endif

typedef struct {
  const Tensor *q, *k, *v, *mask, *bias, *seed, *step, *sample0;
  const Tensor *o, *lse, *d_o, *dq, *dk, *dv, *dbias; /* the gradients only backward */
  int64_t B, Tq, Tk, H, KV, D, group;                 /* group: query heads of one K/V head */
  int64_t block;                                      /* queries at a time */
  bool causal, backward;
  float scale, keep;
  uint64_t key;
} Att;

static Att att_of(const Cmd *c) {
  const Tensor *t = c->tensors;
  const Attention *f = &c->attention;
  bool backward = c->kind == CMD_ATTENTION_BWD;
  Att a = {.q = t,
           .k = t + 1,
           .v = t + 2,
           .causal = f->causal,
           .backward = backward,
           .scale = (float)f->scale,
           .keep = f->has_drop ? (float)(1 - f->drop) : 1,
           .key = f->key};
  t += 3;
  if (backward) {
    a.o = t++;
    a.lse = t++;
    a.d_o = t++;
  }
  if (f->has_mask) a.mask = t++;
  if (f->has_bias) a.bias = t++;
  if (f->has_drop) {
    a.seed = t++;
    a.step = t++;
    a.sample0 = t++;
  }
  if (backward) {
    a.dq = t++;
    a.dk = t++;
    a.dv = t++;
    if (f->has_bias) a.dbias = t++;
  } else {
    a.o = t++;
    a.lse = t++;
  }
  a.B = a.q->dim[0];
  a.Tq = a.q->dim[1];
  a.H = a.q->dim[2];
  a.D = a.q->dim[3];
  a.Tk = a.k->dim[1];
  a.KV = a.k->dim[2];
  a.group = a.H / a.KV;
  a.block = a.Tq >= 512 ? 64 : 32;
  return a;
}

/* Scratch of one thread, in floats. */
typedef struct {
  float *k, *v, *dk, *dv;  /* [Tk, D] */
  float *q, *o, *d_o, *dq; /* [block, D] */
  float *p, *ds, *drop;    /* [block, Tk] */
} Slot;

static int64_t slot_floats(const Att *a) {
  return 4 * a->Tk * a->D + 4 * a->block * a->D + 3 * a->block * a->Tk;
}
static Slot slot_of(const Att *a, float *at) {
  Slot s;
  float **keys[] = {&s.k, &s.v, &s.dk, &s.dv}, **rows[] = {&s.q, &s.o, &s.d_o, &s.dq},
        **wide[] = {&s.p, &s.ds, &s.drop};
  for (int i = 0; i < 4; i++, at += a->Tk * a->D) *keys[i] = at;
  for (int i = 0; i < 4; i++, at += a->block * a->D) *rows[i] = at;
  for (int i = 0; i < 3; i++, at += a->block * a->Tk) *wide[i] = at;
  return s;
}

/* The bias gradient is gathered in f32: in place, or in scratch when it is stored narrower. */
static int64_t dbias_floats(const Att *a) {
  return a->dbias && a->dbias->dtype != DT_F32 ? a->H * a->Tq * a->Tk : 0;
}

int64_t cpu_attention_scratch(const Cmd *c, int threads) {
  Att a = att_of(c);
  return threads * round_up(slot_floats(&a), 16) + dbias_floats(&a);
}

/* ---- rows ---- */

/* A matrix of f32 rows `ld` apart. */
typedef struct {
  const float *at;
  int64_t ld;
} Rows;

/* Positions t0 .. t0 + n of one head; converted into `to` when they are not f32. */
static Rows rows_of(const CpuRun *r, const Tensor *t, int64_t b, int64_t t0, int64_t h, int64_t n,
                    float *to) {
  int64_t D = t->dim[3], first = b * t->stride[0] + t0 * t->stride[1] + h * t->stride[2];
  char *base = cpu_element(cpu_at(r, t), t->dtype, first);
  if (t->dtype == DT_F32)
    return (Rows){(const float *)(const void *)base, t->dim[1] > 1 ? t->stride[1] : D};
  for (int64_t i = 0; i < n; i++)
    cpu_load(t->dtype, cpu_element(base, t->dtype, i * t->stride[1]), D, to + i * D);
  return (Rows){to, D};
}

static void store_rows(const CpuRun *r, const Tensor *t, int64_t b, int64_t t0, int64_t h,
                       int64_t n, const float *from) {
  int64_t D = t->dim[3], first = b * t->stride[0] + t0 * t->stride[1] + h * t->stride[2];
  for (int64_t i = 0; i < n; i++)
    cpu_store(t->dtype, cpu_element(cpu_at(r, t), t->dtype, first + i * t->stride[1]), D,
              from + i * D);
}

static inline float exp_of(float x) {
  float c = x < -104.0f ? -104.0f : x > 89.0f ? 89.0f : x;
  float t = c * 1.44269504f + 12582912.0f, n = t - 12582912.0f, low, high;
  float r = c - n * 0.693359375f - n * -2.12194440e-4f, p = 1.9875691500e-4f;
  int32_t bits;
  memcpy(&bits, &t, sizeof bits);
  int32_t k = bits - 0x4b400000, half = k >> 1;
  uint32_t a = (uint32_t)(half + 127) << 23, b = (uint32_t)(k - half + 127) << 23;
  memcpy(&low, &a, sizeof low);
  memcpy(&high, &b, sizeof high);
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  return p * low * high;
}

static float lanes_sum(const float *s) {
  float a[8], b[4];
  for (int l = 0; l < 8; l++) a[l] = s[l] + s[l + 8];
  for (int l = 0; l < 4; l++) b[l] = a[l] + a[l + 4];
  return (b[0] + b[2]) + (b[1] + b[3]);
}

WIDE static float row_max(const float *s, int64_t n) {
  float m[16], top = -INFINITY;
  for (int l = 0; l < 16; l++) m[l] = -INFINITY;
  int64_t j = 0;
  for (; j + 16 <= n; j += 16)
    for (int l = 0; l < 16; l++) m[l] = s[j + l] > m[l] ? s[j + l] : m[l];
  for (; j < n; j++) top = s[j] > top ? s[j] : top;
  for (int l = 0; l < 16; l++) top = m[l] > top ? m[l] : top;
  return top;
}

/* s = exp(s - top); returns the sum, in sixteen lanes. */
WIDE static float row_exp(float *s, int64_t n, float top) {
  float sum[16] = {0};
  int64_t j = 0;
  for (; j + 16 <= n; j += 16)
    for (int l = 0; l < 16; l++) {
      float e = exp_of(s[j + l] - top);
      s[j + l] = e;
      sum[l] += e;
    }
  for (int l = 0; j < n; j++, l++) sum[l] += s[j] = exp_of(s[j] - top);
  return lanes_sum(sum);
}

WIDE static float row_dot(const float *x, const float *y, int64_t n) {
  float sum[16] = {0};
  int64_t j = 0;
  for (; j + 16 <= n; j += 16)
    for (int l = 0; l < 16; l++) sum[l] += x[j + l] * y[j + l];
  for (int l = 0; j < n; j++, l++) sum[l] += x[j] * y[j];
  return lanes_sum(sum);
}

WIDE static void row_scale(float *x, int64_t n, float by) {
  for (int64_t j = 0; j < n; j++) x[j] *= by;
}
WIDE static void row_times(float *x, const float *y, int64_t n) {
  for (int64_t j = 0; j < n; j++) x[j] *= y[j];
}
/* ds = p (ds - mean) */
WIDE static void row_softmax_bwd(float *ds, const float *p, int64_t n, float mean) {
  for (int64_t j = 0; j < n; j++) ds[j] = p[j] * (ds[j] - mean);
}
WIDE static void row_add(float *x, const float *y, int64_t n) {
  for (int64_t j = 0; j < n; j++) x[j] += y[j];
}

/* ---- a block of queries ---- */

typedef struct {
  const CpuRun *r;
  const Att *a;
  Slot s;
  Rows k, v;
  int64_t b, h, t0, n, keys; /* queries t0 .. t0 + n of head h; keys that any of them can see */
} Block;

static void gemm(bool ta, bool tb, int64_t m, int64_t n, int64_t k, float alpha, Rows a, Rows b,
                 float beta, float *c, int64_t ldc) {
  cblas_sgemm(CblasRowMajor, ta ? CblasTrans : CblasNoTrans, tb ? CblasTrans : CblasNoTrans, (int)m,
              (int)n, (int)k, alpha, a.at, (int)a.ld, b.at, (int)b.ld, beta, c, (int)ldc);
}

/* p = scores of the block, closed ones -inf. */
static void scores(const Block *x, Rows q) {
  const Att *a = x->a;
  gemm(false, true, x->n, x->keys, a->D, a->scale, q, x->k, 0, x->s.p, a->Tk);
  const uint8_t *mask = a->mask ? (const uint8_t *)cpu_at(x->r, a->mask) + x->b * a->Tk : NULL;
  for (int64_t i = 0; i < x->n; i++) {
    float *row = x->s.p + i * a->Tk;
    int64_t t = x->t0 + i, open = a->causal && t + 1 < x->keys ? t + 1 : x->keys;
    if (a->bias) {
      void *bias = cpu_element(cpu_at(x->r, a->bias), a->bias->dtype, (x->h * a->Tq + t) * a->Tk);
      cpu_load(a->bias->dtype, bias, open, x->s.drop);
      row_add(row, x->s.drop, open);
    }
    for (int64_t j = 0; mask && j < open; j++) row[j] = mask[j] ? row[j] : -INFINITY;
    for (int64_t j = open; j < x->keys; j++) row[j] = -INFINITY;
  }
}

/* What dropout multiplies the probabilities of the block with. */
static void draw_dropout(const Block *x) {
  const Att *a = x->a;
  const uint32_t *seed = cpu_at(x->r, a->seed);
  uint32_t step = *(const uint32_t *)cpu_at(x->r, a->step);
  uint32_t sample = *(const uint32_t *)cpu_at(x->r, a->sample0) + (uint32_t)x->b;
  for (int64_t i = 0; i < x->n; i++) {
    uint64_t first = (uint64_t)((x->h * a->Tq + x->t0 + i) * a->Tk);
    unsigned word[4];
    for (int64_t j = 0; j < x->keys; j++) {
      uint64_t e = first + (uint64_t)j;
      if (j == 0 || (e & 3) == 0)
        philox_block(seed[0], seed[1], a->key, step, sample, e >> 2, word);
      x->s.drop[i * a->Tk + j] = philox_uniform(word[e & 3]) < a->keep ? 1 / a->keep : 0;
    }
  }
}

static float *lse_row(const Block *x) {
  return (float *)cpu_at(x->r, x->a->lse) + (x->b * x->a->H + x->h) * x->a->Tq + x->t0;
}

static void forward_block(const Block *x) {
  const Att *a = x->a;
  scores(x, rows_of(x->r, a->q, x->b, x->t0, x->h, x->n, x->s.q));
  if (a->seed) draw_dropout(x);
  float *lse = lse_row(x);
  for (int64_t i = 0; i < x->n; i++) {
    float *row = x->s.p + i * a->Tk, top = row_max(row, x->keys);
    bool none = top == -INFINITY; /* every key is closed (or the scores are NaN, which must show) */
    float sum = row_exp(row, x->keys, none ? 0 : top);
    bool empty = none && sum == 0;
    lse[i] = empty ? 0 : top + logf(sum);
    row_scale(row, x->keys, empty ? 0 : 1 / sum);
    if (a->seed) row_times(row, x->s.drop + i * a->Tk, x->keys);
  }
  gemm(false, false, x->n, a->D, x->keys, 1, (Rows){x->s.p, a->Tk}, x->v, 0, x->s.o, a->D);
  store_rows(x->r, a->o, x->b, x->t0, x->h, x->n, x->s.o);
}

static void backward_block(const Block *x, float *dbias) {
  const Att *a = x->a;
  const Slot *s = &x->s;
  Rows q = rows_of(x->r, a->q, x->b, x->t0, x->h, x->n, s->q),
       o = rows_of(x->r, a->o, x->b, x->t0, x->h, x->n, s->o),
       d_o = rows_of(x->r, a->d_o, x->b, x->t0, x->h, x->n, s->d_o);
  scores(x, q);
  if (a->seed) draw_dropout(x);
  gemm(false, true, x->n, x->keys, a->D, 1, d_o, x->v, 0, s->ds, a->Tk);
  const float *lse = lse_row(x);
  for (int64_t i = 0; i < x->n; i++) {
    float *p = s->p + i * a->Tk, *ds = s->ds + i * a->Tk, *drop = s->drop + i * a->Tk;
    row_exp(p, x->keys, lse[i]);
    if (a->seed) row_times(ds, drop, x->keys);
    row_softmax_bwd(ds, p, x->keys, row_dot(d_o.at + i * d_o.ld, o.at + i * o.ld, a->D));
    if (a->seed) row_times(p, drop, x->keys);
    if (dbias) row_add(dbias + (x->h * a->Tq + x->t0 + i) * a->Tk, ds, x->keys);
  }
  Rows p = {s->p, a->Tk}, ds = {s->ds, a->Tk};
  gemm(true, false, x->keys, a->D, x->n, 1, p, d_o, 1, s->dv, a->D);
  gemm(true, false, x->keys, a->D, x->n, a->scale, ds, q, 1, s->dk, a->D);
  gemm(false, false, x->n, a->D, x->keys, a->scale, ds, x->k, 0, s->dq, a->D);
  store_rows(x->r, a->dq, x->b, x->t0, x->h, x->n, s->dq);
}

/* One K/V head of one sample. */
static void one_head(const CpuRun *r, const Att *a, int64_t b, int64_t kv, float *scratch,
                     float *dbias) {
  Block x = {.r = r, .a = a, .b = b, .s = slot_of(a, scratch)};
  x.k = rows_of(r, a->k, b, 0, kv, a->Tk, x.s.k);
  x.v = rows_of(r, a->v, b, 0, kv, a->Tk, x.s.v);
  if (a->backward) {
    memset(x.s.dk, 0, sizeof(float) * (size_t)(a->Tk * a->D));
    memset(x.s.dv, 0, sizeof(float) * (size_t)(a->Tk * a->D));
  }
  for (x.h = kv * a->group; x.h < (kv + 1) * a->group; x.h++)
    for (x.t0 = 0; x.t0 < a->Tq; x.t0 += a->block) {
      x.n = a->Tq - x.t0 < a->block ? a->Tq - x.t0 : a->block;
      x.keys = a->causal && x.t0 + x.n < a->Tk ? x.t0 + x.n : a->Tk;
      if (a->backward)
        backward_block(&x, dbias);
      else
        forward_block(&x);
    }
  if (!a->backward) return;
  store_rows(r, a->dk, b, 0, kv, a->Tk, x.s.dk);
  store_rows(r, a->dv, b, 0, kv, a->Tk, x.s.dv);
}

static void all_heads(const CpuRun *r, const Cmd *c) {
  Att a = att_of(c);
  int64_t slot = round_up(slot_floats(&a), 16), count = a.H * a.Tq * a.Tk;
  float *dbias = NULL;
  if (a.dbias) {
    dbias = dbias_floats(&a) ? r->scratch + r->threads * slot : cpu_at(r, a.dbias);
    memset(dbias, 0, sizeof(float) * (size_t)count);
  }
  int64_t pieces = dbias ? a.KV : a.B * a.KV;
  if (pieces == 1) omp_set_num_threads(1); /* sgemm alone on one thread, too */
#pragma omp parallel for schedule(static) num_threads(pieces > 1 ? r->threads : 1)
  for (int64_t i = 0; i < pieces; i++) {
    float *scratch = r->scratch + omp_get_thread_num() * slot;
    if (!dbias) one_head(r, &a, i / a.KV, i % a.KV, scratch, NULL);
    for (int64_t b = 0; dbias && b < a.B; b++) one_head(r, &a, b, i, scratch, dbias);
  }
  omp_set_num_threads(r->threads);
  if (dbias_floats(&a)) cpu_store(a.dbias->dtype, cpu_at(r, a.dbias), count, dbias);
}

void cpu_attention(const CpuRun *r, const Cmd *c) {
  all_heads(r, c);
}
void cpu_attention_bwd(const CpuRun *r, const Cmd *c) {
  all_heads(r, c);
}
