/* pass_table.h - names and letters of the passes, dumps of their graphs and the time that each
 * took. */
#ifndef MTC_PASS_TABLE_H
#define MTC_PASS_TABLE_H
#include "../ir/graph.h"

typedef enum {
#define PASS(letter, name, doc) PASS_##name,
#include "passes.def"
  PASS_COUNT
} PassId;

char pass_letter(PassId p);
const char *pass_name(PassId p); /* "simplify" */
const char *pass_doc(PassId p);

/* Letters whose graphs pass_done prints to `to`. False, with the first unknown letter in *bad, when
 * there is one. */
bool pass_dump(const char *letters, FILE *to, char *bad);
bool pass_dumps(void); /* whether any are */

/* Whether graphs and clusters are verified after each pass; they are until this says otherwise. */
void pass_verify(bool on);
bool pass_verifies(void);

/* A pass of this thread ended with graph g: counts the time since the pass before, verifies g, prints it when
 * asked for. Returns g. */
Graph *pass_done(PassId p, Graph *g, Arena *a);
/* Starts the clock of the next pass: called where other work came between. */
void pass_begin(void);
/* Runs and total milliseconds of each pass since the process started. */
void pass_times(FILE *to);

#endif
