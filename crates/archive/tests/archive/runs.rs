//! Tests of writing and reading runs. The tests write random records, read whole runs and parts of runs, and crash at
//! each I/O.

use std::sync::Arc;

use perdura_archive::{Codec, LogOrder, Moments, PageAt, RunId, RunWriter, Scope};
use perdura_base::{Error, PartitionId};
use perdura_device::{CrashProfile, Disk, FaultPlan, FileDisk, SimDisk};
use perdura_page::RegionDigest;

use crate::common::{DIR, Owned, disk, header, id, open, random, records, write};

#[test]
fn a_run_has_the_records_that_were_written_and_each_part_of_it_its_own() {
    let region = RegionDigest::new();
    let mut rng = fastrand::Rng::with_seed(3);
    for (i, count) in (0u32..).zip([0, 1, 50, 20_000]) {
        for codec in Codec::ALL {
            let disk = disk();
            let id = id(100, 200, 0, i);
            let written = random(&mut rng, 100..200, count);
            let run = write(&disk, header(id), codec, &written, &Moments::default());
            let run = run.expect("memory");
            run.verify(&region).expect("a whole run");
            assert_eq!(records(&run, &Scope::All).expect("whole"), written);
            for p in (0..5).map(PartitionId) {
                let part = |scope: &Scope, locals: std::ops::Range<u32>| {
                    let here = |r: &&Owned| r.at.partition == p && locals.contains(&r.at.local);
                    let want: Vec<Owned> = written.iter().filter(here).cloned().collect();
                    assert_eq!(records(&run, scope).expect("whole"), want);
                };
                part(&Scope::Partition(p), 0..u32::MAX);
                for locals in [0..1, 0..30, 3..4, 5..17, 29..30, 30..90, 7..7] {
                    part(&Scope::Pages(p, locals.clone()), locals);
                }
                for local in 0..40 {
                    let at = PageAt {
                        partition: p,
                        local,
                    };
                    assert_eq!(run.pages().contains(at), written.iter().any(|r| r.at == at));
                }
            }
        }
    }
}

/// A run on a real file system is read with direct I/O if the file system allows it.
#[test]
fn a_run_is_read_from_a_real_disk_as_from_memory() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let disk: Arc<dyn Disk> = Arc::new(FileDisk::new(dir.path()).expect("a disk"));
    disk.make_dir(DIR).expect("a directory");
    let mut rng = fastrand::Rng::with_seed(6);
    for count in [0, 10, 60_000] {
        let id = id(1, 100, 0, u32::try_from(count).expect("small"));
        let written = random(&mut rng, 1..100, count);
        let run = write(&disk, header(id), Codec::Lz4, &written, &Moments::default());
        let run = run.expect("a run");
        run.verify(&RegionDigest::new()).expect("a whole run");
        assert_eq!(records(&run, &Scope::All).expect("whole"), written);
        let some = Scope::Pages(PartitionId(2), 10..12);
        assert!(records(&run, &some).expect("whole").len() <= count / 15 + 10);
    }
}

/// The longest possible record has a separate fragment for each byte of a page from byte 16 on. It must fit into a
/// block.
#[test]
fn the_longest_record_has_a_block() {
    let disk = disk();
    let mut record = Owned::one((0, 0), 5, 1, 1, 16, &[1]);
    record.bytes.clear();
    record.count = 16_384 - 16;
    for _ in 0..record.count {
        record.bytes.extend_from_slice(&[0, 1, 0xff]);
    }
    let written = vec![record.clone(), record];
    let run = write(
        &disk,
        header(id(1, 9, 0, 0)),
        Codec::None,
        &written,
        &Moments::default(),
    );
    let run = run.expect("memory");
    assert_eq!(run.index().len(), 2);
    assert_eq!(records(&run, &Scope::All).expect("whole"), written);
}

#[test]
fn a_run_is_not_replaced() {
    let disk = disk();
    let id = id(1, 9, 0, 0);
    write(&disk, header(id), Codec::Lz4, &[], &Moments::default()).expect("memory");
    let again = write(&disk, header(id), Codec::Lz4, &[], &Moments::default()).err();
    assert!(matches!(again, Some(Error::Usage(_))), "{again:?}");
}

#[test]
fn a_run_that_is_given_up_leaves_nothing() {
    let disk = disk();
    let digest = Arc::new(RegionDigest::new());
    let writer = RunWriter::create(
        Arc::clone(&disk),
        DIR,
        header(id(1, 9, 0, 0)),
        Codec::Zstd,
        digest,
    );
    writer.expect("memory").abandon().expect("memory");
    assert_eq!(disk.list(DIR).expect("memory"), Vec::<String>::new());
}

/// Writes a run on a disk that loses power at its `n`th I/O. Afterwards there may be no file, a temporary file or a
/// complete run. If the writer reported success, the complete run must exist. Returns a description of the fault, if
/// any, and whether the writer reported success.
fn crash_at(n: u64, profile: CrashProfile, written: &[Owned]) -> (Option<String>, bool) {
    let sim = SimDisk::new(n);
    sim.make_dir(DIR).expect("a new disk");
    sim.sync_dir("").expect("a new disk");
    let id = id(1, 100, 0, 0);
    sim.set_plan(FaultPlan {
        cut_after_ops: Some(n),
        ..FaultPlan::default()
    });
    let life: Arc<dyn Disk> = sim.life();
    let done = write(&life, header(id), Codec::Lz4, written, &Moments::default()).is_ok();
    sim.crash(profile, n);
    let disk: Arc<dyn Disk> = sim.life();
    let names = disk.list(DIR).expect("the folder is durable");
    if !names.iter().any(|name| RunId::parse(name).is_some()) {
        return (done.then(|| format!("the run is gone: {names:?}")), done);
    }
    let read = open(&disk, id).and_then(|run| records(&run, &Scope::All));
    let wrong = match read {
        Ok(read) => (read != written).then(|| "other records".to_owned()),
        Err(error) => Some(error.to_string()),
    };
    (wrong, done)
}

/// Crashes at each I/O in turn. Returns a description of the first fault. `None`: no crash caused a fault.
fn first_wrong(written: &[Owned]) -> Option<String> {
    for profile in CrashProfile::ALL {
        for n in 1.. {
            let (wrong, done) = crash_at(n, profile, written);
            if let Some(wrong) = wrong {
                return Some(format!("{profile:?}, I/O {n}: {wrong}"));
            }
            if done {
                assert!(n > 4, "create, write, sync, rename, sync");
                break;
            }
        }
    }
    None
}

#[test]
fn a_crash_at_any_io_leaves_no_run_or_a_whole_one() {
    let mut rng = fastrand::Rng::with_seed(11);
    for count in [0, 100, 60_000] {
        let written = random(&mut rng, 1..100, count);
        assert_eq!(first_wrong(&written), None);
    }
}

#[cfg(feature = "flaws")]
#[test]
fn the_seeded_bug_of_publication_is_caught() {
    use perdura_base::flaw::{Flaw, arm};
    let written = random(&mut fastrand::Rng::with_seed(11), 1..100, 100);
    arm(Some(Flaw::RenameBeforeSync));
    let wrong = first_wrong(&written);
    arm(None);
    assert!(wrong.is_some());
}

#[test]
fn the_order_of_the_log_is_by_epoch_and_no_sweep_over_the_pages() {
    let mut rng = fastrand::Rng::with_seed(9);
    let all = random(&mut rng, 1000..1004, 400);
    let run = write(
        &disk(),
        header(id(1000, 1004, 0, 0)),
        Codec::Lz4,
        &all,
        &Moments::sampled(&[]),
    );
    let ordered = || {
        let mut log = LogOrder::read(run.as_ref().expect("a run")).expect("whole");
        log.sort();
        log.records()
            .map(|record| Owned::of(&record))
            .collect::<Vec<Owned>>()
    };
    let log = ordered();
    assert_eq!(log, ordered(), "the same order each time");
    assert!(log.is_sorted_by_key(|record| record.epochs.first));
    let mut sorted = log.clone();
    sorted.sort_by_key(Owned::key);
    assert_eq!(sorted, all, "no record is lost");
    let pairs = log.windows(2);
    let rises = pairs.filter(|pair| pair[0].at <= pair[1].at).count();
    assert!((120..280).contains(&rises), "{rises} of 399");
}
