/* cmd_problem.c - `mtc plan --problem F.jsonl [--budget SIZE]`: recompute for a graph that is not
 * ours (docs/problem.md).
 *
 * Without a budget it prints the front: how much time each peak costs. With one it answers which
 * outputs to drop and which ops to run again, with the exact peak and the added time; exits with 3
 * when it finds no plan. */
#include <errno.h>
#include <jansson.h>
#include <string.h>
#include "frontend/cli.h"
#include "passes/recompute_file.h"

int cmd_problem(Cli *c);

typedef struct {
  const RecFile *file;
  RecFront front;
  RecPlan *plan;       /* chosen by the budget, or NULL */
  int64_t budget;      /* -1: not given */
  int64_t lower_bound; /* no plan has a lower peak */
  int *times;          /* per op: rebuilds in the plan */
  bool *dropped;       /* per value: rebuilt and read again */
} Answer;

/* Every op needs its inputs, its outputs and its workspace at once. */
static int64_t lower_bound(const RecProblem *p) {
  int64_t most = 0;
  bool *made = NULL;
  Arena *a = arena_new();
  made = arena_array(a, bool, p->nval);
  for (int k = 0; k < p->nop; k++) {
    const RecOp *o = &p->op[k];
    int64_t bytes = o->ws;
    for (int i = 0; i < o->nin; i++)
      if (made[o->in[i]]) bytes += p->bytes[o->in[i]];
    for (int i = 0; i < o->nout; i++) {
      made[o->out[i]] = true;
      if (i > 0 || o->alias < 0) bytes += p->bytes[o->out[i]];
    }
    if (bytes > most) most = bytes;
  }
  arena_free(a);
  return most;
}

static RecPlan *select_plan(RecFront *f, int64_t budget) {
  for (int i = 0; i < f->n; i++)
    if (f->at[i].peak <= budget) return &f->at[i];
  return NULL;
}

/* A value counts as dropped when a rebuilt instance of it is read. */
static void find_rebuilds(Cli *c, Answer *a) {
  const RecProblem *p = &a->file->problem;
  bool *ran = arena_array(c->arena, bool, p->nop), *rebuilt = arena_array(c->arena, bool, p->nval);
  a->times = arena_array(c->arena, int, p->nop);
  a->dropped = arena_array(c->arena, bool, p->nval);
  for (int t = 0; t < a->plan->ntrace; t++) {
    int k = a->plan->trace[t];
    const RecOp *o = &p->op[k];
    for (int i = 0; i < o->nin; i++)
      if (rebuilt[o->in[i]]) a->dropped[o->in[i]] = true;
    for (int i = 0; i < o->nout; i++) rebuilt[o->out[i]] = ran[k];
    a->times[k] += ran[k];
    ran[k] = true;
  }
}

static double percent(int64_t part, int64_t whole) {
  return whole > 0 ? 100.0 * (double)part / (double)whole : 0;
}

/* ---- text ---- */
static void print_front(Cli *c, const Answer *a) {
  enum { ROWS = 16 };
  const RecFront *f = &a->front;
  int64_t peak = f->at[0].peak, ns = f->at[0].ns, last = -1;
  printf("%14s %8s %10s\n", "peak", "of full", "added time");
  for (int row = 0; row <= ROWS; row++) {
    int64_t budget = f->floor + (int64_t)((__int128)(peak - f->floor) * (ROWS - row) / ROWS);
    const RecPlan *p = select_plan((RecFront *)f, budget);
    if (!p || p->peak == last) continue;
    last = p->peak;
    printf("%14s %6.1f %% %8.2f %%\n", format_bytes(c->arena, p->peak), percent(p->peak, peak),
           percent(p->ns - ns, ns));
  }
}

static void print_plan(Cli *c, const Answer *a) {
  const RecProblem *p = &a->file->problem;
  const RecPlan *base = &a->front.at[0];
  int ndropped = 0, nagain = 0;
  for (int v = 0; v < p->nval; v++) ndropped += a->dropped[v];
  for (int k = 0; k < p->nop; k++) nagain += a->times[k];
  printf("peak          %s of %s (%.1f %% of %s without recompute)\n",
         format_bytes(c->arena, a->plan->peak), format_bytes(c->arena, a->budget),
         percent(a->plan->peak, base->peak), format_bytes(c->arena, base->peak));
  printf("added time    %.3f %% (%s ns of %s)\n", percent(a->plan->ns - base->ns, base->ns),
         format_count(c->arena, a->plan->ns - base->ns), format_count(c->arena, base->ns));
  printf("dropped       %d value%s\n", ndropped, ndropped == 1 ? "" : "s");
  printf("recomputed    %d op%s\n", nagain, nagain == 1 ? "" : "s");
  if (c->flag.quiet || !nagain) return;
  putchar('\n');
  for (int k = 0; k < p->nop; k++) {
    if (!a->times[k]) continue;
    printf("  op %d %s", k, p->op[k].name);
    if (a->times[k] > 1) printf(", %d times", a->times[k]);
    for (int i = 0; i < p->op[k].nout; i++) {
      int v = p->op[k].out[i];
      if (a->dropped[v])
        printf(", value %lld (%s)", (long long)a->file->id[v], format_bytes(c->arena, p->bytes[v]));
    }
    putchar('\n');
  }
}

/* ---- JSON ---- */
static void add_plan(json_t *o, const Answer *a) {
  const RecProblem *p = &a->file->problem;
  json_t *dropped = json_array(), *again = json_array(), *order = json_array();
  for (int v = 0; v < p->nval; v++)
    if (a->dropped[v]) json_array_append_new(dropped, json_integer(a->file->id[v]));
  for (int k = 0; k < p->nop; k++)
    if (a->times[k])
      json_array_append_new(again, json_pack("{s:i, s:s, s:i}", "op", k, "name", p->op[k].name,
                                             "times", a->times[k]));
  for (int t = 0; t < a->plan->ntrace; t++)
    json_array_append_new(order, json_integer(a->plan->trace[t]));
  json_object_set_new(o, "peak_bytes", json_integer(a->plan->peak));
  json_object_set_new(o, "ns", json_integer(a->plan->ns));
  json_object_set_new(o, "added_ns", json_integer(a->plan->ns - a->front.at[0].ns));
  json_object_set_new(o, "dropped", dropped);
  json_object_set_new(o, "recomputed", again);
  json_object_set_new(o, "order", order);
}

static void print_json(const Answer *a) {
  json_t *o = json_object(), *front = json_array();
  for (int i = 0; i < a->front.n; i++)
    json_array_append_new(
        front, json_pack("{s:I, s:I}", "peak_bytes", (json_int_t)a->front.at[i].peak, "ns",
                         (json_int_t)a->front.at[i].ns));
  json_object_set_new(o, "schema", json_string("mtc.problem/1"));
  json_object_set_new(o, "ops", json_integer(a->file->problem.nop));
  json_object_set_new(o, "budget_bytes", a->budget < 0 ? json_null() : json_integer(a->budget));
  json_object_set_new(o, "feasible", json_boolean(a->plan != NULL));
  json_object_set_new(o, "base_peak_bytes", json_integer(a->front.at[0].peak));
  json_object_set_new(o, "base_ns", json_integer(a->front.at[0].ns));
  json_object_set_new(o, "floor_bytes", json_integer(a->front.floor));
  json_object_set_new(o, "lower_bound_bytes", json_integer(a->lower_bound));
  if (a->plan) add_plan(o, a);
  json_object_set_new(o, "front", front);
  json_dumpf(o, stdout, JSON_COMPACT | JSON_ENSURE_ASCII);
  putchar('\n');
  json_decref(o);
}

static int no_plan(Cli *c, const Answer *a) {
  const char *floor = format_count(c->arena, a->front.floor),
             *least = format_count(c->arena, a->lower_bound);
  if (a->budget < a->lower_bound)
    return cli_fail(c, EXIT_INFEASIBLE,
                    "no plan fits %s: one op alone needs %s bytes (proven); the floor found is %s",
                    c->flag.budget.text, least, floor);
  return cli_fail(
      c, EXIT_INFEASIBLE,
      "found no plan within %s: the floor found is %s bytes (not proven; at least %s are needed)",
      c->flag.budget.text, floor, least);
}

int cmd_problem(Cli *c) {
  const char *path = c->flag.problem, *why = NULL;
  size_t size;
  char *text = read_file(c->arena, path, &size);
  if (!text) return cli_fail(c, EXIT_IO, "cannot read `%s`: %s", path, strerror(errno));
  Answer a = {.file = recompute_read(c->arena, text, size, &why), .budget = -1};
  if (!a.file) return cli_fail(c, EXIT_IO, "%s: %s", path, why);
  const RecProblem *p = &a.file->problem;
  a.front = recompute_front(c->arena, p, &(RecOptions){.effort = 1});
  a.lower_bound = lower_bound(p);
  if (c->flag.budget.text) {
    a.budget = cli_bytes(&c->flag.budget, a.front.at[0].peak);
    a.plan = select_plan(&a.front, a.budget);
  }
  if (a.plan) {
    recompute_trace(c->arena, p, a.plan);
    bool sound = recompute_check(p, a.plan, c->arena, &why);
    ensure(sound, "the plan is wrong: %s", why);
    find_rebuilds(c, &a);
  }
  if (c->flag.json) {
    print_json(&a);
  } else if (a.plan) {
    print_plan(c, &a);
  } else if (!c->flag.budget.text) {
    print_front(c, &a);
  }
  return a.plan || !c->flag.budget.text ? EXIT_OK : no_plan(c, &a);
}
