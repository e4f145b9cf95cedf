/* test_mtx.c - .mtx: what is written is read back, the same bytes every time, and nothing damaged
 * is accepted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>

#include "toy.h"

/* A record that grows must be added to runtime/mtx_code.c as well; then its size here changes. */
_Static_assert(sizeof(Tensor) == 152, "Tensor changed: see mtx_code.c");
_Static_assert(sizeof(Gemm) == 104, "Gemm changed: see mtx_code.c");
_Static_assert(sizeof(Attention) == 32, "Attention changed: see mtx_code.c");
_Static_assert(sizeof(Copy) == 40, "Copy changed: see mtx_code.c");
_Static_assert(sizeof(Launch) == 48, "Launch changed: see mtx_code.c");
_Static_assert(sizeof(ProgramVar) == 208, "ProgramVar changed: see mtx_code.c");
_Static_assert(sizeof(ProgramPhase) == 144, "ProgramPhase changed: see mtx_code.c");
_Static_assert(sizeof(ProgramData) == 64, "ProgramData changed: see mtx_code.c");

static const char *path_in(Arena *a, const char *name) {
  const char *dir = getenv("TMPDIR");
  return arena_printf(a, "%s/mtc-mtx-%ld-%s", dir ? dir : "/tmp", (long)getpid(), name);
}

static char *written(Arena *a, const Program *p, const char *name, size_t *size) {
  const char *path = path_in(a, name), *why;
  assert_true(mtx_write(p, path, &why));
  char *bytes = read_file(a, path, size);
  assert_non_null(bytes);
  unlink(path);
  return bytes;
}

static void reads_what_it_wrote(void **state) {
  (void)state;
  Arena *a = arena_new();
  size_t n, again;
  const char *why;
  char *bytes = written(a, toy_full_program(a), "one", &n);
  Program *p = mtx_read_mem(a, bytes, n, &why);
  if (!p) fail_msg("%s", why);
  char *copy = written(a, p, "two", &again);
  assert_int_equal(n, again);
  assert_memory_equal(bytes, copy, n);
  assert_string_equal(p->programs[0].cmds[0].name, "h.0.q");
  assert_null(p->programs[0].cmds[1].name);
  assert_int_equal(p->programs[0].cmds[1].launches[0].grid[2], 4);
  assert_int_equal(p->vars[1].init_from, 0);
  assert_true(p->vars[2].at.host && p->host_bytes == TOY_HOST);
  assert_int_equal(p->programs[0].cmds[4].copy.awaited, 3);
  assert_true(p->phases[0].epochs == 1.5 && p->data[0].holdout == 0.1);
  assert_int_equal(p->nimages, 2);
  assert_memory_equal(p->images[1].data, "two", 3);
  assert_string_equal(p->kernel_source, "void k0(void) {}\n");
  arena_free(a);
}

static void any_flipped_bit_is_found(void **state) {
  (void)state;
  Arena *a = arena_new();
  size_t n;
  char *bytes = written(a, toy_full_program(a), "flip", &n);
  for (size_t i = 0; i < n; i++) {
    Arena *b = arena_new();
    const char *why = NULL;
    bytes[i] ^= (char)(1 << i % 8);
    assert_null(mtx_read_mem(b, bytes, n, &why));
    assert_non_null(why);
    bytes[i] ^= (char)(1 << i % 8);
    arena_free(b);
  }
  arena_free(a);
}

static void any_truncation_is_found(void **state) {
  (void)state;
  Arena *a = arena_new();
  size_t n;
  char *bytes = written(a, toy_full_program(a), "cut", &n);
  for (size_t i = 0; i < n; i++) {
    Arena *b = arena_new();
    const char *why = NULL;
    char *part = malloc(i + 1);
    memcpy(part, bytes, i);
    assert_null(mtx_read_mem(b, part, i, &why));
    assert_non_null(why);
    free(part);
    arena_free(b);
  }
  arena_free(a);
}

/* Valid files of programs that would leave their bounds. */
typedef void (*Break)(Program *p);
static void tensor_outside(Program *p) {
  p->programs[0].cmds[0].tensors[2].offset = TOY_ARENA - 16;
}
static void tensor_overflows(Program *p) {
  p->vars[0].at.dim[0] = INT64_MAX / 2;
}
static void tensor_unaligned(Program *p) {
  p->vars[0].at.offset = 2;
}
static void negative_stride(Program *p) {
  p->vars[0].at.stride[0] = -4;
}
static void product_outside(Program *p) {
  p->programs[0].cmds[0].gemm.lda = 1000;
}
static void too_few_tensors(Program *p) {
  p->programs[0].cmds[0].ntensors = 2;
}
static void no_such_kernel(Program *p) {
  p->programs[0].cmds[1].launches[0].kernel = 1;
}
static void workspace_outside(Program *p) {
  p->programs[0].cmds[1].workspace_bytes = TOY_ARENA;
}
static void death_of_nothing(Program *p) {
  p->programs[0].deaths[0].cmd = 5;
}
static void input_outside(Program *p) {
  p->programs[0].inputs[0].at.offset = TOY_ARENA;
}
static void no_such_program(Program *p) {
  p->phases[0].update = 1;
}
static void no_update_of_several(Program *p) {
  p->phases[0].update = -1, p->phases[0].accumulation = 2;
}
static void no_such_data(Program *p) {
  p->phases[0].data = 1;
}
static void no_such_variable(Program *p) {
  p->weights[0].var = 3;
}
static void copy_of_itself(Program *p) {
  p->vars[1].init_from = 1;
}
static void same_path(Program *p) {
  p->vars[1].path = "w";
}
static void endless(Program *p) {
  p->phases[0].steps = 0, p->phases[0].epochs = 0;
}
static void huge_batch(Program *p) {
  p->phases[0].accumulation = INT32_MAX;
}
static void bad_attention(Program *p) {
  p->programs[0].cmds[0].kind = CMD_ATTENTION;
}
static void bad_scatter(Program *p) {
  p->programs[0].cmds[0].kind = CMD_SCATTER;
}
static void copy_outside(Program *p) {
  p->programs[0].cmds[3].copy.device_offset = TOY_ARENA - 32;
}
static void copy_outside_the_host(Program *p) {
  p->programs[0].cmds[3].copy.host_offset = TOY_HOST - 32;
}
static void copy_before_the_host(Program *p) {
  p->programs[0].cmds[3].copy.host_offset = -64;
}
static void copy_too_large(Program *p) {
  p->programs[0].cmds[3].copy.bytes = INT64_MAX;
}
static void copy_of_nothing(Program *p) {
  p->programs[0].cmds[3].copy.bytes = 0;
}
static void copy_with_operands(Program *p) {
  p->programs[0].cmds[3].ntensors = 1;
  p->programs[0].cmds[3].tensors = p->programs[0].cmds[2].tensors;
}
static void no_host_arena(Program *p) {
  p->host_bytes = 0;
}
static void endless_host_arena(Program *p) {
  p->host_bytes = INT64_MAX;
}
static void waits_for_itself(Program *p) {
  p->programs[0].cmds[4].copy.awaited = 4;
}
static void waits_for_a_kernel(Program *p) {
  p->programs[0].cmds[4].copy.awaited = 1;
}
static void waits_before_the_copy(Program *p) {
  Cmd copy = p->programs[0].cmds[3];
  p->programs[0].cmds[3] = p->programs[0].cmds[4];
  p->programs[0].cmds[4] = copy;
  p->programs[0].cmds[3].copy.awaited = 4;
}
static void waits_twice(Program *p) {
  p->programs[0].cmds[2] = p->programs[0].cmds[3];
  p->programs[0].cmds[3] = p->programs[0].cmds[4];
  p->programs[0].cmds[3].copy.awaited = p->programs[0].cmds[4].copy.awaited = 2;
}
static void operand_on_the_host(Program *p) {
  p->programs[0].cmds[0].tensors[0].host = true;
}
static void input_on_the_host(Program *p) {
  p->programs[0].inputs[0].at.host = true, p->programs[0].inputs[0].at.offset = 0;
}
static void host_variable_outside(Program *p) {
  p->vars[2].at.offset = TOY_HOST;
}

static void programs_out_of_bounds_are_refused(void **state) {
  (void)state;
  static const Break breaks[] = {tensor_outside,
                                 tensor_overflows,
                                 tensor_unaligned,
                                 negative_stride,
                                 product_outside,
                                 too_few_tensors,
                                 no_such_kernel,
                                 workspace_outside,
                                 death_of_nothing,
                                 input_outside,
                                 no_such_program,
                                 no_update_of_several,
                                 no_such_data,
                                 no_such_variable,
                                 copy_of_itself,
                                 same_path,
                                 endless,
                                 huge_batch,
                                 bad_attention,
                                 bad_scatter,
                                 copy_outside,
                                 copy_outside_the_host,
                                 copy_before_the_host,
                                 copy_too_large,
                                 copy_of_nothing,
                                 copy_with_operands,
                                 no_host_arena,
                                 endless_host_arena,
                                 waits_for_itself,
                                 waits_for_a_kernel,
                                 waits_before_the_copy,
                                 waits_twice,
                                 operand_on_the_host,
                                 input_on_the_host,
                                 host_variable_outside};
  for (int i = 0; i < COUNT_OF(breaks); i++) {
    Arena *a = arena_new();
    Program *p = toy_full_program(a);
    const char *why = NULL;
    size_t n;
    breaks[i](p);
    char *bytes = written(a, p, "break", &n);
    if (mtx_read_mem(a, bytes, n, &why)) fail_msg("break %d was accepted", i);
    assert_non_null(why);
    arena_free(a);
  }
}

static void reasons_name_the_section(void **state) {
  (void)state;
  Arena *a = arena_new();
  size_t n;
  const char *why;
  char *bytes = written(a, toy_full_program(a), "name", &n);
  char *kernel = memmem(bytes, n, "void k0", 7);
  assert_non_null(kernel);
  kernel[0] = 'V';
  assert_null(mtx_read_mem(a, bytes, n, &why));
  assert_non_null(strstr(why, "section kernels"));
  assert_null(mtx_read_mem(a, "hello", 5, &why));
  assert_string_equal(why, "not a .mtx file");
  assert_null(mtx_read(a, "/nonexistent.mtx", &why));
  assert_non_null(strstr(why, "/nonexistent.mtx"));
  arena_free(a);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(reads_what_it_wrote),
      cmocka_unit_test(any_flipped_bit_is_found),
      cmocka_unit_test(any_truncation_is_found),
      cmocka_unit_test(programs_out_of_bounds_are_refused),
      cmocka_unit_test(reasons_name_the_section),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
