//! Transactions that hold their latches for long.
//!
//! A loop must not wait for these latches. So each loop looks here before it runs a request, and while it waits for a
//! latch. Two kinds of transactions are noted:
//! * A command beside a loop ([`crate::beside`]), before its thread takes latches and until its loop has taken over the
//!   result.
//! * A transaction in the round of a loop, such as a script, after it has run for some time and until it has ended.
//!
//! Scripts may follow one another without a pause. So a loop that postpones a request because of another loop's round
//! notes the partitions as *wanted*. Other loops then run no script that needs a wanted partition. The loop ends its
//! wish when it has let the postponed requests run once. While a loop is itself in a long round, its wish does not count,
//! because it cannot run its requests soon.

use crate::engine::{PartitionId, PartitionSet};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The kinds of transactions that are noted here, with the index of the loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flight {
    /// A command beside the loop.
    Beside(usize),
    /// A transaction in the loop's round.
    Round(usize),
}

#[derive(Debug, Default)]
struct Board {
    /// The transactions, with their partitions.
    held: Vec<(Flight, PartitionSet)>,
    /// The index of each loop with a wish, and the wanted partitions.
    wanted: Vec<(usize, PartitionSet)>,
}

/// The partitions of the transactions that hold their latches for long.
#[derive(Debug, Default)]
pub(crate) struct Flights {
    board: Mutex<Board>,
    /// The number of transactions.
    count: AtomicUsize,
    /// The number of commands beside the loops.
    beside: AtomicUsize,
    /// The number of loops with wishes.
    wishes: AtomicUsize,
    /// The number of changes that may let postponed requests run: transactions and wishes that have ended or no longer
    /// count.
    landings: AtomicU64,
}

impl Flights {
    /// Returns whether any transaction is noted.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.count.load(Ordering::Acquire) > 0
    }

    /// Returns whether a command runs beside a loop.
    #[inline]
    pub(crate) fn any_beside(&self) -> bool {
        self.beside.load(Ordering::Acquire) > 0
    }

    /// Returns whether a loop wants partitions.
    #[inline]
    pub(crate) fn any_wanted(&self) -> bool {
        self.wishes.load(Ordering::Acquire) > 0
    }

    /// Returns whether a noted transaction holds one of these partitions.
    pub(crate) fn holds(&self, partitions: &PartitionSet) -> bool {
        let board = self.board.lock();
        board.held.iter().any(|(_, of)| of.intersects(partitions))
    }

    /// Returns whether a noted transaction other than this loop's own round holds this partition.
    pub(crate) fn holds_for(&self, event_loop: usize, partition: PartitionId) -> bool {
        self.any() && {
            let board = self.board.lock();
            let own = Flight::Round(event_loop);
            let mut others = board.held.iter().filter(|(of, _)| *of != own);
            others.any(|(_, of)| of.contains(partition))
        }
    }

    /// Returns the number of changes so far that may let postponed requests run.
    #[inline]
    pub(crate) fn landings(&self) -> u64 {
        self.landings.load(Ordering::Acquire)
    }

    /// Notes a transaction. If it is noted already, for example because it was undone and has begun again, replaces its
    /// partitions. Returns whether the loop's wish no longer counts from now on. The caller then wakes the other loops.
    pub(crate) fn begin(&self, flight: Flight, partitions: PartitionSet) -> bool {
        let mut board = self.board.lock();
        if let Some((_, of)) = board.held.iter_mut().find(|(of, _)| *of == flight) {
            *of = partitions;
            return false;
        }
        board.held.push((flight, partitions));
        self.count_held(&board);
        let mut wishes = board.wanted.iter();
        let frees = wishes.any(|(of, _)| flight == Flight::Round(*of));
        self.landings.fetch_add(u64::from(frees), Ordering::Release);
        frees
    }

    /// Notes that a transaction has ended. Returns whether it was noted.
    pub(crate) fn end(&self, flight: Flight) -> bool {
        let mut board = self.board.lock();
        let before = board.held.len();
        board.held.retain(|(of, _)| *of != flight);
        let ended = board.held.len() < before;
        self.count_held(&board);
        self.landings.fetch_add(u64::from(ended), Ordering::Release);
        ended
    }

    fn count_held(&self, board: &Board) {
        let each = board.held.iter();
        let beside = each.filter(|(of, _)| matches!(of, Flight::Beside(_)));
        self.beside.store(beside.count(), Ordering::Release);
        self.count.store(board.held.len(), Ordering::Release);
    }

    /// Notes that a loop postpones a request for these partitions, if a long round of a loop holds one of them. Returns
    /// whether that is so. `replaces` is true if the loop no longer wants its earlier partitions.
    pub(crate) fn want(
        &self,
        event_loop: usize,
        partitions: &PartitionSet,
        replaces: bool,
    ) -> bool {
        let mut board = self.board.lock();
        let in_round = |(of, held): &(Flight, PartitionSet)| {
            matches!(of, Flight::Round(_)) && held.intersects(partitions)
        };
        if !board.held.iter().any(in_round) {
            return false;
        }
        match board.wanted.iter_mut().find(|(of, _)| *of == event_loop) {
            Some((_, of)) if replaces => *of = *partitions,
            Some((_, of)) => of.union(partitions),
            None => board.wanted.push((event_loop, *partitions)),
        }
        self.wishes.store(board.wanted.len(), Ordering::Release);
        true
    }

    /// Notes that a loop has let its postponed requests run.
    pub(crate) fn unwant(&self, event_loop: usize) {
        let mut board = self.board.lock();
        board.wanted.retain(|(of, _)| *of != event_loop);
        self.wishes.store(board.wanted.len(), Ordering::Release);
        self.landings.fetch_add(1, Ordering::Release);
    }

    /// Returns whether another loop, which is not in a long round, wants one of these partitions.
    pub(crate) fn is_wanted(&self, event_loop: usize, partitions: &PartitionSet) -> bool {
        let board = self.board.lock();
        let is_long = |of| {
            board
                .held
                .iter()
                .any(|(held, _)| *held == Flight::Round(of))
        };
        let mut others = board.wanted.iter().filter(|(of, _)| *of != event_loop);
        others.any(|(of, wanted)| wanted.intersects(partitions) && !is_long(*of))
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    fn set(ids: &[u16]) -> PartitionSet {
        ids.iter().copied().map(PartitionId).collect()
    }

    #[test]
    fn a_loop_waits_for_rounds_of_others_and_not_for_its_own() {
        let flights = Flights::default();
        flights.begin(Flight::Round(0), set(&[1]));
        assert!(flights.any() && !flights.any_beside());
        assert!(flights.holds_for(1, PartitionId(1)) && !flights.holds_for(0, PartitionId(1)));
        flights.begin(Flight::Round(0), set(&[1, 2]));
        assert!(flights.holds(&set(&[2])), "a rerun has more partitions");
        flights.begin(Flight::Beside(0), set(&[3]));
        assert!(flights.any_beside());
        assert!(flights.end(Flight::Round(0)) && !flights.end(Flight::Round(0)));
        assert_eq!(flights.landings(), 1);
        assert!(flights.any_beside() && !flights.holds(&set(&[1, 2])));
    }

    #[test]
    fn only_rounds_give_reason_for_a_wish() {
        let flights = Flights::default();
        flights.begin(Flight::Beside(0), set(&[1]));
        assert!(
            !flights.want(1, &set(&[1]), false),
            "scripts would wait long"
        );
        flights.begin(Flight::Round(0), set(&[2]));
        assert!(!flights.want(1, &set(&[1]), false));
        assert!(flights.want(1, &set(&[2, 4]), false));
        assert!(flights.is_wanted(0, &set(&[4])) && !flights.is_wanted(1, &set(&[4])));
        assert!(flights.want(1, &set(&[2]), true));
        assert!(
            !flights.is_wanted(0, &set(&[4])),
            "the new wish replaces the old"
        );
        flights.unwant(1);
        assert!(!flights.any_wanted() && flights.landings() == 1);
    }

    #[test]
    fn a_wish_does_not_count_while_its_loop_is_in_a_long_round() {
        let flights = Flights::default();
        flights.begin(Flight::Round(0), set(&[1]));
        assert!(flights.want(1, &set(&[1]), false));
        assert!(
            flights.begin(Flight::Round(1), set(&[2])),
            "others may go on"
        );
        assert_eq!(flights.landings(), 1);
        assert!(!flights.is_wanted(0, &set(&[1])));
        flights.end(Flight::Round(1));
        assert!(flights.is_wanted(0, &set(&[1])));
    }
}
