/* cli_docs.c - the command line as documents and scripts: the man page, docs/cli.md and completion
 * for three shells, all from the tables of flags.def, so that none can lack a flag. */
#include <stdlib.h>
#include <string.h>
#include "frontend/cli.h"

typedef struct {
  const char *name, *doc;
} Row;

static const Row exits[] = {
#define EXIT_CODE(code, doc) {#code, doc},
#include "frontend/flags.def"
};
static const Row variables[] = {
#define VARIABLE(name, doc) {name, doc},
#include "frontend/flags.def"
};

static bool everywhere(const Flag *f) {
  return f->commands == UINT32_MAX;
}

/* ---- man page ---- */

/* Roff text: backslashes and leading dots are escaped, "-" is a minus that can be searched for and
 * copied. */
static void roff(FILE *to, const char *text) {
  if (*text == '.' || *text == '\'') fputs("\\&", to);
  for (; *text; text++) {
    if (*text == '\\')
      fputs("\\e", to);
    else if (*text == '-')
      fputs("\\-", to);
    else
      fputc(*text, to);
  }
}

static void man_option(const Flag *f, FILE *to) {
  fputs(".TP\n", to);
  if (f->letter) fprintf(to, "\\fB\\-%c\\fR, ", f->letter);
  fputs("\\fB\\-\\-", to);
  roff(to, f->name);
  fputs("\\fR", to);
  if (f->arg) {
    fputs(" \\fI", to);
    roff(to, f->arg);
    fputs("\\fR", to);
  }
  fputc('\n', to);
  roff(to, f->doc);
  if (f->preset) fprintf(to, " (%s)", f->preset);
  fputc('\n', to);
}

static void man_command(const Command *c, FILE *to) {
  fprintf(to, ".SS mtc %s ", c->name);
  roff(to, c->args);
  fputc('\n', to);
  roff(to, c->details);
  fputc('\n', to);
  for (int i = 0; i < cli_flag_count; i++)
    if (cli_applies(&cli_flags[i], c) && !everywhere(&cli_flags[i])) man_option(&cli_flags[i], to);
  fputs(".PP\nExamples:\n.PP\n.nf\n", to);
  for (const char *p = c->examples; *p;) {
    int n = (int)strcspn(p, "\n");
    char line[200];
    snprintf(line, sizeof line, "    mtc %.*s", n, p);
    roff(to, line);
    fputc('\n', to);
    p += n + (p[n] == '\n');
  }
  fputs(".fi\n", to);
}

static void man_rows(const Row *rows, int n, FILE *to) {
  for (int i = 0; i < n; i++) {
    fprintf(to, ".TP\n\\fB%s\\fR\n", rows[i].name);
    roff(to, rows[i].doc);
    fputc('\n', to);
  }
}

void cli_doc_man(FILE *to) {
  fputs(
      ".\\\" Made by `mtc help --man`.\n"
      ".TH MTC 1 \"\" \"mtc " MTC_VERSION
      "\" \"User Commands\"\n"
      ".SH NAME\nmtc \\- compile a model and a memory budget into a training program that fits it\n"
      ".SH SYNOPSIS\n.B mtc\n.I COMMAND\n[\\fIARGUMENTS\\fR] [\\fIOPTIONS\\fR]\n"
      ".SH DESCRIPTION\n"
      "mtc reads a model in its language and a budget in bytes, and decides every byte of device "
      "memory and every "
      "kernel launch before the first step. The program that results trains inside the budget, or "
      "mtc says why "
      "it cannot and what would.\n"
      ".PP\nSizes: K, M, G, T and KiB.. are powers of 1024, KB, MB, GB, TB of 1000; decimals are "
      "allowed; a bare number "
      "is bytes; % is a share of the card.\n"
      ".SH COMMANDS\n",
      to);
  for (int i = 0; i < cli_command_count; i++) man_command(&cli_commands[i], to);
  fputs(".SH OPTIONS OF EVERY COMMAND\n", to);
  for (int i = 0; i < cli_flag_count; i++)
    if (everywhere(&cli_flags[i])) man_option(&cli_flags[i], to);
  fputs(".SH EXIT STATUS\n", to);
  man_rows(exits, COUNT_OF(exits), to);
  fputs(".SH ENVIRONMENT\n", to);
  man_rows(variables, COUNT_OF(variables), to);
  fputs(".SH SEE ALSO\n.B mtc help\n", to);
}

/* ---- docs/cli.md ---- */

/* A table cell: "|" would end it. */
static void cell(FILE *to, const char *text) {
  for (; *text; text++) {
    if (*text == '|') fputc('\\', to);
    fputc(*text, to);
  }
}

static void md_option(const Flag *f, FILE *to) {
  fputs("| `", to);
  if (f->letter) fprintf(to, "-%c`, `", f->letter);
  fprintf(to, "--%s", f->name);
  if (f->arg) {
    fputc(' ', to);
    cell(to, f->arg);
  }
  fputs("` | ", to);
  cell(to, f->doc);
  if (f->preset) fprintf(to, " (`%s`)", f->preset);
  fputs(" |\n", to);
}

static void md_command(const Command *c, FILE *to) {
  fprintf(to, "\n## mtc %s\n\n`mtc %s %s` - %s.\n\n%s\n\n", c->name, c->name, c->args, c->doc,
          c->details);
  bool any = false;
  for (int i = 0; i < cli_flag_count; i++) {
    if (!cli_applies(&cli_flags[i], c) || everywhere(&cli_flags[i])) continue;
    if (!any) fputs("| option | |\n|---|---|\n", to);
    any = true;
    md_option(&cli_flags[i], to);
  }
  fputs(any ? "\n```\n" : "```\n", to);
  for (const char *p = c->examples; *p;) {
    int n = (int)strcspn(p, "\n");
    fprintf(to, "mtc %.*s\n", n, p);
    p += n + (p[n] == '\n');
  }
  fputs("```\n", to);
}

void cli_doc_markdown(FILE *to) {
  fputs(
      "# The command line\n\nMade by `mtc help --markdown` from `frontend/flags.def`; a test "
      "compares.\n\n"
      "Standard output carries the result; notes, progress and errors go to standard error. "
      "`--json` prints one "
      "object. Sizes: `K M G T` and `KiB..` are powers of 1024, `KB MB GB TB` of 1000, decimals "
      "are allowed, a "
      "bare number is bytes, `%` is a share of the card.\n\n| command | does |\n|---|---|\n",
      to);
  for (int i = 0; i < cli_command_count; i++)
    fprintf(to, "| [`mtc %s`](#mtc-%s) | %s |\n", cli_commands[i].name, cli_commands[i].name,
            cli_commands[i].doc);
  for (int i = 0; i < cli_command_count; i++) md_command(&cli_commands[i], to);
  fputs("\n## Options of every command\n\n| option | |\n|---|---|\n", to);
  for (int i = 0; i < cli_flag_count; i++)
    if (everywhere(&cli_flags[i])) md_option(&cli_flags[i], to);
  fputs("\n## Exit codes\n\n| code | |\n|---|---|\n", to);
  for (int i = 0; i < COUNT_OF(exits); i++)
    fprintf(to, "| %s | %s |\n", exits[i].name, exits[i].doc);
  fputs("\n## Environment\n\n| variable | |\n|---|---|\n", to);
  for (int i = 0; i < COUNT_OF(variables); i++)
    fprintf(to, "| `%s` | %s |\n", variables[i].name, variables[i].doc);
}

/* ---- completion ---- */

static void choices(const Flag *f, FILE *to) {
  for (const char *p = f->arg; *p; p++) fputc(*p == '|' ? ' ' : *p, to);
}

static void bash(FILE *to) {
  fputs(
      "# bash completion for mtc; made by `mtc help --completion bash`\n"
      "_mtc() {\n"
      "  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} command= flags= "
      "w\n"
      "  for w in \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"; do\n"
      "    case $w in -*) ;; *) command=$w; break ;; esac\n"
      "  done\n"
      "  case $before in\n",
      to);
  for (int i = 0; i < cli_flag_count; i++) {
    const Flag *f = &cli_flags[i];
    if (f->kind != FLAG_CHOICE) continue;
    fprintf(to, "    --%s) COMPREPLY=($(compgen -W '", f->name);
    choices(f, to);
    fputs("' -- \"$word\")); return ;;\n", to);
  }
  fputs("  esac\n  case $command in\n    '') flags='", to);
  for (int i = 0; i < cli_command_count; i++) fprintf(to, "%s ", cli_commands[i].name);
  fputs("--help --version' ;;\n", to);
  for (int i = 0; i < cli_command_count; i++) {
    fprintf(to, "    %s) flags='", cli_commands[i].name);
    for (int k = 0; k < cli_flag_count; k++) {
      if (!cli_applies(&cli_flags[k], &cli_commands[i])) continue;
      fprintf(to, "--%s ", cli_flags[k].name);
      if (cli_flags[k].letter) fprintf(to, "-%c ", cli_flags[k].letter);
    }
    fputs("' ;;\n", to);
  }
  fputs(
      "  esac\n"
      "  case $word in\n"
      "    -*) COMPREPLY=($(compgen -W \"$flags\" -- \"$word\")) ;;\n"
      "    *) if [[ -z $command ]]; then COMPREPLY=($(compgen -W \"$flags\" -- \"$word\"))\n"
      "       else COMPREPLY=($(compgen -f -- \"$word\")); fi ;;\n"
      "  esac\n"
      "}\n"
      "complete -o filenames -F _mtc mtc\n",
      to);
}

/* For zsh's _arguments and fish's descriptions: what would end the quoting or the field is escaped.
 * */
static void quoted(FILE *to, const char *text, const char *escaped) {
  for (; *text; text++) {
    if (*text == '\'') {
      fputs("'\\''", to);
      continue;
    }
    if (strchr(escaped, *text)) fputc('\\', to);
    fputc(*text, to);
  }
}

static void zsh_option(const Flag *f, FILE *to) {
  bool many = f->kind == FLAG_LIST || f->kind == FLAG_COUNT;
  for (int letter = 0; letter <= (f->letter != 0); letter++) {
    fprintf(to, "        '%s", many ? "*" : "");
    if (letter)
      fprintf(to, "-%c", f->letter);
    else
      fprintf(to, "--%s", f->name);
    fputc('[', to);
    quoted(to, f->doc, "[]:\\");
    fputc(']', to);
    if (f->kind == FLAG_CHOICE) {
      fprintf(to, ":%s:(", f->name);
      choices(f, to);
      fputc(')', to);
    } else if (f->arg) {
      fputc(':', to);
      quoted(to, f->arg, "[]:\\");
      fputs(":_files", to);
    }
    fputs("' \\\n", to);
  }
}

static void zsh(FILE *to) {
  fputs(
      "#compdef mtc\n# zsh completion for mtc; made by `mtc help --completion zsh`\n"
      "_mtc() {\n  local -a commands=(\n",
      to);
  for (int i = 0; i < cli_command_count; i++) {
    fprintf(to, "    '%s:", cli_commands[i].name);
    quoted(to, cli_commands[i].doc, ":\\");
    fputs("'\n", to);
  }
  fputs(
      "  )\n  if (( CURRENT == 2 )); then _describe command commands; return; fi\n"
      "  local command=$words[2]\n  shift words; (( CURRENT-- ))\n  case $command in\n",
      to);
  for (int i = 0; i < cli_command_count; i++) {
    fprintf(to, "    %s)\n      _arguments \\\n", cli_commands[i].name);
    for (int k = 0; k < cli_flag_count; k++)
      if (cli_applies(&cli_flags[k], &cli_commands[i])) zsh_option(&cli_flags[k], to);
    fputs("        '*:file:_files' ;;\n", to);
  }
  fputs("  esac\n}\n_mtc \"$@\"\n", to);
}

static void fish(FILE *to) {
  fputs("# fish completion for mtc; made by `mtc help --completion fish`\n", to);
  for (int i = 0; i < cli_command_count; i++) {
    fprintf(to, "complete -c mtc -n __fish_use_subcommand -f -a %s -d '", cli_commands[i].name);
    quoted(to, cli_commands[i].doc, "\\");
    fputs("'\n", to);
  }
  for (int k = 0; k < cli_flag_count; k++) {
    const Flag *f = &cli_flags[k];
    fputs("complete -c mtc", to);
    if (!everywhere(f)) {
      fputs(" -n '__fish_seen_subcommand_from", to);
      for (int i = 0; i < cli_command_count; i++)
        if (cli_applies(f, &cli_commands[i])) fprintf(to, " %s", cli_commands[i].name);
      fputs("'", to);
    }
    fprintf(to, " -l %s", f->name);
    if (f->letter) fprintf(to, " -s %c", f->letter);
    if (f->arg) fputs(" -r", to);
    if (f->kind == FLAG_CHOICE) {
      fputs(" -f -a '", to);
      choices(f, to);
      fputs("'", to);
    }
    fputs(" -d '", to);
    quoted(to, f->doc, "\\");
    fputs("'\n", to);
  }
}

void cli_doc_completion(const char *shell, FILE *to) {
  if (!strcmp(shell, "bash"))
    bash(to);
  else if (!strcmp(shell, "zsh"))
    zsh(to);
  else
    fish(to);
}
