//! Clients that wait in WAITDUR until an epoch has reached a durability, or until their deadline.
//!
//! Invariant: a client in `clients` is in `wanted`, and in `deadlines` if it has a deadline. `wanted` and
//! `deadlines` contain no other clients.

use crate::deadlines::Deadlines;
use crate::engine::{Durability, Epoch, Reached};
use crate::pubsub::Seat;
use std::collections::{BTreeSet, HashMap};
use std::time::Instant;

/// The wait of one client. It ends when `epoch` has reached `durability`.
#[derive(Debug, Clone, Copy)]
struct RungWait {
    seat: Seat,
    durability: Durability,
    epoch: Epoch,
}

/// All clients that wait for a rung.
#[derive(Debug, Default)]
pub(crate) struct RungWaits {
    clients: HashMap<u64, RungWait>,
    wanted: BTreeSet<(Durability, Epoch, u64)>,
    deadlines: Deadlines,
}

impl RungWaits {
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

    /// Makes a client wait. The client must not wait already.
    pub(crate) fn add(
        &mut self,
        seat: Seat,
        durability: Durability,
        epoch: Epoch,
        deadline: Option<Instant>,
    ) {
        debug_assert!(!self.contains(seat.id), "a client that waits sends nothing");
        self.wanted.insert((durability, epoch, seat.id));
        self.deadlines.add(deadline, seat.id);
        let wait = RungWait {
            seat,
            durability,
            epoch,
        };
        self.clients.insert(seat.id, wait);
        debug_assert_eq!(
            self.clients.len(),
            self.wanted.len(),
            "each client waits for one epoch"
        );
    }

    /// Ends the wait of a client, and returns its seat. `None`: the client does not wait.
    pub(crate) fn take(&mut self, id: u64) -> Option<Seat> {
        let wait = self.clients.remove(&id)?;
        let was_noted = self.wanted.remove(&(wait.durability, wait.epoch, id));
        debug_assert!(was_noted, "the epoch of a client that waits is noted");
        self.deadlines.remove(id);
        debug_assert!(
            self.deadlines.count() <= self.clients.len(),
            "only who waits has a deadline"
        );
        Some(wait.seat)
    }

    /// Removes and returns any client that waits.
    pub(crate) fn next(&mut self) -> Option<Seat> {
        let (_, _, id) = *self.wanted.first()?;
        self.take(id)
    }

    /// Removes and returns the next client with an epoch that is as durable as the client requires.
    pub(crate) fn next_reached(&mut self, reached: Reached) -> Option<Seat> {
        let first_of = |durability| {
            let all = (durability, Epoch(0), 0)..=(durability, Epoch(u64::MAX), u64::MAX);
            self.wanted.range(all).next()
        };
        let is_reached = |(durability, epoch, _): &&(Durability, Epoch, u64)| {
            durability.is_reached(*epoch, reached)
        };
        let mut first = Durability::ALL.into_iter().filter_map(first_of);
        let (_, _, id) = *first.find(is_reached)?;
        self.take(id)
    }

    /// Returns the earliest deadline.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.next()
    }

    /// Removes and returns a client whose deadline has passed.
    pub(crate) fn next_late(&mut self, now: Instant) -> Option<Seat> {
        let id = self.deadlines.next_late(now)?;
        self.take(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Rung;
    use std::time::Duration;

    fn seat(id: u64) -> Seat {
        Seat { id, ..Seat::NOBODY }
    }

    fn reached(disk: u64, mirror: u64) -> Reached {
        Reached::new(|rung| match rung {
            Rung::Disk => Epoch(disk),
            Rung::Mirror => Epoch(mirror),
        })
    }

    #[test]
    fn each_waits_for_its_epoch_on_its_rung() {
        let mut waits = RungWaits::default();
        waits.add(seat(1), Durability::Disk, Epoch(5), None);
        waits.add(seat(2), Durability::Mirror, Epoch(7), None);
        waits.add(seat(3), Durability::Disk, Epoch(4), None);
        let next = |waits: &mut RungWaits, disk, mirror| {
            waits
                .next_reached(reached(disk, mirror))
                .map(|seat| seat.id)
        };
        assert_eq!(next(&mut waits, 3, 6), None);
        assert_eq!(next(&mut waits, 4, 6), Some(3));
        assert_eq!(next(&mut waits, 4, 6), None);
        assert_eq!(next(&mut waits, 4, 7), Some(2), "the mirror is ahead");
        assert_eq!(next(&mut waits, 4, 9), None);
        assert!(waits.contains(1));
        assert_eq!(next(&mut waits, 5, 7), Some(1));
        assert!(waits.is_empty() && waits.wanted.is_empty());
    }

    #[test]
    fn who_has_waited_long_enough_is_taken_out_of_every_list() {
        let mut waits = RungWaits::default();
        let now = Instant::now();
        let soon = now + Duration::from_millis(5);
        waits.add(seat(1), Durability::Disk, Epoch(5), None);
        waits.add(seat(2), Durability::Disk, Epoch(5), Some(soon));
        assert_eq!((waits.count(), waits.timeouts()), (2, 1));
        assert_eq!(waits.next_deadline(), Some(soon));
        assert_eq!(waits.next_late(now), None);
        assert_eq!(waits.next_late(soon), Some(seat(2)));
        assert_eq!(waits.next_late(soon), None);
        assert_eq!(waits.next_reached(reached(5, 5)), Some(seat(1)));
        assert_eq!(waits.next_reached(reached(5, 5)), None);
        assert_eq!(waits.take(2), None);
    }
}
