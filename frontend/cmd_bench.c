/* cmd_bench.c - `mtc bench F.mt`: plans and compiles a model, times every command of its first
 * phase on the device, and with -o writes the target that the times calibrate. */
#include <math.h>
#include <string.h>

#include "codegen/program.h"
#include "frontend/cli_bench.h"
#include "frontend/cli_plan.h"
#include "runtime/doctor.h"

/* ---- what a command runs ---- */

static const char *gemm_text(const Cmd *c, Arena *a) {
  const Gemm *g = &c->gemm;
  const char *from = dtype_name(c->tensors[0].dtype), *to = dtype_name(c->tensors[2].dtype);
  const char *batch = g->batch > 1 ? arena_printf(a, "%lldx", (long long)g->batch) : "";
  return arena_printf(a, "gemm %s%lldx%lldx%lld %s%s%s%s", batch, (long long)g->m, (long long)g->n,
                      (long long)g->k, from, strcmp(from, to) ? ">" : "",
                      strcmp(from, to) ? to : "", g->accumulate ? " +=" : "");
}

static const char *attention_text(const Cmd *c, Arena *a) {
  const Tensor *q = &c->tensors[0], *k = &c->tensors[1];
  return arena_printf(a, "attention%s %lldx%lldx%lldx%lld%s %s%s",
                      c->kind == CMD_ATTENTION_BWD ? " bwd" : "", (long long)q->dim[0],
                      (long long)q->dim[2], (long long)k->dim[1], (long long)q->dim[3],
                      c->attention.causal ? " causal" : "", dtype_name(q->dtype),
                      c->attention.wgmma ? " wgmma" : "");
}

static const char *kernel_text(const Program *p, const Cmd *c, Arena *a) {
  switch (c->kind) {
    case CMD_GEMM:
      return gemm_text(c, a);
    case CMD_ATTENTION:
    case CMD_ATTENTION_BWD:
      return attention_text(c, a);
    case CMD_SCATTER:
      return "scatter";
    case CMD_FILL:
      return "fill";
    case CMD_COPY:
      return c->copy.to_host ? "copy to host" : "copy to device";
    case CMD_WAIT:
      return "wait";
    case CMD_KERNEL:
      break;
  }
  return p->kernel_names[c->nlaunches ? c->launches[0].kernel : c->kernel];
}

/* ---- commands ---- */

static void add_commands(BenchReport *b, const BenchProgram *t, Arena *a) {
  const PlanProgram *x = &b->plan->programs.at[t->program];
  const ProgramCode *code = &b->program->programs[t->program];
  int step = 0;
  for (int i = 0; i < code->ncmds; i++) {
    if (code->cmds[i].kind == CMD_COPY || code->cmds[i].kind == CMD_WAIT) continue; /* beside the steps */
    ensure(step < x->nsteps, "a program of more commands than its %d steps", x->nsteps);
    int cluster = x->steps[step++].cluster;
    b->commands[b->ncommands++] =
        (BenchCommand){.program = x->name,
                       .name = code->cmds[i].name,
                       .kernel = kernel_text(b->program, &code->cmds[i], a),
                       .cost = cost_kernel(&x->clusters, cluster, &b->plan->job->precision),
                       .time = t->cmd[i],
                       .predicted_ns = x->clusters.at[cluster].ns};
  }
}

/* The row that a target is made of, with what is known of this machine's device. */
static Target base_of(const Target *t) {
  Target base = *target_by_name(t->name);
  base.usable_bytes = t->usable_bytes;
  return base;
}

/* ---- the command ---- */

static int write_target(Cli *c, const BenchReport *b, const TargetMeasure *m, int n) {
  fflush(stdout); /* the report comes before what is said of the file */
  if (!target_write(&b->target, b->plan->target->title, m, n, c->flag.output))
    return cli_fail(c, EXIT_IO, "cannot write %s", c->flag.output);
  if (!c->flag.quiet) fprintf(stderr, "wrote %s\n", c->flag.output);
  cli_next(c, "mtc plan %s --target %s", c->job.path, c->flag.output);
  return EXIT_OK;
}

/* Copies between host and GPU; what cannot be measured stays as the table says. */
static void measure_host_copies(Target *t) {
  DoctorGpu g = {0};
  Fail f = {0};
  if (t->kind != DEV_CUDA || !doctor_gpu_measure(&g, NULL, NULL, &f)) return;
  t->h2d_gbs = 1e-9 * g.h2d;
  t->d2h_gbs = 1e-9 * g.d2h;
  t->both_ways = fmin(1, fmin(g.both[0] / g.h2d, g.both[1] / g.d2h));
}

/* Kernels and graphs of models with more commands than this one; the rows of the table have as
 * much. */
enum { LARGER_MODELS = 16 << 20 };

static int report(Cli *c, const FitResult *fit, const Program *p, const BenchResult *r) {
  Arena *a = c->arena;
  BenchReport b = {.plan = fit->plan, .phase = &fit->plan->phases.at[0], .program = p, .result = r};
  bool update = r->update.runs > 0;
  int most =
          p->programs[r->micro.program].ncmds + (update ? p->programs[r->update.program].ncmds : 0),
      measured;
  b.commands = arena_array(a, BenchCommand, most + 1);
  add_commands(&b, &r->micro, a);
  if (update) add_commands(&b, &r->update, a);
  CostSample *samples = arena_array(a, CostSample, most + 1);
  for (int i = 0; i < b.ncommands; i++)
    samples[i] = (CostSample){b.commands[i].cost, b.commands[i].time.median};
  TargetMeasure *m = arena_array(a, TargetMeasure, KC_COUNT);
  Target base = base_of(fit->plan->target);
  b.target = calibrate(&base, samples, b.ncommands, 1e-9 * r->copy_rate, m, &measured, a);
  if (r->overhead_bytes > 0)
    b.target.overhead_bytes = round_up(r->overhead_bytes + LARGER_MODELS, 1 << 20);
  if (c->flag.output) measure_host_copies(&b.target);
  bench_groups(&b, a);
  if (c->flag.json)
    bench_json(&b, stdout);
  else
    bench_text(&b, stdout, c->flag.verbose > 0, a);
  return c->flag.output ? write_target(c, &b, m, measured) : EXIT_OK;
}

int cmd_bench(Cli *c) {
  enum { SECONDS = 20 };
  Job *job;
  FitResult fit;
  if (c->flag.runs == 0) return cli_usage(c, "--runs takes a whole number from 1 on");
  int code = cli_plan(c, &job, &fit);
  if (code != EXIT_OK) return code;
  const char *why = NULL;
  DeviceKind kind = c->flag.device ? (!strcmp(c->flag.device, "cpu") ? DEV_CPU : DEV_CUDA)
                                   : fit.plan->target->kind;
  if (kind != fit.plan->target->kind)
    return cli_usage(c, "times of --device %s say nothing about the target %s", c->flag.device,
                     fit.plan->target->name);
  if (fit.plan->phases.n == 0)
    return cli_fail(c, EXIT_SOURCE, "%s has nothing to train", c->job.path);
  Program *p = program_build(fit.plan, c->arena, &why);
  if (!p) return cli_fail(c, EXIT_DEVICE, "%s", why);
  BenchOptions o = {.runs = (int)(c->flag.runs < 10000 ? c->flag.runs : 10000),
                    .seconds = SECONDS,
                    .tune = true,
                    .threads = c->flag.threads > 0 ? (int)c->flag.threads : 0};
  BenchResult r;
  Fail f = {0};
  code = cli_finish(c, EXIT_OK);
  if (code != EXIT_OK) return code;
  if (!bench_run(p, &o, c->arena, &r, &f)) return cli_fail(c, f.code, "%s", f.text);
  return report(c, &fit, p, &r);
}
