//! Clients that wait for a key, as BLPOP does, in order of arrival and with deadlines.
//!
//! A command that finds nothing ends with a [`Wait`], and its client is stored here with a copy of the request. A
//! transaction that changes one of the command's keys serves the clients that wait for the key, in order of arrival,
//! before it commits ([`crate::command::data::serving`]). The repeated request names only that key. So one function
//! serves a client at the first try and at later tries, and no other client can take what a waiting client gets.
//!
//! Some clients stop waiting when their key is removed or its type changes ([`Wait::gone`]).
//!
//! # Claims
//! A transaction claims a client before it runs the client's command. Until the claim ends, no other transaction serves
//! the client, and neither its deadline nor CLIENT UNBLOCK ends its wait. A claim ends when the transaction commits. It is
//! returned when the transaction is undone, or when the command finds nothing.
//!
//! Invariant: `keys` lists each client in `clients` under each of the client's keys, and no other clients.

use crate::acl::User;
use crate::command::Command;
use crate::engine::{Epoch, Shape};
use crate::part::Observers;
use crate::pubsub::Seat;
use crate::resp::parse::{Args, OwnedArgs};
use crate::session::Session;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// The reply of a command that found nothing and may not wait, because it is in a MULTI block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Nothing {
    /// A null.
    Null,
    /// A null array.
    NullArray,
}

/// The condition that a command waits for.
#[derive(Debug, Clone)]
pub(crate) struct Wait {
    /// The type of value that a key must hold before the command is tried again.
    pub shape: Shape,
    /// The range of the arguments that are keys.
    pub keys: Range<usize>,
    /// The index of the argument with the number of keys. `None`: the command has no number of keys.
    pub count: Option<usize>,
    /// The arguments that belong to the keys, one for each key, such as the ids of XREAD. A repeated request names
    /// one key, followed by that key's argument. Empty if the command has no such arguments.
    pub paired: Vec<Box<[u8]>>,
    /// The longest time to wait. `None`: there is no limit.
    pub timeout: Option<Duration>,
    /// The reply if the command may not wait, because it is in a MULTI block.
    pub nothing: Nothing,
    /// The error that ends the waiting when one of the keys no longer holds a value of `shape`. `None`: the
    /// client continues to wait.
    pub gone: Option<&'static str>,
}

/// Reads the time that a blocking command may wait: seconds, perhaps with a fraction. `None`: the time is
/// 0, which means no limit.
pub(crate) fn parse_timeout(arg: &[u8]) -> Result<Option<Duration>, &'static str> {
    const NOT_FLOAT: &str = "ERR timeout is not a float or out of range";
    const NEGATIVE: &str = "ERR timeout is negative";
    let text = std::str::from_utf8(arg).map_err(|_| NOT_FLOAT)?;
    let seconds: f64 = text.parse().map_err(|_| NOT_FLOAT)?;
    if seconds.is_nan() {
        return Err(NOT_FLOAT);
    }
    if seconds < 0.0 {
        return Err(NEGATIVE);
    }
    // Redis counts milliseconds in 63 bits, and reports a greater time as negative.
    let ms = (seconds * 1000.0).ceil() / 1000.0;
    match Duration::try_from_secs_f64(ms) {
        Ok(wait) if wait.as_millis() > u128::from(u64::MAX / 4) => Err(NEGATIVE),
        Ok(wait) if wait.is_zero() => Ok(None),
        Ok(wait) => Ok(Some(wait)),
        Err(_) => Err(NEGATIVE),
    }
}

/// A client with a command that found nothing.
#[derive(Debug)]
pub(crate) struct Asking {
    /// The client.
    pub seat: Seat,
    /// The client's user.
    pub user: Arc<User>,
    /// True if the client speaks RESP3.
    pub resp3: bool,
    /// The database of the client's keys.
    pub database: u8,
    /// The client's command.
    pub command: &'static Command,
    /// The epoch that must be durable before a reply says that the keys are empty.
    pub epoch: Epoch,
}

impl Asking {
    /// Returns the client of a session, whose command has found nothing. `epoch` is the epoch that a reply about the
    /// empty keys depends on.
    pub(crate) fn of(session: &Session, command: &'static Command, epoch: Epoch) -> Asking {
        Asking {
            seat: session.seat,
            user: Arc::clone(&session.user),
            resp3: session.resp3,
            database: session.database,
            command,
            epoch,
        }
    }
}

/// A client that waits.
#[derive(Debug)]
pub(crate) struct Waiter {
    /// The client and its command.
    pub asking: Asking,
    wait: Wait,
    args: OwnedArgs,
    ticket: u64,
    /// True while a transaction serves the client. No other thread may take it.
    is_claimed: bool,
    /// True if another transaction has found the client claimed. If the claim is returned, the keys are tried again.
    was_missed: bool,
    /// True if the client has left while a transaction served it. It is removed when the claim is returned.
    has_left: bool,
}

impl Waiter {
    /// Returns the bytes of the arguments of the client's request.
    pub(crate) fn argument_bytes(&self) -> usize {
        self.args.args().from(0).map(<[u8]>::len).sum()
    }

    /// Returns the request with `key` as its only key.
    fn narrowed(&self, key: &[u8]) -> OwnedArgs {
        let (args, keys) = (self.args.args(), &self.wait.keys);
        let paired = keys.start + 1..keys.end + self.wait.paired.len();
        let mut narrowed = OwnedArgs::default();
        for at in (0..args.len()).filter(|at| !paired.contains(at)) {
            if at == keys.start {
                narrowed.push(key);
                let place = self.keys().position(|other| other == key);
                if let Some(paired) = place.and_then(|place| self.wait.paired.get(place)) {
                    narrowed.push(paired);
                }
            } else if self.wait.count == Some(at) {
                narrowed.push(b"1");
            } else {
                narrowed.push(args.at(at));
            }
        }
        narrowed
    }

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        let args = self.args.args();
        self.wait.keys.clone().map(move |at| args.at(at))
    }

    /// Returns the client's keys, with their database.
    fn places(&self) -> Vec<(u8, Box<[u8]>)> {
        let database = self.asking.database;
        self.keys().map(|key| (database, key.into())).collect()
    }
}

/// A client that a transaction has claimed, with what the transaction needs to serve it.
#[derive(Debug)]
pub(crate) struct Claimed {
    /// The client.
    pub seat: Seat,
    /// The client's place in the order of arrival.
    pub ticket: u64,
    /// The client's user.
    pub user: Arc<User>,
    /// True if the client speaks RESP3.
    pub resp3: bool,
    /// The client's command.
    pub command: &'static Command,
    /// The request with the ready key as its only key.
    pub args: OwnedArgs,
    /// The error that ends the waiting, if the key no longer holds a value of the client's shape.
    pub gone: Option<&'static str>,
}

/// The clients that wait for one key, in order of arrival.
#[derive(Debug, Default)]
struct Queue {
    all: BTreeMap<u64, u64>,
    /// The clients among `all` that stop waiting when the key is gone ([`Wait::gone`]).
    ending: BTreeMap<u64, u64>,
}

/// All clients that wait for a key.
#[derive(Debug, Default)]
pub(crate) struct Blocking {
    clients: HashMap<u64, Waiter>,
    keys: HashMap<u8, HashMap<Box<[u8]>, Queue>>,
    tickets: u64,
    /// The number of clients with [`Wait::gone`] set.
    ending: usize,
}

impl Observers for Blocking {
    /// Returns whether no client waits.
    fn is_empty(&self) -> bool {
        self.clients.is_empty()
    }
}

impl Blocking {
    /// Returns the number of clients that wait.
    pub(crate) fn count(&self) -> usize {
        self.clients.len()
    }

    /// Returns a client that waits.
    pub(crate) fn get(&self, id: u64) -> Option<&Waiter> {
        self.clients.get(&id)
    }

    /// Adds a client that waits. It comes after all clients that are already waiting. The caller holds the latches of
    /// the keys' partitions, so no change of a key comes between the command's lookup and this call.
    pub(crate) fn add(&mut self, asking: Asking, wait: Wait, args: &Args<'_>) {
        self.tickets += 1;
        let (id, database) = (asking.seat.id, asking.database);
        let waiter = Waiter {
            asking,
            wait,
            args: OwnedArgs::copy(args),
            ticket: self.tickets,
            is_claimed: false,
            was_missed: false,
            has_left: false,
        };
        let ends = waiter.wait.gone.is_some();
        self.ending += usize::from(ends);
        let keys = self.keys.entry(database).or_default();
        for key in waiter.keys() {
            if !keys.contains_key(key) {
                keys.insert(key.into(), Queue::default());
            }
            if let Some(queue) = keys.get_mut(key) {
                queue.all.insert(waiter.ticket, id);
                if ends {
                    queue.ending.insert(waiter.ticket, id);
                }
            }
        }
        debug_assert!(!waiter.wait.keys.is_empty(), "a client waits for a key");
        let before = self.clients.insert(id, waiter);
        debug_assert!(before.is_none(), "a client waits once");
    }

    /// Removes and returns a client that is not claimed. `None`: it was not waiting, or a transaction serves it.
    pub(crate) fn take(&mut self, id: u64) -> Option<Waiter> {
        let claimed = self.clients.get(&id)?.is_claimed;
        (!claimed).then(|| self.remove(id))?
    }

    /// Ends the wait of a client that leaves. If a transaction serves the client, no other will.
    pub(crate) fn leave(&mut self, id: u64) {
        match self.clients.get_mut(&id) {
            Some(waiter) if waiter.is_claimed => waiter.has_left = true,
            _ => drop(self.remove(id)),
        }
    }

    /// Returns whether a transaction serves this client.
    pub(crate) fn is_claimed(&self, id: u64) -> bool {
        self.clients
            .get(&id)
            .is_some_and(|waiter| waiter.is_claimed)
    }

    /// Removes and returns a client, even if a transaction serves it.
    fn remove(&mut self, id: u64) -> Option<Waiter> {
        let waiter = self.clients.remove(&id)?;
        self.ending -= usize::from(waiter.wait.gone.is_some());
        let database = waiter.asking.database;
        if let Some(keys) = self.keys.get_mut(&database) {
            for key in waiter.keys() {
                let emptied = keys.get_mut(key).is_some_and(|queue| {
                    queue.all.remove(&waiter.ticket);
                    queue.ending.remove(&waiter.ticket);
                    queue.all.is_empty()
                });
                if emptied {
                    keys.remove(key);
                }
            }
            if keys.is_empty() {
                self.keys.remove(&database);
            }
        }
        debug_assert!(
            self.ending <= self.clients.len(),
            "those that end are among those that wait"
        );
        debug_assert!(
            !self.clients.is_empty() || self.keys.is_empty(),
            "a key that is noted is waited for"
        );
        Some(waiter)
    }

    /// Returns whether any client waits for a key.
    pub(crate) fn waits_for(&self, database: u8, key: &[u8]) -> bool {
        let keys = self.keys.get(&database);
        keys.is_some_and(|keys| keys.contains_key(key))
    }

    /// Returns the keys of one database for which clients wait.
    pub(crate) fn keys_of(&self, database: u8) -> Vec<Box<[u8]>> {
        let keys = self.keys.get(&database);
        keys.into_iter()
            .flat_map(|keys| keys.keys().cloned())
            .collect()
    }

    /// Returns all keys for which clients wait, in the order in which their clients came.
    pub(crate) fn places(&self) -> Vec<(u8, Box<[u8]>)> {
        let mut waiters: Vec<&Waiter> = self.clients.values().collect();
        waiters.sort_unstable_by_key(|waiter| waiter.ticket);
        waiters.into_iter().flat_map(Waiter::places).collect()
    }

    /// Claims the first client that waits for a key with a value of this shape, among those with a ticket above `after`.
    pub(crate) fn claim(&mut self, place: Place<'_>, shape: Shape, after: u64) -> Option<Claimed> {
        let suits = |waiter: &Waiter| waiter.wait.shape == shape;
        self.claim_first(place, |queue| &queue.all, after, suits)
    }

    /// Claims the first client that stops waiting because the key has no value of the client's shape. `held` is the
    /// shape of the key's value.
    pub(crate) fn claim_ending(
        &mut self,
        place: Place<'_>,
        held: Option<Shape>,
    ) -> Option<Claimed> {
        let suits = |waiter: &Waiter| Some(waiter.wait.shape) != held;
        self.claim_first(place, |queue| &queue.ending, 0, suits)
    }

    fn claim_first(
        &mut self,
        place: Place<'_>,
        of: impl Fn(&Queue) -> &BTreeMap<u64, u64>,
        mut after: u64,
        suits: impl Fn(&Waiter) -> bool,
    ) -> Option<Claimed> {
        let queue = self.keys.get(&place.database)?.get(place.key)?;
        while let Some((ticket, id)) = of(queue).range(after + 1..).next() {
            after = *ticket;
            let Some(waiter) = self.clients.get_mut(id).filter(|waiter| suits(waiter)) else {
                continue;
            };
            if waiter.is_claimed {
                waiter.was_missed = true;
                continue;
            }
            waiter.is_claimed = true;
            return Some(Claimed {
                seat: waiter.asking.seat,
                ticket: waiter.ticket,
                user: Arc::clone(&waiter.asking.user),
                resp3: waiter.asking.resp3,
                command: waiter.asking.command,
                args: waiter.narrowed(place.key),
                gone: waiter.wait.gone,
            });
        }
        None
    }

    /// Returns a claim: the client waits on, in its old place, unless it has left. Returns the client's keys if they must be tried again.
    pub(crate) fn return_claim(&mut self, id: u64) -> Vec<(u8, Box<[u8]>)> {
        let Some(waiter) = self.clients.get_mut(&id) else {
            return Vec::new();
        };
        debug_assert!(waiter.is_claimed, "only what was claimed is returned");
        if waiter.has_left {
            self.remove(id);
            return Vec::new();
        }
        waiter.is_claimed = false;
        match std::mem::take(&mut waiter.was_missed) {
            true => waiter.places(),
            false => Vec::new(),
        }
    }

    /// Removes a client that a transaction has served. Returns the epoch that a reply about empty keys depends on.
    pub(crate) fn end_claim(&mut self, id: u64) -> Epoch {
        debug_assert!(self.is_claimed(id), "only a claimed client is served");
        let waiter = self.remove(id);
        waiter.map_or(Epoch(0), |waiter| waiter.asking.epoch)
    }

    /// Gives a client, if it waits, its user's new version.
    pub(crate) fn renew(&mut self, id: u64, user: &Arc<User>) {
        if let Some(waiter) = self.clients.get_mut(&id) {
            waiter.asking.user = Arc::clone(user);
        }
    }

    /// Returns whether any client stops waiting when its key is gone.
    pub(crate) fn any_ends(&self) -> bool {
        self.ending > 0
    }
}

/// A key and its database.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place<'a> {
    /// The database.
    pub database: u8,
    /// The key.
    pub key: &'a [u8],
}

/// Clients that wait, for the tests.
#[cfg(test)]
pub(crate) mod testing {
    use super::*;
    use crate::command::table::all;
    use crate::resp::parse::{Limits, Parser};

    /// Returns a wait without a deadline for lists at the keys at these arguments.
    pub(super) fn wait(keys: Range<usize>) -> Wait {
        Wait {
            shape: Shape::List,
            keys,
            count: None,
            paired: Vec::new(),
            timeout: None,
            nothing: Nothing::NullArray,
            gone: None,
        }
    }

    /// Adds a client that waits for lists at the keys at these arguments of its request.
    #[cfg(feature = "shuttle")]
    pub(crate) fn add(blocking: &mut Blocking, seat: Seat, line: &[u8], keys: Range<usize>) {
        add_with(blocking, seat, line, wait(keys));
    }

    /// Adds a client that waits.
    pub(super) fn add_with(blocking: &mut Blocking, seat: Seat, line: &[u8], wait: Wait) {
        let mut parser = Parser::new();
        parser.parse(line, &Limits::STRANGER, 1).expect("a request");
        let asking = Asking {
            seat,
            user: Arc::new(User::new(b"user", true)),
            resp3: false,
            database: 0,
            command: all().next().expect("a command"),
            epoch: Epoch(seat.id),
        };
        blocking.add(asking, wait, &parser.args(line));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(keys: Range<usize>, timeout: Option<Duration>) -> Wait {
        Wait {
            timeout,
            ..testing::wait(keys)
        }
    }

    fn add(blocking: &mut Blocking, id: u64, line: &[u8], wait: Wait) {
        let seat = Seat { id, ..Seat::NOBODY };
        testing::add_with(blocking, seat, line, wait);
    }

    fn place(key: &[u8]) -> Place<'_> {
        Place { database: 0, key }
    }

    fn claim(blocking: &mut Blocking, key: &[u8], after: u64) -> Option<Claimed> {
        blocking.claim(place(key), Shape::List, after)
    }

    #[test]
    fn clients_are_claimed_in_the_order_in_which_they_came() {
        let mut blocking = Blocking::default();
        for id in [7, 3, 5] {
            add(&mut blocking, id, b"x a b 0\n", wait(1..3, None));
        }
        assert!(!blocking.waits_for(0, b"c") && !blocking.waits_for(1, b"a"));
        assert!(blocking.claim(place(b"a"), Shape::Set, 0).is_none());
        let (mut order, mut after) = (Vec::new(), 0);
        while let Some(claim) = claim(&mut blocking, b"a", after) {
            order.push(claim.seat.id);
            after = claim.ticket;
        }
        assert_eq!(order, [7, 3, 5]);
        assert!(blocking.return_claim(7).is_empty(), "nobody missed it");
        let next = claim(&mut blocking, b"b", 0).map(|claim| claim.seat.id);
        assert_eq!(next, Some(7), "it has kept its place");
        let ended = [7, 3, 5].map(|id| blocking.end_claim(id).0);
        assert_eq!(ended, [7, 3, 5]);
        assert!(blocking.is_empty() && blocking.keys.is_empty());
    }

    #[test]
    fn a_claimed_client_is_nobody_elses_and_what_missed_it_is_tried_again() {
        let mut blocking = Blocking::default();
        add(&mut blocking, 1, b"x a b 0\n", wait(1..3, None));
        assert!(claim(&mut blocking, b"a", 0).is_some());
        assert!(blocking.is_claimed(1) && blocking.take(1).is_none());
        assert!(claim(&mut blocking, b"b", 0).is_none());
        let again = blocking.return_claim(1);
        assert_eq!(again, [(0, b"a"[..].into()), (0, b"b"[..].into())]);
        assert!(claim(&mut blocking, b"b", 0).is_some());
        assert!(blocking.return_claim(1).is_empty());
        assert!(claim(&mut blocking, b"a", 0).is_some());
        blocking.leave(1);
        assert!(blocking.is_claimed(1), "its transaction has not ended");
        blocking.return_claim(1);
        assert!(blocking.is_empty(), "a client that has left is not served");
    }

    #[test]
    fn a_client_ends_with_its_key_only_if_it_asked_for_that() {
        let mut blocking = Blocking::default();
        let ends = Wait {
            shape: Shape::Stream,
            gone: Some("NOGROUP"),
            ..wait(1..2, None)
        };
        add(&mut blocking, 1, b"x a 0\n", wait(1..2, None));
        add(&mut blocking, 2, b"x a 0\n", ends);
        assert!(blocking.any_ends());
        let there = blocking.claim_ending(place(b"a"), Some(Shape::Stream));
        assert!(there.is_none());
        let gone = blocking.claim_ending(place(b"a"), None).expect("it ends");
        assert_eq!((gone.seat.id, gone.gone), (2, Some("NOGROUP")));
        blocking.end_claim(2);
        assert!(!blocking.any_ends() && blocking.count() == 1);
    }

    #[test]
    fn a_request_is_narrowed_to_the_key_that_is_ready() {
        let mut blocking = Blocking::default();
        let counted = Wait {
            count: Some(2),
            ..wait(3..5, None)
        };
        add(&mut blocking, 1, b"blmpop 0 2 a b left\n", counted);
        let claim = claim(&mut blocking, b"b", 0).expect("it waits");
        let words: Vec<&[u8]> = claim.args.args().from(0).collect();
        assert_eq!(words, [&b"blmpop"[..], b"0", b"1", b"b", b"left"]);
    }

    #[test]
    fn a_request_is_narrowed_to_the_key_with_what_belongs_to_it() {
        let mut blocking = Blocking::default();
        let paired = Wait {
            paired: vec![b"5-0"[..].into(), b"7-1"[..].into()],
            ..wait(4..6, None)
        };
        let line = b"xread block 0 streams a b $ 7-1\n";
        add(&mut blocking, 1, line, paired);
        for (key, id) in [(&b"a"[..], &b"5-0"[..]), (b"b", b"7-1")] {
            let claim = claim(&mut blocking, key, 0).expect("it waits");
            let words: Vec<&[u8]> = claim.args.args().from(0).collect();
            assert_eq!(words, [&b"xread"[..], b"block", b"0", b"streams", key, id]);
            blocking.return_claim(1);
        }
    }

    #[test]
    fn timeouts_are_seconds_with_a_fraction() {
        assert_eq!(parse_timeout(b"0"), Ok(None));
        assert_eq!(parse_timeout(b"0.0001"), Ok(Some(Duration::from_millis(1))));
        assert_eq!(parse_timeout(b"1.5"), Ok(Some(Duration::from_millis(1500))));
        assert_eq!(parse_timeout(b"-1"), Err("ERR timeout is negative"));
        assert_eq!(parse_timeout(b"1e30"), Err("ERR timeout is negative"));
        assert_eq!(parse_timeout(b"inf"), Err("ERR timeout is negative"));
        for wrong in [&b"x"[..], b"", b"nan", b"1 "] {
            let text = "ERR timeout is not a float or out of range";
            assert_eq!(parse_timeout(wrong), Err(text));
        }
    }
}
