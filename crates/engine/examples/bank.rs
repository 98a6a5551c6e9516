//! A bank: transfers from many threads, refused when an account has too little.
//!
//! It shows a transaction that fails with an error of the program's own, many writes with one wait
//! for the disk, and what is there after the process has ended without saying goodbye.
//!
//! ```sh
//! cargo run --release -p perdura --example bank
//! ```

use std::error::Error as StdError;
use std::fmt;

use perdura::{Db, Error, Options, Tx};

const ACCOUNTS: u64 = 100;
const START_CENTS: u64 = 10_000;
const THREADS: u64 = 4;
const TRANSFERS_EACH: u64 = 500;

/// Why a transfer did not happen.
#[derive(Debug)]
enum Refused {
    TooPoor { has: u64, wants: u64 },
    Database(Error),
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Refused::Database(error)
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::TooPoor { has, wants } => write!(f, "{has} cents do not pay {wants}"),
            Refused::Database(error) => error.fmt(f),
        }
    }
}

impl StdError for Refused {}

fn key(account: u64) -> Vec<u8> {
    format!("account:{account}").into_bytes()
}

fn balance(db: &Db, tx: &Tx<'_>, account: u64) -> Result<u64, Error> {
    let row = tx.get(db.database(0), &key(account))?;
    let bytes = row.and_then(|row| row.value().first_chunk().copied());
    Ok(u64::from_le_bytes(bytes.unwrap_or_default()))
}

fn set_balance(db: &Db, tx: &mut Tx<'_>, account: u64, cents: u64) -> Result<(), Error> {
    tx.put(db.database(0), &key(account), &cents.to_le_bytes(), None)
}

/// Moves money. The transaction is visible on return; the caller waits for the ticket.
fn transfer(db: &Db, from: u64, to: u64, wants: u64) -> Result<perdura::Ticket, Refused> {
    let ((), ticket) = db.write_later(|tx| {
        let has = balance(db, tx, from)?;
        let rest = has.checked_sub(wants);
        let rest = rest.ok_or(Refused::TooPoor { has, wants })?;
        set_balance(db, tx, from, rest)?;
        // Read behind the write: the two accounts may be the same one.
        let cents = balance(db, tx, to)?;
        set_balance(db, tx, to, cents + wants)?;
        Ok::<_, Refused>(())
    })?;
    Ok(ticket)
}

/// One thread's transfers: how many were made, and how many refused.
fn customer(db: &Db, thread: u64) -> Result<(u64, u64), Refused> {
    let (mut made, mut refused, mut last) = (0, 0, None);
    for i in 0..TRANSFERS_EACH {
        let draw = (thread + 1) * 7919 + i * 104_729;
        let (from, to) = (draw % ACCOUNTS, draw / 7 % ACCOUNTS);
        match transfer(db, from, to, draw % 5000) {
            Ok(ticket) => {
                made += 1;
                last = Some(ticket);
            }
            Err(Refused::TooPoor { .. }) => refused += 1,
            Err(other) => return Err(other),
        }
    }
    // Tickets of a thread become durable in their order: the last one stands for all.
    last.map_or(Ok(()), |ticket| db.wait(ticket))?;
    Ok((made, refused))
}

fn total(db: &Db) -> Result<u64, Error> {
    db.read(|tx| (0..ACCOUNTS).map(|account| balance(db, tx, account)).sum())
}

fn main() -> Result<(), Box<dyn StdError>> {
    let dir = tempfile::tempdir()?;
    let options = Options::new(dir.path().join("bank"));
    let db = Db::open(options.clone())?;
    db.write(|tx| {
        (0..ACCOUNTS).try_for_each(|account| set_balance(&db, tx, account, START_CENTS))
    })?;

    let customers = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                scope.spawn({
                    let db = &db;
                    move || customer(db, thread)
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("a customer's thread"))
            .collect::<Result<Vec<_>, _>>()
    })?;
    let made: u64 = customers.iter().map(|(made, _)| made).sum();
    let refused: u64 = customers.iter().map(|(_, refused)| refused).sum();
    println!("{made} transfers made, {refused} refused");
    assert_eq!(made + refused, THREADS * TRANSFERS_EACH);
    assert_eq!(total(&db)?, ACCOUNTS * START_CENTS);

    // No goodbye: what was waited for is in the log.
    db.abandon();
    let db = Db::open(options)?;
    println!(
        "{} transactions found in the log after the restart",
        db.report().transactions
    );
    assert_eq!(total(&db)?, ACCOUNTS * START_CENTS);
    println!("not a cent is missing");
    db.close()?;
    Ok(())
}
