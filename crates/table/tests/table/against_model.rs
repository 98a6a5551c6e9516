//! Runs random transactions, some of which abort, and compares the table with a model. The model is a map in memory.
//! Compares rows, indexes, and ranges. Ranges are read from the front and from the back.

use std::collections::BTreeMap;

use fastrand::Rng;
use perdura_base::Error;
use perdura_table::{Abort, Cx};
use perdura_txn::ValueForm;

use crate::world::{Account, World, account};

type Model = BTreeMap<(u32, u64), Account>;

const OWNERS: [&str; 4] = ["", "Ann", "Ann\0", "Bob"];

fn row(rng: &mut Rng) -> Account {
    let note = vec![7; [0, 3, 40, 30_000][rng.usize(..4)]];
    let owner = OWNERS[rng.usize(..4)];
    Account {
        note,
        ..account(rng.u32(..12), rng.u64(..6), owner, rng.i64(-3..3))
    }
}

fn step(cx: &mut Cx<'_, '_>, model: &mut Model, rng: &mut Rng) -> Result<(), Abort> {
    let new = row(rng);
    let key = (new.bank, new.id);
    let is_there = model.contains_key(&key);
    match rng.u8(..5) {
        0 if is_there => assert!(matches!(given_up(cx.insert(&new))?, Some(Error::Usage(_)))),
        0 => {
            cx.insert(&new)?;
            model.insert(key, new);
        }
        1 => {
            assert_eq!(cx.remove::<Account>(key)?, is_there);
            model.remove(&key);
        }
        2 if is_there => {
            cx.update(&new)?;
            model.insert(key, new);
        }
        3 if is_there => {
            cx.modify::<Account>(key, |row| row.owner = new.owner.clone())?;
            model.entry(key).and_modify(|row| row.owner = new.owner);
        }
        4 if is_there => {
            cx.edit::<Account>(key, |row| {
                let balance = row.get(Account::balance)?;
                row.set(Account::balance, balance + 1);
                row.set(Account::note, &new.note);
                Ok(())
            })?;
            model.entry(key).and_modify(|row| {
                row.balance += 1;
                row.note = new.note;
            });
        }
        _ => assert_eq!(cx.get::<Account>(key)?.as_ref(), model.get(&key)),
    }
    Ok(())
}

/// Returns `Some` for an error that lets the transaction continue. Passes other errors on.
fn given_up(done: Result<(), Error>) -> Result<Option<Error>, Error> {
    match done {
        Err(error @ Error::Usage(_)) => Ok(Some(error)),
        other => other.map(|()| None),
    }
}

fn check(cx: &Cx<'_, '_>, model: &Model, rng: &mut Rng) -> Result<(), Error> {
    let all: Vec<Account> = cx.rows::<Account>(()).collect()?;
    assert!(all.iter().eq(model.values()), "all rows in order");
    let mut back: Vec<Account> = cx.rows::<Account>(()).rev().collect()?;
    back.reverse();
    assert_eq!(back, all);
    assert_eq!(both_ends(cx, rng)?, all);
    assert_eq!(usize::try_from(cx.count::<Account>()?), Ok(model.len()));
    let mut sum = 0;
    cx.each::<Account>(|row| sum += row.balance)?;
    assert_eq!(sum, model.values().map(|row| row.balance).sum::<i64>());
    for owner in OWNERS {
        let found: Vec<Account> = cx.by(Account::by_owner, owner).collect()?;
        let expected = model.values().filter(|row| row.owner == owner);
        assert!(found.iter().eq(expected), "the rows of {owner:?}");
    }
    let bank = rng.u32(..12);
    let mut of_bank: Vec<&Account> = model.values().filter(|row| row.bank == bank).collect();
    let (from, to) = (rng.u64(..6), rng.u64(..6));
    let found: Vec<Account> = cx.range::<Account>((bank, from)..(bank, to)).collect()?;
    let expected = of_bank.iter().filter(|row| (from..to).contains(&row.id));
    assert!(found.iter().eq(expected.copied()));
    of_bank.sort_by_key(|row| (row.balance, row.id));
    let found: Vec<Account> = cx.by(Account::by_bank, bank).collect()?;
    assert!(found.iter().eq(of_bank.iter().copied()));
    let found: Vec<Account> = cx
        .by_range(Account::by_bank, (bank, 0)..=(bank, 2))
        .collect()?;
    let expected = of_bank.iter().filter(|row| (0..=2).contains(&row.balance));
    assert!(found.iter().eq(expected.copied()));
    let found: Vec<Account> = cx.range::<Account>(3..7).collect()?;
    let expected = model.values().filter(|row| (3..7).contains(&row.bank));
    assert!(found.iter().eq(expected), "a range over partitions");
    Ok(())
}

/// Returns all rows, taken from the front and from the back in a random order.
fn both_ends(cx: &Cx<'_, '_>, rng: &mut Rng) -> Result<Vec<Account>, Error> {
    let mut rows = cx.rows::<Account>(());
    let (mut front, mut back) = (Vec::new(), Vec::new());
    loop {
        let is_front = rng.bool();
        let row = if is_front {
            rows.next()
        } else {
            rows.next_back()
        };
        match row.transpose()? {
            Some(row) if is_front => front.push(row),
            Some(row) => back.push(row),
            None => break,
        }
    }
    assert!(rows.next().is_none() && rows.next_back().is_none());
    front.extend(back.into_iter().rev());
    Ok(front)
}

fn history(seed: u64, form: ValueForm) {
    let world = World::new(form);
    let mut rng = Rng::with_seed(seed);
    let mut model = Model::new();
    for _ in 0..60 {
        let aborts = rng.u8(..4) == 0;
        let begun = rng.clone();
        let mut after = model.clone();
        let done = world.run(|cx| {
            // The closure may run again, with latches that were missing in the first run. So it resets all state.
            rng = begun.clone();
            after = model.clone();
            for _ in 0..rng.u8(1..12) {
                step(cx, &mut after, &mut rng)?;
            }
            if aborts {
                return Err(Abort::from("not today"));
            }
            Ok(())
        });
        match done {
            Ok(()) => model = after,
            Err(why) => assert!(aborts, "seed {seed}: {why}"),
        }
        let begun = rng.clone();
        let checked = world.run(|cx| check(cx, &model, &mut begun.clone()));
        assert!(checked.is_ok(), "seed {seed}: {checked:?}");
    }
}

#[test]
fn random_transactions_do_what_maps_do() {
    for seed in 0..12 {
        let form = ValueForm::ALL[usize::try_from(seed % 3).unwrap()];
        history(seed, form);
    }
}
