//! The database without threads, on a simulated disk.

use std::sync::Arc;

use perdura::{Core, CoreOptions, Disks, Env, PartitionSet, Progress, Renewal, Ticket};
use perdura_base::{CkptEpoch, Epoch, Pos, StreamId};
use perdura_device::{Clock, CrashProfile, Disk, FaultPlan, ManualClock, SimDisk};
use perdura_wal::{Check, Direction, FlushProgress, FrameKind, Rung, scan_stream};

pub fn small() -> CoreOptions {
    CoreOptions {
        partitions: 4,
        chunk_pages: 4,
        segment_bytes: 128 * 1024,
        block_bytes_max: 16 * 1024,
        ..CoreOptions::default()
    }
}

pub fn env(disk: &Arc<SimDisk>, streams: usize) -> Env {
    let life: Arc<dyn Disk> = disk.life();
    Env {
        disks: Disks::on_one(life, streams),
        clock: Arc::new(ManualClock::at(1_000_000)) as Arc<dyn Clock>,
        seed: 7,
        nodes: None,
        accept_loss: false,
    }
}

pub fn open(disk: &Arc<SimDisk>, streams: usize) -> Core {
    Core::open(env(disk, streams), small(), Arc::new(Progress::default())).expect("it opens")
}

fn set(core: &Core, key: &str, value: &[u8]) -> Ticket {
    let parts = [core.partition_of(key.as_bytes())].into_iter().collect();
    let done = core.transact(&parts, |tx| {
        tx.put(core.database(0), key.as_bytes(), value, None)
    });
    done.expect("a put").1
}

pub fn get(core: &Core, key: &str) -> Option<Vec<u8>> {
    let parts = [core.partition_of(key.as_bytes())].into_iter().collect();
    let read = core.transact(&parts, |tx| {
        let row = tx.get(core.database(0), key.as_bytes())?;
        Ok::<_, perdura::Error>(row.map(|row| {
            let mut value = Vec::new();
            row.copy_value(&mut value);
            value
        }))
    });
    read.expect("a get").0
}

/// Makes a write without using its ticket. The caller makes it durable with `flush_all`.
pub fn put(core: &Core, key: &str, value: &[u8]) {
    let _waited_for_by_flush_all = set(core, key, value);
}

#[test]
fn what_is_durable_survives_a_power_cut_and_what_is_not_is_gone_whole() {
    for streams in [1, 3] {
        let disk = SimDisk::new(1);
        let core = open(&disk, streams);
        let kept = set(&core, "kept", b"one");
        core.flush_all().unwrap();
        assert!(core.wal().durable(Rung::Disk) >= kept.epoch);
        let lost = set(&core, "lost", b"two");
        assert!(core.wal().durable(Rung::Disk) < lost.epoch);
        drop(core);
        disk.crash(CrashProfile::Nothing, 1);
        let core = open(&disk, streams);
        assert_eq!(get(&core, "kept").as_deref(), Some(&b"one"[..]));
        assert_eq!(get(&core, "lost"), None);
        assert_eq!(core.report().durable_epoch, kept.epoch.0);
    }
}

/// An operation may fail halfway, because the log refuses room for its next change. For example, RENAME removes the old
/// name, requests more room, and then writes the new name.
#[test]
fn nothing_of_a_transaction_is_kept_whose_closure_dropped_a_refused_write() {
    let options = CoreOptions {
        queue_bytes_max: 16 * 1024,
        ..small()
    };
    let env = env(&SimDisk::new(1), 1);
    let core = Core::open(env, options, Arc::new(Progress::default())).expect("it opens");
    put(&core, "kept", &[7; 9000]);
    core.flush_all().unwrap();
    let digest = core.digest().unwrap();
    let fill = |core: &Core| {
        let (none, filler) = (PartitionSet::empty(), [0; 12 * 1024]);
        for _ in 0..4 {
            let wal = core.wal();
            wal.append(StreamId(0), FrameKind::Group, &filler, &none, CkptEpoch(0));
        }
    };
    let table = core.database(0);
    let refused = core.transact(&core.all_partitions(), |tx| {
        tx.put(table, b"other", b"value", None)?;
        fill(&core);
        let dropped = tx.rename(table, b"kept", table, b"new");
        assert!(matches!(dropped, Err(perdura::Error::LogFull(_))));
        Ok::<_, perdura::Error>(())
    });
    assert!(matches!(refused, Err(perdura::Error::LogFull(_))));
    core.flush_all().unwrap();
    assert_eq!(core.digest().unwrap(), digest);
}

/// There was a bug: a flush (the emptying of a database) was published, and then its transaction was undone. So the
/// database used a table that was not in the catalog.
#[test]
fn a_flush_is_not_published_if_the_closure_dropped_a_refused_write() {
    let options = CoreOptions {
        queue_bytes_max: 16 * 1024,
        ..small()
    };
    let env = env(&SimDisk::new(1), 1);
    let core = Core::open(env, options, Arc::new(Progress::default())).expect("it opens");
    put(&core, "kept", b"one");
    core.flush_all().unwrap();
    let before = core.database(0);
    let refused = core.transact(&core.all_partitions(), |tx| {
        let mut flush = Renewal::default();
        core.begin_flush(tx, Some(0), &mut flush)?;
        // Other transactions write faster than the disk.
        let (none, filler) = (PartitionSet::empty(), [0; 12 * 1024]);
        for _ in 0..4 {
            let wal = core.wal();
            wal.append(StreamId(0), FrameKind::Group, &filler, &none, CkptEpoch(0));
        }
        let dropped = tx.put(core.database(1), b"lost", b"", None);
        assert!(matches!(dropped, Err(perdura::Error::LogFull(_))));
        core.finish_flush(tx, &flush).map(drop)
    });
    assert!(matches!(refused, Err(perdura::Error::LogFull(_))));
    assert_eq!(core.database(0), before);
    assert_eq!(get(&core, "kept").as_deref(), Some(&b"one"[..]));
}

#[test]
fn a_digest_of_a_catalog_that_does_not_parse_is_an_error_and_not_zero() {
    let disk = SimDisk::new(2);
    let core = open(&disk, 1);
    put(&core, "key", b"value");
    let parts = [core.partition_of(b"tdb99")].into_iter().collect();
    let catalog = perdura::catalog::CATALOG;
    let damaged = core.transact(&parts, |tx| tx.put(catalog, b"tdb99", b"\xff\xff", None));
    let (_, _never_flushed) = damaged.expect("a row that is no table");
    let error = core.digest().expect_err("a digest of what cannot be read");
    assert!(error.to_string().contains("catalog"), "{error}");
}

#[test]
fn a_table_of_a_kind_that_this_build_does_not_know_is_refused_by_name_and_nothing_changes() {
    for (row, said) in [
        (&[99, 2, 0][..], "key order 2"),
        (&[99, 0, 2], "addressing 2"),
        (&[99, 0, 0x10], "component 1"),
    ] {
        let disk = SimDisk::new(1);
        let core = open(&disk, 1);
        put(&core, "kept", b"value");
        let catalog = perdura::catalog::CATALOG;
        let made = core.transact(&core.all_partitions(), |tx| {
            tx.put(catalog, b"tlog", row, None)
        });
        let (_row, _durable_with_the_flush) = made.unwrap();
        core.flush_all().unwrap();
        drop(core);
        for attempt in 0..2 {
            let opened = Core::open(env(&disk, 1), small(), Arc::new(Progress::default()));
            let error = opened.err().expect("it is refused").to_string();
            assert!(
                error.contains("table log") && error.contains(said),
                "{attempt}: {error}"
            );
        }
    }
}

/// A caller can choose the names of the tables. By default, the tables are Redis's databases.
#[test]
fn tables_are_known_by_name_emptied_and_swapped_with_their_durability() {
    let disk = SimDisk::new(1);
    let open = || {
        let options = CoreOptions {
            tables: &["users", "orders"],
            ..small()
        };
        Core::open(env(&disk, 1), options, Arc::new(Progress::default())).expect("it opens")
    };
    let read = |core: &Core, name: &str| {
        let table = core.table(name).expect("a table of this name");
        let all = core.all_partitions();
        let found = core.transact(&all, |tx| {
            let row = tx.get(table, b"key")?;
            Ok::<_, perdura::Error>(row.map(|row| row.value().into_owned()))
        });
        found.unwrap().0
    };
    let core = open();
    assert_eq!(core.table("db0"), None);
    let users = core.table("users").expect("it was made");
    let put = core.transact(&core.all_partitions(), |tx| {
        tx.put(users, b"key", b"Ada", None)
    });
    let ((), _durable_with_the_flush) = put.unwrap();
    core.flush_all().unwrap();
    for life in 0..2 {
        let core = open();
        let all = core.all_partitions();
        let (before, after) = [("users", "orders"), ("orders", "users")][life];
        assert_eq!(read(&core, before).as_deref(), Some(&b"Ada"[..]));
        let swapped = core.transact(&all, |tx| {
            let mut swap = Renewal::default();
            core.swap_tables(tx, [0, 1], &mut swap)?;
            core.finish_flush(tx, &swap)
        });
        core.reclaim_flushed(swapped.unwrap().0);
        assert_eq!(read(&core, before), None);
        assert_eq!(read(&core, after).as_deref(), Some(&b"Ada"[..]));
        core.flush_all().unwrap();
        drop(core);
        disk.crash(CrashProfile::Nothing, 1);
    }
    let core = open();
    let emptied = core.transact(&core.all_partitions(), |tx| {
        let mut flush = Renewal::default();
        core.begin_renewal(tx, 0..1, &mut flush)?;
        core.finish_flush(tx, &flush)
    });
    core.reclaim_flushed(emptied.unwrap().0);
    core.flush_all().unwrap();
    drop(core);
    disk.crash(CrashProfile::Nothing, 1);
    assert_eq!(read(&open(), "users"), None);
}

#[test]
fn a_checkpoint_shortens_the_next_restart_and_changes_nothing() {
    let disk = SimDisk::new(2);
    let core = open(&disk, 2);
    for i in 0..500 {
        put(&core, &format!("key{i}"), &[1; 300]);
        if i % 50 == 0 {
            core.flush_all().unwrap();
        }
    }
    core.checkpoint_now().unwrap();
    for i in 0..100 {
        put(&core, &format!("key{i}"), &[2; 300]);
    }
    core.flush_all().unwrap();
    let digest = core.digest().unwrap();
    drop(core);
    disk.crash(CrashProfile::Nothing, 2);
    let core = open(&disk, 2);
    assert_eq!(core.digest().unwrap(), digest);
    assert_eq!(core.report().image, "A");
    assert_eq!(core.report().records.applied, 100);
    assert!(core.report().rows_from_sidecar > 0);
    core.checkpoint_now().unwrap();
    core.checkpoint_now().unwrap();
    core.flush_all().unwrap();
    drop(core);
    disk.crash(CrashProfile::Worst, 3);
    let core = open(&disk, 2);
    assert_eq!(core.digest().unwrap(), digest);
}

#[test]
fn values_larger_than_pages_and_than_blocks_survive() {
    let disk = SimDisk::new(3);
    let core = open(&disk, 1);
    let big: Vec<u8> = (0..200_000u32)
        .map(|i| i.to_le_bytes()[1] ^ i.to_le_bytes()[0])
        .collect();
    put(&core, "big", &big);
    core.flush_all().unwrap();
    drop(core);
    disk.crash(CrashProfile::Nothing, 4);
    let core = open(&disk, 1);
    assert_eq!(get(&core, "big"), Some(big));
}

#[test]
fn an_epoch_is_durable_only_when_every_stream_holds_its_part() {
    let disk = SimDisk::new(4);
    let core = open(&disk, 2);
    core.flush_all().unwrap();
    let mut newest = Epoch(0);
    for i in 0..2000 {
        newest = newest.max(set(&core, &format!("k{i}"), &[3; 64]).epoch);
    }
    core.close_epoch();
    let drain = |stream| while core.flush_step(stream).unwrap() != FlushProgress::Idle {};
    let before = core.wal().durable(Rung::Disk);
    drain(StreamId(0));
    let after_one = core.wal().durable(Rung::Disk);
    drain(StreamId(1));
    assert!(before < newest);
    assert_eq!(core.wal().durable(Rung::Disk), newest);
    // If the second stream had nothing of the epoch, flushing one stream is enough.
    assert!(after_one == before || after_one == newest);
}

#[test]
fn a_flushed_database_is_empty_after_a_restart_and_its_pages_come_back() {
    let disk = SimDisk::new(5);
    let core = open(&disk, 1);
    for i in 0..1000 {
        put(&core, &format!("key{i}"), &[9; 200]);
    }
    let _flushed = core.flush_database(Some(0)).unwrap();
    put(&core, "after", b"x");
    core.flush_all().unwrap();
    drop(core);
    disk.crash(CrashProfile::Nothing, 5);
    let core = open(&disk, 1);
    assert_eq!(get(&core, "key1"), None);
    assert_eq!(get(&core, "after").as_deref(), Some(&b"x"[..]));
    let before = core.heap().memory().get(perdura::MemoryUse::Pages);
    for _ in 0..2000 {
        core.purge_step().unwrap();
    }
    let after = core.heap().memory().get(perdura::MemoryUse::Pages);
    assert!(
        after * 4 < before,
        "{before} bytes of pages, {after} after the purge"
    );
}

#[test]
fn a_flush_leaves_the_indexes_of_its_tables_to_the_purge() {
    let disk = SimDisk::new(6);
    let core = open(&disk, 1);
    put(&core, "key", b"value");
    while core.purge_step().unwrap() > 0 {}
    // Each partition has the tables of sixteen databases.
    let _flushed = core.flush_database(None).unwrap();
    let partitions = usize::from(core.heap().geometry().partitions);
    let steps: Vec<usize> = (0..partitions)
        .map(|_| core.purge_step().unwrap())
        .collect();
    assert!(steps.iter().all(|tables| *tables >= 16), "{steps:?}");
    assert!(core.purge_step().unwrap() < 16);
}

/// Makes two images, each followed by more writes. Returns the digest of the database after the last write.
pub fn two_images(disk: &Arc<SimDisk>) -> u64 {
    let core = open(disk, 1);
    for round in 0..3u8 {
        for i in 0..200 {
            put(&core, &format!("key{i}"), &[round; 300]);
        }
        core.flush_all().unwrap();
        if round < 2 {
            core.checkpoint_now().unwrap();
        }
    }
    core.digest().unwrap()
}

pub fn pages_of(disk: &Arc<SimDisk>, image: &str) -> (String, u64) {
    let files = disk.files();
    files
        .into_iter()
        .find(|(path, _)| *path == format!("{image}/pages"))
        .unwrap()
}

/// If one image is damaged, the next checkpoint must not overwrite the good image.
#[test]
fn after_a_page_was_rebuilt_the_damaged_image_is_rewritten_first() {
    let disk = SimDisk::new(6);
    let digest = two_images(&disk);
    disk.crash(CrashProfile::Nothing, 6);
    let (path, len) = pages_of(&disk, "image-b");
    for at in (4096..len).step_by(1000) {
        disk.flip(&path, at, 1);
    }
    let core = open(&disk, 1);
    assert_eq!(core.digest().unwrap(), digest);
    assert!(core.report().pages_rebuilt > 0);
    core.checkpoint_begin().unwrap();
    for _ in 0..5 {
        core.checkpoint_step().unwrap();
    }
    drop(core);
    disk.crash(CrashProfile::Worst, 7);
    let core = open(&disk, 1);
    assert_eq!(
        core.digest().unwrap(),
        digest,
        "image A is whole and still named"
    );
    core.checkpoint_now().unwrap();
    core.checkpoint_now().unwrap();
    drop(core);
    disk.crash(CrashProfile::Nothing, 8);
    let core = open(&disk, 1);
    assert_eq!(
        (core.digest().unwrap(), core.report().pages_rebuilt),
        (digest, 0)
    );
}

#[test]
fn a_damaged_directory_falls_back_to_the_older_image_and_is_rewritten_first() {
    let disk = SimDisk::new(7);
    let digest = two_images(&disk);
    disk.crash(CrashProfile::Nothing, 9);
    let directory = disk
        .files()
        .into_iter()
        .find(|(path, _)| path.starts_with("image-b/directory"))
        .unwrap();
    disk.flip(&directory.0, 50, 2);
    let core = open(&disk, 1);
    assert_eq!(core.digest().unwrap(), digest);
    assert_eq!(core.report().image, "A");
    assert!(
        core.report()
            .notes
            .iter()
            .any(|note| note.contains("image B cannot be used"))
    );
    core.checkpoint_begin().unwrap();
    drop(core);
    disk.crash(CrashProfile::Nothing, 10);
    assert_eq!(open(&disk, 1).digest().unwrap(), digest);
}

#[test]
fn damage_that_nothing_can_repair_is_reported_and_changes_nothing() {
    let disk = SimDisk::new(8);
    let core = open(&disk, 1);
    put(&core, "key", &[1; 300]);
    core.checkpoint_now().unwrap();
    drop(core);
    disk.crash(CrashProfile::Nothing, 11);
    let (path, len) = pages_of(&disk, "image-a");
    for at in (4096..len).step_by(1000) {
        disk.flip(&path, at, 1);
    }
    let before = disk.read_all("anchor").unwrap();
    let refused = Core::open(env(&disk, 1), small(), Arc::new(Progress::default()));
    let Err(perdura::Error::Corrupt(corruption)) = refused else {
        panic!("it must refuse")
    };
    assert!(corruption.file.contains("image-a/pages"), "{corruption}");
    assert!(
        corruption
            .consequence
            .contains("the other image is not complete"),
        "{corruption}"
    );
    assert_eq!(disk.read_all("anchor").unwrap(), before);
}

/// Found in review. In a database's first life, before any checkpoint, the log directories were given in a wrong order.
/// No stream found a segment, so the database opened empty. The new anchor made the old log invalid.
#[test]
fn log_directories_in_another_order_are_refused_and_nothing_is_lost() {
    let (data, logs) = (SimDisk::new(1), [SimDisk::new(2), SimDisk::new(3)]);
    let with_logs = |order: [usize; 2]| Env {
        disks: Disks {
            images: vec![data.life()],
            data: data.life(),
            logs: order.map(|at| logs[at].life() as Arc<dyn Disk>).to_vec(),
        },
        clock: Arc::new(ManualClock::at(1_000_000)) as Arc<dyn Clock>,
        seed: 7,
        nodes: None,
        accept_loss: false,
    };
    let open = |order| Core::open(with_logs(order), small(), Arc::new(Progress::default()));
    let core = open([0, 1]).expect("a new database");
    for number in 0..20 {
        put(&core, &format!("key {number}"), b"value");
    }
    core.flush_all().expect("room");
    drop(core);
    let refused = open([1, 0]).map(drop).unwrap_err().to_string();
    assert!(refused.contains("in the order"), "{refused}");
    let core = open([0, 1]).expect("the right order");
    assert_eq!(get(&core, "key 19").as_deref(), Some(&b"value"[..]));
}

/// Found in review. A page was damaged, and the read of the older image then failed. This was reported as damage beyond
/// repair. It is only a read error, and the next start must succeed.
#[test]
fn a_read_that_fails_while_a_page_is_rebuilt_is_no_damage_beyond_repair() {
    let disk = SimDisk::new(11);
    let digest = two_images(&disk);
    disk.crash(CrashProfile::Nothing, 12);
    let (path, len) = pages_of(&disk, "image-b");
    assert!(disk.flip(&path, len - 16 * 1024 + 100, 3));
    let before = disk.snapshot();
    let mut failed = 0;
    for nth in 1..=200 {
        disk.restore(&before);
        disk.set_plan(FaultPlan {
            fail_read_at: Some(nth),
            ..FaultPlan::default()
        });
        match Core::open(env(&disk, 1), small(), Arc::new(Progress::default())) {
            Ok(core) => assert_eq!(core.digest().unwrap(), digest, "read {nth}"),
            Err(error) => {
                failed += 1;
                assert!(error.is_unreadable(), "read {nth}: {error}");
            }
        }
    }
    assert!(failed > 0, "no read was one that nothing can stand in for");
}

#[test]
fn the_age_of_what_is_not_durable_counts_from_its_write_however_long_a_sync_takes() {
    let ms = |n: u64| n * 1_000_000;
    let clock = Arc::new(ManualClock::at(1_000_000));
    let disk = SimDisk::new(7);
    let env = Env {
        clock: Arc::clone(&clock) as Arc<dyn Clock>,
        ..env(&disk, 1)
    };
    let core = Core::open(env, small(), Arc::new(Progress::default())).expect("it opens");
    core.flush_all().expect("flushed");
    clock.advance_us(50_000);
    assert_eq!(core.age_ns(Rung::Disk), 0, "there is nothing to lose");
    put(&core, "a", b"1");
    clock.advance_us(7_000);
    assert_eq!(core.age_ns(Rung::Disk), ms(7), "no flusher has looked yet");
    assert!(core.close_epoch().is_some());
    while core.flush_step(StreamId(0)).expect("a write") != FlushProgress::Wrote {}
    // The sync of the first epoch takes 500 ms. A second epoch is written 4 ms after the sync has begun.
    clock.advance_us(4_000);
    put(&core, "b", b"2");
    assert_eq!(core.age_ns(Rung::Disk), ms(11));
    clock.advance_us(496_000);
    assert_eq!(core.age_ns(Rung::Disk), ms(507));
    while core.flush_step(StreamId(0)).expect("a sync") != FlushProgress::Synced {}
    assert_eq!(
        core.age_ns(Rung::Disk),
        ms(496),
        "the second one is as old as its write"
    );
    core.flush_all().expect("flushed");
    assert_eq!(core.age_ns(Rung::Disk), 0);
}

#[test]
fn a_restart_refuses_a_log_that_holds_a_record_twice() {
    let disk = SimDisk::new(14);
    let core = open(&disk, 1);
    put(&core, "key", b"value");
    core.flush_all().unwrap();
    let anchor = core.anchor().get();
    let life = disk.life();
    let lives = anchor.lives();
    let scan = scan_stream(life.as_ref(), &lives, StreamId(0), Pos(0), Check::InDoubt).unwrap();
    let mut last = Vec::new();
    for unit in scan.units(1 << 20) {
        let read = scan.read_unit(unit, Direction::Forward, |frame, _| {
            if frame.kind == FrameKind::Group {
                last = frame.payload.to_vec();
            }
            Ok(())
        });
        read.unwrap();
    }
    let none = PartitionSet::empty();
    let wal = core.wal();
    wal.append(StreamId(0), FrameKind::Group, &last, &none, CkptEpoch(0));
    core.flush_all().unwrap();
    drop(core);
    disk.crash(CrashProfile::Everything, 1);
    let refused = Core::open(env(&disk, 1), small(), Arc::new(Progress::default()));
    let Err(perdura::Error::Corrupt(corruption)) = refused else {
        panic!("it must refuse")
    };
    assert!(corruption.expected.contains("every update"), "{corruption}");
}
