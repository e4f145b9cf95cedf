/* bench.h - runs the training programs of a phase on random data and times them: each command, and
 * each program whole. */
#ifndef MTC_BENCH_H
#define MTC_BENCH_H
#include "replay.h"

typedef struct {
  double least, median, most; /* seconds */
} BenchTime;

typedef struct {
  int program;    /* index in Program.programs */
  int runs;       /* that were timed, after one that was not */
  BenchTime *cmd; /* per command, in its place in the program: from its start to that of the next */
  BenchTime whole;   /* as training runs it */
  double event_cost; /* seconds that timing adds to a command; taken off `cmd` */
} BenchProgram;

typedef struct {
  /* Of no runs: first when a step has one micro-batch, update when the backward pass updates. */
  BenchProgram first, micro, update;
  DeviceTune tune; /* products 0: not timed */
  double copy_rate;       /* bytes a second, read + written; 0 unknown */
  int64_t overhead_bytes; /* that the device holds for us besides the arena, before anything was
                             timed */
} BenchResult;

typedef struct {
  int phase;      /* of the program */
  int threads;    /* CPU; 0 = all cores */
  int runs;       /* at most, of each program */
  double seconds; /* time after which no further run starts; three are made in any case */
  bool tune;      /* first find the products' algorithms, for these runs and later ones */
} BenchOptions;

/* Weights are initialised by the program's seed; tokens are uniform. Nothing is read or written but
 * the device and with `tune` the table of algorithms. */
bool bench_run(const Program *p, const BenchOptions *o, Arena *a, BenchResult *r, Fail *f);
#endif
