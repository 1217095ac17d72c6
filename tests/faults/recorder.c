/* Records what a process does to the files of one folder, in the order in which it was done.
 *
 * Loaded with LD_PRELOAD in front of the C library. TAILFOLD_RECORD_FOLDER is the folder (absolute, no slash at the
 * end), TAILFOLD_RECORD_LOG the file the record goes to, which lies elsewhere. An entry is written after its call has
 * returned and under one lock, so that the order of the entries is the order of the calls.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#define MAX_DESCRIPTORS 4096
#define REAL(name) ((__typeof__(&name))real(#name))

struct entry {
  uint32_t kind; /* one of the letters below */
  uint32_t name_bytes;
  uint64_t offset;
  uint64_t data_bytes;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const char *folder;
static int log_descriptor = -1;
static char *names[MAX_DESCRIPTORS]; /* of what is open in the folder; "" is the folder itself */

static void *real(const char *name) { return dlsym(RTLD_NEXT, name); }

__attribute__((constructor)) static void begin(void) {
  const char *path = getenv("TAILFOLD_RECORD_LOG");
  folder = getenv("TAILFOLD_RECORD_FOLDER");
  if (path && folder) log_descriptor = REAL(open64)(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
}

static void put(const void *bytes, size_t count) {
  const char *rest = bytes;
  while (count) {
    ssize_t written = REAL(write)(log_descriptor, rest, count);
    if (written <= 0) abort(); /* a record with a hole would prove nothing */
    rest += written;
    count -= (size_t)written;
  }
}

static void tell(char kind, const char *name, uint64_t offset, const void *data, uint64_t data_bytes) {
  struct entry entry = {(uint32_t)kind, (uint32_t)strlen(name), offset, data_bytes};
  put(&entry, sizeof entry);
  put(name, entry.name_bytes);
  if (data_bytes) put(data, data_bytes);
}

/* The name of a path within the folder, "" for the folder, NULL for all else. */
static const char *inside(const char *path) {
  size_t size = folder ? strlen(folder) : 0;
  if (log_descriptor < 0 || !path || strncmp(path, folder, size)) return NULL;
  if (path[size] == '\0') return "";
  return path[size] == '/' ? path + size + 1 : NULL;
}

static const char *watched(int descriptor) {
  return descriptor >= 0 && descriptor < MAX_DESCRIPTORS ? names[descriptor] : NULL;
}

static int opened(int (*call)(const char *, int, ...), const char *path, int flags, mode_t mode) {
  const char *name = inside(path);
  if (!name) return call(path, flags, mode);
  pthread_mutex_lock(&lock);
  int missing = access(path, F_OK) != 0;
  int descriptor = call(path, flags, mode);
  if (descriptor >= MAX_DESCRIPTORS) abort();
  if (descriptor >= 0) {
    free(names[descriptor]);
    names[descriptor] = strdup(name);
    if (missing) tell('c', name, 0, NULL, 0);
    if (flags & O_TRUNC) tell('t', name, 0, NULL, 0);
  }
  pthread_mutex_unlock(&lock);
  return descriptor;
}

static mode_t mode_of(int flags, va_list arguments) { return flags & O_CREAT ? va_arg(arguments, mode_t) : 0; }

int open(const char *path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  mode_t mode = mode_of(flags, arguments);
  va_end(arguments);
  return opened(REAL(open), path, flags, mode);
}

int open64(const char *path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  mode_t mode = mode_of(flags, arguments);
  va_end(arguments);
  return opened(REAL(open64), path, flags, mode);
}

int close(int descriptor) {
  if (watched(descriptor)) {
    pthread_mutex_lock(&lock);
    free(names[descriptor]);
    names[descriptor] = NULL;
    pthread_mutex_unlock(&lock);
  }
  return REAL(close)(descriptor);
}

ssize_t write(int descriptor, const void *data, size_t count) {
  const char *name = watched(descriptor);
  if (!name) return REAL(write)(descriptor, data, count);
  pthread_mutex_lock(&lock);
  ssize_t written = REAL(write)(descriptor, data, count);
  if (written > 0) tell('w', name, (uint64_t)(lseek(descriptor, 0, SEEK_CUR) - written), data, (uint64_t)written);
  pthread_mutex_unlock(&lock);
  return written;
}

static ssize_t placed(ssize_t (*call)(int, const void *, size_t, off64_t), int descriptor, const void *data, size_t count,
                      off64_t offset) {
  const char *name = watched(descriptor);
  if (!name) return call(descriptor, data, count, offset);
  pthread_mutex_lock(&lock);
  ssize_t written = call(descriptor, data, count, offset);
  if (written > 0) tell('w', name, (uint64_t)offset, data, (uint64_t)written);
  pthread_mutex_unlock(&lock);
  return written;
}

ssize_t pwrite(int descriptor, const void *data, size_t count, off_t offset) {
  return placed(REAL(pwrite64), descriptor, data, count, offset);
}

ssize_t pwrite64(int descriptor, const void *data, size_t count, off64_t offset) {
  return placed(REAL(pwrite64), descriptor, data, count, offset);
}

static int cut(int descriptor, off64_t size) {
  const char *name = watched(descriptor);
  if (!name) return REAL(ftruncate64)(descriptor, size);
  pthread_mutex_lock(&lock);
  int failed = REAL(ftruncate64)(descriptor, size);
  if (!failed) tell('t', name, (uint64_t)size, NULL, 0);
  pthread_mutex_unlock(&lock);
  return failed;
}

int ftruncate(int descriptor, off_t size) { return cut(descriptor, size); }

int ftruncate64(int descriptor, off64_t size) { return cut(descriptor, size); }

static int synced(int (*call)(int), int descriptor) {
  const char *name = watched(descriptor);
  if (!name) return call(descriptor);
  pthread_mutex_lock(&lock); /* nothing may slip in between the sync and its entry */
  int failed = call(descriptor);
  if (!failed) tell('s', name, 0, NULL, 0);
  pthread_mutex_unlock(&lock);
  return failed;
}

int fsync(int descriptor) { return synced(REAL(fsync), descriptor); }

int fdatasync(int descriptor) { return synced(REAL(fdatasync), descriptor); }

int unlink(const char *path) {
  const char *name = inside(path);
  if (!name) return REAL(unlink)(path);
  pthread_mutex_lock(&lock);
  int failed = REAL(unlink)(path);
  if (!failed) tell('u', name, 0, NULL, 0);
  pthread_mutex_unlock(&lock);
  return failed;
}

int rename(const char *from, const char *to) {
  if (inside(from) || inside(to)) abort(); /* SQLite never does; the replay knows no such entry */
  return REAL(rename)(from, to);
}
