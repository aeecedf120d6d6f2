/*
 * Between the LMDB driver and the disk, by LD_PRELOAD, for writes to a file named data.mdb.
 * WAYPOST_SHIM_LOG=<file>: records every write, and every sync that has returned, in order.
 * WAYPOST_SHIM_FAIL=eio:<n> | enospc:<n> | hang:<n>: from the n-th call on, syncs fail with EIO, writes fail
 * with ENOSPC, or syncs do not return for a minute. meta:<n> | torn:<n>: the n-th synced write, which is one of a
 * first page of LMDB, fails with EIO, or ends after 40 bytes. WAYPOST_SHIM_SLOW=<us>: syncs and synced writes take longer.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

static int log_fd = -2;
static char fail_kind = 0;
static long fail_from = 0;
static long slow_us = 0;
static long syncs = 0, writes = 0, synced_writes = 0;

static void setup(void) {
  if (log_fd != -2) return;
  const char *path = getenv("WAYPOST_SHIM_LOG"), *fail = getenv("WAYPOST_SHIM_FAIL");
  log_fd = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
  const char *slow = getenv("WAYPOST_SHIM_SLOW");
  slow_us = slow ? atol(slow) : 0;
  const char *colon = fail ? strchr(fail, ':') : 0;
  if (colon) {
    fail_kind = fail[1];
    fail_from = atol(colon + 1);
  }
}

static int is_data(int fd) {
  char link[64], target[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(link, target, sizeof target - 1);
  return length >= 8 && memcmp(target + length - 8, "data.mdb", 8) == 0;
}

/* One record by one write: a type, an offset, a length, the bytes. */
static void note(char type, int64_t offset, const struct iovec *parts, int count) {
  if (log_fd < 0) return;
  uint64_t length = 0;
  for (int i = 0; i < count; i++) length += parts[i].iov_len;
  char head[17];
  head[0] = type;
  memcpy(head + 1, &offset, 8);
  memcpy(head + 9, &length, 8);
  struct iovec all[1025];
  all[0].iov_base = head;
  all[0].iov_len = 17;
  for (int i = 0; i < count && i < 1024; i++) all[i + 1] = parts[i];
  static ssize_t (*real)(int, const struct iovec *, int);
  if (!real) real = (ssize_t(*)(int, const struct iovec *, int))dlsym(RTLD_NEXT, "writev");
  if (real(log_fd, all, count + 1) < 0) abort();
}

typedef ssize_t (*pwritev_fn)(int, const struct iovec *, int, off_t);

static ssize_t written(int fd, const struct iovec *parts, int count, off_t offset) {
  static pwritev_fn real;
  if (!real) real = (pwritev_fn)dlsym(RTLD_NEXT, "pwritev64");
  setup();
  if (!is_data(fd)) return real(fd, parts, count, offset);
  if (fail_kind == 'n' && __sync_add_and_fetch(&writes, 1) >= fail_from) {
    errno = ENOSPC;
    return -1;
  }
  int is_synced = (fcntl(fd, F_GETFL) & O_DSYNC) != 0;
  if (is_synced && (fail_kind == 'e' || fail_kind == 'o') && ++synced_writes == fail_from) {
    struct iovec part = {parts[0].iov_base, 40};
    if (fail_kind == 'o') return real(fd, &part, 1, offset);
    errno = EIO;
    return -1;
  }
  if (!is_synced) note('W', offset, parts, count);
  else if (slow_us) usleep(slow_us);
  ssize_t result = real(fd, parts, count, offset);
  if (is_synced && result >= 0) note('D', offset, parts, count);
  return result;
}

ssize_t pwritev64(int fd, const struct iovec *parts, int count, off_t offset) { return written(fd, parts, count, offset); }
ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t offset) { return written(fd, parts, count, offset); }
ssize_t pwrite64(int fd, const void *bytes, size_t length, off_t offset) {
  struct iovec part = {(void *)bytes, length};
  return written(fd, &part, 1, offset);
}
ssize_t pwrite(int fd, const void *bytes, size_t length, off_t offset) { return pwrite64(fd, bytes, length, offset); }

/* The library seeks and writes when it writes several pages at once. */
ssize_t writev(int fd, const struct iovec *parts, int count) {
  static ssize_t (*real)(int, const struct iovec *, int);
  if (!real) real = (ssize_t(*)(int, const struct iovec *, int))dlsym(RTLD_NEXT, "writev");
  setup();
  if (fd == log_fd || !is_data(fd)) return real(fd, parts, count);
  off_t at = lseek(fd, 0, SEEK_CUR);
  ssize_t result = written(fd, parts, count, at);
  if (result > 0) lseek(fd, at + result, SEEK_SET);
  return result;
}

static int synced(int fd, const char *name) {
  int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
  setup();
  if (!is_data(fd)) return real(fd);
  if (fail_kind == 'i' || fail_kind == 'a') {
    if (__sync_add_and_fetch(&syncs, 1) >= fail_from) {
      if (fail_kind == 'a') sleep(60);
      errno = EIO;
      return -1;
    }
  }
  if (slow_us) usleep(slow_us);
  int result = real(fd);
  if (result == 0) note('S', 0, 0, 0);
  return result;
}

int fdatasync(int fd) { return synced(fd, "fdatasync"); }
int fsync(int fd) { return synced(fd, "fsync"); }
