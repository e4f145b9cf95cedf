/* formats_impl.h - between the files of the search over formats: formats.c chooses, formats_why.c
 * says what each choice buys. */
#ifndef MTC_FORMATS_IMPL_H
#define MTC_FORMATS_IMPL_H
#include "formats.h"

typedef struct {
  FormatSetting setting;
  const char *word;
  int dtype; /* DType, or PREC_SPLIT */
  bool tf32;
  int bytes;
  double price;
  const char *doc;
} Format;

typedef struct {
  const Format *format[FMT_COUNT]; /* NULL: a format of the model's own that no row has */
  double price;
  Job *job;               /* NULL = not elaborated yet */
  FitPool *pool;          /* NULL = not planned yet */
  double time;            /* within the budget at hand; infinite: no plan; 0: not weighed */
  Candidate **candidates; /* of the pool, per phase */
  int *ncandidates;
} Combo;

struct FormatsPool {
  Job *job; /* for the first combination that needs one */
  bool job_used;
  const JobArgs *again;
  Arena *a, *scratch;
  PlanArgs args;
  VEC(Combo) combos; /* by rising price */
};

/* The plan of one combination within a budget, in a. */
FitResult combo_within(FormatsPool *p, Combo *c, Arena *a, int64_t budget);
/* Its job's variables are over the budget on their own. */
bool combo_too_large(FormatsPool *p, Combo *c, int64_t budget);
/* Nanoseconds of all steps of all phases. */
double fit_time(const FitResult *r);

/* ---- formats_why.c ---- */
/* Fills r->formats, and the reasons in its job. */
void formats_explain(FormatsPool *p, const Combo *chosen, Arena *a, FitResult *r);

#endif
