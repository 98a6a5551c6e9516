//! Tests each verb, and the errors of each verb.

use perdura_base::{Error, PartitionId, PartitionSet};
use perdura_table::{Abort, RowId, procedure};
use perdura_txn::ValueForm;

use crate::world::{Account, Item, Job, PARTITIONS, Seat, User, World, account};

fn world() -> World {
    World::new(ValueForm::Columns)
}

fn usage<R: std::fmt::Debug>(done: Result<R, Error>) -> String {
    match done {
        Err(Error::Usage(text)) => text,
        other => panic!("refused as usage: {other:?}"),
    }
}

procedure! {
    pub fn transfer(cx, bank: u32, from: u64, to: u64, amount: i64) -> i64,
    on [Account(bank)] {
        let mut payer = cx.get::<Account>((bank, from))?.ok_or("no such account")?;
        if payer.balance < amount {
            return Err("not enough".into());
        }
        payer.balance -= amount;
        cx.update(&payer)?;
        cx.modify::<Account>((bank, to), |payee| payee.balance += amount)?;
        Ok(payer.balance)
    }
}

procedure! {
    fn draw(cx, bank: u32) -> (u64, u64, u64), on [Account(bank)] {
        Ok((cx.random()?, cx.random()?, cx.now()))
    }
}

#[test]
fn a_procedure_does_all_or_nothing() {
    let world = world();
    world
        .run(|cx| {
            cx.insert(&account(3, 1, "Ann", 100))?;
            cx.insert(&account(3, 2, "Bob", 0))
        })
        .unwrap();
    assert_eq!(world.call::<transfer>(&(3, 1, 2, 30)).unwrap(), 70);
    let refused = world.call::<transfer>(&(3, 1, 2, 300)).unwrap_err();
    assert_eq!(refused.to_string(), "not enough");
    let failed = world.call::<transfer>(&(3, 1, 9, 1)).unwrap_err();
    assert!(matches!(failed, Abort::Database(Error::Usage(_))));
    let balances = world.run(|cx| {
        let rows = cx.rows::<Account>(3).collect::<Vec<_>>()?;
        Ok::<_, Error>(rows.iter().map(|row| row.balance).collect::<Vec<_>>())
    });
    assert_eq!(balances.unwrap(), [70, 30]);
}

#[test]
fn random_numbers_of_a_command_are_those_of_the_partition_and_its_sequence() {
    let world = world();
    let drawn = |bank: u32| world.command::<draw>(&(bank,)).unwrap();
    let first = drawn(3);
    assert_ne!(first.0, first.1);
    assert_eq!(first.2, 77, "the time of the transaction");
    assert_eq!(drawn(3), first, "nothing was written");
    assert_ne!(drawn(4), first);
    world.advance();
    assert_ne!(drawn(3), first);
}

#[test]
fn other_transactions_never_draw_the_same_random_numbers() {
    let world = world();
    let drawn = || world.call::<draw>(&(3,)).unwrap();
    let (first, second) = (drawn(), drawn());
    assert_ne!(first.0, second.0);
    assert_ne!(first.1, second.1);
}

#[test]
fn duplicates_and_missing_rows_are_refused_by_table_and_key() {
    let world = world();
    let user = |name: &str, mail: &str| User {
        name: name.into(),
        mail: mail.into(),
        age: None,
    };
    world.run(|cx| cx.insert(&user("Ann", "a@x"))).unwrap();
    let text = usage(world.run(|cx| cx.insert(&user("Ann", "b@x"))));
    assert!(
        text.contains("users") && text.contains(r#"("Ann")"#),
        "{text}"
    );
    let text = usage(world.run(|cx| cx.update(&user("Bob", "b@x"))));
    assert!(text.contains(r#"no row with the key ("Bob")"#), "{text}");
    let text = usage(world.run(|cx| cx.modify::<User>("Bob", |_| ())));
    assert!(text.contains(r#"no row with the key ("Bob")"#), "{text}");
    let text = usage(world.run(|cx| cx.edit::<User>("Bob", |_| Ok(()))));
    assert!(text.contains(r#"no row with the key ("Bob")"#), "{text}");
    let renamed =
        |cx: &mut perdura_table::Cx<'_, '_>| cx.modify::<User>("Ann", |user| user.name.push('e'));
    assert!(usage(world.run(renamed)).contains("the key of a row does not change"));
    assert!(!world.run(|cx| cx.remove::<User>("Bob")).unwrap());
}

#[test]
fn a_unique_index_is_unique_in_the_whole_table() {
    let world = world();
    let seat = |room: u32, number: u32, guest: &str| Seat {
        room,
        number,
        guest: guest.into(),
        paid: false,
    };
    let (beside, far) = (7 + u32::from(PARTITIONS), 8);
    world.run(|cx| cx.insert(&seat(7, 1, "ann"))).unwrap();
    let text = usage(world.run(|cx| cx.insert(&seat(7, 2, "ann"))));
    assert!(text.contains("unique index by_guest"), "{text}");
    // The room is one of the index's columns. So these rows have different index keys, whether or not
    // they are in the same partition.
    for room in [beside, far] {
        world.run(|cx| cx.insert(&seat(room, 1, "ann"))).unwrap();
    }
    world.run(|cx| cx.insert(&seat(7, 2, "bob"))).unwrap();
    let text = usage(world.run(|cx| cx.modify::<Seat>((7, 2), |seat| seat.guest = "ann".into())));
    assert!(text.contains("unique index by_guest"), "{text}");
    world
        .run(|cx| cx.modify::<Seat>((7, 2), |seat| seat.paid = true))
        .unwrap();
    let rooms = [7, beside, far];
    let found = world
        .run(|cx| {
            let of_ann = rooms.map(|room| cx.by(Seat::by_guest, ("ann", room)));
            let mut found = Vec::new();
            for rows in of_ann {
                found.extend(rows.collect::<Vec<_>>()?);
            }
            Ok::<_, Error>(found)
        })
        .unwrap();
    assert_eq!(found.len(), rooms.len(), "one in each room");
}

#[test]
fn replicated_rows_are_written_everywhere_and_read_anywhere() {
    let world = world();
    world
        .run(|cx| cx.insert(&Item { id: 4, price: 10 }))
        .unwrap();
    world
        .run(|cx| {
            cx.edit::<Item>(4, |item| {
                let price = item.get(Item::price)?;
                item.set(Item::price, price + 1);
                Ok(())
            })
        })
        .unwrap();
    let (table, _) = world.registry.find("items").unwrap();
    for partition in PartitionSet::all(PARTITIONS).iter() {
        assert_eq!(world.heap.lock(partition).len(table), 1);
    }
    let read = world.run(|cx| {
        let item = cx.get::<Item>(4)?;
        assert_eq!(cx.latched().count(), 1, "one copy is enough");
        Ok::<_, Error>((item, cx.count::<Item>()?))
    });
    assert_eq!(read.unwrap(), (Some(Item { id: 4, price: 11 }), 1));
    assert!(world.run(|cx| cx.remove::<Item>(4)).unwrap());
    assert_eq!(world.run(|cx| cx.get::<Item>(4)).unwrap(), None);
}

#[test]
fn rows_without_key_columns_are_numbered_in_the_order_of_their_transactions() {
    let world = world();
    let job = |what: &str| Job {
        what: what.into(),
        tries: 0,
    };
    let first = world.run(|cx| cx.append(&job("a"))).unwrap();
    world.advance();
    let third = world.run(|cx| {
        cx.insert(&job("b"))?;
        cx.append(&job("c"))
    });
    world.advance();
    let last = world.run(|cx| cx.append(&job("d"))).unwrap();
    let third = third.unwrap();
    assert!(first < third && third < last);
    let all = world.run(|cx| cx.rows::<Job>(()).collect::<Vec<_>>());
    let all: Vec<String> = all.unwrap().into_iter().map(|job| job.what).collect();
    assert_eq!(all, ["a", "b", "c", "d"]);
    assert!(usage(world.run(|cx| cx.modify::<Job>(RowId(1 << 40), |_| ()))).contains("jobs"));
}

#[test]
fn a_row_is_found_by_its_id() {
    let world = world();
    world.advance();
    let job = Job {
        what: "a".into(),
        tries: 0,
    };
    let id = world.run(|cx| cx.append(&job)).unwrap();
    assert_eq!(id.partition(), PartitionId(0));
    world
        .run(|cx| cx.modify::<Job>(id, |job| job.tries += 1))
        .unwrap();
    let popped: (RowId, String) = world
        .run(|cx| {
            let row = cx.rows::<Job>(()).views().first()?.expect("there is a job");
            let id = row.row_id()?;
            let what = row.get(Job::what)?.to_owned();
            assert_eq!(row.get(Job::tries)?, 1);
            drop(row);
            assert!(cx.remove::<Job>(id)?);
            Ok::<_, Error>((id, what))
        })
        .unwrap();
    assert_eq!(popped, (id, "a".to_owned()));
    assert_eq!(world.run(|cx| cx.count::<Job>()).unwrap(), 0);
}

#[test]
fn a_savepoint_takes_back_a_part() {
    let world = world();
    world
        .run(|cx| {
            cx.insert(&account(1, 1, "Ann", 1))?;
            let savepoint = cx.savepoint();
            cx.insert(&account(1, 2, "Ann", 2))?;
            cx.modify::<Account>((1, 1), |row| row.owner = "Bob".into())?;
            assert_eq!(cx.by(Account::by_owner, "Ann").count()?, 1);
            cx.rollback_to(&savepoint);
            assert_eq!(cx.by(Account::by_owner, "Ann").count()?, 1);
            cx.insert(&account(1, 3, "Ann", 3))
        })
        .unwrap();
    let ids = world.run(|cx| {
        let rows = cx.by(Account::by_owner, "Ann").collect::<Vec<_>>()?;
        Ok::<_, Error>(rows.iter().map(|row| row.id).collect::<Vec<_>>())
    });
    assert_eq!(ids.unwrap(), [1, 3]);
}

#[test]
fn views_borrow_strings_and_leave_other_columns_alone() {
    let world = world();
    world.run(|cx| cx.insert(&account(2, 7, "Ann", 5))).unwrap();
    world
        .run(|cx| {
            let row = cx.view::<Account>((2, 7))?.expect("it is there");
            let owner: &str = row.get(Account::owner)?;
            assert_eq!((owner, row.get(Account::balance)?), ("Ann", 5));
            assert_eq!(row.key(Account::id)?, 7);
            assert!(cx.contains::<Account>((2, 7))? && !cx.contains::<Account>((2, 8))?);
            Ok::<_, Error>(())
        })
        .unwrap();
}
