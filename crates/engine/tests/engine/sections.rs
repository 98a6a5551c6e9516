//! Sections of the anchor that this build does not know.

use std::sync::Arc;

use perdura::{Core, Error, Progress};
use perdura_device::{CrashProfile, SimDisk};
use perdura_wal::anchor::{AnchorFile, Tag};

use crate::core_steps::{env, get, open, put, small};

const STRANGE: Tag = Tag(*b"QUOR");

/// Returns the disk of a database with an unknown section in the anchor.
fn with_section(required: bool) -> Arc<SimDisk> {
    let disk = SimDisk::new(5);
    drop(open(&disk, 2));
    let opened = AnchorFile::open(disk.life().as_ref()).unwrap();
    let (file, mut record, _) = opened.expect("a database");
    let payload = (0..200).collect();
    record.sections.set(STRANGE, required, payload);
    file.write(&record).map_err(Error::from).unwrap();
    disk
}

#[test]
fn a_section_of_another_build_survives_restarts_checkpoints_and_power_cuts() {
    let disk = with_section(false);
    let section = || {
        let (_, record, _) = AnchorFile::open(disk.life().as_ref()).unwrap().unwrap();
        record.sections.get(STRANGE).cloned()
    };
    let put_there = section().expect("it was put there");
    for life in 0..4 {
        let core = open(&disk, 2);
        assert_eq!(section().as_ref(), Some(&put_there), "life {life}, open");
        put(&core, &format!("key{life}"), b"value");
        core.flush_all().unwrap();
        core.checkpoint_now().unwrap();
        assert_eq!(
            section().as_ref(),
            Some(&put_there),
            "life {life}, checkpoint"
        );
        assert!(get(&core, "key0").is_some());
        drop(core);
        disk.crash(CrashProfile::Worst, life);
    }
}

#[test]
fn a_database_with_a_required_section_of_another_build_is_refused_and_left_as_it_is() {
    let disk = with_section(true);
    let before = disk.files();
    let opened = Core::open(env(&disk, 2), small(), Arc::new(Progress::default()));
    let error = opened.map(drop).expect_err("it is refused");
    assert!(
        error.to_string().contains("the required section QUOR"),
        "{error}"
    );
    assert!(matches!(error, Error::Corrupt(_)), "exit code 3");
    assert_eq!(disk.files(), before);
}
