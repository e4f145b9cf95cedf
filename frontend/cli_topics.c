/* cli_topics.c - operations and diagnostics explained on the terminal and as pages of docs/, from
 * ops.def, builtins.def and errors.def. */
#include <string.h>
#include "frontend/builtins.h"
#include "frontend/cli.h"

/* ---- diagnostics ---- */

void cli_explain(ErrId id, FILE *to) {
  fprintf(to, "%s: %s\n\n", err_code(id), err_title(id));
  cli_wrap(to, err_page(id), 0, 0);
}

void cli_explain_index(FILE *to) {
  for (int i = 0; i < ERR_COUNT; i++)
    fprintf(to, "%s  %s\n", err_code((ErrId)i), err_title((ErrId)i));
}

void cli_explain_markdown(FILE *to) {
  fputs(
      "# Diagnostics\n\nMade by `mtc help errors --markdown` from `ir/errors.def`; a test "
      "compares. "
      "`mtc explain CODE` prints one.\n\n"
      "A message stands alone, the caret is at the cause, labels show both sides with the names "
      "and sizes of "
      "their axes, and help is given when it is likely right. One run reports up to 20 errors.\n",
      to);
  for (int i = 0; i < ERR_COUNT; i++)
    fprintf(to, "\n## %s\n\n**%s.** %s\n", err_code((ErrId)i), err_title((ErrId)i),
            err_page((ErrId)i));
}

/* ---- operations ---- */

typedef struct {
  const char *name, *attrs, *doc;
  int in, out;
} Primitive;

static const Primitive primitives[] = {
#define OP(id, text, in, out, attrs, shape, grad, eval, kind, doc) {text, attrs, doc, in, out},
#include "ir/ops.def"
};

bool cli_primitive_help(const char *name, FILE *to) {
  for (int i = 0; i < COUNT_OF(primitives); i++) {
    const Primitive *p = &primitives[i];
    if (strcmp(p->name, name)) continue;
    fprintf(to, "%s - a primitive of the graph\n\n", p->name);
    cli_wrap(to, p->doc, 0, 0);
    if (p->in >= 0)
      fprintf(to, "\noperands    %d\n", p->in);
    else
      fprintf(to, "\noperands    any number\n");
    if (p->attrs[0]) fprintf(to, "attributes  %s\n", p->attrs);
    return true;
  }
  return false;
}

void cli_op_index(FILE *to) {
  fputs("operations of the language\n", to);
  builtin_list(to);
  fputs("\nprimitives of the graph, as `mtc plan --emit ir` prints them\n", to);
  for (int i = 0; i < COUNT_OF(primitives); i++) {
    int at = fprintf(to, "  %-14s ", primitives[i].name);
    cli_wrap(to, primitives[i].doc, 17, at);
  }
}

static void cell(FILE *to, const char *text) {
  for (; *text; text++) {
    if (*text == '|') fputc('\\', to);
    fputc(*text, to);
  }
}

void cli_op_markdown(FILE *to) {
  fputs(
      "# Operations\n\nMade by `mtc help op --markdown` from `frontend/builtins.def` and "
      "`ir/ops.def`; a test "
      "compares.\n\n## Of the language\n\nCalled in the functions of a `.mt` file. Those that are "
      "not primitives "
      "are compositions: derivatives, precision, fusion and recompute see through them.\n\n",
      to);
  builtin_markdown(to);
  fputs("\n## Primitives of the graph\n\n| name | operands | attributes | |\n|---|---|---|---|\n",
        to);
  for (int i = 0; i < COUNT_OF(primitives); i++) {
    const Primitive *p = &primitives[i];
    fprintf(to, "| `%s` | ", p->name);
    if (p->in >= 0)
      fprintf(to, "%d", p->in);
    else
      fputs("any", to);
    fprintf(to, " | %s%s%s | ", p->attrs[0] ? "`" : "", p->attrs, p->attrs[0] ? "`" : "");
    cell(to, p->doc);
    fputs(" |\n", to);
  }
}
