//! Messages from other threads to the event loop, and the flusher's wake-ups of that loop.
//!
//! The flusher calls [`Gate::advanced`] after each advance of the durable epoch, many thousand times a second. A
//! wake-up is a system call, so it is made only if the loop has announced that it is about to sleep. No wake-up is
//! lost. The loop *announces its sleep, fences, then looks* at the durable epoch. The flusher *advances the epoch,
//! fences, then looks* at the announcement. If two threads each write, fence and read, at least one thread sees both
//! writes.

use crate::acl::prove::Proved;
use crate::command::server::info::Fields;
use crate::engine::{Db, Epoch, Error};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::mpsc::Sender;
use tokio::sync::oneshot;

/// A message from another thread to the loop.
pub(crate) enum Message {
    /// The database has opened, or could not be opened.
    Opened(Result<Db, Error>),
    /// Keys past their expiry have been removed.
    Expired {
        /// The keys, with their databases.
        keys: Vec<(u8, Vec<u8>)>,
        /// The epoch that makes the removal durable.
        epoch: Epoch,
    },
    /// The thread that checks passwords has checked one.
    Proved(Proved),
    /// The checkpoint of SAVE has ended. The client that requested it waits.
    Saved {
        /// The client's id.
        client: u64,
        /// The result of the checkpoint.
        result: Result<(), Error>,
    },
    /// A request for all fields of INFO. They are sent through this sender.
    Figures(oneshot::Sender<Fields>),
    /// A request to end, with a checkpoint or without.
    Stop {
        /// True if a checkpoint is to be made.
        checkpoint: bool,
    },
}

/// The waker of the loop, with flags and a counter that the loop shares with other threads.
#[derive(Debug)]
pub(crate) struct Gate {
    waker: mio::Waker,
    sleeping: AtomicBool,
    /// True if the loop wants reports of keys that expire.
    hears_expired: AtomicBool,
    /// The number of expired keys that were removed.
    expired: AtomicU64,
}

impl Gate {
    /// Returns a gate that wakes through `waker`.
    pub(crate) fn new(waker: mio::Waker) -> Self {
        Gate {
            waker,
            sleeping: AtomicBool::new(false),
            hears_expired: AtomicBool::new(false),
            expired: AtomicU64::new(0),
        }
    }

    /// Announces that the loop is about to sleep. The loop looks at the durable epoch after this.
    pub(crate) fn lie_down(&self) {
        self.sleeping.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Sets whether the loop wants reports of keys that expire.
    pub(crate) fn hear_expired(&self, hears: bool) {
        self.hears_expired.store(hears, Ordering::Relaxed);
    }

    /// Returns whether the loop wants reports of keys that expire.
    pub(crate) fn hears_expired(&self) -> bool {
        self.hears_expired.load(Ordering::Relaxed)
    }

    /// Counts removed keys that had expired.
    pub(crate) fn count_expired(&self, keys: usize) {
        let keys = u64::try_from(keys).unwrap_or(u64::MAX);
        self.expired.fetch_add(keys, Ordering::Relaxed);
    }

    /// Returns the number of keys expired since the start.
    pub(crate) fn expired(&self) -> u64 {
        self.expired.load(Ordering::Relaxed)
    }

    /// Announces that the loop is awake.
    pub(crate) fn get_up(&self) {
        self.sleeping.store(false, Ordering::Relaxed);
    }

    /// Wakes a sleeping loop, because the durable epoch has advanced or the database has stopped.
    pub(crate) fn advanced(&self) {
        fence(Ordering::SeqCst);
        if self.sleeping.load(Ordering::Relaxed) && self.sleeping.swap(false, Ordering::Relaxed) {
            self.wake();
        }
    }

    /// Wakes the loop even if it has not announced its sleep.
    pub(crate) fn wake(&self) {
        // A full event counter means that a wake-up is already on its way.
        let _: io::Result<()> = self.waker.wake();
    }
}

/// The sending end of the loop's messages, for any thread.
#[derive(Clone)]
pub(crate) struct Control {
    /// The sender of messages.
    pub sender: Sender<Message>,
    /// The gate, for the wake-up.
    pub gate: Arc<Gate>,
}

impl Control {
    /// Sends a message and wakes the loop. A message to an ended loop is dropped.
    pub(crate) fn send(&self, message: Message) {
        let _ = self.sender.send(message);
        self.gate.wake();
    }
}
