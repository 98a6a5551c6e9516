//! Restores of page-addressed typed tables to every moment. Their changes are page records, so the archive has all their
//! moments, like those of Redis keys.

use std::collections::BTreeMap;

use perdura::{Core, Cx, Db, Error, LogForm, RowId, Table, procedure, table};
use perdura_base::{Epoch, PartitionId, Result, TableId};
use perdura_restore::At;
use perdura_table::WholeKey;

use crate::core_steps::small;
use crate::lost_disk::{World, carry_out};

table! {
    /// A hashed table with indexes.
    pub struct Account in "accounts", addressing = page {
        key(id: u64),
        owner: String,
        balance: i64;
        index by_owner(owner: String);
        unique index by_name_and_id(owner: String, id: u64)
    }
}

table! {
    /// An ordered table with values of many lengths.
    pub struct Note in "notes", addressing = page, order = ordered { key(at: u32, name: String), text: Vec<u8> }
}

table! {
    /// A table of which every partition has a copy.
    pub struct Rate in "rates", addressing = page, replicated { key(currency: u32), rate: i64 }
}

table! {
    /// A table without key columns. Its index finds all rows.
    pub struct Entry in "entries", addressing = page {
        book: u32,
        amount: i64;
        index by_book(book: u32)
    }
}

procedure! {
    /// Writes an account and an entry, and returns the entry's id.
    pub fn deposit(cx, id: u64, amount: i64) -> u64, on [Account(id)] {
        match cx.get::<Account>(id)? {
            Some(mut account) => {
                account.balance += amount;
                account.owner = format!("owner {}", account.balance % 3);
                cx.update(&account)?;
            }
            None => cx.insert(&Account { id, owner: "new".into(), balance: amount })?,
        }
        Ok(cx.append(&Entry { book: BOOK, amount })?.0)
    }
}

/// The book of all entries.
const BOOK: u32 = 7;

/// All rows of a database.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Rows {
    accounts: BTreeMap<u64, (String, i64)>,
    notes: BTreeMap<(u32, String), Vec<u8>>,
    rates: BTreeMap<u32, i64>,
    entries: BTreeMap<u64, i64>,
}

impl Rows {
    /// Reads all rows, and checks each account by its index.
    fn read(core: &Core) -> Rows {
        let mut rows = Rows::default();
        let all = core.all_partitions();
        let read = core.transact(&all, |tx| {
            let cx = Cx::new(tx, core.registry());
            if core.registry().find("accounts").is_none() {
                return Ok(());
            }
            cx.each::<Account>(|row| drop(rows.accounts.insert(row.id, (row.owner, row.balance))))?;
            cx.each::<Note>(|row| drop(rows.notes.insert((row.at, row.name), row.text)))?;
            cx.each::<Rate>(|row| {
                rows.rates.insert(row.currency, row.rate);
            })?;
            for row in cx.by(Entry::by_book, BOOK).views() {
                let id = row?.row_id()?;
                let entry = cx.get::<Entry>(id)?.expect("an entry of the index");
                rows.entries.insert(id.0, entry.amount);
            }
            assert_eq!(cx.count::<Entry>()?, rows.entries.len() as u64);
            for (id, (owner, _)) in &rows.accounts {
                let found = cx
                    .by(Account::by_name_and_id, (owner.as_str(), *id))
                    .count()?;
                assert_eq!(found, 1, "account {id} in its index");
            }
            Ok::<(), Error>(())
        });
        let _read = read.expect("rows");
        rows
    }
}

/// A change of one row.
#[derive(Debug, Clone)]
enum Change {
    Account(u64, Option<(String, i64)>),
    Note((u32, String), Option<Vec<u8>>),
    Rate(u32, i64),
    Entry(u64, Option<i64>),
}

impl Change {
    fn apply(&self, rows: &mut Rows) {
        fn set<K: Ord + Clone, V: Clone>(map: &mut BTreeMap<K, V>, key: &K, value: Option<&V>) {
            match value {
                Some(value) => drop(map.insert(key.clone(), value.clone())),
                None => drop(map.remove(key)),
            }
        }
        match self {
            Change::Account(key, value) => set(&mut rows.accounts, key, value.as_ref()),
            Change::Note(key, value) => set(&mut rows.notes, key, value.as_ref()),
            Change::Rate(key, value) => set(&mut rows.rates, key, Some(value)),
            Change::Entry(key, value) => set(&mut rows.entries, key, value.as_ref()),
        }
    }
}

/// A database of page-addressed tables, and the model of its rows.
struct Tables {
    world: World,
    rng: fastrand::Rng,
    /// The changes of each transaction, with the transaction's epoch.
    history: Vec<(Epoch, Vec<Change>)>,
    live: Rows,
}

impl Tables {
    fn new(seed: u64, log: LogForm) -> Tables {
        let declared = Db::builder("")
            .table::<Account>()
            .table::<Note>()
            .table::<Rate>()
            .table::<Entry>()
            .procedure(deposit)
            .log(log);
        let mut options = small();
        options.typed = declared.into_options().typed;
        Tables {
            world: World::with(seed, options),
            rng: fastrand::Rng::with_seed(seed),
            history: Vec::new(),
            live: Rows::default(),
        }
    }

    fn commit(&mut self, epoch: Epoch, changes: Vec<Change>) {
        for change in &changes {
            change.apply(&mut self.live);
        }
        self.history.push((epoch, changes));
    }

    /// Calls the procedure.
    fn deposit(&mut self) {
        let (id, amount) = (self.rng.u64(..12), self.rng.i64(-50..50));
        let called = self.world.core().call::<deposit>(&(id, amount));
        let (entry, ticket) = called.expect("a call");
        let ever = self.history.iter().flat_map(|(_, changes)| changes);
        let is_spent = |change: &Change| matches!(change, Change::Entry(id, _) if *id == entry);
        assert!(!ever.into_iter().any(is_spent), "entry {entry} is new");
        let account = match self.live.accounts.get(&id) {
            Some((_, before)) => {
                let balance = before + amount;
                (format!("owner {}", balance % 3), balance)
            }
            None => ("new".into(), amount),
        };
        let changes = vec![
            Change::Account(id, Some(account)),
            Change::Entry(entry, Some(amount)),
        ];
        self.commit(ticket.epoch, changes);
    }

    /// Draws changes outside a procedure.
    fn draw(&mut self) -> Vec<Change> {
        let rng = &mut self.rng;
        let mut changes = Vec::new();
        for _ in 0..rng.usize(1..4) {
            let some = rng.u8(..4) > 0;
            changes.push(match rng.u8(..10) {
                0..6 => {
                    let key = (rng.u32(..3), "n".repeat(rng.usize(1..20)));
                    let len = [0, 10, 500, 9_000][rng.usize(..4)];
                    Change::Note(key, some.then(|| vec![rng.u8(..); len]))
                }
                6 => Change::Rate(rng.u32(..3), rng.i64(..)),
                7 => Change::Account(rng.u64(..12), None),
                _ => match self.live.entries.keys().next() {
                    Some(first) => Change::Entry(*first, None),
                    None => Change::Rate(9, 9),
                },
            });
        }
        changes
    }

    /// Makes changes in one transaction.
    fn write(&mut self) {
        let changes = self.draw();
        let core = self.world.core();
        let done = core.transact(&core.all_partitions(), |tx| {
            let mut cx = Cx::new(tx, core.registry());
            for change in &changes {
                make(&mut cx, change)?;
            }
            Ok::<(), Error>(())
        });
        let epoch = done.expect("a transaction").1.epoch;
        if epoch > Epoch(0) {
            self.commit(epoch, changes);
        }
    }

    /// Cuts the power, and removes lost transactions from the model.
    fn crash(&mut self) {
        self.world.crash(self.rng.u64(..));
        let durable = Epoch(self.world.core().report().durable_epoch);
        self.history.retain(|(epoch, _)| *epoch <= durable);
        self.live = self.state(durable);
        assert_eq!(Rows::read(self.world.core()), self.live);
    }

    /// Returns the rows at an epoch.
    fn state(&self, target: Epoch) -> Rows {
        let mut rows = Rows::default();
        let until = self
            .history
            .iter()
            .take_while(|(epoch, _)| *epoch <= target);
        for change in until.flat_map(|(_, changes)| changes) {
            change.apply(&mut rows);
        }
        rows
    }
}

/// Writes a row, whether or not its key exists.
fn put<T: Table>(cx: &mut Cx<'_, '_>, key: impl WholeKey<T::Key>, row: &T) -> Result<()> {
    match cx.contains::<T>(key)? {
        true => cx.update(row),
        false => cx.insert(row),
    }
}

/// Makes a change of one row.
fn make(cx: &mut Cx<'_, '_>, change: &Change) -> Result<()> {
    match change {
        Change::Account(id, _) => drop(cx.remove::<Account>(*id)?),
        Change::Note((at, name), Some(text)) => {
            let (name, text) = (name.clone(), text.clone());
            let note = Note {
                at: *at,
                name,
                text,
            };
            put(cx, (*at, note.name.as_str()), &note)?;
        }
        Change::Note((at, name), None) => drop(cx.remove::<Note>((*at, name.as_str()))?),
        Change::Rate(currency, rate) => {
            let (currency, rate) = (*currency, *rate);
            put(cx, currency, &Rate { currency, rate })?;
        }
        Change::Entry(id, _) => drop(cx.remove::<Entry>(RowId(*id))?),
    }
    Ok(())
}

/// The archive refused every moment after the first typed write, although it had all page records.
#[test]
fn page_addressed_tables_are_restored_to_every_moment() {
    for (seed, log) in [
        (1, LogForm::Value),
        (2, LogForm::Command),
        (3, LogForm::Value),
    ] {
        let mut tables = Tables::new(seed, log);
        tables.world.back_up();
        for round in 0..120 {
            match tables.rng.bool() {
                true => tables.deposit(),
                false => tables.write(),
            }
            tables.world.flush();
            match tables.rng.u8(..10) {
                0..2 => tables.world.archive(),
                2 if round % 3 == 0 => tables.world.back_up(),
                3 => tables.crash(),
                _ => {}
            }
        }
        tables.world.archive();
        let anchor = tables.world.core().anchor().get();
        assert!(anchor.families.is_empty(), "no ordered frame is declared");
        let epochs: Vec<Epoch> = tables.history.iter().map(|(epoch, _)| *epoch).collect();
        assert!(epochs.len() > 60, "{} transactions", epochs.len());
        for epoch in epochs.iter().step_by(5) {
            let plan = tables.world.plan(Some(At::Epoch(*epoch)));
            let (disks, report) = carry_out(&plan.expect("a moment")).expect("a restore");
            assert_eq!(report.epoch, *epoch);
            let core = disks.open().expect("it opens");
            assert_eq!(
                Rows::read(&core),
                tables.state(*epoch),
                "seed {seed}, {epoch}"
            );
        }
    }
}

/// The counter of row ids is restored with the rows.
#[test]
fn a_restored_database_gives_no_row_id_twice() {
    let mut tables = Tables::new(9, LogForm::Value);
    tables.world.back_up();
    (0..20).for_each(|_| tables.deposit());
    tables.world.flush();
    tables.world.archive();
    let plan = tables.world.plan(None).expect("a plan");
    let (disks, _) = carry_out(&plan).expect("a restore");
    let core = disks.open().expect("it opens");
    let before = Rows::read(&core);
    assert_eq!(before, tables.live);
    let appended = core.transact(&core.all_partitions(), |tx| {
        Ok::<_, Error>(
            Cx::new(tx, core.registry())
                .append(&Entry {
                    book: BOOK,
                    amount: 1,
                })?
                .0,
        )
    });
    let (id, _) = appended.expect("an entry");
    let partition = RowId(id).partition();
    let ids = before.entries.keys();
    let newest = ids.filter(|id| RowId(**id).partition() == partition).max();
    assert!(
        newest.is_some_and(|newest| id > *newest),
        "{id}, {newest:?}"
    );
}

/// A repair may lose the page with the counter and keep the rows.
#[test]
fn an_append_after_a_lost_counter_gives_an_id_that_no_row_has() {
    let mut tables = Tables::new(4, LogForm::Value);
    (0..40).for_each(|_| tables.deposit());
    let core = tables.world.core();
    let lost = core.transact(&core.all_partitions(), |tx| {
        let mut keys = Vec::new();
        for id in (0..4).map(PartitionId) {
            tx.view(id, |part| {
                part.for_each(TableId::CATALOG, |row| keys.push(row.key().to_vec()));
            })?;
        }
        keys.retain(|key| key.starts_with(b"i"));
        for key in &keys {
            tx.delete(TableId::CATALOG, key)?;
        }
        Ok::<_, Error>(keys.len())
    });
    assert_eq!(lost.expect("counters").0, 4, "a counter in each partition");
    (0..40).for_each(|_| tables.deposit());
    assert_eq!(Rows::read(tables.world.core()), tables.live);
}
