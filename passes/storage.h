/* storage.h - where each value of a program lies, before time and addresses: values become units
 * (one buffer each) with an offset and strides inside.
 *
 * Views take their operand's unit. Operands of a concat lie inside its unit. A value assigned to a
 * variable lies in the variable. In-place reuse is only proposed here (over); assembly takes it up
 * where the input dies at that step. */
#ifndef MTC_STORAGE_H
#define MTC_STORAGE_H
#include "plan.h"

typedef struct {
  int64_t bytes; /* exact, before alignment */
  int var;       /* variable that it is, or -1 */
  ValueId input; /* OP_INPUT value that it is, or -1 */
  ValueId value; /* value whose row-major layout it has; -1 for variables */
  int maker;     /* first cluster that writes it; -1 for variables and inputs */
  int nmakers;   /* clusters that write it: more than one for parts of a concat */
  int last;      /* last cluster that reads or writes it as the clusters stand; -1 none */
  bool result;   /* read after the program: lives to its end */
} Unit;

/* Neither a variable nor an input: a program makes it. */
static inline bool is_made(const Unit *u) {
  return u->var < 0 && u->input < 0;
}

typedef struct {
  int unit;                 /* -1: the value is never stored */
  int64_t offset;           /* bytes from the start of the unit */
  int64_t stride[MAX_RANK]; /* elements */
} ValuePlace;

typedef struct {
  const Clusters *clusters;
  int nunits;
  Unit *unit;
  ValuePlace *place; /* per value */
  ValuePlace **out;  /* per cluster and output: where it is written (differs from place for copies
                        into variables) */
  int **over; /* per cluster and output: input that it may overlay when that dies there, or -1 */
  bool *overwritten; /* per variable: assigned somewhere in the program */
} StorageMap;

StorageMap storage_map(const Clusters *c, Arena *a);

/* Strides of v in a buffer of its own: row-major; long rows that are no multiple of 16 bytes (a vocabulary of 50,257) are
 * padded to whole lines of 128, so that GEMM libraries and kernels move 16 bytes at a time. Returns the elements, padding
 * included. */
int64_t storage_strides(const Graph *g, ValueId v, int64_t *stride);

/* The place of the result of VIEW node n when its operand lies at `from`. False when strides cannot
 * express it. */
bool view_place(const Graph *g, const Node *n, const ValuePlace *from, ValuePlace *to);

#endif
