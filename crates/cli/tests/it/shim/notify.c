/* Hands system calls of a program to another process, for tests: preload it with LD_PRELOAD. Before the program begins,
 * it installs a seccomp filter with a listener. So raw system calls are seen as well, unlike those that only a
 * preloaded library wraps.
 *
 * NOTIFY_SOCKET=path    the Unix socket that gets the listener
 * NOTIFY_CALLS=1,74     the numbers of the system calls
 *
 * A filter that cannot be installed ends the program: a test must not pass without it.
 */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#define CALLS_MAX 32

static void check(int good, const char *what) {
    if (good) return;
    perror(what);
    _exit(99);
}

static int connected(const char *path) {
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    check(path && strlen(path) < sizeof at.sun_path, "notify.c: NOTIFY_SOCKET");
    strcpy(at.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    check(fd >= 0 && !connect(fd, (struct sockaddr *)&at, sizeof at), "notify.c: the socket");
    return fd;
}

static int listener(const char *calls) {
    struct sock_filter filter[2 * CALLS_MAX + 2] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
    };
    unsigned short length = 1;
    while (calls && *calls && length < 2 * CALLS_MAX) {
        unsigned number = (unsigned)strtoul(calls, (char **)&calls, 10);
        filter[length++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1);
        filter[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF);
        calls += *calls == ',';
    }
    filter[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {length, filter};
    check(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "notify.c: no new privileges");
    int fd = (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
    check(fd >= 0, "notify.c: the filter");
    return fd;
}

static void hand_over(int to, int fd) {
    char byte = 0, control[CMSG_SPACE(sizeof fd)] = {0};
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(head), &fd, sizeof fd);
    check(sendmsg(to, &message, 0) == 1, "notify.c: the listener");
}

__attribute__((constructor)) static void install(void) {
    int to = connected(getenv("NOTIFY_SOCKET"));
    int fd = listener(getenv("NOTIFY_CALLS"));
    hand_over(to, fd);
    close(fd);
    close(to);
}
