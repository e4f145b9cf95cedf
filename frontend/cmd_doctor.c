/* cmd_doctor.c - `mtc doctor`: what this machine has for training and what it lacks, with remedies;
 * as lines or as one JSON object, schema docs/schema/doctor.json. Exit 4 when nothing here can
 * train. */
#include <jansson.h>
#include <string.h>

#include "codegen/nvrtc.h"
#include "codegen/target.h"
#include "frontend/cli.h"
#include "runtime/doctor.h"

typedef struct {
  DoctorHost host;
  DoctorCpu cpu;
  DoctorGpu gpu;
  int nvrtc; /* 1300 for 13.0; 0 missing */
  const char *nvrtc_path;
  const char *gpu_why; /* why the GPU cannot train, or NULL */
  VEC(const char *) warnings;
} Checkup;

static double gib(int64_t bytes) {
  return (double)bytes / (1 << 30);
}
static double mib(int64_t bytes) {
  return (double)bytes / (1 << 20);
}

/* ---- looking ---- */

/* An architecture that kernels are emitted for and that this GPU runs; -1 none. */
static int arch_of(const DoctorGpu *g) {
  int best = -1;
  for (int i = 0; i < cuda_arch_count; i++) {
    int sm = cuda_archs[i].sm;
    if (sm / 10 == g->major && sm % 10 <= g->minor && sm > best) best = sm;
  }
  return best;
}

static bool look_at_gpu(Cli *c, Checkup *k, Fail *f) {
  static const char kernel[] = "mt_doctor";
  Fail libraries = {0};
  nvrtc_find(&k->nvrtc, &k->nvrtc_path, &libraries);
  doctor_cublaslt(c->arena, &k->gpu, &libraries);
  if (!doctor_gpu_open(&k->gpu, f)) return false;
  if (libraries.code) return fail_set(f, libraries.code, "%s", libraries.text);
  int sm = arch_of(&k->gpu);
  if (sm < 0)
    return fail_set(f, EXIT_DEVICE,
                    "%s has compute capability %d.%d, for which no kernels are emitted",
                    k->gpu.name, k->gpu.major, k->gpu.minor);
  CudaSource source = {"extern \"C\" __global__ void mt_doctor() {}\n",
                       "the kernel of `mtc doctor`", sm, false};
  CudaImage image;
  return nvrtc_compile(c->arena, 1, &source, &image, f) &&
         doctor_gpu_measure(&k->gpu, image.cubin, kernel, f);
}

static void warn(Cli *c, Checkup *k, const char *text) {
  vec_push(c->arena, &k->warnings, text);
}

static void find_warnings(Cli *c, Checkup *k) {
  const DoctorHost *h = &k->host;
  const DoctorGpu *g = &k->gpu;
  if (h->wsl)
    warn(c, k,
         "WSL: the Windows driver lets programs take more memory than the card has and pages it to "
         "the host, ten "
         "times slower; close what else uses the GPU and leave it room with --reserve 1G");
  if (g->watchdog || g->before.display == 1)
    warn(c, k, "a display runs on this GPU: plan with --reserve 1G");
  if (g->has_nvml && g->before.ecc_errors > 0)
    warn(
        c, k,
        arena_printf(c->arena,
                     "%lld memory errors that ECC could not correct: restart the GPU or replace it",
                     (long long)g->before.ecc_errors));
  if (g->gpus > 1)
    warn(c, k,
         arena_printf(c->arena, "%d GPUs; mtc uses the first (CUDA_VISIBLE_DEVICES chooses it)",
                      g->gpus));
  if (h->container >= 0)
    warn(c, k,
         arena_printf(c->arena, "this container may take %s of the machine's %s",
                      format_bytes(c->arena, h->container), format_bytes(c->arena, h->ram)));
  if (h->usable_cores < h->cores)
    warn(c, k,
         arena_printf(c->arena, "this process may use %d of %d cores", h->usable_cores, h->cores));
  if (!k->cpu.works) warn(c, k, "the CPU target needs a C compiler: install gcc or clang as `cc`");
}

static void look(Cli *c, Checkup *k) {
  Fail f = {0};
  doctor_host(c->arena, &k->host);
  doctor_cpu(c->arena, &k->cpu);
  if (!look_at_gpu(c, k, &f)) k->gpu_why = arena_printf(c->arena, "%s", f.text);
  find_warnings(c, k);
}

/* ---- lines ---- */

/* The row of the target table that a GPU's name has in it: "NVIDIA H200" is h200. NULL when none
 * is. */
static const Target *row_of(const DoctorGpu *g) {
  const Target *best = NULL;
  for (int i = 0; i < target_count(); i++) {
    const Target *t = target_at(i);
    if (t->kind != DEV_CUDA || !strstr(g->name, t->title)) continue;
    if (!best || strlen(t->title) > strlen(best->title)) best = t;
  }
  return best;
}

static void copy_lines(const DoctorGpu *g) {
  printf("pcie     ");
  if (g->before.pcie_gen) printf("%d.0 x%d   ", g->before.pcie_gen, g->before.pcie_lanes);
  printf("%.1f GB/s to the GPU, %.1f from it, %.1f and %.1f at once (pinned)\n", 1e-9 * g->h2d,
         1e-9 * g->d2h, 1e-9 * g->both[0], 1e-9 * g->both[1]);
  const Target *t = row_of(g);
  if (!t) return;
  printf("         plans for %s take %.1f, %.1f, and %.1f and %.1f at once", t->name, t->h2d_gbs,
         t->d2h_gbs, t->h2d_gbs * t->both_ways, t->d2h_gbs * t->both_ways);
  bool slow = 1e-9 * g->h2d < 0.9 * t->h2d_gbs || 1e-9 * g->d2h < 0.9 * t->d2h_gbs;
  puts(slow ? ": this machine is slower; `mtc bench -o` measures a target for it" : "");
}

static void gpu_lines(const Checkup *k) {
  const DoctorGpu *g = &k->gpu;
  if (g->driver_cuda)
    printf("driver   %s (CUDA %d.%d)\n", g->has_nvml ? g->before.driver : "of unknown version",
           g->driver_cuda / 1000, g->driver_cuda % 1000 / 10);
  else
    puts("driver   not found");
  if (k->nvrtc)
    printf("nvrtc    %d.%d   %s\n", k->nvrtc / 100, k->nvrtc % 100, k->nvrtc_path);
  else
    puts(
        "nvrtc    not found: GPU programs cannot be compiled here; install a CUDA toolkit, or\n"
        "         the wheel nvidia-cuda-nvrtc, and name its folder in MTC_CUDA_LIBS");
  if (g->lt_version)
    printf("cublasLt %zu   %s\n", g->lt_version, g->lt_path);
  else
    puts(
        "cublasLt not found: GPU programs cannot run here; install a CUDA toolkit, or\n"
        "         the wheel nvidia-cublas, and name its folder in MTC_CUDA_LIBS");
  if (g->name[0])
    printf("gpu 0    %s   sm_%d%d   %d SMs   %.0f MiB total, %.0f free%s\n", g->name, g->major,
           g->minor, g->units, mib(g->total), mib(g->unused), g->unused ? " with a context" : "");
  if (g->has_nvml) {
    printf("         %.0f MiB held before this program", mib(g->before.used));
    for (int i = 0; i < g->before.nusers; i++) {
      const GpuUser *u = &g->before.user[i];
      printf("%s %s %d", i ? "," : ":", u->name[0] ? u->name : "process", u->pid);
      if (u->bytes >= 0) printf(" %.0f MiB", mib(u->bytes));
    }
    puts(g->before.nusers || g->before.used < (int64_t)1 << 30
             ? ""
             : ": by processes that are not visible here");
  } else if (g->name[0]) {
    puts("         NVML (libnvidia-ml.so.1) not found: who holds memory is not known");
  }
  if (g->overhead >= 0)
    printf("         context and modules take %.0f MiB (measured)\n", mib(g->overhead));
  if (g->ecc >= 0) printf("         ECC %s\n", g->ecc ? "on" : "off");
  if (g->h2d > 0) copy_lines(g);
  if (k->gpu_why) printf("gpu      cannot train: %s\n", k->gpu_why);
}

static void host_lines(const Checkup *k, Arena *a) {
  const DoctorHost *h = &k->host;
  printf("host     %.1f GiB RAM, %.1f free, ulimit -l: %s   %d cores%s%s\n", gib(h->ram),
         gib(h->free_ram), h->locked < 0 ? "all" : format_bytes(a, h->locked), h->cores,
         h->in_container ? "   container" : "", h->wsl ? "   WSL" : "");
  if (h->disk_read > 0)
    printf("disk     reads %.2f GB/s%s (128 MiB in %s)\n", 1e-9 * h->disk_read,
           h->disk_in_memory ? " from memory: the file never left it" : "", h->disk_folder);
  else
    puts("disk     could not be measured: no folder to write to");
  printf("cpu      %s   %s, %d threads\n", k->cpu.works ? k->cpu.compiler : "no C compiler",
         k->cpu.blas, k->cpu.blas_threads);
  if (!k->cpu.works) printf("cpu      cannot train: %s\n", k->cpu.why);
}

/* ---- JSON ---- */

static void real(json_t *o, const char *key, double v) {
  json_object_set_new(o, key, json_real(v));
}
static void whole(json_t *o, const char *key, int64_t v) {
  json_object_set_new(o, key, json_integer(v));
}
static void flag(json_t *o, const char *key, bool v) {
  json_object_set_new(o, key, json_boolean(v));
}
static void text(json_t *o, const char *key, const char *v) {
  json_object_set_new(o, key, v && *v ? json_string(v) : json_null());
}
/* -1 is null. */
static void maybe(json_t *o, const char *key, int64_t v) {
  json_object_set_new(o, key, v < 0 ? json_null() : json_integer(v));
}

static json_t *users_json(const NvmlState *s) {
  json_t *list = json_array();
  for (int i = 0; i < s->nusers; i++) {
    json_t *o = json_object();
    whole(o, "pid", s->user[i].pid);
    text(o, "name", s->user[i].name);
    maybe(o, "bytes", s->user[i].bytes);
    json_array_append_new(list, o);
  }
  return list;
}

static json_t *gpu_json(const Checkup *k) {
  const DoctorGpu *g = &k->gpu;
  json_t *o = json_object();
  flag(o, "trains", !k->gpu_why);
  text(o, "why", k->gpu_why);
  text(o, "name", g->name);
  whole(o, "gpus", g->gpus);
  whole(o, "sm", g->major * 10 + g->minor);
  text(o, "driver", g->before.driver);
  whole(o, "driver_cuda", g->driver_cuda);
  whole(o, "nvrtc", k->nvrtc);
  text(o, "nvrtc_path", k->nvrtc_path);
  whole(o, "cublaslt", (int64_t)g->lt_version);
  text(o, "cublaslt_path", g->lt_path);
  whole(o, "total_bytes", g->total);
  whole(o, "free_bytes", g->unused);
  maybe(o, "held_bytes", g->has_nvml ? g->before.used : -1);
  json_object_set_new(o, "users", users_json(&g->before));
  maybe(o, "overhead_bytes", g->overhead);
  maybe(o, "ecc", g->ecc);
  maybe(o, "ecc_errors", g->before.ecc_errors);
  flag(o, "display", g->watchdog || g->before.display == 1);
  real(o, "h2d_gbs", 1e-9 * g->h2d);
  real(o, "d2h_gbs", 1e-9 * g->d2h);
  real(o, "both_ways_gbs", 1e-9 * (g->both[0] < g->both[1] ? g->both[0] : g->both[1]));
  const Target *row = row_of(g);
  text(o, "target", row ? row->name : NULL);
  return o;
}

static json_t *host_json(const DoctorHost *h) {
  json_t *o = json_object();
  whole(o, "ram_bytes", h->ram);
  whole(o, "free_bytes", h->free_ram);
  maybe(o, "container_bytes", h->container);
  maybe(o, "locked_bytes", h->locked);
  flag(o, "container", h->in_container);
  flag(o, "wsl", h->wsl);
  whole(o, "cores", h->cores);
  whole(o, "usable_cores", h->usable_cores);
  real(o, "disk_gbs", 1e-9 * h->disk_read);
  text(o, "disk_folder", h->disk_folder);
  flag(o, "disk_in_memory", h->disk_in_memory);
  return o;
}

static void print_json(const Checkup *k) {
  json_t *o = json_object(), *cpu = json_object(), *list = json_array();
  text(o, "schema", "mtc.doctor/1");
  text(o, "version", MTC_VERSION);
  json_object_set_new(o, "gpu", gpu_json(k));
  flag(cpu, "trains", k->cpu.works);
  text(cpu, "why", k->cpu.why);
  text(cpu, "compiler", k->cpu.compiler);
  text(cpu, "blas", k->cpu.blas);
  whole(cpu, "blas_threads", k->cpu.blas_threads);
  json_object_set_new(o, "cpu", cpu);
  json_object_set_new(o, "host", host_json(&k->host));
  for (int i = 0; i < k->warnings.n; i++)
    json_array_append_new(list, json_string(k->warnings.at[i]));
  json_object_set_new(o, "warnings", list);
  json_dumpf(o, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(6));
  putchar('\n');
  json_decref(o);
}

/* ---- the command ---- */

int cmd_doctor(Cli *c) {
  Checkup k = {.nvrtc_path = "", .gpu = {.lt_path = ""}};
  look(c, &k);
  bool gpu = !k.gpu_why, cpu = k.cpu.works;
  if (c->flag.json) {
    print_json(&k);
  } else {
    printf("mtc      %s\n", MTC_VERSION);
    gpu_lines(&k);
    host_lines(&k, c->arena);
    for (int i = 0; i < k.warnings.n; i++) printf("warn     %s\n", k.warnings.at[i]);
    printf("result   %s\n", gpu && cpu ? "trains on cuda and on cpu"
                            : gpu      ? "trains on cuda"
                            : cpu      ? "trains on cpu (--device cpu)"
                                       : "nothing here can train");
  }
  return gpu || cpu ? EXIT_OK : EXIT_DEVICE;
}
