/* cli.h - the command line after parsing: what each cmd_NAME.c gets.
 *
 * Standard output carries the result of a command and nothing else; notes, progress and errors go
 * to standard error. A command returns its exit code (base.h); errors in Cli.diags make it
 * EXIT_SOURCE through cli_finish. */
#ifndef MTC_CLI_H
#define MTC_CLI_H
#include "job.h"

/* "24G" or "90%": bytes is -1 for a share, which needs the whole. text NULL = not given. */
typedef struct {
  const char *text;
  int64_t bytes;
} SizeArg;

typedef bool CliSwitch;
typedef int CliCount;
typedef const char *CliText;
typedef const char *CliChoice;
typedef int64_t CliInteger;
typedef double CliNumber;
typedef SizeArg CliSize;
typedef VEC(const char *) CliList;

typedef enum {
  FLAG_SWITCH,
  FLAG_COUNT,
  FLAG_TEXT,
  FLAG_CHOICE,
  FLAG_INTEGER,
  FLAG_NUMBER,
  FLAG_SIZE,
  FLAG_LIST
} FlagKind;

/* One member a row of flags.def: cli->flag.vram, cli->flag.micro_batch, .. */
typedef struct {
#define CLI_TYPE_SWITCH                                            CliSwitch
#define CLI_TYPE_COUNT                                             CliCount
#define CLI_TYPE_TEXT                                              CliText
#define CLI_TYPE_CHOICE                                            CliChoice
#define CLI_TYPE_INTEGER                                           CliInteger
#define CLI_TYPE_NUMBER                                            CliNumber
#define CLI_TYPE_SIZE                                              CliSize
#define CLI_TYPE_LIST                                              CliList
#define FLAG(field, kind, long, short, arg, commands, preset, doc) CLI_TYPE_##kind field;
#include "flags.def"
} CliFlags;

typedef struct Cli Cli;

typedef struct {
  const char *name, *args;
  int least, most; /* positional arguments; most -1 = any number */
  const char *doc, *details, *examples;
  int (*run)(Cli *);
} Command;

typedef struct {
  const char *name; /* without dashes */
  char letter;      /* 0 = none */
  const char *arg;  /* NULL for switches and counts */
  FlagKind kind;
  size_t offset;     /* in CliFlags */
  uint32_t commands; /* bit i: command i of cli_commands */
  const char *preset, *doc;
} Flag;

struct Cli {
  Arena *arena;
  Diags *diags;
  const Command *command;
  VEC(const char *) args; /* positional */
  CliFlags flag;
  JobArgs job; /* path = args[0]; preset, -D and --set filled in */
  bool colour_out, colour_err;
};

extern const Command cli_commands[];
extern const int cli_command_count;
extern const Flag cli_flags[];
extern const int cli_flag_count;
const Command *cli_command(const char *name); /* NULL when there is none */
bool cli_applies(const Flag *f, const Command *c);

/* Parses argv into c; on a usage error prints it and returns EXIT_USAGE, else EXIT_OK. */
int cli_parse(Cli *c, int argc, char **argv);

/* ---- for the commands ---- */
/* "mtc: error: ..." on standard error; returns EXIT_USAGE, so that `return cli_usage(..)` reads
 * well. */
int cli_usage(Cli *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The same for what went wrong outside a .mt file, with any exit code. */
int cli_fail(Cli *c, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* "mtc: warning: ..", not with -q. */
void cli_warn(Cli *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Prints the diagnostics that were collected, once; EXIT_SOURCE when one is an error, else `code`.
 * */
int cli_finish(Cli *c, int code);
/* "next: mtc plan .." as a dim line on standard error, when that is a terminal or -v was given. */
void cli_next(Cli *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Bytes of a size; -1 when it was not given. `whole` is what a percentage is a share of. */
int64_t cli_bytes(const SizeArg *s, int64_t whole);

/* Columns of reports: COLUMNS, the terminal, or 100. */
int cli_columns(void);
/* Closes a file that a flag asked for and says so; EXIT_IO when it was not written whole. */
int cli_close(Cli *c, FILE *f, const char *path);

/* ---- documents made from the tables (cli_help.c, cli_docs.c, cli_complete.c) ---- */
void cli_help_short(FILE *to); /* 8 lines for `mtc` alone */
void cli_help_index(FILE *to); /* `mtc help` */
void cli_help_command(const Command *c, FILE *to);
void cli_wrap(FILE *to, const char *text, int indent,
              int at); /* fills lines of 80 columns, from column `at` */
void cli_doc_man(FILE *to);
void cli_doc_markdown(FILE *to);
void cli_doc_completion(const char *shell, FILE *to);
/* cli_topics.c: operations and diagnostics */
void cli_explain(ErrId id, FILE *to);
void cli_explain_index(FILE *to);
void cli_explain_markdown(FILE *to); /* docs/errors.md */
bool cli_primitive_help(const char *name, FILE *to);
void cli_op_index(FILE *to);
void cli_op_markdown(FILE *to); /* docs/ops.md */

#define COMMAND(name, args, least, most, doc, details, examples) int cmd_##name(Cli *c);
#include "flags.def"

#endif
