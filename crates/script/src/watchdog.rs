//! Measures the processor time of runs, and ends runs that take too long.
//!
//! Wall time would count against a script while its process is stopped (SIGSTOP) or waits for a core. Reading a
//! thread's processor time takes a system call, which is too slow for every interrupt. So a second thread sets a
//! request every few milliseconds while a script runs. The script's own thread answers it at its next interrupt by
//! reading its time. The first answer marks the begin of the measured time, so a run may take two ticks more than its
//! limit. A run that ends before the first request costs three stores. The watchdog's thread parks when there have
//! been no runs for a while.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// The time between two requests of the watchdog's thread.
const TICK: Duration = Duration::from_millis(5);
/// After this number of ticks without a run, the thread parks.
const IDLE_TICKS: u32 = 200;
/// The value of `marked` before the first request of a run.
const UNMARKED: u64 = u64::MAX;

#[derive(Debug, Default)]
struct Shared {
    /// The number of the present run. 0: no run is under way.
    running: AtomicU64,
    /// The processor time that the newest run may take, nanoseconds. Only the thread of the runs uses it.
    allowed: AtomicU64,
    /// The processor time of the run's thread at the first request, nanoseconds. Only that thread uses it.
    marked: AtomicU64,
    /// The number of the run that must read its time.
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
    /// Returns whether the run must end. The calling thread must be the one that runs it.
    pub(crate) fn is_up(&self, run: u64) -> bool {
        self.0.asked.load(SeqCst) == run && self.0.look(run)
    }
}

impl Shared {
    /// Answers a request: compares the processor time of the run with its limit.
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

/// The watchdog's thread, and the state that it shares with the runs.
#[derive(Debug)]
pub(crate) struct Watchdog {
    shared: Arc<Shared>,
    /// The thread that makes the requests, or an alarm.
    keeper: Option<Keeper>,
    runs: u64,
}

/// The thread that makes the requests, or an alarm.
#[derive(Debug)]
enum Keeper {
    Thread(JoinHandle<()>),
    Alarm,
}

/// Ends runs on request. In a [`Runtime`](crate::Runtime), it takes the place of the watchdog's thread.
#[derive(Debug, Clone)]
pub struct Alarm(Arc<Shared>);

impl Alarm {
    /// Ends the present run as if its time were used up.
    pub fn ring(&self) {
        let running = self.0.running.load(SeqCst);
        self.0.stopped.store(running, SeqCst);
        self.0.asked.store(running, SeqCst);
    }
}

impl Watchdog {
    /// Makes a watchdog without a thread. A run's time is used up when the alarm rings.
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

    /// Begins a run that may take the processor time `allowed`. Returns its number, which is never 0. `None`: the
    /// thread could not be started.
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

    /// Ends the run. `elapsed` is the wall time since its begin, and the calling thread must be the one that began
    /// it. Returns the part of the allowed time that the run took.
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
            // If the thread has panicked, this module is at fault. Nothing can be done about it here.
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
                // If that run has ended meanwhile, no later run has its number, and the request has no effect.
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
