/* cli_bench.h - the report of `mtc bench`: commands grouped by kernel beside the limits of the
 * target, and the step. */
#ifndef MTC_CLI_BENCH_H
#define MTC_CLI_BENCH_H
#include "passes/calibrate.h"
#include "runtime/bench.h"

/* One timed command: what the plan knows of it and what was measured. */
typedef struct {
  const char *program; /* "micro", "update" */
  const char *name;    /* "h.3.attn.q" */
  const char *kernel;  /* what runs: "gemm 8192x768x3072 bf16", the emitted function */
  KernelCost cost;
  BenchTime time;
  int64_t predicted_ns;
} BenchCommand;

/* Commands that run the same kernel on the same sizes. */
typedef struct {
  const BenchCommand *first;
  int calls;
  double seconds; /* of all their medians */
  BenchTime time; /* of one: least, median of medians, most */
  double predicted;
} BenchGroup;

/* The programs of a step. Commands are listed of micro and update: the first micro-batch of a step runs the kernels of the
 * others, without reading accumulators. */
enum { BENCH_MICRO, BENCH_UPDATE, BENCH_FIRST, BENCH_PROGRAMS };

typedef struct {
  const Plan *plan;
  const PlanPhase *phase;
  const Program *program;
  const BenchResult *result;
  Target target; /* calibrated */
  int ncommands;
  BenchCommand *commands;
  int ngroups;
  BenchGroup *groups;                                           /* by falling seconds */
  double predicted[BENCH_PROGRAMS], calibrated[BENCH_PROGRAMS]; /* seconds */
} BenchReport;

/* The program's times; of no runs where the step does without it. */
const BenchProgram *bench_program(const BenchResult *r, int program);
/* Groups the commands of the report and computes its predictions; commands must be set. */
void bench_groups(BenchReport *b, Arena *a);
void bench_text(const BenchReport *b, FILE *to, bool all, Arena *a); /* all: every group */
void bench_json(const BenchReport *b, FILE *to);
/* GB/s and TFLOP/s of one run of a group; what of the copy rate or of the large products' rate that
 * is. */
double bench_gbs(const BenchGroup *g);
double bench_tflops(const BenchGroup *g);
#endif
