//! The classes of failing system calls, and the faults of each class.

use crate::syscalls::Act;

/// System calls that can fail in the same ways.
pub struct Class {
    pub name: &'static str,
    pub calls: &'static [i64],
    /// The faults that one of these calls can have.
    pub acts: &'static [Act],
    /// The value of the setting `log-io`. It decides the system calls that write the log.
    pub log_io: &'static str,
}

pub const CLASSES: [Class; 10] = [
    Class {
        name: "write",
        calls: &[libc::SYS_pwrite64, libc::SYS_pwritev, libc::SYS_pwritev2],
        acts: &[
            Act::Fail(libc::ENOSPC),
            Act::Fail(libc::EIO),
            Act::Fail(libc::EDQUOT),
            Act::Fail(libc::EINTR),
            Act::Short,
            Act::Kill,
            Act::FailOn(libc::ENOSPC),
            Act::FailOn(libc::EIO),
        ],
        log_io: "sync",
    },
    Class {
        name: "sync",
        calls: &[libc::SYS_fsync, libc::SYS_fdatasync],
        acts: &[
            Act::Fail(libc::EIO),
            Act::Fail(libc::ENOSPC),
            Act::Fail(libc::EDQUOT),
            Act::Fail(libc::EINTR),
            Act::Kill,
        ],
        log_io: "sync",
    },
    Class {
        name: "open",
        calls: &[libc::SYS_openat],
        acts: &[
            Act::Fail(libc::EMFILE),
            Act::Fail(libc::ENFILE),
            Act::Fail(libc::ENOMEM),
            Act::Fail(libc::EIO),
            Act::Fail(libc::EINTR),
            Act::Kill,
        ],
        log_io: "auto",
    },
    Class {
        name: "name",
        calls: &[
            libc::SYS_rename,
            libc::SYS_renameat,
            libc::SYS_renameat2,
            libc::SYS_unlink,
            libc::SYS_unlinkat,
            libc::SYS_linkat,
            libc::SYS_mkdir,
            libc::SYS_mkdirat,
        ],
        acts: &[Act::Fail(libc::EIO), Act::Fail(libc::ENOSPC), Act::Kill],
        log_io: "auto",
    },
    Class {
        name: "size",
        calls: &[libc::SYS_ftruncate, libc::SYS_fallocate],
        acts: &[
            Act::Fail(libc::ENOSPC),
            Act::Fail(libc::EIO),
            Act::Fail(libc::EINTR),
            Act::Fail(libc::EOPNOTSUPP),
            Act::Kill,
        ],
        log_io: "auto",
    },
    Class {
        name: "read",
        calls: &[libc::SYS_pread64, libc::SYS_preadv, libc::SYS_preadv2],
        acts: &[Act::Fail(libc::EIO), Act::Fail(libc::EINTR), Act::Kill],
        log_io: "auto",
    },
    Class {
        name: "ring",
        calls: &[libc::SYS_io_uring_setup, libc::SYS_io_uring_register],
        acts: &[
            Act::Fail(libc::ENOSYS),
            Act::Fail(libc::EPERM),
            Act::Fail(libc::ENOMEM),
            Act::FailOn(libc::EPERM),
            Act::Kill,
        ],
        log_io: "auto",
    },
    Class {
        name: "enter",
        calls: &[libc::SYS_io_uring_enter],
        acts: &[
            Act::Fail(libc::EINTR),
            Act::Fail(libc::EAGAIN),
            Act::Fail(libc::EBUSY),
            Act::Kill,
        ],
        log_io: "auto",
    },
    Class {
        name: "socket",
        calls: &[libc::SYS_socket, libc::SYS_accept4, libc::SYS_epoll_ctl],
        acts: &[
            Act::Fail(libc::EMFILE),
            Act::Fail(libc::ENFILE),
            Act::Fail(libc::ENOMEM),
        ],
        log_io: "auto",
    },
    Class {
        name: "thread",
        calls: &[libc::SYS_clone3, libc::SYS_clone],
        acts: &[Act::Fail(libc::EAGAIN), Act::Kill],
        log_io: "auto",
    },
];
