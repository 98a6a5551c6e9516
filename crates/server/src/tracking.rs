//! Client-side caches: a client is informed of changes of the keys that it has read.
//!
//! After a client has sent CLIENT TRACKING ON, the [`table`] notes the keys that its commands read. Only the next
//! change of a noted key is reported. The client reads the key again if it wants further reports. A client in mode
//! BCAST names prefixes instead. In this mode a client gets a report of every change of a key with a named prefix. The
//! client's reads are not noted.
//!
//! An *invalidation* is a message that its client has not requested. An invalidation enters the queue of its client's
//! replies with the epoch of the reported write. So the invalidation leaves when the reported write is durable, like
//! every reply that shows this write. A key that is removed from the table for lack of room is also invalidated. That
//! invalidation waits for no write.
//!
//! Access control filters invalidations when the tracking client's loop delivers them. With REDIRECT, it filters them when
//! they are posted to the other client's loop. A client gets no report of a key outside the user's rules.
//! In mode BCAST, a client gets reports only of keys that the user may read. Redis 7.0 sends all invalidations. With
//! REDIRECT, the rules of the tracking client count, and the receiver's rules do not.
//!
//! The keys that a block of MULTI has read are noted before the changes of the block are reported. So the client gets a
//! report of a key that the block has read and then written.

mod table;

use crate::acl::User;
use crate::acl::catalog::Access;
use crate::command::{Command, flag};
use crate::common::Common;
use crate::engine::Epoch;
use crate::mailbox::{Letter, Post};
use crate::part::Observers;
use crate::pubsub::Seat;
use crate::resp::parse::Args;
use crate::resp::reply::Out;
use crate::session::Session;
use crate::state::State;
use perdura_base::flaw::{Flaw, armed};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use table::Table;

/// The channel of invalidations for a client that speaks RESP2.
const CHANNEL: &[u8] = b"__redis__:invalidate";
/// The access to a key that a client needs to get a report of the key's change, if it has read the key. Any access is
/// enough, as with WATCH.
const HAVE: Access = Access {
    read: false,
    write: false,
};
/// The access that a client in mode BCAST needs to get reports of changes of a key. Such reports reveal names of
/// keys, so the user must be allowed to read these keys.
const READ: Access = Access {
    read: true,
    write: false,
};
/// While the table is over the limit, a command that notes N keys removes at most N plus this number of random keys.
const FORGOTTEN_AT_ONCE: usize = 100;

/// The reads that the server notes for a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Reads {
    /// No reads: the client does not track keys, or tracks prefixes.
    #[default]
    None,
    /// All reads.
    All,
    /// Only the reads after CLIENT CACHING YES.
    OptIn,
    /// All reads except reads after CLIENT CACHING NO.
    OptOut,
}

/// A client that gets reports of changes.
#[derive(Debug, Clone)]
pub(crate) struct Tracker {
    seat: Seat,
    /// The client's user. Its rules say which keys a report to the client `redirect` may name.
    user: Arc<User>,
    /// The client that gets the reports instead. `None`: this client gets them itself.
    pub redirect: Option<Seat>,
    /// True if the client `redirect` was gone when a report was due.
    pub broken: bool,
    /// True if the client's own changes are not reported to it.
    pub noloop: bool,
    /// The client's prefixes in mode BCAST. `None`: the client tracks keys.
    pub prefixes: Option<BTreeSet<Box<[u8]>>>,
}

/// A prefix of keys with the clients that track it.
#[derive(Debug, Default)]
struct Prefix {
    clients: BTreeSet<u64>,
    /// The keys changed since the previous report, each with the client of the newest change.
    changed: BTreeMap<Box<[u8]>, u64>,
}

/// All clients that get reports of changes, and the tracked keys and prefixes.
#[derive(Debug, Default)]
pub(crate) struct Tracking {
    clients: HashMap<u64, Tracker>,
    table: Table,
    prefixes: BTreeMap<Box<[u8]>, Prefix>,
    /// The newest epoch of the changes that are not yet reported for prefixes.
    epoch: Epoch,
}

/// The arguments of CLIENT TRACKING ON.
#[derive(Debug, Default)]
pub(crate) struct Wanted<'a> {
    /// The client that REDIRECT names.
    pub redirect: Option<Seat>,
    /// True if BCAST is given.
    pub broadcast: bool,
    /// The reads to note. They follow from OPTIN or OPTOUT, or from the lack of both.
    pub reads: Reads,
    /// True if NOLOOP is given.
    pub noloop: bool,
    /// The prefixes, one for each PREFIX.
    pub prefixes: Vec<&'a [u8]>,
}

impl Observers for Tracking {
    /// Returns whether no client tracks anything.
    fn is_empty(&self) -> bool {
        self.clients.is_empty()
    }
}

impl Tracking {
    /// Returns four numbers: clients that track, keys, pairs of a key and its reader, and prefixes.
    pub(crate) fn counts(&self) -> [usize; 4] {
        let (keys, items) = (self.table.keys(), self.table.items());
        [self.clients.len(), keys, items, self.prefixes.len()]
    }

    /// Begins to report changes to a client, or changes how they are reported. The wanted prefixes are added to
    /// the prefixes that the client already tracks.
    pub(crate) fn add(&mut self, session: &mut Session, wanted: &Wanted<'_>) {
        let seat = session.seat;
        session.reads = match wanted.reads {
            _ if wanted.broadcast => Reads::None,
            Reads::None => Reads::All,
            reads => reads,
        };
        let before = self.clients.remove(&seat.id);
        let mut prefixes = before.and_then(|tracker| tracker.prefixes);
        if wanted.broadcast {
            let all: &[&[u8]] = &[b""];
            let named = match wanted.prefixes.as_slice() {
                [] => all,
                named => named,
            };
            let own = prefixes.get_or_insert_default();
            for prefix in named {
                own.insert((*prefix).into());
                let known = self.prefixes.entry((*prefix).into()).or_default();
                known.clients.insert(seat.id);
            }
        }
        let tracker = Tracker {
            seat,
            user: Arc::clone(&session.user),
            redirect: wanted.redirect,
            broken: false,
            noloop: wanted.noloop,
            prefixes,
        };
        self.clients.insert(seat.id, tracker);
    }

    /// Ends all reports to a client.
    pub(crate) fn forget(&mut self, session: &mut Session) {
        (session.reads, session.caching) = (Reads::None, false);
        let Some(tracker) = self.clients.remove(&session.seat.id) else {
            return;
        };
        for name in tracker.prefixes.into_iter().flatten() {
            if let Some(prefix) = self.prefixes.get_mut(&name) {
                prefix.clients.remove(&session.seat.id);
                if prefix.clients.is_empty() {
                    self.prefixes.remove(&name);
                }
            }
        }
        if self.clients.is_empty() {
            self.table.clear();
        }
    }

    /// Gives a client, if it tracks, another user or its user's new version.
    pub(crate) fn renew(&mut self, id: u64, user: &Arc<User>) {
        if let Some(tracker) = self.clients.get_mut(&id) {
            tracker.user = Arc::clone(user);
        }
    }

    /// Notes a key's change for each client in mode BCAST that has named a prefix of the key.
    fn note_prefixes(&mut self, key: &[u8], writer: u64, epoch: Epoch) {
        let listening = self.prefixes.iter_mut();
        for (_, prefix) in listening.filter(|(prefix, _)| key.starts_with(prefix)) {
            prefix.changed.insert(key.into(), writer);
            self.epoch = self.epoch.max(epoch);
        }
    }
}

impl Session {
    /// Returns whether the keys that this client's next command reads are noted.
    #[inline]
    pub(crate) fn tracks_reads(&self) -> bool {
        match self.reads {
            Reads::None => false,
            Reads::All => true,
            Reads::OptIn => self.caching,
            Reads::OptOut => !self.caching,
        }
    }

    /// Ends the effect of CLIENT CACHING after the command that it applies to. CLIENT CACHING applies only to the next
    /// command, or to the next block of MULTI.
    #[inline]
    pub(crate) fn end_caching(&mut self, command: &Command) {
        if self.caching && self.block.is_none() && command.name != "client" {
            self.caching = false;
        }
    }
}

impl Common {
    /// Notes the keys that a command of a client that tracks reads has read. For a script, these are the keys that its
    /// caller names, as in Redis 7.0. The caller holds the latches of the keys' partitions. If the table then has more
    /// than `max` keys, some are removed; 0 means no limit.
    #[cold]
    pub(crate) fn note_keys(&self, seat: Seat, command: &Command, args: &Args<'_>, max: u64) {
        if command.flags & (flag::READ | flag::SCRIPTS) == 0 {
            return;
        }
        self.tracking.with(|tracking| {
            let Tracking { clients, table, .. } = tracking;
            let is_there = |seat: Seat| clients.contains_key(&seat.id);
            let mut noted = 0;
            for key in command.key_args(args) {
                table.add(key, seat, is_there);
                noted += 1;
            }
            let is_over = |table: &Table| max > 0 && perdura_base::num::to_u64(table.keys()) > max;
            for _ in 0..noted + FORGOTTEN_AT_ONCE {
                if !is_over(&tracking.table) {
                    return;
                }
                if let Some(key) = tracking.table.draw(fastrand::u64(..)) {
                    self.tell_readers(tracking, &key, Seat::NOBODY, Epoch(0));
                }
            }
        });
    }

    /// Reports a key's change to the clients that track the key. The change is durable with `epoch`. The caller holds
    /// the latch of the key's partition.
    #[inline]
    pub(crate) fn key_changed(&self, key: &[u8], writer: Seat, epoch: Epoch) {
        if self.tracking.is_in_use() {
            self.tracking.with(|tracking| {
                tracking.note_prefixes(key, writer.id, epoch);
                self.tell_readers(tracking, key, writer, epoch);
            });
        }
    }

    /// Informs a key's readers about a change.
    fn tell_readers(&self, tracking: &mut Tracking, key: &[u8], writer: Seat, epoch: Epoch) {
        let readers = tracking.table.take(key);
        if readers.is_empty() {
            return;
        }
        let post = Arc::new(Post::Changed {
            keys: Some(vec![key.into()]),
            is_broadcast: false,
        });
        for reader in readers {
            let tracker = tracking.clients.get(&reader.id);
            let hears = |tracker: &&Tracker| {
                let own = tracker.noloop && tracker.seat == writer;
                tracker.prefixes.is_none() && !own
            };
            if let Some(tracker) = tracker.filter(hears) {
                self.report(tracker, &post, epoch);
            }
        }
    }

    /// Gives a client, if it tracks, another user or its user's new version.
    pub(crate) fn renew_tracking(&self, id: u64, user: &Arc<User>) {
        if self.tracking.is_in_use() {
            self.tracking.with(|tracking| tracking.renew(id, user));
        }
    }

    /// Posts a report to a tracking client. With REDIRECT, posts it to the other client, without the keys that the
    /// tracking client may not use. The letter goes to its receiver's loop at once, so it comes before the replies to
    /// later requests of the receiver.
    fn report(&self, tracker: &Tracker, post: &Arc<Post>, epoch: Epoch) {
        let Some(other) = tracker.redirect else {
            return self.post(tracker.seat, post, epoch);
        };
        if let Some(keys) = heard_keys(&tracker.user, post) {
            let tracker = tracker.seat;
            let post = Arc::new(Post::Redirected { keys, tracker });
            self.post(other, &post, epoch);
        }
    }

    /// Sends every tracking client one report, because all keys are gone or have been replaced. Forgets all noted
    /// reads. The caller holds all latches.
    pub(crate) fn all_changed(&self, epoch: Epoch) {
        if !self.tracking.is_in_use() {
            return;
        }
        self.tracking.with(|tracking| {
            tracking.table.clear();
            let mut trackers: Vec<&Tracker> = tracking.clients.values().collect();
            trackers.sort_unstable_by_key(|tracker| tracker.seat.id);
            let post = Arc::new(Post::Changed {
                keys: None,
                is_broadcast: false,
            });
            for tracker in trackers {
                self.report(tracker, &post, epoch);
            }
        });
    }

    /// Sends each client in mode BCAST the keys that changed since the last call and begin with one of the client's
    /// prefixes. A loop calls this once in each round.
    pub(crate) fn tell_prefixes(&self) {
        if self.tracking.is_in_use() {
            self.tracking.with(|tracking| {
                if !tracking.prefixes.is_empty() {
                    self.tell_prefixes_of(tracking);
                }
            });
        }
    }

    fn tell_prefixes_of(&self, tracking: &mut Tracking) {
        let epoch = std::mem::take(&mut tracking.epoch);
        for prefix in tracking.prefixes.values_mut() {
            if prefix.changed.is_empty() {
                continue;
            }
            let changed = std::mem::take(&mut prefix.changed);
            for id in &prefix.clients {
                let Some(tracker) = tracking.clients.get(id) else {
                    continue;
                };
                let wanted = changed
                    .iter()
                    .filter(|(_, writer)| !tracker.noloop || *writer != id);
                let keys: Vec<Box<[u8]>> = wanted.map(|(key, _)| key.clone()).collect();
                if !keys.is_empty() {
                    let post = Post::Changed {
                        keys: Some(keys),
                        is_broadcast: true,
                    };
                    self.report(tracker, &Arc::new(post), epoch);
                }
            }
        }
    }
}

impl State {
    /// Notes the keys that a command has read, if its client tracks reads. The caller holds the latches of the keys'
    /// partitions.
    #[inline]
    pub(crate) fn note_reads(&self, session: &Session, command: &Command, args: &Args<'_>) {
        if session.tracks_reads() {
            let max = self.options.tracking_keys_max;
            self.common.note_keys(session.seat, command, args, max);
        }
    }

    /// Returns the tracking state of a client. `None`: the client does not track.
    pub(crate) fn tracker(&self, id: u64) -> Option<Tracker> {
        let tracking = &self.common.tracking;
        let used = tracking.is_in_use();
        used.then(|| tracking.with(|tracking| tracking.clients.get(&id).cloned()))?
    }

    /// Returns the id of the client that gets this client's reports. 0: there is no REDIRECT. -1: the client
    /// does not track.
    pub(crate) fn redirection(&self, id: u64) -> i64 {
        self.tracker(id).map_or(-1, |tracker| {
            let other = tracker.redirect.map_or(0, |seat| seat.id);
            i64::try_from(other).unwrap_or(i64::MAX)
        })
    }

    /// Ends all reports to a client.
    pub(crate) fn forget_tracking(&self, session: &mut Session) {
        if self.common.tracking.is_in_use() {
            self.common
                .tracking
                .with(|tracking| tracking.forget(session));
        }
    }

    /// Writes the invalidation that a letter reports to the tracking client. Keys that the client may not use are left
    /// out.
    pub(crate) fn write_changed(&self, session: &Session, letter: &Letter, out: &mut Out<'_>) {
        let id = session.seat.id;
        let tracking = &self.common.tracking;
        let still_tracks = || tracking.with(|tracking| tracking.clients.contains_key(&id));
        if let Some(keys) = heard_keys(&session.user, &letter.post)
            && still_tracks()
        {
            write_invalidation(session, keys.as_deref(), out);
        }
    }

    /// Handles a letter whose receiver is gone. If a REDIRECT named the receiver, informs the tracking client.
    pub(crate) fn return_letter(&self, letter: &Letter) {
        let Post::Redirected { tracker, .. } = &*letter.post else {
            return;
        };
        self.common.tracking.with(|tracking| {
            let tracker = tracking.clients.get_mut(&tracker.id);
            if let Some(tracker) = tracker.filter(|one| one.redirect == Some(letter.to)) {
                tracker.broken = true;
            }
        });
        let post = Arc::new(Post::RedirectGone { id: letter.to.id });
        self.common.post(*tracker, &post, letter.epoch);
    }
}

/// Returns the keys of a report that a tracking client with this user may use. `None`: there is no such key.
/// `Some(None)`: the report is about all keys.
fn heard_keys(user: &User, post: &Post) -> Option<Option<Vec<Box<[u8]>>>> {
    let Post::Changed { keys, is_broadcast } = post else {
        return None;
    };
    let Some(keys) = keys else {
        return Some(None);
    };
    let wanted = if *is_broadcast { READ } else { HAVE };
    let may_hear = |key: &[u8]| user.may_use(key, wanted) || armed(Flaw::HiddenNameTold);
    let heard = keys.iter().filter(|key| may_hear(key));
    let heard: Vec<Box<[u8]>> = heard.cloned().collect();
    (!heard.is_empty()).then_some(Some(heard))
}

/// Writes an invalidation for a client that speaks RESP3. A client that speaks RESP2 gets none without REDIRECT.
fn write_invalidation(session: &Session, keys: Option<&[Box<[u8]>]>, out: &mut Out<'_>) {
    if session.resp3 {
        out.push(2);
        out.bulk(b"invalidate");
        write_keys(keys, out);
    }
}

/// Writes an invalidation for the client that a REDIRECT names. If the client speaks RESP2, it gets the invalidation only
/// if it is subscribed.
pub(crate) fn write_redirected(session: &Session, keys: Option<&[Box<[u8]>]>, out: &mut Out<'_>) {
    if !session.resp3 && session.subscriptions.is_some() {
        out.push(3);
        out.bulk(b"message");
        out.bulk(CHANNEL);
        write_keys(keys, out);
    } else {
        write_invalidation(session, keys, out);
    }
}

fn write_keys(keys: Option<&[Box<[u8]>]>, out: &mut Out<'_>) {
    match keys {
        None => out.null(),
        Some(keys) => {
            out.array(keys.len());
            keys.iter().for_each(|key| out.bulk(key));
        }
    }
}

/// Writes the notice that the client of a REDIRECT is gone. Only a client that speaks RESP3 gets it.
pub(crate) fn write_gone(id: u64, out: &mut Out<'_>) {
    if out.resp3 {
        out.push(2);
        out.bulk(b"tracking-redir-broken");
        out.count(id);
    }
}
