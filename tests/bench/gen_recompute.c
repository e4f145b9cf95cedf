/* gen_recompute.c - writes recompute problems as JSON lines (docs/problem.md): gen_recompute FOLDER
 * [NAME..]. Built by the scripts that need it: cc -I. tests/bench/gen_recompute.c ir/base.c ir/pieces.c
 * -lxxhash. */
#include <string.h>
#include "tests/passes/problems.h"

typedef struct {
  const char *name;
  RecProblem problem;
} Named;

static void write_ids(FILE *f, const int *id, int n) {
  for (int i = 0; i < n; i++) fprintf(f, "%s%d", i ? ", " : "", id[i]);
}

static int last_use(const RecProblem *p, int v) {
  int last = -1;
  for (int k = 0; k < p->nop; k++) {
    const RecOp *o = &p->op[k];
    for (int i = 0; i < o->nin; i++)
      if (o->in[i] == v) last = k;
    for (int i = 0; i < o->nout; i++)
      if (o->out[i] == v) last = k;
  }
  return last;
}

static void write_op(FILE *f, const RecProblem *p, int k) {
  const RecOp *o = &p->op[k];
  fprintf(
      f, "{\"op\": \"%s.%d\", \"ns\": %lld, \"ws\": %lld, \"layer\": %d, \"bwd\": %s, \"in\": [",
      o->name, o->layer, (long long)o->ns, (long long)o->ws, o->layer, o->bwd ? "true" : "false");
  write_ids(f, o->in, o->nin);
  fprintf(f, "], \"out\": [");
  for (int i = 0; i < o->nout; i++)
    fprintf(f, "%s{\"id\": %d, \"bytes\": %lld}", i ? ", " : "", o->out[i],
            (long long)p->bytes[o->out[i]]);
  fprintf(f, "]");
  if (o->alias >= 0) fprintf(f, ", \"alias\": {\"%d\": %d}", o->out[0], o->alias);
  if (!o->redo && !o->bwd) fprintf(f, ", \"pure\": false");
  fprintf(f, ", \"free\": [");
  int n = 0;
  for (int v = 0; v < p->nval; v++)
    if (last_use(p, v) == k) fprintf(f, "%s%d", n++ ? ", " : "", v);
  fprintf(f, "]}\n");
}

static int write_problem(const char *folder, const Named *n) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s.jsonl", folder, n->name);
  FILE *f = fopen(path, "w");
  if (!f) {
    perror(path);
    return 1;
  }
  for (int k = 0; k < n->problem.nop; k++) write_op(f, &n->problem, k);
  return fclose(f) != 0;
}

static bool wanted(const char *name, int n, char **names) {
  for (int i = 0; i < n; i++)
    if (!strcmp(names[i], name)) return true;
  return n == 0;
}

int main(int argc, char **argv) {
  enum { GPT = 50304, LLAMA = 32000 };
  if (argc < 2) {
    fprintf(stderr, "usage: gen_recompute FOLDER [NAME..]\n");
    return 2;
  }
  Arena *a = arena_new();
  const Named all[] = {
      {"gpt2-124m", transformer(a, (Transformer){12, 768, 12, 1024, 16, GPT, 0, false})},
      {"gpt2-350m", transformer(a, (Transformer){24, 1024, 16, 1024, 8, GPT, 0, false})},
      {"gpt2-1.5b", transformer(a, (Transformer){48, 1600, 25, 1024, 4, GPT, 0, false})},
      {"llama2-7b-b1", transformer(a, (Transformer){32, 4096, 32, 2048, 1, LLAMA, 11008, true})},
      {"llama2-7b-b2", transformer(a, (Transformer){32, 4096, 32, 2048, 2, LLAMA, 11008, true})},
      {"llama2-7b-b4", transformer(a, (Transformer){32, 4096, 32, 2048, 4, LLAMA, 11008, true})},
      {"resnet50-b128", resnet(a, 128, 4, (Stage[]){{3, 64}, {4, 128}, {6, 256}, {3, 512}})},
      {"unet-b16", unet(a, 16, 256, 4, 64, 2)},
      {"gpt-2l", transformer(a, (Transformer){2, 768, 12, 1024, 16, GPT, 0, false})},
      {"gpt-3l", transformer(a, (Transformer){3, 768, 12, 1024, 16, GPT, 0, false})},
      {"gpt-4l", transformer(a, (Transformer){4, 768, 12, 1024, 16, GPT, 0, false})},
      {"llama-2l", transformer(a, (Transformer){2, 4096, 32, 2048, 1, LLAMA, 11008, true})},
      {"llama-3l", transformer(a, (Transformer){3, 4096, 32, 2048, 1, LLAMA, 11008, true})},
      {"mlp-8", mlp(a, 8, 2, (int[]){1024, 4096})},
      {"mlp-12", mlp(a, 12, 3, (int[]){1024, 4096, 2048})},
      {"unet-d1", unet(a, 16, 128, 1, 64, 2)},
      {"unet-d2", unet(a, 16, 128, 2, 64, 2)},
      {"unet-d3", unet(a, 16, 128, 3, 64, 1)},
      {"resnet-3", resnet(a, 64, 2, (Stage[]){{1, 64}, {2, 128}})},
      {"resnet-4", resnet(a, 64, 4, (Stage[]){{1, 64}, {1, 128}, {1, 256}, {1, 512}})},
  };
  int bad = 0;
  for (int i = 0; i < COUNT_OF(all); i++)
    if (wanted(all[i].name, argc - 2, argv + 2)) bad |= write_problem(argv[1], &all[i]);
  arena_free(a);
  return bad;
}
