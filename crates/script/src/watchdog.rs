//! Counts the time of runs beside them: a thread that sets a flag when a run has taken too long.
//!
//! A run costs two stores. The thread looks every few milliseconds while scripts run, and parks when none has run for a
//! while.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How often the thread looks.
const TICK: Duration = Duration::from_millis(5);
/// After so many looks at nothing it parks.
const IDLE_TICKS: u32 = 200;

#[derive(Debug, Default)]
struct Shared {
    /// The number of the run that is on, 0 for none.
    running: AtomicU64,
    /// How long the newest run may take, nanoseconds; stored before its number.
    allowed: AtomicU64,
    /// The number of the run that must end.
    stopped: AtomicU64,
    parked: AtomicBool,
    ended: AtomicBool,
}

/// The flag of a watchdog.
#[derive(Debug, Clone)]
pub(crate) struct Flag(Arc<Shared>);

impl Flag {
    /// Whether a run must end.
    pub(crate) fn is_up(&self, run: u64) -> bool {
        self.0.stopped.load(SeqCst) == run
    }
}

/// The thread and what it shares with the runs.
#[derive(Debug)]
pub(crate) struct Watchdog {
    shared: Arc<Shared>,
    /// `None`: nobody counts, and no run begins.
    keeper: Option<Keeper>,
    runs: u64,
}

/// Who counts the time.
#[derive(Debug)]
enum Keeper {
    Thread(JoinHandle<()>),
    Alarm,
}

/// Ends runs by hand: what counts time in a [`Runtime`](crate::Runtime) without a watchdog's thread.
#[derive(Debug, Clone)]
pub struct Alarm(Arc<Shared>);

impl Alarm {
    /// The time of the run that is on is up.
    pub fn ring(&self) {
        self.0.stopped.store(self.0.running.load(SeqCst), SeqCst);
    }
}

impl Watchdog {
    /// One without a thread: time is up when the alarm rings.
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

    /// Starts one.
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

    /// Its flag.
    pub(crate) fn flag(&self) -> Flag {
        Flag(Arc::clone(&self.shared))
    }

    /// A run begins that may take so long. Returns its number, never 0; nothing if there is no thread to watch it.
    pub(crate) fn begin(&mut self, allowed: Duration) -> Option<u64> {
        let keeper = self.keeper.as_ref()?;
        self.runs += 1;
        let nanoseconds = u64::try_from(allowed.as_nanos()).unwrap_or(u64::MAX);
        self.shared.allowed.store(nanoseconds, SeqCst);
        self.shared.running.store(self.runs, SeqCst);
        if let Keeper::Thread(thread) = keeper
            && self.shared.parked.load(SeqCst)
        {
            thread.thread().unpark();
        }
        Some(self.runs)
    }

    /// The run has ended.
    pub(crate) fn end(&mut self) {
        self.shared.running.store(0, SeqCst);
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.shared.ended.store(true, SeqCst);
        if let Some(Keeper::Thread(thread)) = self.keeper.take() {
            thread.thread().unpark();
            // A panic of the thread would be a fault of this module; nothing is left to be done about it here.
            drop(thread.join());
        }
    }
}

fn watch(shared: &Shared) {
    let (mut seen, mut since, mut idle) = (0, Instant::now(), 0);
    let mut allowed = Duration::ZERO;
    while !shared.ended.load(SeqCst) {
        let running = shared.running.load(SeqCst);
        if running == 0 {
            idle += 1;
        } else if running != seen {
            (seen, since, idle) = (running, Instant::now(), 0);
            // If this is the time of a later run already, that run is found at the next look.
            allowed = Duration::from_nanos(shared.allowed.load(SeqCst));
        } else if since.elapsed() >= allowed {
            shared.stopped.store(running, SeqCst);
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
