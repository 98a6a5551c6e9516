//! Client-side caches: which clients are told that a key that they have read has changed.
//!
//! A client says CLIENT TRACKING ON. From then on the [`table`] notes the keys that its commands read,
//! and the next change of such a key is told once: the client reads it again if it wants to hear more.
//! A client in mode BCAST names prefixes instead: it is told of every change of a key that begins with
//! one, and nothing of it is noted.
//!
//! An *invalidation* is a message that nobody asked for. It carries the epoch of the write that it
//! tells of into the queue of its client's replies, so it leaves when that write is durable, as the
//! replies do from which others can learn of the write. One that only makes room in the table rests
//! on nothing.
//!
//! Access control filters invalidations when they are sent. A client hears of no key outside its user's
//! rules, and in mode BCAST only of keys that the user may read. Redis 7.0 sends all of them. With REDIRECT,
//! the rules of the client that tracks decide, not those of the receiver.
//!
//! What a block of MULTI has read is noted before its changes are told: its client is told of a key
//! that it has read and then written.

mod table;

use crate::acl::catalog::Access;
use crate::command::{Command, flag};
use crate::engine::Epoch;
use crate::pubsub::Seat;
use crate::resp::parse::Args;
use crate::resp::reply::Out;
use crate::session::Session;
use crate::state::State;
use perdura_base::flaw::{Flaw, armed};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use table::Table;

/// Where a client that speaks RESP2 is told, in a subscription.
const CHANNEL: &[u8] = b"__redis__:invalidate";
/// A client that has named a key hears of its changes if its rules cover the key, as with WATCH.
const HAVE: Access = Access {
    read: false,
    write: false,
};
/// A client that has named a prefix hears names of keys, so its user must be allowed to read them.
const READ: Access = Access {
    read: true,
    write: false,
};
/// So many keys are forgotten beside those that are noted, while the table is over its limit.
const FORGOTTEN_AT_ONCE: usize = 100;

/// Which of a client's reads are noted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Reads {
    /// None: it does not track keys, or tracks prefixes.
    #[default]
    None,
    /// All.
    All,
    /// Those behind CLIENT CACHING YES.
    OptIn,
    /// All but those behind CLIENT CACHING NO.
    OptOut,
}

/// A client that is told of changes.
#[derive(Debug)]
pub(crate) struct Tracker {
    seat: Seat,
    /// The client that is told in its place.
    pub redirect: Option<Seat>,
    /// Whether that client was gone when it was to be told.
    pub broken: bool,
    /// Whether changes of its own are not told.
    pub noloop: bool,
    /// Its prefixes, in mode BCAST.
    pub prefixes: Option<BTreeSet<Box<[u8]>>>,
}

/// A prefix of keys that somebody listens to.
#[derive(Debug, Default)]
struct Prefix {
    clients: BTreeSet<u64>,
    /// What has changed since it was told last, each with the client that changed it last.
    changed: BTreeMap<Box<[u8]>, u64>,
}

/// All clients that are told of changes, and of which.
#[derive(Debug, Default)]
pub(crate) struct Tracking {
    clients: HashMap<u64, Tracker>,
    table: Table,
    prefixes: BTreeMap<Box<[u8]>, Prefix>,
    /// The newest epoch of what is to be told of prefixes.
    epoch: Epoch,
}

/// What CLIENT TRACKING ON asks for.
#[derive(Debug, Default)]
pub(crate) struct Wanted<'a> {
    /// REDIRECT.
    pub redirect: Option<Seat>,
    /// BCAST.
    pub broadcast: bool,
    /// OPTIN, OPTOUT or neither.
    pub reads: Reads,
    /// NOLOOP.
    pub noloop: bool,
    /// PREFIX, as often as it was given.
    pub prefixes: Vec<&'a [u8]>,
}

impl Tracking {
    /// Whether no client is told of anything.
    pub(crate) fn is_empty(&self) -> bool {
        self.clients.is_empty()
    }

    /// Clients, keys, readers of keys, and prefixes.
    pub(crate) fn counts(&self) -> [usize; 4] {
        let (keys, items) = (self.table.keys(), self.table.items());
        [self.clients.len(), keys, items, self.prefixes.len()]
    }

    /// A client that is told of changes.
    pub(crate) fn get(&self, id: u64) -> Option<&Tracker> {
        self.clients.get(&id)
    }

    /// The client that is told in the place of another one; 0 if none is, -1 without tracking.
    pub(crate) fn redirection(&self, id: u64) -> i64 {
        let tracker = self.clients.get(&id);
        tracker.map_or(-1, |tracker| {
            let other = tracker.redirect.map_or(0, |seat| seat.id);
            i64::try_from(other).unwrap_or(i64::MAX)
        })
    }

    /// Has a client told of changes, in the way that it wants from now on. Its prefixes are added to
    /// those that it has.
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
            redirect: wanted.redirect,
            broken: false,
            noloop: wanted.noloop,
            prefixes,
        };
        self.clients.insert(seat.id, tracker);
    }

    /// Tells a client of nothing any more.
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

    /// Notes a change for those who listen to prefixes.
    fn note_prefixes(&mut self, key: &[u8], writer: u64, epoch: Epoch) {
        let listening = self.prefixes.iter_mut();
        for (_, prefix) in listening.filter(|(prefix, _)| key.starts_with(prefix)) {
            prefix.changed.insert(key.into(), writer);
            self.epoch = self.epoch.max(epoch);
        }
    }
}

impl Session {
    /// Whether the keys that its commands read now are noted.
    #[inline]
    pub(crate) fn tracks_reads(&self) -> bool {
        match self.reads {
            Reads::None => false,
            Reads::All => true,
            Reads::OptIn => self.caching,
            Reads::OptOut => !self.caching,
        }
    }

    /// A command has run: CLIENT CACHING is about the next one, or the next block of MULTI.
    #[inline]
    pub(crate) fn end_caching(&mut self, command: &Command) {
        if self.caching && self.block.is_none() && command.name != "client" {
            self.caching = false;
        }
    }
}

impl State {
    /// Notes the keys that a command has read, if its client wants to be told of their changes. Of a
    /// script, as in Redis 7.0, those are the keys that its caller names.
    #[inline]
    pub(crate) fn note_reads(&mut self, session: &Session, command: &Command, args: &Args<'_>) {
        let reads = command.flags & (flag::READ | flag::SCRIPTS) != 0;
        if session.tracks_reads() && reads {
            self.note_keys(session.seat, command, args);
        }
    }

    #[cold]
    fn note_keys(&mut self, seat: Seat, command: &Command, args: &Args<'_>) {
        let mut noted = 0;
        let (connections, running) = (&self.connections, self.running_seat());
        let is_there = |seat: Seat| {
            let connection = connections.get(seat.index);
            seat == running || connection.is_some_and(|other| other.session.seat == seat)
        };
        for key in command.key_args(args) {
            self.tracking.table.add(key, seat, is_there);
            noted += 1;
        }
        let max = self.options.tracking_keys_max;
        let is_over = |table: &Table| max > 0 && perdura_base::num::to_u64(table.keys()) > max;
        for _ in 0..noted + FORGOTTEN_AT_ONCE {
            if !is_over(&self.tracking.table) {
                return;
            }
            if let Some(key) = self.tracking.table.draw(fastrand::u64(..)) {
                self.tell_readers(&key, Seat::NOBODY, Epoch(0));
            }
        }
    }

    /// A key has changed, durably with `epoch`: those who track it are told.
    #[inline]
    pub(crate) fn key_changed(&mut self, key: &[u8], epoch: Epoch) {
        if !self.tracking.is_empty() {
            let writer = self.running_seat();
            self.tracking.note_prefixes(key, writer.id, epoch);
            self.tell_readers(key, writer, epoch);
        }
    }

    /// Tells the readers of a key that it is not what they have read.
    fn tell_readers(&mut self, key: &[u8], writer: Seat, epoch: Epoch) {
        for reader in self.tracking.table.take(key) {
            let tracker = self.tracking.clients.get(&reader.id);
            let hears = tracker.is_some_and(|tracker| {
                let own = tracker.noloop && tracker.seat == writer;
                tracker.prefixes.is_none() && !own && self.may_hear(tracker.seat, key, HAVE)
            });
            if hears {
                self.invalidate(reader.id, Some(&[key]), epoch);
            }
        }
    }

    /// All keys are gone, or others than they were: everybody is told once, and nobody has read
    /// anything.
    pub(crate) fn all_changed(&mut self, epoch: Epoch) {
        if self.tracking.is_empty() {
            return;
        }
        self.tracking.table.clear();
        let mut clients: Vec<u64> = self.tracking.clients.keys().copied().collect();
        clients.sort_unstable();
        for id in clients {
            self.invalidate(id, None, epoch);
        }
    }

    /// Tells those who listen to prefixes what has changed in this round of the loop.
    pub(crate) fn tell_prefixes(&mut self) {
        if self.tracking.prefixes.is_empty() {
            return;
        }
        let epoch = std::mem::take(&mut self.tracking.epoch);
        let mut told = Vec::new();
        for prefix in self.tracking.prefixes.values_mut() {
            if !prefix.changed.is_empty() {
                let clients: Vec<u64> = prefix.clients.iter().copied().collect();
                told.push((std::mem::take(&mut prefix.changed), clients));
            }
        }
        for (changed, clients) in told {
            for id in clients {
                let Some(tracker) = self.tracking.get(id) else {
                    continue;
                };
                let (seat, noloop) = (tracker.seat, tracker.noloop);
                let wanted = changed.iter().filter(|(key, writer)| {
                    (!noloop || **writer != id) && self.may_hear(seat, key, READ)
                });
                let keys: Vec<&[u8]> = wanted.map(|(key, _)| &**key).collect();
                if !keys.is_empty() {
                    self.invalidate(id, Some(&keys), epoch);
                }
            }
        }
    }

    /// Returns whether the rules of a client's user let it hear of a key. The client that runs hears
    /// only of what its own command has changed.
    fn may_hear(&self, seat: Seat, key: &[u8], wanted: Access) -> bool {
        let connection = self.connections.get(seat.index);
        let session = connection.map(|other| &other.session);
        let session = session.filter(|session| session.seat == seat);
        session.is_none_or(|session| session.user.may_use(key, wanted))
            || armed(Flaw::HiddenNameTold)
    }

    /// Whether a client is still connected.
    fn is_there(&self, seat: Seat) -> bool {
        let connection = self.connections.get(seat.index);
        let waits = connection.is_some_and(|other| other.session.seat == seat && !other.doomed);
        waits || self.running_seat() == seat
    }

    /// Sends one client that keys have changed, or all of them: to itself, or to the client that it
    /// names. One that speaks RESP2 can be told only if it listens to others' invalidations.
    fn invalidate(&mut self, id: u64, keys: Option<&[&[u8]]>, epoch: Epoch) {
        let Some(tracker) = self.tracking.clients.get(&id) else {
            return;
        };
        let (seat, redirect) = (tracker.seat, tracker.redirect);
        if let Some(gone) = redirect.filter(|other| !self.is_there(*other)) {
            if let Some(tracker) = self.tracking.clients.get_mut(&id) {
                tracker.broken = true;
            }
            return self.tell_broken(seat, gone, epoch);
        }
        let to = redirect.unwrap_or(seat);
        let listens = redirect.is_some() && self.listens(to);
        if !listens && !self.speaks_resp3(to) {
            return;
        }
        let write = |out: &mut Out<'_>| {
            if out.resp3 {
                out.push(2);
                out.bulk(b"invalidate");
            } else {
                out.push(3);
                out.bulk(b"message");
                out.bulk(CHANNEL);
            }
            match keys {
                None => out.null(),
                Some(keys) => {
                    out.array(keys.len());
                    keys.iter().for_each(|key| out.bulk(key));
                }
            }
        };
        self.append(to, write, epoch);
    }

    /// Tells a client that the one that was to be told in its place is gone.
    fn tell_broken(&mut self, seat: Seat, gone: Seat, epoch: Epoch) {
        if self.speaks_resp3(seat) {
            let write = |out: &mut Out<'_>| {
                out.push(2);
                out.bulk(b"tracking-redir-broken");
                out.count(gone.id);
            };
            self.append(seat, write, epoch);
        }
    }

    fn listens(&self, seat: Seat) -> bool {
        let session = self.connections.get(seat.index).map(|other| &other.session);
        session.is_some_and(|session| session.seat == seat && session.subscriptions.is_some())
    }

    fn speaks_resp3(&self, seat: Seat) -> bool {
        if self.running_seat() == seat {
            return self.running_resp3();
        }
        let session = self.connections.get(seat.index).map(|other| &other.session);
        session.is_some_and(|session| session.seat == seat && session.resp3)
    }
}
