/* bench.c - times the commands of a phase's programs (see bench.h).
 *
 * Commands are timed where they stand in the program, on the data and with the caches that training
 * has, not alone in a loop. The first micro-batch of a step, another one and the update take turns, so
 * that accumulators stay those of a step. */
#include "bench.h"

#include <stdlib.h>
#include <string.h>

#include "convert.h"
#include "feed.h"
#include "metrics.h"
#include "rng.h"
#include "start.h"
#include "variables.h"

enum { LEAST_RUNS = 3 };
static const double most_event_cost = 5e-6;

/* ---- inputs ---- */

static void fill_element(const Tensor *t, char *to, double u, int64_t vocab) {
  if (t->dtype == DT_BOOL) {
    *to = 1;
  } else if (dtype_is_float(t->dtype)) {
    float x = (float)(2 * u - 1);
    convert_elements(t->dtype, to, DT_F32, &x, 1);
  } else {
    int32_t x = (int32_t)(u * (double)(vocab > 0 ? vocab : 1));
    memcpy(to, &x, sizeof x);
  }
}

static bool fill_inputs(Replay *r, int program, Fail *f) {
  const ProgramCode *code = &r->program->programs[program];
  bool ok = true;
  for (int i = 0; ok && i < code->ninputs; i++) {
    const Tensor *t = &code->inputs[i].at;
    int64_t n = tensor_count(t), size = dtype_bytes(t->dtype);
    uint64_t stream = rng_stream(code->inputs[i].name);
    char *packed = malloc((size_t)(n * size) + 1);
    if (!packed)
      return fail_set(f, EXIT_DEVICE, "no host memory for the input `%s`", code->inputs[i].name);
    for (int64_t k = 0; k < n; k++)
      fill_element(t, packed + k * size, rng_uniform(r->program->seed, stream, (uint64_t)k),
                   r->program->vocab);
    ok = replay_write(r, t, packed, f);
    free(packed);
  }
  return ok;
}

static bool write_scalars(Replay *r, const ProgramPhase *ph, Fail *f) {
  Scalars s = scalars_of(r->program);
  int64_t tokens = ph->micro_batch * (ph->tokens_per_sample > 0 ? ph->tokens_per_sample : 1);
  return variables_fill(r, PV_METRIC, 0, f) && scalar_write_seed(r, &s, r->program->seed, f) &&
         scalar_write_i32(r, &s, SC_STEP, 0, f) && scalar_write_i32(r, &s, SC_SAMPLE0, 0, f) &&
         scalar_write_f32(r, &s, SC_INV_COUNT, 1.0 / (double)tokens, f) &&
         scalar_write_f32(r, &s, SC_INV_ACCUM, 1, f) && scalar_write_f32(r, &s, SC_LR, 1e-6, f);
}

/* ---- times ---- */

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Sorts t. */
static BenchTime summary(double *t, int n) {
  qsort(t, (size_t)n, sizeof *t, by_value);
  return (BenchTime){t[0], n % 2 ? t[n / 2] : (t[n / 2 - 1] + t[n / 2]) / 2, t[n - 1]};
}

typedef struct {
  BenchProgram *to;
  int ncmds;
  double *start; /* of one run */
  double *cmd;   /* [command][run] */
  double *timed, *whole;
} Recording;

static Recording recording(Arena *a, const Program *p, int program, int runs, BenchProgram *to) {
  int n = p->programs[program].ncmds;
  *to = (BenchProgram){.program = program, .cmd = arena_array(a, BenchTime, n + 1)};
  return (Recording){.to = to,
                     .ncmds = n,
                     .start = arena_array(a, double, n + 1),
                     .cmd = arena_array(a, double, (int64_t)n *runs + 1),
                     .timed = arena_array(a, double, runs),
                     .whole = arena_array(a, double, runs)};
}

static bool run_whole(Replay *r, Recording *x, int run, Fail *f) {
  if (!fill_inputs(r, x->to->program, f) || !r->api->wait(r->device, f)) return false;
  double begin = clock_seconds();
  bool ok = replay_run(r, x->to->program, f) && r->api->wait(r->device, f);
  if (run >= 0) x->whole[run] = clock_seconds() - begin;
  return ok;
}

static bool run_timed(Replay *r, Recording *x, int run, int most, Fail *f) {
  if (!fill_inputs(r, x->to->program, f) ||
      !r->api->time(r->device, x->to->program, x->start, NULL, f))
    return false;
  if (run < 0) return true;
  for (int i = 0; i < x->ncmds; i++)
    x->cmd[(int64_t)i * most + run] = x->start[i + 1] - x->start[i];
  x->timed[run] = x->start[x->ncmds];
  return true;
}

static void summarise(Recording *x, int runs, int most, bool events) {
  BenchProgram *to = x->to;
  to->runs = runs;
  to->whole = summary(x->whole, runs);
  double timed = summary(x->timed, runs).median, cost = 0;
  if (events && x->ncmds) cost = (timed - to->whole.median) / x->ncmds;
  to->event_cost = cost < 0 ? 0 : cost > most_event_cost ? most_event_cost : cost;
  for (int i = 0; i < x->ncmds; i++) {
    BenchTime t = summary(x->cmd + (int64_t)i * most, runs);
    double most_off = 0.75 * t.least, off = to->event_cost < most_off ? to->event_cost : most_off;
    to->cmd[i] = (BenchTime){t.least - off, t.median - off, t.most - off};
  }
}

static bool time_programs(Replay *r, const BenchOptions *o, Arena *a, BenchResult *to, Fail *f) {
  const ProgramPhase *ph = &r->program->phases[o->phase];
  int most = o->runs < LEAST_RUNS ? LEAST_RUNS : o->runs, run = -1;
  const int program[] = {ph->first, ph->micro, ph->update};
  BenchProgram *of[] = {&to->first, &to->micro, &to->update};
  Recording x[COUNT_OF(program)];
  int n = 0;
  for (int i = 0; i < COUNT_OF(program); i++)
    if (program[i] >= 0) x[n++] = recording(a, r->program, program[i], most, of[i]);
  double begin = clock_seconds();
  for (; run < most && (run < LEAST_RUNS || clock_seconds() - begin < o->seconds); run++) {
    for (int i = 0; i < n; i++)
      if (!run_timed(r, &x[i], run, most, f)) return false;
    for (int i = 0; i < n; i++)
      if (!run_whole(r, &x[i], run, f)) return false;
  }
  for (int i = 0; i < n; i++) summarise(&x[i], run, most, r->program->cuda);
  return true;
}

/* What the device takes besides the arena, in a process that has not used it before, and then the
 * algorithms of the products: timing candidates loads kernels that training has no use for. */
static bool tune(const Program *p, const DeviceOptions *o, Arena *a, BenchResult *to, Fail *f) {
  const DeviceApi *api = device_for(p, f);
  if (!api || !api->tune) return api != NULL;
  Device *d = api->open(p, o, f);
  if (!d) return false;
  to->overhead_bytes = api->measured(d) - p->arena_bytes;
  api->close(d);
  return api->tune(p, o, a, &to->tune, f);
}

bool bench_run(const Program *p, const BenchOptions *o, Arena *a, BenchResult *to, Fail *f) {
  *to = (BenchResult){0};
  DeviceOptions options = {.threads = o->threads};
  Replay r;
  if (o->tune && !tune(p, &options, a, to, f)) return false;
  if (!replay_open(&r, p, &options, f)) return false;
  if (!to->overhead_bytes) to->overhead_bytes = r.api->measured(r.device) - p->arena_bytes;
  if (!p->cuda || to->overhead_bytes < 0) to->overhead_bytes = 0;
  bool ok = start_values(&r, p->seed, NULL, f) && write_scalars(&r, &p->phases[o->phase], f) &&
            time_programs(&r, o, a, to, f) && r.api->copy_rate(r.device, &to->copy_rate, f);
  replay_close(&r);
  return ok;
}
