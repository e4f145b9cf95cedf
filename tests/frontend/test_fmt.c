/* The formatter: the tree stays, comments stay, a second run changes nothing, and the examples are
 * as it writes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include "frontend/ast.h"

/* Formats `text`, after checking all that must hold for any text. */
static const char *format(Arena *a, const char *path, const char *text) {
  Diags *d = diags_new(a);
  File *f = mt_parse_text(a, d, path, text, strlen(text));
  if (d->errors) diag_render(d, stderr, false);
  assert_int_equal(d->errors, 0);
  Str once = {.arena = a}, twice = {.arena = a}, tree = {.arena = a}, new_tree = {.arena = a};
  mt_format(f, text, &once);
  File *again = mt_parse_text(a, d, path, once.text, once.len);
  assert_int_equal(d->errors, 0);
  mt_format(again, once.text, &twice);
  assert_string_equal(once.text, twice.text);
  mt_dump(f, &tree);
  mt_dump(again, &new_tree);
  assert_string_equal(tree.text, new_tree.text);
  assert_int_equal(f->comments.n, again->comments.n);
  for (int i = 0; i < f->comments.n; i++) {
    const char *was = f->comments.at[i].text, *is = again->comments.at[i].text;
    assert_string_equal(was[0] == ' ' ? was + 1 : was, is[0] == ' ' && was[0] ? is + 1 : is);
  }
  return once.text;
}

static void expect(const char *text, const char *want) {
  Arena *a = arena_new();
  assert_string_equal(format(a, "t.mt", text), want);
  arena_free(a);
}

static void examples_are_canonical(void **state) {
  (void)state;
  static const char *const files[] = {"bert_cls", "char",     "gpt2", "llama",  "llama_lora",
                                      "qwen2",    "resnet50", "t5",   "std/nn"};
  for (int i = 0; i < COUNT_OF(files); i++) {
    Arena *a = arena_new();
    size_t size;
    const char *path = arena_printf(a, MTC_SOURCE_DIR "/models/%s.mt", files[i]);
    const char *text = read_file(a, path, &size);
    assert_non_null(text);
    assert_string_equal(format(a, path, text), text);
    arena_free(a);
  }
}

/* Layouts that no person would write: everything on one line, and a token a line. */
static void examples_survive_any_layout(void **state) {
  (void)state;
  static const char *const files[] = {"bert_cls", "gpt2", "llama_lora", "resnet50", "t5", "std/nn"};
  for (int i = 0; i < COUNT_OF(files); i++) {
    for (int broken = 0; broken < 2; broken++) {
      Arena *a = arena_new();
      size_t size;
      char *text = read_file(a, arena_printf(a, MTC_SOURCE_DIR "/models/%s.mt", files[i]), &size);
      assert_non_null(text);
      bool quoted = false, comment = false;
      for (char *p = text; *p; p++) {
        if (*p == '"' && !comment) quoted = !quoted;
        if (*p == '#' && !quoted) comment = true;
        if (*p == '\n') comment = false;
        if (comment) *p = ' ';
        if (!broken && *p == '\n') *p = ' ';
        if (broken && *p == ' ' && !quoted) *p = '\n';
      }
      format(a, "t.mt", text);
      arena_free(a);
    }
  }
}

static void spaces(void **state) {
  (void)state;
  expect("let k=-3**-j*(a+b)", "let k = -3 ** -j * (a + b)\n");
  expect("fn f(x[B,..],y=none)->[B],f32{return -x[:,0,*,..,1:n],c?a:b}",
         "fn f(x [B, ..], y = none) -> [B], f32 { return -x[:, 0, *, .., 1:n], c ? a : b }\n");
  expect("model D=M ( V=3 ) {wrap \"a\",\"b\"with L(x)}",
         "model D = M(V = 3) { wrap \"a\", \"b\" with L(x) }\n");
  expect("use \"a\"(A,B)", "use \"a\" (A, B)\n");
  expect("block B(base:layer){}", "block B(base : layer) {}\n");
}

static void columns_line_up(void **state) {
  (void)state;
  expect(
      "block B(D) {\n layer a = A(D)\n layer long[3] = A(D)\n\n layer b = A(D)\n"
      " state mean [D] = zeros\n state v [D, D] = ones\n}",
      "block B(D) {\n  layer a       = A(D)\n  layer long[3] = A(D)\n\n  layer b = A(D)\n"
      "  state mean [D]    = zeros\n  state v    [D, D] = ones\n}\n");
  expect("train {\n a=1\n dims{T=1 B=auto}\n long=2\n eval{every=1}\n checkpoint{every=2}\n}",
         "train {\n  a    = 1\n  dims { T = 1  B = auto }\n  long = 2\n  eval       { every = 1 }\n"
         "  checkpoint { every = 2 }\n}\n");
  expect("block B() {\n fn f(x) {\n m := x # one\n longer := x # two\n }\n}",
         "block B() {\n  fn f(x) {\n    m      := x  # one\n    longer := x  # two\n  }\n}\n");
}

static void comments_stay(void **state) {
  (void)state;
  expect(
      "#one\n\n\n\n# two\nmt 1 # three\ntrain { # four\n a=1\n # five\n\n b=2 # six\n # "
      "seven\n}\n# eight\n",
      "# one\n\n# two\nmt 1  # three\n\ntrain {  # four\n  a = 1\n  # five\n\n  b = 2  # six\n  # "
      "seven\n}\n"
      "# eight\n");
  expect("let x = f(a, # why\n b,\n # own\n c)",
         "let x = f(a,  # why\n          b,\n          # own\n          c)\n");
  expect("fn f() {\n if a { x=1 } # c\n # d\n else { y=2 }\n}",
         "fn f() {\n  if a { x = 1 }  # c\n  # d\n  else { y = 2 }\n}\n");
  expect("# only a comment", "# only a comment\n");
  expect("", "");
}

static void long_lines_break_at_the_outermost_bracket(void **state) {
  (void)state;
  expect(
      "fn f() { return g(aaaaaaaaaaaaaaaaaaaaaaaaaaaa(bbbbbbbbbbbbbbbbb, ccccccccccccccc), "
      "dddddddddddddddddddd, "
      "eeeeeeeeeeee) }",
      "fn f() {\n"
      "  return g(aaaaaaaaaaaaaaaaaaaaaaaaaaaa(bbbbbbbbbbbbbbbbb, ccccccccccccccc), "
      "dddddddddddddddddddd,\n"
      "           eeeeeeeeeeee)\n"
      "}\n");
  expect(
      "let x = aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa + "
      "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb + "
      "cccccccccccccccccccccccccc",
      "let x = aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa + "
      "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb\n"
      "    + cccccccccccccccccccccccccc\n");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(examples_are_canonical),
      cmocka_unit_test(examples_survive_any_layout),
      cmocka_unit_test(spaces),
      cmocka_unit_test(columns_line_up),
      cmocka_unit_test(comments_stay),
      cmocka_unit_test(long_lines_break_at_the_outermost_bracket),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
