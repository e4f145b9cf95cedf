/* The parser: trees, places, recovery, limits, hostile bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "frontend/ast.h"

typedef struct {
  Arena *arena;
  Diags *diags;
  File *file;
} Parsed;

static Parsed parse_n(const char *text, size_t n) {
  Parsed p = {.arena = arena_new()};
  p.diags = diags_new(p.arena);
  p.file = mt_parse_text(p.arena, p.diags, "t.mt", text, n);
  assert_non_null(p.file);
  return p;
}
static Parsed parse(const char *text) {
  return parse_n(text, strlen(text));
}

static Parsed parse_ok(const char *text) {
  Parsed p = parse(text);
  if (p.diags->errors) diag_render(p.diags, stderr, false);
  assert_int_equal(p.diags->errors, 0);
  return p;
}

/* The first expression of `let x = EXPR`, as a dump. */
static void expect_tree(const char *expr, const char *tree) {
  Arena *a = arena_new();
  Parsed p = parse_ok(arena_printf(a, "let x = %s", expr));
  Str s = {.arena = a};
  mt_dump(p.file, &s);
  const char *want = arena_printf(a, "(mt 1)\n(let name \"x\" %s)\n", tree);
  assert_string_equal(s.text, want);
  arena_free(p.arena);
  arena_free(a);
}

static void expect_error(const char *text, int line, int col, const char *message) {
  Parsed p = parse(text);
  assert_true(p.diags->errors >= 1);
  const Diag *d = p.diags->all.at[0];
  assert_string_equal(d->message, message);
  assert_int_equal(d->primary.loc.line, line);
  assert_int_equal(d->primary.loc.col, col);
  arena_free(p.arena);
}

static void examples_parse(void **state) {
  (void)state;
  static const struct {
    const char *path;
    int items;
  } files[] = {{"bert_cls", 7},   {"char", 5},     {"gpt2", 7}, {"llama", 10},
               {"llama_lora", 6}, {"qwen2", 7},    {"resnet50", 7}, {"t5", 10},   {"std/nn", 7}};
  for (int i = 0; i < COUNT_OF(files); i++) {
    Arena *a = arena_new();
    Diags *d = diags_new(a);
    File *f = mt_parse_file(a, d, arena_printf(a, MTC_SOURCE_DIR "/models/%s.mt", files[i].path));
    assert_non_null(f);
    assert_int_equal(d->errors, 0);
    assert_int_equal(f->items.n, files[i].items);
    assert_int_equal(f->version, 1);
    arena_free(a);
  }
}

static void missing_file(void **state) {
  (void)state;
  Arena *a = arena_new();
  Diags *d = diags_new(a);
  assert_null(mt_parse_file(a, d, MTC_SOURCE_DIR "/models/none.mt"));
  assert_int_equal(d->errors, 1);
  assert_int_equal(d->all.at[0]->id, E_FILE);
  arena_free(a);
}

static void precedence(void **state) {
  (void)state;
  expect_tree("a + b * c", "(binary + (name \"a\") (binary * (name \"b\") (name \"c\")))");
  expect_tree("a - b - c", "(binary - (binary - (name \"a\") (name \"b\")) (name \"c\"))");
  expect_tree("-a ** -b", "(unary - (binary ** (name \"a\") (unary - (name \"b\"))))");
  expect_tree("a ** b ** c", "(binary ** (name \"a\") (binary ** (name \"b\") (name \"c\")))");
  expect_tree(
      "y + b as [1, C]",
      "(binary + (name \"y\") (as (name \"b\") (type float of (num \"1\" 1 int) (name \"C\"))))");
  expect_tree("not a == b and c",
              "(binary and (unary not (binary == (name \"a\") (name \"b\"))) (name \"c\"))");
  expect_tree("a or b and c", "(binary or (name \"a\") (binary and (name \"b\") (name \"c\")))");
  expect_tree("a ? b : c ? d : e",
              "(cond (name \"a\") (name \"b\") (cond (name \"c\") (name \"d\") (name \"e\")))");
  expect_tree("x @ w.T", "(binary @ (name \"x\") (field \"T\" (name \"w\")))");
  expect_tree("(a, b)", "(tuple (name \"a\") (name \"b\"))");
  expect_tree("(a)", "(p:name \"a\")");
  expect_tree("f(x)(y, k = 2)",
              "(call (call (name \"f\") (name \"x\")) (name \"y\") k=(num \"2\" 2 int))");
}

static void literals(void **state) {
  (void)state;
  expect_tree("1_000_000", "(num \"1_000_000\" 1000000 int)");
  expect_tree("1e-4", "(num \"1e-4\" 0.0001)");
  expect_tree("24G", "(size \"24G\" 25769803776)");
  expect_tree("1.5KiB", "(size \"1.5KiB\" 1536)");
  expect_tree("\"a\\\"b\\\\\\n\"", "(string \"a\\\"b\\\\\\n\")");
  expect_tree("[true, none, auto]", "(list (bool \"true\") (none \"none\") (auto \"auto\"))");
  expect_tree("u16", "(dtype \"u16\")");
  expect_tree(
      "x[:, 0, .., *, 1:n]",
      "(index (name \"x\") : (num \"0\" 0 int) .. * (range (num \"1\" 1 int) (name \"n\")))");
}

static void places_count_bytes(void **state) {
  (void)state;
  Parsed p = parse_ok("# h\xc3\xa9\n\tlet x = \"\xc3\xa9\" + foo\n");
  const Expr *e = p.file->items.at[0]->value;
  assert_int_equal(e->loc.line, 2);
  assert_int_equal(e->loc.col, 10);
  assert_int_equal(e->loc.len, 10);
  assert_int_equal(e->op_loc.col, 15);
  assert_int_equal(e->b->loc.col, 17);
  assert_int_equal(e->b->loc.len, 3);
  assert_int_equal(p.file->comments.n, 1);
  assert_true(p.file->comments.at[0].own_line);
  arena_free(p.arena);
}

static void names_are_interned(void **state) {
  (void)state;
  Parsed p = parse_ok("let foo = foo");
  assert_ptr_equal(p.file->items.at[0]->name.text, p.file->items.at[0]->value->text);
  assert_ptr_equal(p.file->items.at[0]->name.text, intern("foo"));
  arena_free(p.arena);
}

static void messages(void **state) {
  (void)state;
  expect_error("let x = f(a, D D)", 1, 16,
               "expected `,` or `)` after this argument, found name `D`");
  expect_error("use std", 1, 5, "expected a string after `use`, found name `std`");
  expect_error("train { steps 5 }", 1, 15, "expected `=` or `{` after `steps`, found number `5`");
  expect_error("block A() { layer state = B() }", 1, 19,
               "expected a name after `layer`, found keyword `state`");
  expect_error("block A() { param w [D D] }", 1, 24,
               "expected `,` or `]` after this size or index, found name `D`");
  expect_error("fn f() {\n  y = a +\n  z = b\n}", 2, 9,
               "expected an expression after `+`, found a new line");
  expect_error("let x = \"abc\n", 1, 9, "this string has no end on its line");
  expect_error("let x = 12abc", 1, 9, "`12abc` is no number");
  expect_error("let x = a && b", 1, 11, "`&&` is not part of the language");
  expect_error("let x = 9007199254740993", 1, 9,
               "number out of range: whole numbers go up to 2^53");
  expect_error("let x = 1e999", 1, 9, "number out of range");
  expect_error("let x = \"\\q\"", 1, 10, "unknown escape in a string");
  expect_error("mt 2", 1, 4, "this mtc reads version 1 of the language, not 2");
  expect_error("block A() { param w u8[3] }", 1, 21,
               "`u8` is a format of storage, not a type of values");
}

static void label_at_the_open_bracket(void **state) {
  (void)state;
  Parsed p = parse("let x = f(a,\n  b c)");
  const Diag *d = p.diags->all.at[0];
  assert_int_equal(d->labels.n, 1);
  assert_int_equal(d->labels.at[0].loc.line, 1);
  assert_int_equal(d->labels.at[0].loc.col, 10);
  assert_string_equal(d->labels.at[0].text, "opened here");
  arena_free(p.arena);
}

/* Each of these lines has one error; the ones between are understood. */
static void recovery_finds_each_error(void **state) {
  (void)state;
  Parsed p = parse(
      "use 5\n"
      "block A(D) {\n"
      "  layer q = Linear(D D)\n"
      "  param w [D] = ones\n"
      "  layer = 3\n"
      "  fn forward(x [B]) -> [B] {\n"
      "    y = f(x\n"
      "    z = g(x)\n"
      "    if z = 3 { y = 2 }\n"
      "    return y +\n"
      "  }\n"
      "  let k = 3\n"
      "}\n"
      "train {\n"
      "  steps 5\n"
      "  batch = 3\n"
      "  lr = = 4\n"
      "}\n"
      "model M() { layer a = A(3) }\n");
  static const int lines[] = {1, 3, 5, 8, 9, 11, 15, 17};
  assert_int_equal(p.diags->errors, COUNT_OF(lines));
  for (int i = 0; i < COUNT_OF(lines); i++)
    assert_int_equal(p.diags->all.at[i]->primary.loc.line, lines[i]);
  /* block A with w, forward and k; train with batch; M */
  assert_int_equal(p.file->items.n, 3);
  assert_int_equal(p.file->items.at[0]->members.n, 3);
  assert_int_equal(p.file->items.at[1]->entries.n, 1);
  arena_free(p.arena);
}

static void missing_brace_is_one_error(void **state) {
  (void)state;
  Parsed p = parse(
      "block A(D) {\n"
      "  fn f(x) {\n"
      "    return x\n"
      "  fn g(x) { return x }\n"
      "}\n"
      "block B(D) {\n"
      "  let k = D\n"
      "block C() {}\n");
  assert_int_equal(p.diags->errors, 2);
  assert_int_equal(p.diags->all.at[0]->primary.loc.line, 4);
  assert_int_equal(p.diags->all.at[1]->primary.loc.line, 8);
  assert_int_equal(p.file->items.n, 3);
  assert_int_equal(p.file->items.at[0]->members.n, 2);
  arena_free(p.arena);
}

static void stops_after_twenty(void **state) {
  (void)state;
  Arena *a = arena_new();
  Str s = {.arena = a};
  for (int i = 0; i < 50; i++) str_add(&s, "let = 3\n");
  Parsed p = parse(s.text);
  assert_int_equal(p.diags->errors, 20);
  arena_free(p.arena);
  arena_free(a);
}

static char *repeat(const char *text, int n, const char *tail) {
  size_t len = strlen(text), end = strlen(tail);
  char *s = malloc(len * (size_t)n + end + 16);
  assert_non_null(s);
  strcpy(s, "let x = ");
  for (int i = 0; i < n; i++) memcpy(s + 8 + len * (size_t)i, text, len);
  strcpy(s + 8 + len * (size_t)n, tail);
  return s;
}

static void nesting_is_bounded(void **state) {
  (void)state;
  static const char *const parts[] = {
      "(",    "[",  "-",     "not ",          "f(",    "x[",           "a ? ",
      "a + ", "a.", "a ** ", "a as [b] as [", "a = {", "if a { if b {"};
  for (int i = 0; i < COUNT_OF(parts); i++) {
    char *text = repeat(parts[i], 20000, "x");
    Parsed p = parse(text);
    assert_true(p.diags->errors >= 1);
    arena_free(p.arena);
    free(text);
  }
  char *sum = repeat("a + ", 200, "a");
  Parsed p = parse_ok(sum);
  arena_free(p.arena);
  free(sum);
}

static void hostile_bytes(void **state) {
  (void)state;
  Parsed p = parse_n("let x = 1\0 2\nlet y = 3 # c\0d\n", 30);
  assert_int_equal(p.diags->errors, 2);
  arena_free(p.arena);
  p = parse_n("", 0);
  assert_int_equal(p.diags->errors, 0);
  arena_free(p.arena);
  p = parse("}}}}");
  assert_true(p.diags->errors >= 1);
  arena_free(p.arena);
  char *line = repeat("ab ", 350000, "\n");
  p = parse(line);
  assert_true(p.diags->errors >= 1);
  arena_free(p.arena);
  free(line);
  size_t n = (16u << 20) + 1;
  char *big = malloc(n + 1);
  assert_non_null(big);
  memset(big, '\n', n);
  big[n] = 0;
  p = parse_n(big, n);
  assert_int_equal(p.diags->all.at[0]->id, E_FILE);
  arena_free(p.arena);
  free(big);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(examples_parse),
      cmocka_unit_test(missing_file),
      cmocka_unit_test(precedence),
      cmocka_unit_test(literals),
      cmocka_unit_test(places_count_bytes),
      cmocka_unit_test(names_are_interned),
      cmocka_unit_test(messages),
      cmocka_unit_test(label_at_the_open_bracket),
      cmocka_unit_test(recovery_finds_each_error),
      cmocka_unit_test(missing_brace_is_one_error),
      cmocka_unit_test(stops_after_twenty),
      cmocka_unit_test(nesting_is_bounded),
      cmocka_unit_test(hostile_bytes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
