//! How other threads reach the loop: messages, and the wake-ups of the flusher.
//!
//! The flusher calls [`Gate::advanced`] after each advance of the durable epoch, many thousand
//! times a second. A wake-up is a system call, so it is made only if the loop said that it is
//! about to sleep. No wake-up is lost: the loop *says so, fences, then looks* at the durable
//! epoch; the flusher *advances it, fences, then looks* at what the loop said. Of two threads
//! that each write and then read across such fences, at least one sees the other's write.

use crate::acl::prove::Proved;
use crate::command::server::info::Fields;
use crate::engine::{Db, Epoch, Error};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::mpsc::Sender;
use tokio::sync::oneshot;

/// What another thread tells the loop.
pub(crate) enum Message {
    /// The database has opened, or has not.
    Opened(Result<Db, Error>),
    /// Keys past their expiry have been removed.
    Expired {
        /// The keys, with their databases.
        keys: Vec<(u8, Vec<u8>)>,
        /// What the removal is durable with.
        epoch: Epoch,
    },
    /// The thread that tries passwords has done its work.
    Proved(Proved),
    /// The checkpoint of SAVE has ended; the client that asked waits.
    Saved {
        /// The client's id.
        client: u64,
        /// How it ended.
        result: Result<(), Error>,
    },
    /// A request for all figures.
    Figures(oneshot::Sender<Fields>),
    /// End, with a checkpoint or without.
    Stop {
        /// Whether to checkpoint.
        checkpoint: bool,
    },
}

/// The loop's bed.
#[derive(Debug)]
pub(crate) struct Gate {
    waker: mio::Waker,
    sleeping: AtomicBool,
    /// Whether the loop wants to hear of keys that expire.
    hears_expired: AtomicBool,
    /// Keys that were removed because their time was over.
    expired: AtomicU64,
}

impl Gate {
    /// A gate that wakes through `waker`.
    pub(crate) fn new(waker: mio::Waker) -> Self {
        Gate {
            waker,
            sleeping: AtomicBool::new(false),
            hears_expired: AtomicBool::new(false),
            expired: AtomicU64::new(0),
        }
    }

    /// The loop is about to sleep; it looks at the durable epoch after this.
    pub(crate) fn lie_down(&self) {
        self.sleeping.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// The loop wants to hear of keys that expire, or does not.
    pub(crate) fn hear_expired(&self, hears: bool) {
        self.hears_expired.store(hears, Ordering::Relaxed);
    }

    /// Whether it does.
    pub(crate) fn hears_expired(&self) -> bool {
        self.hears_expired.load(Ordering::Relaxed)
    }

    /// Counts keys that have been removed because their time was over.
    pub(crate) fn count_expired(&self, keys: usize) {
        let keys = u64::try_from(keys).unwrap_or(u64::MAX);
        self.expired.fetch_add(keys, Ordering::Relaxed);
    }

    /// How many there were since the start.
    pub(crate) fn expired(&self) -> u64 {
        self.expired.load(Ordering::Relaxed)
    }

    /// The loop is awake.
    pub(crate) fn get_up(&self) {
        self.sleeping.store(false, Ordering::Relaxed);
    }

    /// The durable epoch has advanced, or the database has stopped.
    pub(crate) fn advanced(&self) {
        fence(Ordering::SeqCst);
        if self.sleeping.load(Ordering::Relaxed) && self.sleeping.swap(false, Ordering::Relaxed) {
            self.wake();
        }
    }

    /// Wakes the loop in any case.
    pub(crate) fn wake(&self) {
        // A full event counter means that a wake-up is already on its way.
        let _: io::Result<()> = self.waker.wake();
    }
}

/// The sending end, for any thread.
#[derive(Clone)]
pub(crate) struct Control {
    /// Messages.
    pub sender: Sender<Message>,
    /// The wake-up.
    pub gate: Arc<Gate>,
}

impl Control {
    /// Tells the loop; a loop that has ended does not mind.
    pub(crate) fn send(&self, message: Message) {
        let _ = self.sender.send(message);
        self.gate.wake();
    }
}
