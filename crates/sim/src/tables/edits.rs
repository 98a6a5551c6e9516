//! Plain transactions: edits of rows of any table. The engine makes each edit, and so does the model.

use fastrand::Rng;
use perdura::{Abort, Core, Cx, RowId, Table, Tx};

use crate::content::Content;
use crate::ops::key_bytes;

use super::interpret::{Refusal, View};
use super::rows::{Key, Row};
use super::schema::{Account, Entry, Order, Rate, Setting};
use super::swarm::{Swarm, draw_amount, draw_text};

/// A change of one row, a mark, or an undo back to the mark.
#[derive(Debug, Clone)]
pub(crate) enum Edit {
    /// Inserts the row, or overwrites it.
    Put(Key, Row),
    /// Appends a row without a key.
    Append(Entry),
    /// Changes one column of a row, if the row exists. A row of Redis's database is only read.
    Touch(Key, i64),
    Remove(Key),
    Mark,
    /// Undoes every edit since the mark.
    Back,
}

impl Edit {
    /// Draws an edit of a declared table. `entries` are the ids of the rows without keys.
    pub fn draw(rng: &mut Rng, swarm: &Swarm, entries: &[u64]) -> Option<Edit> {
        let key = match rng.u8(0..12) {
            0..=3 => Key::Account(rng.u64(0..swarm.accounts)),
            4..=5 => Key::Order(rng.u32(0..swarm.branches), rng.u64(0..swarm.numbers)),
            6 => Key::Rate(rng.u16(0..4)),
            7 if entries.is_empty() => return None,
            7 => Key::Entry(entries[rng.usize(0..entries.len())]),
            8 => Key::Setting(rng.u64(0..swarm.settings)),
            9..=10 => Key::Plain(rng.u8(0..6)),
            _ => {
                let (account, amount) = (rng.u64(0..swarm.accounts), draw_amount(rng));
                let text = draw_text(rng, swarm);
                let entry = Entry {
                    account,
                    amount,
                    text,
                };
                return swarm
                    .declares(super::rows::Sort::Entries)
                    .then_some(Edit::Append(entry));
            }
        };
        if key.sort().is_some_and(|sort| !swarm.declares(sort)) {
            return None;
        }
        Some(match rng.u8(0..8) {
            0..=1 => Edit::Remove(key),
            2..=3 => Edit::Touch(key, draw_amount(rng)),
            _ => match draw_row(rng, swarm, key) {
                Some(row) => Edit::Put(key, row),
                None => Edit::Touch(key, draw_amount(rng)),
            },
        })
    }

    /// Returns the key of the row that the edit changes. `None`: the edit changes no row, or appends a row without a
    /// key.
    pub fn key(&self) -> Option<Key> {
        match self {
            Edit::Put(key, _) | Edit::Touch(key, _) | Edit::Remove(key) => Some(*key),
            Edit::Append(_) | Edit::Mark | Edit::Back => None,
        }
    }
}

/// Draws a row for a key. `None`: the key's table has no keys, so its rows can only be appended.
fn draw_row(rng: &mut Rng, swarm: &Swarm, key: Key) -> Option<Row> {
    let (amount, text) = (draw_amount(rng), draw_text(rng, swarm));
    Some(match key {
        Key::Account(id) => Row::Account(Account {
            id,
            owner: swarm.draw_owner(rng),
            balance: amount,
            touched: rng.u64(0..4),
        }),
        Key::Order(branch, number) => Row::Order(Order {
            branch,
            number,
            item: rng.u16(0..5),
            tag: rng.u64(0..swarm.numbers),
            amount,
            note: text.into_bytes(),
        }),
        Key::Rate(id) => Row::Rate(Rate {
            id,
            factor: amount,
            name: text,
        }),
        Key::Setting(id) => Row::Setting(Setting {
            id,
            value: amount,
            text,
        }),
        Key::Plain(_) => Row::Plain(Content {
            seed: rng.u64(..),
            len: text.len(),
        }),
        Key::Entry(_) | Key::Table(_) => return None,
    })
}

/// Makes the edits on the engine. Returns the ids of the appended rows, without undone appends.
///
/// # Errors
/// Errors of the engine's verbs.
pub(crate) fn perform(core: &Core, tx: &mut Tx<'_>, edits: &[Edit]) -> Result<Vec<u64>, Abort> {
    let mut cx = Cx::new(tx, core.registry());
    let mut ids: Vec<u64> = Vec::new();
    let mut mark = None;
    for edit in edits {
        match edit {
            Edit::Put(key, row) => put(core, &mut cx, *key, row)?,
            Edit::Append(row) => ids.push(cx.append(row)?.0),
            Edit::Touch(key, by) => touch(core, &mut cx, *key, *by)?,
            Edit::Remove(key) => remove(core, &mut cx, *key)?,
            Edit::Mark => mark = Some((cx.savepoint(), ids.len())),
            Edit::Back => {
                if let Some((savepoint, given)) = &mark {
                    cx.rollback_to(savepoint);
                    ids.truncate(*given);
                }
            }
        }
    }
    Ok(ids)
}

fn put_row<T: Table>(cx: &mut Cx<'_, '_>, is_there: bool, row: &T) -> Result<(), Abort> {
    if is_there {
        cx.update(row)?;
    } else {
        cx.insert(row)?;
    }
    Ok(())
}

fn put(core: &Core, cx: &mut Cx<'_, '_>, key: Key, row: &Row) -> Result<(), Abort> {
    match row {
        Row::Account(row) => {
            let is_there = cx.contains::<Account>(row.id)?;
            put_row(cx, is_there, row)
        }
        Row::Order(row) => {
            let is_there = cx.contains::<Order>((row.branch, row.number))?;
            put_row(cx, is_there, row)
        }
        Row::Rate(row) => {
            let is_there = cx.contains::<Rate>(row.id)?;
            put_row(cx, is_there, row)
        }
        Row::Setting(row) => {
            let is_there = cx.contains::<Setting>(row.id)?;
            put_row(cx, is_there, row)
        }
        Row::Plain(content) => {
            let mut bytes = Vec::new();
            content.fill(&mut bytes);
            if let Key::Plain(key) = key {
                cx.put(core.database(0), &key_bytes(key), &bytes, None)?;
            }
            Ok(())
        }
        Row::Entry(_) | Row::Table => Ok(()),
    }
}

fn touch(core: &Core, cx: &mut Cx<'_, '_>, key: Key, by: i64) -> Result<(), Abort> {
    match key {
        Key::Account(id) if cx.contains::<Account>(id)? => {
            cx.modify::<Account>(id, |row| row.balance += by)?;
        }
        Key::Order(branch, number) if cx.contains::<Order>((branch, number))? => {
            cx.edit::<Order>((branch, number), |row| {
                row.set(Order::amount, by);
                Ok(())
            })?;
        }
        Key::Rate(id) if cx.contains::<Rate>(id)? => {
            cx.modify::<Rate>(id, |row| row.factor = by)?;
        }
        Key::Entry(id) if cx.contains::<Entry>(RowId(id))? => {
            cx.modify::<Entry>(RowId(id), |row| row.text.push('.'))?;
        }
        Key::Setting(id) if cx.contains::<Setting>(id)? => {
            cx.modify::<Setting>(id, |row| row.value = by)?;
        }
        Key::Plain(key) => {
            let tx: &Tx<'_> = cx;
            let _read = tx.get(core.database(0), &key_bytes(key))?;
        }
        _ => {}
    }
    Ok(())
}

fn remove(core: &Core, cx: &mut Cx<'_, '_>, key: Key) -> Result<(), Abort> {
    match key {
        Key::Account(id) => drop(cx.remove::<Account>(id)?),
        Key::Order(branch, number) => drop(cx.remove::<Order>((branch, number))?),
        Key::Rate(id) => drop(cx.remove::<Rate>(id)?),
        Key::Entry(id) => drop(cx.remove::<Entry>(RowId(id))?),
        Key::Setting(id) => drop(cx.remove::<Setting>(id)?),
        Key::Plain(key) => drop(cx.delete(core.database(0), &key_bytes(key))?),
        Key::Table(_) => {}
    }
    Ok(())
}

/// Makes the edits on the model. `ids` are the ids that the engine gave to the appended rows.
pub(crate) fn interpret(
    edits: &[Edit],
    view: &mut View<'_>,
    ids: Option<&[u64]>,
) -> Result<(), Refusal> {
    let mut given = ids.unwrap_or_default().iter();
    let mut mark = None;
    let last = edits.iter().rposition(|edit| matches!(edit, Edit::Back));
    let first = edits.iter().position(|edit| matches!(edit, Edit::Mark));
    for (at, edit) in edits.iter().enumerate() {
        match edit {
            Edit::Put(key, row) => put_model(view, *key, row)?,
            Edit::Append(row) => {
                // The engine returns no id for a row whose append was undone.
                let is_lost = first.is_some_and(|first| first < at) && last > Some(at);
                let id = match is_lost {
                    true => u64::MAX,
                    false => given.next().copied().unwrap_or(u64::MAX),
                };
                view.append(id, row.clone());
            }
            Edit::Touch(key, by) => touch_model(view, *key, *by),
            Edit::Remove(key) => {
                view.get(*key);
                view.set(*key, None);
            }
            Edit::Mark => mark = Some(view.mark()),
            Edit::Back => {
                if let Some(mark) = &mark {
                    view.back_to(mark.clone());
                }
            }
        }
    }
    Ok(())
}

fn put_model(view: &mut View<'_>, key: Key, row: &Row) -> Result<(), Refusal> {
    if let Row::Order(order) = row
        && view.tag_is_taken(order)
    {
        return Err(Refusal::Verb);
    }
    view.set(key, Some(row.clone()));
    Ok(())
}

fn touch_model(view: &mut View<'_>, key: Key, by: i64) {
    let mut row = view.get(key).cloned();
    match &mut row {
        Some(Row::Account(row)) => row.balance += by,
        Some(Row::Order(row)) => row.amount = by,
        Some(Row::Rate(row)) => row.factor = by,
        Some(Row::Entry(row)) => row.text.push('.'),
        Some(Row::Setting(row)) => row.value = by,
        Some(Row::Plain(_) | Row::Table) | None => return,
    }
    view.set(key, row);
}
