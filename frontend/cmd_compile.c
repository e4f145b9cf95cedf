/* cmd_compile.c - `mtc compile F.mt -o F.mtx`: plans, emits and compiles the kernels, writes one
 * file. */
#include <errno.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "codegen/program.h"
#include "frontend/cli_plan.h"

static double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* models/gpt2.mt -> gpt2.mtx, in the current folder. */
static const char *default_output(Cli *c) {
  const char *slash = strrchr(c->job.path, '/'), *name = slash ? slash + 1 : c->job.path;
  size_t n = strlen(name) - (str_ends(name, ".mt") ? 3 : 0);
  return arena_printf(c->arena, "%.*s.mtx", (int)n, name);
}

/* Kernels beside the output: FILE.c, or FILE.cu for CUDA. */
static int emit(Cli *c, const Program *p, const char *output) {
  char *list = arena_printf(c->arena, "%s", c->flag.emit);
  const char *kind = p->cuda ? "cu" : "c";
  for (char *want; (want = strsep(&list, ","));) {
    if (!*want) continue;
    if (strcmp(want, kind) != 0)
      return cli_usage(
          c, "--emit of `compile` for this target takes %s, not `%s`; `mtc plan` emits ir and plan",
          kind, want);
    if (!p->kernel_source) continue;
    size_t n = strlen(output) - (str_ends(output, ".mtx") ? 4 : 0);
    const char *path = arena_printf(c->arena, "%.*s.%s", (int)n, output, kind);
    if (!write_file_atomic(path, p->kernel_source, strlen(p->kernel_source)))
      return cli_fail(c, EXIT_IO, "cannot write %s: %s", path, strerror(errno));
    if (!c->flag.quiet) fprintf(stderr, "wrote %s\n", path);
  }
  return EXIT_OK;
}

static int commands(const Program *p) {
  int n = 0;
  for (int i = 0; i < p->nprograms; i++) n += p->programs[i].ncmds;
  return n;
}

int cmd_compile(Cli *c) {
  const char *output = c->flag.output ? c->flag.output : default_output(c), *why = NULL;
  if (!c->flag.force && path_exists(output) && !str_ends(output, ".mtx"))
    return cli_usage(c, "%s exists and is no .mtx file; --force overwrites it", output);
  double start = seconds();
  Job *job;
  FitResult r;
  int code = cli_plan(c, &job, &r);
  if (code != EXIT_OK) return code;
  double planned = seconds();
  Program *p = program_build(r.plan, c->arena, &why);
  if (!p) return cli_fail(c, EXIT_DEVICE, "%s", why);
  double compiled = seconds();
  if (c->flag.emit) code = emit(c, p, output);
  if (code != EXIT_OK) return code;
  if (!mtx_write(p, output, &why)) return cli_fail(c, EXIT_IO, "%s", why);
  if (c->flag.time)
    fprintf(stderr, "plan %.2f s, kernels %.2f s, file %.2f s\n", planned - start,
            compiled - planned, seconds() - compiled);
  if (!c->flag.quiet)
    printf("%s: plan %08x, %s, %d commands, %d kernels, needs %s\n", output,
           (unsigned)(p->plan_id >> 32), p->target, commands(p), p->nkernels,
           format_bytes(c->arena, p->peak_bytes));
  cli_next(c, "mtc train %s", output);
  return cli_finish(c, EXIT_OK);
}
