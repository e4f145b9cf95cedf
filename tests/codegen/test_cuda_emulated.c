/* test_cuda_emulated.c - emitted CUDA kernels run on the processor against references in f64: the
 * cases of device_check at small sizes, with asynchronous copies as early and as late as they may
 * arrive. Faults planted in the text must be found. Tables of 8-bit codes against their functions.
 *
 * Needs a C++ compiler, else it is skipped; no GPU and no NVRTC. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "../device/device_case.h"
#include "emulate.h"
#include "ir/formats.h"

enum { UNITS = 2 }; /* so few SMs that their blocks take several rows each */

typedef struct {
  const char *graph;
  int64_t rows, cols;
  DType t;
} Loop;
static const Loop loops[] = {
    {"layernorm", 77, 768, DT_BF16},
    {"layernorm", 20, 66, DT_F16},
    {"residual_norm", 40, 1000, DT_F32},
    {"block_norm", 70, 768, DT_F32},
    {"block_norm", 40, 320, DT_BF16},
    {"rmsnorm", 70, 320, DT_BF16},
    {"cross_entropy", 34, 1003, DT_BF16},
    {"cross_entropy", 9, 5003, DT_F32},
    {"gelu_tanh", 33, 320, DT_BF16},
    {"gelu_tanh", 40, 100, DT_F32},
    {"adamw", 20, 64, DT_F32},
    {"adamw_split", 20, 65, DT_BF16},
    {"adamw_blocks", 33, 256, DT_BF16},
    {"adamw_split_blocks", 66, 512, DT_BF16},
    {"lion_blocks", 100, 512, DT_BF16},
    {"adamw_random", 20, 64, DT_BF16},
    {"adafactor", 70, 320, DT_BF16},
    {"rope", 20, 320, DT_BF16},
    {"column_sum", 200, 320, DT_F32},
    {"extremes", 40, 1003, DT_BF16},
    {"dropout", 20, 320, DT_BF16},
};
typedef struct {
  int64_t ids, rows, cols;
  DType in, out;
  bool accumulate;
} Scatter;
static const Scatter scatters[] = {
    {600, 97, 320, DT_BF16, DT_F32, true},
    {1100, 700, 24, DT_F32, DT_F32, false},
    {300, 5, 33, DT_BF16, DT_BF16, true},
};

typedef struct {
  Target target;
  Bench bench;
  LoopCase *loop[COUNT_OF(loops)];
  int nloops;
  ScatterCase *scatter[COUNT_OF(scatters)];
  int nscatters;
} Emulated;

static void begin(Emulated *e) {
  *e = (Emulated){.target = *target_by_name("h200")};
  e->target.units = UNITS;
  e->bench = bench_for(&e->target);
  e->bench.api = &emulated_cuda;
}
static void add_loop(Emulated *e, const Loop *l) {
  int row = 0;
  while (strcmp(kernel_graph_rows[row].name, l->graph))
    assert_true(++row < COUNT_OF(kernel_graph_rows));
  e->loop[e->nloops++] = loop_case(&e->bench, row, l->rows, l->cols, l->t);
}
static void add_scatter(Emulated *e, const Scatter *s) {
  e->scatter[e->nscatters++] =
      scatter_case(&e->bench, s->ids, s->rows, s->cols, s->in, s->out, s->accumulate);
}

/* The text of all kernels, without every `without`, unless NULL. */
static void open_without(Emulated *e, const char *without) {
  Bench *b = &e->bench;
  Program *p = &b->program;
  bench_program(b);
  cuda_build_text(b->build, p);
  if (without) {
    Str text = {.arena = b->a};
    const char *t = p->kernel_source, *hit;
    assert_non_null(strstr(t, without));
    for (; (hit = strstr(t, without)); t = hit + strlen(without))
      str_add_n(&text, t, (size_t)(hit - t));
    str_add(&text, t);
    p->kernel_source = text.text;
  }
  b->device = b->api->open(p, &(DeviceOptions){0}, &b->fail);
  if (!b->device) fail_msg("%s", b->fail.text);
}

/* Returns how many results are wrong. */
static int run_all(Emulated *e, bool late) {
  emulator.late = late;
  random_state = 88172645463325252ull;
  e->bench.bad = 0;
  for (int i = 0; i < e->nscatters; i++) check_scatter(&e->bench, e->scatter[i]);
  for (int i = 0; i < e->nloops; i++) check_loop(&e->bench, e->loop[i]);
  return e->bench.bad;
}
static void end(Emulated *e) {
  e->bench.api->close(e->bench.device);
  arena_free(e->bench.a);
}

/* Kernels of every choice: those with few registers as they are printed where the first spills. */
static void agree_with_references(int choice) {
  Emulated e;
  begin(&e);
  cuda_build_choice(e.bench.build, choice);
  for (int i = 0; i < COUNT_OF(loops); i++) add_loop(&e, &loops[i]);
  for (int i = 0; i < COUNT_OF(scatters) && choice == CUDA_FULL; i++) add_scatter(&e, &scatters[i]);
  open_without(&e, NULL);
  int early = run_all(&e, false), late = run_all(&e, true);
  end(&e);
  assert_int_equal(early, 0);
  assert_int_equal(late, 0);
}
static void kernels_agree_with_references(void **state) {
  (void)state;
  agree_with_references(CUDA_FULL);
}
static void thrifty_kernels_agree(void **state) {
  (void)state;
  agree_with_references(CUDA_THRIFTY); /* CUDA_ONE_BLOCK differs in bounds alone */
}
static void narrow_kernels_agree(void **state) {
  (void)state;
  agree_with_references(CUDA_NARROW);
}

/* What must not be missing from the text, and a case that shows it. */
static const struct {
  const char *text;
  Loop loop;
} needed[] = {
    {"mt_row_barrier<N, G>()", {"softmax", 9, 5003, DT_F32}},
    {"__syncthreads()", {"column_sum", 200, 320, DT_F32}},
    {"asm volatile(\"cp.async.wait_group %0;\" ::\"n\"(N) : \"memory\")",
     {"layernorm", 77, 768, DT_BF16}},
};
static void faults_are_found(void **state) {
  (void)state;
  for (int i = 0; i < COUNT_OF(needed); i++) {
    Emulated e;
    begin(&e);
    add_loop(&e, &needed[i].loop);
    open_without(&e, needed[i].text);
    printf("without %s, what follows must fail\n", needed[i].text);
    int bad = run_all(&e, true);
    end(&e);
    if (!bad) fail_msg("nothing fails without %s", needed[i].text);
  }
}

/* Numbers where codes change, their neighbours, and a sample of all floats. */
typedef VEC(uint32_t) Numbers;
static void add_around(Arena *a, Numbers *x, float middle) {
  enum { AROUND = 20 };
  for (int i = -AROUND; i <= AROUND; i++)
    for (int minus = 0; minus < 2; minus++)
      vec_push(a, x, format_bits(minus ? -middle : middle) + (uint32_t)i);
}
static Numbers code_numbers(Arena *a) {
  Numbers x = {0};
  static const float special[] = {0, 1, INFINITY, NAN, 0x1p-126f, 0x1p-149f, 0x1p127f},
                     edges[2][8] = {FORMAT_EDGES8, FORMAT_EDGES8U};
  for (int i = 0; i < COUNT_OF(special); i++) add_around(a, &x, special[i]);
  for (int u = 0; u < 2; u++)
    for (int i = 0; i < COUNT_OF(edges[0]); i++) add_around(a, &x, edges[u][i]);
  for (unsigned n = 0; n < 255; n++) {
    float e = format_dequant8u(n), next = format_dequant8u(n + 1);
    add_around(a, &x, (e + next) / 2);
    if (n >= 1 && n < 127) add_around(a, &x, (format_dequant8(n) + format_dequant8(n + 1)) / 2);
  }
  for (uint64_t b = 0; b <= UINT32_MAX; b += 4099) vec_push(a, &x, (uint32_t)b);
  return x;
}

/* Tables in shared memory give the entries and codes of formats.h, for every class of floats. */
static void tables_give_the_codes(void **state) {
  (void)state;
  Arena *a = arena_new();
  Program p = {.nkernels = 1, .kernel_names = (const char *[]){"codes"}};
  Str s = {.arena = a};
  str_addf(&s, "// ==== program 0 ====\n%s", cuda_prelude_text(a));
  str_add(
      &s,
      "template <bool U> static void fill(unsigned char *code, const float *x, int n, float "
      "*entry) {\n"
      "  static MtCodes<U> m;\n"
      "  mt_codes_fill(m);\n"
      "  for (int i = 0; i < n; i++) code[i] = mt_code(m, x[i]);\n"
      "  for (int i = 0; i < 256; i++) entry[i] = mt_entry(m, i);\n"
      "}\n"
      "extern \"C\" void codes(const float *x, const int *n, unsigned char *code, float *entry) {\n"
      "  fill<false>(code, x, *n, entry);\n"
      "  fill<true>(code + *n, x, *n, entry + 256);\n"
      "}\n");
  p.kernel_source = s.text;
  Fail f = {0};
  void *library = emulate_compile(a, &p, (int[]){4}, &f);
  if (!library) fail_msg("%s", f.text);
  Numbers x = code_numbers(a);
  uint8_t *code = arena_array(a, uint8_t, 2 * x.n);
  float entry[2][256];
  threadIdx.x = 0, blockDim.x = 1;
  EmulatedCall *call = (EmulatedCall *)dlsym(library, "call_codes");
  call((void *[]){x.at, &x.n, code, entry});
  for (int i = 0; i < x.n; i++) {
    float y = format_float(x.at[i]);
    if (code[i] != format_quant8(y) || code[x.n + i] != format_quant8u(y))
      fail_msg("%a is %u and %u by tables, not %u and %u", (double)y, code[i], code[x.n + i],
               format_quant8(y), format_quant8u(y));
  }
  for (unsigned c = 0; c < 256; c++) {
    assert_int_equal(format_bits(entry[0][c]), format_bits(format_dequant8(c)));
    assert_int_equal(format_bits(entry[1][c]), format_bits(format_dequant8u(c)));
  }
  dlclose(library);
  arena_free(a);
}

#if defined __SANITIZE_ADDRESS__
#define HAS_ASAN 1
#elif defined __has_feature
#define HAS_ASAN __has_feature(address_sanitizer)
#else
#define HAS_ASAN 0
#endif

int main(void) {
  const char *why = HAS_ASAN              ? "fibers change stacks behind AddressSanitizer's back"
                    : !emulate_compiler() ? "no C++ compiler"
                                          : NULL;
  if (why) {
    fprintf(stderr, "skipped: %s\n", why);
    return 77;
  }
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(kernels_agree_with_references), cmocka_unit_test(thrifty_kernels_agree),
      cmocka_unit_test(narrow_kernels_agree), cmocka_unit_test(faults_are_found),
      cmocka_unit_test(tables_give_the_codes)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
