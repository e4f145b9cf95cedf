/* profile.c - device_profile FILE.mtx: times every command of a compiled program on the GPU, one at
 * a time, and sums them by function and shape: where a step's time goes. Contents of the arena are
 * random. */
#include "device_case.h"

typedef struct {
  const char *what, *example;
  int n;
  double ms, bytes, flops;
} Line;

static const char *describe(const Program *p, const Cmd *c, Arena *a, double *flops) {
  const Gemm *g = &c->gemm;
  switch (c->kind) {
    case CMD_GEMM:
      *flops = 2.0 * (double)(g->batch * g->m) * (double)(g->n * g->k);
      return arena_printf(a, "gemm %lldx%lldx%lldx%lld %s%s%s", (long long)g->batch,
                          (long long)g->m, (long long)g->n, (long long)g->k, g->trans_a ? "T" : "N",
                          g->trans_b ? "T" : "N", g->accumulate ? " +=" : "");
    case CMD_ATTENTION:
    case CMD_ATTENTION_BWD: {
      const Tensor *q = &c->tensors[0], *k = &c->tensors[1];
      *flops = (c->kind == CMD_ATTENTION ? 4.0 : 10.0) *
               (double)(q->dim[0] * q->dim[1] * q->dim[2]) * (double)(k->dim[1] * q->dim[3]) /
               (c->attention.causal ? 2 : 1);
      return c->kind == CMD_ATTENTION ? "attention" : "attention backward";
    }
    case CMD_FILL:
      return "fill";
    default:
      return c->nlaunches ? p->kernel_names[c->launches[0].kernel] : "?";
  }
}

static int by_time(const void *a, const void *b) {
  double x = ((const Line *)a)->ms, y = ((const Line *)b)->ms;
  return x < y ? 1 : x > y ? -1 : 0;
}

static void profile(Bench *b, int program) {
  const Program *p = b->device->p;
  const ProgramCode *code = &p->programs[program];
  Line *lines = arena_array(b->a, Line, code->ncmds + 1);
  int n = 0;
  double total = 0;
  for (int c = 0; c < code->ncmds; c++) {
    const Cmd *cmd = &code->cmds[c];
    if (cmd->kind == CMD_FILL) continue;
    double flops = 0, bytes = 0, ms = time_cmd(b, program, c, 0.5);
    const char *what = describe(p, cmd, b->a, &flops);
    for (int t = 0; t < cmd->ntensors; t++) bytes += tensor_size(&cmd->tensors[t]);
    int i = 0;
    while (i < n && strcmp(lines[i].what, what)) i++;
    if (i == n) lines[n++] = (Line){.what = what, .example = cmd->name};
    lines[i].n++, lines[i].ms += ms, lines[i].bytes += bytes, lines[i].flops += flops;
    total += ms;
  }
  qsort(lines, (size_t)n, sizeof *lines, by_time);
  printf("%s: %d commands, %.2f ms one by one\n", code->name, code->ncmds, total);
  for (int i = 0; i < n && i < 28; i++)
    printf("  %4d x %-36s %8.3f ms %5.1f %%  %6.0f GB/s %5.0f TFLOP/s  %s\n", lines[i].n,
           lines[i].what, lines[i].ms, 100 * lines[i].ms / total,
           lines[i].bytes / lines[i].ms * 1e-6, lines[i].flops / lines[i].ms * 1e-9,
           lines[i].example);
}

int main(int argc, char **argv) {
  Bench b = {.a = arena_new()};
  const char *why = NULL;
  Program *p = argc > 1 ? mtx_read(b.a, argv[1], &why) : NULL;
  if (!p) return fprintf(stderr, "usage: device_profile FILE.mtx (%s)\n", why ? why : "no file"), 2;
  DeviceOptions o = {0};
  b.device = device_cuda.open(p, &o, &b.fail);
  need(&b, b.device != NULL);
  fill_random(&b, p->arena_bytes);
  for (int i = 0; i < p->nprograms; i++) profile(&b, i);
  device_cuda.close(b.device);
  arena_free(b.a);
  return 0;
}
