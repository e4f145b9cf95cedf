/* report.h - between the files of the report: numbers as people read them, and what the parts have
 * in common. */
#ifndef MTC_REPORT_H
#define MTC_REPORT_H
#include "assemble.h"

typedef struct {
  const FitResult *r;
  Arena *arena;
  FILE *to;
  int columns;
  bool unicode;
} Report;

static inline double mib(int64_t bytes) {
  return (double)bytes / (1 << 20);
}
static inline double gib(int64_t bytes) {
  return (double)bytes / (1 << 30);
}
/* "14.33 GiB", "42.5 MiB" below one GiB. */
char *bytes_short(Arena *a, int64_t bytes);
/* "31.98 s", "12.4 ms". */
char *time_short(Arena *a, int64_t ns);
/* Of a training phase at this step time: tokens, or samples where the data has no tokens. */
double tokens_per_second(const FitResult *r, int phase, int64_t step_ns);
const char *rate_unit(const FitResult *r, int phase);
/* Bytes of a class of the plan's variables (weights, masters, moments, gradients) by parameter: of weights all
 * parameters, else the trained ones. dtype: only of that format; -1 = all. 0 for other classes. */
double bytes_per_param(const Plan *p, BufClass c, int dtype);
/* What a candidate is, in words: "B=8, 4 chunks, part recomputed". */
char *candidate_text(Arena *a, const Candidate *c);
/* Without its micro-batch. */
char *candidate_how(Arena *a, const Candidate *c);

/* ---- report_recompute.c ---- */
/* What is rebuilt or waits on the host, of equal name but for the layer. */
typedef struct {
  const char *name; /* "h[0..10].gelu" */
  int64_t bytes;    /* that would have been kept on the device */
  int64_t ns;       /* of rebuilding in one micro-batch */
  int layers;       /* distinct layers among them */
} LayerGroup;
typedef struct {
  LayerGroup *at;
  int n;
  int64_t bytes, ns;
  int layers; /* with anything rebuilt */
} LayerGroups;
LayerGroups plan_rebuilt(const Plan *p, int program, Arena *a);
/* The program's saved values that wait on the host. */
LayerGroups plan_waiting(const Plan *p, int program, Arena *a);
/* "h.3.mlp" -> "h.*.mlp" and the number; -1 when it has none. */
const char *name_without_layer(const char *name, int *layer);

/* ---- report_host.c ---- */
typedef struct {
  int64_t in_bytes, out_bytes, in_ns, out_ns, exposed_ns;
} CopyTraffic;
/* Of one run of a program; zero for program -1. */
CopyTraffic copy_traffic(const Plan *p, int program);
/* What is pinned; what the copies of a phase's programs cost. Nothing where nothing is on the host. */
void report_host(const Report *x, const Ledger *l);
void report_copies(const Report *x, const PlanPhase *ph);

/* ---- report_floor.c ---- */
void report_verdict(const Report *x);
void report_ways_out(const Report *x);

#endif
