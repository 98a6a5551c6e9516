//! Rows that nearly fill a slot, and rows that need chains of pages. A review found the bugs that these tests cover.

use std::sync::Arc;

use perdura::core::Core;
use perdura::{End, Home, Progress, Shape, TEXT_PAGE_BYTES};
use perdura_base::{PartitionId, PartitionSet};
use perdura_device::{CrashProfile, SimDisk};

use crate::collections::{orphan_rows, purge_all};
use crate::core_steps::{env, small};

fn open(disk: &Arc<SimDisk>) -> Core {
    Core::open(env(disk, 2), small(), Arc::new(Progress::default())).expect("it opens")
}

fn crash(core: Core, disk: &Arc<SimDisk>) -> Core {
    core.flush_all().expect("a flush");
    drop(core);
    disk.crash(CrashProfile::Nothing, 1);
    open(disk)
}

/// There was a bug: a header was read only if it was in a slot. With a key of 20,000 bytes the header is in a chain. So
/// the collection could not be found, and no restart succeeded.
#[test]
fn a_collection_under_a_key_longer_than_a_slot_is_found_again() {
    let disk = SimDisk::new(5);
    let mut core = open(&disk);
    for (bytes, shape) in [16_301, 20_000, 65_000].into_iter().zip(Shape::ALL) {
        let (key, other) = (vec![b'k'; bytes], vec![b'o'; bytes]);
        let table = core.database(0);
        let made = core.transact(&PartitionSet::empty(), |tx| {
            let home = tx.create(table, &key, shape, None)?;
            match shape {
                Shape::List => tx.list_push(table, home, End::Back, &[b"x"])?,
                Shape::Set => drop(tx.element_put(table, home, b"x", b"")?),
                _ => drop(tx.element_put(table, home, b"x", &[0; 8])?),
            }
            tx.set_expiry(table, &key, Some(u64::MAX - 1))?;
            tx.rename(table, &key, table, &other)
        });
        assert!(made.expect("a collection").0);
        core = crash(core, &disk);
        let found = core.transact(&PartitionSet::empty(), |tx| {
            let home = tx.get(table, &other)?.and_then(|row| row.home());
            let home: Home = home.expect("a header");
            let elements = tx.elements(table, home)?.len();
            tx.delete(table, &other)?;
            Ok::<_, perdura::Error>(elements)
        });
        assert_eq!(found.expect("a read").0, 1);
        core = crash(core, &disk);
        let empty = core.transact(&core.all_partitions(), |tx| tx.len(table));
        assert_eq!(empty.expect("a count").0, 0);
    }
}

/// There was a bug: an item that got a longer label was written back as an inline row, even if the row was then too
/// long. This panicked and stopped the database.
#[test]
fn an_item_that_fills_its_slot_survives_a_longer_label() {
    let disk = SimDisk::new(6);
    let core = open(&disk);
    let table = core.database(0);
    let item = vec![b'i'; 16_306];
    let done = core.transact(&PartitionSet::empty(), |tx| {
        let home = tx.create(table, b"l", Shape::List, None)?;
        tx.list_push(table, home, End::Back, &[&item])?;
        tx.list_push(table, home, End::Back, &[b"x"])?;
        for _ in 0..40 {
            tx.list_insert(table, home, 1, b"y")?;
        }
        Ok::<_, perdura::Error>(())
    });
    assert!(done.is_ok(), "room between any two items");
    let core = crash(core, &disk);
    let read = core.transact(&PartitionSet::empty(), |tx| {
        let home = tx.get(table, b"l")?.and_then(|row| row.home());
        let elements = tx.elements(table, home.expect("a header"))?;
        let first = elements.at(0).map(|row| row.value_len());
        Ok::<_, perdura::Error>((elements.len(), first))
    });
    assert_eq!(read.expect("a read").0, (42, Some(16_306)));
}

fn ids(core: &Core) -> impl Iterator<Item = PartitionId> {
    (0..core.heap().geometry().partitions).map(PartitionId)
}

/// Sets a limit: a chain of at most three pages is freed together with its key. The purge frees longer chains, three
/// pages at a time.
fn few_pages(core: &Core) {
    let limits = perdura::OrphanLimits {
        chain_pages: 3,
        ..perdura::OrphanLimits::default()
    };
    for id in ids(core) {
        core.heap().lock(id).set_orphan_limits(limits);
    }
}

fn pages(core: &Core) -> u64 {
    ids(core)
        .map(|id| core.heap().lock(id).pages_held(core.database(0)))
        .sum()
}

fn put(core: &Core, bytes: usize) {
    let put = core.transact(&PartitionSet::empty(), |tx| {
        tx.put(core.database(0), b"k", &vec![7; bytes], None)
    });
    let _waited_for_by_a_flush = put.expect("it commits");
}

/// There was a bug: a loop that overwrote long strings left chains to the purge faster than the purge freed them.
#[test]
fn what_builds_a_long_string_frees_two_pages_of_those_that_wait_for_each_of_its_own() {
    let disk = SimDisk::new(9);
    let core = open(&disk);
    few_pages(&core);
    put(&core, 20 * TEXT_PAGE_BYTES);
    put(&core, 1);
    assert_eq!(orphan_rows(&core), 1, "the string waits");
    let others = pages(&core) - 20;
    let begun = core.transact(&PartitionSet::empty(), |tx| {
        tx.begin_draft(core.database(0), b"k", Shape::List)
    });
    let draft = begun.expect("a draft").0;
    let mut text = None;
    for (own, waiting) in [(4, 12), (8, 4), (12, 0)] {
        let grown = core.transact(&PartitionSet::empty(), |tx| {
            tx.grow_text(&draft, text, &vec![8; 4 * TEXT_PAGE_BYTES])
        });
        text = Some(grown.expect("it grows").0);
        let rows = pages(&core) - own - waiting;
        assert!(rows <= others + 1, "{rows} pages of rows, {others} before");
        assert_eq!(orphan_rows(&core), u64::from(waiting > 0));
    }
}

/// There was a bug: a step of the purge counted only rows, but each item of an orphan may be a
/// chain of a thousand pages.
#[test]
fn a_step_of_the_purge_counts_the_pages_of_elements_as_well_as_their_rows() {
    let disk = SimDisk::new(10);
    let core = open(&disk);
    few_pages(&core);
    let (table, item) = (core.database(0), vec![7; 2 * TEXT_PAGE_BYTES]);
    let made = core.transact(&PartitionSet::empty(), |tx| {
        let home = tx.create(table, b"l", Shape::List, None)?;
        (0..9).try_for_each(|_| tx.list_push(table, home, End::Back, &[&item]))
    });
    let _waited_for_by_a_flush = made.expect("a list");
    let deleted = core.transact(&PartitionSet::empty(), |tx| tx.delete(table, b"l"));
    assert!(deleted.expect("it commits").0);
    assert_eq!(orphan_rows(&core), 9, "few rows, but many pages");
    let mut before = pages(&core);
    while orphan_rows(&core) > 0 {
        core.purge_step().expect("a step");
        let freed = before.checked_sub(pages(&core)).expect("pages are freed");
        assert!(freed <= 2 * 2 + 1, "{freed} pages in one step");
        before -= freed;
    }
}

#[test]
fn a_long_string_that_is_gone_is_freed_some_pages_at_a_time_across_a_crash_too() {
    let disk = SimDisk::new(8);
    let core = open(&disk);
    few_pages(&core);
    put(&core, 20 * 16_320);
    put(&core, 10 * 16_320);
    assert_eq!(pages(&core), 20 + 10 + 2, "the first one waits");
    let deleted = core.transact(&PartitionSet::empty(), |tx| {
        tx.delete(core.database(0), b"k")
    });
    assert!(deleted.expect("it commits").0);
    assert_eq!(
        (pages(&core), orphan_rows(&core)),
        (31, 2),
        "so does this one"
    );
    let mut before = pages(&core);
    while before > 12 {
        core.purge_step().expect("a step");
        let now = pages(&core);
        // A step may free the end of one string, the beginning of the next string, and the page with the rows of the
        // items.
        let freed = before.checked_sub(now).expect("pages are freed");
        assert!(freed <= 7, "{before} to {now} pages");
        before = now;
    }
    let core = crash(core, &disk);
    few_pages(&core);
    assert_eq!(pages(&core), before);
    purge_all(&core);
    assert_eq!((pages(&core), orphan_rows(&core)), (0, 0));
}
