//! Replays that differ from the log. They stop the restart, but with `accept_divergence` the restart continues.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use perdura::typed::{AcceptDivergence, Registered};
use perdura::{Db, Error, LogForm, Options, procedure};
use perdura_recovery::ordered::{Differs, Divergence};

use crate::typed::{Account, Entry, builder, fill, state, transfer};

procedure! {
    /// Makes an account.
    pub fn open_account(cx, id: u64, balance: i64) -> (), on [Account(id)] {
        cx.insert(&Account { id, owner: "new".into(), balance })?;
        Ok(())
    }
}

procedure! {
    /// Has the arguments of `open_account`, but makes no account.
    pub fn open_no_account(cx, id: u64, balance: i64) -> (), on [Account(id)] {
        let _there = cx.get::<Account>(id)?;
        let _not_used = balance;
        Ok(())
    }
}

procedure! {
    /// Has the arguments of `transfer`. Writes, and then panics.
    pub fn panics_instead(cx, from: u64, to: u64, amount: i64) -> i64,
    on [Account(from), Account(to)] {
        cx.modify::<Account>(from, |payer| payer.balance -= amount)?;
        std::panic::resume_unwind(Box::new(to))
    }
}

procedure! {
    /// Has the arguments of `transfer`. Writes, and then refuses.
    pub fn refuses_instead(cx, from: u64, to: u64, amount: i64) -> i64,
    on [Account(from), Account(to)] {
        cx.modify::<Account>(from, |payer| payer.balance -= amount)?;
        Err(format!("no transfers to {to}").into())
    }
}

procedure! {
    /// Uses an account in a partition that the log frame of a transfer does not name.
    pub fn strays_instead(cx, from: u64, to: u64, amount: i64) -> i64,
    on [Account(from), Account(to)] {
        cx.modify::<Account>(from + to, |other| other.balance -= amount)?;
        Ok(0)
    }
}

procedure! {
    /// Transfers one more than `amount`.
    pub fn transfer_more(cx, from: u64, to: u64, amount: i64) -> i64,
    on [Account(from), Account(to)] {
        cx.modify::<Account>(from, |payer| payer.balance -= amount + 1)?;
        cx.modify::<Account>(to, |payee| payee.balance += amount + 1)?;
        Ok(0)
    }
}

/// The number of calls of `rarely_random` so far.
static RUNS: AtomicU64 = AtomicU64::new(0);

procedure! {
    /// Adds one to the balance. For amount 7, also adds a different number in each run.
    pub fn rarely_random(cx, id: u64, amount: i64) -> (), on [Account(id)] {
        let run = RUNS.fetch_add(1, Ordering::Relaxed);
        let extra = if amount == 7 { 1000 + run.cast_signed() } else { 0 };
        cx.modify::<Account>(id, |account| account.balance += 1 + extra)?;
        Ok(())
    }
}

#[test]
fn a_procedure_that_is_random_in_one_call_of_a_hundred_stops_the_restart() {
    let dir = tempfile::tempdir().unwrap();
    let options = || {
        builder(dir.path(), LogForm::Command)
            .procedure(rarely_random)
            .into_options()
    };
    let db = Db::open(options()).unwrap();
    fill(&db).unwrap();
    for call in 0..100 {
        // This call changes a row that no other call changes, so that no other call differs.
        let args = if call == 57 { (2, 7) } else { (1, 1) };
        db.call(rarely_random, args).unwrap();
    }
    let acknowledged = balance(&db, 2);
    db.abandon();
    let why = refusal(options());
    assert!(why.contains("rarely_random"), "{why}");
    assert!(why.contains("effects with the hash"), "{why}");
    let (db, heard) = accepting(options());
    assert_eq!(heard.len(), 1, "one call differed: {heard:?}");
    assert_ne!(balance(&db, 2), acknowledged);
}

fn options(path: &Path) -> Options {
    builder(path, LogForm::Command)
        .procedure(open_account)
        .into_options()
}

/// Returns options in which `P` replaces the procedure `name`. `P` gets the name, types and hash of that procedure.
fn in_its_stead<P: perdura::tables::Procedure>(path: &Path, name: &str) -> Options {
    let mut options = options(path);
    let mut procedures = options.typed.procedures.to_vec();
    let place = procedures.iter().position(|mine| mine.name == name);
    let place = &mut procedures[place.unwrap()];
    let mut other = Registered::of::<P>();
    (other.name, other.hash, other.types) = (place.name, place.hash, place.types.clone());
    *place = other;
    options.typed.procedures = Arc::from(procedures);
    options
}

/// Opens a database and accepts differences. Returns the database and the reported differences.
fn accepting(mut options: Options) -> (Db, Vec<Divergence>) {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let hear = Arc::clone(&heard);
    options.typed.accept = Some(AcceptDivergence::new(move |found| {
        hear.lock().unwrap().push(found.clone());
    }));
    let db = Db::open(options).unwrap();
    let heard = heard.lock().unwrap().clone();
    (db, heard)
}

fn balance(db: &Db, id: u64) -> i64 {
    let account = db.read(|tx| tx.get::<Account>(id)).unwrap();
    account.unwrap().balance
}

fn refusal(options: Options) -> String {
    Db::open(options).err().unwrap().to_string()
}

/// Makes a crashed database. Its last two calls are a transfer of 5 from account 1 to 2, and the opening of an account.
fn crashed(path: &Path) {
    let db = Db::open(options(path)).unwrap();
    fill(&db).unwrap();
    db.call(transfer, (1, 2, 5)).unwrap();
    db.call(open_account, (1001, 50)).unwrap();
    db.abandon();
}

/// Checks a database after a restart that accepted differences. Later restarts must need no flag, whichever program
/// opens the database, and new calls must work.
fn holds_without_the_flag(db: Db, path: &Path) {
    let notes = db.report().notes.join("\n");
    assert!(notes.contains("Checkpoint"), "{notes}");
    let (before, digest) = (state(&db), db.digest().unwrap());
    db.abandon();
    let db = Db::open(options(path)).unwrap();
    assert!(db.report().divergences.is_empty());
    assert_eq!(db.digest().unwrap(), digest);
    assert_eq!(state(&db), before);
    // The sequence numbers must have no gap, so that calls that are logged from now on are
    // replayed.
    db.call(transfer, (1, 2, 1)).unwrap();
    db.write(|tx| tx.modify::<Account>(2, |account| account.balance += 1))
        .unwrap();
    let after = state(&db);
    db.abandon();
    assert_eq!(state(&Db::open(options(path)).unwrap()), after);
}

#[test]
fn a_procedure_that_does_something_else_at_replay_stops_the_restart_and_names_the_way_out() {
    let dir = tempfile::tempdir().unwrap();
    crashed(dir.path());
    let way_out = "--accept-divergence";
    for (options, says) in [
        (
            in_its_stead::<transfer_more>(dir.path(), "transfer"),
            "hash",
        ),
        (
            in_its_stead::<panics_instead>(dir.path(), "transfer"),
            "it panics now",
        ),
        (
            in_its_stead::<refuses_instead>(dir.path(), "transfer"),
            "no transfers to 2",
        ),
        (
            in_its_stead::<strays_instead>(dir.path(), "transfer"),
            "used a row of partition",
        ),
    ] {
        let text = refusal(options);
        for part in ["transfer(u64,u64,i64)", says, way_out] {
            assert!(text.contains(part), "no {part:?} in {text}");
        }
    }
    let mut other_body = options(dir.path());
    let mut procedures = other_body.typed.procedures.to_vec();
    procedures[0].hash ^= 1;
    other_body.typed.procedures = procedures.into();
    assert!(refusal(other_body).contains(way_out));
    let db = Db::open(options(dir.path())).unwrap();
    assert_eq!(db.read(|tx| tx.count::<Entry>()).unwrap(), 1);
    assert_eq!(balance(&db, 2), 105);
}

#[test]
fn what_differs_is_named_and_the_new_result_stands() {
    let dir = tempfile::tempdir().unwrap();
    crashed(dir.path());
    let (db, heard) = accepting(in_its_stead::<transfer_more>(dir.path(), "transfer"));
    assert_eq!(heard.len(), 1);
    assert_eq!(heard[0].differs, Differs::Effects);
    let line = heard[0].to_string();
    assert!(
        line.starts_with("procedure transfer(u64,u64,i64), version ")
            && line.contains("of partition"),
        "{line}"
    );
    assert_ne!(heard[0].expected, heard[0].found);
    assert_eq!(db.report().divergences.listed, heard);
    assert_eq!((balance(&db, 1), balance(&db, 2)), (94, 106));
    assert_eq!(balance(&db, 1001), 50);
    holds_without_the_flag(db, dir.path());
}

#[test]
fn a_call_that_aborts_at_replay_changes_nothing_and_keeps_its_numbers() {
    for panics in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        crashed(dir.path());
        let (db, heard) = accepting(match panics {
            true => in_its_stead::<panics_instead>(dir.path(), "transfer"),
            false => in_its_stead::<refuses_instead>(dir.path(), "transfer"),
        });
        assert_eq!(heard.len(), 1);
        assert_eq!(heard[0].differs, Differs::Abort);
        assert_eq!((balance(&db, 1), balance(&db, 2)), (100, 100));
        assert_eq!(balance(&db, 1001), 50, "what came behind it is there");
        holds_without_the_flag(db, dir.path());
    }
}

#[test]
fn another_text_under_the_same_name_runs_in_its_stead() {
    let dir = tempfile::tempdir().unwrap();
    crashed(dir.path());
    let mut other_body = options(dir.path());
    let mut procedures = other_body.typed.procedures.to_vec();
    procedures[0].hash ^= 1;
    other_body.typed.procedures = procedures.into();
    let (db, heard) = accepting(other_body);
    assert_eq!(heard.len(), 1, "{heard:?}");
    assert_eq!(heard[0].differs, Differs::Body);
    assert_eq!((balance(&db, 1), balance(&db, 2)), (95, 105));
    holds_without_the_flag(db, dir.path());
}

#[test]
fn a_procedure_that_the_program_lacks_cannot_be_accepted() {
    let dir = tempfile::tempdir().unwrap();
    crashed(dir.path());
    let db = Db::open(options(dir.path())).unwrap();
    let before = state(&db);
    db.abandon();
    let without = builder(dir.path(), LogForm::Command).accept_divergence(|_| ());
    let refused = without.open().err().unwrap();
    assert!(matches!(refused, Error::Usage(_)), "{refused}");
    assert!(refused.to_string().contains("open_account(u64,i64)"));
    assert_eq!(state(&Db::open(options(dir.path())).unwrap()), before);
}

#[test]
fn changes_of_a_row_that_a_replay_did_not_make_are_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(options(dir.path())).unwrap();
    fill(&db).unwrap();
    for id in [1001, 1002, 1003] {
        db.call(open_account, (id, 50)).unwrap();
    }
    db.write(|tx| tx.modify::<Account>(1001, |account| account.balance = 7))
        .unwrap();
    db.write(|tx| tx.remove::<Account>(1002).map(drop)).unwrap();
    db.call(transfer, (1003, 1, 9)).unwrap();
    db.abandon();
    let lacks = || in_its_stead::<open_no_account>(dir.path(), "open_account");
    assert!(refusal(lacks()).contains("open_account"));
    let (db, heard) = accepting(lacks());
    let count = |differs| {
        heard
            .iter()
            .filter(|found| found.differs == differs)
            .count()
    };
    assert_eq!(count(Differs::Effects), 3, "{heard:?}");
    assert_eq!(count(Differs::Row), 2, "{heard:?}");
    assert_eq!(count(Differs::Abort), 1, "{heard:?}");
    assert_eq!(balance(&db, 1), 100);
    for id in [1001, 1002, 1003] {
        assert_eq!(db.read(|tx| tx.get::<Account>(id)).unwrap(), None);
    }
    holds_without_the_flag(db, dir.path());
}
