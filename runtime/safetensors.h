/* safetensors.h - weights files of Hugging Face: reader (one file, or the index of a sharded one)
 * and writer.
 *
 * The reader maps the files and checks their headers strictly: sizes, offsets without overlap or
 * hole, dtypes, shapes. Nothing is copied; entries point into the mapping, and a tensor that was
 * used can be released, so that no more than one is in memory. */
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

/* PATH is a .safetensors file, a model.safetensors.index.json, or a folder with a file of one of
 * these names. NULL on failure, with EXIT_IO. */
SafeTensors *st_open(const char *path, Fail *f);
/* From memory that outlives it; `name` for messages. */
SafeTensors *st_open_mem(const void *data, size_t size, const char *name, Fail *f);
void st_close(SafeTensors *s); /* NULL is fine */
/* The tensor's pages leave memory; reading it again reads the file again. */
void st_release(const SafeTensors *s, const StEntry *e);
int st_count(const SafeTensors *s);
const StEntry *st_at(const SafeTensors *s, int i);              /* in order of name */
const StEntry *st_find(const SafeTensors *s, const char *name); /* NULL */

/* What to write: entries in any order with name, dtype, rank and dim; `fetch` provides the bytes of
 * entry i, row-major, into `to`, one entry at a time. */
typedef bool (*StFetch)(void *context, int i, void *to, Fail *f);
bool st_write(const char *path, const StEntry *entries, int n, StFetch fetch, void *context,
              Fail *f);
/* The same in files of at most `most` bytes of tensors, as Transformers splits them: entries in
 * order, one that is larger has a file of its own. When one file is enough it is PATH; else, for
 * PATH = "D/model.safetensors", D/model-00001-of-00003.safetensors, .. and, last,
 * D/model.safetensors.index.json. What an earlier export of that name has left is removed once the
 * new files are complete. Returns the number of files, 0 on failure. */
int st_write_shards(const char *path, const StEntry *entries, int n, int64_t most, StFetch fetch,
                    void *context, Fail *f);
/* Where the index of PATH's shards is. */
char *st_index_path(Arena *a, const char *path);

#endif
