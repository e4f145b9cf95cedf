/* sample.c - text from a trained model: see sample.h.
 *
 * The sample program computes the logits of one position of one sequence of T tokens. The window
 * slides: once the text is longer than T, its last T tokens are the sequence. */
#include "sample.h"

#include "feed.h"
#include "rng.h"
#include "start.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- drawing ---- */

/* Logits of the ids being sorted; larger first, ties by id. */
static const float *sort_key;
static int by_logit(const void *a, const void *b) {
  int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
  if (sort_key[x] != sort_key[y]) return sort_key[x] > sort_key[y] ? -1 : 1;
  return x < y ? -1 : x > y;
}

int64_t sample_draw(const float *logits, int64_t n, double temperature, int64_t top_k,
                    uint64_t seed, int64_t index, int32_t *order) {
  int64_t best = 0;
  for (int64_t i = 1; i < n; i++)
    if (logits[i] > logits[best]) best = i;
  if (temperature <= 0 || top_k == 1) return best;
  for (int64_t i = 0; i < n; i++) order[i] = (int32_t)i;
  int64_t kept = top_k > 0 && top_k < n ? top_k : n;
  if (kept < n) {
    sort_key = logits;
    qsort(order, (size_t)n, sizeof *order, by_logit);
  }
  double total = 0, most = logits[best];
  for (int64_t i = 0; i < kept; i++) total += exp((logits[order[i]] - most) / temperature);
  double left = rng_uniform(seed, rng_stream("sample"), (uint64_t)index) * total;
  for (int64_t i = 0; i < kept; i++) {
    left -= exp((logits[order[i]] - most) / temperature);
    if (left < 0) return order[i];
  }
  return best;
}

/* ---- the model ---- */

typedef struct {
  Arena *arena;
  const char *dir;
  const char *file; /* checkpoint named by the user, or NULL */
  Program *program;
  const ProgramPhase *phase;
  Replay replay;
  Feed feed;
  Scalars scalars;
  const Tensor *logits;
  bool bytes; /* tokens are bytes of text */
  VEC(int32_t) text;
} Sampler;

static void find_run(Sampler *s, const char *path) {
  struct stat st;
  bool is_dir = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
  s->dir = is_dir ? path : path_beside(s->arena, path, ".");
  s->file = is_dir ? NULL : path;
}

/* The last phase that has a program to sample with: what training ended with. */
static bool find_program(Sampler *s, Fail *f) {
  const char *why;
  s->program = mtx_read(s->arena, arena_printf(s->arena, "%s/model.mtx", s->dir), &why);
  if (!s->program) return fail_page(f, EXIT_IO, "E0601", "%s", why);
  const Program *p = s->program;
  for (int i = 0; i < p->nphases; i++)
    if (p->phases[i].sample >= 0) s->phase = &p->phases[i];
  if (!s->phase)
    return fail_set(f, EXIT_IO,
                    "%s has no program to sample with: its forward does not give [B, T, V]",
                    p->model);
  int64_t T = s->phase->tokens_per_sample;
  s->logits = program_result(p, s->phase->sample, "logits");
  if (!s->logits || s->logits->rank != 1 || s->logits->dtype != DT_F32)
    return fail_set(f, EXIT_IO, "the sample program of %s gives no logits", p->model);
  if (p->phases[0].data >= 0) s->bytes = p->data[p->phases[0].data].kind == RD_TEXT;
  s->scalars = scalars_of(p);
  return feed_resolve(s->arena, p, s->phase->sample, 1, T, &s->feed, f);
}

static bool check_device(const Program *p, const SampleOptions *o, Fail *f) {
  if (o->device && strcmp(o->device, p->cuda ? "cuda" : "cpu") != 0)
    return fail_set(f, EXIT_DEVICE, "the run was compiled for %s and cannot be sampled on %s",
                    p->target, o->device);
  if (o->budget_bytes >= 0 && p->peak_bytes > o->budget_bytes)
    return fail_set(f, EXIT_INFEASIBLE, "the program needs %lld bytes, more than --vram allows",
                    (long long)p->peak_bytes);
  return true;
}

static bool open_model(Sampler *s, const SampleOptions *o, Fail *f) {
  if (!find_program(s, f) || !check_device(s->program, o, f)) return false;
  Checkpoint *c = s->file ? checkpoint_open(s->file, f) : checkpoint_newest(s->dir, f);
  if (!c)
    return f->code ? false : fail_page(f, EXIT_IO, "E0601", "%s has no checkpoint yet", s->dir);
  DeviceOptions d = {.threads = o->threads};
  bool ok =
      replay_open(&s->replay, s->program, &d, f) && start_values(&s->replay, c->state.seed, c, f);
  checkpoint_close(c);
  return ok;
}

/* ---- text ---- */

static bool read_prompt(Sampler *s, const char *prompt, Fail *f) {
  int64_t bound = s->logits->dim[0];
  if (s->bytes) {
    for (const char *c = prompt; *c; c++) vec_push(s->arena, &s->text, (int32_t)(uint8_t)*c);
  } else {
    for (const char *c = prompt; *c;) {
      char *end;
      errno = 0;
      long long id = strtoll(c, &end, 10);
      if (end == c || errno || id < 0 || id >= bound)
        return fail_set(f, EXIT_USAGE,
                        "the prompt of this model is token ids from 0 to %lld, not `%s`\n  = "
                        "models/convert_tokens.py turns text into ids",
                        (long long)bound - 1, c);
      vec_push(s->arena, &s->text, (int32_t)id);
      for (c = end; *c == ',' || isspace((unsigned char)*c);) c++;
    }
  }
  for (int i = 0; i < s->text.n; i++)
    if (s->text.at[i] >= bound)
      return fail_set(f, EXIT_USAGE, "byte %d of the prompt is not in the vocabulary",
                      s->text.at[i]);
  return true;
}

static void put_token(const Sampler *s, int32_t id, bool first, FILE *out) {
  if (s->bytes)
    fputc(id, out);
  else
    fprintf(out, first ? "%d" : " %d", id);
}

/* Runs the program on the last T tokens and draws the next one. */
static bool next_token(Sampler *s, const SampleOptions *o, Batch *b, float *logits, int32_t *order,
                       int64_t index, Fail *f) {
  int64_t T = b->tokens, n = s->text.n, used = n < T ? n : T;
  for (int64_t t = 0; t < T; t++) {
    b->inputs[t] = t < used ? s->text.at[n - used + t] : 0;
    b->targets[t] = (int32_t)s->program->ignore;
    b->present[t] = t < used;
  }
  if (!feed_write(&s->replay, &s->feed, b, 0, f) ||
      !scalar_write_i32(&s->replay, &s->scalars, SC_POSITION, used - 1, f) ||
      !replay_run(&s->replay, s->phase->sample, f) ||
      !replay_read(&s->replay, s->logits, logits, f))
    return false;
  int64_t id =
      sample_draw(logits, s->logits->dim[0], o->temperature, o->top_k, o->seed, index, order);
  vec_push(s->arena, &s->text, (int32_t)id);
  return true;
}

static bool generate(Sampler *s, const SampleOptions *o, FILE *out, Fail *f) {
  Batch b = {0};
  size_t V = (size_t)s->logits->dim[0];
  float *logits = malloc(V * sizeof *logits);
  int32_t *order = malloc(V * sizeof *order);
  bool ok = logits && order && batch_alloc(&b, s->phase->tokens_per_sample, 1, f);
  bool empty = !s->text.n; /* then it goes on from a newline, or token 0, which is not printed */
  for (int i = 0; i < s->text.n; i++) put_token(s, s->text.at[i], !i, out);
  if (empty) vec_push(s->arena, &s->text, s->bytes ? '\n' : 0);
  for (int64_t i = 0; i < o->tokens && ok; i++) {
    ok = next_token(s, o, &b, logits, order, i, f);
    if (ok) put_token(s, vec_last(&s->text), empty && !i, out);
    fflush(out);
  }
  fputc('\n', out);
  batch_free(&b);
  free(logits);
  free(order);
  return ok;
}

int sample_run(const char *path, const SampleOptions *o, FILE *out) {
  Fail f = {0};
  Sampler s = {.arena = arena_new()};
  find_run(&s, path);
  if (open_model(&s, o, &f) && read_prompt(&s, o->prompt ? o->prompt : "", &f))
    generate(&s, o, out, &f);
  replay_close(&s.replay);
  arena_free(s.arena);
  fail_print(&f, stderr);
  return f.code;
}
