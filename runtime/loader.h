/* loader.h - the order of samples, and a thread that prepares the batch of the next step while the
 * device works.
 *
 * The stream of samples is a function of (seed, epoch): a permutation that is computed, not stored.
 * A step takes the next `samples` of it, however they are split into micro-batches; an epoch may
 * end inside a step. */
#ifndef MTC_LOADER_H
#define MTC_LOADER_H
#include "data.h"

/* Where the stream stands: the next sample is number `index` of epoch `epoch`. */
typedef struct {
  int64_t epoch, index;
} DataPosition;

/* Sample that comes at place `index` (0 <= index < n) of an epoch: a permutation of 0..n-1. */
int64_t shuffle_at(uint64_t seed, int64_t epoch, int64_t index, int64_t n);

/* The samples of one step, row after row of T. */
typedef struct {
  int64_t samples, tokens; /* rows and T */
  int32_t *inputs, *targets;
  uint8_t *present;
  int64_t valid;      /* targets that count, of the whole step */
  DataPosition after; /* where the stream stands behind it */
} Batch;

typedef struct Loader Loader;
/* The data set must outlive the loader. */
Loader *loader_open(const DataSet *d, int64_t tokens, int64_t samples, uint64_t seed, bool shuffle,
                    DataPosition from, Fail *f);
/* Waits for the next batch, which stays valid until the next call. NULL on failure. */
const Batch *loader_next(Loader *l, Fail *f);
void loader_close(Loader *l); /* NULL is fine */

/* A batch to be filled by hand: evaluation. batch_fill takes samples first.. in storage order; rows
 * past the end of the data hold ignored targets. Returns the number of real rows, -1 when a file
 * changed. */
bool batch_alloc(Batch *b, int64_t tokens, int64_t samples, Fail *f);
void batch_free(Batch *b);
int64_t batch_fill(Batch *b, const DataSet *d, int64_t first, int32_t ignore);

#endif
