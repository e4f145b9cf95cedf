/* test_recompute_sim.c - the simulator: a trial gives what a full run of the changed decision
 * gives, whatever was accepted or rejected before; a trace replays to what the run claims; reading
 * of problem files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "passes/recompute_file.h"
#include "passes/recompute_impl.h"
#include "random_problem.h"

static RecModel *model_of(Arena *a, const RecProblem *p, RecSim **sim) {
  RecModel *m = rec_model(a, p);
  *sim = sim_new(m, a);
  RecResult base = sim_run(*sim, decision_new(m, a), NULL);
  m->base_peak = base.peak;
  m->base_ns = base.ns;
  rec_find_items(m, 0);
  return m;
}

static RecChange random_change(const RecModel *m, uint64_t *rng) {
  enum { ORDERS = 3 };
  if (m->nflag && random_below(rng, 4) == 0) {
    int flags = random_below(rng, ORDERS) | (random_below(rng, 2) ? CHAIN_EARLY : 0);
    return (RecChange){
        .item = -1, .op = m->flag_op[random_below(rng, m->nflag)], .to = (uint8_t)flags};
  }
  return (RecChange){.item = random_below(rng, m->nitem),
                     .to = (uint8_t)random_below(rng, STATE_COUNT)};
}

static void same_result(RecResult t, RecResult full, int64_t watched) {
  assert_int_equal(t.peak, full.peak);
  assert_int_equal(t.ns, full.ns);
  if (full.peak == REC_INFEASIBLE) return;
  assert_int_equal(t.at, full.at);
  assert_int_equal(t.twins, full.twins);
  assert_int_equal(t.watched, watched);
}

static void trials_on(const RecProblem *p, uint64_t *rng, int rounds) {
  Arena *a = arena_new();
  RecSim *s, *reference;
  RecModel *m = model_of(a, p, &s);
  int64_t *live = arena_array(a, int64_t, m->nop);
  reference = sim_new(m, a);
  if (m->nitem) {
    sim_load(s, decision_new(m, a));
    for (int i = 0; i < rounds; i++) {
      RecChange c[4];
      int n = 1 + random_below(rng, 4), watch = random_below(rng, m->nop);
      for (int k = 0; k < n; k++) c[k] = random_change(m, rng);
      sim_watch(s, watch);
      RecResult t = sim_try(s, c, n);
      RecResult full = sim_run(reference, sim_decision(s), live);
      same_result(t, full, live[watch]);
      if (t.peak != REC_INFEASIBLE && random_below(rng, 2)) {
        sim_accept(s);
        assert_int_equal(sim_base(s).peak, full.peak);
      } else {
        sim_reject(s);
      }
    }
  }
  arena_free(a);
}

static void trials(void **state) {
  (void)state;
  uint64_t rng = 2024;
  for (int round = 0; round < 150; round++) {
    Arena *a = arena_new();
    RecProblem p = random_problem(a, &rng, 4 + random_below(&rng, 60), 1 + random_below(&rng, 5));
    trials_on(&p, &rng, 60);
    arena_free(a);
  }
  Arena *a = arena_new();
  RecProblem u = unet(a, 16, 128, 3, 64, 1);
  RecProblem t = transformer(a, (Transformer){3, 768, 12, 1024, 16, 50304, 0, false});
  trials_on(&u, &rng, 3000);
  trials_on(&t, &rng, 3000);
  arena_free(a);
}

/* The replay needs what the run claims; less only where a value was rebuilt that was still there.
 */
static void traces(void **state) {
  (void)state;
  uint64_t rng = 77;
  int exact = 0;
  for (int round = 0; round < 300; round++) {
    Arena *a = arena_new();
    RecProblem p = random_problem(a, &rng, 4 + random_below(&rng, 50), 1 + random_below(&rng, 5));
    RecSim *s;
    RecModel *m = model_of(a, &p, &s);
    uint8_t *d = decision_new(m, a);
    for (int i = 0; i < m->nitem; i++)
      if (random_below(&rng, 2)) decision_set(m, d, i, (GapState)random_below(&rng, STATE_COUNT));
    RecResult r = sim_run(s, d, NULL);
    if (r.peak != REC_INFEASIBLE) {
      RecPlan plan = {.peak = r.peak, .ns = r.ns};
      const char *why = "";
      plan.ntrace = sim_trace(s, d, a, &plan.trace);
      bool same = recompute_check(&p, &plan, a, &why);
      if (!same && !r.twins) fail_msg("round %d: %s", round, why);
      if (!same) assert_non_null(strstr(why, "peak"));
      exact += same;
    }
    arena_free(a);
  }
  assert_true(exact > 100);
}

/* ---- files ---- */
static RecFile *read_text(Arena *a, const char *text, const char **why) {
  return recompute_read(a, text, strlen(text), why);
}

static void reads_a_file(void **state) {
  (void)state;
  Arena *a = arena_new();
  const char *why = NULL;
  RecFile *f = read_text(
      a,
      "{\"op\": \"emb\", \"ns\": 5, \"in\": [900], \"out\": [{\"id\": 7, \"bytes\": 64}]}\n"
      "\n"
      "{\"op\": \"view\", \"ns\": 1, \"in\": [7], \"out\": [{\"id\": 8, \"bytes\": 64}], "
      "\"alias\": {\"8\": 7}}\n"
      "{\"op\": \"inplace\", \"ns\": 2.6, \"ws\": 9, \"layer\": 3, \"in\": [7, 8, 7],"
      " \"out\": [{\"id\": 10, \"bytes\": 4}, {\"id\": 9, \"bytes\": 64}], \"alias\": {\"9\": 8}, "
      "\"free\": [7, 8]}\n"
      "{\"op\": \"bwd\", \"ns\": 1, \"in\": [9, 10], \"out\": [], \"nograd\": true, \"free\": "
      "[9]}\n",
      &why);
  if (!f) fail_msg("%s", why);
  const RecProblem *p = &f->problem;
  assert_int_equal(p->nop, 4);
  assert_int_equal(p->op[0].nin, 1);
  assert_int_equal(f->id[p->op[0].in[0]], 900); /* nothing makes it: persistent */
  assert_int_equal(p->op[1].nout, 0);           /* a view: 8 is 7 */
  assert_int_equal(p->op[2].nin, 1);
  assert_int_equal(f->id[p->op[2].in[0]], 7);
  assert_int_equal(p->op[2].ns, 3);
  assert_int_equal(p->op[2].ws, 9);
  assert_int_equal(p->op[2].layer, 3);
  assert_int_equal(f->id[p->op[2].out[0]], 9); /* the one in place comes first */
  assert_int_equal(f->id[p->op[2].alias], 7);
  assert_true(p->op[2].redo);
  assert_true(p->op[3].bwd);
  assert_false(p->op[3].redo);
  assert_true(p->keep[p->op[2].out[1]]); /* 10 is never freed */
  assert_false(p->keep[p->op[2].out[0]]);
  arena_free(a);
}

static void file_errors(void **state) {
  (void)state;
  static const struct {
    const char *text, *why;
  } cases[] = {
      {"", "no op"},
      {"{\"op\": \"a\", \"ns\": 1}\n{oops}\n", "line 2"},
      {"[1]\n", "not a JSON object"},
      {"{\"op\": \"a\", \"ns\": -4}", "\"ns\""},
      {"{\"op\": \"a\", \"in\": 3}", "\"in\""},
      {"{\"op\": \"a\", \"out\": [{\"bytes\": 3}]}", "no \"id\""},
      {"{\"op\": \"a\", \"out\": [{\"id\": 1, \"bytes\": 3}]}\n{\"op\": \"b\", \"out\": [{\"id\": "
       "1, \"bytes\": 3}]}",
       "made twice"},
      {"{\"op\": \"a\", \"in\": [1]}\n{\"op\": \"b\", \"out\": [{\"id\": 1, \"bytes\": 3}]}",
       "after line 1 read it"},
      {"{\"op\": \"a\", \"out\": [{\"id\": 1, \"bytes\": 3}], \"alias\": {\"1\": 2}}",
       "no input here"},
      {"{\"op\": \"a\", \"in\": [2], \"out\": [{\"id\": 1, \"bytes\": 3}], \"alias\": {\"3\": 2}}",
       "no output here"},
      {"{\"op\": \"a\", \"bwd\": 1}", "true or false"},
      {"{\"op\": \"a\", \"out\": [{\"id\": 1, \"bytes\": 2e18}]}", "2^60"},
      {"{\"op\": \"a\", \"ns\": 1e17}", "2^50"},
      {"{\"in\": [1], \"out\": [{\"id\": 1, \"bytes\": 2}]}", "op that makes it"},
  };
  for (int i = 0; i < COUNT_OF(cases); i++) {
    Arena *a = arena_new();
    const char *why = NULL;
    assert_null(read_text(a, cases[i].text, &why));
    assert_non_null(why);
    if (!strstr(why, cases[i].why)) fail_msg("`%s` does not say `%s`", why, cases[i].why);
    arena_free(a);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(trials),
      cmocka_unit_test(traces),
      cmocka_unit_test(reads_a_file),
      cmocka_unit_test(file_errors),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
