/* recompute_file.h - recompute problems as files, one op a line of JSON (docs/problem.md). */
#ifndef MTC_RECOMPUTE_FILE_H
#define MTC_RECOMPUTE_FILE_H
#include "recompute.h"

typedef struct {
  RecProblem problem;
  const int64_t *id; /* per value: its id in the file */
} RecFile;

/* Reads a problem. NULL, with a sentence in *why that names the line, when the text is not one. */
RecFile *recompute_read(Arena *a, const char *text, size_t size, const char **why);
#endif
