/* main.c - the compiler's program: parse the command line, run the command, report what it
 * collected. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include "frontend/cli.h"
#include "passes/pass_table.h"

/* A full disk or a closed pipe under `mtc ... > file` must not look like success. */
static int close_output(Cli *c, int code) {
  if (fflush(stdout) == 0 && !ferror(stdout)) return code;
  if (errno == EPIPE) return code ? code : EXIT_IO;
  return cli_fail(c, EXIT_IO, "cannot write to standard output: %s", strerror(errno));
}

static int run(Cli *c, int argc, char **argv) {
  int code = cli_parse(c, argc, argv);
  if (code != EXIT_OK) return code;
  if (c->flag.version) {
    puts("mtc " MTC_VERSION);
  } else if (c->flag.help) {
    if (c->command)
      cli_help_command(c->command, stdout);
    else
      cli_help_index(stdout);
  } else if (c->command) {
    code = cli_finish(c, c->command->run(c));
  } else {
    cli_help_short(stderr);
    return EXIT_USAGE;
  }
  return close_output(c, code);
}

/* Optimised builds verify after each pass only on request: it is a tenth of a compilation. */
static bool verifies(void) {
#if defined __OPTIMIZE__ && !defined __SANITIZE_ADDRESS__
  return getenv("MTC_VERIFY") != NULL;
#else
  return true;
#endif
}

int main(int argc, char **argv) {
  signal(SIGPIPE, SIG_IGN);
  bool careful = verifies();
  pass_verify(careful);
  Cli c = {.arena = arena_new()};
  c.diags = diags_new(c.arena);
  int code = run(&c, argc, argv);
  if (careful) arena_free(c.arena); /* else it ends with the process, sooner */
  return code;
}
