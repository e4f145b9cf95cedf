/* filemap.h - a file mapped for reading: its pages come from the file when they are touched, and need
 * not stay. */
#ifndef MTC_FILEMAP_H
#define MTC_FILEMAP_H
#include "../ir/base.h"

typedef struct {
  void *at; /* NULL: not mapped */
  size_t size;
} FileMap;

/* NULL, or what is wrong with PATH. An empty file cannot be mapped. */
const char *filemap_open(FileMap *m, const char *path);
void filemap_close(FileMap *m);
/* The pages of these bytes leave the memory of the process. They stay readable: from the file. Bytes
 * outside of the map are left alone. */
void filemap_release(const FileMap *m, const void *data, int64_t bytes);

#endif
