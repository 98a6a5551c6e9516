//! The bytes that a change of a big collection takes in the log, and the removal of a deleted
//! collection.

use std::sync::Arc;

use perdura::core::Core;
use perdura::{End, Error, Home, Progress, Shape, Tx};
use perdura_base::PartitionSet;
use perdura_device::{CrashProfile, SimDisk};
use perdura_heap::MemoryUse;

use crate::core_steps::{env, small};

/// Count of elements in each measured collection.
const MANY: u32 = 1_000_000;

fn open(disk: &Arc<SimDisk>) -> Core {
    let mut options = small();
    options.segment_bytes = 8 << 20;
    options.block_bytes_max = 1 << 20;
    Core::open(env(disk, 1), options, Arc::new(Progress::default())).expect("it opens")
}

fn run<R>(core: &Core, f: impl FnMut(&mut Tx<'_>) -> Result<R, Error>) -> R {
    core.transact(&PartitionSet::empty(), f).expect("it runs").0
}

fn put(
    tx: &mut Tx<'_>,
    table: perdura::TableId,
    home: Home,
    shape: Shape,
    i: u32,
) -> Result<(), Error> {
    let member = format!("member:{i:08}");
    match shape {
        Shape::List => return tx.list_push(table, home, End::Front, &[member.as_bytes()]),
        Shape::Hash | Shape::Stream => {
            tx.element_put(table, home, member.as_bytes(), b"a value of the field")?
        }
        Shape::Set => tx.element_put(table, home, member.as_bytes(), b"")?,
        Shape::Zset => {
            let score = f64::from(i ^ 0x5555);
            tx.element_put(table, home, member.as_bytes(), &score.to_le_bytes())?
        }
    };
    Ok(())
}

fn fill(core: &Core, key: &[u8], shape: Shape, count: u32) -> Home {
    let table = core.database(0);
    let home = run(core, |tx| {
        let home = tx.create(table, key, shape, None)?;
        put(tx, table, home, shape, 0)?;
        Ok(home)
    });
    let mut next = 1;
    while next < count {
        let end = count.min(next + 500);
        run(core, |tx| {
            (next..end).try_for_each(|i| put(tx, table, home, shape, i))
        });
        next = end;
        core.flush_all().expect("a flush");
    }
    home
}

#[test]
fn one_change_of_a_big_collection_logs_less_than_256_bytes() {
    for shape in Shape::ALL {
        let disk = SimDisk::new(1);
        let core = open(&disk);
        let table = core.database(0);
        let home = fill(&core, b"big", shape, MANY);
        // The slots of removed elements are used again. They still hold the old bytes.
        run(&core, |tx| {
            for i in 0..2000u32 {
                if shape == Shape::List {
                    tx.list_remove(table, home, u64::from(i))?;
                } else {
                    let member = format!("member:{:08}", i * 7);
                    assert!(tx.element_delete(table, home, member.as_bytes())?);
                }
            }
            Ok(())
        });
        let mut worst = 0;
        for i in 0..400 {
            let before = core.wal().stats().log_bytes;
            run(&core, |tx| put(tx, table, home, shape, MANY + i));
            worst = worst.max(core.wal().stats().log_bytes - before);
        }
        assert!(worst < 256, "{shape:?}: {worst} bytes");
    }
}

#[test]
fn a_deleted_big_collection_is_purged_also_after_a_restart() {
    for shape in Shape::ALL {
        let disk = SimDisk::new(2);
        let mut core = open(&disk);
        let pages = |core: &Core| core.heap().memory().get(MemoryUse::Pages);
        let empty = pages(&core);
        let home = fill(&core, b"big", shape, 3000);
        let before = core.wal().stats().log_bytes;
        assert!(run(&core, |tx| tx.delete(core.database(0), b"big")));
        let logged = core.wal().stats().log_bytes - before;
        assert!(
            logged < 256,
            "{shape:?}: only the header goes: {logged} bytes"
        );
        core.flush_all().expect("a flush");
        assert!(core.purge_step().is_ok());
        let digest = core.digest().unwrap();
        drop(core);
        disk.crash(CrashProfile::Nothing, 3);
        core = open(&disk);
        assert_eq!(core.digest().unwrap(), digest, "orphans are not data");
        let gone = core.transact(&PartitionSet::empty(), |tx| {
            Ok::<_, perdura::Error>(tx.elements(core.database(0), home)?.len())
        });
        assert!(gone.is_err(), "nobody reads an orphan");
        for _ in 0..200 {
            core.purge_step().expect("a step");
        }
        assert_eq!(pages(&core), empty, "{shape:?}");
    }
}

#[test]
fn memory_stays_bounded_while_big_collections_are_made_and_deleted_without_a_purge() {
    let disk = SimDisk::new(3);
    let core = open(&disk);
    let mut most = 0;
    for round in 0..30 {
        fill(&core, b"big", Shape::Set, 5000);
        if round % 2 == 0 {
            assert!(run(&core, |tx| tx.delete(core.database(0), b"big")));
        }
        most = most.max(core.heap().memory().used());
    }
    assert!(most < 8 << 20, "{most} bytes for 5000 members at a time");
}

#[test]
fn a_header_without_an_element_is_not_committed() {
    let disk = SimDisk::new(4);
    let core = open(&disk);
    let table = core.database(0);
    let made = core.transact(&PartitionSet::empty(), |tx| {
        tx.create(table, b"empty", Shape::Set, None).map(drop)
    });
    assert!(made.is_err());
    let home = fill(&core, b"one", Shape::Set, 1);
    let emptied = core.transact(&PartitionSet::empty(), |tx| {
        tx.element_delete(table, home, b"member:00000000")
    });
    assert!(emptied.is_err());
    run(&core, |tx| {
        assert_eq!(tx.elements(table, home)?.len(), 1, "it was undone");
        assert!(tx.get(table, b"empty")?.is_none());
        tx.element_delete(table, home, b"member:00000000")?;
        assert!(tx.delete(table, b"one")?);
        Ok(())
    });
}

#[test]
fn scores_that_are_no_numbers_and_values_of_members_are_refused() {
    let disk = SimDisk::new(5);
    let core = open(&disk);
    let table = core.database(0);
    let scores = fill(&core, b"scores", Shape::Zset, 2);
    let members = fill(&core, b"members", Shape::Set, 2);
    let list = fill(&core, b"list", Shape::List, 2);
    let refused = |home: Home, value: &[u8]| {
        let put = core.transact(&PartitionSet::empty(), |tx| {
            tx.element_put(table, home, b"m", value)
        });
        assert!(put.is_err());
    };
    refused(scores, &f64::NAN.to_le_bytes());
    refused(scores, b"1");
    refused(members, b"1");
    refused(list, b"");
    let beyond = core.transact(&PartitionSet::empty(), |tx| {
        tx.list_insert(table, list, 3, b"x")
    });
    assert!(beyond.is_err());
}

#[test]
fn a_rename_across_partitions_is_whole_or_not_there_after_a_crash() {
    for shape in Shape::ALL {
        let disk = SimDisk::new(6);
        let mut core = open(&disk);
        let home = fill(&core, b"from", shape, 300);
        let to = (0..255u8).map(|i| [b't', i]);
        let mut to = to.filter(|key| core.partition_of(key) != home.partition);
        let to = to.next().expect("four partitions");
        let there = |core: &Core, key: &[u8]| {
            run(core, |tx| {
                let home = tx.get(core.database(0), key)?.and_then(|row| row.home());
                home.map(|home| Ok(tx.elements(core.database(0), home)?.len()))
                    .transpose()
            })
        };
        for durable in [false, true] {
            let table = core.database(0);
            assert!(run(&core, |tx| tx.rename(table, b"from", table, &to)));
            if durable {
                core.flush_all().expect("a flush");
            }
            drop(core);
            disk.crash(CrashProfile::Nothing, 7);
            core = open(&disk);
            let want = if durable {
                (None, Some(300))
            } else {
                (Some(300), None)
            };
            assert_eq!((there(&core, b"from"), there(&core, &to)), want);
        }
        assert!(run(&core, |tx| tx.delete(core.database(0), &to)));
        for _ in 0..20 {
            core.purge_step().expect("a step");
        }
        let rows = core.heap().lock(home.partition).orphan_rows();
        assert_eq!(rows, 0, "the home's partition has purged them");
    }
}

#[test]
fn at_the_memory_limit_collections_lose_elements_and_gain_none() {
    let disk = SimDisk::new(7);
    let core = open(&disk);
    let table = core.database(0);
    let home = fill(&core, b"big", Shape::Set, 200);
    run(&core, |tx| {
        tx.put_small(table, b"small", Shape::Set, &[7; 500], None)
    });
    core.heap().memory().set_limit(1);
    let none = PartitionSet::empty();
    let grown = core.transact(&none, |tx| tx.element_put(table, home, b"new", b""));
    assert!(grown.is_err());
    let grown = core.transact(&none, |tx| {
        tx.put_small(table, b"small", Shape::Set, &[7; 501], None)
    });
    assert!(grown.is_err());
    run(&core, |tx| {
        assert!(tx.element_delete(table, home, b"member:00000007")?);
        tx.put_small(table, b"small", Shape::Set, &[7; 9], None)
    });
    let short = run(&core, |tx| {
        Ok(tx.get(table, b"small")?.map(|row| row.value_len()))
    });
    assert_eq!(short, Some(9));
}
