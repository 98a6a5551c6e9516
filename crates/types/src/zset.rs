//! Sorted sets: members with scores, in the order of (score, member).
//!
//! A range of scores or members is first converted to a range of ranks. Then the members with these ranks are read,
//! from the front or from the back. A packed sorted set is kept in order, so a rank is an index in it.

mod add;
mod combine;
mod range;

pub use add::{Added, Conditions, add, store};
pub use combine::{Aggregate, Input, Operation, combine, input, looked_at};
pub use range::{LexBound, LexRange, ScoreRange};

use std::cmp::Ordering;

use perdura_base::TableId;
use perdura_base::num::to_u64;
use perdura_txn::{End, Shape, Tx};

use crate::Fault;
use crate::change::{Change, Left, State};
use crate::open::{Source, Text, read};

/// Opens the sorted set of a key to read it.
///
/// # Errors
/// [`Fault::WrongType`]; an abort, which the caller must pass on.
pub fn source<'a>(tx: &'a Tx<'_>, table: TableId, key: &[u8]) -> Result<Option<Source<'a>>, Fault> {
    read(tx, table, key, Shape::Zset)
}

/// A member's place in the order of its set. The score is not NaN.
struct Ordered<'a> {
    score: f64,
    member: &'a [u8],
}

impl<'a> Ordered<'a> {
    /// Returns the place of a member with this score.
    fn new(score: f64, member: &'a [u8]) -> Ordered<'a> {
        debug_assert!(!score.is_nan(), "a score is a number");
        Ordered { score, member }
    }

    /// Compares two places: by score, and then by the member's bytes.
    fn compare(&self, other: &Ordered<'_>) -> Ordering {
        let scores = self.score.partial_cmp(&other.score);
        let scores = scores.unwrap_or(Ordering::Equal);
        scores.then_with(|| self.member.cmp(other.member))
    }
}

/// Returns the number of members before a member; `None` if it is not in the set.
#[must_use]
pub fn rank(source: &Source<'_>, member: &[u8]) -> Option<u64> {
    match source {
        Source::Small(packed) => {
            let found = packed.find(member)?.start;
            let before = packed.iter().take_while(|element| element.start < found);
            Some(to_u64(before.count()))
        }
        Source::Rows(rows) => rows.rank(member),
    }
}

/// Returns the members with the ranks `from..to`, and their scores. The iterator can be read from the front and from
/// the back.
#[must_use]
pub fn members<'s>(
    source: &'s Source<'_>,
    from: u64,
    to: u64,
) -> Box<dyn DoubleEndedIterator<Item = (Text<'s>, f64)> + 's> {
    debug_assert!(from <= to, "a stretch of ranks goes forward");
    let entries = source.ranks(from, to);
    Box::new(entries.map(|entry| (entry.key(), entry.score())))
}

/// Removes members. Returns the number of removed members, and whether any is left.
///
/// # Errors
/// As [`source`].
pub fn remove<'m>(
    tx: &mut Tx<'_>,
    table: TableId,
    key: &[u8],
    members: impl IntoIterator<Item = &'m [u8]>,
) -> Result<(u64, Left), Fault> {
    crate::change::remove_all(tx, table, key, Shape::Zset, members)
}

/// Removes the members with the ranks `from..to`. Returns the number of removed members, and whether any member is
/// left.
///
/// # Errors
/// As [`source`].
pub fn remove_ranks(
    tx: &mut Tx<'_>,
    table: TableId,
    key: &[u8],
    from: u64,
    to: u64,
) -> Result<(u64, Left), Fault> {
    let mut change = Change::open(tx, table, key, Shape::Zset)?;
    let len = change.len(tx)?;
    let to = to.min(len);
    let from = from.min(to);
    if from == 0 && to == len {
        change.clear(tx)?;
    } else {
        take_ranks(&mut change, tx, from, to)?;
    }
    Ok((to - from, change.finish(tx)?))
}

/// Removes the members in a range of ranks, and returns the members in order.
fn take_ranks(
    change: &mut Change<'_>,
    tx: &mut Tx<'_>,
    from: u64,
    to: u64,
) -> Result<Members, Fault> {
    let taken: Members = change.stored(tx)?.map_or_else(Vec::new, |set| {
        members(&set, from, to)
            .map(|(member, score)| (member.to_vec(), score))
            .collect()
    });
    debug_assert!(to_u64(taken.len()) <= to - from, "each rank has one member");
    for (member, _) in &taken {
        change.remove(tx, member)?;
    }
    Ok(taken)
}

/// Members with their scores.
pub type Members = Vec<(Vec<u8>, f64)>;

/// Removes up to `max` members, from the front or from the back. Returns them, the outermost first, and whether any
/// member is left. Returns `None` if the sorted set does not exist.
///
/// # Errors
/// As [`source`].
pub fn pop(
    tx: &mut Tx<'_>,
    table: TableId,
    key: &[u8],
    end: End,
    max: u64,
) -> Result<Option<(Members, Left)>, Fault> {
    let mut change = Change::open(tx, table, key, Shape::Zset)?;
    if change.is_absent() {
        return Ok(None);
    }
    let len = change.len(tx)?;
    let count = max.min(len);
    let taken = match end {
        End::Front => take_ranks(&mut change, tx, 0, count)?,
        End::Back => {
            let mut taken = take_ranks(&mut change, tx, len - count, len)?;
            taken.reverse();
            taken
        }
    };
    Ok(Some((taken, change.finish(tx)?)))
}

/// Adds a member with a score, or changes the member's score if the set has the member.
fn put(change: &mut Change<'_>, tx: &mut Tx<'_>, member: &[u8], score: f64) -> Result<(), Fault> {
    debug_assert!(!score.is_nan(), "a score is a number");
    let packing = change.packing();
    if let Some(editor) = change.packed()
        && add::put_packed(editor, packing, member, score)
    {
        change.note_edit();
        return Ok(());
    }
    change.put_row(tx, member, &score.to_le_bytes())?;
    Ok(())
}

/// Returns the score of a member of a sorted set that is being changed.
fn score_of(change: &Change<'_>, tx: &Tx<'_>, member: &[u8]) -> Result<Option<f64>, Fault> {
    Ok(match &change.state {
        State::Absent => None,
        State::Small(editor) => editor.packed().find(member).map(|e| e.score()),
        State::Rows(home) => {
            let rows = tx.elements(change.table(), *home)?;
            rows.get(member).map(|row| row.score())
        }
    })
}
