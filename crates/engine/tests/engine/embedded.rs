//! The guarantees for a program that embeds the database. The program may use custom error types and may panic in
//! closures. The program need not know partitions.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use perdura::types::{Fault, hash};
use perdura::{Db, Error, Options};

#[derive(Debug)]
enum BankError {
    Engine(Error),
    TooPoor { has: u64 },
}

impl From<Error> for BankError {
    fn from(error: Error) -> Self {
        BankError::Engine(error)
    }
}

fn open(dir: &tempfile::TempDir) -> Db {
    let options = Options {
        segment_bytes: 1 << 20,
        memory_limit: Some(1 << 30),
        ..Options::new(dir.path().join("data"))
    };
    Db::open(options).unwrap()
}

fn put(db: &Db, key: &str, value: &[u8]) {
    db.write(|tx| tx.put(db.database(0), key.as_bytes(), value, None))
        .unwrap();
}

fn get(db: &Db, key: &str) -> Option<Vec<u8>> {
    let read = db.read(|tx| {
        let row = tx.bytes().get(db.database(0), key.as_bytes())?;
        Ok::<_, Error>(row.map(|row| row.value().into_owned()))
    });
    read.unwrap()
}

/// Checks that every latch is free, by running a transaction over every partition.
fn every_latch_is_free(db: &Db) {
    let partitions = db.all_partitions();
    let ran = db.transact(&partitions, |tx| tx.len(db.database(0)));
    assert!(ran.is_ok());
}

#[test]
fn a_closure_fails_with_its_own_error_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(&dir);
    put(&db, "ann", &[3]);
    let failed = db.write(|tx| -> Result<(), BankError> {
        tx.put(db.database(0), b"bob", &[9], None)?;
        tx.delete(db.database(0), b"ann")?;
        Err(BankError::TooPoor { has: 3 })
    });
    assert!(matches!(failed, Err(BankError::TooPoor { has: 3 })));
    assert_eq!((get(&db, "ann"), get(&db, "bob")), (Some(vec![3]), None));
    let long = vec![0; 70_000];
    let failed =
        db.write(|tx| -> Result<(), BankError> { Ok(tx.put(db.database(0), &long, b"", None)?) });
    assert!(matches!(failed, Err(BankError::Engine(Error::Usage(_)))));
    put(&db, "string", b"");
    let failed = db.write(|tx| -> Result<(), Fault> {
        hash::set(tx, db.database(0), b"string", [(&b"f"[..], &b"v"[..])])?;
        Ok(())
    });
    assert!(matches!(failed, Err(Fault::WrongType)));
}

#[test]
fn a_panicking_closure_leaves_no_change_and_no_held_latch_and_the_database_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(&dir);
    put(&db, "kept", b"1");
    for declared in [db.all_partitions(), [].into_iter().collect()] {
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let _never = db.transact(&declared, |tx| -> Result<(), Error> {
                tx.put(db.database(0), b"half", b"2", None)?;
                tx.delete(db.database(0), b"kept")?;
                resume_unwind(Box::new("a bug in the caller's code"));
            });
        }));
        let panic = panicked.expect_err("the panic reaches the caller");
        assert_eq!(
            panic.downcast_ref::<&str>(),
            Some(&"a bug in the caller's code")
        );
        assert!(db.is_stopped().is_none());
        every_latch_is_free(&db);
        assert_eq!(
            (get(&db, "kept"), get(&db, "half")),
            (Some(b"1".into()), None)
        );
    }
    put(&db, "after", b"3");
    let digest = db.digest().unwrap();
    db.abandon();
    let db = open(&dir);
    assert_eq!(db.digest().unwrap(), digest);
    assert_eq!(db.rows(0).unwrap().0, 2);
}

/// A panic inside a verb may have left a page half changed. (The unit tests of `perdura-txn` distinguish it from a
/// panic outside.)
#[test]
fn a_panic_in_engine_work_stops_the_database_and_a_restart_brings_it_back() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(&dir);
    put(&db, "kept", b"1");
    let partition = db.partition_of(b"kept");
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _never = db.write(|tx| -> Result<(), Error> {
            tx.put(db.database(0), b"half", b"2", None)?;
            tx.bytes().view(partition, |_| {
                resume_unwind(Box::new("a bug in the engine"))
            })
        });
    }));
    assert!(panicked.is_err());
    let why = db.is_stopped().expect("it stopped");
    assert!(why.contains("panicked"), "{why}");
    let refused = db.write(|tx| tx.put(db.database(0), b"more", b"", None));
    assert!(matches!(refused, Err(Error::Stopped(_))));
    drop(db);
    let db = open(&dir);
    assert_eq!(db.rows(0).unwrap().0, 1);
    assert_eq!(get(&db, "kept"), Some(b"1".into()));
}

#[test]
fn partitions_need_not_be_declared_whatever_the_closure_makes_of_a_missing_latch() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(&dir);
    let keys: Vec<String> = (0..100).map(|i| format!("key-{i}")).collect();
    let mut runs = 0;
    db.write(|tx| {
        runs += 1;
        for key in &keys {
            tx.put(db.database(0), key.as_bytes(), b"1", None)?;
        }
        Ok::<_, Error>(())
    })
    .unwrap();
    assert!(runs <= 17, "{runs} runs; the last of them has every latch");
    // The closure ignores the error. This run of the closure still does not count.
    let found = db.read(|tx| {
        let there =
            |key: &&String| matches!(tx.bytes().get(db.database(0), key.as_bytes()), Ok(Some(_)));
        Ok::<_, Error>(keys.iter().filter(there).count())
    });
    assert_eq!(found.unwrap(), 100);
    // The closure turns the error into a panic. This run does not count either.
    let read = db.read(|tx| -> Result<usize, Error> {
        let Ok(row) = tx.bytes().get(db.database(0), b"key-7") else {
            resume_unwind(Box::new("unwrapped"));
        };
        Ok(row.map_or(0, |row| row.value_len()))
    });
    assert_eq!(read.unwrap(), 1);
    assert_eq!(db.read(|tx| tx.len(db.database(0))).unwrap(), 100);
}

#[test]
fn threads_that_touch_the_same_keys_in_opposite_orders_do_not_wait_for_each_other_for_ever() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(&dir);
    let keys: Vec<String> = (0..8).map(|i| format!("k{i}")).collect();
    std::thread::scope(|scope| {
        for backwards in [false, true] {
            let (db, mut keys) = (&db, keys.clone());
            if backwards {
                keys.reverse();
            }
            scope.spawn(move || {
                for _ in 0..300 {
                    let add_to_each = db.write_later(|tx| {
                        for key in &keys {
                            let old = tx.bytes().get(db.database(0), key.as_bytes())?;
                            let old = old.map_or(0, |row| u16::from_le_bytes(number(&row.value())));
                            let new = (old + 1).to_le_bytes();
                            tx.put(db.database(0), key.as_bytes(), &new, None)?;
                        }
                        Ok::<_, Error>(())
                    });
                    let ((), _ticket) = add_to_each.unwrap();
                }
            });
        }
    });
    for key in &keys {
        assert_eq!(get(&db, key), Some(600u16.to_le_bytes().into()));
    }
}

fn number(bytes: &[u8]) -> [u8; 2] {
    bytes.try_into().expect("two bytes")
}

#[test]
fn a_write_is_durable_when_it_returns_and_a_later_one_when_its_ticket_is() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(&dir);
    put(&db, "now", b"1");
    let mut last = None;
    for i in 0..100u8 {
        let later = db.write_later(|tx| tx.put(db.database(0), b"later", &[i], None));
        last = Some(later.unwrap().1);
    }
    db.wait(last.unwrap()).unwrap();
    assert!(db.durable() >= last.unwrap().epoch);
    db.abandon();
    let db = open(&dir);
    assert_eq!(
        (get(&db, "now"), get(&db, "later")),
        (Some(b"1".into()), Some(vec![99]))
    );
}

#[test]
fn a_transaction_inside_a_transaction_is_refused_and_another_databases_is_not() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (db, other) = (open(&one), open(&two));
    let nested = db.write(|tx| {
        tx.put(db.database(0), b"outer", b"", None)?;
        other.write(|tx| tx.put(other.database(0), b"copy", b"", None))?;
        db.write(|tx| tx.put(db.database(0), b"inner", b"", None))
    });
    assert!(matches!(nested, Err(Error::Usage(text)) if text.contains("inside a transaction")));
    assert_eq!(db.rows(0).unwrap().0, 0);
    assert_eq!(other.rows(0).unwrap().0, 1);
    put(&db, "next", b"");
}

/// There was a bug with three nested transactions, where the outermost and the innermost have the same database. The
/// database of the innermost was compared only with that of the middle one. So the thread waited for a latch that it
/// held itself.
#[test]
fn a_transaction_inside_another_databases_inside_one_of_its_own_is_refused_at_once() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (db, other) = (open(&one), open(&two));
    let nested = db.write(|tx| {
        tx.put(db.database(0), b"outer", b"", None)?;
        other.write(|tx| {
            tx.put(other.database(0), b"middle", b"", None)?;
            db.write(|tx| tx.put(db.database(0), b"outer", b"", None))
        })
    });
    assert!(matches!(nested, Err(Error::Usage(text)) if text.contains("inside a transaction")));
    assert_eq!((db.rows(0).unwrap().0, other.rows(0).unwrap().0), (0, 0));
    put(&db, "next", b"");
    put(&other, "next", b"");
}

#[test]
fn keys_are_iterated_and_ranged_while_the_caller_writes() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(&dir);
    let names: BTreeSet<String> = (0..2000).map(|i| format!("user:{i:04}")).collect();
    db.write(|tx| {
        for name in names.iter().map(String::as_str).chain(["a", "z"]) {
            tx.put(db.database(0), name.as_bytes(), b"1", None)?;
        }
        Ok::<_, Error>(())
    })
    .unwrap();
    let mut seen = BTreeSet::new();
    for key in db.keys(0) {
        let key = String::from_utf8(key.unwrap()).unwrap();
        let later = db.write_later(|tx| {
            tx.put(db.database(1), key.as_bytes(), b"", None)?;
            tx.delete(db.database(0), key.as_bytes())
        });
        assert!(later.unwrap().0, "{key} was there");
        assert!(seen.insert(key), "each key once");
    }
    assert_eq!(seen.len(), 2002);
    assert_eq!(db.keys(0).count(), 0);
    let first = db.range(1, "user:".."user;", 3).unwrap();
    assert_eq!(first, [b"user:0000", b"user:0001", b"user:0002"]);
    let all: Vec<Vec<u8>> = names.into_iter().map(String::into_bytes).collect();
    assert_eq!(db.range(1, "user:".."user;", 5000).unwrap(), all);
    assert_eq!(db.range(1, "user:1998"..="user:1999", 10).unwrap().len(), 2);
    assert_eq!(db.range::<&str>(1, .., 1).unwrap(), [b"a"]);
    assert_eq!(db.range(1, "z".., 9).unwrap(), [b"z"]);
    assert!(db.range(1, "user:".., 0).unwrap().is_empty());
    assert!(db.range(1, "b".."a", 9).unwrap().is_empty());
}

/// At a start, the first stream gets its segment before the second stream does. There was a bug: making a map in
/// between failed for lack of room in the log.
#[test]
fn a_map_that_is_made_right_after_the_start_waits_for_its_segment() {
    for _ in 0..5 {
        let dir = tempfile::tempdir().unwrap();
        let options = Options {
            streams: 2,
            ..Options::new(dir.path().join("data"))
        };
        let db = Db::open(options).unwrap();
        let map = db.map("new").unwrap();
        map.put(b"key", b"value").unwrap();
        assert!(db.drop_map("new").unwrap());
    }
}
