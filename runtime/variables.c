/* variables.c - initial values and loading: see variables.h. */
#include "variables.h"

#include "../ir/graph.h"
#include "convert.h"
#include "rng.h"

#include <stdlib.h>
#include <string.h>

enum {
  CHUNK = 1 << 14
}; /* elements made at a time; even, so that pairs of normals are not split */

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

static void fill_values(const ProgramVar *v, const ProgramVar *from, uint64_t seed, char *packed) {
  int64_t count = tensor_count(&v->at), bytes = dtype_bytes(v->at.dtype);
#pragma omp parallel for schedule(static)
  for (int64_t first = 0; first < count; first += CHUNK) {
    float values[CHUNK];
    int64_t n = count - first < CHUNK ? count - first : CHUNK;
    make_chunk(from, seed, first, n, values);
    if (dtype_is_float(v->at.dtype))
      convert_elements(v->at.dtype, packed + first * bytes, DT_F32, values, n);
    else
      store_integers(v->at.dtype, packed + first * bytes, values, n);
  }
}

bool variables_init(Replay *r, uint64_t seed, bool all, Fail *f) {
  const Program *p = r->program;
  for (int i = 0; i < p->nvars; i++) {
    const ProgramVar *v = &p->vars[i];
    if (!all && variable_persists(v)) continue;
    char *packed = variable_buffer(v, f);
    if (!packed) return false;
    fill_values(v, &p->vars[value_of(p, i)], seed, packed);
    bool ok = replay_write(r, &v->at, packed, f);
    free(packed);
    if (!ok) return false;
  }
  return true;
}

bool variables_zero(Replay *r, ProgramVarRole role, Fail *f) {
  for (int i = 0; i < r->program->nvars; i++) {
    const ProgramVar *v = &r->program->vars[i];
    if (v->role != role) continue;
    void *packed = variable_buffer(v, f);
    if (!packed) return false;
    memset(packed, 0, (size_t)variable_bytes(v));
    bool ok = replay_write(r, &v->at, packed, f);
    free(packed);
    if (!ok) return false;
  }
  return true;
}

int variable_master(const Program *p, int var) {
  for (int i = 0; i < p->nvars; i++)
    if (p->vars[i].role == PV_MASTER && p->vars[i].of == var) return i;
  return var;
}

static bool load_one(Replay *r, int var, DType dtype, const void *data, Fail *f) {
  const ProgramVar *v = &r->program->vars[var];
  if (!convert_possible(v->at.dtype, dtype))
    return fail_page(f, EXIT_IO, "E0302", "%s is %s and cannot be loaded from %s", v->path,
                     dtype_name(v->at.dtype), dtype_name(dtype));
  if (v->at.dtype == dtype) return replay_write(r, &v->at, data, f);
  void *packed = variable_buffer(v, f);
  if (!packed) return false;
  convert_elements(v->at.dtype, packed, dtype, data, tensor_count(&v->at));
  bool ok = replay_write(r, &v->at, packed, f);
  free(packed);
  return ok;
}

bool variable_load(Replay *r, int var, DType dtype, const void *data, Fail *f) {
  int master = variable_master(r->program, var);
  return load_one(r, var, dtype, data, f) && (master == var || load_one(r, master, dtype, data, f));
}
