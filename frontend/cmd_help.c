/* cmd_help.c - `mtc help TOPIC`: a command, a section or setting, an operation or a diagnostic, whatever has that name;
 * and the documents made from the tables. */
#include <string.h>
#include "frontend/builtins.h"
#include "frontend/cli.h"
#include "frontend/settings.h"

static int document(Cli *c) {
  const char *topic = c->args.n ? c->args.at[0] : "";
  if (c->flag.completion) {
    cli_doc_completion(c->flag.completion, stdout);
  } else if (c->flag.man) {
    cli_doc_man(stdout);
  } else if (!topic[0]) {
    cli_doc_markdown(stdout);
  } else if (!strcmp(topic, "errors")) {
    cli_explain_markdown(stdout);
  } else if (!strcmp(topic, "op") || !strcmp(topic, "ops")) {
    cli_op_markdown(stdout);
  } else {
    return cli_usage(c, "--markdown knows the topics op and errors, not `%s`", topic);
  }
  return EXIT_OK;
}

/* Several things may share a name: `train` is a command and a section. */
static void apart(int *found) {
  if (++*found > 1) puts("\n----\n");
}

static bool op_help(const char *name, int *found) {
  bool any = false;
  if (builtin_find(intern(name))) {
    apart(found);
    any = builtin_help(name, stdout);
  } else {
    FILE *nowhere = fopen("/dev/null", "w");
    any = nowhere && cli_primitive_help(name, nowhere);
    if (nowhere) fclose(nowhere);
    if (any) apart(found), cli_primitive_help(name, stdout);
  }
  return any;
}

static int unknown_topic(Cli *c, const char *topic) {
  VEC(const char *) names = {0};
  for (int i = 0; i < cli_command_count; i++) vec_push(c->arena, &names, cli_commands[i].name);
  const char *near = nearest_word(topic, names.at, names.n);
  if (!near) near = builtin_nearest(topic);
  return cli_usage(c, "no help on `%s`%s%s%s", topic, near ? ": did you mean `" : "", near ? near : "",
                   near ? "`?" : "");
}

int cmd_help(Cli *c) {
  if (c->flag.completion || c->flag.man || c->flag.markdown) return document(c);
  if (c->args.n == 0) {
    cli_help_index(stdout);
    return EXIT_OK;
  }
  const char *topic = c->args.at[0];
  int found = 0;
  if (!strcmp(topic, "op") || !strcmp(topic, "ops")) {
    if (c->args.n == 1) {
      cli_op_index(stdout);
      return EXIT_OK;
    }
    return op_help(c->args.at[1], &found) ? EXIT_OK : unknown_topic(c, c->args.at[1]);
  }
  if (c->args.n > 1) return cli_usage(c, "`mtc help` takes one topic, or `op` and a name");
  if (!strcmp(topic, "errors")) {
    cli_explain_index(stdout);
    return EXIT_OK;
  }
  const Command *command = cli_command(topic);
  if (command) {
    apart(&found);
    cli_help_command(command, stdout);
  }
  if (settings_help(topic, NULL)) {
    apart(&found);
    settings_help(topic, stdout);
  }
  op_help(topic, &found);
  int id = err_by_code(topic);
  if (id >= 0) {
    apart(&found);
    cli_explain((ErrId)id, stdout);
  }
  return found ? EXIT_OK : unknown_topic(c, topic);
}
