//! Restores of key-addressed typed tables to every moment. The archive has their changes as ordered frames, and the first
//! open of a restored database replays them.

use std::collections::BTreeMap;

use perdura::{Core, CoreOptions, Cx, Db, Error, LogForm, procedure, table};
use perdura_base::checksum::crc32c;
use perdura_base::num::to_u64;
use perdura_base::{CkptEpoch, Epoch, Result};
use perdura_page::RegionDigest;
use perdura_restore::reachable::Reachable;
use perdura_restore::{At, RestorePlan, RestoreReport};

use crate::core_steps::small;
use crate::lost_disk::{Restored, World, carry_out, values};

table! {
    /// A key-addressed table with an index.
    pub struct Purse in "purses", addressing = key {
        key(id: u64),
        owner: String,
        balance: i64;
        index by_owner(owner: String)
    }
}

table! {
    /// A key-addressed table without key columns.
    pub struct Posting in "postings", addressing = key { purse: u64, amount: i64; index by_purse(purse: u64) }
}

table! {
    /// A page-addressed table beside them.
    pub struct Memo in "memos", addressing = page { key(at: u32), text: Vec<u8> }
}

procedure! {
    /// Moves an amount between two purses, which may be in two partitions.
    pub fn transfer(cx, from: u64, to: u64, amount: i64) -> (), on [Purse(from), Purse(to)] {
        for (id, change) in [(from, -amount), (to, amount)] {
            match cx.get::<Purse>(id)? {
                Some(mut purse) => {
                    purse.balance += change;
                    purse.owner = owner_of(purse.balance);
                    cx.update(&purse)?;
                }
                None => cx.insert(&Purse { id, owner: owner_of(change), balance: change })?,
            }
        }
        cx.append(&Posting { purse: from, amount })?;
        Ok(())
    }
}

fn owner_of(balance: i64) -> String {
    format!("owner {}", balance.rem_euclid(5))
}

/// The length and a digest of some bytes.
type Sum = (usize, u32);

fn sum(bytes: &[u8]) -> Sum {
    (bytes.len(), crc32c(bytes))
}

fn sums(keys: BTreeMap<usize, Vec<u8>>) -> BTreeMap<usize, Sum> {
    keys.into_iter()
        .map(|(key, value)| (key, sum(&value)))
        .collect()
}

/// All rows of a database, and its Redis keys.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rows {
    pub purses: BTreeMap<u64, (String, i64)>,
    postings: Vec<(u64, i64)>,
    memos: BTreeMap<u32, Sum>,
    keys: BTreeMap<usize, Sum>,
}

impl Rows {
    /// Reads all rows, and checks each purse by its index.
    pub fn read(core: &Core) -> Rows {
        let mut rows = Rows {
            keys: sums(values(core)),
            ..Rows::default()
        };
        let read = core.transact(&core.all_partitions(), |tx| {
            let cx = Cx::new(tx, core.registry());
            if core.registry().find("purses").is_none() {
                return Ok(());
            }
            cx.each::<Purse>(|row| drop(rows.purses.insert(row.id, (row.owner, row.balance))))?;
            cx.each::<Posting>(|row| rows.postings.push((row.purse, row.amount)))?;
            cx.each::<Memo>(|row| {
                rows.memos.insert(row.at, sum(&row.text));
            })?;
            for (owner, count) in rows.owners() {
                assert_eq!(cx.by(Purse::by_owner, owner.as_str()).count()?, count);
            }
            Ok::<(), Error>(())
        });
        let _read = read.expect("rows");
        rows.postings.sort_unstable();
        rows
    }

    fn owners(&self) -> BTreeMap<String, usize> {
        let mut owners = BTreeMap::new();
        for (owner, _) in self.purses.values() {
            *owners.entry(owner.clone()).or_default() += 1;
        }
        owners
    }

    fn transfer(&mut self, from: u64, to: u64, amount: i64) {
        for (id, change) in [(from, -amount), (to, amount)] {
            let before = self.purses.get(&id).map_or(0, |(_, balance)| *balance);
            let balance = before + change;
            self.purses.insert(id, (owner_of(balance), balance));
        }
        self.postings.push((from, amount));
        self.postings.sort_unstable();
    }
}

pub fn options(log: LogForm) -> CoreOptions {
    let declared = Db::builder("")
        .table::<Purse>()
        .table::<Posting>()
        .table::<Memo>()
        .procedure(transfer)
        .log(log);
    let mut options = small();
    options.typed = declared.into_options().typed;
    options
}

/// A database, and the model of its rows after each transaction.
pub struct Tables {
    pub world: World,
    rng: fastrand::Rng,
    log: LogForm,
    history: Vec<(Epoch, Rows)>,
    live: Rows,
    /// The number of increments.
    increments: usize,
    /// The number of virtual backups.
    virtuals: usize,
    /// The number of lives that began with the older image.
    rotted: usize,
}

impl Tables {
    pub fn new(seed: u64, log: LogForm) -> Tables {
        Tables {
            world: World::with(seed, options(log)),
            rng: fastrand::Rng::with_seed(seed),
            log,
            history: Vec::new(),
            live: Rows::default(),
            increments: 0,
            virtuals: 0,
            rotted: 0,
        }
    }

    /// Returns a database whose tables are declared after its first backup.
    pub fn later(seed: u64, log: LogForm) -> Tables {
        let mut tables = Tables {
            world: World::new(seed),
            ..Tables::new(seed + 1, log)
        };
        tables.world.set(1, Some(b"before the tables".to_vec()));
        tables.world.flush();
        tables.world.back_up();
        tables.live.keys = sums(values(tables.world.core()));
        tables.world.crash_into(options(log), seed);
        tables
    }

    /// Returns the form of the log.
    pub fn log(&self) -> LogForm {
        self.log
    }

    /// Returns the epochs of the transactions, ascending.
    pub fn epochs(&self) -> Vec<Epoch> {
        self.history.iter().map(|(epoch, _)| *epoch).collect()
    }

    /// Returns the rows after the last transaction.
    pub fn live(&self) -> Rows {
        self.live.clone()
    }

    pub fn call(&mut self) {
        let (from, to) = (self.rng.u64(..12), 12 + self.rng.u64(..12));
        let amount = self.rng.i64(1..50);
        let called = self.world.core().call::<transfer>(&(from, to, amount));
        let epoch = called.expect("a call").1.epoch;
        self.live.transfer(from, to, amount);
        self.history.push((epoch, self.live.clone()));
    }

    /// Changes rows outside a procedure: key-addressed rows, a page-addressed row, or both.
    fn write(&mut self) {
        let (id, at) = (self.rng.u64(..24), self.rng.u32(..6));
        let len = [0, 10, 900, 20_000][self.rng.usize(..4)];
        let (text, which) = (vec![self.rng.u8(..); len], self.rng.u8(1..4));
        let core = self.world.core();
        let done = core.transact(&core.all_partitions(), |tx| {
            let mut cx = Cx::new(tx, core.registry());
            if which & 1 > 0 {
                cx.remove::<Purse>(id)?;
            }
            if which & 2 > 0 {
                let memo = Memo {
                    at,
                    text: text.clone(),
                };
                match cx.contains::<Memo>(at)? {
                    true => cx.update(&memo)?,
                    false => cx.insert(&memo)?,
                }
            }
            Ok::<(), Error>(())
        });
        let epoch = done.expect("a transaction").1.epoch;
        let before = self.live.clone();
        if which & 1 > 0 {
            self.live.purses.remove(&id);
        }
        if which & 2 > 0 {
            self.live.memos.insert(at, sum(&text));
        }
        // The ticket of a transaction without a change names an older epoch.
        if self.live != before {
            self.history.push((epoch, self.live.clone()));
        }
    }

    fn set_key(&mut self) {
        let before = self.world.changes.len();
        self.world.set_any(&mut self.rng);
        if let Some(change) = self.world.changes.get(before) {
            let epoch = change.epoch;
            self.live.keys = sums(self.world.state(epoch));
            self.history.push((epoch, self.live.clone()));
        }
    }

    /// Cuts the power, and removes lost transactions from the model.
    fn crash(&mut self) {
        if self.rng.u8(..3) == 0 {
            self.rotted += usize::from(self.world.rot_newest_image());
        }
        self.world.crash(self.rng.u64(..));
        let durable = Epoch(self.world.core().report().durable_epoch);
        self.history.retain(|(epoch, _)| *epoch <= durable);
        self.live = self.state(durable);
        assert_eq!(Rows::read(self.world.core()), self.live, "after a crash");
    }

    /// Returns the rows at an epoch.
    fn state(&self, target: Epoch) -> Rows {
        let until = self.history.iter().rev();
        let last = until.clone().find(|(epoch, _)| *epoch <= target);
        last.map(|(_, rows)| rows.clone()).unwrap_or_default()
    }

    fn step(&mut self) {
        match self.rng.u8(..6) {
            0..3 => self.call(),
            3 => self.set_key(),
            _ => self.write(),
        }
    }

    /// Makes a history with archiving, backups and crashes.
    fn run(&mut self, steps: usize) {
        for round in 0..steps {
            self.step();
            self.world.flush();
            match self.rng.u8(..12) {
                0..3 => self.world.archive(),
                3 if round % 3 == 0 => self.world.back_up(),
                4 => self.crash(),
                5 => self.world.core().checkpoint_now().expect("an image"),
                6 => self.increments += usize::from(self.world.add_increment()),
                7 => self.virtuals += usize::from(self.world.back_up_virtually()),
                _ => {}
            }
        }
        self.world.archive();
    }

    fn restore(&self, epoch: Epoch) -> Result<(Restored, RestoreReport)> {
        carry_out(&self.world.plan(Some(At::Epoch(epoch)))?)
    }

    /// Restores a moment and compares the rows with the model. Returns the report.
    pub fn check(&self, epoch: Epoch) -> RestoreReport {
        let (disks, report) = self.restore(epoch).expect("a restore");
        assert_eq!(report.epoch, epoch);
        let core = disks.open_with(options(self.log)).expect("it opens");
        assert_eq!(Rows::read(&core), self.state(epoch), "epoch {epoch}");
        let played = core.report().ordered.as_ref().map_or(0, |pass| pass.played);
        assert_eq!(played, report.carried.frames(), "the new log is played");
        report
    }
}

/// The archive refused every moment between two backups, and a restore of the last state gave that of the backup.
#[test]
fn key_addressed_tables_are_restored_to_every_moment() {
    let (mut calls, mut effects, mut moments, mut to_replay) = (0, 0, 0, 0);
    let (mut increments, mut used, mut virtuals, mut rotted) = (0, 0, 0, 0);
    let histories = std::env::var("PERDURA_KEYED_HISTORIES").ok();
    let histories = histories.and_then(|count| count.parse().ok()).unwrap_or(3);
    for seed in 1..=histories {
        let log = [LogForm::Value, LogForm::Command][usize::from(seed % 2 == 1)];
        let mut tables = Tables::new(seed, log);
        tables.world.back_up();
        tables.run(140);
        let epochs: Vec<Epoch> = tables.history.iter().map(|(epoch, _)| *epoch).collect();
        assert!(epochs.len() > 60, "{} transactions", epochs.len());
        for epoch in epochs.iter().step_by(4) {
            let report = tables.check(*epoch);
            let plan = tables.world.plan(Some(At::Epoch(*epoch))).expect("a plan");
            used += usize::from(plan.increment().is_some());
            calls += report.carried.all_calls();
            effects += report.carried.effects;
            moments += 1;
        }
        let store = tables.world.store().expect("an archive");
        let reachable = Reachable::of(&store).expect("memory");
        assert_eq!(reachable.last(), Some(reachable.known), "up to the end");
        assert!(reachable.ranges.iter().all(|range| range.moments.is_none()));
        let plan = RestorePlan::from_archive(&store, None, |_, _| ()).expect("a plan");
        assert_eq!(reachable.frames_to_replay, plan.frames_at_most());
        to_replay += reachable.frames_to_replay;
        increments += tables.increments;
        virtuals += tables.virtuals;
        rotted += tables.rotted;
        let region = RegionDigest::new();
        let faults = store.verify(&region).expect("memory").faults;
        assert!(faults.is_empty(), "{:?}", faults[0].error);
    }
    assert!(
        increments > 5 && used > 10 && used < moments && virtuals > 0 && rotted > 0,
        "{increments} increments, used by {used} of {moments} restores, {virtuals} virtual backups, {rotted} images rotted"
    );
    assert!(
        calls > 100 && effects > 100 && moments > 60 && to_replay > 0,
        "{calls} calls, {effects} effects, {moments} moments, {to_replay} to replay"
    );
    println!("{increments} increments, used by {used} restores; {virtuals} virtual backups");
    println!("{moments} moments, {calls} calls and {effects} changes replayed");
}

/// Without a backup, the frames lead from an empty database to every moment.
#[test]
fn key_addressed_tables_are_restored_from_the_whole_log() {
    let mut tables = Tables::new(5, LogForm::Command);
    for _ in 0..40 {
        tables.step();
        tables.world.flush();
    }
    tables.world.archive();
    let epochs: Vec<Epoch> = tables.history.iter().map(|(epoch, _)| *epoch).collect();
    for epoch in epochs.iter().step_by(7) {
        tables.check(*epoch);
    }
}

/// A restored database is a database like any other: it crashes, is archived, and is restored itself.
#[test]
fn a_restored_database_with_frames_crashes_and_continues() {
    let mut tables = Tables::new(6, LogForm::Command);
    tables.world.back_up();
    tables.run(60);
    let last = tables.history.last().expect("a transaction").0;
    let (disks, report) = tables.restore(last).expect("a restore");
    assert!(report.carried.frames() > 0, "some frames follow the backup");
    for seed in 0..4 {
        let core = disks.open_with(options(tables.log)).expect("it opens");
        assert_eq!(Rows::read(&core), tables.live, "life {seed}");
        let (from, to) = (seed, 12 + seed);
        let called = core.call::<transfer>(&(from, to, 5));
        let _ticket = called.expect("a call");
        tables.live.transfer(from, to, 5);
        core.flush_all().expect("it is durable");
        if seed == 2 {
            core.checkpoint_now().expect("an image");
        }
        drop(core);
        disks.crash(seed);
    }
}

/// Restores a database with eight calls after its backup. The new log has the calls.
fn eight_calls_restored() -> (Tables, Restored) {
    let mut tables = Tables::new(7, LogForm::Command);
    tables.world.back_up();
    for _ in 0..8 {
        tables.call();
        tables.world.flush();
    }
    tables.world.archive();
    let last = tables.history.last().expect("a call").0;
    let (disks, report) = tables.restore(last).expect("a restore");
    assert_eq!(report.carried.frames(), 8);
    let calls = report.carried.calls.values().next().expect("calls");
    let epochs = tables.epochs();
    assert!(epochs[0] < epochs[7], "each call has an epoch");
    assert_eq!(
        (calls.count, calls.first, calls.last),
        (8, epochs[0], epochs[7]),
        "the epochs are those of the lost database"
    );
    (tables, disks)
}

/// The end of the new log may be lost before the first open, like that of any log. A restart takes a lost end for a torn
/// one, and cuts there. The restored calls would be gone in silence. So a restore vouches for the log that it wrote.
#[test]
fn a_restored_log_that_lost_its_end_is_refused() {
    let (tables, disks) = eight_calls_restored();
    let whole = disks.log.snapshot();
    let mut refused = 0;
    for (path, _) in disks.log.files() {
        let bytes = disks.log.read_all(&path).expect("it has power");
        let Some(end) = bytes.iter().rposition(|byte| *byte != 0) else {
            continue;
        };
        disks.log.zero_from(&path, to_u64(end / 512 * 512));
        let error = disks.open_with(options(tables.log)).map(drop);
        let error = error.expect_err(&format!("{path} lost its end"));
        assert!(error.to_string().contains("log"), "{error}");
        disks.log.restore(&whole);
        refused += 1;
    }
    assert!(refused > 0, "the new log has frames");
    let core = disks.open_with(options(tables.log)).expect("it opens");
    assert_eq!(Rows::read(&core), tables.live);
}

/// Commands between the backup and a moment use a table that was dropped before the moment. Once the images had the drop,
/// its row left the catalog, and no restore from the backup could replay the commands.
fn restored_after_a_drop(log: LogForm, forgets: bool) -> Result<(Rows, Rows)> {
    let mut tables = Tables::new(9, log);
    (0..4).for_each(|_| tables.call());
    tables.world.back_up();
    (0..16).for_each(|_| tables.call());
    let core = tables.world.core();
    let (flushed, _ticket) = core.drop_table("purses")?.expect("it is there");
    core.reclaim_flushed(flushed);
    for _ in 0..3 {
        core.checkpoint_now()?;
        if forgets {
            core.note_backup(CkptEpoch(u64::MAX));
        }
        for _ in 0..40 {
            core.purge_step()?;
        }
    }
    tables.world.archive();
    let (disks, _) = carry_out(&tables.world.plan(None)?)?;
    let core = disks.open_with(options(tables.log))?;
    tables.live.purses.clear();
    let found = Rows::read(&core);
    core.checkpoint_now()?;
    drop(core);
    disks.crash(3);
    let again = Rows::read(&disks.open_with(options(tables.log))?);
    assert_eq!(again, found, "after a crash");
    Ok((found, tables.live))
}

#[test]
fn a_restore_replays_commands_on_a_table_that_was_dropped_later() {
    for log in [LogForm::Command, LogForm::Value] {
        let (found, expected) = restored_after_a_drop(log, false).expect("a restore");
        assert_eq!(found, expected);
    }
}

/// If the row leaves the catalog before every backup has the drop, the first open of a restored database fails.
#[test]
fn a_dropped_table_that_the_catalog_forgot_early_is_missing_in_a_restore() {
    let refused = restored_after_a_drop(LogForm::Command, true).expect_err("the table is needed");
    assert!(refused.to_string().contains("transfer"), "{refused}");
}

/// A program without the procedure cannot replay the calls. The error names the procedure, and nothing changes.
#[test]
fn a_program_without_the_procedure_is_refused_by_name() {
    let (tables, disks) = eight_calls_restored();
    let refused = disks.open().map(drop).expect_err("it has no procedure");
    let said = refused.to_string();
    assert!(
        said.contains("transfer") && said.contains("first in epoch"),
        "{said}"
    );
    let core = disks.open_with(options(tables.log)).expect("it opens");
    assert_eq!(Rows::read(&core), tables.live);
}

#[cfg(feature = "flaws")]
#[test]
fn the_seeded_bug_of_frames_judged_by_epoch_is_caught() {
    use perdura_base::flaw::{Flaw, arm};
    let mut tables = Tables::new(8, LogForm::Command);
    (0..4).for_each(|_| tables.call());
    let core = tables.world.core();
    core.checkpoints().begin().expect("the cut");
    tables.call();
    tables.world.core().flush_all().expect("a flush");
    tables.world.back_up();
    tables.world.archive();
    let last = tables.history.last().expect("a call").0;
    let found = || {
        let (disks, _) = tables.restore(last)?;
        let core = disks.open_with(options(tables.log))?;
        Ok::<_, Error>(Rows::read(&core))
    };
    arm(Some(Flaw::FrameJudgedByEpoch));
    let flawed = found();
    arm(None);
    assert_eq!(found().expect("a restore"), tables.live);
    assert!(!matches!(flawed, Ok(rows) if rows == tables.live));
}
