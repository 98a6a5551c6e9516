//! The state that all parts of an open database share: its core, settings and clock, and the list of waiting threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, RwLock};
use perdura_base::{Epoch, Result, StreamId};
use perdura_device::{Clock, SystemClock};
use perdura_wal::Rung;

use crate::core::Core;
use crate::delays::{Delays, Work};
use crate::options::Options;
use crate::wishes::Wishes;

/// A function that is called each time the durable epoch may have advanced. Its argument is the durable epoch.
pub(crate) type Listener = Box<dyn Fn(Epoch) + Send + Sync>;

/// The state that the threads of an open database share.
pub(crate) struct Ground {
    /// The database.
    pub core: Core,
    /// The settings that the database was opened with.
    pub options: Options,
    /// The clock.
    pub clock: Arc<SystemClock>,
    /// The time of the open.
    pub opened_ns: u64,
    /// True if the log has one stream, and the stream's writes complete without a thread that waits for them.
    pub rings: bool,
    /// Work that a failing disk delays.
    pub delays: Delays,
    /// Requests for a flush of the log.
    pub wishes: Wishes,
    stopping: AtomicBool,
    waiting: Mutex<usize>,
    progressed: Condvar,
    listeners: RwLock<Vec<Listener>>,
}

impl Ground {
    /// Returns the shared state of a core, before the threads begin.
    pub fn new(core: Core, options: Options, clock: Arc<SystemClock>) -> Ground {
        let ground = Ground {
            opened_ns: clock.mono_ns(),
            rings: core.wal().streams() == 1 && core.wal().completes_by_itself(StreamId(0)),
            core,
            options,
            clock,
            delays: Delays::default(),
            wishes: Wishes::default(),
            stopping: AtomicBool::new(false),
            waiting: Mutex::new(0),
            progressed: Condvar::new(),
            listeners: RwLock::new(Vec::new()),
        };
        ground.wishes.note_wanted();
        ground
    }

    /// Returns the monotonic time, nanoseconds since an arbitrary moment.
    pub fn now_ns(&self) -> u64 {
        self.clock.mono_ns()
    }

    /// Returns whether the threads are to end.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// Makes the threads end.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.wishes.wake_all();
    }

    /// Adds a listener for durable epochs.
    pub fn listen(&self, listener: Listener) {
        self.listeners.write().push(listener);
    }

    /// Notes the outcome of extending or writing a stream's log; see [`Delays::note_log`].
    pub fn note_log(&self, work: Work, done: Result<()>) -> Duration {
        self.delays.note_log(work, done, self.now_ns())
    }

    /// Reports to waiting callers and listeners that the durable epoch has advanced or the database has stopped.
    pub fn announce(&self) {
        if *self.waiting.lock() > 0 {
            self.progressed.notify_all();
        }
        let durable = self.core.wal().durable(Rung::Disk);
        for listener in self.listeners.read().iter() {
            listener(durable);
        }
    }

    /// Waits until an epoch is durable on a rung. Returns `Ok` earlier if `holds` returns false before the thread
    /// sleeps. If the log's writes complete by themselves, also returns `Ok` after the first wake-up.
    pub fn wait_until(&self, rung: Rung, epoch: Epoch, holds: impl Fn() -> bool) -> Result<()> {
        let wal = self.core.wal();
        let mut waiting = self.waiting.lock();
        *waiting += 1;
        let result = loop {
            if wal.durable(rung) >= epoch {
                break Ok(());
            }
            if let Err(stopped) = wal.check() {
                break Err(stopped);
            }
            if !holds() {
                break Ok(());
            }
            self.progressed
                .wait_for(&mut waiting, Duration::from_millis(50));
            if self.rings {
                break Ok(());
            }
        };
        assert!(*waiting > 0, "each caller that waits is counted");
        *waiting -= 1;
        result
    }
}
