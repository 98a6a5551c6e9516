//! The end of the log cannot vanish unnoticed, even with one stream and no checkpoint. There was a bug: after a segment
//! was cut to any length, zeroed, replaced or deleted, the database started empty.

use std::sync::Arc;

use perdura::{Core, Progress};
use perdura_base::error::Family;
use perdura_device::{Access, CrashProfile, Disk, SimDisk};

use crate::core_steps::{env, get, open, put, small};

/// Returns two disks of a database with one stream. The first disk has the state after a kill: all writes are there,
/// and the anchor vouches for them. The second disk is a copy made after half of the writes.
fn vouched() -> (Arc<SimDisk>, Arc<SimDisk>) {
    let disk = SimDisk::new(1);
    let core = open(&disk, 1);
    core.vouch_for_life().unwrap();
    let half = SimDisk::new(2);
    for number in 0..40 {
        put(&core, &format!("key{number}"), &[7; 3000]);
        core.flush_all().unwrap();
        if number == 19 {
            half.restore(&disk.snapshot());
        }
    }
    core.vouch().unwrap();
    disk.crash(CrashProfile::Everything, 0);
    (disk, half)
}

fn segments(disk: &SimDisk) -> Vec<(String, u64)> {
    let files = disk.files().into_iter();
    files.filter(|(path, _)| path.contains("/s00-")).collect()
}

fn write(disk: &SimDisk, path: &str, bytes: &[u8]) {
    let life = disk.life();
    drop(life.remove(path));
    let file = life.create(path, Access::Buffered).unwrap();
    file.write_at(0, bytes).unwrap();
    file.sync().unwrap();
    life.sync_dir("log").unwrap();
}

/// Opens a damaged copy, which must be refused. Returns the error, which names the loss.
fn refused(disk: &Arc<SimDisk>, damage: &str) -> String {
    match Core::open(env(disk, 1), small(), Arc::new(Progress::default())) {
        Ok(core) => panic!("{damage}: started at {}", core.report().durable_epoch),
        Err(error) => {
            assert_eq!(error.family(), Family::Corruption, "{damage}: {error}");
            error.to_string()
        }
    }
}

fn copy(disk: &SimDisk) -> Arc<SimDisk> {
    let copy = SimDisk::new(3);
    copy.restore(&disk.snapshot());
    copy
}

#[test]
fn a_newest_segment_cut_to_any_length_is_refused_though_there_is_one_stream_and_no_checkpoint() {
    let (disk, _) = vouched();
    let (path, len) = segments(&disk).pop().unwrap();
    for sector in 0..len / 512 {
        let damaged = copy(&disk);
        damaged.truncate_file(&path, sector * 512);
        refused(&damaged, &format!("{path} cut to {} bytes", sector * 512));
    }
}

#[test]
fn a_log_whose_blocks_are_zeroed_from_anywhere_on_is_refused_with_what_is_lost_and_since_when() {
    let (disk, _) = vouched();
    let (path, len) = segments(&disk).pop().unwrap();
    let bytes = disk.read_all(&path).unwrap();
    let used = bytes.iter().rposition(|byte| *byte != 0).unwrap() / 512;
    for sector in 0..=u64::try_from(used).unwrap() {
        let mut damaged_bytes = bytes.clone();
        let from = usize::try_from(sector * 512).unwrap();
        damaged_bytes[from..].fill(0);
        let damaged = copy(&disk);
        write(&damaged, &path, &damaged_bytes);
        let words = refused(&damaged, &format!("{path} zero from {from} of {len}"));
        let within_a_block = words.contains("according to a later block or the anchor");
        if sector > 16 && !within_a_block {
            assert!(
                words.contains("the anchor says that this log was durable"),
                "{words}"
            );
            assert!(
                words.contains("1970-01-01T00:00:01."),
                "since when: {words}"
            );
        }
    }
}

#[test]
fn a_segment_replaced_by_an_older_copy_of_itself_or_by_a_spare_and_deleted_segments_are_refused() {
    let (disk, half) = vouched();
    for (path, len) in segments(&disk) {
        let damaged = copy(&disk);
        write(&damaged, &path, &vec![0; usize::try_from(len).unwrap()]);
        refused(&damaged, "an empty spare in its place");
        if let Ok(older) = half.read_all(&path)
            && older != disk.read_all(&path).unwrap()
        {
            let damaged = copy(&disk);
            write(&damaged, &path, &older);
            refused(&damaged, "an older copy in its place");
        }
        let damaged = copy(&disk);
        damaged.life().remove(&path).unwrap();
        refused(&damaged, "deleted");
    }
    let damaged = copy(&disk);
    for (path, _) in segments(&disk) {
        damaged.life().remove(&path).unwrap();
    }
    refused(&damaged, "all segments deleted");
    let core = open(&disk, 1);
    assert_eq!(get(&core, "key39").unwrap().len(), 3000, "whole, it starts");
    let report = core.report();
    assert!(0 < report.vouched_epoch && report.vouched_epoch <= report.durable_epoch);
}
