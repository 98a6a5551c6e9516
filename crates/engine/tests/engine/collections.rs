//! Collections against a model: every shape, with aborts, renames, orphans and restarts.

use std::collections::BTreeMap;
use std::sync::Arc;

use perdura::core::Core;
use perdura::{End, Error, Home, Kind, Progress, Result, Shape, Tx};
use perdura_base::{PartitionId, PartitionSet};
use perdura_device::{CrashProfile, SimDisk};
use perdura_heap::MemoryUse;

use crate::core_steps::{env, small};

/// The content of a key in the model: fields, members and scores by name, list items in their
/// order.
#[derive(Debug, Clone, PartialEq)]
enum Value {
    String(Vec<u8>),
    Small(Shape, Vec<u8>),
    Names(Shape, BTreeMap<Vec<u8>, Vec<u8>>),
    Items(Vec<Vec<u8>>),
}

type Model = BTreeMap<(u8, Vec<u8>), (Value, Option<u64>)>;

fn open(disk: &Arc<SimDisk>) -> Core {
    Core::open(env(disk, 2), small(), Arc::new(Progress::default())).expect("it opens")
}

fn owned(row: &perdura::RowRef<'_>) -> (Vec<u8>, Vec<u8>) {
    let mut value = Vec::new();
    row.copy_value(&mut value);
    (row.field().into_owned(), value)
}

/// Reads a collection in every possible way, and checks that the results agree.
fn read_elements(tx: &Tx<'_>, table: perdura::TableId, home: Home) -> Result<Value, Error> {
    let elements = tx.elements(table, home)?;
    let all: Vec<_> = elements.iter().map(|row| owned(&row)).collect();
    let len = u64::try_from(all.len()).expect("few");
    assert_eq!(elements.len(), len);
    assert!(elements.random(len).is_some());
    if elements.shape() == Shape::List {
        let items: Vec<_> = all.into_iter().map(|(_, value)| value).collect();
        let range = elements.items(0, len).map(|row| owned(&row).1);
        assert!(range.eq(items.iter().cloned()));
        for (i, item) in (0..).zip(&items) {
            assert_eq!(&owned(&elements.at(i).expect("an item")).1, item);
        }
        return Ok(Value::Items(items));
    }
    if elements.shape() == Shape::Zset {
        let mut want: Vec<_> = all.clone();
        let score = |v: &[u8]| f64::from_le_bytes(v.try_into().expect("eight bytes"));
        want.sort_by(|a, b| {
            let by_score = score(&a.1).partial_cmp(&score(&b.1)).expect("no NaN");
            by_score.then(a.0.cmp(&b.0))
        });
        assert_eq!(all, want, "in the order of score and member");
        for (rank, (member, value)) in (0..).zip(&all) {
            assert_eq!(elements.rank(member), Some(rank));
            let below = elements.score_point(|s| s < score(value));
            assert!(below <= rank);
        }
        let backwards = elements.range(0, len).rev().map(|(_, row)| owned(&row));
        assert!(backwards.eq(all.iter().rev().cloned()));
    }
    let (mut scanned, mut cursor) = (BTreeMap::new(), 0);
    loop {
        let (rows, next) = elements.scan(cursor, 3);
        scanned.extend(rows.iter().map(owned));
        cursor = next;
        if cursor == 0 {
            break;
        }
    }
    let names: BTreeMap<_, _> = all.into_iter().collect();
    assert_eq!(scanned, names);
    for (name, value) in &names {
        assert_eq!(&owned(&elements.get(name).expect("an element")).1, value);
    }
    Ok(Value::Names(elements.shape(), names))
}

fn read_all(core: &Core) -> Model {
    let read = core.transact(&core.all_partitions(), |tx| {
        let mut model = Model::new();
        for db in 0..2 {
            let table = core.database(db);
            let mut cursor = 0;
            loop {
                let (rows, next) = tx.scan_keys(table, cursor, 5)?;
                for row in rows {
                    let mut value = Vec::new();
                    row.copy_value(&mut value);
                    let value = match (row.kind(), row.home()) {
                        (Kind::Header(_), Some(home)) => read_elements(tx, table, home)?,
                        (Kind::Small(shape), None) => Value::Small(shape, value),
                        (Kind::String, None) => Value::String(value),
                        other => panic!("{other:?}"),
                    };
                    let key = (db, row.key().into_owned());
                    model.insert(key, (value, row.expiry_ms()));
                }
                cursor = next;
                if cursor == 0 {
                    break;
                }
            }
            let keys = model.keys().filter(|(of, _)| *of == db).count();
            assert_eq!(tx.len(table)?, u64::try_from(keys).expect("few"));
            assert_eq!(tx.random_key(table, 7)?.is_some(), keys > 0);
        }
        Ok::<_, perdura::Error>(model)
    });
    read.expect("a read").0
}

fn name(rng: &mut fastrand::Rng) -> Vec<u8> {
    let n = rng.u8(0..60);
    match n {
        0 => Vec::new(),
        1 => vec![b'n'; 1500],
        2 => vec![b'n'; 70_000],
        _ => format!("name{n}").into_bytes(),
    }
}

/// Chooses a key at random. One of the keys is so long that its header does not fit into a slot. The header of another
/// key fits only without an expiry.
fn key(rng: &mut fastrand::Rng) -> Vec<u8> {
    match rng.u8(0..40) {
        0 => vec![b'k'; 20_000],
        1 => vec![b'k'; 16_301],
        n => vec![b'k', n % 6],
    }
}

fn value(rng: &mut fastrand::Rng) -> Vec<u8> {
    let bytes = match rng.u8(0..40) {
        0 => 20_000,
        1..=4 => rng.usize(0..600),
        _ => rng.usize(0..20),
    };
    vec![rng.u8(..); bytes]
}

fn score(rng: &mut fastrand::Rng) -> Vec<u8> {
    let score = match rng.u8(0..8) {
        0 => f64::INFINITY,
        1 => -0.0,
        n => f64::from(n) - 4.0,
    };
    score.to_le_bytes().to_vec()
}

/// Makes one random change of one element or of a few hundred elements.
fn change(
    tx: &mut Tx<'_>,
    rng: &mut fastrand::Rng,
    (table, key, home): (perdura::TableId, &[u8], Home),
    held: &mut Value,
) -> Result<bool, Error> {
    match held {
        Value::Items(items) => {
            let at = rng.usize(0..=items.len());
            let index = u64::try_from(at).expect("few");
            match rng.u8(0..8) {
                0..=1 => {
                    let v = value(rng);
                    tx.list_push(table, home, End::Front, &[&v])?;
                    items.insert(0, v);
                }
                2 => {
                    let v = value(rng);
                    tx.list_push(table, home, End::Back, &[&v])?;
                    items.push(v);
                }
                3..=4 => {
                    // Inserts always before the same item, so that the labels between it and the item before it run
                    // out.
                    for _ in 0..rng.usize(1..40) {
                        let v = value(rng);
                        tx.list_insert(table, home, index, &v)?;
                        items.insert(at, v);
                    }
                }
                5 if at < items.len() => {
                    items[at] = value(rng);
                    tx.list_set(table, home, index, &items[at])?;
                }
                _ if at < items.len() => {
                    tx.list_remove(table, home, index)?;
                    items.remove(at);
                }
                _ => assert!(tx.list_set(table, home, index, b"").is_err()),
            }
            Ok(items.is_empty())
        }
        Value::Names(shape, names) => {
            for _ in 0..if rng.u8(0..10) == 0 { 300 } else { 1 } {
                let field = match rng.bool() {
                    true => name(rng),
                    false => rng.u16(0..400).to_le_bytes().to_vec(),
                };
                if rng.u8(0..3) == 0 {
                    let there = tx.element_delete(table, home, &field)?;
                    assert_eq!(there, names.remove(&field).is_some());
                    continue;
                }
                let v = match shape {
                    Shape::Hash | Shape::Stream => value(rng),
                    Shape::Zset => score(rng),
                    _ => Vec::new(),
                };
                let new = tx.element_put(table, home, &field, &v)?;
                assert_eq!(new, names.insert(field, v).is_none());
            }
            Ok(names.is_empty())
        }
        Value::String(_) | Value::Small(..) => {
            let _kept = tx.get(table, key)?;
            Ok(false)
        }
    }
}

fn step(
    core: &Core,
    tx: &mut Tx<'_>,
    rng: &mut fastrand::Rng,
    model: &mut Model,
) -> Result<(), Error> {
    let key_of = |rng: &mut fastrand::Rng| (rng.u8(0..2), key(rng));
    let (db, key) = key_of(rng);
    let table = core.database(db);
    let at = (db, key.clone());
    match rng.u8(0..16) {
        0 => {
            let v = value(rng);
            tx.put(table, &key, &v, None)?;
            model.insert(at, (Value::String(v), None));
        }
        1 => {
            let shape = Shape::ALL[rng.usize(0..5)];
            tx.put_small(table, &key, shape, b"packed", None)?;
            model.insert(at, (Value::Small(shape, b"packed".to_vec()), None));
        }
        2..=4 => {
            let shape = Shape::ALL[rng.usize(0..5)];
            let home = tx.create(table, &key, shape, None)?;
            let held = if shape == Shape::List {
                tx.list_push(table, home, End::Back, &[b"first"])?;
                Value::Items(vec![b"first".to_vec()])
            } else {
                let v = match shape {
                    Shape::Hash | Shape::Stream => value(rng),
                    Shape::Zset => score(rng),
                    _ => Vec::new(),
                };
                tx.element_put(table, home, b"first", &v)?;
                Value::Names(shape, [(b"first".to_vec(), v)].into())
            };
            model.insert(at, (held, None));
        }
        5 => {
            let there = tx.delete(table, &key)?;
            assert_eq!(there, model.remove(&at).is_some());
        }
        6 => {
            let expiry = rng.bool().then_some(u64::MAX - 1);
            let there = tx.set_expiry(table, &key, expiry)?;
            let held = model.get_mut(&at);
            assert_eq!(there, held.is_some());
            if let Some(held) = held {
                held.1 = expiry;
            }
        }
        7..=8 => {
            let (to_db, to) = key_of(rng);
            let there = tx.rename(table, &key, core.database(to_db), &to)?;
            let held = model.remove(&at);
            assert_eq!(there, held.is_some());
            if let Some(held) = held {
                model.insert((to_db, to), held);
            }
        }
        _ => {
            let home = tx.get(table, &key)?.and_then(|row| row.home());
            if let (Some(home), Some((held, _))) = (home, model.get_mut(&at))
                && change(tx, rng, (table, &key, home), held)?
            {
                tx.delete(table, &key)?;
                model.remove(&at);
            }
        }
    }
    Ok(())
}

pub fn orphan_rows(core: &Core) -> u64 {
    let ids = (0..core.heap().geometry().partitions).map(PartitionId);
    ids.map(|id| core.heap().lock(id).orphan_rows()).sum()
}

pub fn purge_all(core: &Core) {
    for _ in 0..10_000 {
        if orphan_rows(core) == 0 {
            return;
        }
        core.purge_step().expect("a purge step");
    }
    panic!("orphans are left");
}

#[test]
fn any_history_of_collections_equals_the_model_across_aborts_and_restarts() {
    for seed in 0..12 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let disk = SimDisk::new(seed);
        let mut core = open(&disk);
        let mut model = Model::new();
        for round in 0..120 {
            let aborts = rng.u8(0..4) == 0;
            let draws = rng.fork();
            let mut after = None;
            let outcome = core.transact(&PartitionSet::empty(), |tx| {
                let (mut rng, mut next) = (draws.clone(), model.clone());
                for _ in 0..rng.usize(1..6) {
                    step(&core, tx, &mut rng, &mut next)?;
                }
                after = Some(next);
                if aborts {
                    Err(Error::Usage("given up".into()))
                } else {
                    Ok(())
                }
            });
            assert_eq!(outcome.is_err(), aborts, "seed {seed}: {:?}", outcome.err());
            if !aborts {
                model = after.expect("a run to the end");
            }
            if round % 10 == 0 || aborts {
                assert_eq!(read_all(&core), model, "seed {seed} round {round}");
            }
            match rng.u8(0..12) {
                0 => core.checkpoint_now().expect("a checkpoint"),
                1 => drop(core.purge_step().expect("a purge step")),
                2 => {
                    core.flush_all().expect("a flush");
                    let digest = core.digest().unwrap();
                    drop(core);
                    disk.crash(CrashProfile::Nothing, round);
                    core = open(&disk);
                    assert_eq!(core.digest().unwrap(), digest, "seed {seed} round {round}");
                    assert_eq!(read_all(&core), model, "seed {seed} round {round}");
                }
                _ => {}
            }
        }
        purge_all(&core);
        assert_eq!(read_all(&core), model, "seed {seed}");
        let keys: Vec<_> = model.keys().cloned().collect();
        for (db, key) in keys {
            let gone = core.transact(&PartitionSet::empty(), |tx| {
                tx.delete(core.database(db), &key)
            });
            assert!(gone.expect("a delete").0);
        }
        purge_all(&core);
        let pages = core.heap().memory().get(MemoryUse::Pages);
        assert!(
            pages <= 4 * 16 * 1024,
            "seed {seed}: {pages} bytes beside the catalog"
        );
    }
}

#[test]
fn the_purge_tells_of_keys_past_their_expiry_and_a_renamed_collection_goes_with_its_key() {
    let disk = SimDisk::new(99);
    let core = open(&disk);
    let table = core.database(1);
    let made = core.transact(&PartitionSet::empty(), |tx| {
        for shape in Shape::ALL {
            let home = tx.create(table, b"made", shape, None)?;
            match shape {
                Shape::List => tx.list_push(table, home, End::Back, &[b"x"])?,
                Shape::Zset => drop(tx.element_put(table, home, b"x", &[0; 8])?),
                Shape::Hash | Shape::Set | Shape::Stream => {
                    let _new = tx.element_put(table, home, b"x", b"")?;
                }
            }
            let name = format!("{shape:?}");
            tx.rename(table, b"made", table, name.as_bytes())?;
            tx.set_expiry(table, name.as_bytes(), Some(1))?;
        }
        Ok::<_, perdura::Error>(())
    });
    assert!(made.is_ok());
    let heard = Arc::new(std::sync::Mutex::new(Vec::new()));
    let ears = Arc::clone(&heard);
    core.on_expired(Box::new(move |keys, epoch| {
        assert!(epoch.0 > 0);
        ears.lock().expect("no panic").extend_from_slice(keys);
    }));
    for _ in 0..8 {
        core.purge_step().expect("a step");
    }
    let mut heard = heard.lock().expect("no panic").clone();
    heard.sort();
    let names = ["Hash", "List", "Set", "Stream", "Zset"].map(|n| (1, n.as_bytes().to_vec()));
    assert_eq!(heard, names);
    assert_eq!(orphan_rows(&core), 0);
    let left = |id| core.heap().lock(id).slots_taken(table);
    assert_eq!((0..4).map(PartitionId).map(left).sum::<u64>(), 0);
}
