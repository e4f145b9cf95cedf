/* weights.c - keys, shapes and layout of weights files: see weights.h. */
#include "weights.h"

#include "convert.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

/* Tensors that published files hold although they are computed: [1, 1, n, n] only for causal masks.
 */
static const struct {
  const char *pattern;
  bool square_mask;
} computed[] = {
    {"*attn.masked_bias", false},    {"*attn.bias", true},
    {"*rotary_emb.inv_freq", false}, {"*position_ids", false},
    {"*num_batches_tracked", false},
};

WeightSlots weights_of_program(Arena *a, const Program *p) {
  WeightSlots s = {arena_array(a, WeightSlot, p->nvars + p->nweights + 1), 0};
  for (int i = 0; i < (p->nweights ? p->nweights : p->nvars); i++) {
    int var = p->nweights ? p->weights[i].var : i;
    const ProgramVar *v = &p->vars[var];
    if (!p->nweights && v->role != PV_PARAM && v->role != PV_STATE) continue;
    WeightSlot *slot = &s.at[s.n++];
    *slot =
        (WeightSlot){.key = p->nweights ? p->weights[i].key : v->path, .path = v->path, .var = var};
    slot->transposed = p->nweights && p->weights[i].transposed;
    slot->dtype = v->at.dtype;
    slot->rank = v->at.rank;
    memcpy(slot->dim, v->at.dim, sizeof slot->dim);
  }
  return s;
}

void weights_file_dims(const WeightSlot *s, int64_t *dim) {
  memcpy(dim, s->dim, sizeof s->dim);
  if (s->transposed && s->rank == 2) dim[0] = s->dim[1], dim[1] = s->dim[0];
}

static char *dims_text(Arena *a, int rank, const int64_t *dim) {
  Shape s = shape_of(rank, dim);
  return shape_text(a, &s);
}

static bool can_ignore(const StEntry *e, const WeightRules *rules) {
  for (int i = 0; i < rules->nignore; i++)
    if (!fnmatch(rules->ignore[i], e->name, 0)) return true;
  for (int i = 0; i < COUNT_OF(computed); i++) {
    if (fnmatch(computed[i].pattern, e->name, 0)) continue;
    bool square = e->rank == 4 && e->dim[0] == 1 && e->dim[1] == 1 && e->dim[2] == e->dim[3];
    if (!computed[i].square_mask || square) return true;
  }
  return false;
}

/* Counts of the three kinds and the first lines of each. */
typedef struct {
  Str lines;
  int missing, unexpected, misfits, shown;
} Report;
enum { MAX_LINES = 24 };

__attribute__((format(printf, 3, 4))) static void note(Report *r, int *count, const char *fmt,
                                                       ...) {
  ++*count;
  if (r->shown++ >= MAX_LINES) return;
  va_list ap;
  va_start(ap, fmt);
  str_add(&r->lines, "\n  ");
  str_vaddf(&r->lines, fmt, ap);
  va_end(ap);
}

static void match_slot(Arena *a, Report *r, const WeightSlot *s, const StEntry *e) {
  int64_t dim[MAX_RANK];
  weights_file_dims(s, dim);
  const char *want = dims_text(a, s->rank, dim);
  if (!e) {
    note(r, &r->missing, "missing     %s: %s for %s", s->key, want, s->path);
  } else if (e->rank != s->rank || memcmp(e->dim, dim, sizeof *dim * (size_t)s->rank) != 0 ||
             (s->transposed && s->rank != 2)) {
    note(r, &r->misfits, "mis-shaped  %s: %s in the file, %s for %s%s", s->key,
         dims_text(a, e->rank, e->dim), want, s->path, s->transposed ? ".T" : "");
  } else if (e->dtype < 0 || !convert_possible(s->dtype, (DType)e->dtype)) {
    note(r, &r->misfits, "mis-typed   %s: %s in the file, %s for %s", s->key, e->dtype_text,
         dtype_name(s->dtype), s->path);
  }
}

/* What stands before `key` in the first name of the file that ends with "." and it; NULL = there is none. */
static const char *prefix_of(Arena *a, const SafeTensors *file, const char *key) {
  for (int i = 0; i < st_count(file); i++) {
    const char *name = st_at(file, i)->name;
    size_t all = strlen(name), own = strlen(key);
    if (all > own && name[all - own - 1] == '.' && str_ends(name, key))
      return arena_printf(a, "%.*s", (int)(all - own), name);
  }
  return NULL;
}

void weights_take_prefix(Arena *a, WeightSlots *s, const SafeTensors *file) {
  const char *prefix = NULL, **behind = arena_array(a, const char *, s->n + 1);
  for (int i = 0; i < s->n; i++) {
    const char *key = s->at[i].key;
    if (st_find(file, key)) continue;
    if (!prefix && !(prefix = prefix_of(a, file, key))) return;
    behind[i] = arena_printf(a, "%s%s", prefix, key);
    if (!st_find(file, behind[i])) return;
  }
  for (int i = 0; i < s->n; i++)
    if (behind[i]) s->at[i].key = behind[i];
}

static int by_text(const void *a, const void *b) {
  return strcmp(*(const char *const *)a, *(const char *const *)b);
}

bool weights_match(const WeightSlots *s, const SafeTensors *file, const char *path,
                   WeightRules *rules, Fail *f) {
  Arena *a = arena_new();
  Report r = {.lines = {.arena = a}};
  str_add(&r.lines, "");
  const char **keys = arena_array(a, const char *, s->n + 1);
  for (int i = 0; i < s->n; i++) {
    keys[i] = s->at[i].key;
    match_slot(a, &r, &s->at[i], st_find(file, s->at[i].key));
  }
  qsort(keys, (size_t)s->n, sizeof *keys, by_text);
  rules->ignored = 0;
  for (int i = 0; i < st_count(file); i++) {
    const StEntry *e = st_at(file, i);
    if (bsearch(&e->name, keys, (size_t)s->n, sizeof *keys, by_text)) continue;
    if (can_ignore(e, rules))
      rules->ignored++;
    else
      note(&r, &r.unexpected, "unexpected  %s: %s %s", e->name, e->dtype_text,
           dims_text(a, e->rank, e->dim));
  }
  bool ok = !r.shown;
  if (r.shown > MAX_LINES) str_addf(&r.lines, "\n  .. and %d more", r.shown - MAX_LINES);
  if (!ok)
    fail_page(f, EXIT_IO, "E0302",
              "weights do not fit the map: %d missing, %d unexpected, %d mis-shaped in %s%s",
              r.missing, r.unexpected, r.misfits, path, r.lines.text);
  arena_free(a);
  return ok;
}

/* Copies rows x cols elements of `bytes` bytes transposed through a buffer and converts them. */
static bool transpose_convert(int64_t rows, int64_t cols, DType from_dtype, const void *from,
                              DType to_dtype, void *to, Fail *f) {
  if (from_dtype == to_dtype) {
    transpose_elements(to, from, rows, cols, dtype_bytes(to_dtype));
    return true;
  }
  size_t bytes = (size_t)(rows * cols * dtype_bytes(from_dtype));
  void *turned = malloc(bytes + 1);
  if (!turned) return fail_set(f, EXIT_DEVICE, "no host memory to transpose %zu bytes", bytes);
  transpose_elements(turned, from, rows, cols, dtype_bytes(from_dtype));
  convert_elements(to_dtype, to, from_dtype, turned, rows * cols);
  free(turned);
  return true;
}

static int64_t slot_count(const WeightSlot *s) {
  int64_t n = 1;
  for (int i = 0; i < s->rank; i++) n = mul64(n, s->dim[i]);
  return n;
}

bool weights_import(const WeightSlot *s, const StEntry *e, DType dtype, void *to, Fail *f) {
  if (s->transposed)
    return transpose_convert(s->dim[1], s->dim[0], (DType)e->dtype, e->data, dtype, to, f);
  convert_elements(dtype, to, (DType)e->dtype, e->data, slot_count(s));
  return true;
}

bool weights_export(const WeightSlot *s, DType dtype, const void *from, DType file_dtype, void *to,
                    Fail *f) {
  if (s->transposed) return transpose_convert(s->dim[0], s->dim[1], dtype, from, file_dtype, to, f);
  convert_elements(file_dtype, to, dtype, from, slot_count(s));
  return true;
}
