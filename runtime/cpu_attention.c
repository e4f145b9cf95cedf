/* cpu_attention.c - see cpu_attention.h.
 *
 * One part packs its keys and values as f32, once as they are and once transposed, so that every inner loop runs over
 * consecutive elements: scores along keys, outputs along the head. Query by query, forward makes the whole row of scores (no
 * online softmax: a row is short beside the cache), backward makes it again from the saved log-sum-exp. */
#include "cpu_attention.h"
#include <math.h>
#include <omp.h>
#include <string.h>
#include "../ir/philox.h"
#include "convert.h"

typedef struct {
  const Cmd *c;
  char *arena;
  const Tensor *q, *k, *v, *o, *lse, *d_o, *mask, *bias, *dq, *dk, *dv, *dbias;
  int64_t batch, tq, tk, heads, kv, group, head;
  float scale, keep;
  bool causal;
  uint32_t seed[2];
  int32_t step, sample0;
} Att;

static void *at(const Att *a, const Tensor *t, int64_t element) {
  return a->arena + t->offset + element * dtype_bytes(t->dtype);
}

static Att open_command(const Cmd *c, char *arena) {
  const Tensor *t = c->tensors;
  bool bwd = c->kind == CMD_ATTENTION_BWD;
  Att a = {.c = c, .arena = arena, .q = &t[0], .k = &t[1], .v = &t[2], .keep = 1};
  int n = 3;
  if (bwd) a.o = &t[3], a.lse = &t[4], a.d_o = &t[5], n = 6;
  if (c->attention.has_mask) a.mask = &t[n++];
  if (c->attention.has_bias) a.bias = &t[n++];
  a.batch = a.q->dim[0], a.tq = a.q->dim[1], a.heads = a.q->dim[2], a.head = a.q->dim[3];
  a.tk = a.k->dim[1], a.kv = a.k->dim[2], a.group = a.heads / a.kv;
  a.scale = (float)c->attention.scale;
  a.causal = c->attention.causal;
  if (c->attention.has_drop) {
    a.keep = (float)(1 - c->attention.drop);
    memcpy(a.seed, at(&a, &t[n], 0), sizeof a.seed);
    memcpy(&a.step, at(&a, &t[n + 1], 0), sizeof a.step);
    memcpy(&a.sample0, at(&a, &t[n + 2], 0), sizeof a.sample0);
    n += 3;
  }
  if (bwd) {
    a.dq = &t[n], a.dk = &t[n + 1], a.dv = &t[n + 2];
    if (a.bias) a.dbias = &t[n + 3];
  } else {
    a.o = &t[n], a.lse = &t[n + 1];
  }
  return a;
}

/* ---- scratch of one part ---- */
typedef struct {
  float *k, *kt, *v, *vt;  /* [Tk, head], [head, Tk] */
  float *dk, *dv;          /* [Tk, head] */
  float *s, *p, *x;        /* rows of Tk */
  float *q, *g, *out;      /* rows of head */
} Part;

static int64_t padded(int64_t n) { return round_up(n, 16); }

size_t cpu_attention_scratch(const Cmd *c) {
  int64_t tk = padded(c->tensors[1].dim[1]), head = padded(c->tensors[0].dim[3]);
  return (size_t)(6 * tk * head + 3 * tk + 3 * head);
}

static Part carve(const Att *a, float *scratch) {
  int64_t tk = padded(a->tk), head = padded(a->head), m = tk * head;
  Part p = {.k = scratch, .kt = scratch + m, .v = scratch + 2 * m, .vt = scratch + 3 * m, .dk = scratch + 4 * m,
            .dv = scratch + 5 * m};
  float *rows = scratch + 6 * m;
  p.s = rows, p.p = rows + tk, p.x = rows + 2 * tk;
  rows += 3 * tk;
  p.q = rows, p.g = rows + head, p.out = rows + 2 * head;
  return p;
}

/* Row (b, t, h) of a [B, T, heads, head] tensor, as f32. */
static void load_row(const Att *a, const Tensor *t, int64_t b, int64_t i, int64_t h, float *to) {
  int64_t first = b * t->stride[0] + i * t->stride[1] + h * t->stride[2];
  if (t->stride[3] == 1) {
    convert_elements(DT_F32, to, t->dtype, at(a, t, first), a->head);
    return;
  }
  for (int64_t d = 0; d < a->head; d++)
    convert_elements(DT_F32, to + d, t->dtype, at(a, t, first + d * t->stride[3]), 1);
}

static void store_row(const Att *a, const Tensor *t, int64_t b, int64_t i, int64_t h, const float *from) {
  int64_t first = b * t->stride[0] + i * t->stride[1] + h * t->stride[2];
  if (t->stride[3] == 1) {
    convert_elements(t->dtype, at(a, t, first), DT_F32, from, a->head);
    return;
  }
  for (int64_t d = 0; d < a->head; d++)
    convert_elements(t->dtype, at(a, t, first + d * t->stride[3]), DT_F32, from + d, 1);
}

static void load_keys(const Att *a, const Part *p, int64_t b, int64_t kv) {
  for (int64_t j = 0; j < a->tk; j++) {
    load_row(a, a->k, b, j, kv, p->k + j * a->head);
    load_row(a, a->v, b, j, kv, p->v + j * a->head);
  }
  for (int64_t d = 0; d < a->head; d++)
    for (int64_t j = 0; j < a->tk; j++) {
      p->kt[d * a->tk + j] = p->k[j * a->head + d];
      p->vt[d * a->tk + j] = p->v[j * a->head + d];
    }
}

/* ---- rows ---- */
/* s[j] = f * sum over d of x[d] m[d, j], m of `stride` columns. */
static void row_times(float *restrict s, const float *restrict x, const float *restrict m, int64_t head, int64_t n,
                      int64_t stride, float f) {
  for (int64_t j = 0; j < n; j++) s[j] = 0;
  for (int64_t d = 0; d < head; d++) {
    const float y = x[d] * f, *row = m + d * stride;
    for (int64_t j = 0; j < n; j++) s[j] += y * row[j];
  }
}

/* to[d] += f row[d] */
static void add_row(float *restrict to, const float *restrict row, float f, int64_t n) {
  for (int64_t d = 0; d < n; d++) to[d] += f * row[d];
}

/* e^x for x <= 0 or so, to about two units in the last place; 0 below -104. */
static float exp_of(float x) {
  const float c = x < -104.0f ? -104.0f : x > 88.0f ? 88.0f : x;
  const float t = c * 1.44269504f + 12582912.0f, n = t - 12582912.0f;
  const float r = c - n * 0.693359375f - n * -2.12194440e-4f;
  float y = 1.9875691500e-4f;
  y = y * r + 1.3981999507e-3f;
  y = y * r + 8.3334519073e-3f;
  y = y * r + 4.1665795894e-2f;
  y = y * r + 1.6666665459e-1f;
  y = y * r + 5.0000001201e-1f;
  y = y * (r * r) + r + 1.0f;
  union {
    float f;
    uint32_t u;
  } bits = {t};
  const int32_t k = (int32_t)(bits.u - 0x4b400000u), half = k >> 1;
  union {
    uint32_t u;
    float f;
  } low = {(uint32_t)(half + 127) << 23}, high = {(uint32_t)(k - half + 127) << 23};
  return x < -104.0f ? 0.0f : x != x ? x : y * low.f * high.f;
}

static int64_t visible_keys(const Att *a, int64_t i) { return a->causal && i + 1 < a->tk ? i + 1 : a->tk; }

/* Scores of query i over its n visible keys, -inf where the mask is closed; the query is in p->q. */
static void scores(const Att *a, const Part *p, int64_t b, int64_t h, int64_t i, int64_t n) {
  row_times(p->s, p->q, p->kt, a->head, n, a->tk, a->scale);
  for (int64_t j = 0; a->bias && j < n; j++) {
    float x;
    int64_t e = h * a->bias->stride[0] + i * a->bias->stride[1] + j * a->bias->stride[2];
    convert_elements(DT_F32, &x, a->bias->dtype, at(a, a->bias, e), 1);
    p->s[j] += x;
  }
  for (int64_t j = 0; a->mask && j < n; j++)
    if (!*(const uint8_t *)at(a, a->mask, b * a->mask->stride[0] + j * a->mask->stride[1])) p->s[j] = -INFINITY;
}

/* What dropout multiplies the probabilities with, into p->x. */
static void dropout(const Att *a, const Part *p, int64_t b, int64_t h, int64_t i, int64_t n) {
  for (int64_t j = 0; j < n; j++) {
    uint64_t element = (uint64_t)((h * a->tq + i) * a->tk + j);
    unsigned bits = philox_bits(a->seed[0], a->seed[1], a->c->attention.key, (unsigned)a->step,
                                (unsigned)(a->sample0 + (int32_t)b), element);
    p->x[j] = philox_uniform(bits) < a->keep ? 1 / a->keep : 0;
  }
}

static float *lse_at(const Att *a, int64_t b, int64_t h, int64_t i) {
  return at(a, a->lse, b * a->lse->stride[0] + h * a->lse->stride[1] + i * a->lse->stride[2]);
}

/* ---- forward ---- */
static void forward_query(const Att *a, const Part *p, int64_t b, int64_t h, int64_t i) {
  int64_t n = visible_keys(a, i);
  load_row(a, a->q, b, i, h, p->q);
  scores(a, p, b, h, i, n);
  float top = -INFINITY, sum = 0;
  for (int64_t j = 0; j < n; j++) top = p->s[j] > top || p->s[j] != p->s[j] ? p->s[j] : top;
  memset(p->out, 0, sizeof(float) * (size_t)a->head);
  if (top == -INFINITY) { /* no open key */
    *lse_at(a, b, h, i) = 0;
    store_row(a, a->o, b, i, h, p->out);
    return;
  }
  for (int64_t j = 0; j < n; j++) p->p[j] = exp_of(p->s[j] - top);
  for (int64_t j = 0; j < n; j++) sum += p->p[j];
  *lse_at(a, b, h, i) = top + logf(sum);
  if (a->keep < 1) {
    dropout(a, p, b, h, i, n);
    for (int64_t j = 0; j < n; j++) p->p[j] *= p->x[j];
  }
  for (int64_t j = 0; j < n; j++) add_row(p->out, p->v + j * a->head, p->p[j], a->head);
  for (int64_t d = 0; d < a->head; d++) p->out[d] *= 1 / sum;
  store_row(a, a->o, b, i, h, p->out);
}

static void forward_part(const Att *a, const Part *p, int64_t b, int64_t kv) {
  load_keys(a, p, b, kv);
  for (int64_t h = kv * a->group; h < (kv + 1) * a->group; h++)
    for (int64_t i = 0; i < a->tq; i++) forward_query(a, p, b, h, i);
}

/* ---- backward ---- */
static void backward_query(const Att *a, const Part *p, int64_t b, int64_t h, int64_t i) {
  int64_t n = visible_keys(a, i);
  float delta = 0, lse = *lse_at(a, b, h, i);
  load_row(a, a->q, b, i, h, p->q);
  load_row(a, a->d_o, b, i, h, p->g);
  load_row(a, a->o, b, i, h, p->out);
  for (int64_t d = 0; d < a->head; d++) delta += p->out[d] * p->g[d];
  scores(a, p, b, h, i, n);
  for (int64_t j = 0; j < n; j++) p->p[j] = exp_of(p->s[j] - lse);
  row_times(p->s, p->g, p->vt, a->head, n, a->tk, 1); /* dP */
  if (a->keep < 1) {
    dropout(a, p, b, h, i, n);
    for (int64_t j = 0; j < n; j++) p->s[j] *= p->x[j];
  }
  for (int64_t j = 0; j < n; j++) p->s[j] = p->p[j] * (p->s[j] - delta); /* dS */
  for (int64_t j = 0; a->dbias && j < n; j++) {
    float *g = at(a, a->dbias, h * a->dbias->stride[0] + i * a->dbias->stride[1] + j * a->dbias->stride[2]);
    *g += p->s[j];
  }
  memset(p->out, 0, sizeof(float) * (size_t)a->head);
  for (int64_t j = 0; j < n; j++) {
    add_row(p->out, p->k + j * a->head, p->s[j] * a->scale, a->head);
    add_row(p->dk + j * a->head, p->q, p->s[j] * a->scale, a->head);
    add_row(p->dv + j * a->head, p->g, a->keep < 1 ? p->p[j] * p->x[j] : p->p[j], a->head);
  }
  store_row(a, a->dq, b, i, h, p->out);
}

static void backward_part(const Att *a, const Part *p, int64_t b, int64_t kv) {
  load_keys(a, p, b, kv);
  memset(p->dk, 0, sizeof(float) * (size_t)(a->tk * a->head));
  memset(p->dv, 0, sizeof(float) * (size_t)(a->tk * a->head));
  for (int64_t h = kv * a->group; h < (kv + 1) * a->group; h++)
    for (int64_t i = 0; i < a->tq; i++) backward_query(a, p, b, h, i);
  for (int64_t j = 0; j < a->tk; j++) {
    store_row(a, a->dk, b, j, kv, p->dk + j * a->head);
    store_row(a, a->dv, b, j, kv, p->dv + j * a->head);
  }
}

static void run_part(const Att *a, const Part *p, int64_t b, int64_t kv) {
  if (a->c->kind == CMD_ATTENTION_BWD)
    backward_part(a, p, b, kv);
  else
    forward_part(a, p, b, kv);
}

void cpu_attention(const Cmd *c, char *arena, float *scratch, size_t each, int threads) {
  const Att a = open_command(c, arena);
  if (a.dbias) { /* sums over samples: one thread has all samples of a key head */
    ensure(a.dbias->dtype == DT_F32, "the gradient of attention's bias is f32");
    for (int64_t h = 0; h < a.heads; h++)
      for (int64_t i = 0; i < a.tq; i++)
        for (int64_t j = 0; j < a.tk; j++)
          *(float *)at(&a, a.dbias, h * a.dbias->stride[0] + i * a.dbias->stride[1] + j * a.dbias->stride[2]) = 0;
  }
  const int64_t outer = a.dbias ? a.kv : a.batch * a.kv, inner = a.dbias ? a.batch : 1;
#pragma omp parallel num_threads(threads)
  {
    const Part p = carve(&a, scratch + (size_t)omp_get_thread_num() * each);
#pragma omp for schedule(static)
    for (int64_t x = 0; x < outer; x++)
      for (int64_t y = 0; y < inner; y++)
        run_part(&a, &p, a.dbias ? y : x / a.kv, a.dbias ? x : x % a.kv);
  }
}
