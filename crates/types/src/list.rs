//! Lists: items in an order that commands decide.
//!
//! The cost of access to an end or an index does not depend on the form of the list (packed or rows). Work on an item
//! in the middle (LINSERT, LREM) takes time in proportion to the item's distance from the nearer end.

use perdura_base::TableId;
use perdura_base::num::{to_u64, to_usize};
use perdura_txn::{End, Shape, Tx};

use crate::change::{Change, Left, State};
use crate::open::{Entry, Source, Text, read};
use crate::small::{New, may_join};
use crate::{Fault, Texts};

/// The offset of the first item of a packed list.
const FIRST: usize = 1;
/// At most this many items are passed to the transaction in one call.
const PUSH_STEP: usize = 256;

/// Opens the list of a key to read it.
///
/// # Errors
/// [`Fault::WrongType`]; an abort, which the caller must pass on.
pub fn source<'a>(tx: &'a Tx<'_>, table: TableId, key: &[u8]) -> Result<Option<Source<'a>>, Fault> {
    read(tx, table, key, Shape::List)
}

/// Converts an index of a command, where -1 is the last item, to an index from the front. The result may be after the
/// last item. `None`: the index is before the first item.
#[must_use]
pub fn from_front(index: i64, len: u64) -> Option<u64> {
    if index < 0 {
        len.checked_sub(index.unsigned_abs())
    } else {
        Some(index.unsigned_abs())
    }
}

/// Converts two indices of a command to a range from the front. In the command the last index is included; in the range
/// the end is excluded. The range may be empty.
#[must_use]
pub fn stretch(from: i64, to: i64, len: u64) -> (u64, u64) {
    let from = from_front(from, len).unwrap_or(0);
    let to = from_front(to, len).map_or(0, |to| to.saturating_add(1).min(len));
    debug_assert!(to <= len, "a stretch ends within the list");
    if from < to { (from, to) } else { (0, 0) }
}

/// Returns the item at an index.
#[must_use]
pub fn at<'s>(source: &'s Source<'_>, index: u64) -> Option<Text<'s>> {
    match source {
        Source::Small(packed) => {
            let element = packed.at(usize::try_from(index).ok()?)?;
            Some(Entry::Packed(element).item())
        }
        Source::Rows(rows) => rows.at(index).map(|row| Entry::Row(row).item()),
    }
}

/// Returns the items with the indices `from..to`. The iterator can be read from the front and from the back.
#[must_use]
pub fn items<'s>(
    source: &'s Source<'_>,
    from: u64,
    to: u64,
) -> Box<dyn DoubleEndedIterator<Item = Text<'s>> + 's> {
    Box::new(source.ranks(from, to).map(|entry| entry.item()))
}

/// Returns the indices of the items that equal `item`, for LPOS. Begins with the `rank`-th match; with a negative rank,
/// begins with the `-rank`-th match from the end and goes backward. Returns at most `max` matches (0: all) and reads at
/// most `looked` items (0: all). The rank is not 0.
#[must_use]
pub fn positions(source: &Source<'_>, item: &[u8], rank: i64, max: u64, looked: u64) -> Vec<u64> {
    debug_assert_ne!(rank, 0, "matches are counted from one");
    let len = source.len();
    let looked = if looked == 0 { len } else { looked.min(len) };
    // The absolute value of `i64::MIN` does not fit. That rank skips no match, as in Redis.
    let mut skipped = rank.checked_abs().map_or(0, |rank| rank.unsigned_abs() - 1);
    let mut found = Vec::new();
    let mut look = |index: u64, text: Text<'_>| {
        if *text == *item {
            if skipped > 0 {
                skipped -= 1;
            } else {
                found.push(index);
            }
        }
        max == 0 || to_u64(found.len()) < max
    };
    if rank < 0 {
        let mut from_back = items(source, len - looked, len).rev().zip(1..);
        from_back.all(|(text, distance)| look(len - distance, text));
    } else {
        items(source, 0, looked)
            .zip(0..)
            .all(|(text, index)| look(index, text));
    }
    debug_assert!(
        max == 0 || to_u64(found.len()) <= max,
        "no more are found than are wanted"
    );
    found
}

/// Puts items at an end of the list in `change`, one by one. Returns the list's new length.
///
/// # Errors
/// An abort, which the caller must pass on.
pub fn push_all<'i>(
    change: &mut Change<'_>,
    tx: &mut Tx<'_>,
    end: End,
    items: impl IntoIterator<Item = &'i [u8]>,
) -> Result<u64, Fault> {
    let mut items = items.into_iter();
    let mut item = items.next();
    while let Some(next) = item
        && push_packed(change, end, next)
    {
        item = items.next();
    }
    let Some(item) = item else {
        return change.len(tx);
    };
    tx.expect_elements(items.size_hint().0)?;
    let home = change.spread(tx)?;
    change.note_filled();
    let Some(next) = items.next() else {
        return Ok(tx.list_push_one(change.table(), home, end, item)?);
    };
    let mut few = vec![item, next];
    while !few.is_empty() {
        few.extend(items.by_ref().take(PUSH_STEP - few.len()));
        tx.list_push(change.table(), home, end, &few)?;
        few.clear();
        few.extend(items.next());
    }
    change.len(tx)
}

/// Puts an item at an end of a packed list. Returns false if the list is not packed or the item
/// does not fit.
fn push_packed(change: &mut Change<'_>, end: End, item: &[u8]) -> bool {
    let packing = change.packing();
    let Some(editor) = change.packed() else {
        return false;
    };
    let at = match end {
        End::Front => FIRST,
        End::Back => editor.packed().bytes().len(),
    };
    let new = New::One(item);
    let fits = may_join(editor.packed(), new, packing) && editor.insert(at, new);
    if fits {
        change.note_edit();
    }
    fits
}

/// Takes an item off an end of the list in `change`, and passes it to `read`. Returns the result of `read`, or `None` if
/// the list has no item.
fn take_one<R>(
    change: &mut Change<'_>,
    tx: &mut Tx<'_>,
    end: End,
    read: impl FnOnce(&[u8]) -> R,
) -> Result<Option<R>, Fault> {
    match &mut change.state {
        State::Absent => Ok(None),
        State::Small(editor) => {
            let packed = editor.packed();
            let element = match end {
                End::Front => packed.at(0),
                End::Back => packed.last(),
            };
            let Some(element) = element else {
                return Ok(None);
            };
            let result = read(&element.key);
            let range = element.start..element.end;
            editor.remove(range);
            change.note_edit();
            Ok(Some(result))
        }
        State::Rows(home) => {
            let home = *home;
            let taken = tx.list_take(change.table(), home, end, |row| {
                read(&Entry::Row(row).item())
            })?;
            match taken {
                Some((result, left)) if left > 0 => {
                    change.note_filled();
                    Ok(Some(result))
                }
                // The key's row is deleted at once, and the item's row is removed later.
                taken => {
                    change.clear(tx)?;
                    Ok(taken.map(|(result, _)| result))
                }
            }
        }
    }
}

/// Takes up to `max` items off an end of the list in `change`, one by one.
fn pop_all(change: &mut Change<'_>, tx: &mut Tx<'_>, end: End, max: u64) -> Result<Texts, Fault> {
    let mut popped = Texts::default();
    match &mut change.state {
        State::Absent => {}
        State::Small(editor) => {
            while to_u64(popped.len()) < max {
                let packed = editor.packed();
                let index = match end {
                    End::Front => Some(0),
                    End::Back => packed.len().checked_sub(1),
                };
                let Some(element) = index.and_then(|index| packed.at(index)) else {
                    break;
                };
                popped.push(&element.key);
                let range = element.start..element.end;
                editor.remove(range);
            }
            change.note_edit();
        }
        State::Rows(home) => {
            let home = *home;
            let rows = tx.elements(change.table(), home)?;
            let (len, count) = (rows.len(), max.min(rows.len()));
            match end {
                End::Front => rows
                    .items(0, count)
                    .for_each(|row| popped.push(&Entry::Row(row).item())),
                End::Back => {
                    let last = rows.items(len - count, len).rev();
                    last.for_each(|row| popped.push(&Entry::Row(row).item()));
                }
            }
            drop_rows(change, tx, end, count)?;
        }
    }
    debug_assert!(
        to_u64(popped.len()) <= max,
        "no more are taken than are wanted"
    );
    Ok(popped)
}

/// Removes items from an end of a list of rows.
fn drop_rows(change: &mut Change<'_>, tx: &mut Tx<'_>, end: End, count: u64) -> Result<(), Fault> {
    let State::Rows(home) = change.state else {
        return Ok(());
    };
    let len = change.len(tx)?;
    debug_assert!(count <= len, "a list has the items that go");
    if count == len {
        // The key's row is deleted at once, and the list's rows are removed later, in steps.
        return change.clear(tx);
    }
    tx.list_pop(change.table(), home, end, to_usize(count))?;
    change.note_filled();
    Ok(())
}

/// Pushes items at one end, one by one, and returns the list's new length. Returns 0 if the list does not exist and
/// `only_existing` is true.
///
/// # Errors
/// As [`source`].
pub fn push<'i>(
    tx: &mut Tx<'_>,
    table: TableId,
    key: &[u8],
    end: End,
    items: impl IntoIterator<Item = &'i [u8]>,
    only_existing: bool,
) -> Result<u64, Fault> {
    let mut change = Change::open(tx, table, key, Shape::List)?;
    if only_existing && change.is_absent() {
        return Ok(0);
    }
    let len = push_all(&mut change, tx, end, items)?;
    let _ = change.finish(tx)?;
    Ok(len)
}

/// Takes up to `max` items off an end. Returns these items, and whether items are left; `None` if there is no list.
///
/// # Errors
/// As [`source`].
pub fn pop(
    tx: &mut Tx<'_>,
    table: TableId,
    key: &[u8],
    end: End,
    max: u64,
) -> Result<Option<(Texts, Left)>, Fault> {
    let mut change = Change::open(tx, table, key, Shape::List)?;
    if change.is_absent() {
        return Ok(None);
    }
    let items = pop_all(&mut change, tx, end, max)?;
    Ok(Some((items, change.finish(tx)?)))
}

/// Takes an item off an end, and passes it to `read`. Returns whether items are left; `None` if there is no list.
///
/// # Errors
/// As [`source`].
pub fn pop_one(
    tx: &mut Tx<'_>,
    table: TableId,
    key: &[u8],
    end: End,
    read: impl FnOnce(&[u8]),
) -> Result<Option<Left>, Fault> {
    let mut change = Change::open(tx, table, key, Shape::List)?;
    if change.is_absent() {
        return Ok(None);
    }
    let taken = take_one(&mut change, tx, end, read)?;
    debug_assert!(taken.is_some(), "a list that is there has an item");
    change.finish(tx).map(Some)
}

/// Moves an item from an end of the list `from` to an end of the list `to`. The two may be one list. Returns the item,
/// and whether `from` still has items. `None`: `from` does not exist.
///
/// # Errors
/// As [`source`], for each key.
pub fn shift(
    tx: &mut Tx<'_>,
    table: TableId,
    (from, from_end): (&[u8], End),
    (to, to_end): (&[u8], End),
) -> Result<Option<(Vec<u8>, Left)>, Fault> {
    let mut source = Change::open(tx, table, from, Shape::List)?;
    if source.is_absent() {
        return Ok(None);
    }
    if from == to {
        let item = take_one(&mut source, tx, from_end, <[u8]>::to_vec)?;
        debug_assert!(item.is_some(), "a list that is there has an item");
        push_all(&mut source, tx, to_end, item.as_deref())?;
        return Ok(Some((item.unwrap_or_default(), source.finish(tx)?)));
    }
    let mut target = Change::open(tx, table, to, Shape::List)?;
    let item = take_one(&mut source, tx, from_end, <[u8]>::to_vec)?;
    debug_assert!(item.is_some(), "a list that is there has an item");
    push_all(&mut target, tx, to_end, item.as_deref())?;
    let left = source.finish(tx)?;
    let _ = target.finish(tx)?;
    Ok(Some((item.unwrap_or_default(), left)))
}

/// Replaces the item at an index; -1 is the last item. Returns `None` if the list does not exist, and `Some(false)` if
/// the list has no item at this index.
///
/// # Errors
/// As [`source`].
pub fn set(
    tx: &mut Tx<'_>,
    table: TableId,
    key: &[u8],
    index: i64,
    item: &[u8],
) -> Result<Option<bool>, Fault> {
    let mut change = Change::open(tx, table, key, Shape::List)?;
    if change.is_absent() {
        return Ok(None);
    }
    let len = change.len(tx)?;
    let Some(index) = from_front(index, len).filter(|index| *index < len) else {
        return Ok(Some(false));
    };
    if let State::Small(editor) = &mut change.state {
        let place = editor
            .packed()
            .at(usize::try_from(index).unwrap_or(usize::MAX));
        if let Some(range) = place.map(|e| e.start..e.end)
            && editor.replace(range, New::One(item))
        {
            change.note_edit();
            let _ = change.finish(tx)?;
            return Ok(Some(true));
        }
    }
    let home = change.spread(tx)?;
    tx.list_set(table, home, index, item)?;
    Ok(Some(true))
}

/// Puts an item before or after the first item that equals `pivot`. Returns the new length of the list. `None`: the
/// list does not exist. `Some(None)`: no item equals `pivot`.
///
/// # Errors
/// As [`source`].
pub fn insert(
    tx: &mut Tx<'_>,
    table: TableId,
    key: &[u8],
    (pivot, before): (&[u8], bool),
    item: &[u8],
) -> Result<Option<Option<u64>>, Fault> {
    let Some(found) = source(tx, table, key)?.map(|list| positions(&list, pivot, 1, 1, 0)) else {
        return Ok(None);
    };
    let Some(pivot) = found.first() else {
        return Ok(Some(None));
    };
    let index = pivot + u64::from(!before);
    let mut change = Change::open(tx, table, key, Shape::List)?;
    let mut done = false;
    let packing = change.packing();
    if let State::Small(editor) = &mut change.state {
        let packed = editor.packed();
        let place = packed.at(usize::try_from(index).unwrap_or(usize::MAX));
        let place = place.map_or(packed.bytes().len(), |element| element.start);
        let new = New::One(item);
        done = may_join(editor.packed(), new, packing) && editor.insert(place, new);
    }
    if done {
        change.note_edit();
    } else {
        let home = change.spread(tx)?;
        tx.list_insert(table, home, index, item)?;
    }
    let len = change.len(tx)?;
    debug_assert!(index < len, "the new item is in the list");
    let _ = change.finish(tx)?;
    Ok(Some(Some(len)))
}

/// Keeps the items from index `from` to index `to`, inclusive, and removes all other items. The indices are those of a
/// command: -1 is the last item. `None`: the list does not exist.
///
/// # Errors
/// As [`source`].
pub fn trim(
    tx: &mut Tx<'_>,
    table: TableId,
    key: &[u8],
    from: i64,
    to: i64,
) -> Result<Option<Left>, Fault> {
    let mut change = Change::open(tx, table, key, Shape::List)?;
    if change.is_absent() {
        return Ok(None);
    }
    let len = change.len(tx)?;
    let (from, to) = stretch(from, to, len);
    if (from, to) == (0, len) {
        return change.finish(tx).map(Some);
    }
    // If few items are kept, writing them to a new list is cheaper than removing all others. Writing needs memory, so
    // this is not done at the memory limit.
    if tx.may_grow() && to - from <= (len - (to - from)) / 4 {
        let mut kept = Texts::default();
        if let Some(list) = change.stored(tx)? {
            items(&list, from, to).for_each(|item| kept.push(&item));
        }
        change.clear(tx)?;
        push_all(&mut change, tx, End::Back, kept.iter())?;
    } else {
        for (end, count) in [(End::Back, len - to), (End::Front, from)] {
            match change.state {
                State::Rows(_) => drop_rows(&mut change, tx, end, count)?,
                _ => drop(pop_all(&mut change, tx, end, count)?),
            }
        }
    }
    change.finish(tx).map(Some)
}

/// Removes items that equal `item`: the first `count`, the last `-count` for a negative `count`, or all for 0. Returns
/// the number of removed items, and whether any item is left.
///
/// # Errors
/// As [`source`].
pub fn remove(
    tx: &mut Tx<'_>,
    table: TableId,
    key: &[u8],
    count: i64,
    item: &[u8],
) -> Result<(u64, Left), Fault> {
    let Some(mut found) = source(tx, table, key)?.map(|list| {
        let rank = if count < 0 { -1 } else { 1 };
        positions(&list, item, rank, count.unsigned_abs(), 0)
    }) else {
        return Ok((0, Left::Nothing));
    };
    // Items are removed from the back, so that the indices of the items before them do not change.
    found.sort_unstable_by(|a, b| b.cmp(a));
    debug_assert!(found.is_sorted_by(|a, b| a > b), "no index is found twice");
    let mut change = Change::open(tx, table, key, Shape::List)?;
    for index in &found {
        match &mut change.state {
            State::Absent => {}
            State::Small(editor) => {
                let place = editor
                    .packed()
                    .at(usize::try_from(*index).unwrap_or(usize::MAX));
                if let Some(range) = place.map(|e| e.start..e.end) {
                    editor.remove(range);
                    change.note_edit();
                }
            }
            State::Rows(home) => {
                tx.list_remove(table, *home, *index)?;
                change.note_removal();
            }
        }
    }
    Ok((to_u64(found.len()), change.finish(tx)?))
}
