/* train_eval.c - evaluation: the mean over all valid targets of the held-out data, or of its first
 * `batches` batches.
 *
 * Each micro-batch gives the mean over its own targets; these are weighted by their numbers in f64,
 * so that a last batch that is not full counts for what it holds. Rows past the end have only
 * ignored targets; a model without an `ignore` value cannot have such rows and leaves the
 * incomplete batch out. */
#include "train_parts.h"

#include <math.h>

static bool open_phase(Train *t, int i, Fail *f) {
  const Program *p = t->program;
  const ProgramPhase *set = t->phases[i].setting;
  if (set->eval < 0) return true;
  for (int k = 0; k < i; k++)
    if (t->eval_data[k] && t->phases[k].setting->tokens_per_sample == set->tokens_per_sample)
      t->eval_data[i] = t->eval_data[k];
  DataNeeds needs = {.tokens = set->tokens_per_sample, .vocab = p->vocab, .whole = true};
  needs.has_ignore = p->target_input != NULL, needs.ignore = (int32_t)p->ignore;
  if (!t->eval_data[i])
    t->eval_data[i] = data_open(&p->data[p->eval_data], p->source, p->eval_val, &needs, f);
  if (!t->eval_data[i]) return false;
  if (!needs.has_ignore && data_samples(t->eval_data[i]) < set->micro_batch)
    return fail_page(f, EXIT_IO, "E0602",
                     "data `%s`: %lld samples to evaluate on do not fill one micro-batch of %lld",
                     p->data[p->eval_data].name, (long long)data_samples(t->eval_data[i]),
                     (long long)set->micro_batch);
  return feed_resolve(t->arena, p, set->eval, set->micro_batch, set->tokens_per_sample,
                      &t->phases[i].eval, f);
}

bool eval_open(Train *t, Fail *f) {
  const Program *p = t->program;
  t->eval_data = arena_array(t->arena, DataSet *, p->nphases + 1);
  if (p->eval_data < 0) return true;
  int64_t most = 0;
  for (int i = 0; i < p->nphases; i++) {
    const ProgramPhase *set = t->phases[i].setting;
    if (!open_phase(t, i, f)) return false;
    int64_t n = set->micro_batch * set->tokens_per_sample;
    most = n > most ? n : most;
  }
  return batch_alloc(&t->eval_batch, most, 1, f);
}

void eval_close(Train *t) {
  for (int i = 0; t->eval_data && i < t->program->nphases; i++) {
    bool shared = false;
    for (int k = 0; k < i; k++) shared = shared || t->eval_data[k] == t->eval_data[i];
    if (!shared) data_close(t->eval_data[i]);
  }
  batch_free(&t->eval_batch);
}

/* One micro-batch: adds its loss and metric, weighted. */
static bool run_batch(Train *t, const RunPhase *ph, const Batch *b, int64_t real, double sum[2],
                      double weight[2], Fail *f) {
  Replay *r = &t->replay;
  double inv = b->valid > 0 ? 1.0 / (double)b->valid : 0, loss, metric;
  if (!variables_fill(r, PV_METRIC, 0, f) ||
      !scalar_write_f32(r, &t->scalars, SC_INV_COUNT, inv, f) ||
      !scalar_write_f32(r, &t->scalars, SC_INV_ACCUM, 1, f) || !feed_write(r, &ph->eval, b, 0, f) ||
      !replay_run(r, ph->setting->eval, f) || !scalar_read(r, t->eval, &loss, f) ||
      !scalar_read(r, t->eval_metric, &metric, f))
    return false;
  if (b->valid > 0) sum[0] += loss * (double)b->valid;
  sum[1] += metric * (double)real;
  weight[0] += (double)b->valid;
  weight[1] += (double)real;
  return true;
}

bool eval_run(Train *t, int phase, StepReport *r, Fail *f) {
  const RunPhase *ph = &t->phases[phase];
  const DataSet *d = t->eval_data[phase];
  if (!d) return true;
  int64_t rows = ph->setting->micro_batch, batches = t->program->eval_batches;
  int64_t samples = data_samples(d), limit = batches ? batches * rows : samples;
  if (limit > samples) limit = samples;
  if (!t->program->target_input) limit = limit / rows * rows;
  Batch *b = &t->eval_batch;
  b->samples = rows, b->tokens = ph->setting->tokens_per_sample;
  double sum[2] = {0}, weight[2] = {0};
  for (int64_t first = 0; first < limit; first += rows) {
    int64_t real = batch_fill(b, d, first, (int32_t)t->program->ignore);
    if (real < 0)
      return fail_page(f, EXIT_IO, "E0602", "a data file changed while it was being read");
    if (!run_batch(t, ph, b, real, sum, weight, f)) return false;
    if (train_interrupted) return true; /* a part of the data would be another number */
  }
  r->evaluated = true;
  r->eval_loss = weight[0] > 0 ? sum[0] / weight[0] : NAN;
  r->eval_metric = weight[1] > 0 ? sum[1] / weight[1] : NAN;
  r->metric = t->eval_metric >= 0 ? t->program->eval_metric : NULL;
  return true;
}
