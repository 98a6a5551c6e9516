//! Clients that wait for a key, as BLPOP does, in order of arrival and with deadlines.
//!
//! A command that finds nothing ends with a [`Wait`], and its client is stored here with a copy of the request. A
//! change of one of the command's keys makes this key *ready*. When the command has been answered, the clients that
//! wait for the ready key are tried again in order of arrival. The repeated request names only that key
//! (`command::wait`). So one function serves a client at the first try and at later tries. Each later try is a separate
//! transaction, and its reply waits for the disk like any other.
//!
//! A key also becomes ready when it is removed or its type changes, because some clients then stop waiting
//! ([`Wait::gone`]).
//!
//! Invariant: `keys` lists each client in `clients` under each of the client's keys. `deadlines` lists each client that
//! has a deadline. Neither lists other clients.

use crate::command::Command;
use crate::deadlines::Deadlines;
use crate::engine::{Epoch, Shape};
use crate::pubsub::Seat;
use crate::resp::parse::{Args, OwnedArgs};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::ops::Range;
use std::time::{Duration, Instant};

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
    /// The database of the client's keys.
    pub database: u8,
    /// The client's command.
    pub command: &'static Command,
    /// The epoch that must be durable before a reply says that the keys are empty.
    pub epoch: Epoch,
}

/// A client that waits.
#[derive(Debug)]
pub(crate) struct Waiter {
    /// The client.
    pub seat: Seat,
    /// The database of the client's keys.
    pub database: u8,
    /// The client's command.
    pub command: &'static Command,
    /// The epoch that must be durable before a reply says that the keys are empty.
    pub epoch: Epoch,
    /// The condition that the client waits for.
    pub wait: Wait,
    args: OwnedArgs,
    ticket: u64,
    deadline: Option<Instant>,
}

impl Waiter {
    /// Returns the bytes of the arguments of the client's request.
    pub(crate) fn argument_bytes(&self) -> usize {
        self.args.args().from(0).map(<[u8]>::len).sum()
    }

    /// Returns the request with `key` as its only key.
    pub(crate) fn narrowed(&self, key: &[u8]) -> OwnedArgs {
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
    deadlines: Deadlines,
    ready: VecDeque<(u8, Box<[u8]>)>,
    /// The keys of `ready`, as a set.
    noted: HashSet<(u8, Box<[u8]>)>,
    tickets: u64,
    /// The number of clients with [`Wait::gone`] set.
    ending: usize,
}

impl Blocking {
    /// Returns whether no client waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.clients.is_empty()
    }

    /// Returns the number of clients that wait.
    pub(crate) fn count(&self) -> usize {
        self.clients.len()
    }

    /// Returns the number of waiting clients that have a deadline.
    pub(crate) fn timeouts(&self) -> usize {
        self.deadlines.count()
    }

    /// Returns whether this client waits.
    pub(crate) fn contains(&self, id: u64) -> bool {
        self.clients.contains_key(&id)
    }

    /// Returns a client that waits.
    pub(crate) fn get(&self, id: u64) -> Option<&Waiter> {
        self.clients.get(&id)
    }

    /// Adds a client that waits. It comes after all clients that are already waiting.
    pub(crate) fn add(&mut self, asking: Asking, wait: Wait, args: &Args<'_>) {
        let Asking {
            seat,
            database,
            command,
            epoch,
        } = asking;
        self.tickets += 1;
        let deadline = wait.timeout.and_then(|t| Instant::now().checked_add(t));
        self.put_back(Waiter {
            seat,
            database,
            command,
            epoch,
            wait,
            args: OwnedArgs::copy(args),
            ticket: self.tickets,
            deadline,
        });
    }

    /// Makes a client wait again, in its old place.
    pub(crate) fn put_back(&mut self, waiter: Waiter) {
        let id = waiter.seat.id;
        let ends = waiter.wait.gone.is_some();
        self.ending += usize::from(ends);
        let keys = self.keys.entry(waiter.database).or_default();
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
        self.deadlines.add(waiter.deadline, id);
        debug_assert!(!waiter.wait.keys.is_empty(), "a client waits for a key");
        debug_assert!(waiter.ticket <= self.tickets, "tickets are given in turn");
        let before = self.clients.insert(id, waiter);
        debug_assert!(before.is_none(), "a client waits once");
    }

    /// Removes and returns a client. `None`: it was not waiting.
    pub(crate) fn take(&mut self, id: u64) -> Option<Waiter> {
        let waiter = self.clients.remove(&id)?;
        self.ending -= usize::from(waiter.wait.gone.is_some());
        if let Some(keys) = self.keys.get_mut(&waiter.database) {
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
                self.keys.remove(&waiter.database);
            }
        }
        self.deadlines.remove(waiter.deadline, id);
        debug_assert!(
            self.ending <= self.clients.len(),
            "those that end are among those that wait"
        );
        debug_assert!(
            self.deadlines.count() <= self.clients.len(),
            "only who waits has a deadline"
        );
        debug_assert!(
            !self.clients.is_empty() || self.keys.is_empty(),
            "a key that is noted is waited for"
        );
        Some(waiter)
    }

    /// Notes that a key has changed. The clients that wait for it will be tried again.
    pub(crate) fn touch(&mut self, database: u8, key: &[u8]) {
        let waited = self
            .keys
            .get(&database)
            .is_some_and(|k| k.contains_key(key));
        if waited && self.noted.insert((database, key.into())) {
            self.ready.push_back((database, key.into()));
        }
        debug_assert_eq!(self.ready.len(), self.noted.len(), "a key is ready once");
    }

    /// Returns the keys of one database for which clients wait.
    pub(crate) fn keys_of(&self, database: u8) -> impl Iterator<Item = &[u8]> {
        let keys = self.keys.get(&database);
        keys.into_iter()
            .flat_map(|keys| keys.keys())
            .map(AsRef::as_ref)
    }

    /// Removes and returns the next key that is ready.
    #[inline]
    pub(crate) fn next_ready(&mut self) -> Option<(u8, Box<[u8]>)> {
        let next = self.ready.pop_front()?;
        let was_noted = self.noted.remove(&next);
        debug_assert!(was_noted, "a key is ready once");
        Some(next)
    }

    /// Returns the first client that waits for a key and has a ticket above `after`: (ticket, id). Tickets number the
    /// clients in order of arrival.
    pub(crate) fn next_waiter(&self, database: u8, key: &[u8], after: u64) -> Option<(u64, u64)> {
        let queue = self.keys.get(&database)?.get(key)?;
        let (ticket, id) = queue.all.range(after + 1..).next()?;
        Some((*ticket, *id))
    }

    /// Returns whether any client stops waiting when its key is gone.
    pub(crate) fn any_ends(&self) -> bool {
        self.ending > 0
    }

    /// Returns the id of the first client that stops waiting when this key is gone.
    pub(crate) fn next_ending(&self, database: u8, key: &[u8]) -> Option<u64> {
        let queue = self.keys.get(&database)?.get(key)?;
        queue.ending.values().next().copied()
    }

    /// Returns the earliest deadline.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.next()
    }

    /// Removes and returns a client with an expired deadline.
    pub(crate) fn next_late(&mut self, now: Instant) -> Option<Waiter> {
        let id = self.deadlines.next_late(now)?;
        self.take(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::table::all;
    use crate::resp::parse::{Limits, Parser};

    fn wait(keys: Range<usize>, timeout: Option<Duration>) -> Wait {
        Wait {
            shape: Shape::List,
            keys,
            count: None,
            paired: Vec::new(),
            timeout,
            nothing: Nothing::NullArray,
            gone: None,
        }
    }

    fn add(blocking: &mut Blocking, id: u64, line: &[u8], wait: Wait) {
        let mut parser = Parser::new();
        parser.parse(line, &Limits::STRANGER, 1).expect("a request");
        let command = all().next().expect("a command");
        let seat = Seat { index: 0, id };
        let asking = Asking {
            seat,
            database: 0,
            command,
            epoch: Epoch(0),
        };
        blocking.add(asking, wait, &parser.args(line));
    }

    #[test]
    fn clients_wait_in_the_order_in_which_they_came() {
        let mut blocking = Blocking::default();
        for id in [7, 3, 5] {
            add(&mut blocking, id, b"x a b 0\n", wait(1..3, None));
        }
        blocking.touch(0, b"c");
        blocking.touch(1, b"a");
        assert_eq!(blocking.next_ready(), None, "nobody waits for those");
        blocking.touch(0, b"a");
        blocking.touch(0, b"a");
        assert_eq!(blocking.next_ready(), Some((0, b"a"[..].into())));
        assert_eq!(blocking.next_ready(), None);
        let mut order = Vec::new();
        let mut after = 0;
        while let Some((ticket, id)) = blocking.next_waiter(0, b"a", after) {
            order.push(id);
            after = ticket;
        }
        assert_eq!(order, [7, 3, 5]);
        let first = blocking.take(7).expect("it waits");
        blocking.put_back(first);
        let next = blocking.next_waiter(0, b"b", 0).map(|(_, id)| id);
        assert_eq!(next, Some(7), "it has kept its place");
        for id in [3, 5, 7] {
            assert!(blocking.take(id).is_some());
        }
        assert!(blocking.is_empty() && blocking.keys.is_empty());
    }

    #[test]
    fn a_key_is_ready_once_however_often_it_changes() {
        let mut blocking = Blocking::default();
        add(&mut blocking, 1, b"x a b 0\n", wait(1..3, None));
        for key in [&b"a"[..], b"b", b"a", b"c"] {
            blocking.touch(0, key);
        }
        let next = |blocking: &mut Blocking| blocking.next_ready().map(|(_, key)| key.to_vec());
        assert_eq!(next(&mut blocking), Some(b"a".to_vec()));
        blocking.touch(0, b"a");
        assert_eq!(next(&mut blocking), Some(b"b".to_vec()));
        assert_eq!(next(&mut blocking), Some(b"a".to_vec()));
        assert_eq!(next(&mut blocking), None);
    }

    #[test]
    fn a_request_is_narrowed_to_the_key_that_is_ready() {
        let mut blocking = Blocking::default();
        let counted = Wait {
            count: Some(2),
            ..wait(3..5, None)
        };
        add(&mut blocking, 1, b"blmpop 0 2 a b left\n", counted);
        let waiter = blocking.take(1).expect("it waits");
        let narrowed = waiter.narrowed(b"b");
        let words: Vec<&[u8]> = narrowed.args().from(0).collect();
        assert_eq!(words, [&b"blmpop"[..], b"0", b"1", b"b", b"left"]);
    }

    #[test]
    fn a_request_is_narrowed_to_the_key_with_what_belongs_to_it() {
        let mut blocking = Blocking::default();
        let paired = Wait {
            paired: vec![b"5-0"[..].into(), b"7-1"[..].into()],
            ..wait(4..6, None)
        };
        add(
            &mut blocking,
            1,
            b"xread block 0 streams a b $ 7-1\n",
            paired,
        );
        let waiter = blocking.take(1).expect("it waits");
        for (key, id) in [(&b"a"[..], &b"5-0"[..]), (b"b", b"7-1")] {
            let narrowed = waiter.narrowed(key);
            let words: Vec<&[u8]> = narrowed.args().from(0).collect();
            assert_eq!(words, [&b"xread"[..], b"block", b"0", b"streams", key, id]);
        }
    }

    #[test]
    fn who_has_waited_long_enough_is_taken_out() {
        let mut blocking = Blocking::default();
        let now = Instant::now();
        add(&mut blocking, 1, b"x a 0\n", wait(1..2, None));
        let soon = Some(Duration::from_millis(5));
        add(&mut blocking, 2, b"x a 0\n", wait(1..2, soon));
        assert_eq!((blocking.count(), blocking.timeouts()), (2, 1));
        assert!(blocking.next_late(now).is_none());
        let late = blocking.next_late(now + Duration::from_secs(1));
        assert_eq!(late.map(|waiter| waiter.seat.id), Some(2));
        assert_eq!(blocking.next_deadline(), None);
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
