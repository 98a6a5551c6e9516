//! The begin of an archive: of an empty database, of one that is there, and of one whose archive is gone.

use perdura::Archiving;
use perdura_archive::{Store, list_archives};
use perdura_base::{Epoch, Uuid};
use perdura_device::SimDisk;

use crate::archived::{LIFE, drain, logs};
use crate::core_steps::{open, put};

#[test]
fn an_archive_of_a_database_that_is_there_begins_with_its_newest_image() {
    let (log, store) = (SimDisk::new(1), SimDisk::new(1));
    let core = open(&log, 2);
    put(&core, "key", b"before");
    core.flush_all().unwrap();
    core.checkpoint_now().unwrap();
    let start = core.archive_start().unwrap();
    assert!(start.epoch > Epoch(0));
    put(&core, "key", b"behind");
    core.flush_all().unwrap();
    let mut archiving = Archiving::new(store.life(), LIFE);
    assert_eq!((core.archived(), archiving.has_all()), (None, false));
    archiving.step(&core).unwrap();
    assert_eq!(core.archived(), Some(start.clone()));
    assert_eq!(
        (drain(&core, &mut archiving), archiving.has_all()),
        (1, true)
    );
    let uuid = core.anchor().get().uuid;
    let archive = Store::read_only(store.life(), &uuid).unwrap();
    let manifest = archive.manifest();
    assert_eq!(manifest.begin, Epoch(start.epoch.0 + 1));
    let k = core.checkpoint_stats().last_k;
    assert!(manifest.images.retained.iter().any(|image| image.0 == k));
    assert_eq!(manifest.images, core.images_for_archive());
}

/// Found by the simulator: a crash came between the creation of an archive and its note in the anchor. Until the archive
/// opened again, checkpoints cut the log. The empty archive then asked for the log from its first position, forever.
#[test]
fn an_empty_archive_that_no_anchor_names_begins_again_with_the_newest_image() {
    let (log, store) = (SimDisk::new(1), SimDisk::new(1));
    let core = open(&log, 1);
    put(&core, "key", b"before");
    core.flush_all().unwrap();
    let before = log.snapshot();
    let mut archiving = Archiving::new(store.life(), LIFE);
    archiving.step(&core).unwrap();
    assert!(core.archived().is_some());
    drop((core, archiving));
    log.restore(&before);
    let core = open(&log, 1);
    assert_eq!(core.archived(), None, "the note was lost");
    for round in 0..100 {
        put(&core, "key", &[round; 20_000]);
        core.flush_all().unwrap();
        if round % 20 == 19 {
            core.checkpoint_now().unwrap();
        }
    }
    let start = core.archive_start().unwrap();
    let mut archiving = Archiving::new(store.life(), LIFE);
    archiving.step(&core).unwrap();
    assert_eq!(core.archived(), Some(start.clone()));
    put(&core, "key", b"behind");
    core.flush_all().unwrap();
    assert_eq!(drain(&core, &mut archiving), 1);
    let archive = Store::read_only(store.life(), &core.anchor().get().uuid).unwrap();
    let manifest = archive.manifest();
    assert_eq!(manifest.begin, Epoch(start.epoch.0 + 1));
    assert!(!manifest.has_all(), "its first run is not the database's");
}

#[test]
fn an_archive_that_is_gone_is_not_begun_again_and_the_log_is_kept() {
    let (log, store) = (SimDisk::new(1), SimDisk::new(1));
    let core = open(&log, 1);
    let mut archiving = Archiving::new(store.life(), LIFE);
    put(&core, "key", b"value");
    core.flush_all().unwrap();
    assert_eq!(drain(&core, &mut archiving), 1);
    let empty = SimDisk::new(2);
    let mut elsewhere = Archiving::new(empty.life(), LIFE);
    let refused = elsewhere.step(&core).unwrap_err().to_string();
    assert!(refused.contains("has no archive"), "{refused}");
    assert!(empty.files().is_empty());
    assert!(list_archives(empty.life().as_ref()).unwrap().is_empty());
    assert_eq!(elsewhere.end_of(&Uuid([9; 16]), &logs(&log)).unwrap(), None);
}
