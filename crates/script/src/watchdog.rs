//! Measures the processor time of runs, and ends runs that take too long.
//!
//! The limit is on processor time, because wall time passes even while the process is stopped (SIGSTOP) or waits for a
//! core. Reading a thread's processor time takes a system call, which is too slow for every interrupt. So while a
//! script runs, a second thread, the watchdog's, sets a request every few milliseconds (a *tick*). At the next
//! interrupt the script's thread answers the request: it reads its own processor time. The measurement begins at the
//! first answer, so a run may take two ticks more than its limit. A run that ends before the first request costs only
//! four atomic stores. The watchdog's thread parks when there have been no runs for a while.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// The time between two requests of the watchdog's thread.
const TICK: Duration = Duration::from_millis(5);
/// The number of ticks without a run before the thread parks.
const IDLE_TICKS: u32 = 200;
/// The value of `marked` before the first request of a run.
const UNMARKED: u64 = u64::MAX;

#[derive(Debug, Default)]
struct Shared {
    /// The sequence number of the current run. 0: no run is under way.
    running: AtomicU64,
    /// The processor time, in nanoseconds, that the newest run may take. Only the script's thread uses this field.
    allowed: AtomicU64,
    /// The processor time of the script's thread, in nanoseconds, at its answer to the run's first request. Only that
    /// thread uses this field.
    marked: AtomicU64,
    /// The sequence number of the run whose thread must read its processor time. 0: no request is open.
    asked: AtomicU64,
    /// The sequence number of the run that must end.
    stopped: AtomicU64,
    parked: AtomicBool,
    ended: AtomicBool,
}

/// A handle of a watchdog. The script's thread uses it to check whether the run must end.
#[derive(Debug, Clone)]
pub(crate) struct Flag(Arc<Shared>);

impl Flag {
    /// Returns whether the run must end. Only the thread that executes the run may call this.
    pub(crate) fn is_up(&self, run: u64) -> bool {
        self.0.asked.load(SeqCst) == run && self.0.look(run)
    }
}

impl Shared {
    /// Answers a request: compares the processor time of the run with its limit. Returns whether the run must end.
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

/// The watchdog's thread, and the state shared with the thread that runs scripts.
#[derive(Debug)]
pub(crate) struct Watchdog {
    shared: Arc<Shared>,
    /// The watchdog's thread, or the alarm that replaces it. `None`: the thread could not be started.
    keeper: Option<Keeper>,
    runs: u64,
}

/// The source of the requests: the watchdog's thread or an alarm.
#[derive(Debug)]
enum Keeper {
    Thread(JoinHandle<()>),
    Alarm,
}

/// A handle that ends runs on request. A [`Runtime`](crate::Runtime) with an alarm has no watchdog thread.
#[derive(Debug, Clone)]
pub struct Alarm(Arc<Shared>);

impl Alarm {
    /// Ends the current run as if its time were used up.
    pub fn ring(&self) {
        let running = self.0.running.load(SeqCst);
        self.0.stopped.store(running, SeqCst);
        self.0.asked.store(running, SeqCst);
    }
}

impl Watchdog {
    /// Makes a watchdog without a thread. The returned alarm ends runs instead.
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

    /// Returns a flag for runs to check.
    pub(crate) fn flag(&self) -> Flag {
        Flag(Arc::clone(&self.shared))
    }

    /// Begins a run that may take the processor time `allowed`. Returns the run's sequence number, which is never 0.
    /// Returns `None` if the watchdog's thread could not be started.
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

    /// Ends the run. Only the thread that began the run may call this. `elapsed` is the wall time since the run began.
    /// Returns the measured processor time, plus up to two ticks of `elapsed` for the time before the measurement.
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
            // The thread panics only by a fault of this module, and nothing can be done about it here.
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
                // If the run has ended since `running` was loaded, the request has no effect, because no later run has
                // this number.
                shared.asked.store(running, SeqCst);
            }
        }
        if idle < IDLE_TICKS {
            thread::sleep(TICK);
            continue;
        }
        idle = 0;
        shared.parked.store(true, SeqCst);
        // A run that begins after this check finds `parked` set and unparks the thread.
        if shared.running.load(SeqCst) == 0 && !shared.ended.load(SeqCst) {
            thread::park();
        }
        shared.parked.store(false, SeqCst);
    }
}
