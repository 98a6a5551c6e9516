//! Faults of the disk: some delay work, others stop the database.

use std::sync::Arc;

use perdura::{Core, Error, Progress, Tx};
use perdura_base::{ImageSlot, Uuid};
use perdura_device::{CrashProfile, Disk, FaultPlan, SimDisk, SyncFailure};
use perdura_recovery::image::{ImageFile, create_images};

use crate::core_steps::{env, get, open, put, small};

fn directories(disk: &SimDisk) -> usize {
    let files = disk.files();
    let directory = |(path, _): &&(String, u64)| path.contains("/directory-");
    files.iter().filter(directory).count()
}

fn segments(disk: &SimDisk) -> usize {
    let files = disk.files();
    let segment = |(path, _): &&(String, u64)| path.contains("/s00-");
    files.iter().filter(segment).count()
}

/// Makes the disk refuse one write for lack of space: the `nth` write after this call.
fn refuse_write(disk: &SimDisk, nth: u64) {
    disk.set_plan(FaultPlan {
        refuse_write_at: Some((nth, 1)),
        ..FaultPlan::default()
    });
}

#[test]
fn what_a_checkpoint_cannot_remove_is_removed_later_and_stops_nothing() {
    let mut struck = 0;
    for nth in 1..12 {
        let disk = SimDisk::new(nth);
        let core = open(&disk, 1);
        for round in 0..4u8 {
            put(&core, "key", &[round; 60_000]);
            core.checkpoint_now().unwrap();
        }
        disk.set_plan(FaultPlan {
            fail_name_at: Some(nth),
            ..FaultPlan::default()
        });
        put(&core, "key", b"last");
        // A fault in making a name that the image needs cancels the checkpoint. A fault in removing
        // an old name does not.
        let taken = core.checkpoint_now();
        struck += u64::from(disk.faults().contains_key("name_failed"));
        disk.set_plan(FaultPlan::default());
        assert_eq!(core.wal().failure(), None, "name {nth}");
        core.clear_away().unwrap();
        if taken.is_err() {
            core.checkpoint_now().unwrap();
        }
        assert!(directories(&disk) <= 2, "name {nth}: {:?}", disk.files());
        assert_eq!(get(&core, "key").unwrap(), b"last");
    }
    assert!(struck >= 3, "{struck}");
}

#[test]
fn a_database_whose_log_another_process_owns_stops_and_says_so() {
    let disk = SimDisk::new(7);
    let core = open(&disk, 1);
    put(&core, "key", b"value");
    core.flush_all().unwrap();
    disk.set_plan(FaultPlan {
        fence_write_at: Some(1),
        ..FaultPlan::default()
    });
    put(&core, "key", b"never acknowledged");
    assert!(matches!(core.flush_all(), Err(Error::Fenced(_))));
    disk.set_plan(FaultPlan::default());
    let parts = [core.partition_of(b"key")].into_iter().collect();
    let write = core.transact(&parts, |tx| tx.put(core.database(0), b"key", b"x", None));
    let refused = [
        write.map(drop),
        core.checkpoint_now(),
        core.vouch().map(drop),
        core.mark_clean(),
    ];
    for error in refused.map(Result::unwrap_err) {
        assert!(error.is_fenced(), "{error}");
        assert!(error.to_string().contains("another process owns the log"));
    }
    drop(core);
    disk.crash(CrashProfile::Nothing, 1);
    assert_eq!(get(&open(&disk, 1), "key").unwrap(), b"value");
}

#[test]
fn an_older_image_that_cannot_be_read_delays_the_checkpoint_and_stops_nothing() {
    let disk = SimDisk::new(3);
    let core = open(&disk, 1);
    put(&core, "key", b"value");
    core.checkpoint_now().unwrap();
    core.checkpoint_now().unwrap();
    disk.set_plan(FaultPlan {
        fail_read_at: Some(1),
        ..FaultPlan::default()
    });
    let refused = core.checkpoint_now();
    assert!(matches!(refused, Err(Error::Io { .. })), "{refused:?}");
    assert_eq!(core.wal().failure(), None);
    core.checkpoint_now().unwrap();
    put(&core, "key", b"other");
    core.flush_all().unwrap();
}

#[test]
fn a_page_that_cannot_be_written_is_written_by_the_next_checkpoint() {
    for nth in 1..20 {
        let disk = SimDisk::new(nth);
        let core = open(&disk, 1);
        for i in 0..20 {
            put(&core, &format!("key {i}"), &[7; 9000]);
        }
        core.flush_all().unwrap();
        refuse_write(&disk, nth);
        let cancelled = core.checkpoint_now().is_err();
        // Some of these writes go to copies of the anchor.
        assert_eq!(core.wal().failure(), None, "write {nth}");
        disk.set_plan(FaultPlan::default());
        assert!(core.checkpoint_now().is_ok() || !cancelled, "write {nth}");
        drop(core);
        disk.crash(CrashProfile::Nothing, nth);
        let core = open(&disk, 1);
        for i in 0..20 {
            assert!(get(&core, &format!("key {i}")).is_some(), "write {nth}");
        }
    }
}

/// The anchor names each life of the database while the log of that life is needed. The anchor has room for a limited
/// number of lives.
#[test]
fn three_hundred_restarts_on_a_disk_that_fails_now_and_then_do_not_use_up_the_anchor() {
    let disk = SimDisk::new(11);
    let mut acknowledged = 0u32;
    let (mut opened, mut chain_max) = (0, 0);
    for life in 0..300u64 {
        // Every life ends with a failed sync, either during the restart or at its first writes.
        let at = [2, 9, 4, 30, 6, 3, 14][usize::try_from(life % 7).unwrap()];
        disk.set_plan(FaultPlan {
            fail_sync_at: Some((at, SyncFailure::KeepsNew)),
            ..FaultPlan::default()
        });
        match Core::open(env(&disk, 1), small(), Arc::new(Progress::default())) {
            Ok(core) => {
                opened += 1;
                chain_max = chain_max.max(core.anchor().get().chain.len());
                if let Some(kept) = get(&core, "count") {
                    let kept = u32::from_le_bytes(kept.try_into().unwrap());
                    assert!(kept >= acknowledged, "life {life}");
                }
                for _ in 0..10 {
                    if core.admit(100).is_err() {
                        break;
                    }
                    let next = acknowledged + 1;
                    put(&core, "count", &next.to_le_bytes());
                    if core.flush_all().is_err() {
                        break;
                    }
                    acknowledged = next;
                }
            }
            Err(error) => assert!(
                matches!(error, Error::Io { .. } | Error::Stopped(_)),
                "life {life}: {error}"
            ),
        }
        disk.crash(CrashProfile::Worst, life);
    }
    println!(
        "{opened} of 300 opened, {acknowledged} writes, at most {chain_max} lives in the anchor"
    );
    disk.set_plan(FaultPlan::default());
    let core = open(&disk, 1);
    let kept = get(&core, "count").unwrap();
    assert!(u32::from_le_bytes(kept.try_into().unwrap()) >= acknowledged);
    assert!(chain_max < 100, "{chain_max}");
}

/// Found in review: after 200 lives without a checkpoint, no further start was possible.
#[test]
fn three_hundred_lives_that_all_end_before_a_checkpoint_keep_their_data() {
    use perdura_recovery::indexing::NoTables;
    use perdura_recovery::restart::{RestartOptions, restart};
    use perdura_recovery::{ExecutorWindow, Life, LogMemory, Methods, flush_all};
    let disk = SimDisk::new(13);
    let options = || perdura::CoreOptions {
        segment_bytes: 64 << 10,
        segment_bytes_first: 64 << 10,
        ..small()
    };
    let start = || Core::open(env(&disk, 1), options(), Arc::new(Progress::default())).unwrap();
    let core = start();
    put(&core, "key", b"value");
    core.flush_all().unwrap();
    drop(core);
    for life in 0..300 {
        disk.crash(CrashProfile::Everything, life);
        let env = env(&disk, 1);
        let restart_options = RestartOptions {
            life: perdura_base::LifeId(0),
            disks: env.disks,
            clock: env.clock,
            schedule: options().schedule,
            methods: Methods::default(),
            tree: perdura_recovery::tree::TreeMeans::default(),
            ordered: None,
            archived: None,
            mode: perdura_recovery::RestartMode::Real,
            tail: Default::default(),
            memory: Arc::new(perdura_heap::MemoryAccount::new(u64::MAX)),
            catalog: Arc::new(NoTables),
            progress: Arc::new(Progress::default()),
        };
        let restarted = restart(&restart_options).unwrap().unwrap();
        let memory = LogMemory {
            block_bytes_max: options().block_bytes_max,
            queue_bytes_max: options().queue_bytes_max,
            lanes: 1,
            mirror: None,
        };
        // This life begins its log, and then ends.
        let resumed = Life::begin(
            restarted,
            &restart_options,
            memory,
            Arc::new(ExecutorWindow::default()),
        );
        flush_all(&resumed.unwrap().wal).unwrap();
    }
    disk.crash(CrashProfile::Everything, 300);
    let chain = || {
        let anchor = perdura_recovery::read_anchor(disk.life().as_ref());
        anchor.unwrap().unwrap().chain.len()
    };
    assert_eq!(chain(), 300, "the anchor had room for 200");
    let core = start();
    assert_eq!(get(&core, "key").unwrap(), b"value");
    assert!(chain() < 10, "two checkpoints were taken: {}", chain());
}

/// The database must notice a full disk before it accepts too many writes. Segments of at least 1 MiB gave it time.
/// Now the first segments of a life are smaller.
#[test]
fn on_a_full_disk_with_small_segments_what_is_accepted_is_durable_without_more_space() {
    for spare_bytes in (0..1_500_000).step_by(50_000) {
        let disk = SimDisk::new(12);
        let options = perdura::CoreOptions {
            segment_bytes: 512 << 10,
            segment_bytes_first: 64 << 10,
            ..small()
        };
        let core = Core::open(env(&disk, 2), options, Arc::new(Progress::default())).unwrap();
        core.flush_all().unwrap();
        let used: u64 = disk.files().iter().map(|(_, len)| len).sum();
        disk.set_plan(FaultPlan {
            capacity_bytes: Some(used + spare_bytes),
            ..FaultPlan::default()
        });
        let mut accepted = 0;
        let refused = loop {
            let key = format!("key {accepted}");
            let parts = [core.partition_of(key.as_bytes())].into_iter().collect();
            let value = vec![7; [10, 9000, 40, 70_000][accepted % 4]];
            let done = core.transact(&parts, |tx| {
                tx.put(core.database(0), key.as_bytes(), &value, None)
            });
            match done {
                Ok(_) => accepted += 1,
                Err(error) => break error,
            }
            if accepted % 5 == 0 {
                core.flush_all().unwrap();
            }
        };
        assert!(matches!(refused, Error::LogFull(_)), "{refused}");
        core.flush_all().unwrap();
        assert!(core.wal().is_idle());
        disk.set_plan(FaultPlan::default());
        put(&core, "last", b"value");
        core.flush_all().unwrap();
    }
}

/// The removal of a long value logs a record for each page of the value. There was a bug: the removal did not request
/// room in the log for these records.
#[test]
fn on_a_full_disk_a_removal_of_long_values_that_is_accepted_is_durable_without_more_space() {
    let disk = SimDisk::new(13);
    let core = open(&disk, 1);
    let long = vec![7; 4 << 20];
    let keys: Vec<String> = (0..12).map(|i| format!("long {i}")).collect();
    for key in &keys {
        put(&core, key, &long);
        core.flush_all().unwrap();
    }
    let used: u64 = disk.files().iter().map(|(_, len)| len).sum();
    disk.set_plan(FaultPlan {
        capacity_bytes: Some(used),
        ..FaultPlan::default()
    });
    let all = core.all_partitions();
    let fills = |i: u32| {
        let put = |tx: &mut Tx<'_>| tx.put(core.database(0), &i.to_le_bytes(), &[7; 500], None);
        core.transact(&all, put).is_ok()
    };
    assert!((0..10_000).any(|i| !fills(i)), "the disk is full");
    let removed = core.transact(&all, |tx| {
        keys.iter()
            .try_for_each(|key| tx.delete(core.database(0), key.as_bytes()).map(drop))
    });
    core.flush_all().unwrap();
    assert!(core.wal().is_idle(), "{removed:?}");
    disk.set_plan(FaultPlan::default());
}

/// Found by the simulator in steal mode. A creation was killed after it had named a file of pages,
/// before the name was durable. The next creation saw the file and assumed that the name was
/// durable. A power cut then removed the file, which the anchor already named.
#[test]
fn a_creation_after_a_killed_one_leaves_every_name_durable() {
    let uuid = Uuid([5; 16]);
    for ops in 0..40 {
        let disk = SimDisk::new(ops);
        let create = || {
            let life: Arc<dyn Disk> = disk.life();
            create_images(life.as_ref(), &[Arc::clone(&life)], &uuid)?;
            life.sync_dir("")
        };
        disk.set_plan(FaultPlan {
            cut_after_ops: Some(ops),
            ..FaultPlan::default()
        });
        let killed = create();
        disk.crash(CrashProfile::Killed, ops);
        create().unwrap_or_else(|error| panic!("after {ops} operations, {killed:?}: {error}"));
        disk.crash(CrashProfile::Nothing, ops);
        for slot in ImageSlot::ALL {
            let opened = ImageFile::open(disk.life().as_ref(), slot, &uuid);
            assert!(opened.is_ok(), "image {slot} after {ops} operations");
        }
    }
}

/// Found in review. A refused write deferred a checkpoint. The next update of the anchor named the checkpoint's
/// image. Because this image was new, no checkpoint was due. So the old part of the log was not removed.
#[test]
fn a_checkpoint_that_was_put_off_when_its_image_was_to_be_named_is_due_and_cuts_the_log() {
    let mut struck = 0;
    for nth in 1..90 {
        let disk = SimDisk::new(nth);
        let core = open(&disk, 1);
        for i in 0..8 {
            put(&core, &format!("key {i}"), &[7; 60_000]);
            core.flush_all().unwrap();
        }
        refuse_write(&disk, nth);
        let taken = core.checkpoint_now();
        disk.set_plan(FaultPlan::default());
        if taken.is_ok() || !core.checkpoint_stats().running {
            continue;
        }
        // The log now writes the bytes that the disk has refused before.
        core.flush_all().unwrap();
        put(&core, "key 0", b"short");
        core.flush_all().unwrap();
        core.vouch().unwrap();
        let record = core.anchor().get();
        struck += usize::from(record.newest_image().is_some());
        let before = segments(&disk);
        assert!(core.checkpoint_is_due(), "write {nth}");
        core.checkpoint_now().unwrap();
        assert!(!core.checkpoint_is_due(), "write {nth}");
        let after = segments(&disk);
        assert!(after < before, "write {nth}: {before} and {after} segments");
    }
    assert!(struck > 0);
}
