/* safetensors.h - weights files of Hugging Face: reader (one file, or the index of a sharded one)
 * and writer.
 *
 * The reader maps the file and checks its header strictly: sizes, offsets without overlap or hole,
 * dtypes, shapes. Nothing is copied; entries point into the mapping. */
#ifndef MTC_SAFETENSORS_H
#define MTC_SAFETENSORS_H
#include "fail.h"
#include "../ir/types.h"

typedef struct {
  const char *name;
  const char *dtype_text; /* "BF16" */
  int dtype;              /* DType, or -1 for one that mtc does not compute with */
  int rank;
  int64_t dim[MAX_RANK];
  const void *data;
  int64_t bytes;
  const char *file;
} StEntry;

typedef struct SafeTensors SafeTensors;

/* PATH is a .safetensors file or a model.safetensors.index.json. NULL on failure, with EXIT_IO. */
SafeTensors *st_open(const char *path, Fail *f);
/* From memory that outlives it; `name` for messages. */
SafeTensors *st_open_mem(const void *data, size_t size, const char *name, Fail *f);
void st_close(SafeTensors *s); /* NULL is fine */
int st_count(const SafeTensors *s);
const StEntry *st_at(const SafeTensors *s, int i);              /* in order of name */
const StEntry *st_find(const SafeTensors *s, const char *name); /* NULL */

/* What to write: entries in any order with name, dtype, rank and dim; `fetch` provides the bytes of
 * entry i, row-major, into `to`, one entry at a time. */
typedef bool (*StFetch)(void *context, int i, void *to, Fail *f);
bool st_write(const char *path, const StEntry *entries, int n, StFetch fetch, void *context,
              Fail *f);

#endif
