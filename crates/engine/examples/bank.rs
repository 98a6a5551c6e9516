//! A bank: accounts are rows of a typed table, a transfer is a procedure, and the log holds the procedure's name and
//! its arguments.
//!
//! The example shows a procedure that refuses, many calls with a single wait for the disk, an index, and a snapshot. It
//! also shows a restart after the process has ended without closing the database: the logged transfers run again.
//!
//! ```sh
//! cargo run --release -p perdura --example bank
//! ```

use std::error::Error as StdError;

use perdura::typed::LogForm;
use perdura::{Abort, Db, Error, procedure, table};

const ACCOUNTS: u64 = 100;
const START_CENTS: i64 = 10_000;
const THREADS: u64 = 4;
const TRANSFERS_EACH: u64 = 500;

table! {
    /// An account.
    pub struct Account in "accounts", addressing = key {
        key(id: u64),
        owner: String,
        balance: i64;
        index by_owner(owner: String)
    }
}

procedure! {
    /// Moves money. Returns the payer's new balance.
    pub fn transfer(cx, from: u64, to: u64, amount: i64) -> i64,
    on [Account(from), Account(to)] {
        let mut payer = cx.get::<Account>(from)?.ok_or("no such account")?;
        if payer.balance < amount {
            return Err("not enough".into());
        }
        payer.balance -= amount;
        cx.update(&payer)?;
        // Read the payee after the payer is written: they may be the same account.
        cx.modify::<Account>(to, |payee| payee.balance += amount)?;
        Ok(payer.balance)
    }
}

fn open(path: &std::path::Path) -> Result<Db, Error> {
    Db::builder(path)
        .table::<Account>()
        .procedure(transfer)
        .log(LogForm::Command)
        .open()
}

/// Makes one thread's transfers. Returns the number of transfers made, and the number refused.
fn customer(db: &Db, thread: u64) -> Result<(u64, u64), Abort> {
    let (mut made, mut refused, mut last) = (0, 0, None);
    for i in 0..TRANSFERS_EACH {
        let draw = (thread + 1) * 7919 + i * 104_729;
        let (from, to) = (draw % ACCOUNTS, draw / 7 % ACCOUNTS);
        let amount = i64::try_from(draw % 5000).unwrap_or(0);
        match db.submit(transfer, (from, to, amount)) {
            Ok(pending) => {
                made += 1;
                last = Some(pending);
            }
            Err(Abort::Refused(_)) => refused += 1,
            Err(other) => return Err(other),
        }
    }
    // The calls of a thread become durable in their order, so waiting for the last call is enough.
    if let Some(pending) = last {
        pending.wait()?;
    }
    Ok((made, refused))
}

/// Returns the sum of all balances at one instant, while other threads continue.
fn total(db: &Db) -> Result<i64, Error> {
    let mut total = 0;
    db.snapshot()?
        .each::<Account>(|account| total += account.balance)?;
    Ok(total)
}

fn main() -> Result<(), Box<dyn StdError>> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("bank");
    let db = open(&path)?;
    db.write(|tx| {
        (0..ACCOUNTS).try_for_each(|id| {
            let owner = format!("owner {}", id % 7);
            let balance = START_CENTS;
            tx.insert(&Account { id, owner, balance })
        })
    })?;
    let sum = i64::try_from(ACCOUNTS)? * START_CENTS;

    let customers = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let db = &db;
                scope.spawn(move || customer(db, thread))
            })
            .collect();
        assert_eq!(total(&db).ok(), Some(sum), "at any instant");
        threads
            .into_iter()
            .map(|thread| thread.join().expect("a customer's thread"))
            .collect::<Result<Vec<_>, _>>()
    })?;
    let made: u64 = customers.iter().map(|(made, _)| made).sum();
    let refused: u64 = customers.iter().map(|(_, refused)| refused).sum();
    println!("{made} transfers made, {refused} refused");
    assert_eq!(made + refused, THREADS * TRANSFERS_EACH);

    let mine = db.read(|tx| tx.by(Account::by_owner, "owner 3").collect::<Vec<_>>())?;
    println!("owner 3 has {} accounts", mine.len());

    // This stops using the database without closing it. All transfers that a thread waited for are in the log.
    db.abandon();
    let db = open(&path)?;
    let again = db.report().ordered.map_or(0, |ordered| ordered.played);
    println!("{again} transactions played again after the restart");
    assert_eq!(total(&db)?, sum);
    println!("not a cent is missing");
    db.close()?;
    Ok(())
}
