/* cli_explore.h - between the files of `mtc explore`: settings to try (cli_vary.c) and the largest
 * value that fits (cli_largest.c). */
#ifndef MTC_CLI_EXPLORE_H
#define MTC_CLI_EXPLORE_H
#include "frontend/cli_plan.h"

/* One way to elaborate and to bound the job. */
typedef struct {
  const char *label; /* "T=512, recompute=none"; "" when nothing is varied */
  const char *flags; /* " -D T=512 --recompute none": what `mtc plan` would be given */
  JobArgs job;
  int recompute; /* of PlanArgs, as are: */
  int64_t micro_batch;
  int chunks, group;
  int64_t host_bytes;
} Setting;
typedef VEC(Setting) SettingList;

/* The command line's own setting. */
Setting cli_setting(const Cli *c, const PlanArgs *args);
/* s with one name given a value: B, chunks, recompute and host-ram bound the plan, `train.steps` is a
 * setting, `T` a dimension. */
bool cli_setting_with(Cli *c, const Job *job, Setting *s, const char *name, const char *value);
/* All combinations of --vary's values; false after an error was printed. */
bool cli_settings(Cli *c, const Job *job, const PlanArgs *args, SettingList *out);
PlanArgs cli_setting_args(const Setting *s, const PlanArgs *args);

/* `--max NAME`: the largest value with a plan in the budget, found from the floors of a few. An
 * exit code. */
int cli_largest(Cli *c, const Job *job, const PlanArgs *args);
/* "models/gpt2.mt --preset xl": the arguments of this command that `mtc plan` takes as well,
 * without --vram. */
const char *cli_plan_command(const Cli *c);

#endif
