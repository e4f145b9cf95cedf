/* cli_diff.h - `mtc inspect --diff A B`: two plans side by side. */
#ifndef MTC_CLI_DIFF_H
#define MTC_CLI_DIFF_H
#include "frontend/cli.h"
/* The two arguments are files of `mtc plan --json` or .mtx. Returns an exit code. */
int cli_diff(Cli *c);
#endif
