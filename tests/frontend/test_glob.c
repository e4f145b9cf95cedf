/* Selectors against paths and tags. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "frontend/job.h"

static bool is(const char *pattern, const char *path) {
  return selector_match(pattern, path, NULL);
}

static void literal_paths(void **state) {
  (void)state;
  assert_true(is("ln_f.w", "ln_f.w"));
  assert_false(is("ln_f.w", "ln_f.wx"));
  assert_false(is("ln_f.w", "ln_f"));
  assert_false(is("", "w"));
  assert_false(is("", ""));
}

static void stars_cross_dots(void **state) {
  (void)state;
  assert_true(is("*.b", "h.3.attn.q.b"));
  assert_false(is("*.b", "b"));
  assert_true(is("*norm*", "h.0.norm1.w"));
  assert_true(is("*.ln_*.w", "h.0.ln_1.w"));
  assert_false(is("*.ln_*.w", "ln_f.w"));
  assert_true(is("*", "anything.at.0.all"));
  assert_true(is("a*b*c", "axxbyybc"));
  assert_false(is("a*b*c", "axxcyyb"));
  assert_true(is("**", ""));
}

static void indices(void **state) {
  (void)state;
  assert_true(is("h[*].attn.q", "h.3.attn.q"));
  assert_true(is("h[*].attn.q", "h.31.attn.q"));
  assert_false(is("h[*].attn.q", "h.attn.q"));
  assert_false(is("h[*]", "h.3.attn"));
  assert_true(is("h[*]", "h.3"));
  assert_true(is("h[3].w", "h.3.w"));
  assert_false(is("h[3].w", "h.31.w"));
  assert_true(is("h[0..4].w", "h.3.w"));
  assert_false(is("h[0..4].w", "h.4.w"));
  assert_false(is("h[x].w", "h.3.w"));
  assert_false(is("h[3", "h.3"));
  assert_true(is("*[*].q", "a.b.12.q"));
}

static void alternatives(void **state) {
  (void)state;
  assert_true(is("h[*].attn.{q,v}", "h.0.attn.v"));
  assert_false(is("h[*].attn.{q,v}", "h.0.attn.k"));
  assert_true(is("{a,b{c,d}}.w", "bd.w"));
  assert_false(is("{a,b{c,d}}.w", "b.w"));
  assert_true(is("x{,y}", "x"));
  assert_true(is("x{,y}", "xy"));
  assert_false(is("{a,b", "a"));
  assert_true(is("*.a, *.b", "h.0.q.b"));
  assert_true(is("*.a, *.b", "h.0.q.a"));
  assert_false(is("*.a, *.b", "h.0.q.w"));
}

static void tags(void **state) {
  (void)state;
  assert_true(selector_match("op:softmax", "h.0.attn", "softmax"));
  assert_false(selector_match("op:softmax", "softmax", NULL));
  assert_false(selector_match("op:softmax", "h.0.attn", "gelu"));
  assert_true(selector_match("op:{gelu,relu}", "x", "relu"));
  assert_true(selector_match("op:*norm", "x", "layernorm"));
  assert_false(selector_match("softmax", "x", "softmax"));
}

static void covers_what_a_layer_holds(void **state) {
  (void)state;
  assert_true(selector_covers("enc", "enc.3.attn.q.w", NULL));
  assert_true(selector_covers("h[*].attn", "h.3.attn.q.w", NULL));
  assert_true(selector_covers("op:gelu", "h.3", "gelu"));
  assert_false(selector_covers("norm", "norm1.w", NULL));
  assert_false(selector_covers("h[0]", "h.3.w", NULL));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(literal_paths), cmocka_unit_test(stars_cross_dots),
      cmocka_unit_test(indices),       cmocka_unit_test(alternatives),
      cmocka_unit_test(tags),          cmocka_unit_test(covers_what_a_layer_holds),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
