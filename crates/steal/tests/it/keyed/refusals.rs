//! Refused requests. Each error names its reason, and the request changes nothing.

use perdura_base::{Epoch, Pos};
use perdura_device::{Disk, SimDisk};
use perdura_recovery::{Level, Methods, RestartMode, RestartOptions, Schedule, restart};
use perdura_restore::backup::BackupCopy;
use perdura_steal::{Keyed, KeyedOptions, Steal, StealOptions};
use perdura_wal::anchor::ANCHOR_PATH;
use perdura_wal::{EpochEnds, Scheme};

use crate::keyed::support::{TABLE, env, insist, options, put};

#[test]
fn options_out_of_range_and_methods_of_other_schemes_are_refused_by_name() {
    let disk = SimDisk::new(1);
    let refused = |options: KeyedOptions| {
        let made = Keyed::create(env(&disk, 1), options, None);
        made.map(drop).expect_err("refused").to_string()
    };
    let few = KeyedOptions {
        frames: 7,
        ..options(Scheme::Logical)
    };
    assert!(refused(few).contains("7 pages of memory are too few"));
    let odd = KeyedOptions {
        page_bytes: 1000,
        ..options(Scheme::Logical)
    };
    assert!(refused(odd).contains("a power of two"));
    assert!(refused(options(Scheme::Dl1p)).contains("logical or physiological"));
    let keyed = Keyed::create(env(&disk, 1), options(Scheme::Physiological), None);
    drop(keyed.expect("a new database"));
    let by = |method| {
        let options = KeyedOptions {
            method,
            ..options(Scheme::Physiological)
        };
        let opened = Keyed::open(env(&disk, 1), options);
        opened.map(drop).expect_err("refused").to_string()
    };
    assert!(
        by("log1").contains("reads logs of scheme logical"),
        "{}",
        by("log1")
    );
    assert!(by("dl1p").contains("scheme differential"));
    let other = Steal::open(env(&disk, 1), StealOptions::new(Scheme::Dl1p, 64));
    let why = other.map(drop).expect_err("refused").to_string();
    assert!(why.contains("open it with the product's engine"), "{why}");
    assert!(Keyed::create(env(&disk, 1), options(Scheme::Logical), None).is_err());
}

/// In an earlier version, a restart did not check at the start whether it may play the tree's log records. The restart
/// refused the tree only after it had loaded the image and the log.
#[test]
fn a_salvage_of_a_tree_is_refused_before_anything_is_loaded() {
    let disk = SimDisk::new(2);
    let made = Keyed::create(env(&disk, 1), options(Scheme::Logical), None);
    drop(made.expect("a new database"));
    let env = env(&disk, 1);
    let schedule = Schedule::inline(Level::One, 0);
    let given = RestartOptions {
        mode: RestartMode::Salvage,
        ..RestartOptions::of_records(env.disks, env.clock, schedule, Methods::default())
    };
    let why = restart(&given).map(drop).expect_err("refused").to_string();
    assert!(
        why.contains("cannot repair a database with a tree"),
        "{why}"
    );
    assert_eq!(given.progress.phase(), "start", "nothing was loaded");
}

#[test]
fn an_archive_of_a_tree_is_refused_where_it_would_be_declared_and_where_a_backup_would_be_made() {
    let disk = SimDisk::new(3);
    let made = Keyed::create(env(&disk, 1), options(Scheme::Logical), None);
    let keyed = made.expect("a new database");
    keyed.checkpoint_now().expect("no disk fails");
    let end = EpochEnds {
        epoch: Epoch(0),
        ends: vec![Pos(0)],
    };
    let declared = keyed.anchor().set_archived(keyed.wal(), &end);
    let why = declared.expect_err("refused").to_string();
    assert!(why.contains("rows in a tree cannot be archived"), "{why}");
    assert_eq!(keyed.anchor().get().archived, None, "nothing is declared");
    let env = env(&disk, 1);
    let anchor = keyed.anchor().get();
    let begun = BackupCopy::begin(&env.disks, anchor, disk.life(), "archive");
    let why = begun.map(drop).expect_err("refused").to_string();
    assert!(why.contains("rows in a tree cannot be archived"), "{why}");
}

/// A database that has lost its anchor must not be mistaken for an interrupted creation.
#[test]
fn a_database_that_has_lost_its_anchor_is_not_made_anew() {
    let disk = SimDisk::new(2);
    let keyed = Keyed::create(env(&disk, 2), options(Scheme::Logical), None);
    let keyed = keyed.expect("a new database");
    let mut txn = keyed.txns().begin();
    put(&keyed, &mut txn, b"a", Some(b"1"));
    let _flushed_below = keyed.txns().commit(txn);
    insist(&keyed, || keyed.checkpoint_now());
    assert_eq!(
        keyed.txns().read(TABLE, b"a").expect("a table"),
        Some(b"1".to_vec())
    );
    drop(keyed);
    let pages = disk.read_all("tree/pages").expect("its pages");
    disk.life().remove(ANCHOR_PATH).expect("its anchor");
    let refused = Keyed::create(env(&disk, 2), options(Scheme::Logical), None);
    let why = refused.map(drop).expect_err("refused").to_string();
    assert!(why.contains("log"), "{why}");
    assert_eq!(disk.read_all("tree/pages").expect("its pages"), pages);
}
