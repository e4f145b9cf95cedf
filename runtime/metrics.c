/* metrics.c - metrics.jsonl, table and status line: see metrics.h. */
#include "metrics.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum { ROW_SECONDS = 10 };

double clock_seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void format_duration(char *out, size_t room, double seconds) {
  long s = seconds > 0 && seconds < 1e12 ? lround(seconds) : 0, m = s / 60, h = m / 60, d = h / 24;
  if (d)
    snprintf(out, room, "%ldd %02ldh", d, h % 24);
  else if (h)
    snprintf(out, room, "%ldh %02ldm", h, m % 60);
  else if (m)
    snprintf(out, room, "%ldm %02lds", m, s % 60);
  else
    snprintf(out, room, "%lds", s);
}

/* ---- metrics.jsonl ---- */

/* Bytes of the lines up to `steps`; a line that is not whole ends it. */
static long kept_bytes(FILE *file, int64_t steps) {
  char *line = NULL;
  size_t room = 0;
  long kept = 0;
  for (ssize_t n; (n = getline(&line, &room, file)) > 0;) {
    json_t *j = line[n - 1] == '\n' ? json_loadb(line, (size_t)n, 0, NULL) : NULL;
    json_t *step = json_object_get(j, "step");
    bool keep = json_is_integer(step) && json_integer_value(step) <= steps;
    json_decref(j);
    if (!keep) break;
    kept += n;
  }
  free(line);
  return kept;
}

bool metrics_open(Metrics *m, const char *dir, int64_t keep_steps, bool quiet, bool json, Fail *f) {
  *m = (Metrics){.table = !quiet && !json, .json = json, .last_row = -1e9};
  m->status = !quiet && isatty(STDERR_FILENO);
  if (!dir) return true;
  char path[1024];
  snprintf(path, sizeof path, "%s/metrics.jsonl", dir);
  m->file = fopen(path, keep_steps >= 0 ? "a+" : "w");
  if (!m->file) return fail_page(f, EXIT_IO, "E0601", "cannot write %s: %s", path, strerror(errno));
  if (keep_steps < 0) return true;
  rewind(m->file);
  long kept = kept_bytes(m->file, keep_steps);
  if (ftruncate(fileno(m->file), kept) != 0 || fseek(m->file, 0, SEEK_END) != 0)
    return fail_page(f, EXIT_IO, "E0601", "cannot write %s: %s", path, strerror(errno));
  return true;
}

static void put_number(FILE *to, const char *key, double x) {
  if (isfinite(x))
    fprintf(to, ", \"%s\": %.9g", key, x);
  else
    fprintf(to, ", \"%s\": null", key);
}

static void put_object(FILE *to, const StepReport *r) {
  fprintf(to, "{\"step\": %lld", (long long)r->step);
  if (r->phase && r->phase[0]) fprintf(to, ", \"phase\": \"%s\"", r->phase);
  put_number(to, "epoch", r->epoch);
  put_number(to, "loss", r->loss);
  put_number(to, "lr", r->lr);
  put_number(to, "grad_norm", r->grad_norm);
  fprintf(to, ", \"tokens\": %lld", (long long)r->tokens);
  put_number(to, "tokens_per_second", r->tokens_per_second);
  put_number(to, "step_seconds", r->step_seconds);
  if (!isnan(r->loss_scale)) put_number(to, "loss_scale", r->loss_scale);
  fprintf(to, ", \"skipped\": %s", r->skipped ? "true" : "false");
  if (r->nonfinite) fprintf(to, ", \"nonfinite\": \"%s\"", r->nonfinite);
  if (r->evaluated) put_number(to, "eval_loss", r->eval_loss);
  if (r->evaluated && r->metric) {
    char key[80];
    snprintf(key, sizeof key, "eval_%s", r->metric);
    put_number(to, key, r->eval_metric);
  }
  fputs("}\n", to);
}

/* ---- table and status ---- */

static void clear_status(Metrics *m) {
  if (m->status_shown) fputs("\r\033[K", stderr);
  m->status_shown = false;
}

void metrics_note(Metrics *m, const char *fmt, ...) {
  if (!m->table) return;
  clear_status(m);
  va_list ap;
  va_start(ap, fmt);
  vfprintf(stdout, fmt, ap);
  va_end(ap);
  fputc('\n', stdout);
  fflush(stdout);
}

static void put_row(Metrics *m, const StepReport *r) {
  char eta[32], est[32] = "-", count[32], norm[32] = "-";
  format_duration(eta, sizeof eta, (double)(r->total - r->step) * m->step_seconds);
  if (r->est_seconds > 0)
    snprintf(est, sizeof est, "%+.1f%%", 100 * (r->step_seconds / r->est_seconds - 1));
  Arena *a = arena_new();
  snprintf(count, sizeof count, "%s", format_count(a, llround(r->tokens_per_second)));
  arena_free(a);
  if (!isnan(r->grad_norm)) snprintf(norm, sizeof norm, "%.3f", r->grad_norm);
  if (!m->head_shown)
    printf("%7s %9s %8s %9s %10s %9s %8s %8s\n", "step", "loss", "gnorm", "lr", "tok/s", "ms/step",
           "est", "eta");
  m->head_shown = true;
  printf("%7lld %9.4f %8s %9.2e %10s %9.1f %8s %8s", (long long)r->step, r->loss, norm, r->lr,
         count, 1000 * r->step_seconds, est, eta);
  if (r->evaluated) printf("   eval %.4f", r->eval_loss);
  if (r->evaluated && r->metric) printf("   %s %.4f", r->metric, r->eval_metric);
  if (r->skipped)
    printf("   skipped: not finite%s%s", r->nonfinite ? ", first in " : "",
           r->nonfinite ? r->nonfinite : "");
  putchar('\n');
  fflush(stdout);
}

/* One line that fits the terminal. */
static void put_status(Metrics *m, const StepReport *r) {
  char eta[32], line[160];
  struct winsize w;
  int columns = ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col ? w.ws_col : 80;
  format_duration(eta, sizeof eta, (double)(r->total - r->step) * m->step_seconds);
  snprintf(line, sizeof line, "[%lld/%lld] loss %.4f  %s left  lr %.2e  %.0f tok/s",
           (long long)r->step, (long long)r->total, r->loss, eta, r->lr, r->tokens_per_second);
  fprintf(stderr, "\r\033[K%.*s", columns - 1, line);
  fflush(stderr);
  m->status_shown = true;
}

bool metrics_step(Metrics *m, const StepReport *r, bool force_row, Fail *f) {
  if (m->file) {
    put_object(m->file, r);
    if (fflush(m->file) != 0 || ferror(m->file))
      return fail_page(f, EXIT_IO, "E0601", "cannot write metrics.jsonl: %s", strerror(errno));
  }
  if (m->json) {
    put_object(stdout, r);
    fflush(stdout);
  }
  double now = clock_seconds(), old = m->step_seconds;
  m->step_seconds = old > 0 ? old + 0.1 * (r->step_seconds - old) : r->step_seconds;
  if (m->table && (force_row || r->evaluated || now - m->last_row >= ROW_SECONDS)) {
    clear_status(m);
    put_row(m, r);
    m->last_row = now;
  }
  if (m->status && now - m->last_status >= 0.1) {
    put_status(m, r);
    m->last_status = now;
  }
  return true;
}

void metrics_close(Metrics *m) {
  clear_status(m);
  if (m->file) fclose(m->file);
  m->file = NULL;
}
