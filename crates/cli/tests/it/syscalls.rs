//! Intercepts the system calls of a real process before they are made. A call can be refused or cut short, or the
//! process is killed at that call.
//!
//! A preloaded library (`shim/notify.c`) installs a seccomp filter before the program begins, and sends the filter's
//! listener to a thread of the test. The kernel then asks this thread about each system call of [`Plan::calls`],
//! including calls that the program makes without the C library. It does not ask about writes through a ring, because
//! they are not system calls. If `io_uring_setup` is refused, the server writes the log by system calls instead.
//!
//! # Why not a library
//! The crate `seccompiler` has no filters with a listener, and the crate `libseccomp` must link the C library
//! libseccomp. The two `ioctl` requests are the only unsafe code. The filter is in C, like the other shims.

#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::ioctl::{Updater, ioctl, opcode};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::process::{Pid, kill_process};

use crate::preload::library;
use crate::support::arg;

/// The fate of the chosen call (see [`Plan::nth`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// This call alone fails, with this error number.
    Fail(i32),
    /// This call and all later calls fail with this error number.
    FailOn(i32),
    /// A write writes only the first half of its bytes. A half of more than 4096 bytes (one sector) is rounded down to
    /// whole sectors.
    Short,
    /// The process is killed before the call is made.
    Kill,
    /// The call is made as usual. The plan then only counts calls.
    Count,
}

/// The calls with a file descriptor as first argument.
const ON_FILES: [i64; 11] = [
    libc::SYS_write,
    libc::SYS_pwrite64,
    libc::SYS_pwritev,
    libc::SYS_pwritev2,
    libc::SYS_pread64,
    libc::SYS_preadv,
    libc::SYS_preadv2,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_ftruncate,
    libc::SYS_fallocate,
];

const SECTOR: usize = 4096;

/// The number of counted calls so far, by the number of the system call.
type Seen = Arc<Mutex<BTreeMap<i64, u64>>>;

/// The calls to count, the one chosen call among them, and the fate of the chosen call.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The numbers of the system calls to intercept and count.
    pub calls: Vec<i64>,
    /// A call on a file is counted only if the path of the file contains this text.
    pub path: String,
    /// The position of the chosen call in the sequence of counted calls. The first counted call has position 1.
    pub nth: u64,
    pub act: Act,
}

/// The thread that answers the kernel about the calls of one process.
pub struct Supervisor {
    seen: Seen,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    pub variables: Vec<(&'static str, String)>,
}

impl Supervisor {
    /// Starts the thread and creates the thread's socket in `folder`. The thread waits for a process that has the
    /// environment variables [`Supervisor::variables`].
    pub fn start(folder: &Path, plan: Plan) -> Supervisor {
        let socket = folder.join("notify");
        let _ = std::fs::remove_file(&socket);
        let listener = UnixListener::bind(&socket).unwrap();
        let calls: Vec<String> = plan.calls.iter().map(ToString::to_string).collect();
        let variables = vec![
            ("LD_PRELOAD", arg(&library("notify")).to_owned()),
            ("NOTIFY_SOCKET", arg(&socket).to_owned()),
            ("NOTIFY_CALLS", calls.join(",")),
        ];
        let seen = Seen::default();
        let is_over = Arc::new(AtomicBool::new(false));
        let thread = std::thread::spawn({
            let (seen, is_over) = (seen.clone(), is_over.clone());
            move || {
                if let Some(calls) = handed_over(&listener, &is_over) {
                    Watch { calls, plan, seen }.until(&is_over);
                }
            }
        });
        Supervisor {
            seen,
            is_over,
            thread: Some(thread),
            variables,
        }
    }

    /// Returns how many of these calls were seen so far.
    pub fn seen(&self, calls: &[i64]) -> u64 {
        let seen = self.seen.lock().unwrap();
        calls.iter().filter_map(|call| seen.get(call)).sum()
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // If the thread panicked, the panic has already been printed. The test then fails, because the kernel's
            // questions about the process get no answers.
            let _ = thread.join();
        }
    }
}

/// Waits up to 50 ms for input. Returns whether there is some.
fn is_ready(fd: impl AsFd) -> bool {
    let mut fds = [PollFd::new(&fd, PollFlags::IN)];
    let wait = Timespec::try_from(Duration::from_millis(50)).unwrap();
    matches!(poll(&mut fds, Some(&wait)), Ok(1..))
}

/// Receives the filter's listener, which the process sends when it begins. Returns `None` if `is_over` becomes true
/// before that.
fn handed_over(from: &UnixListener, is_over: &AtomicBool) -> Option<OwnedFd> {
    while !is_ready(from) {
        if is_over.load(Ordering::Relaxed) {
            return None;
        }
    }
    let (stream, _) = from.accept().unwrap();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut parts = [IoSliceMut::new(&mut byte)];
    recvmsg(&stream, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC).unwrap();
    control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    })
}

/// The calls of one process, as the kernel reports them.
struct Watch {
    calls: OwnedFd,
    plan: Plan,
    seen: Seen,
}

/// The answer to the kernel about a call.
enum Answer {
    Make,
    Fail(i32),
    Return(i64),
    None,
}

impl Watch {
    fn until(&self, is_over: &AtomicBool) {
        while !is_over.load(Ordering::Relaxed) {
            if !is_ready(&self.calls) {
                continue;
            }
            let Some(call) = self.next() else {
                // The process, or the thread that made the call, has ended.
                std::thread::sleep(Duration::from_millis(1));
                continue;
            };
            let answer = self.judge(&call);
            self.answer(call.id, answer);
        }
    }

    fn next(&self) -> Option<libc::seccomp_notif> {
        const RECV: u32 = opcode::read_write::<libc::seccomp_notif>(b'!', 0);
        let mut call = libc::seccomp_notif {
            id: 0,
            pid: 0,
            flags: 0,
            data: libc::seccomp_data {
                nr: 0,
                arch: 0,
                instruction_pointer: 0,
                args: [0; 6],
            },
        };
        // SAFETY: the request fills a `seccomp_notif`, as its number says, and `call` is one. All bit patterns are
        // valid.
        unsafe { ioctl(&self.calls, Updater::<RECV, _>::new(&mut call)) }.ok()?;
        Some(call)
    }

    fn answer(&self, id: u64, answer: Answer) {
        const SEND: u32 = opcode::read_write::<libc::seccomp_notif_resp>(b'!', 1);
        let mut response = libc::seccomp_notif_resp {
            id,
            val: 0,
            error: 0,
            flags: 0,
        };
        match answer {
            Answer::None => return,
            Answer::Make => response.flags = 1, // SECCOMP_USER_NOTIF_FLAG_CONTINUE
            Answer::Fail(error) => response.error = -error,
            Answer::Return(value) => response.val = value,
        }
        // SAFETY: the request reads a `seccomp_notif_resp`, as its number says, and `response` is one.
        let sent = unsafe { ioctl(&self.calls, Updater::<SEND, _>::new(&mut response)) };
        // ENOENT: the thread has been killed since, or a signal has interrupted the call. An interrupted call is made
        // again.
        let _ = sent;
    }

    fn judge(&self, call: &libc::seccomp_notif) -> Answer {
        if path_of(call).is_some_and(|path| !path.contains(&self.plan.path)) {
            return Answer::Make;
        }
        let number = i64::from(call.data.nr);
        let mut seen = self.seen.lock().unwrap();
        *seen.entry(number).or_default() += 1;
        let nth: u64 = seen.values().sum();
        drop(seen);
        let strikes = match self.plan.act {
            Act::FailOn(_) => nth >= self.plan.nth,
            _ => nth == self.plan.nth,
        };
        match self.plan.act {
            _ if !strikes => Answer::Make,
            Act::Count => Answer::Make,
            Act::Fail(error) | Act::FailOn(error) => Answer::Fail(error),
            Act::Short => written_short(call).map_or(Answer::Make, Answer::Return),
            Act::Kill => {
                let process = process_of(call.pid);
                let killed = kill_process(process, rustix::process::Signal::KILL);
                killed.expect("the process waits for the answer");
                Answer::None
            }
        }
    }
}

/// Returns the process that a thread belongs to.
fn process_of(thread: u32) -> Pid {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).unwrap_or_default();
    let process = status.lines().find_map(|line| line.strip_prefix("Tgid:"));
    let process = process.and_then(|text| text.trim().parse().ok());
    process.and_then(Pid::from_raw).expect("a thread's process")
}

/// Returns the path of the file that a call is about. `None`: it is about no file.
fn path_of(call: &libc::seccomp_notif) -> Option<String> {
    let args = &call.data.args;
    let text = match i64::from(call.data.nr) {
        libc::SYS_rename | libc::SYS_mkdir | libc::SYS_unlink => args[0],
        libc::SYS_openat | libc::SYS_renameat | libc::SYS_renameat2 | libc::SYS_mkdirat => args[1],
        libc::SYS_unlinkat | libc::SYS_linkat => args[1],
        number if ON_FILES.contains(&number) => {
            let link = format!("/proc/{}/fd/{}", call.pid, args[0] & u64::from(u32::MAX));
            let path = std::fs::read_link(link).unwrap_or_default();
            return Some(path.to_string_lossy().into_owned());
        }
        _ => return None,
    };
    // Reads only up to the end of the page, because the next page may not exist.
    let len = usize::try_from(4096 - text % 4096).unwrap();
    let bytes = memory(call, text, len)?;
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(len);
    Some(String::from_utf8_lossy(&bytes[..end]).into_owned())
}

/// Reads bytes from the memory of the process.
fn memory(call: &libc::seccomp_notif, at: u64, len: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; len];
    let memory = File::open(format!("/proc/{}/mem", call.pid)).ok()?;
    memory.read_exact_at(&mut bytes, at).ok()?;
    Some(bytes)
}

/// Makes a write call in place of the process, but writes only the first half (see [`Act::Short`]). Returns the number
/// of bytes written. `None`: the half is empty, or it cannot be written.
fn written_short(call: &libc::seccomp_notif) -> Option<i64> {
    let [fd, from, count, at, _, flags] = call.data.args;
    let bytes = match i64::from(call.data.nr) {
        libc::SYS_pwrite64 => memory(call, from, usize::try_from(count).ok()?)?,
        libc::SYS_pwritev | libc::SYS_pwritev2 => {
            let parts = memory(call, from, 16 * usize::try_from(count).ok()?)?;
            let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
            let parts = parts.chunks(16).map(|part| {
                let len = usize::try_from(word(&part[8..])).ok()?;
                memory(call, word(&part[..8]), len)
            });
            parts.collect::<Option<Vec<_>>>()?.concat()
        }
        _ => return None,
    };
    let half = bytes.len() / 2;
    let len = if half > SECTOR {
        half / SECTOR * SECTOR
    } else {
        half
    };
    if len == 0 {
        return None;
    }
    let path = format!("/proc/{}/fd/{}", call.pid, fd & u64::from(u32::MAX));
    let file = OpenOptions::new().write(true).open(path).ok()?;
    file.write_all_at(&bytes[..len], at).ok()?;
    let is_dsync = i64::from(call.data.nr) == libc::SYS_pwritev2 && flags != 0;
    if is_dsync {
        file.sync_data().ok()?;
    }
    i64::try_from(len).ok()
}
