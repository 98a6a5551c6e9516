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
//! | walks of KEYS | one mutex; walks and changes are noted under the latch of the key's partition |
//! | classes of events | one atomic number |
//! | mailboxes | one for each loop; any thread posts, only the loop reads |
//! | commands beside the loops | one mutex; a flag says whether there are any |
//! | slow commands, spikes, denials, wrong passwords, sources of scripts | one mutex each, taken rarely |
//! | settings, users, libraries of functions | a copy in each loop; a command that changes them runs alone ([`crate::alone`]) |
//! | statistics | in each loop; INFO adds them up ([`crate::state::figures`]) |
//!
//! A part without entries costs one load of a flag. The flags of blocked clients, watches and tracking are set only
//! under a latch of the key's partition. So a transaction that looks at the flag under its latches misses no client that came before.
//!
//! Locks are taken in this order: latches of partitions, then one part of this state, then mailboxes.

use crate::acl::log::Log;
use crate::acl::throttle::Throttle;
use crate::blocking::Blocking;
use crate::changes::Checkpoints;
use crate::command::scripts::cache::Cache;
use crate::control::Control;
use crate::crowd::Crowd;
use crate::engine::Epoch;
use crate::flights::Flights;
use crate::gate::Gate;
use crate::mailbox::{Letter, Mailbox, Post};
use crate::notify;
use crate::part::Part;
use crate::pressure::Pressure;
use crate::pubsub::{Seat, Topics};
use crate::scans::Scans;
use crate::slowlog::SlowLog;
use crate::spikes::Spikes;
use crate::tracking::Tracking;
use crate::watch::Watches;
use parking_lot::Mutex;
use rustls::ServerConfig;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

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
    /// The walks over a database that run in steps.
    pub scans: Part<Scans>,
    /// The commands that run beside the loops.
    pub flights: Flights,
    /// The newest slow commands.
    pub slowlog: Mutex<SlowLog>,
    /// Latency spikes.
    pub spikes: Mutex<Spikes>,
    /// The log of denials.
    pub denials: Mutex<Log>,
    /// The addresses that have sent wrong passwords.
    pub throttle: Mutex<Throttle>,
    /// The scripts by their SHA-1.
    pub scripts: Mutex<Cache>,
    /// The outcome of the newest checkpoint, as INFO last saw it.
    pub checkpoints: Mutex<Checkpoints>,
    /// The configuration of TLS for new connections. `None`: TLS is not spoken.
    pub tls: Mutex<Option<Arc<ServerConfig>>>,
    /// True while a client waits for SAVE.
    pub saves: AtomicBool,
    /// The clients of each loop.
    pub crowd: Crowd,
    /// Each loop's part in the clients' share of memory.
    pub pressure: Pressure,
    /// The time of the server's start.
    pub started: Instant,
    /// A name that differs at each start of the server, 40 hex digits.
    pub run_id: String,
    /// The id of the newest client.
    newest_client: AtomicU64,
    /// The newest epoch that a reply of an ended round has depended on.
    newest: AtomicU64,
    /// The durable epoch that the flusher has reported last.
    durable: AtomicU64,
    /// The number of expired keys that were removed.
    expired: AtomicU64,
    /// The largest memory use that INFO has reported so far, bytes.
    memory_peak: AtomicU64,
    /// True if a write has been refused since the last look because the log had no room.
    refused: AtomicBool,
    /// True if the log has the line that the database has stopped.
    stop_noted: AtomicBool,
    /// The time of each loop's last tick, milliseconds since `started`.
    beats: Vec<AtomicU64>,
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
    /// Returns the places of all loops of a server. `controls` has the sender of messages to each loop.
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
            scans: Part::default(),
            flights: Flights::default(),
            slowlog: Mutex::default(),
            spikes: Mutex::default(),
            denials: Mutex::default(),
            throttle: Mutex::default(),
            scripts: Mutex::default(),
            checkpoints: Mutex::default(),
            tls: Mutex::default(),
            saves: AtomicBool::new(false),
            crowd: Crowd::new(gates.len()),
            pressure: Pressure::new(gates.len()),
            started: Instant::now(),
            run_id: run_id(),
            newest_client: AtomicU64::new(0),
            newest: AtomicU64::new(0),
            durable: AtomicU64::new(0),
            expired: AtomicU64::new(0),
            memory_peak: AtomicU64::new(0),
            refused: AtomicBool::new(false),
            stop_noted: AtomicBool::new(false),
            beats: gates.iter().map(|_| AtomicU64::new(0)).collect(),
            notify: AtomicU16::new(0),
            mailboxes: gates.into_iter().map(Mailbox::new).collect(),
        })
    }

    /// Returns the number of loops.
    pub(crate) fn loops(&self) -> usize {
        self.mailboxes.len()
    }

    /// Wakes the loops whose clients wait for the log, because `durable` is the durable epoch now. If it is the epoch of
    /// the last call, the database may have stopped, or nodes have acknowledged more. Then wakes all loops.
    pub(crate) fn advanced(&self, durable: Epoch) {
        let before = self.durable.fetch_max(durable.0, Ordering::Relaxed);
        for mailbox in &self.mailboxes {
            match before >= durable.0 {
                true => mailbox.gate.posted(),
                false => mailbox.gate.advanced(),
            }
        }
    }

    /// Wakes a loop, even if it has not announced its sleep.
    pub(crate) fn wake(&self, event_loop: usize) {
        self.mailboxes[event_loop].gate.wake();
    }

    /// Wakes all loops but one, even those that have not announced their sleep.
    pub(crate) fn wake_others(&self, event_loop: usize) {
        let others = self.mailboxes.iter().enumerate();
        let others = others.filter(|(at, _)| *at != event_loop);
        others.for_each(|(_, mailbox)| mailbox.gate.wake());
    }

    /// Returns whether a client waits for SAVE.
    pub(crate) fn is_saving(&self) -> bool {
        self.saves.load(Ordering::Acquire)
    }

    /// Returns the id of a new client.
    pub(crate) fn next_client(&self) -> u64 {
        self.newest_client.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Notes the newest epoch that a reply has depended on. A loop calls this at the end of a round.
    pub(crate) fn note_newest(&self, epoch: Epoch) {
        if self.newest.load(Ordering::Relaxed) < epoch.0 {
            self.newest.fetch_max(epoch.0, Ordering::Release);
        }
    }

    /// Returns the newest epoch that a reply of an ended round has depended on.
    pub(crate) fn newest(&self) -> Epoch {
        Epoch(self.newest.load(Ordering::Acquire))
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

    /// Notes the memory in use, bytes. Returns the largest use that was noted so far.
    pub(crate) fn memory_peak(&self, used: u64) -> u64 {
        self.memory_peak
            .fetch_max(used, Ordering::Relaxed)
            .max(used)
    }

    /// Notes that a write was refused because the log has no room.
    pub(crate) fn note_refusal(&self) {
        self.refused.store(true, Ordering::Relaxed);
    }

    /// Returns whether a write has been refused since the last call because the log had no room.
    pub(crate) fn take_refusal(&self) -> bool {
        self.refused.swap(false, Ordering::Relaxed)
    }

    /// Notes that a loop has a tick.
    pub(crate) fn beat(&self, event_loop: usize, now: Instant) {
        let since = now.saturating_duration_since(self.started);
        let ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        self.beats[event_loop].store(ms, Ordering::Relaxed);
    }

    /// Returns the time since the last tick of the loop that has had no tick for the longest time.
    pub(crate) fn silence(&self, now: Instant) -> Duration {
        let oldest = self
            .beats
            .iter()
            .map(|beat| beat.load(Ordering::Relaxed))
            .min();
        let oldest = self.started + Duration::from_millis(oldest.unwrap_or(0));
        now.saturating_duration_since(oldest)
    }

    /// Notes that the database has stopped. Returns whether a loop has noted it before.
    pub(crate) fn note_stop(&self) -> bool {
        self.stop_noted.swap(true, Ordering::Relaxed)
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
        waits || self.scans.is_in_use() || self.tracking.is_in_use() || self.published() != 0
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

/// Returns a name that differs between any two starts on a machine: a hash of the clock and the process id.
fn run_id() -> String {
    let nanos = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| d.as_nanos());
    let seed = u64::from(std::process::id());
    let word = |n: u64| perdura_base::checksum::hash64(seed ^ n, &nanos.to_le_bytes());
    let mut text = format!(
        "{:016x}{:016x}{:016x}",
        word(1 << 40),
        word(2 << 40),
        word(3 << 40)
    );
    text.truncate(40);
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testbed::Testbed;

    #[test]
    fn the_loop_that_has_been_silent_for_the_longest_time_decides_about_the_watchdog() {
        let beds = [Testbed::new(), Testbed::new()];
        let controls = beds.each_ref().map(Testbed::control);
        let common = Home::each(&controls).remove(0).common;
        let after = |seconds| common.started + Duration::from_secs(seconds);
        common.beat(0, after(10));
        assert_eq!(common.silence(after(10)), Duration::from_secs(10));
        common.beat(1, after(7));
        assert_eq!(common.silence(after(10)), Duration::from_secs(3));
    }

    #[test]
    fn the_largest_use_of_memory_and_the_newest_epoch_never_fall() {
        let bed = Testbed::new();
        let common = Home::each(&[bed.control()]).remove(0).common;
        assert_eq!([5, 9, 7].map(|used| common.memory_peak(used)), [5, 9, 9]);
        for epoch in [3, 8, 4] {
            common.note_newest(Epoch(epoch));
        }
        assert_eq!(common.newest(), Epoch(8));
    }
}
