/* cli_weights.h - the weights map of a .mt file, for import and export. */
#ifndef MTC_CLI_WEIGHTS_H
#define MTC_CLI_WEIGHTS_H
#include "cli.h"
#include "../runtime/fail.h"
#include "../runtime/weights.h"

/* Elaborates the model given by --map (with -D, --set and --preset of the command line). NULL with
 * diagnostics. */
Job *cli_map_job(Cli *c, const char *path);
/* Its slots: by the `weights` section, else every parameter and state by its path. */
WeightSlots cli_job_slots(Cli *c, const Job *job);
/* Prints a failure of the runtime and returns its exit code. */
int cli_failed(Cli *c, const Fail *f);

#endif
