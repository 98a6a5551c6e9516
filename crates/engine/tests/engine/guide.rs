//! The program of `docs/rust.md`, block by block, so that the page compiles and does what it says.

use std::error::Error as StdError;
use std::path::Path;

use perdura::typed::LogForm;
use perdura::{Abort, Db, Error, procedure, table};

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
    /// Moves money, and returns what is left.
    pub fn transfer(cx, from: u64, to: u64, amount: i64) -> i64,
    on [Account(from), Account(to)] {
        let mut payer = cx.get::<Account>(from)?.ok_or("no such account")?;
        if payer.balance < amount {
            return Err("not enough".into());
        }
        payer.balance -= amount;
        cx.update(&payer)?;
        // Read after the write: the two accounts may be the same one.
        cx.modify::<Account>(to, |payee| payee.balance += amount)?;
        Ok(payer.balance)
    }
}

fn open(path: &Path, log: LogForm) -> Result<Db, Error> {
    Db::builder(path)
        .table::<Account>()
        .procedure(transfer)
        .log(log)
        .open()
}

fn open_accounts(db: &Db) -> Result<(), Error> {
    db.write(|tx| {
        (0..100).try_for_each(|id| {
            let owner = format!("owner {}", id % 7);
            tx.insert(&Account {
                id,
                owner,
                balance: 10_000,
            })
        })
    })
}

fn accounts_of(db: &Db, owner: &str) -> Result<Vec<Account>, Error> {
    db.read(|tx| tx.by(Account::by_owner, owner).collect())
}

fn pay_everyone(db: &Db, from: u64) -> Result<u64, Abort> {
    let (mut paid, mut last) = (0, None);
    for to in 0..100 {
        match db.submit(transfer, (from, to, 50)) {
            Ok(pending) => {
                paid += 1;
                last = Some(pending);
            }
            Err(Abort::Refused(_)) => {} // undone: not enough money
            Err(other) => return Err(other),
        }
    }
    if let Some(pending) = last {
        pending.wait()?; // one wait makes all of them durable
    }
    Ok(paid)
}

fn total(db: &Db) -> Result<i64, Error> {
    let mut total = 0;
    db.snapshot()?
        .each::<Account>(|account| total += account.balance)?;
    Ok(total)
}

#[allow(dead_code)] // the tests run its parts
fn main() -> Result<(), Box<dyn StdError>> {
    let db = open(Path::new("bank-data"), LogForm::Value)?;
    if accounts_of(&db, "owner 3")?.is_empty() {
        open_accounts(&db)?;
        let left = db.call(transfer, (1, 2, 50))?;
        println!("account 1 has {left} left");
        println!("{} payments made", pay_everyone(&db, 3)?);
        std::process::abort(); // as kill -9: no destructor runs
    }
    let played = db.report().ordered.map_or(0, |ordered| ordered.played);
    println!("{played} transactions replayed from the log");
    assert_eq!(total(&db)?, 100 * 10_000);
    println!("not a cent is missing");
    db.close()?;
    Ok(())
}

/// Returns a text without spaces and without the commas that `rustfmt` adds.
fn squeezed(text: &str) -> String {
    let text: String = text.split_whitespace().collect();
    text.replace(",)", ")").replace(",}", "}")
}

#[test]
fn the_page_has_the_blocks_of_this_program() {
    let page = include_str!("../../../../docs/rust.md");
    let blocks = page.split("```rust\n").skip(1);
    let blocks: Vec<&str> = blocks.filter_map(|rest| rest.split("```").next()).collect();
    assert!(blocks.len() > 5, "{} blocks", blocks.len());
    let program = squeezed(include_str!("guide.rs"));
    for block in blocks {
        assert!(program.contains(&squeezed(block)), "{block}");
    }
}

#[test]
fn the_program_of_the_page_comes_back_with_every_cent() {
    for form in [LogForm::Value, LogForm::Command] {
        let dir = tempfile::tempdir().unwrap();
        let db = open(dir.path(), form).unwrap();
        open_accounts(&db).unwrap();
        assert_eq!(db.call(transfer, (1, 2, 50)).unwrap(), 9_950);
        assert_eq!(pay_everyone(&db, 3).unwrap(), 100);
        db.abandon();
        let db = open(dir.path(), form).unwrap();
        assert_eq!(db.report().ordered.map(|ordered| ordered.played), Some(103));
        assert_eq!(accounts_of(&db, "owner 3").unwrap().len(), 14);
        assert_eq!(total(&db).unwrap(), 100 * 10_000);
        db.close().unwrap();
    }
}
