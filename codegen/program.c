/* program.c - the commands of a program and the kernels behind them: see program.h.
 *
 * One command a step of the plan, and those of copies between them. Loop clusters are lowered to kernels; kernels of equal text are
 * one function, so that all layers share it. The C target's functions are one translation unit,
 * compiled here; CUDA's are collected by cuda_build. */
#include "program.h"

#include <ctype.h>
#include <string.h>

#include "../ir/parallel.h"
#include "../runtime/cpu_cc.h"
#include "cuda_build.h"
#include "kir.h"
#include "lower.h"
#include "prelude_c.h"

/* A C function. One that draws random numbers takes their keys, and each layer enters it with its
 * own. */
typedef struct {
  uint64_t hash;
  const char *name, *text, *path, *where;
  int nkeys, uses;
} CFunction;
typedef struct {
  int function;
  const uint64_t *keys;
  const char *name;
} CEntry;

/* A command of a loop cluster, whose kernel is still to be made. */
typedef struct {
  const Graph *g;
  const Cluster *c;
  const PlanStep *s;
  Cmd *cmd;
  Kernel *kernel;
  CudaPrinted *printed; /* CUDA */
  const char *why;      /* there is no kernel */
} Loop;

typedef struct {
  const Plan *p;
  Arena *arena;
  Program *out;
  VEC(Loop) loops;          /* in order of commands */
  VEC(CFunction) functions; /* C target */
  VEC(CEntry) entries;      /* what commands call */
  CudaBuild *cuda;          /* or NULL */
  const char *why;
} Build;

static bool fail(Build *b, const char *why) {
  if (!b->why) b->why = why;
  return false;
}

/* ---- C functions ---- */

/* "h.3.mlp.gelu" -> "mlp_gelu": the last words of a path as a C name. */
static const char *short_name(Arena *a, const char *path) {
  const char *from = path + strlen(path);
  for (int dots = 0; from > path; from--)
    if (from[-1] == '.' && ++dots == 2) break;
  Str s = {.arena = a};
  for (; *from; from++) {
    char c = isalnum((unsigned char)*from) ? *from : '_';
    if (!s.len && (c == '_' || isdigit((unsigned char)c))) continue;
    str_add_n(&s, &c, 1);
  }
  return s.len ? s.text : "loop";
}

static int c_function(Build *b, const Kernel *k) {
  const char *text = kernel_print_c(k, b->arena);
  uint64_t hash = hash_text(text);
  for (int i = 0; i < b->functions.n; i++)
    if (b->functions.at[i].hash == hash) {
      b->functions.at[i].uses++;
      return i;
    }
  CFunction f = {hash, NULL, text, k->name, k->where, k->nkeys, 1};
  f.name = arena_printf(b->arena, "k%d_%s", b->functions.n, short_name(b->arena, k->name));
  vec_push(b->arena, &b->functions, f);
  return b->functions.n - 1;
}

static int c_entry(Build *b, const Kernel *k) {
  int function = c_function(b, k);
  size_t bytes = sizeof *k->keys * (size_t)k->nkeys;
  for (int i = 0; i < b->entries.n; i++)
    if (b->entries.at[i].function == function && !memcmp(b->entries.at[i].keys, k->keys, bytes))
      return i;
  CEntry e = {function, k->keys, b->functions.at[function].name};
  if (k->nkeys) e.name = arena_printf(b->arena, "%s_e%d", e.name, b->entries.n);
  vec_push(b->arena, &b->entries, e);
  return b->entries.n - 1;
}

static void print_function(Str *s, const CFunction *f) {
  str_addf(s, "\n/* %s%s%s", f->path, f->where[0] ? " - " : "", f->where);
  if (f->uses > 1) str_addf(s, "; %d launches", f->uses);
  str_addf(s, " */\n%svoid %s%s", f->nkeys ? "static __attribute__((noinline)) " : "", f->name,
           f->text);
}

static const char *c_source(Build *b) {
  const Program *p = b->out;
  Str s = {.arena = b->arena};
  str_addf(&s, "/* %s%s%s%s: kernels of plan %08x, emitted by mtc %s for the C compiler. */\n",
           p->model, p->preset ? "(" : "", p->preset ? p->preset : "", p->preset ? ")" : "",
           (unsigned)p->plan_id, MTC_VERSION);
  str_add(&s, prelude_c);
  str_add(&s, prelude_formats);
  for (int i = 0; i < b->functions.n; i++) print_function(&s, &b->functions.at[i]);
  str_add(&s, "\n");
  for (int i = 0; i < b->entries.n; i++) {
    const CEntry *e = &b->entries.at[i];
    const CFunction *f = &b->functions.at[e->function];
    if (!f->nkeys) continue;
    str_addf(&s, "void %s(void *const *arg) { %s(arg", e->name, f->name);
    for (int k = 0; k < f->nkeys; k++) str_addf(&s, ", 0x%llxull", (unsigned long long)e->keys[k]);
    str_add(&s, "); }\n");
  }
  return s.text;
}

static bool compile_c(Build *b) {
  Program *p = b->out;
  p->nkernels = b->entries.n;
  if (!p->nkernels) return true;
  p->kernel_names = arena_array(b->arena, const char *, p->nkernels);
  for (int i = 0; i < p->nkernels; i++) p->kernel_names[i] = b->entries.at[i].name;
  p->kernel_source = c_source(b);
  Fail f = {0};
  const void *image;
  size_t size;
  if (!cpu_compile(b->arena, p->kernel_source, &image, &size, NULL, &f))
    return fail(b, arena_printf(b->arena, "%s", f.text));
  p->nimages = 1;
  p->images = arena_alloc(b->arena, sizeof *p->images);
  p->images[0].arch = cpu_arch();
  p->images[0].data = image;
  p->images[0].size = size;
  return true;
}

/* ---- commands ---- */

typedef struct {
  Build *b;
  const PlanProgram *from;
  const Graph *g;
} Unit;

static const Storage *place_in(const Cluster *c, const PlanStep *s, ValueId v) {
  for (int i = 0; i < c->nin; i++)
    if (c->in[i] == v) return &s->in[i];
  bug("`%s` reads value %d, which the step does not have", c->name, (int)v);
}

static Tensor tensor_in(const Unit *u, const Cluster *c, const PlanStep *s, ValueId v) {
  const Value *x = val(u->g, v);
  return program_tensor(u->b->p, place_in(c, s, v), &x->shape, x->dtype);
}
static Tensor tensor_out(const Unit *u, const Cluster *c, const PlanStep *s, int i) {
  const Value *x = val(u->g, c->out[i]);
  return program_tensor(u->b->p, &s->out[i], &x->shape, x->dtype);
}

static bool loop_command(const Unit *u, const Cluster *c, const PlanStep *s, Cmd *cmd) {
  Build *b = u->b;
  cmd->kind = CMD_KERNEL;
  cmd->ntensors = c->nin + c->nout;
  cmd->tensors = arena_array(b->arena, Tensor, cmd->ntensors + 1);
  for (int i = 0; i < c->nin; i++) cmd->tensors[i] = tensor_in(u, c, s, c->in[i]);
  for (int i = 0; i < c->nout; i++) cmd->tensors[c->nin + i] = tensor_out(u, c, s, i);
  vec_push(b->arena, &b->loops, ((Loop){.g = u->g, .c = c, .s = s, .cmd = cmd}));
  return true;
}

static bool gemm_command(const Unit *u, const Cluster *c, const PlanStep *s, Cmd *cmd) {
  const Node *n = node_at(u->g, c->nodes[0]);
  cmd->kind = CMD_GEMM;
  cmd->ntensors = 3;
  cmd->tensors = arena_array(u->b->arena, Tensor, 3);
  cmd->tensors[0] = tensor_in(u, c, s, n->in[0]);
  cmd->tensors[1] = tensor_in(u, c, s, n->in[1]);
  cmd->tensors[2] = tensor_out(u, c, s, 0);
  const char *why = NULL;
  if (!dot_gemm(u->g, c, &cmd->tensors[0], &cmd->tensors[1], &cmd->tensors[2], &cmd->gemm, &why))
    return fail(u->b, arena_printf(u->b->arena, "`%s`: %s", c->name, why));
  cmd->gemm.tf32 = precision_tf32(&u->b->p->job->precision, n);
  return true;
}

static bool attention_command(const Unit *u, const Cluster *c, const PlanStep *s, Cmd *cmd) {
  const Node *n = node_at(u->g, c->nodes[0]);
  int64_t flags = node_int(n, "flags");
  cmd->kind = c->kind == CL_ATTENTION ? CMD_ATTENTION : CMD_ATTENTION_BWD;
  cmd->attention = (Attention){.causal = node_int(n, "causal") != 0,
                               .has_mask = flags & 1,
                               .has_bias = (flags & 2) != 0,
                               .has_drop = (flags & 4) != 0,
                               .scale = node_num(n, "scale"),
                               .drop = node_num(n, "drop"),
                               .key = (uint64_t)node_int(n, "key")};
  cmd->tensors = arena_array(u->b->arena, Tensor, n->nin + c->nout + 1);
  for (int i = 0; i < n->nin; i++) cmd->tensors[cmd->ntensors++] = tensor_in(u, c, s, n->in[i]);
  for (int i = 0; i < c->nout; i++) cmd->tensors[cmd->ntensors++] = tensor_out(u, c, s, i);
  const char *why = NULL;
  return !u->b->cuda || cuda_build_attention(u->b->cuda, cmd, &why) || fail(u->b, why);
}

static bool scatter_command(const Unit *u, const Cluster *c, const PlanStep *s, Cmd *cmd) {
  const Node *n = node_at(u->g, c->nodes[0]);
  cmd->kind = CMD_SCATTER;
  cmd->accumulate = c->accumulate;
  cmd->ntensors = 3;
  cmd->tensors = arena_array(u->b->arena, Tensor, 3);
  cmd->tensors[0] = tensor_in(u, c, s, n->in[0]);
  cmd->tensors[1] = tensor_in(u, c, s, n->in[1]);
  cmd->tensors[2] = tensor_out(u, c, s, 0);
  const char *why = NULL;
  return !u->b->cuda || cuda_build_scatter(u->b->cuda, cmd, &why) || fail(u->b, why);
}

static bool command(const Unit *u, const PlanStep *s, Cmd *cmd) {
  const Cluster *c = &u->from->clusters.at[s->cluster];
  const Plan *p = u->b->p;
  cmd->name = c->name ? c->name : "";
  Loc loc = c->nnodes ? node_at(u->g, c->nodes[0])->loc : NO_LOC;
  cmd->where = p->job->diags ? loc_text(p->job->diags, u->b->arena, loc) : "";
  if (s->workspace >= 0) {
    cmd->workspace_offset = p->bufs.at[s->workspace].offset;
    cmd->workspace_bytes = p->bufs.at[s->workspace].bytes;
  }
  switch (c->kind) {
    case CL_LOOP:
      return loop_command(u, c, s, cmd);
    case CL_GEMM:
      return gemm_command(u, c, s, cmd);
    case CL_ATTENTION:
    case CL_ATTENTION_BWD:
      return attention_command(u, c, s, cmd);
    case CL_SCATTER:
      return scatter_command(u, c, s, cmd);
  }
  bug("a cluster of kind %d", (int)c->kind);
}

/* ---- programs ---- */

static bool is_end(const PlanProgram *from, int buf) {
  for (int i = 0; i < from->ninputs; i++)
    if (from->inputs[i].at.buf == buf) return true;
  for (int i = 0; i < from->nresults; i++)
    if (from->results[i].at.buf == buf) return true;
  return false;
}

/* Buffers that nothing reads after a command, in order of commands: place[s] is where buffers die that live up to step
 * s. Inputs and results belong to the host as well. */
static void deaths(const Plan *p, int program, ProgramCode *code, const int *place, Arena *a) {
  const PlanProgram *from = &p->programs.at[program];
  code->deaths = arena_alloc(a, sizeof *code->deaths * (size_t)(p->bufs.n + 1));
  int *count = arena_array(a, int, code->ncmds + 2);
  for (int pass = 0; pass < 2; pass++) {
    for (int i = 0; i < p->bufs.n; i++) {
      const PlanBuf *buf = &p->bufs.at[i];
      if (buf->program != program || buf->space == SPACE_HOST || is_end(from, i) || from->nsteps == 0) continue;
      int last = place[buf->last < from->nsteps ? buf->last : from->nsteps - 1];
      if (!pass) {
        count[last + 1]++;
      } else {
        int at = count[last]++;
        code->deaths[at].cmd = last;
        code->deaths[at].offset = buf->offset;
        code->deaths[at].bytes = buf->bytes;
        code->ndeaths++;
      }
    }
    for (int c = 0; !pass && c < code->ncmds; c++) count[c + 1] += count[c];
  }
}

static void ends(const Plan *p, const PlanProgram *from, ProgramCode *code, Arena *a) {
  const Graph *g = from->clusters.g;
  code->ninputs = from->ninputs;
  code->inputs = arena_alloc(a, sizeof *code->inputs * (size_t)(from->ninputs + 1));
  for (int i = 0; i < from->ninputs; i++) {
    const Value *v = val(g, from->inputs[i].value);
    code->inputs[i].name = from->inputs[i].name;
    code->inputs[i].at = program_tensor(p, &from->inputs[i].at, &v->shape, v->dtype);
  }
  code->nresults = from->nresults;
  code->results = arena_alloc(a, sizeof *code->results * (size_t)(from->nresults + 1));
  for (int i = 0; i < from->nresults; i++) {
    const Value *v = val(g, from->results[i].value);
    code->results[i].name = from->results[i].name;
    code->results[i].at = program_tensor(p, &from->results[i].at, &v->shape, v->dtype);
  }
}

/* ---- copies between host variables and their stages ---- */

typedef struct {
  const Unit *u;
  ProgramCode *code;
  int *cmd;    /* per copy of the plan: its command */
  int done[2]; /* by direction: copies before this one were waited for */
} Copies;

static void copy_command(Copies *x, int i) {
  const Plan *p = x->u->b->p;
  const PlanCopy *c = &x->u->from->copies[i];
  const PlanBuf *stage = &p->bufs.at[c->stage];
  x->cmd[i] = x->code->ncmds;
  x->code->cmds[x->code->ncmds++] = (Cmd){.kind = CMD_COPY,
                                          .name = stage->name,
                                          .where = p->job->diags ? loc_text(p->job->diags, x->u->b->arena, stage->loc) : "",
                                          .copy = {.to_host = c->to_host,
                                                   .device_offset = stage->offset,
                                                   .host_offset = p->bufs.at[c->host].offset,
                                                   .bytes = stage->bytes}};
}

/* Copies of one direction end in order: who waits for one has waited for those before it. */
static void wait_command(Copies *x, int i) {
  const PlanCopy *c = &x->u->from->copies[i];
  if (i < x->done[c->to_host]) return;
  x->done[c->to_host] = i + 1;
  Cmd *cmd = &x->code->cmds[x->code->ncmds++];
  *cmd = x->code->cmds[x->cmd[i]];
  cmd->kind = CMD_WAIT;
  cmd->copy.awaited = x->cmd[i];
}

/* What happens before step s; *at is the first copy that has not begun. Returns the last command after which what died in
 * the step before is free. */
static int boundary(Copies *x, int s, int *at) {
  const PlanProgram *from = x->u->from;
  for (int way = 0; way < 2; way++) {
    int last = -1;
    for (int i = 0; i < *at; i++)
      if (from->copies[i].to_host == way && from->copies[i].end == s) last = i;
    if (last >= 0) wait_command(x, last);
  }
  int free = x->code->ncmds - 1;
  for (; *at < from->ncopies && from->copies[*at].begin == s; ++*at) {
    copy_command(x, *at);
    if (from->copies[*at].end == s) wait_command(x, *at);
    if (from->copies[*at].to_host) free = x->code->ncmds - 1;
  }
  return free;
}

static bool one_program(Build *b, int i) {
  const PlanProgram *from = &b->p->programs.at[i];
  ProgramCode *code = &b->out->programs[i];
  Unit u = {b, from, from->clusters.g};
  code->name = from->name;
  code->cmds = arena_array(b->arena, Cmd, from->nsteps + 2 * from->ncopies + 1);
  Copies x = {.u = &u, .code = code, .cmd = arena_array(b->arena, int, from->ncopies + 1)};
  int *place = arena_array(b->arena, int, from->nsteps + 1), at = 0;
  for (int s = 0; s <= from->nsteps; s++) {
    int free = boundary(&x, s, &at);
    if (s > 0) place[s - 1] = free;
    if (s < from->nsteps && !command(&u, &from->steps[s], &code->cmds[code->ncmds++])) return false;
  }
  ends(b->p, from, code, b->arena);
  deaths(b->p, i, code, place, b->arena);
  return true;
}

/* ---- kernels of loops ---- */

enum { PIECE_LOOPS = 32 }; /* made by one thread in one go */

typedef struct {
  Build *b;
  Arena **arena; /* per piece */
} Pieces;

static void make_kernel(const Build *b, Loop *x, Arena *a) {
  x->kernel = lower_cluster(x->g, x->c, x->s->in, x->s->out, a, &x->why);
  if (!x->kernel) return;
  x->kernel->name = x->cmd->name;
  x->kernel->where = x->cmd->where;
  if (b->cuda) x->printed = cuda_print_kernel(b->cuda, x->kernel, a);
}

static void make_piece(void *arg, int piece) {
  const Pieces *x = arg;
  Arena *a = x->arena[piece] = arena_new();
  for (int i = piece * PIECE_LOOPS; i < (piece + 1) * PIECE_LOOPS && i < x->b->loops.n; i++)
    make_kernel(x->b, &x->b->loops.at[i], a);
}

static bool take_kernel(Build *b, const Loop *x) {
  const char *why = NULL;
  if (!x->kernel) return fail(b, x->why);
  ensure(b->cuda || x->kernel->workspace_bytes <= x->cmd->workspace_bytes,
         "`%s` needs %lld bytes of workspace, the plan has %lld", x->c->name,
         (long long)x->kernel->workspace_bytes, (long long)x->cmd->workspace_bytes);
  if (b->cuda) return cuda_build_printed(b->cuda, x->cmd, x->kernel, x->printed, &why) || fail(b, why);
  x->cmd->kernel = c_entry(b, x->kernel);
  return true;
}

/* Kernels are made by all threads and numbered in the order of their commands. */
static bool make_kernels(Build *b) {
  int pieces = (int)ceil_div(b->loops.n, PIECE_LOOPS);
  Pieces x = {b, arena_array(b->arena, Arena *, pieces + 1)};
  in_parallel(pieces, make_piece, &x);
  for (int i = 0; i < pieces; i++) arena_adopt(b->arena, x.arena[i]);
  for (int i = 0; i < b->loops.n; i++)
    if (!take_kernel(b, &b->loops.at[i])) return false;
  return true;
}

Program *program_build(const Plan *p, Arena *a, const char **why) {
  return program_build_on(p, p->target->kind, a, why);
}

Program *program_build_on(const Plan *p, DeviceKind device, Arena *a, const char **why) {
  Program *out = arena_new_of(a, Program);
  out->arena = a;
  program_tables(p, out);
  out->cuda = device == DEV_CUDA;
  Build b = {.p = p, .arena = a, .out = out};
  if (out->cuda) b.cuda = cuda_build_new(a, p->target, out->source);
  out->nprograms = p->programs.n;
  out->programs = arena_array(a, ProgramCode, out->nprograms + 1);
  bool ok = true;
  for (int i = 0; ok && i < out->nprograms; i++) ok = one_program(&b, i);
  ok = ok && make_kernels(&b);
  if (ok && b.cuda) {
    Fail f = {0};
    ok = cuda_build_finish(b.cuda, out, &f) || fail(&b, arena_printf(a, "%s", f.text));
  } else if (ok) {
    ok = compile_c(&b);
  }
  if (ok) return out;
  *why = b.why;
  return NULL;
}
