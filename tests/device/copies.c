/* copies.c - device_copies [GIB]: copies between host and GPU inside graphs, on a hand-made program
 * over an arena of GIB on the host (default 2): what each way of running gives, exactly; how much
 * of the copies hides behind products; how long pinning takes and what it takes of the GPU. Exit
 * code 1 when a result is wrong. */
#include "device_case.h"

enum { N = 4096, LAYERS = 8, SIDE = N * N * 4 };
enum { AT_X, AT_ACC, AT_STAGE, STAGES = 2 };

/* Layers W[l] lie on the host. `micro`: acc += X W[l] for all; the next layer comes while one is
 * multiplied. `update`: W[l] += X X, brought in, changed, and brought back while the next is. X is
 * the identity, so that results are exact. */
typedef struct {
  Arena *a;
  Program p;
  ProgramCode code[2];
  int bad;
} Case;

static Tensor square(int64_t place) {
  return tensor_at(place * SIDE, DT_F32, SHAPE(N, N));
}

static Cmd *add(Case *c, int program, CmdKind kind, int layer) {
  ProgramCode *code = &c->code[program];
  Cmd *k = &code->cmds[code->ncmds++];
  *k = (Cmd){.kind = kind, .name = arena_printf(c->a, "w.%d", layer), .where = "here"};
  return k;
}

static int add_copy(Case *c, int program, int layer, bool to_host) {
  Copy y = {to_host, (AT_STAGE + layer % STAGES) * (int64_t)SIDE, layer * (int64_t)SIDE, SIDE, 0};
  add(c, program, CMD_COPY, layer)->copy = y;
  return c->code[program].ncmds - 1;
}

static void add_wait(Case *c, int program, int layer, int copy) {
  add(c, program, CMD_WAIT, layer)->copy.awaited = copy;
}

static void add_product(Case *c, int program, int layer, Tensor a, Tensor b, Tensor to) {
  Cmd *k = add(c, program, CMD_GEMM, layer);
  k->ntensors = 3;
  k->tensors = arena_copy(c->a, (Tensor[]){a, b, to}, 3 * sizeof a);
  k->gemm = (Gemm){.batch = 1,
                   .m = N,
                   .n = N,
                   .k = N,
                   .lda = N,
                   .ldb = N,
                   .ldc = N,
                   .accumulate = true,
                   .product = DT_F32};
}

static void build(Case *c, int64_t gib) {
  *c = (Case){.a = arena_new()};
  for (int i = 0; i < 2; i++)
    c->code[i] = (ProgramCode){.name = i ? "update" : "micro", .cmds = arena_array(c->a, Cmd, 64)};
  Tensor x = square(AT_X);
  int in[LAYERS], out[LAYERS];
  in[0] = add_copy(c, 0, 0, false);
  for (int l = 0; l < LAYERS; l++) {
    if (l + 1 < LAYERS) in[l + 1] = add_copy(c, 0, l + 1, false);
    add_wait(c, 0, l, in[l]);
    add_product(c, 0, l, x, square(AT_STAGE + l % STAGES), square(AT_ACC));
  }
  for (int l = 0; l < LAYERS; l++) {
    if (l >= STAGES) add_wait(c, 1, l - STAGES, out[l - STAGES]);
    in[l] = add_copy(c, 1, l, false);
    add_wait(c, 1, l, in[l]);
    add_product(c, 1, l, x, x, square(AT_STAGE + l % STAGES));
    out[l] = add_copy(c, 1, l, true);
  }
  c->p =
      (Program){.arena = c->a, .cuda = true, .target = "h200", .nprograms = 2, .programs = c->code};
  c->p.arena_bytes = (AT_STAGE + STAGES) * (int64_t)SIDE;
  c->p.persistent_bytes = AT_STAGE * (int64_t)SIDE;
  c->p.host_bytes = gib << 30;
}

static void must(bool ok, const Fail *f) {
  if (ok) return;
  fprintf(stderr, "stopped: %s\n", f->text);
  exit(1);
}

static void expect(Case *c, const char *what, double got, double want) {
  if (got == want) return;
  printf("WRONG: %s is %g, not %g\n", what, got, want);
  c->bad++;
}

static void fill(Replay *r) {
  Fail f = {0};
  float *x = calloc(1, SIDE), *host = device_cuda.reach(r->device, true);
  for (int64_t i = 0; i < N; i++) x[i * N + i] = 1;
  must(device_cuda.wait(r->device, &f) &&
           device_cuda.write(r->device, false, AT_X * (int64_t)SIDE, x, SIDE, &f),
       &f);
  memset(x, 0, SIDE);
  must(device_cuda.write(r->device, false, AT_ACC * (int64_t)SIDE, x, SIDE, &f), &f);
  for (int64_t i = 0; i < (int64_t)LAYERS * N * N; i++) host[i] = (float)(i / (N * N) + i % 7);
  free(x);
}

/* After `rounds` of micro and update: W[l] has `rounds` more on its diagonal, acc the sum of all
 * layers of all rounds. */
static void check(Case *c, Replay *r, int rounds) {
  Fail f = {0};
  float *acc = malloc(SIDE), *w = malloc(SIDE);
  must(device_cuda.read(r->device, false, AT_ACC * (int64_t)SIDE, acc, SIDE, &f), &f);
  for (int64_t i = 0; i < N; i += 61)
    for (int64_t k = i; k < N; k += 509) {
      double own = 0, added = i == k ? LAYERS * rounds * (rounds - 1) / 2.0 : 0;
      for (int64_t l = 0; l < LAYERS; l++) own += (double)(l + (l * N * N + i * N + k) % 7);
      expect(c, "the sum", acc[i * N + k], rounds * own + added);
    }
  for (int64_t l = 0; l < LAYERS; l++) {
    must(device_cuda.read(r->device, true, l * SIDE, w, SIDE, &f), &f);
    for (int64_t i = 0; i < N; i += 61) {
      expect(c, "a diagonal", w[i * N + i], (double)(l + (l * N * N + i * N + i) % 7 + rounds));
      expect(c, "another element", w[i * N + (i + 1) % N],
             (double)(l + (l * N * N + i * N + (i + 1) % N) % 7));
    }
  }
  free(acc);
  free(w);
}

static double rounds_of(Replay *r, int n) {
  Fail f = {0};
  must(device_cuda.wait(r->device, &f), &f);
  double begin = now();
  for (int i = 0; i < n; i++) must(replay_run(r, 0, &f) && replay_run(r, 1, &f), &f);
  must(device_cuda.wait(r->device, &f), &f);
  return (now() - begin) / n;
}

static void show_times(Case *c, Replay *r) {
  for (int program = 0; program < 2; program++) {
    ProgramCode *code = &c->code[program];
    double start[65], copy[130], copying = 0, over = 0;
    Fail f = {0};
    for (int i = 0; i < 2; i++) must(device_cuda.time(r->device, program, start, copy, &f), &f);
    for (int k = 0; k < code->ncmds; k++) {
      if (code->cmds[k].kind != CMD_COPY) continue;
      copying += copy[2 * k + 1] - copy[2 * k];
      if (copy[2 * k] < start[k] - 2e-6)
        printf("WRONG: command %d of %s copies before it may\n", k, code->name), c->bad++;
    }
    for (int k = 0; k < code->ncmds; k++)
      if (code->cmds[k].kind == CMD_WAIT) {
        int of = code->cmds[k].copy.awaited;
        over += start[k + 1] - start[k];
        if (start[k + 1] < copy[2 * of + 1] - 2e-6)
          printf("WRONG: %s goes on before the copy of command %d is done\n", code->name, of),
              c->bad++;
      }
    printf("%-7s %.2f ms, copies %.2f ms, waits %.2f ms\n", code->name, 1e3 * start[code->ncmds],
           1e3 * copying, 1e3 * over);
  }
}

static void run_with(Case *c, const char *what, DeviceOptions o, int rounds) {
  Fail f = {0};
  Replay r;
  double begin = now();
  must(replay_open(&r, &c->p, &o, &f), &f);
  double opened = now() - begin;
  fill(&r);
  double each = rounds_of(&r, rounds);
  if (o.copies != COPIES_NEVER) check(c, &r, rounds);
  printf("%-16s opened in %.2f s, %.2f ms a round, GPU %.1f MiB beyond the arena, host %.1f MiB\n",
         what, opened, 1e3 * each,
         (double)(device_cuda.measured(r.device) - c->p.arena_bytes) / (1 << 20),
         (double)device_cuda.measured_host(r.device) / (1 << 20));
  if (!o.poison && o.copies == COPIES_SOON) show_times(c, &r);
  begin = now();
  replay_close(&r);
  printf("%-16s closed in %.2f s\n", "", now() - begin);
}

int main(int argc, char **argv) {
  Case c;
  build(&c, argc > 1 ? atoll(argv[1]) : 2);
  run_with(&c, "graphs", (DeviceOptions){0}, 5);
  if (argc < 3) { /* a second argument: only pins */
    run_with(&c, "without copies", (DeviceOptions){.copies = COPIES_NEVER}, 5);
    run_with(&c, "late, poisoned", (DeviceOptions){.poison = true, .copies = COPIES_LATE}, 3);
  }
  printf("%s\n", c.bad ? "WRONG" : "all as it should be");
  arena_free(c.a);
  return c.bad != 0;
}
