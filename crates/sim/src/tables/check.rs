//! The comparison with the oracle. It reads every table by a walk, by key, by each index and in order. It also compares
//! the partitions' transaction numbers.

use std::collections::BTreeMap;

use perdura::{Abort, Core, Cx, PartitionId, RowId, Table, TableId, Tx};

use crate::clients_life::ClientsLife;
use crate::faults;
use crate::ops::{key_bytes, key_number};
use crate::over_core::OverCore;
use crate::report::Check;

use super::oracle::{Commit, State};
use super::rows::{Key, Row, Rows, Sort, Write, of_sort};
use super::schema::{Account, Entry, Order, Rate, Setting};
use super::world::World;

/// Returns the name of a table.
pub(crate) fn name(sort: Sort) -> &'static str {
    match sort {
        Sort::Accounts => Account::NAME,
        Sort::Orders => Order::NAME,
        Sort::Rates => Rate::NAME,
        Sort::Entries => Entry::NAME,
        Sort::Settings => Setting::NAME,
    }
}

/// Returns the typed tables of an open engine.
pub(crate) fn tables(core: &Core) -> Vec<(Sort, TableId)> {
    let found = |sort: Sort| Some((sort, core.registry().find(name(sort))?.0));
    Sort::ALL.into_iter().filter_map(found).collect()
}

/// Decodes a row of a table from its bytes.
pub(crate) fn decode(sort: Sort, key: &[u8], value: &[u8]) -> perdura::Result<(Key, Row)> {
    Ok(match sort {
        Sort::Accounts => {
            let row = Account::decode(key, value)?;
            (Key::Account(row.id), row.into())
        }
        Sort::Orders => {
            let row = Order::decode(key, value)?;
            (Key::Order(row.branch, row.number), row.into())
        }
        Sort::Rates => {
            let row = Rate::decode(key, value)?;
            (Key::Rate(row.id), row.into())
        }
        Sort::Entries => {
            let id = key.try_into().map(u64::from_be_bytes);
            (
                Key::Entry(id.unwrap_or(0)),
                Entry::decode(key, value)?.into(),
            )
        }
        Sort::Settings => {
            let row = Setting::decode(key, value)?;
            (Key::Setting(row.id), row.into())
        }
    })
}

impl World {
    /// Compares an open engine with the expected state.
    pub fn compare(&self, core: &Core, expected: &State) -> Check {
        self.compare_numbers(core, expected)?;
        let is_there = |sort: &Sort| core.registry().find(name(*sort)).is_some();
        let mut declared = Sort::ALL.into_iter().filter(|s| self.swarm.declares(*s));
        if let Some(sort) = declared.find(|sort| !is_there(sort)) {
            return Err(format!("{sort:?} is declared, and there is no such table"));
        }
        for (sort, table) in tables(core) {
            walk(core, (sort, table), &expected.rows)
                .map_err(|what| format!("{sort:?} by a walk: {what}"))?;
        }
        walk_plain(core, &expected.rows).map_err(|what| format!("database 0: {what}"))?;
        let read = core.transact(&core.all_partitions(), |tx| {
            let cx = Cx::new(tx, core.registry());
            read_all(core, &cx, &expected.rows)
        });
        match read {
            Ok((read, _)) => read,
            Err(error) => Err(format!("a read failed: {error}")),
        }
    }

    /// Checks that each partition has counted exactly the surviving transactions. If the engine created tables when it
    /// opened, every partition has counted one more.
    fn compare_numbers(&self, core: &Core, expected: &State) -> Check {
        let found = World::numbers(core);
        let made = u64::from(!self.made(core, &expected.rows).is_empty());
        let wanted: Vec<u64> = expected
            .numbers
            .iter()
            .map(|number| number + made)
            .collect();
        if found != wanted {
            return Err(format!(
                "the partitions have counted {found:?} transactions, the model {wanted:?}"
            ));
        }
        Ok(())
    }

    /// Returns one write for each key-addressed table that the engine created when it opened. The engine has these
    /// tables, but `rows` lacks them.
    fn made(&self, core: &Core, rows: &Rows) -> Vec<Write> {
        let found = tables(core).into_iter().map(|(sort, _)| sort);
        let keyed = found.filter(|sort| self.swarm.is_keyed(*sort));
        let key = keyed.map(|sort| Key::Table(sort.place()));
        key.filter(|key| !rows.contains_key(key))
            .map(|key| (key, Some(Row::Table)))
            .collect()
    }

    /// Compares the recovered state of the open engine with the model. Then removes lost transactions from the model,
    /// and adds the tables that the engine created when it opened.
    pub fn check_state(&mut self) -> Check {
        if self.tenant.is_some() {
            // The comparison may flush the log. This line removes the faults that were planned for the restart, so
            // that none strikes the flush.
            faults::clear(&self.disks);
        }
        self.verify(self.core())?;
        let durable = self.core().report().durable_epoch;
        if self.swarm.unlogged {
            let loaded = self.core().report().checkpoint;
            if loaded < self.must_image {
                return Err(format!(
                    "checkpoint {} was complete, the restart has that of {loaded}",
                    self.must_image
                ));
            }
            self.loaded_image = loaded;
            *self.tally.reached.entry("unlogged").or_default() += 1;
        }
        let survived = self.survived(self.core());
        self.oracle.restart(survived);
        self.life = ClientsLife::of(self.core().report());
        if let Some(tenant) = &mut self.tenant {
            tenant.begin(self.machine.engine(), survived);
        }
        let writes = self.made(self.core(), &self.oracle.live().rows);
        if !writes.is_empty() {
            let numbers = World::numbers(self.core());
            self.oracle.commit(Commit {
                // With nodes, the open has already closed the epoch in which it wrote.
                epoch: self.moment(self.core().wal().last_appended().0),
                writes,
                numbers: numbers.into_iter().enumerate().collect(),
                ids: Vec::new(),
            });
        }
        self.note_image();
        self.closed_cleanly = Some(false);
        self.count_restart(durable);
        Ok(())
    }
}

/// Walks over the partitions. Each row must equal the model's row and be in its home partition, and no row of the
/// model may be missing.
fn walk(core: &Core, (sort, table): (Sort, TableId), rows: &Rows) -> Check {
    let partitions = core.heap().geometry().partitions;
    let (mut count, mut wrong) = (0, None);
    for id in (0..partitions).map(PartitionId) {
        core.heap().lock(id).for_each(table, |row| {
            count += 1;
            match decode(sort, &row.key(), &row.value()) {
                Ok((key, found)) => {
                    let is_home = key.home(partitions).is_none_or(|home| home == id.0);
                    if rows.get(&key) != Some(&found) || !is_home {
                        wrong = Some(format!(
                            "{key:?} in partition {id} is {found:?}, the model has {:?}",
                            rows.get(&key)
                        ));
                    }
                }
                Err(error) => wrong = Some(error.to_string()),
            }
        });
    }
    let copies = if sort == Sort::Rates {
        usize::from(partitions)
    } else {
        1
    };
    let wanted = of_sort(rows, sort).count() * copies;
    match wrong {
        Some(wrong) => Err(wrong),
        None if count != wanted => Err(format!("{count} rows, the model has {wanted}")),
        None => Ok(()),
    }
}

fn walk_plain(core: &Core, rows: &Rows) -> Check {
    let (mut count, mut wrong) = (0, None);
    for id in (0..core.heap().geometry().partitions).map(PartitionId) {
        core.heap().lock(id).for_each(core.database(0), |row| {
            count += 1;
            let key = key_number(&row.key()).map(Key::Plain);
            let same = match key.and_then(|key| rows.get(&key)) {
                Some(Row::Plain(content)) => content.matches(&row.value()),
                _ => false,
            };
            if !same {
                wrong = Some(format!("{key:?} is not the model's"));
            }
        });
    }
    let wanted = rows
        .keys()
        .filter(|key| matches!(key, Key::Plain(_)))
        .count();
    match wrong {
        Some(wrong) => Err(wrong),
        None if count != wanted => Err(format!("{count} rows, the model has {wanted}")),
        None => Ok(()),
    }
}

/// Reads every row by its key, by each index and in order.
fn read_all(core: &Core, cx: &Cx<'_, '_>, rows: &Rows) -> Result<Check, Abort> {
    for (sort, _) in tables(core) {
        let by_key = by_key(cx, sort, rows)?;
        let checked = by_key.and(match sort {
            Sort::Accounts => accounts(cx, rows)?,
            Sort::Orders => orders(cx, rows)?,
            Sort::Rates => Ok(()),
            Sort::Entries => entries(cx, rows)?,
            Sort::Settings => settings(cx, rows)?,
        });
        if let Err(what) = checked {
            return Ok(Err(format!("{sort:?} {what}")));
        }
    }
    let tx: &Tx<'_> = cx;
    for key in rows.keys() {
        if let Key::Plain(number) = key
            && tx.get(core.database(0), &key_bytes(*number))?.is_none()
        {
            return Ok(Err(format!("{key:?} is not found by its key")));
        }
    }
    Ok(Ok(()))
}

fn by_key(cx: &Cx<'_, '_>, sort: Sort, rows: &Rows) -> Result<Check, Abort> {
    for (key, row) in of_sort(rows, sort) {
        let found = match *key {
            Key::Account(id) => cx.get::<Account>(id)?.map(Row::from),
            Key::Order(branch, number) => cx.get::<Order>((branch, number))?.map(Row::from),
            Key::Rate(id) => cx.get::<Rate>(id)?.map(Row::from),
            Key::Entry(id) => cx.get::<Entry>(RowId(id))?.map(Row::from),
            Key::Setting(id) => cx.get::<Setting>(id)?.map(Row::from),
            Key::Plain(_) | Key::Table(_) => None,
        };
        if found.as_ref() != Some(row) {
            return Ok(Err(format!("by key: {key:?} is {found:?}, not {row:?}")));
        }
    }
    Ok(Ok(()))
}

/// Checks that an index returned the model's rows, in the order of the keys in `expected`.
fn same<T: Clone + PartialEq, K: Ord>(
    what: &str,
    found: &[T],
    expected: impl Iterator<Item = (K, T)>,
) -> Check {
    let sorted: BTreeMap<K, T> = expected.collect();
    if found.len() == sorted.len() && sorted.values().eq(found.iter()) {
        return Ok(());
    }
    Err(format!(
        "{what}: {} rows that are not the model's {} in their order",
        found.len(),
        sorted.len()
    ))
}

fn accounts(cx: &Cx<'_, '_>, rows: &Rows) -> Result<Check, Abort> {
    let all = || {
        of_sort(rows, Sort::Accounts).filter_map(|(_, row)| match row {
            Row::Account(row) => Some(((row.owner.clone(), row.id), row.clone())),
            _ => None,
        })
    };
    let found: Vec<Account> = cx.by(Account::by_owner, ()).collect()?;
    let mut checked = same("by owner", &found, all());
    for owner in all().map(|((owner, _), _)| owner).take(2) {
        let found: Vec<Account> = cx.by(Account::by_owner, owner.as_str()).collect()?;
        let mine = all().filter(|((of, _), _)| *of == owner);
        checked = checked.and(same("of one owner", &found, mine));
    }
    Ok(checked)
}

fn orders(cx: &Cx<'_, '_>, rows: &Rows) -> Result<Check, Abort> {
    let all = || {
        of_sort(rows, Sort::Orders).filter_map(|(_, row)| match row {
            Row::Order(row) => Some(row.clone()),
            _ => None,
        })
    };
    let found: Vec<Order> = cx.rows::<Order>(()).collect()?;
    let mut backward: Vec<Order> = cx.rows::<Order>(()).rev().collect()?;
    backward.reverse();
    let by_item: Vec<Order> = cx.by(Order::by_item, ()).collect()?;
    let by_tag: Vec<Order> = cx.by(Order::by_tag, ()).collect()?;
    let at = |row: &Order| (row.branch, row.number);
    let mut checked = same("in order", &found, all().map(|row| (at(&row), row)))
        .and(same(
            "backwards",
            &backward,
            all().map(|row| (at(&row), row)),
        ))
        .and(same(
            "by item",
            &by_item,
            all().map(|row| ((row.item, at(&row)), row)),
        ))
        .and(same(
            "by tag",
            &by_tag,
            all().map(|row| ((row.branch, row.tag, row.number), row)),
        ));
    if let Some(first) = all().next() {
        let found: Vec<Order> = cx.rows::<Order>(first.branch).collect()?;
        let mine = all().filter(|row| row.branch == first.branch);
        checked = checked.and(same("of a branch", &found, mine.map(|row| (at(&row), row))));
    }
    Ok(checked)
}

fn entries(cx: &Cx<'_, '_>, rows: &Rows) -> Result<Check, Abort> {
    let all = of_sort(rows, Sort::Entries).filter_map(|(key, row)| match (key, row) {
        (Key::Entry(id), Row::Entry(row)) => Some(((row.account, *id), row.clone())),
        _ => None,
    });
    let found: Vec<Entry> = cx.by(Entry::by_account, ()).collect()?;
    Ok(same("by account", &found, all))
}

fn settings(cx: &Cx<'_, '_>, rows: &Rows) -> Result<Check, Abort> {
    let all = || {
        of_sort(rows, Sort::Settings).filter_map(|(_, row)| match row {
            Row::Setting(row) => Some(row.clone()),
            _ => None,
        })
    };
    let found: Vec<Setting> = cx.rows::<Setting>(()).collect()?;
    let by_value: Vec<Setting> = cx.by(Setting::by_value, ()).collect()?;
    Ok(
        same("in order", &found, all().map(|row| (row.id, row))).and(same(
            "by value",
            &by_value,
            all().map(|row| ((row.value, row.id), row)),
        )),
    )
}
