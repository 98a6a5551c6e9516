//! Sets, and the intersections, unions and differences of several sets.

use std::collections::HashSet;

use perdura_base::TableId;
use perdura_base::num::to_usize;
use perdura_txn::{Shape, Tx};

use crate::Fault;
use crate::change::{Change, Left};
use crate::open::{Source, Text, read};
use crate::small::New;

/// Opens the set of a key to read it.
///
/// # Errors
/// [`Fault::WrongType`]; an abort, which the caller must pass on.
pub fn source<'a>(tx: &'a Tx<'_>, table: TableId, key: &[u8]) -> Result<Option<Source<'a>>, Fault> {
    read(tx, table, key, Shape::Set)
}

/// Adds members and returns the number of new members.
///
/// # Errors
/// As [`source`].
pub fn add<'m>(
    tx: &mut Tx<'_>,
    table: TableId,
    key: &[u8],
    members: impl IntoIterator<Item = &'m [u8]>,
) -> Result<u64, Fault> {
    let mut change = Change::open(tx, table, key, Shape::Set)?;
    let mut added = 0;
    let members = members.into_iter();
    tx.expect_elements(members.size_hint().0)?;
    for member in members {
        added += u64::from(change.put(tx, New::One(member))?);
    }
    let _ = change.finish(tx)?;
    Ok(added)
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
    crate::change::remove_all(tx, table, key, Shape::Set, members)
}

/// Replaces a key's value, whatever its type, by a new set. Deletes the key if there are no members. Returns whether
/// the key existed.
///
/// # Errors
/// An abort, which the caller must pass on.
pub fn store<'m>(
    tx: &mut Tx<'_>,
    table: TableId,
    key: &[u8],
    members: impl IntoIterator<Item = &'m [u8]>,
) -> Result<bool, Fault> {
    let was_there = tx.get(table, key)?.is_some();
    let members = members.into_iter();
    tx.expect_elements(members.size_hint().0)?;
    let mut change = Change::replace(tx, table, key, Shape::Set)?;
    for member in members {
        change.put(tx, New::One(member))?;
    }
    let _ = change.finish(tx)?;
    Ok(was_there)
}

/// The rule that selects the members of a join of several sets. A set that does not exist counts as empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Join {
    /// Members that all sets have.
    Intersection,
    /// Members that at least one set has.
    Union,
    /// Members of the first set that no other set has.
    Difference,
}

/// Joins sets and calls `f` once for each member of the result, at most `max` times.
///
/// # Errors
/// An error of `f`.
pub fn join<'a>(
    sets: &'a [Option<Source<'a>>],
    join: Join,
    max: u64,
    mut f: impl FnMut(Text<'a>) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let mut left = max;
    let mut hand_out = |member: Text<'a>| {
        f(member)?;
        left -= 1;
        Ok::<bool, Fault>(left > 0)
    };
    match join {
        Join::Intersection => {
            if sets.iter().any(Option::is_none) {
                return Ok(());
            }
            let mut sets: Vec<&Source<'_>> = sets.iter().flatten().collect();
            // The members of the smallest set need the fewest look-ups in the others.
            sets.sort_by_key(|set| set.len());
            let Some((first, others)) = sets.split_first() else {
                return Ok(());
            };
            for entry in first.iter() {
                let member = entry.key();
                if others.iter().all(|set| set.find(&member).is_some()) && !hand_out(member)? {
                    return Ok(());
                }
            }
        }
        Join::Difference => {
            let Some((Some(first), others)) = sets.split_first() else {
                return Ok(());
            };
            for entry in first.iter() {
                let member = entry.key();
                let elsewhere = others
                    .iter()
                    .flatten()
                    .any(|set| set.find(&member).is_some());
                if !elsewhere && !hand_out(member)? {
                    return Ok(());
                }
            }
        }
        Join::Union => {
            // The last set has no member twice. So its members are only looked up in the other
            // sets, and are not remembered.
            let Some((last, others)) = sets.split_last() else {
                return Ok(());
            };
            let mut seen: HashSet<Text<'a>> = HashSet::new();
            for set in others.iter().flatten() {
                seen.reserve(to_usize(set.len()));
                for entry in set.iter() {
                    if seen.insert(entry.key()) && !hand_out(entry.key())? {
                        return Ok(());
                    }
                }
            }
            for entry in last.iter().flat_map(|set| set.iter()) {
                let member = entry.key();
                if !seen.contains(&member) && !hand_out(member)? {
                    return Ok(());
                }
            }
        }
    }
    Ok(())
}
