/* pass_table.c - the pass table at run time (see pass_table.h). The only state of the passes: what
 * to print and to verify, and clocks. None changes a result. */
#include "pass_table.h"

#include <ctype.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "rewrite.h"

static const struct {
  char letter;
  const char *name, *doc;
} table[PASS_COUNT] = {
#define PASS(letter, name, doc) {letter, #name, doc},
#include "passes.def"
};

static struct {
  bool dump[PASS_COUNT];
  FILE *to;
  double ms[PASS_COUNT];
  int runs[PASS_COUNT];
  bool unverified;
} state;
static pthread_mutex_t clocks = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local double last; /* when the pass before ended */

char pass_letter(PassId p) {
  return table[p].letter;
}
const char *pass_doc(PassId p) {
  return table[p].doc;
}

const char *pass_name(PassId p) {
  char text[32];
  size_t n = strlen(table[p].name);
  for (size_t i = 0; i < n; i++) text[i] = (char)tolower(table[p].name[i]);
  return intern_n(text, n);
}

bool pass_dump(const char *letters, FILE *to, char *bad) {
  state.to = to;
  for (const char *c = letters; *c; c++) {
    int p = 0;
    while (p < PASS_COUNT && table[p].letter != *c) p++;
    if (p == PASS_COUNT) {
      *bad = *c;
      return false;
    }
    state.dump[p] = true;
  }
  return true;
}

void pass_verify(bool on) {
  state.unverified = !on;
}

bool pass_verifies(void) {
  return !state.unverified;
}

static double now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

bool pass_dumps(void) {
  bool any = false;
  for (int p = 0; p < PASS_COUNT; p++) any |= state.dump[p];
  return any;
}

void pass_begin(void) {
  last = now_ms();
}

Graph *pass_done(PassId p, Graph *g, Arena *a) {
  double now = now_ms();
  pthread_mutex_lock(&clocks);
  if (last > 0) state.ms[p] += now - last;
  state.runs[p]++;
  pthread_mutex_unlock(&clocks);
  if (!state.unverified) graph_must_verify(g, a, pass_name(p));
  if (state.dump[p]) {
    Str text = {.arena = g->arena};
    graph_print(g, &text);
    fprintf(state.to, "# %s after %s\n%s\n", g->name, pass_name(p), text.text ? text.text : "");
  }
  last = now_ms();
  return g;
}

void pass_times(FILE *to) {
  for (int p = 0; p < PASS_COUNT; p++)
    if (state.runs[p])
      fprintf(to, "%c %-12s %6d runs %10.1f ms\n", table[p].letter, pass_name((PassId)p),
              state.runs[p], state.ms[p]);
}
