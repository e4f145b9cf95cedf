/* variables.c - initial values and loading: see variables.h.
 *
 * Values are made piece by piece by all threads, where the variable lies when the processor can
 * reach it, else in a buffer of one piece: a model on the host is never held twice. */
#include "variables.h"

#include "../ir/graph.h"
#include "convert.h"
#include "host_memory.h"
#include "rng.h"

#include <stdlib.h>
#include <string.h>

enum {
  CHUNK = 1 << 14, /* elements that a thread makes at a time; even: pairs of normals stay whole */
  PIECE = 1 << 24  /* elements between two writes; a multiple of CHUNK */
};

bool variable_persists(const ProgramVar *v) {
  return v->role != PV_ACCUM && v->role != PV_SCALAR && v->role != PV_METRIC;
}

int64_t variable_bytes(const ProgramVar *v) {
  return mul64(tensor_count(&v->at), dtype_bytes(v->at.dtype));
}

void *variable_buffer(const ProgramVar *v, Fail *f) {
  void *p = malloc((size_t)variable_bytes(v) + 1);
  if (!p) fail_set(f, EXIT_DEVICE, "no host memory for %s", v->path);
  return p;
}

/* The variable whose initial value `var` has: the end of its chain of copies. */
static int value_of(const Program *p, int var) {
  while (p->vars[var].init_kind == INIT_COPY) var = p->vars[var].init_from;
  return var;
}

static void make_chunk(const ProgramVar *from, uint64_t seed, int64_t first, int64_t n,
                       float *out) {
  uint64_t stream = rng_stream(from->path);
  switch (from->init_kind) {
    case INIT_NORMAL:
      rng_normals(seed, stream, (uint64_t)first, n, from->init_a, from->init_b, out);
      return;
    case INIT_UNIFORM:
      rng_uniforms(seed, stream, (uint64_t)first, n, from->init_a, from->init_b, out);
      return;
    default:
      break;
  }
  double value = from->init_kind == INIT_ONES    ? 1
                 : from->init_kind == INIT_CONST ? from->init_a
                                                 : 0;
  for (int64_t i = 0; i < n; i++) out[i] = (float)value;
}

static void store_integers(DType t, char *at, const float *value, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    int32_t x = (int32_t)value[i];
    memcpy(at + i * dtype_bytes(t), &x, (size_t)dtype_bytes(t)); /* little-endian */
  }
}

/* ---- writing in pieces ---- */

/* A variable that is being written from its first element to its last. */
typedef struct {
  const ProgramVar *v;
  char *at;     /* of element `base` */
  int64_t base;
  char *own;    /* a buffer: of a piece, or of a variable that has gaps; NULL: written in place */
  bool whole;   /* it is of the whole variable */
  bool half;    /* a bf16 weight that has a master, or the bits that complete it: convert_halves */
} Sink;

static bool is_half(const Program *p, const ProgramVar *v) {
  if (v->at.dtype == DT_U16) return v->role == PV_MASTER;
  int var = (int)(v - p->vars);
  return v->role == PV_PARAM && v->at.dtype == DT_BF16 && variable_master(p, var) != var;
}

static bool sink_open(Replay *r, const ProgramVar *v, Sink *s, Fail *f) {
  int64_t count = tensor_count(&v->at), size = dtype_bytes(v->at.dtype);
  void *at;
  *s = (Sink){.v = v, .whole = !tensor_contiguous(&v->at), .half = is_half(r->program, v)};
  if (!replay_reach(r, &v->at, &at, f)) return false;
  s->at = at;
  if (at) return true;
  int64_t elements = s->whole || count < PIECE ? count : PIECE;
  s->at = s->own = malloc((size_t)(elements * size) + 1);
  return s->own || fail_set(f, EXIT_DEVICE, "no host memory for %s", v->path);
}

/* Where element `first` goes. */
static char *sink_at(const Sink *s, int64_t first) {
  return s->at + (first - s->base) * dtype_bytes(s->v->at.dtype);
}

/* Puts n floats where element `first` begins. */
static void sink_convert(const Sink *s, int64_t first, DType from, const void *values, int64_t n) {
  (s->half ? convert_halves : convert_elements)(s->v->at.dtype, sink_at(s, first), from, values, n);
}

/* Elements base .. end are there. */
static bool sink_write(Replay *r, Sink *s, int64_t end, Fail *f) {
  if (!s->own) return true;
  if (s->whole) return end < tensor_count(&s->v->at) || replay_write(r, &s->v->at, s->own, f);
  bool ok = replay_write_part(r, &s->v->at, s->base, s->own, end - s->base, f);
  s->base = end;
  return ok;
}

/* ---- initial values ---- */

static void store_values(const Sink *s, int64_t first, const float *values, int64_t n) {
  DType t = s->v->at.dtype;
  if (dtype_is_float(t) || s->half)
    sink_convert(s, first, DT_F32, values, n);
  else
    store_integers(t, sink_at(s, first), values, n);
}

static void fill_piece(const ProgramVar *from, uint64_t seed, const Sink *s, int n, int64_t begin,
                       int64_t end) {
#pragma omp parallel for schedule(static) if (end - begin > CHUNK)
  for (int64_t first = begin; first < end; first += CHUNK) {
    float values[CHUNK];
    int64_t count = end - first < CHUNK ? end - first : CHUNK;
    make_chunk(from, seed, first, count, values);
    for (int i = 0; i < n; i++) store_values(&s[i], first, values, count);
  }
}

/* The values of variable `root` for all that begin with them: a weight and its master. */
static bool init_from(Replay *r, uint64_t seed, int root, bool all, Sink *s, Fail *f) {
  const Program *p = r->program;
  const ProgramVar *from = &p->vars[root];
  int64_t count = tensor_count(&from->at);
  int n = 0;
  bool ok = true;
  for (int i = 0; ok && i < p->nvars; i++)
    if (value_of(p, i) == root && (all || !variable_persists(&p->vars[i])))
      ok = sink_open(r, &p->vars[i], &s[n++], f);
  for (int64_t begin = 0; ok && n && begin < count; begin += PIECE) {
    int64_t end = count - begin < PIECE ? count : begin + PIECE;
    fill_piece(from, seed, s, n, begin, end);
    for (int i = 0; ok && i < n; i++) ok = sink_write(r, &s[i], end, f);
  }
  for (int i = 0; i < n; i++) free(s[i].own);
  return ok;
}

bool variables_init(Replay *r, uint64_t seed, bool all, Fail *f) {
  const Program *p = r->program;
  Arena *a = arena_new();
  Sink *s = arena_array(a, Sink, p->nvars + 1);
  bool ok = true;
  for (int i = 0; ok && i < p->nvars; i++)
    if (p->vars[i].init_kind != INIT_COPY) ok = init_from(r, seed, i, all, s, f);
  arena_free(a);
  return ok;
}

bool variables_fill(Replay *r, ProgramVarRole role, int byte, Fail *f) {
  for (int i = 0; i < r->program->nvars; i++) {
    const ProgramVar *v = &r->program->vars[i];
    if (v->role != role) continue;
    int64_t count = tensor_count(&v->at);
    Sink s;
    bool ok = sink_open(r, v, &s, f);
    for (int64_t begin = 0; ok && begin < count; begin += PIECE) {
      int64_t end = count - begin < PIECE ? count : begin + PIECE;
      host_fill(sink_at(&s, begin), byte, (end - begin) * dtype_bytes(v->at.dtype));
      ok = sink_write(r, &s, end, f);
    }
    free(s.own);
    if (!ok) return false;
  }
  return true;
}

int variable_master(const Program *p, int var) {
  for (int i = 0; i < p->nvars; i++)
    if (p->vars[i].role == PV_MASTER && p->vars[i].of == var) return i;
  return var;
}

bool variable_store(Replay *r, int var, DType dtype, const void *data, Fail *f) {
  const ProgramVar *v = &r->program->vars[var];
  bool half = is_half(r->program, v) && dtype_is_float(dtype);
  if (!half && !convert_possible(v->at.dtype, dtype))
    return fail_page(f, EXIT_IO, "E0302", "%s is %s and cannot be loaded from %s", v->path,
                     dtype_name(v->at.dtype), dtype_name(dtype));
  if (v->at.dtype == dtype) return replay_write(r, &v->at, data, f);
  int64_t count = tensor_count(&v->at), size = dtype_bytes(dtype);
  Sink s;
  bool ok = sink_open(r, v, &s, f);
  for (int64_t begin = 0; ok && begin < count; begin += PIECE) {
    int64_t end = count - begin < PIECE ? count : begin + PIECE;
#pragma omp parallel for schedule(static) if (end - begin > CHUNK)
    for (int64_t first = begin; first < end; first += CHUNK)
      sink_convert(&s, first, dtype, (const char *)data + first * size,
                   end - first < CHUNK ? end - first : CHUNK);
    ok = sink_write(r, &s, end, f);
  }
  free(s.own);
  return ok;
}

bool variable_load(Replay *r, int var, DType dtype, const void *data, Fail *f) {
  int master = variable_master(r->program, var);
  return variable_store(r, var, dtype, data, f) &&
         (master == var || variable_store(r, master, dtype, data, f));
}
