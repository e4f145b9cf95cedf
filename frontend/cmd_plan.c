/* cmd_plan.c - `mtc plan F.mt`: the plan and its report; --why, --emit, --json; --problem goes to cmd_problem.c. */
#include <errno.h>
#include <langinfo.h>
#include <locale.h>
#include <string.h>
#include <unistd.h>

#include "frontend/cli_plan.h"
#include "passes/html.h"
#include "passes/trace.h"

int cmd_problem(Cli *c);

static bool report_unicode(void) {
  setlocale(LC_CTYPE, "");
  bool utf8 = !strcmp(nl_langinfo(CODESET), "UTF-8");
  setlocale(LC_CTYPE, "C");
  return utf8 && isatty(STDOUT_FILENO);
}

/* ---- --emit ---- */

static FILE *open_beside(Cli *c, const char *suffix, const char **path) {
  const char *base = c->flag.output;
  if (!base) {
    const char *slash = strrchr(c->job.path, '/');
    const char *name = slash ? slash + 1 : c->job.path;
    base = arena_printf(c->arena, "%.*s", (int)(str_ends(name, ".mt") ? strlen(name) - 3 : strlen(name)), name);
  }
  *path = arena_printf(c->arena, "%s%s", base, suffix);
  return fopen(*path, "w");
}

static int emit_kind(Cli *c, const FitResult *r, const char *kind) {
  const char *path;
  bool ir = !strcmp(kind, "ir"), csv = !strcmp(kind, "minimalloc");
  if (!ir && !csv && strcmp(kind, "plan") != 0)
    return cli_usage(c, "--emit of `plan` takes ir, plan and minimalloc, not `%s`", kind);
  int n = ir || csv ? r->plan->programs.n : 1, code = EXIT_OK;
  for (int i = 0; i < n && code == EXIT_OK; i++) {
    const PlanProgram *p = &r->plan->programs.at[i];
    const char *phase = r->plan->phases.n > 1 ? arena_printf(c->arena, ".%d", i) : "";
    const char *suffix = ir || csv ? arena_printf(c->arena, ".%s%s.%s", p->name, phase, ir ? "mti" : "csv") : ".plan";
    FILE *f = open_beside(c, suffix, &path);
    if (!f) return cli_fail(c, EXIT_IO, "cannot write %s: %s", path, strerror(errno));
    if (ir) {
      Str text = {.arena = c->arena};
      graph_print(p->clusters.g, &text);
      fwrite(text.text, 1, text.len, f);
    } else if (csv) {
      plan_print_csv(r->plan, i, f);
    } else {
      plan_print(r->plan, f);
    }
    code = cli_close(c, f, path);
  }
  return code;
}

static int emit(Cli *c, const FitResult *r) {
  char *list = arena_printf(c->arena, "%s", c->flag.emit);
  int code = EXIT_OK;
  for (char *kind; code == EXIT_OK && (kind = strsep(&list, ","));)
    if (*kind) code = emit_kind(c, r, kind);
  return code;
}

/* ---- --html, --trace ---- */

static int pictures(Cli *c, const FitResult *r) {
  const char *path[2] = {c->flag.html, c->flag.trace};
  int code = EXIT_OK;
  for (int i = 0; i < COUNT_OF(path) && code == EXIT_OK; i++) {
    if (!path[i]) continue;
    FILE *f = fopen(path[i], "w");
    if (!f) return cli_fail(c, EXIT_IO, "cannot write %s: %s", path[i], strerror(errno));
    if (i == 0)
      html_page(r, NULL, f);
    else
      plan_trace(r->plan, f);
    code = cli_close(c, f, path[i]);
  }
  return code;
}

/* ---- the command ---- */

int cmd_plan(Cli *c) {
  if (c->flag.problem) return cmd_problem(c);
  if (c->args.n == 0) return cli_usage(c, "`mtc plan` needs FILE.mt, or --problem FILE");
  Job *job;
  FitResult r;
  int code = cli_plan(c, &job, &r);
  if (code != EXIT_OK && !(code == EXIT_INFEASIBLE && c->flag.json)) return code;
  if (c->flag.json) {
    plan_report_json(&r, stdout);
  } else if (c->flag.why) {
    if (!plan_why(&r, c->flag.why, stdout))
      return cli_usage(c, "nothing in the plan is named `%s`: give a layer, a parameter or a buffer, such as h.0", c->flag.why);
  } else if (c->flag.modules) {
    plan_modules(&r, stdout);
  } else {
    plan_report(&r, stdout, cli_columns(), report_unicode());
  }
  if (code == EXIT_OK && c->flag.emit) code = emit(c, &r);
  if (code == EXIT_OK) code = pictures(c, &r);
  if (code == EXIT_OK && !c->flag.json)
    cli_next(c, "mtc train %s%s%s%s%s", c->job.path, c->job.preset ? " --preset " : "", c->job.preset ? c->job.preset : "",
             c->flag.vram.text ? " --vram " : "", c->flag.vram.text ? c->flag.vram.text : "");
  return code;
}
