/* Every file of tests/diag gives exactly the diagnostics that its comments announce, at the places
 * they name:
 *
 *   # expect error[E0203] 36:20 inner dimensions of `@` differ     (the words must occur in the
 * message) # expect warning[W0412] 54:15 # preset NAME | # dim NAME=N | # set KEY=VALUE (as on the
 * command line)
 *
 * and every code that a .mt file alone can cause occurs in one of them. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "frontend/job.h"

typedef struct {
  char code[8];
  int line, col;
  const char *words;
  bool met;
} Expect;

typedef VEC(Expect) Expects;

static bool covered[ERR_COUNT];

/* Codes that need data, weights, a budget or a planner; their tests are elsewhere. */
static bool from_outside(ErrId id) {
  return id == E_WEIGHTS || id == E_NOT_YET || id == E_INFEASIBLE || id == E_FILE || id == E_DATA;
}

static void add_override(Arena *a, void *list, char *text) {
  VEC(Override) *v = list;
  char *equals = strchr(text, '=');
  assert_non_null(equals);
  Override o = {intern_n(text, (size_t)(equals - text)), intern(equals + 1)};
  vec_push(a, v, o);
}

static void read_comments(Arena *a, char *text, Expects *expects, JobArgs *args) {
  for (char *line; (line = strsep(&text, "\n"));) {
    char severity[16], code[8];
    Expect x = {0};
    int used = 0;
    if (sscanf(line, "# expect %15[a-z][%5[A-Z0-9]] %d:%d%n", severity, code, &x.line, &x.col,
               &used) == 4) {
      strcpy(x.code, code);
      assert_string_equal(severity, code[0] == 'W' ? "warning" : "error");
      x.words = line + used + strspn(line + used, " ");
      vec_push(a, expects, x);
    } else if (str_starts(line, "# expect")) {
      fail_msg("cannot read `%s`", line);
    } else if (str_starts(line, "# preset ")) {
      args->preset = line + 9;
    } else if (str_starts(line, "# dim ")) {
      add_override(a, &args->dims, line + 6);
    } else if (str_starts(line, "# set ")) {
      add_override(a, &args->settings, line + 6);
    }
  }
}

/* The number of differences, each printed. */
static int compare(const Diags *d, const Expects *expects, const char *path) {
  int bad = 0;
  for (int i = 0; i < d->all.n; i++) {
    const Diag *g = d->all.at[i];
    bool found = false;
    covered[g->id] = true;
    for (int k = 0; k < expects->n && !found; k++) {
      Expect *x = &expects->at[k];
      found = !x->met && !strcmp(x->code, err_code(g->id)) && x->line == g->primary.loc.line &&
              x->col == g->primary.loc.col && strstr(g->message, x->words);
      x->met |= found;
    }
    if (found) continue;
    print_error("%s: unexpected %s at %d:%d: %s\n", path, err_code(g->id), g->primary.loc.line,
                g->primary.loc.col, g->message);
    bad++;
  }
  for (int k = 0; k < expects->n; k++) {
    const Expect *x = &expects->at[k];
    if (x->met) continue;
    print_error("%s: missing %s at %d:%d %s\n", path, x->code, x->line, x->col, x->words);
    bad++;
  }
  return bad;
}

static int check_file(const char *path) {
  Arena *a = arena_new();
  Diags *d = diags_new(a);
  Expects expects = {0};
  JobArgs args = {.path = path};
  size_t size;
  char *text = read_file(a, path, &size);
  assert_non_null(text);
  read_comments(a, text, &expects, &args);
  elaborate(a, d, &args);
  int bad = compare(d, &expects, path);
  FILE *nowhere = fopen("/dev/null", "w");
  assert_non_null(nowhere);
  diag_render(d, nowhere, true);
  diag_render_json(d, nowhere);
  fclose(nowhere);
  arena_free(a);
  return bad;
}

static int is_model(const struct dirent *e) {
  return str_ends(e->d_name, ".mt");
}

static void files_say_what_they_announce(void **state) {
  (void)state;
  struct dirent **list;
  int n = scandir(MTC_SOURCE_DIR "/tests/diag", &list, is_model, alphasort), bad = 0;
  assert_true(n > 0);
  for (int i = 0; i < n; i++) {
    char path[4096];
    snprintf(path, sizeof path, MTC_SOURCE_DIR "/tests/diag/%s", list[i]->d_name);
    bad += check_file(path);
    free(list[i]);
  }
  free(list);
  assert_int_equal(bad, 0);
}

static void every_code_occurs(void **state) {
  (void)state;
  int missing = 0;
  for (int i = 0; i < ERR_COUNT; i++) {
    if (covered[i] || from_outside((ErrId)i)) continue;
    print_error("no file of tests/diag gives %s (%s)\n", err_code((ErrId)i), err_title((ErrId)i));
    missing++;
  }
  assert_int_equal(missing, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(files_say_what_they_announce),
      cmocka_unit_test(every_code_occurs),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
