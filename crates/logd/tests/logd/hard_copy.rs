//! Tests of nodes with a hard copy.

use std::sync::Arc;
use std::time::{Duration, Instant};

use perdura_base::Error;
use perdura_device::{FaultPlan, FileDisk, SimDisk};
use perdura_logd::{Logd, LogdOptions, LogdStats};
use perdura_mirror::hard_copy::{list, read_back};
use perdura_mirror::{Reply, Request};

use crate::setup::{PATIENCE, append, client, eventually, held, open, options, start};

fn with(disk: &Arc<SimDisk>) -> LogdOptions {
    LogdOptions {
        hard_copy: Some(disk.life()),
        ..options()
    }
}

fn copied(logd: &Logd) -> u64 {
    let LogdStats { hard_copy, .. } = logd.stats();
    hard_copy.unwrap().stats.copied_bytes
}

#[test]
fn what_is_new_is_on_disk_a_moment_later_and_the_rest_when_the_node_ends() {
    let disk = SimDisk::new(1);
    let (logd, said) = start(with(&disk));
    said.wait_for("0 files of earlier lives");
    let mut writer = client(&logd);
    writer.ask(&open(1, 0, 0)).unwrap();
    let mut slowest = Duration::ZERO;
    for number in 1..20 {
        writer
            .ask(&append(1, 0, ((number - 1) * 1000, 0), &[7; 1000]))
            .unwrap();
        let begin = Instant::now();
        while copied(&logd) < number * 1000 {
            assert!(begin.elapsed() < PATIENCE);
            std::thread::sleep(Duration::from_millis(1));
        }
        slowest = slowest.max(begin.elapsed());
    }
    assert!(slowest < Duration::from_secs(2), "{slowest:?}");
    assert!(
        logd.stats()
            .to_string()
            .contains("hard copy of 19000 bytes, 1 files")
    );
    let taken = Logd::start(with(&disk)).err().unwrap();
    assert!(matches!(taken, Error::Locked { .. }), "{taken}");
    writer.ask(&append(1, 0, (19_000, 0), &[8; 500])).unwrap();
    logd.stop();
    let found = list(disk.life().as_ref()).unwrap();
    let (_, bytes) = read_back(disk.life().as_ref(), &found[0].name).unwrap();
    assert!(bytes == [vec![7; 19_000], vec![8; 500]].concat());

    let (logd, said) = start(with(&disk));
    said.wait_for("1 files of earlier lives");
    logd.stop();
}

#[test]
fn a_full_disk_and_a_failed_write_stop_the_hard_copy_and_never_the_node() {
    let plans = [
        FaultPlan {
            enospc_at: Some((2, 1)),
            ..FaultPlan::default()
        },
        FaultPlan {
            fail_write_at: Some(2),
            ..FaultPlan::default()
        },
        FaultPlan {
            fail_sync_at: Some((1, perdura_device::SyncFailure::KeepsNew)),
            ..FaultPlan::default()
        },
    ];
    for plan in plans {
        let disk = SimDisk::new(2);
        let (logd, said) = start(with(&disk));
        disk.set_plan(plan.clone());
        let mut writer = client(&logd);
        writer.ask(&open(1, 0, 0)).unwrap();
        writer.ask(&append(1, 0, (0, 0), &[7; 1000])).unwrap();
        said.wait_for("has stopped. The node continues");
        let stopped = || logd.stats().hard_copy.unwrap().stopped;
        eventually("the state says so", || stopped().is_some());
        assert!(logd.stats().to_string().contains("STOPPED"), "{plan:?}");
        for number in 1..100 {
            let reply = writer
                .ask(&append(1, 0, (number * 1000, 0), &[7; 1000]))
                .unwrap();
            assert_eq!(held(&reply).end.0, number * 1000 + 1000);
        }
        assert_eq!(copied(&logd), 0);
        let pong = writer.ask(&Request::Ping).unwrap();
        assert!(matches!(Reply::decode(&pong), Ok(Reply::Pong { .. })));
        logd.stop();
    }
}

#[test]
fn a_directory_that_is_removed_stops_the_hard_copy_and_its_lock_file_is_not_its_only_lock() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().join("copy");
    let with = || LogdOptions {
        hard_copy: Some(FileDisk::shared(&at).unwrap()),
        ..options()
    };
    let (logd, said) = start(with());
    let names = std::fs::read_dir(&at).unwrap();
    let locks = names.map(|entry| entry.unwrap().path());
    for lock in locks.filter(|path| path.extension().is_some_and(|end| end == "lock")) {
        std::fs::remove_file(lock).unwrap();
    }
    let taken = Logd::start(with()).err();
    assert!(matches!(taken, Some(Error::Locked { .. })), "{taken:?}");
    std::fs::rename(&at, dir.path().join("aside")).unwrap();
    said.wait_for("it is gone");
    let mut writer = client(&logd);
    writer.ask(&open(1, 0, 0)).unwrap();
    logd.stop();
}
