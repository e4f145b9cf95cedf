/* cli.c - argv in, a filled Cli out; and what every command uses to speak to the user.
 *
 * Options are GNU style (--flag VALUE, --flag=VALUE, -oFILE, -qv, `--` ends them), may stand
 * anywhere, and come from the tables of flags.def. A wrong command line is answered with one
 * sentence, the likely correction and exit 2. */
#include "frontend/cli.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

const Command cli_commands[] = {
#define COMMAND(name, args, least, most, doc, details, examples) \
  {#name, args, least, most, doc, details, examples, cmd_##name},
#include "frontend/flags.def"
};
const int cli_command_count = COUNT_OF(cli_commands);

enum {
#define COMMAND(name, args, least, most, doc, details, examples) COMMAND_##name,
#include "frontend/flags.def"
};
#define IN(name) (1u << COMMAND_##name)
#define EVERY    0xffffffffu

const Flag cli_flags[] = {
#define FLAG(field, kind, long, short, arg, commands, preset, doc) \
  {long, short, arg, FLAG_##kind, offsetof(CliFlags, field), commands, preset, doc},
#include "frontend/flags.def"
};
const int cli_flag_count = COUNT_OF(cli_flags);

const Command *cli_command(const char *name) {
  for (int i = 0; i < cli_command_count; i++)
    if (!strcmp(cli_commands[i].name, name)) return &cli_commands[i];
  return NULL;
}

bool cli_applies(const Flag *f, const Command *c) {
  return f->commands >> (c - cli_commands) & 1;
}

/* ---- messages ---- */

static void say(const Cli *c, const char *severity, const char *colour, const char *fmt,
                va_list ap) {
  fprintf(stderr, "mtc: %s%s:%s ", c->colour_err ? colour : "", severity,
          c->colour_err ? "\033[0m" : "");
  vfprintf(stderr, fmt, ap);
  fputc('\n', stderr);
}

int cli_usage(Cli *c, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  say(c, "error", "\033[1;31m", fmt, ap);
  va_end(ap);
  fprintf(stderr, "see `mtc help%s%s`\n", c->command ? " " : "",
          c->command ? c->command->name : "");
  return EXIT_USAGE;
}

int cli_fail(Cli *c, int code, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  say(c, "error", "\033[1;31m", fmt, ap);
  va_end(ap);
  return code;
}

void cli_warn(Cli *c, const char *fmt, ...) {
  if (c->flag.quiet) return;
  va_list ap;
  va_start(ap, fmt);
  say(c, "warning", "\033[1;33m", fmt, ap);
  va_end(ap);
}

int cli_finish(Cli *c, int code) {
  fflush(stdout);
  diag_render(c->diags, stderr, c->colour_err);
  int errors = c->diags->errors;
  bool full = diag_full(c->diags);
  c->diags->all.n = 0;
  c->diags->errors = 0;
  if (errors > 0 && !c->flag.quiet)
    fprintf(stderr, "%d error%s%s\n", errors, errors == 1 ? "" : "s",
            full ? "; more were not looked for" : "");
  return errors > 0 ? EXIT_SOURCE : code;
}

void cli_next(Cli *c, const char *fmt, ...) {
  if (c->flag.quiet || (!isatty(STDERR_FILENO) && !c->flag.verbose)) return;
  fflush(stdout);
  va_list ap;
  va_start(ap, fmt);
  fputs(c->colour_err ? "\033[2mnext: " : "next: ", stderr);
  vfprintf(stderr, fmt, ap);
  fputs(c->colour_err ? "\033[0m\n" : "\n", stderr);
  va_end(ap);
}

int64_t cli_bytes(const SizeArg *s, int64_t whole) {
  int64_t bytes = -1;
  if (s->text && !parse_bytes(s->text, whole, &bytes)) return -1;
  return bytes;
}

int cli_columns(void) {
  const char *set = getenv("COLUMNS");
  int n = set ? atoi(set) : 0;
  struct winsize w;
  if (n <= 0 && ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0) n = w.ws_col;
  return n > 0 ? n : 100;
}

int cli_close(Cli *c, FILE *f, const char *path) {
  bool bad = ferror(f);
  if (fclose(f) != 0 || bad) return cli_fail(c, EXIT_IO, "cannot write %s: %s", path, strerror(errno));
  if (!c->flag.quiet) fprintf(stderr, "wrote %s\n", path);
  return EXIT_OK;
}

/* ---- values ---- */

static bool parse_choice(const char *choices, const char *text) {
  size_t n = strlen(text);
  for (const char *p = choices; p; p = strchr(p, '|') ? strchr(p, '|') + 1 : NULL)
    if (!strncmp(p, text, n) && (p[n] == '|' || p[n] == 0) && n > 0) return true;
  return false;
}

static const char *nearest_choice(Arena *a, const char *choices, const char *text) {
  VEC(const char *) list = {0};
  char *copy = arena_printf(a, "%s", choices);
  for (char *rest = copy, *one; (one = strsep(&rest, "|"));) vec_push(a, &list, one);
  return nearest_word(text, list.at, list.n);
}

static bool parse_integer(const char *text, int64_t *value) {
  char *end;
  errno = 0;
  long long v = strtoll(text, &end, 10);
  *value = v;
  return end != text && *end == 0 && errno == 0 && v >= 0 && text[0] >= '0' && text[0] <= '9';
}

/* Stores a value; false after an error was printed. `shown` is the flag as the user wrote it. */
static bool set_flag(Cli *c, const Flag *f, const char *shown, const char *text) {
  void *at = (char *)&c->flag + f->offset;
  switch (f->kind) {
    case FLAG_SWITCH:
      *(bool *)at = true;
      return true;
    case FLAG_COUNT:
      ++*(int *)at;
      return true;
    case FLAG_TEXT:
      *(const char **)at = text;
      return true;
    case FLAG_LIST:
      vec_push(c->arena, (CliList *)at, text);
      return true;
    case FLAG_CHOICE: {
      *(const char **)at = text;
      if (parse_choice(f->arg, text)) return true;
      const char *near = nearest_choice(c->arena, f->arg, text);
      cli_usage(c, "%s is one of %s, not `%s`%s%s%s", shown, f->arg, text,
                near ? "; did you mean `" : "", near ? near : "", near ? "`?" : "");
      return false;
    }
    case FLAG_INTEGER:
      if (parse_integer(text, at)) return true;
      cli_usage(c, "%s takes a whole number, not `%s`", shown, text);
      return false;
    case FLAG_NUMBER: {
      char *end;
      double v = strtod(text, &end);
      *(double *)at = v;
      if (end != text && *end == 0 && isfinite(v) && v >= 0) return true;
      cli_usage(c, "%s takes a number that is not negative, not `%s`", shown, text);
      return false;
    }
    case FLAG_SIZE: {
      SizeArg *s = at;
      *s = (SizeArg){text, -1};
      int64_t share;
      bool percent = str_ends(text, "%");
      if (percent ? parse_bytes(text, 100, &share) : parse_bytes(text, 0, &s->bytes)) return true;
      cli_usage(c, "%s takes a size such as 24G, 1.5GiB, 500MB, 4096 or 90%%, not `%s`", shown,
                text);
      return false;
    }
  }
  return false;
}

/* Not given: -1, NaN and NULL; then the presets of the table. */
static void set_presets(Cli *c) {
  for (int i = 0; i < cli_flag_count; i++) {
    const Flag *f = &cli_flags[i];
    void *at = (char *)&c->flag + f->offset;
    if (f->kind == FLAG_INTEGER) *(int64_t *)at = -1;
    if (f->kind == FLAG_NUMBER) *(double *)at = NAN;
    if (f->kind == FLAG_SIZE) *(SizeArg *)at = (SizeArg){NULL, -1};
    if (f->preset && !set_flag(c, f, f->name, f->preset)) bug("preset of --%s", f->name);
  }
}

/* ---- flags ---- */

/* A name may stand in several rows for different commands: the one of this command, else the first. */
static const Flag *find_flag(const Cli *c, const char *name, size_t n) {
  const Flag *first = NULL;
  for (int i = 0; i < cli_flag_count; i++) {
    const Flag *f = &cli_flags[i];
    if (strlen(f->name) != n || strncmp(f->name, name, n) != 0) continue;
    if (c->command && cli_applies(f, c->command)) return f;
    if (!first) first = f;
  }
  return first;
}

static const Flag *find_letter(char letter) {
  for (int i = 0; i < cli_flag_count; i++)
    if (cli_flags[i].letter == letter) return &cli_flags[i];
  return NULL;
}

static bool is_everywhere(const Flag *f) {
  return f->commands == EVERY;
}

static bool unknown_flag(Cli *c, const char *shown, const char *name) {
  VEC(const char *) list = {0};
  for (int i = 0; i < cli_flag_count; i++)
    if (!c->command || cli_applies(&cli_flags[i], c->command))
      vec_push(c->arena, &list, cli_flags[i].name);
  const char *near = name ? nearest_word(name, list.at, list.n) : NULL;
  cli_usage(c, "unknown option `%s`%s%s%s", shown, near ? ": did you mean `--" : "",
            near ? near : "", near ? "`?" : "");
  return false;
}

static bool misplaced_flag(Cli *c, const Flag *f, const char *shown) {
  Str s = {.arena = c->arena};
  for (int i = 0; i < cli_command_count; i++)
    if (cli_applies(f, &cli_commands[i]))
      str_addf(&s, "%s`mtc %s`", s.len ? ", " : "", cli_commands[i].name);
  if (c->command)
    cli_usage(c, "`%s` is not an option of `mtc %s`; it belongs to %s", shown, c->command->name,
              s.text);
  else
    cli_usage(c, "`%s` comes after the command; it belongs to %s", shown, s.text);
  return false;
}

/* argv[*i] is "--...". */
static bool parse_long(Cli *c, int argc, char **argv, int *i) {
  const char *name = argv[*i] + 2, *equals = strchr(name, '=');
  size_t n = equals ? (size_t)(equals - name) : strlen(name);
  const char *shown = arena_printf(c->arena, "--%.*s", (int)n, name);
  const Flag *f = find_flag(c, name, n);
  if (!f) return unknown_flag(c, shown, shown + 2);
  if (c->command ? !cli_applies(f, c->command) : !is_everywhere(f))
    return misplaced_flag(c, f, shown);
  const char *value = equals ? equals + 1 : NULL;
  if (!f->arg) {
    if (!value) return set_flag(c, f, shown, NULL);
    cli_usage(c, "%s takes no value", shown);
    return false;
  }
  if (!value && *i + 1 < argc) value = argv[++*i];
  if (value) return set_flag(c, f, shown, value);
  cli_usage(c, "%s needs a value: %s %s", shown, shown, f->arg);
  return false;
}

/* argv[*i] is "-x..": switches may be joined, a value may follow without a space. */
static bool parse_short(Cli *c, int argc, char **argv, int *i) {
  for (const char *p = argv[*i] + 1; *p; p++) {
    const char *shown = arena_printf(c->arena, "-%c", *p);
    const Flag *f = find_letter(*p);
    if (!f) return unknown_flag(c, argv[*i], p[1] && p == argv[*i] + 1 ? p : NULL);
    if (c->command ? !cli_applies(f, c->command) : !is_everywhere(f))
      return misplaced_flag(c, f, shown);
    if (!f->arg) {
      if (!set_flag(c, f, shown, NULL)) return false;
      continue;
    }
    const char *value = p[1] ? p + 1 : *i + 1 < argc ? argv[++*i] : NULL;
    if (value) return set_flag(c, f, shown, value);
    cli_usage(c, "%s needs a value: %s %s", shown, shown, f->arg);
    return false;
  }
  return true;
}

/* ---- the whole line ---- */

static bool set_command(Cli *c, const char *word) {
  c->command = cli_command(word);
  if (c->command) return true;
  VEC(const char *) list = {0};
  for (int i = 0; i < cli_command_count; i++) vec_push(c->arena, &list, cli_commands[i].name);
  const char *near = nearest_word(word, list.at, list.n);
  if (str_ends(word, ".mt"))
    cli_usage(c, "`%s` is no command: did you mean `mtc plan %s`?", word, word);
  else
    cli_usage(c, "unknown command `%s`%s%s%s", word, near ? ": did you mean `" : "",
              near ? near : "", near ? "`?" : "");
  return false;
}

/* "NAME=VALUE" items of -D and --set. */
static bool split_overrides(Cli *c, const CliList *list, const char *flag, bool dims) {
  for (int i = 0; i < list->n; i++) {
    const char *text = list->at[i], *equals = strchr(text, '=');
    if (!equals || equals == text || !equals[1]) {
      cli_usage(c, "%s takes %s, not `%s`", flag,
                dims ? "NAME=N, such as L=24" : "KEY=VALUE, such as train.steps=100", text);
      return false;
    }
    Override o = {intern_n(text, (size_t)(equals - text)), intern(equals + 1)};
    if (dims)
      vec_push(c->arena, &c->job.dims, o);
    else
      vec_push(c->arena, &c->job.settings, o);
  }
  return true;
}

static bool check_args(Cli *c) {
  const Command *m = c->command;
  if (c->flag.help || c->flag.version) return true;
  if (c->args.n < m->least) {
    cli_usage(c, "`mtc %s` needs %s", m->name, m->args);
    return false;
  }
  if (m->most >= 0 && c->args.n > m->most) {
    cli_usage(c, "`mtc %s` takes %s; what is `%s`?", m->name, m->args, c->args.at[m->most]);
    return false;
  }
  return true;
}

static bool variable_on(const char *name) {
  const char *v = getenv(name);
  return v && v[0] && strcmp(v, "0") != 0;
}

/* --color, then NO_COLOR, then CLICOLOR_FORCE, then what the stream is. */
static bool colour_for(const Cli *c, int fd) {
  const char *choice = c->flag.color, *term = getenv("TERM"), *no = getenv("NO_COLOR");
  if (choice && !strcmp(choice, "always")) return true;
  if ((choice && !strcmp(choice, "never")) || (no && no[0])) return false;
  if (variable_on("CLICOLOR_FORCE")) return true;
  return isatty(fd) && !(term && !strcmp(term, "dumb"));
}

static void set_colours(Cli *c) {
  c->colour_out = colour_for(c, STDOUT_FILENO);
  c->colour_err = colour_for(c, STDERR_FILENO);
}

int cli_parse(Cli *c, int argc, char **argv) {
  set_presets(c);
  set_colours(c);
  bool options = true;
  for (int i = 1; i < argc; i++) {
    const char *word = argv[i];
    bool ok = true;
    if (options && !strcmp(word, "--")) {
      options = false;
    } else if (options && word[0] == '-' && word[1] == '-') {
      ok = parse_long(c, argc, argv, &i);
    } else if (options && word[0] == '-' && word[1]) {
      ok = parse_short(c, argc, argv, &i);
    } else if (!c->command) {
      ok = set_command(c, word);
    } else {
      vec_push(c->arena, &c->args, word);
    }
    set_colours(c);
    if (!ok) return EXIT_USAGE;
  }
  if (!c->command) return EXIT_OK;
  c->job.path = c->args.n ? c->args.at[0] : NULL;
  c->job.preset = c->flag.preset;
  bool ok = check_args(c) && split_overrides(c, &c->flag.dims, "-D", true) &&
            split_overrides(c, &c->flag.set, "--set", false);
  return ok ? EXIT_OK : EXIT_USAGE;
}
