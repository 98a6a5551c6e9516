/* Makes the kernel refuse a program's ways of writing, for tests: preload it with LD_PRELOAD. Before the
 * program begins, it installs a seccomp filter like that of a container's profile.
 *
 * REFUSE_RINGS=errno       io_uring_setup fails with this error
 * REFUSE_REGISTER=errno    io_uring_register fails with this error
 * REFUSE_DSYNC=errno       pwritev2 with RWF_DSYNC fails with this error
 *
 * A filter that cannot be installed ends the program: a test must not pass without it.
 */
#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#ifndef RWF_DSYNC
#define RWF_DSYNC 2
#endif

#define LOAD(what) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (what))
#define UNLESS(value, skip) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (value), 0, (skip))
#define RETURN(what) BPF_STMT(BPF_RET | BPF_K, (what))

/* The error that a variable names; 0: the call is allowed. */
static unsigned refusal(const char *name) {
    const char *error = getenv(name);
    int number = error ? atoi(error) : 0;
    return number ? SECCOMP_RET_ERRNO | (unsigned)number : SECCOMP_RET_ALLOW;
}

__attribute__((constructor)) static void install(void) {
    struct sock_filter filter[] = {
        LOAD(offsetof(struct seccomp_data, nr)),
        UNLESS(__NR_io_uring_setup, 1),
        RETURN(refusal("REFUSE_RINGS")),
        UNLESS(__NR_io_uring_register, 1),
        RETURN(refusal("REFUSE_REGISTER")),
        UNLESS(__NR_pwritev2, 3),
        /* The flags are the sixth argument, its lower half first. */
        LOAD(offsetof(struct seccomp_data, args[5])),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, RWF_DSYNC, 0, 1),
        RETURN(refusal("REFUSE_DSYNC")),
        RETURN(SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) {
        perror("refuse.c: the filter cannot be installed");
        _exit(99);
    }
}
