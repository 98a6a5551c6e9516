//! A disk between the flusher and the real disk. It injects faults into durable writes to the log, at random by seed.
//! Writes are delayed, reordered, refused for lack of space, torn, shortened or failed.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fastrand::Rng;
use perdura::{Error, LogWayReport, Result};
use perdura_device::{
    Completed, Disk, DiskLayer, DurableQueue, DurableWrite, File, FileLayer, Part, Through,
};

/// The state that the faulty disks of a log share: whether faults are armed, the random numbers, and counts of the
/// faults that have struck.
pub struct Faults {
    rng: Mutex<Rng>,
    armed: AtomicBool,
    /// On average one write in this many fails for good; 0: no write fails.
    fail_one_in: u32,
    /// The extra time that a write of a waiting thread takes, milliseconds.
    delay_ms: AtomicU64,
    /// Counts of the delayed, the refused and the failed writes, in this order.
    pub struck: [AtomicU64; 3],
}

/// A fault of one write.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    /// The write begins later, or never if the database ends first.
    Held,
    /// A part is written, and the device reports that it has no space.
    Refused,
    /// A part is written, and the device reports a short write.
    Short,
    /// A part is written, and the device reports an error.
    Failed,
}

impl Faults {
    pub fn new(seed: u64, fail_one_in: u32) -> Arc<Faults> {
        Arc::new(Faults {
            rng: Mutex::new(Rng::with_seed(seed)),
            armed: AtomicBool::new(false),
            fail_one_in,
            delay_ms: AtomicU64::new(0),
            struck: Default::default(),
        })
    }

    /// Arms the faults: from now on writes may be affected.
    pub fn arm(&self) {
        self.armed.store(true, Ordering::SeqCst);
    }

    /// Delays each later write of a waiting thread by the time `by`.
    pub fn delay_writes(&self, by: Duration) {
        let ms = u64::try_from(by.as_millis()).expect("a short time");
        self.delay_ms.store(ms, Ordering::SeqCst);
    }

    fn draw(&self, below: usize) -> usize {
        self.rng.lock().unwrap().usize(0..below)
    }

    /// Chooses at random whether a write gets a fault, and which one. If `may_wait` is true, the fault may be a delay.
    fn of_write(&self, may_wait: bool) -> Fault {
        if !self.armed.load(Ordering::SeqCst) {
            return Fault::None;
        }
        let mut rng = self.rng.lock().unwrap();
        let fault = if self.fail_one_in > 0 && rng.u32(0..self.fail_one_in) == 0 {
            [Fault::Short, Fault::Failed][rng.usize(0..2)]
        } else if rng.u8(0..25) == 0 {
            Fault::Refused
        } else if may_wait && rng.bool() {
            Fault::Held
        } else {
            Fault::None
        };
        let counter = match fault {
            Fault::None => return fault,
            Fault::Held => 0,
            Fault::Refused => 1,
            Fault::Short | Fault::Failed => 2,
        };
        self.struck[counter].fetch_add(1, Ordering::SeqCst);
        fault
    }

    /// Writes some of the parts and returns the error that a device would report.
    fn spoil(&self, fault: Fault, file: &dyn File, offset: u64, parts: &[&[u8]]) -> Error {
        let some = self.draw(parts.len() + 1);
        let written = file.write_durable(offset, &parts[..some], Through::WriteAndSync);
        let error = match fault {
            Fault::Refused => ErrorKind::StorageFull.into(),
            Fault::Short => io::Error::new(ErrorKind::WriteZero, "the device wrote less"),
            _ => io::Error::other("the device reports an error"),
        };
        match written {
            Ok(()) => Error::io("write", file.path(), error),
            Err(real) => real,
        }
    }
}

/// A disk that injects faults into durable writes to log files.
pub struct FaultyDisk {
    pub inner: Arc<dyn Disk>,
    pub faults: Arc<Faults>,
}

struct FaultyFile {
    inner: Arc<dyn File>,
    faults: Arc<Faults>,
}

struct FaultyQueue {
    inner: Box<dyn DurableQueue>,
    faults: Arc<Faults>,
    state: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    /// Writes that were not begun yet.
    begin_later: VecDeque<DurableWrite>,
    /// Completions that were not reported yet.
    tell_later: Vec<Completed>,
    /// True if at least one completion must be reported, because a thread waits.
    is_due: bool,
}

impl FaultyQueue {
    fn begin(&self, held: &mut Held, how_many: usize) {
        for _ in 0..how_many {
            let at = self.faults.draw(held.begin_later.len());
            held.begin_later
                .swap_remove_back(at)
                .into_iter()
                .for_each(|write| self.inner.submit(write));
        }
    }
}

impl DurableQueue for FaultyQueue {
    fn depth(&self) -> usize {
        self.inner.depth()
    }

    fn submit(&self, write: DurableWrite) {
        let mut held = self.state.lock().unwrap();
        match self.faults.of_write(true) {
            Fault::None => self.inner.submit(write),
            Fault::Held => held.begin_later.push_back(write),
            fault => {
                let parts: Vec<&[u8]> = write.parts.iter().map(Part::bytes).collect();
                let (file, offset) = (write.file.as_ref(), write.offset);
                let error = self.faults.spoil(fault, file, offset, &parts);
                held.tell_later.push(Completed {
                    token: write.token,
                    parts: write.parts,
                    result: Err(error),
                });
            }
        }
    }

    fn collect(&self, done: &mut Vec<Completed>) {
        let mut held = self.state.lock().unwrap();
        let some = self.faults.draw(held.begin_later.len() + 1);
        self.begin(&mut held, some);
        self.inner.collect(&mut held.tell_later);
        let mut some = self.faults.draw(held.tell_later.len() + 1);
        if std::mem::take(&mut held.is_due) && !held.tell_later.is_empty() {
            some = some.max(1);
        }
        for _ in 0..some {
            let at = self.faults.draw(held.tell_later.len());
            done.push(held.tell_later.swap_remove(at));
        }
    }

    fn wait(&self) {
        {
            let mut held = self.state.lock().unwrap();
            held.is_due = true;
            if !held.tell_later.is_empty() {
                return;
            }
            let all = held.begin_later.len();
            self.begin(&mut held, all);
        }
        self.inner.wait();
    }

    fn ready(&self) -> Option<BorrowedFd<'_>> {
        self.inner.ready()
    }
}

impl DiskLayer for FaultyDisk {
    fn behind(&self) -> &dyn Disk {
        self.inner.as_ref()
    }

    fn in_front(&self, path: &str, file: Arc<dyn File>) -> Arc<dyn File> {
        if !path.contains("log/") {
            return file;
        }
        let faults = Arc::clone(&self.faults);
        Arc::new(FaultyFile {
            inner: file,
            faults,
        })
    }

    fn durable_queue(&self) -> Result<Box<dyn DurableQueue>> {
        Ok(Box::new(FaultyQueue {
            inner: self.inner.durable_queue()?,
            faults: Arc::clone(&self.faults),
            state: Mutex::default(),
        }))
    }

    fn log_way(&self) -> Option<LogWayReport> {
        self.inner.log_way()
    }
}

impl FileLayer for FaultyFile {
    fn behind(&self) -> &dyn File {
        self.inner.as_ref()
    }

    /// Makes a write for a thread that waits for it. This function also writes segment headers.
    fn write_durable(&self, offset: u64, parts: &[&[u8]], through: Through) -> Result<()> {
        let delay_ms = self.faults.delay_ms.load(Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(delay_ms));
        match self.faults.of_write(false) {
            Fault::None | Fault::Held => self.inner.write_durable(offset, parts, through),
            fault => Err(self.faults.spoil(fault, &*self.inner, offset, parts)),
        }
    }

    fn direct_fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.direct_fd()
    }
}
