//! Typed tables and procedures in a database. With each form of the log, the data must survive a crash. Other tests
//! make calls that must be refused.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use perdura::yardstick::Yardstick;
use perdura::{
    Abort, Builder, CheckpointProgress, Core, Db, Error, LogForm, Options, Result, ValueForm,
    procedure, table,
};
use perdura_device::{CrashProfile, SimDisk};

use crate::core_steps::{env, get, pages_of, small};

table! {
    /// An account.
    pub struct Account in "accounts", addressing = key {
        key(id: u64),
        owner: String,
        balance: i64;
        index by_owner(owner: String);
        unique index by_name_and_id(owner: String, id: u64)
    }
}

table! {
    /// The record of a transfer. Its rows have no key.
    pub struct Entry in "entries", addressing = key { from: u64, to: u64, amount: i64, at_ms: u64 }
}

table! {
    /// A rate. Every partition has a copy.
    pub struct Rate in "rates", addressing = key, replicated { key(currency: u32), rate: i64 }
}

table! {
    /// A page-addressed table.
    pub struct Note in "notes", addressing = page, order = ordered { key(id: u64), text: String }
}

procedure! {
    /// Moves money.
    pub fn transfer(cx, from: u64, to: u64, amount: i64) -> i64,
    on [Account(from), Account(to)] {
        let mut payer = cx.get::<Account>(from)?.ok_or("no such account")?;
        if payer.balance < amount {
            return Err("not enough".into());
        }
        payer.balance -= amount;
        cx.update(&payer)?;
        cx.modify::<Account>(to, |payee| payee.balance += amount)?;
        let at_ms = cx.now();
        let entry = Entry { from, to, amount, at_ms };
        cx.append(&entry)?;
        Ok(payer.balance)
    }
}

procedure! {
    /// Pays the rate and a random bonus to each account.
    pub fn pay_interest(cx, currency: u32, accounts: u64) -> i64, on all {
        let rate = cx.get::<Rate>(currency)?.ok_or("no such currency")?.rate;
        let mut paid = 0;
        for id in 0..accounts {
            let bonus = i64::try_from(cx.random()? % 5).unwrap_or(0);
            cx.modify::<Account>(id, |account| account.balance += rate + bonus)?;
            paid += rate + bonus;
        }
        Ok(paid)
    }
}

procedure! {
    /// Changes an account that it does not declare.
    pub fn careless(cx, declared: u64, other: u64) -> (), on [Account(declared)] {
        cx.modify::<Account>(declared, |account| account.balance += 1)?;
        cx.modify::<Account>(other, |account| account.balance += 1)?;
        Ok(())
    }
}

procedure! {
    /// Uses a page-addressed table.
    pub fn annotate(cx, id: u64) -> (), on [Account(id)] {
        let text = match cx.get::<Note>(id)? {
            Some(note) => note.text,
            None => "none".into(),
        };
        cx.modify::<Account>(id, |account| account.owner = text)?;
        Ok(())
    }
}

procedure! {
    /// Writes, and then panics.
    pub fn panics(cx, id: u64) -> (), on [Account(id)] {
        cx.modify::<Account>(id, |account| account.balance = 0)?;
        std::panic::resume_unwind(Box::new("a bug of the program"))
    }
}

pub(crate) fn builder(path: &Path, log: LogForm) -> Builder {
    Db::builder(path)
        .options(|options| options.partitions = 8)
        .table::<Account>()
        .table::<Entry>()
        .table::<Rate>()
        .table::<Note>()
        .procedure(transfer)
        .procedure(pay_interest)
        .procedure(careless)
        .procedure(annotate)
        .procedure(panics)
        .log(log)
}

pub(crate) const ACCOUNTS: u64 = 24;

pub(crate) fn fill(db: &Db) -> Result<()> {
    db.write(|tx| {
        for id in 0..ACCOUNTS {
            let owner = format!("owner {}", id % 5);
            tx.insert(&Account {
                id,
                owner,
                balance: 100,
            })?;
        }
        tx.insert(&Rate {
            currency: 7,
            rate: 3,
        })?;
        tx.insert(&Note {
            id: 3,
            text: "noted".into(),
        })
    })
}

/// Makes a fixed series of calls. Some calls are refused.
pub(crate) fn play(db: &Db) {
    for i in 0..200_u64 {
        let (from, to) = (i * 7 % ACCOUNTS, i * 13 % (ACCOUNTS + 1));
        let amount = i64::try_from(i % 60).unwrap_or(0);
        // Some of these calls are refused on purpose.
        let _maybe = db.call(transfer, (from, to, amount));
        if i % 20 == 0 {
            db.call(pay_interest, (7, ACCOUNTS)).unwrap();
            db.call(careless, (from, (from + 1) % ACCOUNTS)).unwrap();
            db.call(annotate, (3,)).unwrap();
        }
    }
}

pub(crate) type State = (Vec<Account>, Vec<(u64, u64, i64)>, Vec<Rate>, Vec<Note>);

pub(crate) fn state(db: &Db) -> State {
    let mut accounts = Vec::new();
    let snapshot = db.snapshot().unwrap();
    snapshot
        .each::<Account>(|account| accounts.push(account))
        .unwrap();
    accounts.sort_by_key(|account| account.id);
    let mut entries = Vec::new();
    let note = |entry: Entry| entries.push((entry.from, entry.to, entry.amount));
    snapshot.each::<Entry>(note).unwrap();
    entries.sort_unstable();
    let (mut rates, mut notes) = (Vec::new(), Vec::new());
    snapshot.each::<Rate>(|rate| rates.push(rate)).unwrap();
    snapshot.each::<Note>(|note| notes.push(note)).unwrap();
    (accounts, entries, rates, notes)
}

#[test]
fn every_form_of_the_log_brings_the_same_data_back() {
    let forms = [
        (LogForm::Command, ValueForm::Columns, false),
        (LogForm::Value, ValueForm::Columns, false),
        (LogForm::Value, ValueForm::Rows, false),
        (LogForm::Value, ValueForm::Before, false),
        (LogForm::Value, ValueForm::Columns, true),
    ];
    for checkpoint in [false, true] {
        for (log, form, pages) in forms {
            let dir = tempfile::tempdir().unwrap();
            let open = || {
                let builder = builder(dir.path(), log).value_form(form);
                let builder = if pages {
                    builder.page_addressed()
                } else {
                    builder
                };
                builder.open().unwrap()
            };
            let db = open();
            fill(&db).unwrap();
            play(&db);
            if checkpoint {
                db.checkpoint().unwrap();
                play(&db);
            }
            let (before, digest) = (state(&db), db.digest().unwrap());
            db.abandon();
            let db = open();
            let what = (log, form, pages, checkpoint);
            assert_eq!(state(&db), before, "{what:?}");
            assert_eq!(db.digest().unwrap(), digest, "{what:?}");
            let played = db.report().ordered.map_or(0, |ordered| ordered.played);
            // Page records are not ordered, so no ordered frame is in the log.
            assert_eq!(played == 0, pages, "{what:?}");
            // Sequences and counters continue, so rows without a key get new ids.
            play(&db);
            let twice = state(&db);
            db.abandon();
            assert_eq!(state(&open()), twice, "{what:?}");
        }
    }
}

#[test]
fn an_index_finds_what_a_restart_brought_back_and_no_two_rows_share_a_unique_key() {
    let dir = tempfile::tempdir().unwrap();
    let db = builder(dir.path(), LogForm::Command).open().unwrap();
    fill(&db).unwrap();
    play(&db);
    db.abandon();
    let db = builder(dir.path(), LogForm::Command).open().unwrap();
    let of_one = db
        .read(|tx| tx.by(Account::by_owner, "owner 1").collect::<Vec<_>>())
        .unwrap();
    assert_eq!(of_one.len(), 5);
    let twice = Account {
        id: 1,
        owner: "again".into(),
        balance: 1,
    };
    let refused = db.write(|tx| tx.insert(&twice)).unwrap_err().to_string();
    assert!(refused.contains("accounts"), "{refused}");
    assert_eq!(db.read(|tx| tx.count::<Account>()).unwrap(), ACCOUNTS);
}

#[test]
fn a_refused_call_and_a_panic_leave_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let db = builder(dir.path(), LogForm::Command).open().unwrap();
    fill(&db).unwrap();
    let before = state(&db);
    let refused = db.call(transfer, (1, 2, 1_000_000)).unwrap_err();
    assert!(
        matches!(&refused, Abort::Refused(why) if why == "not enough"),
        "{refused}"
    );
    assert!(catch_unwind(AssertUnwindSafe(|| db.call(panics, (1,)))).is_err());
    assert_eq!(state(&db), before);
    db.call(transfer, (1, 2, 5)).unwrap();
    let after = state(&db);
    db.abandon();
    assert_eq!(
        state(&builder(dir.path(), LogForm::Command).open().unwrap()),
        after
    );
}

#[test]
fn a_strict_call_that_cannot_be_a_command_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let db = builder(dir.path(), LogForm::Command)
        .strict(true)
        .open()
        .unwrap();
    fill(&db).unwrap();
    let before = state(&db);
    for (refused, says) in [
        (db.call(careless, (1, 2)).unwrap_err(), "did not declare"),
        (db.call(annotate, (3,)).unwrap_err(), "page-addressed"),
    ] {
        let text = refused.to_string();
        assert!(text.contains(says), "{text}");
    }
    assert_eq!(state(&db), before);
}

#[test]
fn a_log_with_calls_of_a_procedure_that_the_program_lacks_is_refused_by_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let db = builder(dir.path(), LogForm::Command).open().unwrap();
    fill(&db).unwrap();
    db.call(transfer, (1, 2, 5)).unwrap();
    let before = state(&db);
    db.abandon();

    let without = Db::builder(dir.path())
        .table::<Account>()
        .log(LogForm::Command);
    let refused = without.open().err().unwrap();
    assert!(matches!(refused, Error::Usage(_)), "{refused}");
    let text = refused.to_string();
    assert!(text.contains("transfer(u64,u64,i64)"), "{text}");

    // The procedure gets another hash, as if its body had changed.
    let mut options = builder(dir.path(), LogForm::Command).into_options();
    let mut procedures = options.typed.procedures.to_vec();
    procedures[0].hash ^= 1;
    options.typed.procedures = procedures.into();
    let refused = Db::open(options.clone()).err().unwrap().to_string();
    assert!(refused.contains("transfer"), "{refused}");

    // The refused open has changed nothing. After a clean close the new version of the procedure is
    // accepted.
    let db = builder(dir.path(), LogForm::Command).open().unwrap();
    assert_eq!(state(&db), before);
    db.close().unwrap();
    let db = Db::open(options).unwrap();
    assert_eq!(state(&db), before);
    let refused = db.call(transfer, (1, 2, 5)).unwrap_err().to_string();
    assert!(
        refused.contains("was not opened with procedure transfer"),
        "{refused}"
    );
}

#[test]
fn a_schema_that_is_not_the_catalogs_is_refused_with_the_column() {
    mod other {
        perdura::table! {
            /// A second version of the table: a column has a different type.
            pub struct Account in "accounts", addressing = key {
                key(id: u64), owner: String, balance: u32;
                index by_owner(owner: String)
            }
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let db = builder(dir.path(), LogForm::Value).open().unwrap();
    fill(&db).unwrap();
    db.close().unwrap();
    let refused = Db::builder(dir.path()).table::<other::Account>().open();
    let text = refused.err().unwrap().to_string();
    assert!(
        text.contains("accounts") && text.contains("balance"),
        "{text}"
    );
}

#[test]
fn a_database_that_logs_nothing_says_so_and_opens_as_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let open = || {
        let options = builder(dir.path(), LogForm::Value).into_options();
        let (disks, locks) = perdura::files::open(&options).unwrap();
        let opened = Db::open_by(Yardstick::Unlogged, options, disks, locks, None);
        opened.unwrap()
    };
    let db = open();
    fill(&db).unwrap();
    db.checkpoint().unwrap();
    let before = state(&db);
    play(&db);
    db.abandon();
    let db = open();
    assert_eq!(state(&db), before, "what the image has");
    db.close().unwrap();
    let refused = Db::open(Options::new(dir.path()))
        .err()
        .unwrap()
        .to_string();
    assert!(refused.contains("none"), "{refused}");
}

#[test]
fn a_snapshot_is_one_instant_while_writers_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let db = builder(dir.path(), LogForm::Value).open().unwrap();
    fill(&db).unwrap();
    let total = |db: &Db| {
        let mut total = 0;
        let snapshot = db.snapshot().unwrap();
        snapshot
            .each::<Account>(|account| total += account.balance)
            .unwrap();
        total
    };
    let expected = total(&db);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for i in 0..2000_u64 {
                let _maybe = db.call(transfer, (i % ACCOUNTS, i * 5 % ACCOUNTS, 7));
            }
        });
        while !writer.is_finished() {
            assert_eq!(total(&db), expected);
        }
    });
    assert_eq!(total(&db), expected);
    db.checkpoint().unwrap();
    assert_eq!(
        db.stats().memory.kept,
        0,
        "nothing is kept for a snapshot that is gone"
    );
}

/// A database that logs nothing has only its images. The simulator found two bugs (seed 4749 of its typed tables).
/// First, without typed tables the images were fuzzy sweeps. Such an image could have the later half of a transaction
/// without the earlier half. Second, the restart trusted the image's sidecar. The sidecar is written some time after
/// the instant that the image's pages show. During that time a row may have moved, and no log record said so.
#[test]
fn the_image_of_a_database_that_logs_nothing_has_whole_transactions_also_of_bytes() {
    let disk = SimDisk::new(1);
    let options = small();
    let open = || {
        let opened = Core::open_by(
            Yardstick::Unlogged,
            env(&disk, 1),
            options.clone(),
            Arc::default(),
        );
        opened.unwrap()
    };
    let keys: Vec<String> = (0..40).map(|key| format!("key {key}")).collect();
    let turn = |number: u32| format!("turn {number}");
    let core = open();
    let write = |number: u32| {
        let all = core.all_partitions();
        let written = core.transact(&all, |tx| {
            let (table, value) = (core.database(0), number.to_le_bytes());
            let mut keys = keys.iter();
            keys.try_for_each(|key| tx.put(table, key.as_bytes(), &value, None).map(drop))?;
            // Removes a row, and inserts another row, which gets the same slot.
            tx.delete(table, turn(number.wrapping_sub(1)).as_bytes())?;
            tx.put(table, turn(number).as_bytes(), &value, None)
        });
        let _lost_without_an_image = written.unwrap();
    };
    write(0);
    core.checkpoint_begin().unwrap();
    for number in 1.. {
        match core.checkpoint_step().unwrap() {
            CheckpointProgress::Waiting => core.flush_all().unwrap(),
            CheckpointProgress::Done => break,
            CheckpointProgress::Working(_) | CheckpointProgress::Idle => write(number),
        }
    }
    drop(core);
    disk.crash(CrashProfile::Nothing, 1);
    let core = open();
    let found: Vec<_> = keys.iter().map(|key| get(&core, key)).collect();
    let first = Some(0_u32.to_le_bytes().to_vec());
    assert_eq!(found, vec![first.clone(); keys.len()]);
    assert_eq!(get(&core, &turn(0)), first);
    assert!((1..40).all(|number| get(&core, &turn(number)).is_none()));
}

#[test]
fn an_older_image_does_not_stand_in_where_no_log_has_what_it_lacks() {
    let disk = SimDisk::new(1);
    let options = small();
    let open = || {
        Core::open_by(
            Yardstick::Unlogged,
            env(&disk, 1),
            options.clone(),
            Arc::default(),
        )
    };
    let core = open().unwrap();
    for number in 0..2_u32 {
        let all = core.all_partitions();
        let put = core.transact(&all, |tx| {
            tx.put(core.database(0), b"key", &number.to_le_bytes(), None)
        });
        let _in_the_image = put.unwrap();
        core.checkpoint_now().unwrap();
    }
    drop(core);
    let (path, len) = pages_of(&disk, "image-b");
    let whole = disk.snapshot();
    for at in (4096..len).step_by(1000) {
        disk.flip(&path, at, 1);
    }
    let refused = open().err().unwrap();
    assert!(matches!(refused, Error::Corrupt(_)), "{refused}");
    let text = refused.to_string();
    assert!(
        text.contains("the log of this database has no records of pages"),
        "{text}"
    );
    disk.restore(&whole);
    let core = open().unwrap();
    assert_eq!(get(&core, "key"), Some(1_u32.to_le_bytes().to_vec()));
}
