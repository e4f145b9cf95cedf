/* assemble.h - from a trace of clusters to steps, buffers with lifetimes and offsets: the parts of
 * a Plan.
 *
 * Order of calls: assemble_variables once, assemble_program for each program, assemble_finish once.
 */
#ifndef MTC_ASSEMBLE_H
#define MTC_ASSEMBLE_H
#include "saved.h"

/* Gives every variable of the job its persistent buffer, by class and number: in the host's arena where host[variable]
 * (NULL: nowhere), else in the device's. Those of which absent[variable] (NULL: none) get none: no program uses them. */
void assemble_variables(Plan *p, Arena *a, const bool *host, const bool *absent);

/* Appends a program that runs the clusters of m in the order of trace (an id that stands again is a
 * rebuild), with every buffer placed above the persistent ones. Inputs live through the whole of
 * their program. Host variables get their stages and copies, which run ahead as far as `room` allows (stage.h). One whose
 * buffers live as those of the program before it takes over their places. Returns its index. */
int assemble_program(Plan *p, Arena *a, const char *name, const StorageMap *m, int ntrace,
                     const int *trace, int room);
/* The same, with values that wait on the host between forward and backward. */
int assemble_saving(Plan *p, Arena *a, const char *name, const StorageMap *m, int ntrace,
                    const int *trace, int room, const SavedSet *saved);

/* Totals and the plan's id, once all programs and phases stand in p. */
void assemble_finish(Plan *p, Arena *a);

BufClass variable_class(VarRole r);
/* Size of the vocabulary: the last axis of the largest value that cross-entropy reads; 0 without
 * one. */
int64_t logits_axis(const Graph *g);
/* Height of the regions of variables alone, as assemble_variables places them. */
int64_t variables_bytes(const Vars *v);
/* Of accumulators, without gaps. */
int64_t accumulators_bytes(const Vars *v);

/* Bytes of each class at the plan's peak, which lies at step peak_step of program `program` (-1
 * when there is none). gaps are what placement and rounding to the target's granule leave. The sum
 * with overhead and reserve is peak_bytes. */
typedef struct {
  int64_t bytes[BC_COUNT];
  int64_t host[BC_COUNT]; /* pinned host memory */
  int64_t gaps;
  int program;
} Ledger;
Ledger plan_ledger(const Plan *p);
/* The program that has the most saved values on the host, which is as many as the host's arena has room for; -1 without any. */
int plan_saver(const Plan *p);

#endif
