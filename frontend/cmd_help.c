/* cmd_help.c - `mtc help TOPIC`: a command, a section or setting, an operation or a diagnostic,
 * whatever has that name; and the documents made from the tables. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "frontend/builtins.h"
#include "frontend/cli.h"
#include "frontend/settings.h"

static void settings_page(FILE *to) {
  fputs(
      "# Settings\n\nMade by `mtc help settings --markdown` from `frontend/settings.def`; a test "
      "compares.\n\n",
      to);
  settings_markdown(to);
}

/* The generated pages: the file in docs/ and the topic that prints it with --markdown. */
static const struct {
  const char *file, *topic;
  void (*print)(FILE *to);
} pages[] = {
    {"cli.md", "", cli_doc_markdown},  {"errors.md", "errors", cli_explain_markdown},
    {"ops.md", "op", cli_op_markdown}, {"settings.md", "settings", settings_page},
    {"mtc.1", NULL, cli_doc_man},
};

static int write_pages(Cli *c, const char *folder) {
  if (!make_dirs(folder))
    return cli_fail(c, EXIT_IO, "cannot make the folder `%s`: %s", folder, strerror(errno));
  for (int i = 0; i < COUNT_OF(pages); i++) {
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    ensure(f, "out of memory");
    pages[i].print(f);
    fclose(f);
    const char *path = arena_printf(c->arena, "%s/%s", folder, pages[i].file);
    bool written = write_file_atomic(path, text, size);
    free(text);
    if (!written) return cli_fail(c, EXIT_IO, "cannot write `%s`: %s", path, strerror(errno));
  }
  return EXIT_OK;
}

static int document(Cli *c) {
  const char *topic = c->args.n ? c->args.at[0] : "";
  if (c->flag.write_docs) return write_pages(c, c->flag.write_docs);
  if (c->flag.completion) {
    cli_doc_completion(c->flag.completion, stdout);
    return EXIT_OK;
  }
  if (c->flag.man) {
    cli_doc_man(stdout);
    return EXIT_OK;
  }
  for (int i = 0; i < COUNT_OF(pages); i++) {
    if (!pages[i].topic || strcmp(pages[i].topic, topic)) continue;
    pages[i].print(stdout);
    return EXIT_OK;
  }
  return cli_usage(c, "--markdown knows the topics errors, op and settings, not `%s`", topic);
}

/* Several things may share a name: `train` is a command and a section. */
typedef struct {
  int found;
} Topics;

/* Prints what `help` says of the name, if it knows it. */
static void topic(Topics *t, bool (*help)(const char *name, FILE *to), const char *name) {
  char *text = NULL;
  size_t size = 0;
  FILE *f = open_memstream(&text, &size);
  ensure(f, "out of memory");
  bool known = help(name, f);
  fclose(f);
  if (known) {
    if (t->found++) puts("\n----\n");
    fwrite(text, 1, size, stdout);
  }
  free(text);
}

static bool command_help(const char *name, FILE *to) {
  const Command *command = cli_command(name);
  if (command) cli_help_command(command, to);
  return command != NULL;
}

static bool code_help(const char *name, FILE *to) {
  int id = err_by_code(name);
  if (id >= 0) cli_explain((ErrId)id, to);
  return id >= 0;
}

/* Primitives that the language has under the same name are explained as the language's. */
static void op_topic(Topics *t, const char *name) {
  int before = t->found;
  topic(t, builtin_help, name);
  if (t->found == before) topic(t, cli_primitive_help, name);
}

static int unknown_topic(Cli *c, const char *topic) {
  VEC(const char *) names = {0};
  for (int i = 0; i < cli_command_count; i++) vec_push(c->arena, &names, cli_commands[i].name);
  const char *near = nearest_word(topic, names.at, names.n);
  if (!near) near = settings_nearest(topic);
  if (!near) near = builtin_nearest(topic);
  return cli_usage(c, "no help on `%s`%s%s%s", topic, near ? ": did you mean `" : "",
                   near ? near : "", near ? "`?" : "");
}

int cmd_help(Cli *c) {
  if (c->flag.completion || c->flag.man || c->flag.markdown || c->flag.write_docs)
    return document(c);
  const char *name = c->args.n ? c->args.at[0] : "";
  bool op = !strcmp(name, "op") || !strcmp(name, "ops");
  Topics t = {0};
  if (c->args.n > 1 && !op) return cli_usage(c, "`mtc help` takes one topic, or `op` and a name");
  if (c->args.n == 0) {
    cli_help_index(stdout);
  } else if (op && c->args.n == 1) {
    cli_op_index(stdout);
  } else if (op) {
    op_topic(&t, c->args.at[1]);
    if (!t.found) return unknown_topic(c, c->args.at[1]);
  } else if (!strcmp(name, "errors")) {
    cli_explain_index(stdout);
  } else {
    topic(&t, command_help, name);
    topic(&t, settings_help, name);
    topic(&t, code_help, name);
    op_topic(&t, name);
    if (!t.found) return unknown_topic(c, name);
  }
  return EXIT_OK;
}
