/* train.c - the training run: opens data, device and folder, goes through the phases, writes
 * metrics and checkpoints.
 *
 * Everything that can be refused is refused before step 0. Checkpoints fall between steps; nothing
 * reads there what is not in them (accumulators, metrics), so that a resumed run repeats the original
 * bit for bit. */
#include "train_parts.h"

#include "../ir/graph.h"
#include "outfile.h"
#include "schedule.h"
#include "start.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

volatile int train_interrupted;

/* The first signal asks for a checkpoint at the next step; the second ends the process. */
static void on_signal(int number) {
  (void)number;
  if (train_interrupted++) _exit(EXIT_INTERRUPTED);
}

static void watch_signals(void) {
  train_interrupted = 0;
  struct sigaction action = {.sa_handler = on_signal};
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, NULL);
  sigaction(SIGTERM, &action, NULL);
}

/* ---- opening ---- */

/* Opens a phase's data or shares what an earlier phase of the same sample length opened. */
static bool open_phase(Train *t, int i, Fail *f) {
  const Program *p = t->program;
  RunPhase *ph = &t->phases[i];
  const ProgramPhase *set = ph->setting = &p->phases[i];
  ph->samples = set->micro_batch * set->accumulation;
  if (set->data < 0) return fail_page(f, EXIT_IO, "E0602", "%s trains on no data", p->source);
  for (int k = 0; k < i; k++) {
    const ProgramPhase *other = t->phases[k].setting;
    if (other->data != set->data || other->data_val != set->data_val ||
        other->tokens_per_sample != set->tokens_per_sample)
      continue;
    ph->data = t->phases[k].data;
    ph->follows = k == i - 1;
  }
  DataNeeds needs = {.tokens = set->tokens_per_sample, .vocab = p->vocab};
  needs.has_ignore = p->target_input != NULL, needs.ignore = (int32_t)p->ignore;
  if (!ph->data) ph->data = data_open(&p->data[set->data], p->source, set->data_val, &needs, f);
  if (!ph->data) return false;
  ph->steps = schedule_steps(set, data_samples(ph->data));
  t->total += ph->steps;
  return feed_resolve(t->arena, p, set->micro, set->micro_batch, set->tokens_per_sample, &ph->micro,
                      f) &&
         (set->first < 0 || feed_resolve(t->arena, p, set->first, set->micro_batch,
                                         set->tokens_per_sample, &ph->first, f));
}

static void find_metrics(Train *t) {
  const Program *p = t->program;
  t->loss = program_var(p, "metric.loss");
  t->grad_norm = program_var(p, "metric.grad_norm");
  t->skipped = program_var(p, "metric.skipped");
  t->eval = program_var(p, "metric.eval");
  t->scale = program_var(p, "opt.scale");
  t->eval_metric = -1;
  if (p->eval_metric)
    t->eval_metric = program_var(p, arena_printf(t->arena, "metric.%s", p->eval_metric));
  t->scalars = scalars_of(p);
  for (int i = 0; i < p->nvars; i++) t->has_state = t->has_state || p->vars[i].role == PV_STATE;
}

static bool open_data(Train *t, Fail *f) {
  t->phases = arena_array(t->arena, RunPhase, t->program->nphases + 1);
  if (!t->program->nphases)
    return fail_set(f, EXIT_IO, "%s has nothing to train", t->program->source);
  for (int i = 0; i < t->program->nphases; i++)
    if (!open_phase(t, i, f)) return false;
  return t->options->dry_run > 0 || eval_open(t, f);
}

static const char *products_path(Train *t) {
  return arena_printf(t->arena, "%s/products.txt", t->options->dir);
}

static bool open_device(Train *t, Fail *f) {
  const char *threads = getenv("MTC_THREADS");
  DeviceOptions o = {.threads = t->options->threads, .poison = t->options->poison};
  o.copies = t->options->no_copies ? COPIES_NEVER : o.poison ? COPIES_LATE : COPIES_SOON;
  if (!o.threads && threads) o.threads = atoi(threads);
  if (t->options->resume) o.algorithms = products_path(t);
  return replay_open(&t->replay, t->program, &o, f);
}

static bool start_state(Train *t, const Checkpoint *from, Fail *f) {
  const Program *p = t->program;
  t->state = (TrainState){.seed = t->seed, .plan_id = p->plan_id};
  t->saved_step = -1;
  if (from) {
    t->state = from->state;
    t->state.plan_id = p->plan_id;
    t->seed = from->state.seed;
    t->saved_step = from->state.step;
    if (t->state.phase > p->nphases)
      return fail_page(f, EXIT_IO, "E0601", "%s: its phase is not one of this program", from->path);
  }
  return start_values(&t->replay, t->seed, from, f) &&
         scalar_read(&t->replay, t->scale, &t->next_scale, f);
}

/* ---- reports ---- */

/* "f32", or "bf16/f32" when masters are kept. */
static const char *dtypes_text(Train *t) {
  const Program *p = t->program;
  const char *weights = "-";
  for (int i = p->nvars; i-- > 0;) {
    const ProgramVar *v = &p->vars[i];
    if (v->role == PV_PARAM) weights = dtype_name(v->at.dtype);
    int master = v->role == PV_PARAM ? variable_master(p, i) : i;
    if (master != i && p->vars[master].at.dtype == DT_U16)
      return arena_printf(t->arena, "%s+16 bits", weights);
    if (master != i)
      return arena_printf(t->arena, "%s/%s", weights, dtype_name(p->vars[master].at.dtype));
  }
  return weights;
}

static void print_modes(Train *t) {
  if (t->options->no_copies)
    metrics_note(&t->metrics, "copies between host and device are left out: times count, losses mean nothing");
}

static void print_head(Train *t) {
  const Program *p = t->program;
  const ProgramPhase *first = &p->phases[0];
  char *name = arena_printf(t->arena, "%s", p->source);
  const char *slash = strrchr(name, '/');
  metrics_note(&t->metrics, "plan %08x  %s%s%s  %s  %lld x %lld x %lld  %s  seed %llu",
               (unsigned)(p->plan_id >> 32), slash ? slash + 1 : name, p->preset ? " " : "",
               p->preset ? p->preset : "", p->target, (long long)first->micro_batch,
               (long long)first->tokens_per_sample, (long long)first->accumulation, dtypes_text(t),
               (unsigned long long)t->seed);
  if (t->state.step)
    metrics_note(&t->metrics, "resumed after step %lld of %lld", (long long)t->state.step,
                 (long long)t->total);
}

static bool within_plan(const char *where, int64_t planned, int64_t measured, int64_t granule, Fail *f) {
  if (measured <= round_up(planned, granule)) return true; /* devices hold whole granules */
  return fail_set(f, EXIT_PLAN_BROKEN,
                  "memory%s broke the plan: planned %lld bytes, measured %lld; this is a bug of mtc, please report it",
                  where, (long long)planned, (long long)measured);
}

/* The promise of every run. Memory that breaks the plan ends it. */
static bool report_memory(Train *t, Fail *f) {
  const Program *p = t->program;
  int64_t planned = p->peak_bytes - p->reserve_bytes,
          measured = t->replay.api->measured(t->replay.device);
  Arena *a = t->arena;
  metrics_note(&t->metrics, "memory planned %s bytes (%s), measured after step 1: %s bytes (%s)",
               format_count(a, planned), format_bytes(a, planned), format_count(a, measured),
               format_bytes(a, measured));
  t->measured = true;
  int64_t host = t->replay.api->measured_host(t->replay.device);
  if (p->host_bytes)
    metrics_note(&t->metrics, "host memory planned %s bytes (%s), %s: %s bytes (%s)", format_count(a, p->host_bytes),
                 format_bytes(a, p->host_bytes), p->cuda ? "pinned" : "measured", format_count(a, host),
                 format_bytes(a, host));
  if (t->options->no_copies) return true; /* has a buffer of its own */
  return within_plan("", planned, measured, p->cuda ? 2 << 20 : 4096, f) &&
         within_plan(" of the host", p->host_bytes, host, 4096, f);
}

/* ---- the loop ---- */

static bool save_checkpoint(Train *t, Fail *f) {
  if (t->options->dry_run > 0 || t->options->no_checkpoint || t->saved_step == t->state.step) return true;
  char *path = checkpoint_path(t->arena, t->options->dir, t->state.step);
  if (!checkpoint_save(path, &t->state, &t->replay, f)) return false;
  t->saved_step = t->state.step;
  checkpoint_prune(t->options->dir, t->state.step, t->program->ckpt_keep);
  return true;
}

static bool interrupted(Train *t, Fail *f) {
  if (!save_checkpoint(t, f)) return false;
  const TrainOptions *o = t->options;
  return fail_set(f, EXIT_INTERRUPTED, "interrupted after step %lld%s", (long long)t->state.step,
                  o->dry_run > 0     ? ""
                  : o->no_checkpoint ? "; no checkpoint is written with --no-checkpoint"
                                     : "; the checkpoint is written, go on with --resume");
}

/* A skipped step while the factor on the loss can still fall is how that factor is found. */
static bool is_routine(const Train *t) {
  return t->next_scale < t->last_scale;
}

/* Counts skipped steps, and names what the first of a row began with. */
static bool check_finite(Train *t, const RunPhase *ph, const Batch *b, StepReport *r, Fail *f) {
  if (!r->skipped || t->options->no_copies) { /* without copies numbers mean nothing */
    t->state.skipped_in_row = 0;
    return true;
  }
  t->state.skipped++;
  if (++t->state.skipped_in_row == 1) t->nonfinite = NULL;
  if (t->state.skipped_in_row == 1 && !is_routine(t))
    t->nonfinite = r->nonfinite = train_name_nonfinite(t, ph, b, f);
  return !f->code;
}

static bool stop_nonfinite(Train *t, const RunPhase *ph, const Batch *b, const StepReport *r, Fail *f) {
  const Program *p = t->program;
  bool limit = p->nonfinite_limit > 0 && t->state.skipped_in_row >= p->nonfinite_limit;
  if (!r->skipped || t->options->no_copies || (!limit && (!p->nonfinite_stop || is_routine(t)))) return true;
  bool undone = ph->setting->update >= 0; /* else the weights have taken the step */
  if (undone && !save_checkpoint(t, f)) return false;
  const char *value = train_name_value(t, ph, b, f);
  if (f->code) return false;
  return fail_set(
      f, EXIT_STOPPED,
      "stopped after step %lld: %lld step%s in a row with gradients that are "
      "not finite%s%s%s%s%s",
      (long long)t->state.step, (long long)t->state.skipped_in_row,
      t->state.skipped_in_row == 1 ? "" : "s", t->nonfinite ? ", first in " : "",
      t->nonfinite ? t->nonfinite : "",
      undone ? ""
             : "; the weights have taken them in, go on from the last checkpoint with --resume",
      value ? "\n  = the first value that is not finite: " : "", value ? value : "");
}

static int64_t last_step(const Train *t) {
  const TrainOptions *o = t->options;
  int64_t last = o->steps >= 0 && o->steps < t->total ? o->steps : t->total;
  return o->dry_run > 0 && o->dry_run < last ? o->dry_run : last;
}

/* After the update of a step: advances the state, evaluates, reports, checkpoints. */
static bool finish_step(Train *t, const RunPhase *ph, const Batch *b, double since, StepReport *r,
                        Fail *f) {
  const Program *p = t->program;
  if (!check_finite(t, ph, b, r, f)) return false;
  t->state.step++, t->state.phase_step++;
  t->state.data = b->after;
  if (t->state.phase_step == ph->steps) t->state.phase++, t->state.phase_step = 0;
  bool last = t->state.step == last_step(t);
  r->step = t->state.step, r->total = last_step(t);
  r->phase = p->nphases > 1 ? ph->setting->name : "";
  r->epoch = (double)b->after.epoch + (double)b->after.index / (double)data_samples(ph->data);
  r->tokens = b->valid;
  r->step_seconds = clock_seconds() - since;
  r->tokens_per_second = (double)b->valid / r->step_seconds;
  r->est_seconds = ph->setting->est_step_seconds;
  bool due = p->eval_every > 0 && t->state.step % p->eval_every == 0;
  if (t->options->dry_run <= 0 && p->eval_data >= 0 && (due || last) && !train_interrupted &&
      !eval_run(t, (int)(ph - t->phases), r, f))
    return false;
  bool first = !t->measured;
  if (first && !report_memory(t, f)) return false;
  if (!metrics_step(&t->metrics, r, first || last || r->skipped, f)) return false;
  if (!stop_nonfinite(t, ph, b, r, f)) return false;
  bool save = p->ckpt_every > 0 && t->state.step % p->ckpt_every == 0;
  return !(save || last) || save_checkpoint(t, f);
}

/* The second step of this process is the first without the work of a start; it is the one that --profile shows. */
static StepResult profiled_step(Train *t, const RunPhase *ph, const Batch *b, StepReport *r, Fail *f) {
  if (t->options->profile && t->steps_run++ == 1) {
    t->profile = profile_open(t->options->profile, &t->replay, ph->setting, f);
    if (!t->profile) return STEP_FAILED;
  }
  StepResult done = train_step(t, ph, b, r, f);
  if (!t->profile) return done;
  bool written = profile_close(t->profile, f);
  t->profile = NULL;
  if (!written) return STEP_FAILED;
  metrics_note(&t->metrics, "the profile of step %lld is in %s", (long long)t->state.step + 1, t->options->profile);
  return done;
}

static bool run_phase(Train *t, int i, Fail *f) {
  const RunPhase *ph = &t->phases[i];
  const ProgramPhase *set = ph->setting;
  if (!t->state.phase_step && i > 0 && !ph->follows)
    t->state.data = (DataPosition){t->state.data.epoch + 1, 0};
  Loader *l = loader_open(ph->data, set->tokens_per_sample, ph->samples, t->seed,
                          t->program->data[set->data].shuffle, t->state.data, f);
  bool ok = l != NULL;
  while (ok && t->state.phase == i && t->state.step < last_step(t)) {
    double since = clock_seconds();
    StepReport r = {.grad_norm = NAN, .loss_scale = NAN, .eval_loss = NAN, .eval_metric = NAN};
    const Batch *b = train_interrupted ? NULL : loader_next(l, f);
    StepResult done = b ? profiled_step(t, ph, b, &r, f) : STEP_ABANDONED;
    if (done == STEP_DONE) ok = finish_step(t, ph, b, since, &r, f);
    if (done == STEP_FAILED || f->code) ok = false;
    if (ok && (done == STEP_ABANDONED || train_interrupted)) ok = interrupted(t, f);
    crash_point("step");
  }
  loader_close(l);
  return ok;
}

static bool run_phases(Train *t, Fail *f) {
  print_head(t);
  print_modes(t);
  if (t->state.step >= last_step(t)) {
    metrics_note(&t->metrics, "nothing is left to do: the run is at step %lld",
                 (long long)t->state.step);
    return true;
  }
  if (t->options->profile && last_step(t) - t->state.step < 2)
    return fail_set(f, EXIT_USAGE, "--profile shows the second step of a run, and this run has no two steps left");
  for (int i = (int)t->state.phase; i < t->program->nphases && t->state.step < last_step(t); i++)
    if (!run_phase(t, i, f)) return false;
  char took[32];
  format_duration(took, sizeof took, clock_seconds() - t->started);
  const TrainOptions *o = t->options;
  metrics_note(&t->metrics, "done after %lld steps in %s%s%s", (long long)t->state.step, took,
               o->dry_run > 0     ? "; nothing was written"
               : o->no_checkpoint ? "; no checkpoint was written, the metrics are in "
                                  : "; everything is in ",
               o->dry_run > 0 ? "" : o->dir);
  return true;
}

static bool run(Train *t, Fail *f) {
  const TrainOptions *o = t->options;
  bool dry = o->dry_run > 0;
  Checkpoint *from = NULL;
  if (o->no_copies && !dry)
    return fail_set(f, EXIT_USAGE, "--no-copies trains nothing, it measures: it goes with --dry-run N");
  bool ok = dry || (run_dir_open(o, &from, f) && run_dir_room(o, t->program, f));
  ok = ok && open_data(t, f) && open_device(t, f) && start_state(t, from, f);
  ok = ok && (dry || run_dir_store_program(o, t->program, f));
  ok = ok && (dry || !t->replay.api->record ||
              t->replay.api->record(t->replay.device, products_path(t), f));
  ok = ok && metrics_open(&t->metrics, dry ? NULL : o->dir, o->resume ? t->state.step : -1,
                          o->quiet, o->json, f);
  checkpoint_close(from);
  return ok && run_phases(t, f);
}

static void close_all(Train *t) {
  metrics_close(&t->metrics);
  replay_close(&t->replay);
  eval_close(t);
  for (int i = 0; t->phases && i < t->program->nphases; i++) {
    bool shared = false;
    for (int k = 0; k < i; k++) shared = shared || t->phases[k].data == t->phases[i].data;
    if (!shared) data_close(t->phases[i].data);
  }
  arena_free(t->arena);
}

int train_run(const Program *p, const TrainOptions *o) {
  Fail f = {0};
  Train t = {.program = p, .options = o, .arena = arena_new(), .started = clock_seconds()};
  t.seed = o->seed >= 0 ? (uint64_t)o->seed : p->seed;
  find_metrics(&t);
  watch_signals();
  bool ok = run(&t, &f);
  close_all(&t);
  if (ok) return EXIT_OK;
  if (f.code == EXIT_INTERRUPTED)
    fprintf(stderr, "%s\n", f.text);
  else
    fail_print(&f, stderr);
  return f.code;
}
