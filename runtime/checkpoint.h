/* checkpoint.h - the state of a run in one file, .mtck: every variable that persists and where the
 * run stands.
 *
 * Variables are stored by path in logical order, so that another plan of the same model can resume.
 * Files appear complete or not at all and every byte is checksummed; docs/checkpoint.md describes
 * the format. */
#ifndef MTC_CHECKPOINT_H
#define MTC_CHECKPOINT_H
#include "filemap.h"
#include "loader.h"
#include "replay.h"
#include "safetensors.h"

typedef struct {
  int64_t step;       /* optimizer steps done, over all phases */
  int64_t phase;      /* index of the phase that goes on */
  int64_t phase_step; /* steps done in it */
  DataPosition data;  /* next sample */
  uint64_t seed, plan_id;
  int64_t skipped; /* non-finite steps so far */
  int64_t skipped_in_row;
} TrainState;

typedef struct {
  Arena *arena;
  TrainState state;
  const char *path, *model;
  const StEntry *vars; /* name = path of the variable; data points into the mapping */
  int nvars;
  FileMap file; /* empty when it lies in memory */
  const void *bytes;
  size_t size;
} Checkpoint;

/* Reads and verifies all of the file. NULL with EXIT_IO. */
Checkpoint *checkpoint_open(const char *path, Fail *f);
Checkpoint *checkpoint_open_mem(const void *data, size_t size, const char *name, Fail *f);
void checkpoint_close(Checkpoint *c); /* NULL is fine */
const StEntry *checkpoint_find(const Checkpoint *c, const char *path);
/* The most precise copy of a parameter: its master, the weight and the bits that complete it (`low`), or the weight. */
typedef struct {
  const StEntry *entry; /* NULL: there is none */
  const StEntry *low;   /* NULL: the entry is all */
  DType dtype;          /* of the values */
} BestCopy;
BestCopy checkpoint_best(const Checkpoint *c, const char *path);
/* Its values, row-major; *own is to be freed. NULL without memory. */
const void *checkpoint_values(const BestCopy *b, void **own, Fail *f);
/* The tensor's pages leave memory; reading it again reads the file again. */
void checkpoint_release(const Checkpoint *c, const StEntry *e);

/* Streams `n` variables; fetch as in safetensors.h. */
bool checkpoint_write(const char *path, const char *model, const TrainState *s, const StEntry *vars,
                      int n, StFetch fetch, void *context, Fail *f);

/* A running program's variables that persist; with Program.ckpt_only, of parameters just those that
 * match. */
bool checkpoint_save(const char *path, const TrainState *s, Replay *r, Fail *f);
/* Bytes that checkpoint_save writes of the program, up to the table's few. */
int64_t checkpoint_size(const Program *p);
/* All variables of the program from the checkpoint. Frozen parameters may be absent (ckpt_only) and
 * stay as they are; everything else that is missing or has another shape is reported together. */
bool checkpoint_restore(const Checkpoint *c, Replay *r, Fail *f);

/* DIR/step-000500.mtck */
char *checkpoint_path(Arena *a, const char *dir, int64_t step);
/* The newest readable checkpoint of DIR; unreadable ones are named on stderr and passed over. NULL
 * without a failure set when there is none. */
Checkpoint *checkpoint_newest(const char *dir, Fail *f);
/* After the checkpoint of `step` is durable: removes all up to it but the `keep` newest (0: none is
 * removed), and what writers that died have left. */
void checkpoint_prune(const char *dir, int64_t step, int64_t keep);

#endif
