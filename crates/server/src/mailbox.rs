//! Letters to clients: messages that answer no request.
//!
//! A loop writes only to its own connections. A message to a client is posted to the mailbox of the client's loop, even
//! if the sender runs on the same loop. So the messages of all senders have one order. A letter carries the epoch of
//! the write that it shows. It enters the receiver's queue of replies with that epoch, so it waits for the disk like
//! the write's own reply.
//!
//! The poster never waits for the reader: a mailbox has no limit. The receiver pays for a letter when its loop delivers
//! it, and `client-output-buffer-limit` decides whether the receiver stays.

use crate::denial::Denied;
use crate::engine::Epoch;
use crate::gate::Gate;
use crate::pubsub::{Seat, Topic};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

/// The content of a letter.
#[derive(Debug)]
pub(crate) enum Post {
    /// A message to the subscribers of a channel.
    Message {
        /// The kind of the channel.
        topic: Topic,
        /// The channel.
        channel: Box<[u8]>,
        /// The text.
        text: Box<[u8]>,
    },
    /// A message to the subscribers of a pattern.
    Matched {
        /// The pattern.
        pattern: Box<[u8]>,
        /// The channel.
        channel: Box<[u8]>,
        /// The text.
        text: Box<[u8]>,
    },
    /// A report of changed keys to the client that tracks them.
    Changed {
        /// The keys. `None`: all keys.
        keys: Option<Vec<Box<[u8]>>>,
        /// True if the client tracks prefixes, so that it may get only names of keys that its user may read.
        is_broadcast: bool,
    },
    /// A report of changed keys for the client that another client names with REDIRECT.
    Redirected {
        /// The keys. `None`: all keys.
        keys: Option<Vec<Box<[u8]>>>,
        /// The client that tracks the keys.
        tracker: Seat,
    },
    /// A notice to a client that tracks keys: the client of its REDIRECT is gone.
    RedirectGone {
        /// The id of the client that is gone.
        id: u64,
    },
    /// A line for a monitor.
    Line(String),
    /// The reply to a client that has waited for a key.
    Answer {
        /// The reply.
        reply: Vec<u8>,
        /// The epoch of the command's writes; zero if it has written nothing.
        written: Epoch,
    },
    /// The end of a client's wait: the client may not use the key any more.
    Denied(Denied),
    /// The end of a client's wait, with an error: the key is gone.
    Gone(&'static str),
    /// The end of a client's wait, with an error of the engine.
    Refused(String),
    /// An order to the client's loop: it tries again to serve the clients that wait for these keys, each with its
    /// database.
    TryAgain(Vec<(u8, Box<[u8]>)>),
}

impl Post {
    /// Returns whether the letter ends its receiver's wait for a key.
    pub(crate) fn ends_wait(&self) -> bool {
        matches!(
            self,
            Post::Answer { .. } | Post::Denied(_) | Post::Gone(_) | Post::Refused(_)
        )
    }
}

/// A message to one client.
#[derive(Debug, Clone)]
pub(crate) struct Letter {
    /// The receiver.
    pub to: Seat,
    /// The content, which the letters to several receivers share.
    pub post: Arc<Post>,
    /// The epoch that must be durable before the receiver may see the letter.
    pub epoch: Epoch,
}

/// The letters to the clients of one loop, in the order in which they were posted.
#[derive(Debug)]
pub(crate) struct Mailbox {
    letters: Mutex<Vec<Letter>>,
    is_full: AtomicBool,
    /// The gate of the loop.
    pub gate: Arc<Gate>,
}

impl Mailbox {
    /// Returns the empty mailbox of the loop that `gate` wakes.
    pub(crate) fn new(gate: Arc<Gate>) -> Mailbox {
        Mailbox {
            letters: Mutex::new(Vec::new()),
            is_full: AtomicBool::new(false),
            gate,
        }
    }

    /// Adds a letter. Wakes the loop if it sleeps.
    pub(crate) fn put(&self, letter: Letter) {
        let mut letters = self.letters.lock();
        letters.push(letter);
        self.is_full.store(true, Ordering::Release);
        drop(letters);
        self.gate.posted();
    }

    /// Returns the number of letters.
    pub(crate) fn len(&self) -> usize {
        self.letters.lock().len()
    }

    /// Returns whether there is no letter.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        !self.is_full.load(Ordering::Acquire)
    }

    /// Moves all letters to `to`, which must be empty.
    pub(crate) fn take(&self, to: &mut Vec<Letter>) {
        debug_assert!(to.is_empty(), "letters are delivered before more are taken");
        let mut letters = self.letters.lock();
        std::mem::swap(&mut *letters, to);
        self.is_full.store(false, Ordering::Release);
    }
}
