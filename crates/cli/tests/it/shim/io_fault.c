/* Makes system calls of a program fail, for tests: preload it with LD_PRELOAD.
 *
 * IO_FAULT_RULES holds rules "call path errno file", separated by ';': while `file` exists, `call`
 * (open, read, write, sync, unlink or rename) on a path that contains `path` fails with `errno`. A `write`
 * of more than one sector that is refused for want of space (ENOSPC, EDQUOT) writes its first
 * sector, as copy-on-write file systems may.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#define SECTOR 4096

static int fault(const char *call, const char *path) {
    const char *rules = getenv("IO_FAULT_RULES");
    while (rules && *rules) {
        char on[16], part[256], file[512];
        int error;
        if (sscanf(rules, "%15s %255s %d %511[^;]", on, part, &error, file) == 4 &&
            !strcmp(on, call) && strstr(path, part) && access(file, F_OK) == 0)
            return error;
        rules = strchr(rules, ';');
        if (rules) rules++;
    }
    return 0;
}

static int fault_of_fd(const char *call, int fd) {
    char link[64], path[1024];
    int saved = errno;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t len = readlink(link, path, sizeof path - 1);
    path[len < 0 ? 0 : len] = 0;
    int error = fault(call, path);
    errno = saved;
    return error;
}

#define REAL(name) ((typeof(&name))dlsym(RTLD_NEXT, #name))
#define REFUSE(error) do { if (error) { errno = error; return -1; } } while (0)

int open64(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    int error = fault("open", path);
    REFUSE(error);
    return REAL(open64)(path, flags, mode);
}

ssize_t pread64(int fd, void *to, size_t len, off_t at) {
    int error = fault_of_fd("read", fd);
    REFUSE(error);
    return REAL(pread64)(fd, to, len, at);
}

ssize_t pwrite64(int fd, const void *from, size_t len, off_t at) {
    int error = fault_of_fd("write", fd);
    if ((error == ENOSPC || error == EDQUOT) && len > SECTOR)
        return REAL(pwrite64)(fd, from, SECTOR, at);
    REFUSE(error);
    return REAL(pwrite64)(fd, from, len, at);
}

int fsync(int fd) {
    int error = fault_of_fd("sync", fd);
    REFUSE(error);
    return REAL(fsync)(fd);
}

int fdatasync(int fd) {
    int error = fault_of_fd("sync", fd);
    REFUSE(error);
    return REAL(fdatasync)(fd);
}

int unlink(const char *path) {
    int error = access(path, F_OK) == 0 ? fault("unlink", path) : 0;
    REFUSE(error);
    return REAL(unlink)(path);
}

int rename(const char *from, const char *to) {
    int error = fault("rename", from);
    REFUSE(error);
    return REAL(rename)(from, to);
}
