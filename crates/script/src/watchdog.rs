//! Measures the processor time of runs, and ends those that take too long.
//!
//! Calendar time would count against a script while its process is stopped (SIGSTOP) or waits for a core. Reading a
//! thread's processor time takes a system call. So a second thread asks for it every few milliseconds while a script
//! runs, and the script's own thread answers at its next interrupt. The first answer marks the begin, so a run may take
//! two ticks more. A run that ends before costs three stores. The watchdog's thread parks after a while without runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// The time between two requests of the thread.
const TICK: Duration = Duration::from_millis(5);
/// The number of looks without a run after which the thread parks.
const IDLE_TICKS: u32 = 200;
/// The mark of a run that has not been asked.
const UNMARKED: u64 = u64::MAX;

#[derive(Debug, Default)]
struct Shared {
    /// The number of the present run, 0 for none.
    running: AtomicU64,
    /// The time that the newest run may take, nanoseconds. Only the thread of the runs uses it.
    allowed: AtomicU64,
    /// Its thread's time at the first request, nanoseconds. Only the thread of the runs uses it.
    marked: AtomicU64,
    /// The number of the run that must look at its time.
    asked: AtomicU64,
    /// The number of the run that must end.
    stopped: AtomicU64,
    parked: AtomicBool,
    ended: AtomicBool,
}

/// The flag of a watchdog.
#[derive(Debug, Clone)]
pub(crate) struct Flag(Arc<Shared>);

impl Flag {
    /// Returns whether the run must end. It must be the run of the calling thread.
    pub(crate) fn is_up(&self, run: u64) -> bool {
        self.0.asked.load(SeqCst) == run && self.0.look(run)
    }
}

impl Shared {
    /// Answers a request: compares the time that a run has taken with its limit.
    #[cold]
    fn look(&self, run: u64) -> bool {
        if self.stopped.load(SeqCst) == run {
            return true;
        }
        let now = thread_cpu_ns();
        match self.marked.load(Relaxed) {
            UNMARKED => self.marked.store(now, Relaxed),
            begun if now.saturating_sub(begun) >= self.allowed.load(Relaxed) => {
                self.stopped.store(run, SeqCst);
                return true;
            }
            _ => {}
        }
        self.asked.store(0, SeqCst);
        false
    }
}

/// Returns the processor time of the calling thread, nanoseconds.
fn thread_cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// The thread and the state that it shares with the runs.
#[derive(Debug)]
pub(crate) struct Watchdog {
    shared: Arc<Shared>,
    /// The component that measures the time. `None`: no run begins.
    keeper: Option<Keeper>,
    runs: u64,
}

/// The component that measures the time.
#[derive(Debug)]
enum Keeper {
    Thread(JoinHandle<()>),
    Alarm,
}

/// Ends runs by hand. It replaces the watchdog's thread in a [`Runtime`](crate::Runtime).
#[derive(Debug, Clone)]
pub struct Alarm(Arc<Shared>);

impl Alarm {
    /// Ends the present run: its time is up.
    pub fn ring(&self) {
        let running = self.0.running.load(SeqCst);
        self.0.stopped.store(running, SeqCst);
        self.0.asked.store(running, SeqCst);
    }
}

impl Watchdog {
    /// Makes a watchdog without a thread. Time is up when the alarm rings.
    pub(crate) fn by_hand() -> (Self, Alarm) {
        let shared = Arc::<Shared>::default();
        let alarm = Alarm(Arc::clone(&shared));
        let keeper = Some(Keeper::Alarm);
        let watchdog = Watchdog {
            shared,
            keeper,
            runs: 0,
        };
        (watchdog, alarm)
    }

    /// Starts a watchdog with a thread.
    pub(crate) fn start() -> Self {
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name(String::from("script-watchdog"))
            .spawn(move || watch(&theirs));
        Watchdog {
            shared,
            keeper: thread.ok().map(Keeper::Thread),
            runs: 0,
        }
    }

    /// Returns its flag.
    pub(crate) fn flag(&self) -> Flag {
        Flag(Arc::clone(&self.shared))
    }

    /// Begins a run that may take the time `allowed`. Returns its number, never 0. `None`: no thread watches it.
    pub(crate) fn begin(&mut self, allowed: Duration) -> Option<u64> {
        let keeper = self.keeper.as_ref()?;
        self.runs += 1;
        let nanoseconds = u64::try_from(allowed.as_nanos()).unwrap_or(u64::MAX);
        self.shared.allowed.store(nanoseconds, Relaxed);
        self.shared.marked.store(UNMARKED, Relaxed);
        self.shared.running.store(self.runs, SeqCst);
        if let Keeper::Thread(thread) = keeper
            && self.shared.parked.load(SeqCst)
        {
            thread.thread().unpark();
        }
        Some(self.runs)
    }

    /// Ends the run `elapsed` after its begin, on the same thread. Returns the part of its time that it has taken.
    pub(crate) fn end(&mut self, elapsed: Duration) -> Duration {
        self.shared.running.store(0, SeqCst);
        let before = elapsed.min(2 * TICK);
        match self.shared.marked.load(Relaxed) {
            UNMARKED => before,
            begun => before + Duration::from_nanos(thread_cpu_ns().saturating_sub(begun)),
        }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.shared.ended.store(true, SeqCst);
        if let Some(Keeper::Thread(thread)) = self.keeper.take() {
            thread.thread().unpark();
            // A panic of the thread would be a fault of this module. Nothing is left to do about it here.
            drop(thread.join());
        }
    }
}

fn watch(shared: &Shared) {
    let mut idle = 0;
    while !shared.ended.load(SeqCst) {
        match shared.running.load(SeqCst) {
            0 => idle += 1,
            running => {
                idle = 0;
                // If that run has already ended, no run has this number.
                shared.asked.store(running, SeqCst);
            }
        }
        if idle < IDLE_TICKS {
            thread::sleep(TICK);
            continue;
        }
        idle = 0;
        shared.parked.store(true, SeqCst);
        // A run that begins after this look finds `parked` set and unparks.
        if shared.running.load(SeqCst) == 0 && !shared.ended.load(SeqCst) {
            thread::park();
        }
        shared.parked.store(false, SeqCst);
    }
}
