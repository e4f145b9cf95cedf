/* cli_help.c - `mtc`, `mtc help` and `mtc help COMMAND` for the terminal, from the tables of
 * flags.def. */
#include <stdlib.h>
#include <string.h>
#include "frontend/cli.h"

enum { HELP_COLUMNS = 80, OPTION_COLUMN = 26 };

void cli_wrap(FILE *to, const char *text, int indent, int at) {
  while (*text) {
    size_t n = strcspn(text, " ");
    if (at > indent && at + 1 + (int)n > HELP_COLUMNS) {
      fprintf(to, "\n%*s", indent, "");
      at = indent;
    } else if (at > indent) {
      fputc(' ', to);
      at++;
    }
    fwrite(text, 1, n, to);
    at += (int)n;
    text += n;
    while (*text == ' ') text++;
  }
  fputc('\n', to);
}

void cli_help_short(FILE *to) {
  fputs(
      "mtc compiles a model and a memory budget into a training program that fits it.\n\n"
      "  mtc check models/gpt2.mt                                  check the shapes\n"
      "  mtc plan models/gpt2.mt --vram 24G --target rtx4090       see every byte of it\n"
      "  mtc train models/char.mt --device cpu --vram 48M -o run   train\n\n"
      "`mtc help` lists the commands, `mtc help plan` explains one of them, and\n"
      "`mtc help schedule` a setting of the language.\n",
      to);
}

static void option(const Flag *f, FILE *to) {
  int at = f->letter ? fprintf(to, "  -%c, --%s", f->letter, f->name)
                     : fprintf(to, "      --%s", f->name);
  if (f->arg) at += fprintf(to, " %s", f->arg);
  if (at > OPTION_COLUMN - 2) {
    fputc('\n', to);
    at = 0;
  }
  fprintf(to, "%*s", OPTION_COLUMN - at, "");
  const char *doc = f->doc;
  char text[400];
  if (f->preset) {
    snprintf(text, sizeof text, "%s (%s)", f->doc, f->preset);
    doc = text;
  }
  cli_wrap(to, doc, OPTION_COLUMN, OPTION_COLUMN);
}

void cli_help_index(FILE *to) {
  fputs("usage: mtc COMMAND [ARGUMENTS] [OPTIONS]\n\ncommands\n", to);
  for (int i = 0; i < cli_command_count; i++) {
    int at = fprintf(to, "  %-9s ", cli_commands[i].name);
    cli_wrap(to, cli_commands[i].doc, 12, at);
  }
  fputs(
      "\ntopics\n"
      "  mtc help COMMAND     a command and its options\n"
      "  mtc help SECTION     a section or setting of .mt: train, precision, schedule, ..\n"
      "  mtc help op [NAME]   the operations\n"
      "  mtc help CODE        a diagnostic, such as E0203\n\n"
      "options of every command\n",
      to);
  for (int i = 0; i < cli_flag_count; i++)
    if (!~cli_flags[i].commands) option(&cli_flags[i], to);
}

void cli_help_command(const Command *c, FILE *to) {
  fprintf(to, "mtc %s - %s\n\nusage: mtc %s %s%s[OPTIONS]\n\n", c->name, c->doc, c->name, c->args,
          c->args[0] ? " " : "");
  cli_wrap(to, c->details, 0, 0);
  fputs("\noptions\n", to);
  for (int i = 0; i < cli_flag_count; i++)
    if (cli_applies(&cli_flags[i], c) && ~cli_flags[i].commands) option(&cli_flags[i], to);
  fputs("\noptions of every command\n", to);
  for (int i = 0; i < cli_flag_count; i++)
    if (!~cli_flags[i].commands) option(&cli_flags[i], to);
  fputs("\nexamples\n", to);
  for (const char *p = c->examples; *p;) {
    size_t n = strcspn(p, "\n");
    fprintf(to, "  mtc %.*s\n", (int)n, p);
    p += n + (p[n] == '\n');
  }
}
