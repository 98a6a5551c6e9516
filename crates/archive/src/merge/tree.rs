//! Reading several runs as one, with a tree of losers over their cursors.
//!
//! Each leaf is a run. Two records meet at an inner node. The node keeps the later record, the *loser*. The earlier
//! record, the winner, is compared at the next node up. The winner at the root is the next record. When the winner's
//! run advances, only the nodes between that run's leaf and the root are compared again, each once.
//!
//! # Source
//! D. Knuth, "The Art of Computer Programming", volume 3, 5.4.1.

use std::sync::Arc;

use perdura_base::{Epoch, Result};

use crate::reader::{Run, RunCursor, Scope};
use crate::record::{PageAt, RunRecord};
use crate::writer::Progress;

/// The sort key of a run's next record. A run with no records left ranks last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    page: u64,
    epoch: u64,
    useq: u32,
}

impl Rank {
    const END: Rank = Rank {
        page: u64::MAX,
        epoch: u64::MAX,
        useq: u32::MAX,
    };

    fn of(key: Option<(PageAt, Epoch, u32)>) -> Rank {
        let Some((at, epoch, useq)) = key else {
            return Rank::END;
        };
        let rank = Rank {
            page: u64::from(at.partition.0) << 32 | u64::from(at.local),
            epoch: epoch.0,
            useq,
        };
        debug_assert!(rank < Rank::END, "a partition has 16 bits");
        rank
    }
}

/// The records of several runs, read in the order that one run with all these records would have.
pub struct Merged {
    cursors: Vec<RunCursor>,
    ranks: Vec<Rank>,
    /// The tree, as indexes of runs. Element 0 is the winner of all runs. Each other element i is the loser at inner
    /// node i.
    losers: Vec<usize>,
    /// The number of primed cursors. A primed cursor has read a record.
    primed: usize,
    reads: u64,
    /// True if the winner is the current record. [`advance`](Self::advance) has then moved to the winner.
    is_taken: bool,
}

impl Merged {
    /// Returns the records of `scope` in all of `runs`.
    ///
    /// # Panics
    /// If `runs` is empty.
    #[must_use]
    pub fn new(runs: &[Arc<Run>], scope: &Scope) -> Merged {
        assert!(!runs.is_empty(), "there is something to read");
        Merged {
            cursors: runs.iter().map(|run| run.cursor(scope)).collect(),
            ranks: vec![Rank::END; runs.len()],
            losers: vec![0; runs.len()],
            primed: 0,
            reads: 0,
            is_taken: false,
        }
    }

    /// Starts again in the same runs, with the records of `scope`. Reuses the buffers.
    pub fn restart(&mut self, scope: &Scope) {
        for cursor in &mut self.cursors {
            cursor.restart(scope);
        }
        self.ranks.fill(Rank::END);
        (self.primed, self.is_taken) = (0, false);
    }

    /// Returns the number of reads made so far.
    #[must_use]
    pub fn reads(&self) -> u64 {
        self.reads
    }

    /// Reads the first record of the next run. Returns `Done` if the first records of all runs have been read. A caller
    /// that counts I/Os repeats this call until `Done`, and only then calls [`advance`](Self::advance). For other
    /// callers `advance` reads these records.
    ///
    /// # Errors
    /// Those of [`RunCursor::advance`].
    pub fn prime(&mut self) -> Result<Progress<()>> {
        let Some(cursor) = self.cursors.get_mut(self.primed) else {
            return Ok(Progress::Done(()));
        };
        let reads = cursor.reads();
        cursor.advance()?;
        self.reads += cursor.reads() - reads;
        self.ranks[self.primed] = Rank::of(cursor.key());
        self.primed += 1;
        if self.primed == self.cursors.len() {
            self.build();
        }
        Ok(Progress::More)
    }

    /// Compares the first records of all runs and fills the tree.
    fn build(&mut self) {
        let count = self.cursors.len();
        let mut winners = vec![0; 2 * count];
        for (i, leaf) in winners[count..].iter_mut().enumerate() {
            *leaf = i;
        }
        for node in (1..count).rev() {
            let (a, b) = (winners[2 * node], winners[2 * node + 1]);
            let (winner, loser) = if self.is_before(b, a) { (b, a) } else { (a, b) };
            (winners[node], self.losers[node]) = (winner, loser);
        }
        self.losers[0] = winners[1];
    }

    /// Returns whether the next record of run `a` comes before the next record of run `b`. If their ranks are equal,
    /// the lower run index comes first.
    #[inline]
    fn is_before(&self, a: usize, b: usize) -> bool {
        (self.ranks[a], a) < (self.ranks[b], b)
    }

    /// Moves to the next record. Returns `false` if no record is left.
    ///
    /// # Errors
    /// Those of [`RunCursor::advance`].
    #[inline]
    pub fn advance(&mut self) -> Result<bool> {
        while self.primed < self.cursors.len() {
            self.prime()?;
        }
        if self.is_taken {
            let mut winner = self.losers[0];
            let before = self.ranks[winner];
            let cursor = &mut self.cursors[winner];
            let reads = cursor.reads();
            cursor.advance()?;
            self.reads += cursor.reads() - reads;
            self.ranks[winner] = Rank::of(cursor.key());
            debug_assert!(before <= self.ranks[winner], "a run is sorted");
            let mut node = (winner + self.cursors.len()) / 2;
            while node > 0 {
                if self.is_before(self.losers[node], winner) {
                    std::mem::swap(&mut self.losers[node], &mut winner);
                }
                node /= 2;
            }
            self.losers[0] = winner;
        }
        self.is_taken = self.ranks[self.losers[0]] != Rank::END;
        Ok(self.is_taken)
    }

    /// Returns the current record. [`advance`](Self::advance) has moved there.
    ///
    /// # Panics
    /// If `advance` was not called or found no record.
    #[inline]
    #[must_use]
    pub fn record(&self) -> RunRecord<'_> {
        assert!(self.is_taken, "there is a record");
        self.cursors[self.losers[0]].record()
    }
}
