/* cli_plan.h - what `plan`, `compile` and `train` share: the flags that bound a plan, and the plan itself. */
#ifndef MTC_CLI_PLAN_H
#define MTC_CLI_PLAN_H
#include "frontend/cli.h"
#include "passes/plan.h"

/* --target, --vram, --reserve, --recompute, --micro-batch, --chunks and --device for this job. EXIT_OK, or an exit code
 * with the error printed. Without --target and --device the local GPU is the target, else h100, which a note says. */
int cli_plan_args(Cli *c, const Job *job, PlanArgs *args);

/* Elaborates c->job and says whether this version can plan it. EXIT_OK, or EXIT_SOURCE with errors in c->diags. */
int cli_plannable(Cli *c, Job **job);

/* Elaborates c->job, plans it and, when nothing fits, plans the remedies. EXIT_OK with r->plan; EXIT_INFEASIBLE with the
 * floor, reported unless --json asks for it; EXIT_SOURCE, EXIT_USAGE with the error reported. */
int cli_plan(Cli *c, Job **job, FitResult *r);

#endif
