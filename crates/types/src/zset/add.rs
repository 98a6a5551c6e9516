//! Adding members, with the conditions of ZADD.

use perdura_base::TableId;
use perdura_txn::{Packing, Shape, Tx};

use super::{Ordered, put, score_of};
use crate::Fault;
use crate::change::Change;
use crate::small::{CELL_BYTES_MAX, COUNT_MAX, Editor, New, may_join};

/// The conditions under which a member is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Conditions {
    /// True if the member must be new.
    pub only_new: bool,
    /// True if the member must exist.
    pub only_old: bool,
    /// True if the member must be new, or its score must become greater.
    pub greater: bool,
    /// True if the member must be new, or its score must become less.
    pub less: bool,
    /// True if the given score is added to the existing one.
    pub increment: bool,
}

/// The result of adding members.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Added {
    /// The number of members that were added.
    pub new: u64,
    /// The number of members with a changed score.
    pub changed: u64,
    /// The new score of the last member; `None` if the conditions did not hold for it.
    pub score: Option<f64>,
    /// True if an increment would have given NaN. Then nothing was written.
    pub not_a_number: bool,
}

/// Adds members with scores.
///
/// # Errors
/// [`Fault::WrongType`]; an abort, which the caller must pass on.
pub fn add<'m>(
    tx: &mut Tx<'_>,
    table: TableId,
    key: &[u8],
    conditions: Conditions,
    members: impl IntoIterator<Item = (&'m [u8], f64)>,
) -> Result<Added, Fault> {
    let mut change = Change::open(tx, table, key, Shape::Zset)?;
    let mut added = Added::default();
    if change.is_absent() && conditions.only_old {
        return Ok(added);
    }
    for (member, given) in members {
        let old = score_of(&change, tx, member)?;
        added.score = None;
        let allowed = match old {
            Some(_) => !conditions.only_new,
            None => !conditions.only_old,
        };
        if !allowed {
            continue;
        }
        let score = match old {
            Some(old) if conditions.increment => old + given,
            _ => given,
        };
        if score.is_nan() {
            added.not_a_number = true;
            break;
        }
        if old.is_some_and(|old| {
            (conditions.greater && score <= old) || (conditions.less && score >= old)
        }) {
            continue;
        }
        added.score = Some(score);
        match old {
            Some(old) if old == score => continue,
            Some(_) => added.changed += 1,
            None => added.new += 1,
        }
        put(&mut change, tx, member, score)?;
    }
    let _ = change.finish(tx)?;
    Ok(added)
}

/// Replaces the key's value of any type by a new sorted set, or deletes the key if there are no members. Returns
/// whether the key existed.
///
/// # Errors
/// An abort, which the caller must pass on.
pub fn store(
    tx: &mut Tx<'_>,
    table: TableId,
    key: &[u8],
    members: &[(Vec<u8>, f64)],
) -> Result<bool, Fault> {
    let was_there = tx.get(table, key)?.is_some();
    tx.expect_elements(members.len())?;
    let mut change = Change::replace(tx, table, key, Shape::Zset)?;
    // A set that would outgrow the packed form is made of rows from the start.
    let packing = change.packing();
    let many = members.len() > usize::from(COUNT_MAX.min(packing.zset_entries));
    let bytes_max = CELL_BYTES_MAX.min(usize::from(packing.zset_bytes));
    if many || members.iter().any(|(m, _)| m.len() > bytes_max) {
        change.spread(tx)?;
    }
    for (member, score) in members {
        put(&mut change, tx, member, *score)?;
    }
    let _ = change.finish(tx)?;
    Ok(was_there)
}

/// Puts a member at its place in a packed sorted set. Returns false, and changes nothing, if the
/// member does not fit.
pub(super) fn put_packed(editor: &mut Editor, packing: Packing, member: &[u8], score: f64) -> bool {
    // A whole score is packed as an integer, and integers have no -0. So zero is added, which turns -0 into 0.
    let score = score + 0.0;
    let old = editor.packed().find(member);
    let old = old.map(|element| (element.start..element.end, element.score()));
    match &old {
        Some((range, _)) => editor.remove(range.clone()),
        None if !may_join(editor.packed(), New::Scored(member, score), packing) => return false,
        None => {}
    }
    if insert_packed(editor, member, score) {
        return true;
    }
    if let Some((_, score)) = old {
        let back = insert_packed(editor, member, score);
        debug_assert!(back, "it was there");
    }
    false
}

fn insert_packed(editor: &mut Editor, member: &[u8], score: f64) -> bool {
    let packed = editor.packed();
    let place = Ordered::new(score, member);
    let behind = packed.iter().find(|other| {
        let other = Ordered::new(other.score(), &other.key);
        other.compare(&place).is_gt()
    });
    let at = behind.map_or(packed.bytes().len(), |element| element.start);
    editor.insert(at, New::Scored(member, score))
}
