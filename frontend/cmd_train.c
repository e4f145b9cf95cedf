/* cmd_train.c - `mtc train F.mt|F.mtx -o DIR`: plans and compiles a model, or takes a compiled
 * program, and runs it with the loop of runtime/train.c. DIR/model.mtx is the program that ran. */
#include <stdlib.h>
#include <string.h>

#include "codegen/program.h"
#include "frontend/cli_plan.h"
#include "runtime/data.h"
#include "runtime/schedule.h"
#include "runtime/train.h"

/* The runtime knows no job.h; its numbers for the same things must agree. */
_Static_assert((int)RD_TOKENS == (int)DATA_TOKENS && (int)RD_TEXT == (int)DATA_TEXT &&
                   (int)RD_JSONL == (int)DATA_JSONL,
               "");
_Static_assert((int)RT_ERROR == (int)TOO_LONG_ERROR && (int)RT_TRUNCATE == (int)TOO_LONG_TRUNCATE &&
                   (int)RT_SPLIT == (int)TOO_LONG_SPLIT,
               "");
_Static_assert((int)RS_CONSTANT == (int)SCHED_CONSTANT && (int)RS_LINEAR == (int)SCHED_LINEAR &&
                   (int)RS_COSINE == (int)SCHED_COSINE && (int)RS_WSD == (int)SCHED_WSD &&
                   (int)RS_RSQRT == (int)SCHED_RSQRT,
               "");

/* Flags that would change a program that is compiled already. */
static const char *compile_flag(const Cli *c) {
  const CliFlags *f = &c->flag;
  return f->preset             ? "--preset"
         : f->dims.n           ? "-D"
         : f->set.n            ? "--set"
         : f->target           ? "--target"
         : f->reserve.text     ? "--reserve"
         : f->recompute        ? "--recompute"
         : f->micro_batch >= 0 ? "--micro-batch"
         : f->chunks >= 0      ? "--chunks"
         : f->mlp_chunks >= 0  ? "--mlp-chunks"
         : f->group >= 0       ? "--group"
                               : NULL;
}

static int load_program(Cli *c, Program **p) {
  const char *flag = compile_flag(c), *why;
  if (flag)
    return cli_usage(c, "%s is compiled already: %s belongs to `mtc compile`", c->job.path, flag);
  *p = mtx_read(c->arena, c->job.path, &why);
  if (!*p) return cli_fail(c, EXIT_IO, "%s", why);
  int64_t bound = cli_bytes(&c->flag.vram, 0);
  if (c->flag.vram.text && bound < 0)
    return cli_usage(c, "--vram takes bytes here, not `%s`", c->flag.vram.text);
  if (bound >= 0 && (*p)->peak_bytes > bound)
    return cli_fail(c, EXIT_INFEASIBLE, "%s needs %lld bytes (%s), more than --vram %s",
                    c->job.path, (long long)(*p)->peak_bytes,
                    format_bytes(c->arena, (*p)->peak_bytes), c->flag.vram.text);
  int64_t host = cli_bytes(&c->flag.host_ram, 0);
  if (c->flag.host_ram.text && host < 0)
    return cli_usage(c, "--host-ram takes bytes here, not `%s`", c->flag.host_ram.text);
  if (host >= 0 && (*p)->host_bytes > host)
    return cli_fail(c, EXIT_INFEASIBLE, "%s keeps %lld bytes (%s) on the host, more than --host-ram %s", c->job.path,
                    (long long)(*p)->host_bytes, format_bytes(c->arena, (*p)->host_bytes), c->flag.host_ram.text);
  return EXIT_OK;
}

static int compile_program(Cli *c, Program **p) {
  Job *job;
  FitResult r;
  int code = cli_plan(c, &job, &r);
  if (code != EXIT_OK) return code;
  const char *why = NULL;
  bool cpu = c->flag.device && !strcmp(c->flag.device, "cpu");
  *p = program_build_on(r.plan, cpu ? DEV_CPU : r.plan->target->kind, c->arena, &why);
  return *p ? EXIT_OK : cli_fail(c, EXIT_DEVICE, "%s", why);
}

int cmd_train(Cli *c) {
  const CliFlags *flag = &c->flag;
  bool compiled = str_ends(c->job.path, ".mtx");
  if (flag->resume && flag->force)
    return cli_usage(c, "--resume goes on with a run, --force starts over: choose one");
  if (flag->dry_run == 0) return cli_usage(c, "--dry-run takes a number of steps from 1 on");
  Program *p = NULL;
  int code = compiled ? load_program(c, &p) : compile_program(c, &p);
  if (code != EXIT_OK) return code;
  if (flag->device && strcmp(flag->device, p->cuda ? "cuda" : "cpu") != 0)
    return cli_fail(c, EXIT_DEVICE,
                    "the program is compiled for %s and cannot run on %s: leave out %s", p->target,
                    flag->device, compiled ? "--device or compile it again" : "--target");
  TrainOptions o = {.dir = flag->output ? flag->output : "run",
                    .resume = flag->resume,
                    .force = flag->force,
                    .quiet = flag->quiet,
                    .json = flag->json,
                    .threads = flag->threads > 0 ? (int)flag->threads : 0,
                    .poison = flag->poison,
                    .no_checkpoint = flag->no_checkpoint,
                    .no_copies = flag->no_copies,
                    .steps = flag->steps,
                    .dry_run = flag->dry_run > 0 ? flag->dry_run : 0,
                    .seed = flag->seed,
                    .profile = flag->profile};
  code = cli_finish(c, EXIT_OK); /* warnings come before the run, not after it */
  if (code == EXIT_OK) code = train_run(p, &o);
  if (code == EXIT_OK && !o.dry_run && !o.json && !o.no_checkpoint) cli_next(c, "mtc sample %s", o.dir);
  return code;
}
