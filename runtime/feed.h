/* feed.h - which field of a batch goes into which input of a program, by name; and the step
 * scalars. */
#ifndef MTC_FEED_H
#define MTC_FEED_H
#include "../ir/graph.h"
#include "loader.h"
#include "replay.h"

typedef enum { FIELD_INPUTS, FIELD_TARGETS, FIELD_PRESENT } FeedField;
typedef struct {
  int n;
  struct {
    FeedField field;
    const Tensor *at;
  } * inputs;
} Feed;

/* Inputs of program `code` for micro-batches of `samples` samples of `tokens` tokens. An input that
 * the data cannot provide is a failure that names it and lists the fields. */
bool feed_resolve(Arena *a, const Program *p, int code, int64_t samples, int64_t tokens, Feed *feed,
                  Fail *f);
/* Writes rows first_row.. of the batch into the inputs. */
bool feed_write(Replay *r, const Feed *feed, const Batch *b, int64_t first_row, Fail *f);

/* Variables of the step scalars; -1 where the program has none. */
typedef struct {
  int var[SC_COUNT];
} Scalars;
Scalars scalars_of(const Program *p);
bool scalar_write_f32(Replay *r, const Scalars *s, StepScalar which, double value, Fail *f);
bool scalar_write_i32(Replay *r, const Scalars *s, StepScalar which, int64_t value, Fail *f);
bool scalar_write_seed(Replay *r, const Scalars *s, uint64_t seed, Fail *f);
/* The value of a metric or optimizer scalar; NaN when var is -1. */
bool scalar_read(Replay *r, int var, double *value, Fail *f);

#endif
