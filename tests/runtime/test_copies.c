/* test_copies.c - the two spaces on the CPU: copies of a program at either end of the time that it
 * allows, poison of what is awaited too late, reading and writing of variables on the host, and
 * what the host can give. */
#include <stdarg.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "folder.h"
#include "runtime/convert.h"
#include "runtime/host_memory.h"
#include "runtime/replay.h"
#include "toy.h"

enum { N = 8, STAGE = 512 };

/* A variable v[N] on the host that is brought to a stage, incremented by a kernel, and brought
 * back:
 *   0 copy in   1 other += 1   2 wait 0   3 stage += 1   4 copy out   5 other += 1   [6 wait 4]
 * `other` lies on the device. */
static const char kernels[] =
    "void inc(void *const *a) { for (int i = 0; i < 8; i++) ((float *)a[0])[i] += 1; }\n";

typedef struct {
  Arena *a;
  Program p;
  ProgramCode code;
  Cmd cmds[8];
  Tensor stage, other;
  Replay r;
} Round;

static const char *names[] = {"inc"};

static void round_new(Round *x, bool waits) {
  *x = (Round){.a = arena_new()};
  x->other = TOY_TENSOR(0, DT_F32, N);
  x->stage = TOY_TENSOR(STAGE, DT_F32, N);
  Cmd in = {.kind = CMD_COPY, .name = "v", .where = "", .copy = {false, STAGE, 64, N * 4, 0}};
  Cmd out = {.kind = CMD_COPY, .name = "v", .where = "", .copy = {true, STAGE, 64, N * 4, 0}};
  Cmd wait = {.kind = CMD_WAIT, .name = "v", .where = ""};
  Cmd inc = {.kind = CMD_KERNEL, .name = "inc", .where = "", .ntensors = 1};
  x->cmds[0] = in;
  x->cmds[1] = x->cmds[3] = x->cmds[5] = inc;
  x->cmds[1].tensors = x->cmds[5].tensors = &x->other;
  x->cmds[3].tensors = &x->stage;
  x->cmds[2] = wait;
  x->cmds[4] = out;
  x->cmds[6] = wait;
  x->cmds[6].copy.awaited = 4;
  x->code = (ProgramCode){.name = "test", .ncmds = waits ? 7 : 6, .cmds = x->cmds};
  x->p = (Program){.arena_bytes = 1024,
                   .persistent_bytes = 128,
                   .host_bytes = 256,
                   .nprograms = 1,
                   .programs = &x->code};
  x->p.nkernels = 1, x->p.kernel_names = names, x->p.kernel_source = kernels;
  x->p.nvars = 2;
  x->p.vars = arena_array(x->a, ProgramVar, 2);
  x->p.vars[0] = toy_var("v", PV_PARAM, TOY_TENSOR(64, DT_F32, N));
  x->p.vars[0].at.host = true;
  x->p.vars[1] = toy_var("other", PV_PARAM, x->other);
}

static void round_open(Round *x, CopyTimes times, bool poison) {
  Fail f = {0};
  DeviceOptions o = {.threads = 1, .poison = poison, .copies = times};
  if (!replay_open(&x->r, &x->p, &o, &f)) fail_msg("%s", f.text);
}

static void round_close(Round *x) {
  replay_close(&x->r);
  arena_free(x->a);
}

static float value(Round *x, int var, int at) {
  float v[N];
  Fail f = {0};
  assert_true(replay_read(&x->r, &x->p.vars[var].at, v, &f));
  return v[at];
}

static void run(Round *x) {
  Fail f = {0};
  assert_true(replay_run(&x->r, 0, &f));
}

static void both_ends_of_a_copys_time_give_the_same(void **state) {
  (void)state;
  for (int waits = 0; waits < 2; waits++)
    for (int times = COPIES_SOON; times <= COPIES_LATE; times++)
      for (int poison = 0; poison < 2; poison++) {
        Round x;
        Fail f = {0};
        float v[N] = {0, 10, 20, 30, 40, 50, 60, 70};
        round_new(&x, waits);
        round_open(&x, (CopyTimes)times, poison);
        assert_true(replay_write(&x.r, &x.p.vars[0].at, v, &f));
        for (int i = 0; i < 3; i++) run(&x);
        assert_true(value(&x, 0, 5) == 53);
        assert_true(value(&x, 1, 5) == 6);
        round_close(&x);
      }
}

static void without_copies_the_host_stays(void **state) {
  (void)state;
  Round x;
  Fail f = {0};
  float v[N] = {1, 1, 1, 1, 1, 1, 1, 1};
  round_new(&x, true);
  round_open(&x, COPIES_NEVER, false);
  assert_true(replay_write(&x.r, &x.p.vars[0].at, v, &f));
  run(&x);
  assert_true(value(&x, 0, 0) == 1);
  assert_true(value(&x, 1, 0) == 2);
  round_close(&x);
}

/* A wait that comes behind the reader of what it waits for. */
static void a_wait_that_comes_too_late_shows(void **state) {
  (void)state;
  float got[2];
  for (int poison = 0; poison < 2; poison++) {
    Round x;
    round_new(&x, true);
    Cmd wait = x.cmds[2];
    x.cmds[2] = x.cmds[3];
    x.cmds[3] = wait;
    round_open(&x, COPIES_LATE, poison);
    run(&x);
    got[poison] = value(&x, 0, 0);
    round_close(&x);
  }
  assert_true(got[0] == 0); /* the increment was overwritten */
  assert_true(got[1] == 0);
  Round x;
  round_new(&x, true);
  x.code.ncmds = 5, x.cmds[1] = x.cmds[3]; /* reads the stage before the wait, and never again */
  x.cmds[3] = x.cmds[5];
  x.cmds[1].tensors = &x.stage;
  x.cmds[4] =
      (Cmd){.kind = CMD_KERNEL, .name = "inc", .where = "", .ntensors = 1, .tensors = &x.other};
  round_open(&x, COPIES_LATE, true);
  run(&x);
  const float *arena = x.r.api->reach(x.r.device, false);
  assert_true(arena[STAGE / 4] == 0); /* the copy wrote over what was computed from poison */
  round_close(&x);
}

/* What a copy out writes may not be read before it is awaited. */
static void a_copy_out_is_poison_until_it_is_awaited(void **state) {
  (void)state;
  Round x;
  round_new(&x, true);
  /* copy out, copy in at once, wait in, increment, wait out */
  Cmd in = x.cmds[0], wait = x.cmds[2], inc = x.cmds[3], out = x.cmds[4];
  in.copy.device_offset = 0; /* to `other` */
  x.cmds[0] = out, x.cmds[1] = in, x.cmds[2] = wait, x.cmds[3] = inc, x.cmds[4] = wait;
  x.cmds[2].copy.awaited = 1, x.cmds[4].copy.awaited = 0;
  x.code.ncmds = 5;
  round_open(&x, COPIES_SOON, false);
  run(&x);
  assert_true(value(&x, 1, 0) == 0);
  replay_close(&x.r);
  round_open(&x, COPIES_LATE, true);
  run(&x);
  assert_false(value(&x, 1, 0) == 0); /* 0xff bytes */
  round_close(&x);
}

static void copies_have_times(void **state) {
  (void)state;
  for (int times = COPIES_SOON; times <= COPIES_LATE; times++) {
    Round x;
    Fail f = {0};
    double start[8], copy[16];
    round_new(&x, false);
    round_open(&x, (CopyTimes)times, false);
    assert_true(x.r.api->time(x.r.device, 0, start, copy, &f));
    assert_true(copy[0] >= start[0] && copy[1] >= copy[0] && copy[1] <= start[3]);
    assert_true(copy[8] >= start[4] && copy[9] >= copy[8] && copy[9] <= start[6]);
    if (times == COPIES_LATE) assert_true(copy[8] >= start[5]);
    assert_true(value(&x, 0, 0) == 1);
    round_close(&x);
  }
}

static void host_variables_are_reached_in_place(void **state) {
  (void)state;
  Round x;
  Fail f = {0};
  void *at;
  round_new(&x, true);
  round_open(&x, COPIES_SOON, false);
  assert_true(replay_reach(&x.r, &x.p.vars[0].at, &at, &f));
  assert_ptr_equal(at, (char *)x.r.api->reach(x.r.device, true) + 64);
  ((float *)at)[3] = 41;
  run(&x);
  assert_true(value(&x, 0, 3) == 42);
  Tensor gaps = x.p.vars[0].at;
  gaps.dim[0] = 4, gaps.stride[0] = 2;
  assert_true(replay_reach(&x.r, &gaps, &at, &f));
  assert_null(at);
  float packed[4] = {5, 6, 7, 8};
  assert_true(replay_write(&x.r, &gaps, packed, &f));
  assert_true(value(&x, 0, 2) == 6 && value(&x, 0, 3) == 42);
  assert_true(replay_write_part(&x.r, &x.p.vars[0].at, 6, packed, 2, &f));
  assert_true(value(&x, 0, 6) == 5 && value(&x, 0, 7) == 6);
  assert_int_equal(x.r.api->measured(x.r.device), 4096);
  assert_int_equal(x.r.api->measured_host(x.r.device), 4096);
  round_close(&x);
}

/* ---- what the host can give ---- */

static void put_file(Arena *a, const char *root, const char *path, const char *text) {
  char *full = arena_printf(a, "%s/%s", root, path);
  for (char *s = full + strlen(root) + 1; (s = strchr(s, '/')); *s++ = '/') {
    *s = 0;
    mkdir(full, 0755);
  }
  FILE *f = fopen(full, "w");
  assert_non_null(f);
  fputs(text, f);
  fclose(f);
}

static void limits_of_machine_and_groups(void **state) {
  (void)state;
  Arena *a = arena_new();
  const char *root = folder_new(a);
  put_file(a, root, "proc/meminfo",
           "MemTotal: 1000 kB\nMemFree:    10 kB\nMemAvailable:   800 kB\n");
  HostLimits l = host_limits(root);
  assert_int_equal(l.available, 800 * 1024);
  assert_true(l.container == INT64_MAX);
  /* version 2: the group above is the tighter one */
  put_file(a, root, "proc/self/cgroup", "0::/a/b\n");
  put_file(a, root, "sys/fs/cgroup/a/b/memory.max", "max\n");
  put_file(a, root, "sys/fs/cgroup/a/b/memory.current", "5000\n");
  put_file(a, root, "sys/fs/cgroup/a/memory.max", "500000\n");
  put_file(a, root, "sys/fs/cgroup/a/memory.current", "300000\n");
  put_file(a, root, "sys/fs/cgroup/a/memory.stat",
           "anon 200000\nactive_file 1000\ninactive_file 99000\n");
  l = host_limits(root);
  assert_int_equal(l.container, 300000);
  assert_int_equal(l.bound, 500000);
  /* version 1, in a container that sees itself as the root */
  put_file(a, root, "proc/self/cgroup", "4:cpu:/x\n3:memory:/docker/77\n");
  put_file(a, root, "sys/fs/cgroup/memory/memory.limit_in_bytes", "700000\n");
  put_file(a, root, "sys/fs/cgroup/memory/memory.usage_in_bytes", "100000\n");
  l = host_limits(root);
  assert_int_equal(l.container, 600000);
  put_file(a, root, "sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  l = host_limits(root);
  assert_true(l.container == INT64_MAX && l.bound == INT64_MAX);
  /* bit 14 of the capabilities */
  assert_false(l.unbound);
  put_file(a, root, "proc/self/status", "Name:\tmtc\nCapEff:\t0000000000003fff\n");
  assert_false(host_limits(root).unbound);
  put_file(a, root, "proc/self/status", "Name:\tmtc\nCapEff:\t000001ffffffffff\n");
  assert_true(host_limits(root).unbound);
  folder_remove(root);
  arena_free(a);
}

static void limits_are_named(void **state) {
  (void)state;
  Arena *a = arena_new();
  HostLimits l = {INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX, false};
  const char *text = host_limits_text(a, &l);
  assert_string_equal(text, "`ulimit -l` unlimited, memory of the container or control group none");
  l.locked = 8 << 20, l.bound = 4ll << 30;
  text = host_limits_text(a, &l);
  assert_non_null(strstr(text, "`ulimit -l` 8 MiB, memory"));
  assert_non_null(strstr(text, "group 4 GiB"));
  l.unbound = true;
  assert_non_null(strstr(host_limits_text(a, &l), "CAP_IPC_LOCK"));
  arena_free(a);
}

static void a_page_too_much_is_refused(void **state) {
  (void)state;
  HostLimits l = {
      .available = 1 << 20, .container = INT64_MAX, .bound = INT64_MAX, .locked = INT64_MAX};
  Fail f = {0};
  assert_true(host_room(&l, 1 << 20, "it takes", "take less", &f));
  assert_false(host_room(&l, (1 << 20) + 4096, "it takes", "take less", &f));
  assert_int_equal(f.code, EXIT_DEVICE);
  assert_non_null(strstr(f.text, "MemAvailable"));
  assert_non_null(strstr(f.text, "4,096 bytes are missing"));
  assert_non_null(strstr(f.text, "take less"));
  f = (Fail){0};
  l.container = (1 << 20) - 4096, l.bound = 1 << 22;
  assert_false(host_room(&l, 1 << 20, "it takes", "take less", &f));
  assert_non_null(strstr(f.text, "memory limit of this container or control group, 4"));
  assert_non_null(strstr(f.text, "4,096 bytes are missing"));
}

static void more_than_the_host_has_is_refused_before_it_is_taken(void **state) {
  (void)state;
  Round x;
  Fail f = {0};
  DeviceOptions o = {.threads = 1};
  round_new(&x, true);
  x.p.host_bytes = (int64_t)1 << 50;
  assert_false(replay_open(&x.r, &x.p, &o, &f));
  assert_int_equal(f.code, EXIT_DEVICE);
  assert_non_null(strstr(f.text, "--host-ram"));
  assert_non_null(strstr(f.text, "bytes are missing"));
  x.p.cuda = true; /* before the driver is even looked for */
  f = (Fail){0};
  assert_false(replay_open(&x.r, &x.p, &o, &f));
  assert_int_equal(f.code, EXIT_DEVICE);
  assert_non_null(strstr(f.text, "the plan pins"));
  assert_non_null(strstr(f.text, "--host-ram"));
  arena_free(x.a);
}

static void mappings_are_zero_and_whole(void **state) {
  (void)state;
  for (int huge = 0; huge < 2; huge++)
    for (int64_t bytes = 1; bytes < 10000000; bytes = bytes * 7 + 11) {
      Fail f = {0};
      char *at = host_map(bytes, huge, &f);
      assert_non_null(at);
      if (huge) assert_int_equal((uintptr_t)at % (2 << 20), 0);
      for (int64_t i = 0; i < bytes; i += 97) assert_int_equal(at[i], 0);
      host_fill(at, 7, bytes);
      char *copy = malloc((size_t)bytes + 1);
      copy[bytes] = 1;
      host_copy(copy, at, bytes);
      assert_true(copy[0] == 7 && copy[bytes - 1] == 7 && copy[bytes / 2] == 7 && copy[bytes] == 1);
      free(copy);
      host_unmap(at, bytes);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(both_ends_of_a_copys_time_give_the_same),
      cmocka_unit_test(without_copies_the_host_stays),
      cmocka_unit_test(a_wait_that_comes_too_late_shows),
      cmocka_unit_test(a_copy_out_is_poison_until_it_is_awaited),
      cmocka_unit_test(copies_have_times),
      cmocka_unit_test(host_variables_are_reached_in_place),
      cmocka_unit_test(limits_of_machine_and_groups),
      cmocka_unit_test(limits_are_named),
      cmocka_unit_test(a_page_too_much_is_refused),
      cmocka_unit_test(more_than_the_host_has_is_refused_before_it_is_taken),
      cmocka_unit_test(mappings_are_zero_and_whole),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
