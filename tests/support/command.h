/* command.h - a shell command's standard output and exit code, for tests of programs. */
#ifndef MTC_TEST_COMMAND_H
#define MTC_TEST_COMMAND_H
#include <stdio.h>
#include <sys/wait.h>
#include "ir/base.h"

static inline const char *command_output(Arena *a, const char *command, int *code) {
  FILE *f = popen(command, "r");
  Str s = {.arena = a};
  char block[4096];
  if (!f) {
    *code = -1;
    return "";
  }
  for (size_t n; (n = fread(block, 1, sizeof block, f)) > 0;) str_add_n(&s, block, n);
  int status = pclose(f);
  *code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return s.text ? s.text : "";
}
#endif
