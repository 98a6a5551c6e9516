//! Compares random operations on hashes and sets with collections of the standard library. The
//! tests cover small and large collections, the change from small to large, aborts and restarts.

#[path = "model/ordered.rs"]
mod ordered;
#[path = "model/packing.rs"]
mod packing;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use perdura::types::{Left, Part, copy, hash, set, visit};
use perdura::{Db, Options, TableId, Tx};
use perdura_types::Fault;

type Bytes = Vec<u8>;

fn open(dir: &Path) -> Db {
    let mut options = Options::new(dir);
    options.partitions = 4;
    options.segment_bytes = 1 << 20;
    options.memory_limit = Some(1 << 30);
    Db::open(options).expect("a database")
}

fn run<R>(db: &Db, mut f: impl FnMut(&mut Tx<'_>, TableId) -> Result<R, Fault>) -> Option<R> {
    let table = db.database(0);
    let result = db.transact(&db.all_partitions(), |tx| f(tx, table));
    result.ok().map(|(value, _)| value)
}

/// Returns a key's whole content: names and values, sorted.
fn content(db: &Db, key: &[u8]) -> BTreeMap<Bytes, Bytes> {
    let mut found = BTreeMap::new();
    run(db, |tx, table| {
        found.clear();
        let mut promised = 0;
        visit(tx, table, key, |part| {
            match part {
                Part::Head(_, len) => promised = len,
                Part::Field(field, value) => drop(found.insert(field.to_vec(), value.to_vec())),
                Part::Member(member) => drop(found.insert(member.to_vec(), Bytes::new())),
                other => panic!("not asked for: {other:?}"),
            }
            Ok(())
        })?;
        assert_eq!(promised, u64::try_from(found.len()).expect("few"));
        Ok(())
    })
    .expect("read");
    found
}

fn name(rng: &mut fastrand::Rng, names: u32) -> Bytes {
    match rng.u32(0..20) {
        0 => vec![b'n'; 65 + rng.usize(0..3)],
        _ => rng.u32(0..names).to_string().into_bytes(),
    }
}

fn value(rng: &mut fastrand::Rng) -> Bytes {
    match rng.u32(0..30) {
        0 => vec![b'v'; rng.usize(60..3000)],
        1 => vec![b'v'; 40_000],
        _ => rng.i32(-200..200).to_string().into_bytes(),
    }
}

#[test]
fn hashes_agree_with_a_map_across_restarts() {
    for (seed, names) in [(1, 20), (2, 60), (3, 400)] {
        let mut rng = fastrand::Rng::with_seed(seed);
        let dir = tempfile::tempdir().expect("a directory");
        let mut db = open(dir.path());
        let mut model = BTreeMap::<Bytes, Bytes>::new();
        for step in 0..1500 {
            let field = name(&mut rng, names);
            match rng.u32(0..100) {
                0..60 => {
                    let pairs: Vec<(Bytes, Bytes)> = (0..rng.usize(1..4))
                        .map(|_| (name(&mut rng, names), value(&mut rng)))
                        .collect();
                    let abort = rng.u32(0..10) == 0;
                    let created = run(&db, |tx, table| {
                        let pairs = pairs.iter().map(|(f, v)| (&f[..], &v[..]));
                        let created = hash::set(tx, table, b"h", pairs)?;
                        if abort {
                            Err(Fault::WrongType)
                        } else {
                            Ok(created)
                        }
                    });
                    if !abort {
                        let before = model.len();
                        model.extend(pairs);
                        let grown = u64::try_from(model.len() - before).expect("few");
                        assert_eq!(created, Some(grown), "step {step}");
                    }
                }
                60..95 => {
                    let got = run(&db, |tx, table| hash::remove(tx, table, b"h", [&field[..]]));
                    let removed = u64::from(model.remove(&field).is_some());
                    let left = if model.is_empty() {
                        Left::Nothing
                    } else {
                        Left::Some
                    };
                    assert_eq!(got, Some((removed, left)), "step {step}");
                }
                95..97 => {
                    run(&db, |tx, table| Ok(tx.delete(table, b"h")?));
                    model.clear();
                }
                97 => {
                    // The database is dropped without being closed, as by a crash. Only durable
                    // changes come back.
                    let seen = db.transact(&db.all_partitions(), |_| Ok::<_, perdura::Error>(()));
                    db.wait(seen.expect("read").1).expect("durable");
                    drop(db);
                    db = open(dir.path());
                }
                98 => {
                    run(&db, |tx, table| copy(tx, table, b"h", table, b"copy")).expect("a copy");
                    if !model.is_empty() {
                        assert_eq!(content(&db, b"copy"), model);
                    }
                }
                _ => assert_eq!(content(&db, b"h"), model),
            }
        }
        assert_eq!(content(&db, b"h"), model);
    }
}

#[test]
fn sets_agree_with_a_set_and_integers_come_sorted() {
    for (seed, names) in [(1, 20), (2, 100), (3, 1000)] {
        let mut rng = fastrand::Rng::with_seed(seed);
        let dir = tempfile::tempdir().expect("a directory");
        let db = open(dir.path());
        let mut model = BTreeSet::<Bytes>::new();
        for _ in 0..1500 {
            let member = name(&mut rng, names);
            if rng.u32(0..100) < 70 {
                let added = run(&db, |tx, table| set::add(tx, table, b"s", [&member[..]]));
                assert_eq!(added, Some(u64::from(model.insert(member))));
            } else {
                let got = run(&db, |tx, table| set::remove(tx, table, b"s", [&member[..]]));
                assert_eq!(got.map(|got| got.0), Some(u64::from(model.remove(&member))));
            }
        }
        let found: BTreeSet<Bytes> = content(&db, b"s").into_keys().collect();
        assert_eq!(found, model);
    }
    let dir = tempfile::tempdir().expect("a directory");
    let db = open(dir.path());
    let order = run(&db, |tx, table| {
        set::add(tx, table, b"i", [&b"10"[..], b"-5", b"9", b"300"])?;
        let members = set::source(tx, table, b"i")?.expect("there");
        Ok(members
            .iter()
            .map(|entry| entry.key().to_vec())
            .collect::<Vec<_>>())
    });
    assert_eq!(
        order,
        Some([&b"-5"[..], b"9", b"10", b"300"].map(Vec::from).to_vec())
    );
}
