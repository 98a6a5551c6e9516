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
//! Access control filters invalidations when they are sent. A client gets no report of a key outside the user's rules.
//! In mode BCAST, a client gets reports only of keys that the user may read. Redis 7.0 sends all invalidations. With
//! REDIRECT, the rules of the tracking client count, and the receiver's rules do not.
//!
//! The keys that a block of MULTI has read are noted before the changes of the block are reported. So the client gets a
//! report of a key that the block has read and then written.

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
#[derive(Debug)]
pub(crate) struct Tracker {
    seat: Seat,
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

impl Tracking {
    /// Returns whether no client tracks anything.
    pub(crate) fn is_empty(&self) -> bool {
        self.clients.is_empty()
    }

    /// Returns four numbers: clients that track, keys, pairs of a key and its reader, and prefixes.
    pub(crate) fn counts(&self) -> [usize; 4] {
        let (keys, items) = (self.table.keys(), self.table.items());
        [self.clients.len(), keys, items, self.prefixes.len()]
    }

    /// Returns the tracking state of a client.
    pub(crate) fn get(&self, id: u64) -> Option<&Tracker> {
        self.clients.get(&id)
    }

    /// Returns the id of the client that gets this client's reports. 0: there is no REDIRECT. -1: the client
    /// does not track.
    pub(crate) fn redirection(&self, id: u64) -> i64 {
        let tracker = self.clients.get(&id);
        tracker.map_or(-1, |tracker| {
            let other = tracker.redirect.map_or(0, |seat| seat.id);
            i64::try_from(other).unwrap_or(i64::MAX)
        })
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

impl State {
    /// Notes the keys that a command has read, if its client tracks reads. For a script, these are the keys
    /// that its caller names, as in Redis 7.0.
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

    /// Reports a key's change to the clients that track the key. The change is durable with `epoch`.
    #[inline]
    pub(crate) fn key_changed(&mut self, key: &[u8], epoch: Epoch) {
        if !self.tracking.is_empty() {
            let writer = self.running_seat();
            self.tracking.note_prefixes(key, writer.id, epoch);
            self.tell_readers(key, writer, epoch);
        }
    }

    /// Informs a key's readers about a change.
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

    /// Sends every tracking client one report, because all keys are gone or have been replaced. Forgets all noted
    /// reads.
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

    /// Sends each client in mode BCAST the keys that changed in this round of the loop and begin with one of the
    /// client's prefixes.
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

    /// Returns whether the rules of a client's user allow the client to get reports of a key. Returns true for the
    /// running client, because this client gets only reports of changes by the running command.
    fn may_hear(&self, seat: Seat, key: &[u8], wanted: Access) -> bool {
        let connection = self.connections.get(seat.index);
        let session = connection.map(|other| &other.session);
        let session = session.filter(|session| session.seat == seat);
        session.is_none_or(|session| session.user.may_use(key, wanted))
            || armed(Flaw::HiddenNameTold)
    }

    /// Returns whether a client is still connected.
    fn is_there(&self, seat: Seat) -> bool {
        let connection = self.connections.get(seat.index);
        let waits = connection.is_some_and(|other| other.session.seat == seat && !other.doomed);
        waits || self.running_seat() == seat
    }

    /// Sends an invalidation of `keys`, or of all keys if `keys` is `None`, for the tracking client `id`. The receiver
    /// is the tracking client or the client of its REDIRECT. A receiver that speaks RESP2 gets the invalidation only
    /// through a REDIRECT, and only if it is subscribed.
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

    /// Informs a client that the receiver of its invalidations is gone.
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
