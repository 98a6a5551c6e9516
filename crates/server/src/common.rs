//! The state that all event loops share.
//!
//! Each part has one rule for its use by several loops:
//!
//! | part | rule |
//! |---|---|
//! | blocked clients | one mutex; a client is added, claimed and served under the latch of its key's partition |
//! | watches | in stripes by key; raised and compared under the latch of the key's partition |
//! | tracking | one mutex; reads are noted and changes reported under the latch of the key's partition |
//! | topics | one mutex; a message is posted to all receivers while the mutex is held |
//! | monitors | one mutex |
//! | classes of events | one atomic number |
//! | mailboxes | one for each loop; any thread posts, only the loop reads |
//!
//! A part without entries costs one load of a flag. The flags of blocked clients, watches and tracking are set only
//! under a latch of the key's partition. So a transaction that looks at the flag under its latches misses no client that came before.
//!
//! Locks are taken in this order: latches of partitions, then one part of this state, then mailboxes.

use crate::blocking::Blocking;
use crate::control::Control;
use crate::engine::Epoch;
use crate::gate::Gate;
use crate::mailbox::{Letter, Mailbox, Post};
use crate::notify;
use crate::part::Part;
use crate::pubsub::{Seat, Topics};
use crate::tracking::Tracking;
use crate::watch::Watches;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

/// The state that all loops share.
#[derive(Debug)]
pub(crate) struct Common {
    /// The keys that clients watch.
    pub watches: Arc<Watches>,
    /// The clients that wait for keys.
    pub blocking: Part<Blocking>,
    /// The channels, each with its subscribers.
    pub topics: Part<Topics>,
    /// The clients that get reports of changed keys.
    pub tracking: Part<Tracking>,
    /// The clients that see every command (MONITOR).
    pub monitors: Part<Vec<Seat>>,
    /// The classes of events that are published; see [`crate::notify`].
    notify: AtomicU16,
    /// The mailbox of each loop.
    mailboxes: Vec<Mailbox>,
}

/// The place of a loop: the state that it shares, its index, and the sender of messages to it.
pub(crate) struct Home {
    /// The state that all loops share.
    pub common: Arc<Common>,
    /// The index of the loop.
    pub event_loop: usize,
    /// The sender of messages to the loop.
    pub control: Control,
}

impl Home {
    /// Returns the place of the only loop of a server.
    pub(crate) fn alone(control: &Control) -> Home {
        let common = Common::new(vec![Arc::clone(&control.gate)]);
        Home {
            common,
            event_loop: 0,
            control: control.clone(),
        }
    }

    /// Returns the places of several loops. `controls` has the sender of messages to each loop.
    #[cfg(test)]
    pub(crate) fn each(controls: &[Control]) -> Vec<Home> {
        let gates = controls.iter().map(|control| Arc::clone(&control.gate));
        let common = Common::new(gates.collect());
        let home = |(event_loop, control): (usize, &Control)| Home {
            common: Arc::clone(&common),
            event_loop,
            control: control.clone(),
        };
        controls.iter().enumerate().map(home).collect()
    }
}

impl Common {
    /// Returns the state before the first client.
    fn new(gates: Vec<Arc<Gate>>) -> Arc<Common> {
        debug_assert!(!gates.is_empty(), "a server has a loop");
        Arc::new(Common {
            watches: Arc::default(),
            blocking: Part::default(),
            topics: Part::default(),
            tracking: Part::default(),
            monitors: Part::default(),
            notify: AtomicU16::new(0),
            mailboxes: gates.into_iter().map(Mailbox::new).collect(),
        })
    }

    /// Sets the classes of events that are published.
    pub(crate) fn set_notify(&self, classes: u16) {
        self.notify.store(classes, Ordering::Relaxed);
    }

    /// Returns the classes of events that are published to clients. 0: no client listens.
    #[inline]
    pub(crate) fn published(&self) -> u16 {
        let classes = self.notify.load(Ordering::Relaxed);
        match notify::active(classes) && self.topics.is_in_use() {
            true => classes,
            false => 0,
        }
    }

    /// Returns which of two classes of events are published: new keys, and failed lookups of keys. Commands do not
    /// report these events.
    pub(crate) fn notices(&self) -> u16 {
        self.published() & (notify::class::NEW | notify::class::MISS)
    }

    /// Returns whether any client needs reports of changed keys.
    pub(crate) fn has_observers(&self) -> bool {
        let waits = self.blocking.is_in_use() || !self.watches.is_empty();
        waits || self.tracking.is_in_use() || self.published() != 0
    }

    /// Posts a letter to the loop of its receiver.
    pub(crate) fn post(&self, to: Seat, post: &Arc<Post>, epoch: Epoch) {
        self.mailboxes[to.event_loop].put(Letter {
            to,
            post: Arc::clone(post),
            epoch,
        });
    }

    /// Returns the mailbox of a loop.
    #[inline]
    pub(crate) fn mailbox(&self, event_loop: usize) -> &Mailbox {
        &self.mailboxes[event_loop]
    }
}
