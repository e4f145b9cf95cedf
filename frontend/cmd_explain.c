/* cmd_explain.c - `mtc explain E0203`: what a diagnostic means and what to do; without a code, all
 * of them. */
#include "frontend/cli.h"

int cmd_explain(Cli *c) {
  if (c->args.n == 0) {
    cli_explain_index(stdout);
    return EXIT_OK;
  }
  int id = err_by_code(c->args.at[0]);
  if (id < 0)
    return cli_usage(c, "there is no diagnostic `%s`; `mtc explain` lists all", c->args.at[0]);
  cli_explain((ErrId)id, stdout);
  return EXIT_OK;
}
