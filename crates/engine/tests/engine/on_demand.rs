//! A restart that lets transactions run before it has loaded everything.

use std::cell::Cell;
use std::sync::Arc;

use perdura::{Core, CoreOptions, Error, PartitionId, Progress, Tx};
use perdura_device::{CrashProfile, FaultPlan, SimDisk};
use perdura_recovery::image::folder;
use perdura_recovery::read_anchor;
use perdura_txn::{Manner, Patience, Says};

use crate::core_steps::{env, get, open, put, small};

/// The keys of the tests, which lie in all partitions.
fn keys() -> impl Iterator<Item = String> {
    (0..40).map(|number| format!("key{number}"))
}

/// Opens the database so that partitions are loaded on demand.
fn open_on_demand(disk: &Arc<SimDisk>) -> Core {
    let options = CoreOptions {
        on_demand: true,
        ..small()
    };
    Core::open(env(disk, 1), options, Arc::new(Progress::default())).expect("it opens")
}

/// Makes a database with an image and a log behind it, and crashes it.
fn crashed() -> Arc<SimDisk> {
    let disk = SimDisk::new(46);
    let core = open(&disk, 1);
    for key in keys() {
        put(&core, &key, b"in the image");
    }
    // The log begins with the older image, which has all keys too.
    core.checkpoint_now().unwrap();
    core.checkpoint_now().unwrap();
    for key in keys().step_by(2) {
        put(&core, &key, b"behind the image");
    }
    core.flush_all().unwrap();
    drop(core);
    disk.crash(CrashProfile::Nothing, 1);
    disk
}

fn expected(number: usize) -> &'static [u8] {
    match number % 2 {
        0 => b"behind the image",
        _ => b"in the image",
    }
}

#[test]
fn a_transaction_loads_the_partitions_that_it_needs_and_no_others() {
    let core = open_on_demand(&crashed());
    let loading = core.loading.clone().expect("nothing is loaded");
    assert_eq!(loading.absent().iter().count(), 4);
    assert_eq!(get(&core, "key0").as_deref(), Some(expected(0)));
    assert_eq!(
        loading.absent().iter().count(),
        3,
        "one partition is loaded"
    );
    let ((), _ticket) = core
        .transact(&core.all_partitions(), |_| Ok::<_, Error>(()))
        .expect("the others are loaded");
    assert!(core.is_loaded());
    for (number, key) in keys().enumerate() {
        assert_eq!(get(&core, &key).as_deref(), Some(expected(number)), "{key}");
    }
}

#[test]
fn a_caller_that_does_not_wait_is_refused_and_its_partitions_come_next() {
    let core = open_on_demand(&crashed());
    let last = PartitionId(3);
    let parts = [last].into_iter().collect();
    let refusals = Cell::new(0);
    let note = || refusals.set(refusals.get() + 1);
    let manner = Manner {
        patience: Patience::ENDLESS.unless_absent(&note),
        ..Manner::new(1, Says::Effects)
    };
    let nothing = |_: &mut Tx<'_>| Ok::<_, Error>(());
    let refused = core.transact_in_manner(&parts, &manner, nothing, |(), _| ());
    assert!(
        matches!(refused, Err(Error::Undeclared(id)) if id == last),
        "{refused:?}"
    );
    assert_eq!(refusals.get(), 1);
    assert!(core.load_next().unwrap());
    let loading = core.loading.as_ref().expect("three partitions are absent");
    assert!(!loading.absent().contains(last) && loading.absent().iter().count() == 3);
    let done = core.transact_in_manner(&parts, &manner, nothing, |(), _| ());
    assert!(done.is_ok() && refusals.get() == 1, "{done:?}");
}

#[test]
fn what_is_written_before_all_is_loaded_survives_the_next_crash() {
    let disk = crashed();
    let core = open_on_demand(&disk);
    put(&core, "key1", b"of the second life");
    core.flush_all().unwrap();
    assert!(!core.is_loaded());
    drop(core);
    disk.crash(CrashProfile::Nothing, 2);
    for on_demand in [true, false] {
        let core = if on_demand {
            open_on_demand(&disk)
        } else {
            open(&disk, 1)
        };
        assert_eq!(
            get(&core, "key1").as_deref(),
            Some(&b"of the second life"[..])
        );
        assert_eq!(get(&core, "key2").as_deref(), Some(expected(2)));
        core.load_all().unwrap();
        let digest = core.digest().unwrap();
        drop(core);
        disk.crash(CrashProfile::Nothing, 3);
        assert_eq!(open(&disk, 1).digest().unwrap(), digest);
        disk.crash(CrashProfile::Nothing, 4);
    }
}

#[test]
fn a_checkpoint_and_a_digest_load_everything_first() {
    for checkpoint in [true, false] {
        let core = open_on_demand(&crashed());
        assert!(!core.is_loaded());
        if checkpoint {
            core.checkpoint_now().unwrap();
        } else {
            core.digest().unwrap();
        }
        assert!(core.is_loaded());
    }
}

#[test]
fn pages_that_are_not_loaded_count_as_memory_in_use() {
    let disk = crashed();
    let whole = open(&disk, 1).heap().memory().used();
    disk.crash(CrashProfile::Nothing, 5);
    let core = open_on_demand(&disk);
    let begun = core.heap().memory().used();
    core.load_all().unwrap();
    let loaded = core.heap().memory().used();
    assert!(
        begun >= whole / 2,
        "{begun} bytes before the loading, {whole} in all"
    );
    assert_eq!(loaded, whole, "after the loading");
}

#[test]
fn a_failed_read_is_tried_again() {
    let disk = crashed();
    let core = open_on_demand(&disk);
    disk.set_plan(FaultPlan {
        fail_read_at: Some(1),
        ..FaultPlan::default()
    });
    assert_eq!(get(&core, "key0").as_deref(), Some(expected(0)));
    assert!(
        disk.faults().contains_key("read_failed"),
        "{:?}",
        disk.faults()
    );
}

#[test]
fn damage_that_is_found_late_names_the_page_and_loses_nothing() {
    let mut found_late = 0;
    for page in 0..16 {
        let disk = crashed();
        let anchor = read_anchor(disk.life().as_ref())
            .unwrap()
            .expect("an anchor");
        let newest = anchor.newest_image().expect("an image");
        let pages = format!("{}/pages", folder(newest));
        if !disk.flip(&pages, 4096 + 16384 * page + 200, 1) {
            continue;
        }
        let core = open_on_demand(&disk);
        if let (Some(_), Err(error)) = (&core.loading, core.load_all()) {
            let why = error.to_string();
            assert!(
                why.contains(&pages) && why.contains("Nothing is lost"),
                "{why}"
            );
            assert!(
                core.checkpoint_now().is_err(),
                "a checkpoint would leave the partition out"
            );
            found_late += 1;
        }
        drop(core);
        disk.crash(CrashProfile::Nothing, page);
        let core = open(&disk, 1);
        for (number, key) in keys().enumerate() {
            assert_eq!(get(&core, &key).as_deref(), Some(expected(number)), "{key}");
        }
    }
    assert!(found_late > 0, "each page is one of the catalog's");
}

#[test]
fn a_log_that_does_not_fit_memory_is_loaded_first_and_the_report_says_why() {
    let disk = SimDisk::new(47);
    let core = open(&disk, 1);
    put(&core, "key", b"value");
    core.flush_all().unwrap();
    drop(core);
    disk.crash(CrashProfile::Nothing, 6);
    let options = CoreOptions {
        on_demand: true,
        schedule: perdura_recovery::Schedule {
            pile_bytes: 1,
            ..small().schedule
        },
        ..small()
    };
    let core = Core::open(env(&disk, 1), options, Arc::default()).expect("it opens");
    assert!(core.loading.is_none());
    let notes = &core.report().notes;
    let why = notes
        .iter()
        .find(|note| note.contains("before the first answer"));
    assert!(
        why.is_some_and(|why| why.contains("may be sorted in memory")),
        "{notes:?}"
    );
}
