/* sample.h - generates tokens from a checkpoint with the program's `sample` graph. */
#ifndef MTC_SAMPLE_H
#define MTC_SAMPLE_H
#include "fail.h"
#include "program.h"

typedef struct {
  const char
      *prompt;    /* text for byte models, else ids separated by spaces or commas; NULL = none */
  int64_t tokens; /* how many to generate */
  double temperature; /* 0: always the most likely */
  int64_t top_k;      /* 0: all */
  uint64_t seed;
  int threads;
  const char *
      device; /* "cpu" or "cuda" must be what the program was compiled for; NULL = whatever it is */
  int64_t budget_bytes; /* refuse a program that needs more; -1 = no bound */
} SampleOptions;

/* Prints prompt and continuation on `out`. `path` is the folder of a run (its newest checkpoint is
 * taken) or a .mtck file inside one. Returns the exit code; failures are printed. */
int sample_run(const char *path, const SampleOptions *o, FILE *out);

/* One draw from logits; deterministic in (seed, index). Exposed for tests. `order` is scratch of n.
 */
int64_t sample_draw(const float *logits, int64_t n, double temperature, int64_t top_k,
                    uint64_t seed, int64_t index, int32_t *order);

#endif
