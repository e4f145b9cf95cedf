/* cli_plan.c - from flags to a plan (see cli_plan.h). */
#include "frontend/cli_plan.h"
#include "passes/chunk.h"
#include "passes/formats.h"
#include "passes/optimizer.h"

#include <ctype.h>
#include <string.h>
#include <unistd.h>

#include "codegen/target_file.h"
#include "passes/pass_table.h"
#include "runtime/cuda_api.h"

/* ---- target ---- */

static bool contains_word(const char *text, const char *word) { return strcasestr(text, word) != NULL; }

/* The table's row of the first local GPU with that GPU's own memory; NULL without one that the table knows. */
static const Target *local_gpu(Cli *c) {
  Fail f = {0};
  CUdevice d;
  char name[128];
  size_t bytes = 0;
  if (!cuda_load(&f) || cu.cuDeviceGet(&d, 0) != CU_SUCCESS) return NULL;
  if (cu.cuDeviceGetName(name, sizeof name, d) != CU_SUCCESS) return NULL;
  if (cu.cuDeviceTotalMem(&bytes, d) != CU_SUCCESS) return NULL;
  for (int i = 0; i < target_count(); i++) {
    const Target *t = target_at(i);
    if (t->kind != DEV_CUDA || !contains_word(name, t->title)) continue;
    Target *mine = arena_copy(c->arena, t, sizeof *t);
    mine->usable_bytes = (int64_t)bytes;
    return mine;
  }
  return NULL;
}

static int unknown_target(Cli *c, const char *name) {
  Str all = {.arena = c->arena};
  VEC(const char *) names = {0};
  for (int i = 0; i < target_count(); i++) {
    str_addf(&all, "%s%s", i ? ", " : "", target_at(i)->name);
    vec_push(c->arena, &names, target_at(i)->name);
  }
  const char *near = nearest_word(name, names.at, names.n);
  return cli_usage(c, "no target `%s`%s%s%s; there are %s", name, near ? " (did you mean `" : "", near ? near : "",
                   near ? "`?)" : "", all.text);
}

static int choose_target(Cli *c, const Target **t) {
  if (c->flag.target && str_ends(c->flag.target, ".json")) {
    const char *why;
    *t = target_read(c->arena, c->flag.target, &why);
    return *t ? EXIT_OK : cli_usage(c, "%s", why);
  }
  if (c->flag.target) {
    *t = target_by_name(c->flag.target);
    return *t ? EXIT_OK : unknown_target(c, c->flag.target);
  }
  if (c->flag.device && !strcmp(c->flag.device, "cpu")) {
    *t = target_by_name("cpu");
    return EXIT_OK;
  }
  *t = local_gpu(c);
  if (*t) return EXIT_OK;
  *t = target_by_name("h100");
  if (!c->flag.quiet) fprintf(stderr, "note: no local GPU that the target table knows; planning for h100 (--target says otherwise)\n");
  return EXIT_OK;
}

/* ---- bounds ---- */

/* Without --vram: the card; on the CPU target half of this machine's memory. */
static int64_t default_budget(Cli *c, const Target *t) {
  if (t->usable_bytes < INT64_MAX) return t->usable_bytes;
  int64_t bytes = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGE_SIZE) / 2;
  if (!c->flag.quiet)
    fprintf(stderr, "note: no --vram; planning for %s, half of this machine's memory\n", format_bytes(c->arena, bytes));
  return bytes;
}

static int positive(Cli *c, const char *flag, int64_t v) {
  return v == 0 ? cli_usage(c, "%s takes a whole number from 1 on", flag) : EXIT_OK;
}

static int check_micro_batch(Cli *c, const Job *job, int64_t b) {
  for (int i = 0; i < job->phases.n; i++) {
    int64_t samples = phase_samples(job, i);
    if (samples % b == 0) continue;
    const char *name = job->phases.at[i].name;
    return cli_usage(c, "--micro-batch %lld does not divide the %lld samples of a step%s%s", (long long)b,
                     (long long)samples, name && *name ? " of phase " : "", name && *name ? name : "");
  }
  return EXIT_OK;
}

/* Every micro-batch, or the one that is asked for, can be cut into that many parts. */
static int check_group(Cli *c, const Job *job, int64_t group, int64_t micro_batch) {
  for (int i = 0; i < job->phases.n; i++) {
    int64_t most = micro_batch > 0 ? micro_batch : phase_samples(job, i);
    if (most % group == 0) continue;
    return cli_usage(c, "--group %lld does not divide the %lld samples of a %s", (long long)group,
                     (long long)most, micro_batch > 0 ? "micro-batch" : "step");
  }
  return EXIT_OK;
}

static int recompute_mode(const char *text) {
  if (!text) return -1;
  return !strcmp(text, "none") ? RC_NONE : !strcmp(text, "full") ? RC_FULL : RC_AUTO;
}

int cli_plan_args(Cli *c, const Job *job, PlanArgs *args) {
  *args = (PlanArgs){.recompute = recompute_mode(c->flag.recompute), .check = c->flag.verbose > 0};
  int code = choose_target(c, &args->target);
  if (code != EXIT_OK) return code;
  const Target *t = args->target;
  int64_t whole = t->usable_bytes < INT64_MAX ? t->usable_bytes : 0;
  args->budget_bytes = c->flag.vram.text ? cli_bytes(&c->flag.vram, whole) : default_budget(c, t);
  if (args->budget_bytes < 0) return cli_usage(c, "--vram %s: a share needs a card with a size of its own", c->flag.vram.text);
  args->reserve_bytes = t->kind == DEV_CUDA ? (int64_t)256 << 20 : 0;
  if (c->flag.reserve.text) args->reserve_bytes = cli_bytes(&c->flag.reserve, whole);
  if (args->reserve_bytes < 0) return cli_usage(c, "--reserve %s: a share needs a card with a size of its own", c->flag.reserve.text);
  if (c->flag.host_ram.text) {
    args->host_bytes = cli_bytes(&c->flag.host_ram, 0);
    if (args->host_bytes < 0) return cli_usage(c, "--host-ram %s: a size, not a share", c->flag.host_ram.text);
  }
  if (c->flag.micro_batch >= 0) {
    code = positive(c, "--micro-batch", c->flag.micro_batch);
    if (code == EXIT_OK) code = check_micro_batch(c, job, c->flag.micro_batch);
    if (code != EXIT_OK) return code;
    args->micro_batch = c->flag.micro_batch;
  }
  if (c->flag.chunks >= 0) {
    if ((code = positive(c, "--chunks", c->flag.chunks)) != EXIT_OK) return code;
    args->chunks = (int)(c->flag.chunks < 65536 ? c->flag.chunks : 65536);
  }
  if (c->flag.mlp_chunks >= 0) {
    if ((code = positive(c, "--mlp-chunks", c->flag.mlp_chunks)) != EXIT_OK) return code;
    args->mlp_chunks = (int)(c->flag.mlp_chunks < MAX_MLP_CHUNKS ? c->flag.mlp_chunks : MAX_MLP_CHUNKS);
  }
  if (c->flag.group >= 0) {
    if ((code = positive(c, "--group", c->flag.group)) != EXIT_OK) return code;
    if ((code = check_group(c, job, c->flag.group, args->micro_batch)) != EXIT_OK) return code;
    args->group = (int)c->flag.group;
  }
  return EXIT_OK;
}

/* ---- remedies: changes that are planned before they are suggested ---- */

static const char exact[] = "exact: the same bits", numeric[] = "changes numerics";

/* Settings changed together, and the reserve given up. */
typedef struct {
  struct {
    const char *key, *value;
  } set[2]; /* NULL: no more */
  const char *effect;
  bool dim, no_reserve;
} Change;

static const char *change_text(Cli *c, const Change *ch) {
  Str s = {.arena = c->arena};
  for (int i = 0; i < COUNT_OF(ch->set) && ch->set[i].key; i++)
    str_addf(&s, "%s%s %s=%s", i ? " " : "", ch->dim ? "-D" : "--set", ch->set[i].key, ch->set[i].value);
  if (ch->no_reserve) str_add(&s, " --reserve 0");
  return s.text;
}

/* The command line's job once more, with one change or none, elaborated quietly; NULL when that is an error. */
static Job *elaborate_again(Cli *c, const Change *ch, Arena *a, JobArgs *with) {
  *with = (JobArgs){.path = c->job.path, .preset = c->job.preset};
  for (int i = 0; i < c->job.dims.n; i++) vec_push(a, &with->dims, c->job.dims.at[i]);
  for (int i = 0; i < c->job.settings.n; i++) vec_push(a, &with->settings, c->job.settings.at[i]);
  for (int i = 0; ch && i < COUNT_OF(ch->set) && ch->set[i].key; i++) {
    Override o = {intern(ch->set[i].key), intern(ch->set[i].value)};
    if (ch->dim)
      vec_push(a, &with->dims, o);
    else
      vec_push(a, &with->settings, o);
  }
  Diags *d = diags_new(a);
  Job *job = elaborate(a, d, with);
  return job && d->errors == 0 ? job : NULL;
}

/* `beside`: the transient bytes of the floor that is known, where the change leaves activations as they are. */
static PlanArgs quick_args(const PlanArgs *args, int64_t beside) {
  PlanArgs quick = *args;
  quick.beside_bytes = beside;
  quick.check = false;
  quick.only_if_it_can = true;
  return quick;
}

static void add_remedy(Cli *c, FitResult *r, const FitResult *x, const char *change, const char *effect) {
  if (!x->plan || x->job->diags->errors > 0) return;
  const PlanPhase *ph = &x->plan->phases.at[x->phase];
  Remedy m = {change, effect, x->floor_bytes, ph->micro_batch, ph->step_ns};
  vec_push(c->arena, &r->remedies, m);
}

/* beside: as in quick_args. */
static void try_beside(Cli *c, const Change *ch, const PlanArgs *args, int64_t beside, FitResult *r) {
  Arena *a = arena_new();
  JobArgs with;
  Job *job = elaborate_again(c, ch, a, &with);
  if (job) {
    PlanArgs quick = quick_args(args, beside);
    if (ch->no_reserve) quick.reserve_bytes = 0;
    FitResult x = formats_fit(job, &with, a, &quick);
    add_remedy(c, r, &x, change_text(c, ch), ch->effect);
  }
  arena_free(a);
}

/* A setting or dimension changed. */
static void try_change(Cli *c, const Change *ch, const PlanArgs *args, FitResult *r) {
  bool same = !ch->dim && ch->effect != numeric;
  try_beside(c, ch, args, same ? r->floor_transient : 0, r);
}

/* Twice as much host memory as device memory is missing, in whole GiB, or MiB below one. */
static void try_host(Cli *c, const PlanArgs *args, FitResult *r) {
  int64_t gib = (int64_t)1 << 30, mib = 1 << 20, missing = r->floor_bytes - args->budget_bytes;
  int64_t wanted = args->host_bytes + 2 * (missing > 0 ? missing : 0);
  int64_t size = round_up(wanted, wanted >= gib ? gib : mib);
  Arena *a = arena_new();
  JobArgs with;
  Job *job = elaborate_again(c, NULL, a, &with);
  if (job) {
    PlanArgs quick = quick_args(args, 0);
    quick.host_bytes = size;
    FitResult x = formats_fit(job, &with, a, &quick);
    const char *text = size >= gib ? arena_printf(c->arena, "--host-ram %lldG", (long long)(size / gib))
                                   : arena_printf(c->arena, "--host-ram %lldM", (long long)(size / mib));
    add_remedy(c, r, &x, text, "the same results; pins host memory");
  }
  arena_free(a);
}

/* Updates inside the backward pass, where what forbids them can be given up and that comes near. */
static void try_early_updates(Cli *c, const Job *job, const PlanArgs *args, FitResult *r) {
  int obstacles = early_update_obstacles(job, r->phase), n = 0;
  bool near = r->early_floor_bytes <= r->budget_bytes;
  if (!near || job->phases.n > 1 || obstacles & EARLY_SCALE) return;
  Change ch = {.effect = obstacles & EARLY_CLIP
                             ? "no clipping; a step that is not finite ends the run"
                             : "the same results; a step that is not finite ends the run"};
  if (obstacles & EARLY_CLIP) ch.set[n].key = "train.clip", ch.set[n++].value = "0";
  if (obstacles & EARLY_SKIP) ch.set[n].key = "train.nonfinite", ch.set[n].value = "stop";
  try_beside(c, &ch, args, 0, r);
}

/* Formats worth trying, exact ones first: of what fits, the first few are told. */
static const struct {
  FormatSetting of; /* a setting that must be f32, and not open */
  bool half;        /* only where weights are bf16 */
  Change change;
} changes[] = {
    {FMT_MASTER, true, {{{"precision.master", "split"}}, exact, false, false}},
    {FMT_MASTER, true, {{{"precision.master", "split"}}, "exact; nothing left to others", false, true}},
    {FMT_COMPUTE, false, {{{"precision.compute", "bf16"}}, numeric, false, false}},
    {FMT_MOMENTS, false, {{{"precision.moments", "i8"}}, numeric, false, false}},
    {FMT_MOMENTS, false, {{{"precision.moments", "bf16"}}, numeric, false, false}},
    {FMT_ACCUM, false, {{{"precision.accum", "bf16"}}, numeric, false, false}},
    {FMT_MASTER, true, {{{"precision.master", "split"}, {"precision.moments", "i8"}}, numeric, false, false}},
    {FMT_MASTER, true, {{{"precision.master", "bf16"}, {"precision.moments", "i8"}}, numeric, false, false}},
};

static bool applies(const Precision *p, int change, const PlanArgs *args) {
  const int now[FMT_COUNT] = {p->compute, p->master, p->moments, p->accum};
  FormatSetting s = changes[change].of;
  bool whole = now[s] == DT_F32 || (s == FMT_MASTER && now[s] == PREC_AUTO);
  if (!whole || p->choice[s].open) return false;
  if (changes[change].change.no_reserve && args->reserve_bytes == 0) return false;
  return !changes[change].half || p->compute == DT_BF16;
}

static void find_remedies(Cli *c, const Job *job, const PlanArgs *args, FitResult *r) {
  enum { ENOUGH = 3 };
  bool split = false; /* fits, with the reserve that was asked for */
  try_host(c, args, r);
  Change place = {{{"memory.optimizer", "auto"}}, "the same results", false, false};
  if (job->memory.optimizer >= 0 && args->host_bytes > 0) try_change(c, &place, args, r);
  try_early_updates(c, job, args, r);
  for (int i = 0; i < COUNT_OF(changes) && r->remedies.n < ENOUGH; i++) {
    const Change *ch = &changes[i].change;
    if (!applies(&job->precision, i, args) || (ch->no_reserve && split)) continue;
    int before = r->remedies.n;
    try_change(c, ch, args, r);
    split |= ch->effect == exact && r->remedies.n > before;
  }
  int64_t T = phase_dim(job, r->phase, "T");
  if (T < 128 || job->phases.n > 1 || r->remedies.n >= ENOUGH) return;
  Change shorter = {{{"T", arena_printf(c->arena, "%lld", (long long)T / 2)}}, "shorter samples", true, false};
  try_change(c, &shorter, args, r);
}

int cli_plannable(Cli *c, Job **job) {
  *job = elaborate(c->arena, c->diags, &c->job);
  if (!*job || c->diags->errors > 0) return EXIT_SOURCE;
  Loc at = NO_LOC;
  const char *not_yet = job_not_yet(*job, &at);
  if (not_yet) diag_error(c->diags, E_NOT_YET, at, "%s cannot be planned yet", not_yet);
  return c->diags->errors > 0 ? EXIT_SOURCE : EXIT_OK;
}

int cli_plan(Cli *c, Job **job, FitResult *r) {
  int code = cli_plannable(c, job);
  if (code != EXIT_OK) return code;
  PlanArgs args;
  code = cli_plan_args(c, *job, &args);
  if (code != EXIT_OK) return code;
  char bad = 0;
  if (c->flag.dump && !pass_dump(c->flag.dump, stderr, &bad)) return cli_usage(c, "no pass has the letter `%c`", bad);
  *r = formats_fit(*job, &c->job, c->arena, &args);
  if (c->flag.time) pass_times(stderr);
  if (c->diags->errors > 0) return EXIT_SOURCE;
  *job = (Job *)r->job;
  if (r->plan) return EXIT_OK;
  bool told = !c->flag.json;
  if (told) plan_verdict(r, stderr, cli_columns());
  find_remedies(c, *job, &args, r);
  if (told) plan_ways_out(r, stderr, cli_columns());
  return EXIT_INFEASIBLE;
}
