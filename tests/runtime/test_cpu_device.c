/* test_cpu_device.c - the CPU device itself: where kernels come from, the arena, poison, several
 * devices at once. */
#include "cpu_program.h"
#include "runtime/cpu_cc.h"

static const char twice[] =
    "void k(void *const *arg) { const float *x = arg[0]; float *y = arg[1]; y[0] = 2 * x[0]; }\n";
static const char thrice[] =
    "void k(void *const *arg) { const float *x = arg[0]; float *y = arg[1]; y[0] = 3 * x[0]; }\n";

/* y = kernel(x); the program is not opened yet. */
static void kernel_program(OneCommand *c, Arena *a, const char *source) {
  static const char *names[] = {"k"};
  one_new(c, a, CMD_KERNEL);
  one_tensor(c, DT_F32, SHAPE(1), 0);
  one_tensor(c, DT_F32, SHAPE(1), 0);
  c->program.nkernels = 1;
  c->program.kernel_names = names;
  c->program.kernel_source = source;
}

static double result(OneCommand *c, double x) {
  one_put(c, 0, &x);
  one_run(c);
  return one_get(c, 1)[0];
}

static bool opens(OneCommand *c, Fail *f) {
  DeviceOptions o = {.threads = 1};
  c->code = (ProgramCode){.name = "test", .ncmds = 1, .cmds = &c->cmd};
  c->program.nprograms = 1;
  c->program.programs = &c->code;
  *f = (Fail){0};
  return replay_open(&c->replay, &c->program, &o, f);
}

static void kernels_from_source(void **state) {
  (void)state;
  Arena *a = arena_new();
  OneCommand c;
  kernel_program(&c, a, twice);
  one_open(&c, 1);
  assert_true(result(&c, 21) == 42);
  replay_close(&c.replay);
  arena_free(a);
}

static void images_of_this_cpu_only(void **state) {
  (void)state;
  Arena *a = arena_new();
  OneCommand c;
  Fail f = {0};
  const void *image;
  size_t size;
  assert_true(cpu_compile(a, thrice, &image, &size, NULL, &f));
  kernel_program(&c, a, twice); /* source and image differ, so that one can tell which was taken */
  c.program.nimages = 1;
  c.program.images = arena_alloc(a, sizeof *c.program.images);
  c.program.images[0].data = image;
  c.program.images[0].size = size;
  c.program.images[0].arch = cpu_arch();
  one_open(&c, 1);
  assert_true(result(&c, 21) == 63);
  replay_close(&c.replay);
  c.program.images[0].arch = "x86-64:00000000";
  one_open(&c, 1);
  assert_true(result(&c, 21) == 42);
  replay_close(&c.replay);
  c.program.kernel_source = NULL;
  assert_false(opens(&c, &f));
  assert_int_equal(f.code, EXIT_DEVICE);
  assert_non_null(strstr(f.text, "no kernels for this CPU"));
  arena_free(a);
}

static void broken_kernels_are_named(void **state) {
  (void)state;
  Arena *a = arena_new();
  OneCommand c;
  Fail f;
  kernel_program(&c, a, "void k(void *const *arg) { nonsense }\n");
  assert_false(opens(&c, &f));
  assert_int_equal(f.code, EXIT_DEVICE);
  assert_non_null(strstr(f.text, "nonsense"));
  kernel_program(&c, a, "void other(void *const *arg) { (void)arg; }\n");
  assert_false(opens(&c, &f));
  assert_non_null(strstr(f.text, "lack `k`"));
  arena_free(a);
}

static void devices_side_by_side(void **state) {
  (void)state;
  Arena *a = arena_new();
  OneCommand c, d;
  kernel_program(&c, a, twice);
  kernel_program(&d, a, thrice);
  one_open(&c, 1);
  one_open(&d, 2);
  assert_true(result(&c, 5) == 10);
  assert_true(result(&d, 5) == 15);
  assert_true(result(&c, 6) == 12);
  replay_close(&c.replay);
  replay_close(&d.replay);
  arena_free(a);
}

static void the_arena_is_what_was_planned(void **state) {
  (void)state;
  Arena *a = arena_new();
  OneCommand c;
  Fail f;
  one_new(&c, a, CMD_FILL);
  one_tensor(&c, DT_F32, SHAPE(5000), 0);
  one_open(&c, 1);
  assert_int_equal(c.replay.api->measured(c.replay.device), round_up(c.program.arena_bytes, 4096));
  const char *host = c.replay.api->reach(c.replay.device, false);
  assert_int_equal((uintptr_t)host % 4096, 0);
  for (int64_t i = 0; i < c.program.arena_bytes; i++) assert_int_equal(host[i], 0);
  double *ones = arena_array(a, double, 5000);
  for (int i = 0; i < 5000; i++) ones[i] = 1;
  one_put(&c, 0, ones);
  one_run(&c);
  assert_true(one_get(&c, 0)[4999] == 0);
  replay_close(&c.replay);
  c.program.arena_bytes = (int64_t)1 << 50;
  assert_false(opens(&c, &f));
  assert_int_equal(f.code, EXIT_DEVICE);
  assert_non_null(strstr(f.text, "--vram"));
  arena_free(a);
}

/* One persistent byte range, an input, a result, a buffer that dies. */
static void poison(void **state) {
  (void)state;
  Arena *a = arena_new();
  OneCommand c;
  kernel_program(&c, a, twice);
  Tensor spare = c.tensors[0];
  spare.offset = c.program.arena_bytes;
  c.program.arena_bytes += 1024;
  c.program.persistent_bytes = 0;
  ProgramCode code = {.name = "test", .ncmds = 1, .cmds = &c.cmd, .ninputs = 1, .ndeaths = 1};
  code.inputs = arena_alloc(a, sizeof *code.inputs);
  code.inputs[0].name = "x";
  code.inputs[0].at = c.tensors[0];
  code.deaths = arena_alloc(a, sizeof *code.deaths);
  code.deaths[0].cmd = 0;
  code.deaths[0].offset = spare.offset;
  code.deaths[0].bytes = 512;
  c.program.nprograms = 1;
  c.program.programs = &code;
  DeviceOptions o = {.threads = 1, .poison = true};
  Fail f = {0};
  assert_true(replay_open(&c.replay, &c.program, &o, &f));
  assert_true(result(&c, 4) == 8); /* the input survived */
  const unsigned char *host = c.replay.api->reach(c.replay.device, false);
  for (int i = 0; i < 1024; i++) assert_int_equal(host[spare.offset + i], 0xff);
  assert_int_equal(host[c.tensors[1].offset + 4], 0xff); /* beside the result */
  replay_close(&c.replay);
  arena_free(a);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(kernels_from_source),           cmocka_unit_test(images_of_this_cpu_only),
      cmocka_unit_test(broken_kernels_are_named),      cmocka_unit_test(devices_side_by_side),
      cmocka_unit_test(the_arena_is_what_was_planned), cmocka_unit_test(poison),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
