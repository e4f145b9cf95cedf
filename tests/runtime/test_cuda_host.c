/* test_cuda_host.c - the arena on the host with a driver that refuses: what the error says, and that
 * nothing stays pinned or mapped. The calls of the driver are replaced in its table. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <cmocka.h>

#include "runtime/cuda_parts.h"
#include "runtime/host_memory.h"

enum { BYTES = 3 << 20, OUT_OF_MEMORY = 2, NOT_PERMITTED = 800 };

/* What the driver was asked for. */
static struct {
  CUresult pin, stream; /* what it answers */
  void *pinned;         /* NULL: nothing is */
  size_t bytes;
  int streams, events, registered;
} driver;

static CUresult pin(void *p, size_t bytes, unsigned flags) {
  (void)flags;
  driver.registered++;
  if (driver.pin == CU_SUCCESS) driver.pinned = p, driver.bytes = bytes;
  return driver.pin;
}
static CUresult unpin(void *p) {
  assert_ptr_equal(p, driver.pinned);
  driver.pinned = NULL;
  return CU_SUCCESS;
}
/* The second one fails, where one is to. */
static CUresult stream_new(CUstream *s, unsigned flags) {
  (void)flags;
  if (driver.streams && driver.stream != CU_SUCCESS) return driver.stream;
  driver.streams++;
  *s = (CUstream)&driver;
  return CU_SUCCESS;
}
static CUresult stream_end(CUstream s) {
  assert_ptr_equal(s, (CUstream)&driver);
  driver.streams--;
  return CU_SUCCESS;
}
static CUresult event_new(CUevent *e, unsigned flags) {
  (void)flags;
  driver.events++;
  *e = (CUevent)&driver;
  return CU_SUCCESS;
}
static CUresult event_end(CUevent e) {
  assert_ptr_equal(e, (CUevent)&driver);
  driver.events--;
  return CU_SUCCESS;
}
static CUresult name_of(CUresult r, const char **text) {
  *text = r == NOT_PERMITTED ? "CUDA_ERROR_NOT_PERMITTED" : "CUDA_ERROR_OUT_OF_MEMORY";
  return CU_SUCCESS;
}
static CUresult text_of(CUresult r, const char **text) {
  *text = r == NOT_PERMITTED ? "operation not permitted" : "out of memory";
  return CU_SUCCESS;
}

static bool mapped(void *at) {
  unsigned char page;
  return mincore(at, 4096, &page) == 0 || errno != ENOMEM;
}

typedef struct {
  Program p;
  Device d;
  Fail f;
} Host;

static void host_new(Host *h, CUresult pins, CUresult streams) {
  memset(&driver, 0, sizeof driver);
  driver.pin = pins, driver.stream = streams;
  cu.cuMemHostRegister = pin, cu.cuMemHostUnregister = unpin;
  cu.cuStreamCreate = stream_new, cu.cuStreamDestroy = stream_end;
  cu.cuEventCreate = event_new, cu.cuEventDestroy = event_end;
  cu.cuGetErrorName = name_of, cu.cuGetErrorString = text_of;
  *h = (Host){.p = {.host_bytes = BYTES}};
  h->d = (Device){.p = &h->p, .memory = arena_new(), .taken_before = -1};
}

/* Closes, and finds nothing left. */
static void host_end(Host *h) {
  void *at = h->d.host;
  assert_non_null(at);
  assert_true(mapped(at));
  cuda_host_close(&h->d);
  assert_false(mapped(at));
  assert_null(driver.pinned);
  assert_int_equal(driver.streams, 0);
  assert_int_equal(driver.events, 0);
  arena_free(h->d.memory);
}

static void the_arena_is_pinned_once_and_let_go(void **state) {
  (void)state;
  Host h;
  host_new(&h, CU_SUCCESS, CU_SUCCESS);
  assert_true(cuda_host_open(&h.d, &h.f));
  assert_true(h.d.pinned);
  assert_ptr_equal(driver.pinned, h.d.host);
  assert_int_equal(driver.bytes, BYTES);
  assert_int_equal(driver.registered, 1);
  assert_int_equal(driver.streams, 2);
  host_end(&h);
}

static void a_refused_pin_names_the_limits(void **state) {
  (void)state;
  struct rlimit before, low = {1 << 16, 1 << 16};
  assert_int_equal(getrlimit(RLIMIT_MEMLOCK, &before), 0);
  low.rlim_max = before.rlim_max;
  assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &low), 0);
  static const CUresult reasons[] = {OUT_OF_MEMORY, NOT_PERMITTED};
  for (int i = 0; i < COUNT_OF(reasons); i++) {
    Host h;
    host_new(&h, reasons[i], CU_SUCCESS);
    assert_false(cuda_host_open(&h.d, &h.f));
    assert_false(h.d.pinned);
    assert_int_equal(h.f.code, EXIT_DEVICE);
    const char *name;
    name_of(reasons[i], &name);
    const char *const says[] = {"pinning 3 MiB of host memory failed", "`ulimit -l` 64 KiB",
                                "container or control group", "smaller --host-ram", name};
    for (int k = 0; k < COUNT_OF(says); k++)
      if (!strstr(h.f.text, says[k])) fail_msg("`%s` is not in: %s", says[k], h.f.text);
    HostLimits l = host_limits("");
    assert_int_equal(strstr(h.f.text, "CAP_IPC_LOCK") != NULL, l.unbound);
    host_end(&h);
  }
  assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &before), 0);
}

static void what_was_pinned_is_let_go_when_a_later_call_fails(void **state) {
  (void)state;
  Host h;
  host_new(&h, CU_SUCCESS, OUT_OF_MEMORY);
  assert_false(cuda_host_open(&h.d, &h.f));
  assert_int_equal(h.f.code, EXIT_DEVICE);
  assert_ptr_equal(driver.pinned, h.d.host);
  assert_int_equal(driver.streams, 1);
  host_end(&h);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_arena_is_pinned_once_and_let_go),
      cmocka_unit_test(a_refused_pin_names_the_limits),
      cmocka_unit_test(what_was_pinned_is_let_go_when_a_later_call_fails),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
