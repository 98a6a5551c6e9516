//! Compares a restore in the order of the log with a restore in a single pass.

use std::sync::Arc;

use perdura::{Core, Error, Progress};
use perdura_archive::BackupId;
use perdura_base::limits::PAGE_BYTES;
use perdura_base::num::to_u64;
use perdura_base::{CkptEpoch, Epoch, ImageSlot, Uuid};
use perdura_device::{Access, Clock, Disk, ManualClock, SimDisk};
use perdura_recovery::Disks;
use perdura_recovery::image::directory_path;
use perdura_restore::{
    Deadlines, ReplayReport, RestoreMeans, RestorePlan, RestoreProgress, RestoreReport, restore,
    restore_in_log_order,
};

use crate::core_steps::{env, small};
use crate::restore::{History, STREAMS, tampered};

fn means<'a>(
    disk: &Arc<SimDisk>,
    clock: &'a Arc<dyn Clock>,
    progress: &'a RestoreProgress,
) -> RestoreMeans<'a> {
    RestoreMeans {
        disks: Disks::on_one(disk.life(), STREAMS),
        uuid: Uuid([9; 16]),
        threads: 1,
        clock,
        progress,
        deadlines: Deadlines::Keep,
    }
}

/// Returns the directory of a restored image: a checksum and a digest of each page.
fn directory(disk: &Arc<SimDisk>, k: CkptEpoch) -> Vec<u8> {
    let path = directory_path(ImageSlot::A, k);
    let file = disk.life().open(&path, Access::Buffered).expect("an image");
    let mut bytes = vec![0; usize::try_from(file.len().expect("a file")).expect("small")];
    file.read_at(0, &mut bytes).expect("a file");
    bytes
}

/// Restores in a single pass. Returns the report and the directory of the image.
fn single_pass(plan: &RestorePlan) -> Result<(RestoreReport, Vec<u8>), Error> {
    let (disk, progress) = (SimDisk::new(1), RestoreProgress::default());
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::at(5));
    let report = restore(plan, &means(&disk, &clock, &progress))?;
    let directory = directory(&disk, report.k);
    Ok((report, directory))
}

/// Restores in the order of the log, with a pool of `buffers` pages.
fn replay(
    plan: &RestorePlan,
    buffers: usize,
) -> Result<(ReplayReport, Vec<u8>, Arc<SimDisk>), Error> {
    let (disk, progress) = (SimDisk::new(1), RestoreProgress::default());
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::at(5));
    let report = restore_in_log_order(plan, &means(&disk, &clock, &progress), buffers)?;
    let directory = directory(&disk, report.restored.k);
    Ok((report, directory, disk))
}

/// Restores moments of a history by the two methods. Returns three counts: records that the restores undid in pages,
/// page reads with the smallest pool, and page reads with the largest pool.
fn compare(seed: u64) -> (u64, u64, u64) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut history = History::new(seed);
    history.run(&mut rng, 200);
    let (mut taken_out, mut few, mut all) = (0, 0, 0);
    let backups: Vec<BackupId> = history.backups.clone();
    for backup in backups {
        for target in [1, rng.u64(1..=history.at.epoch.0), history.at.epoch.0].map(Epoch) {
            let plan = || history.plan(backup, Some(target)).expect("a plan");
            let (once, expected) = single_pass(&plan()).expect("a restore");
            assert_eq!(once.page_writes, once.pages);
            for buffers in [1, 2, 7, 1000] {
                let (report, found, disk) = replay(&plan(), buffers).expect("a replay");
                assert_eq!(found, expected, "seed {seed}, {target}, {buffers} buffers");
                let same = |report: &RestoreReport| {
                    let records = (report.applied, report.taken_out, report.skipped);
                    (report.pages, records, report.k, report.epoch)
                };
                assert_eq!(same(&report.restored), same(&once));
                let reads = report.page_reads * to_u64(PAGE_BYTES);
                assert_eq!(report.restored.bytes_read, once.bytes_read + reads);
                let changes = once.applied + once.taken_out;
                assert!(report.page_reads <= changes && report.page_writes <= changes);
                if buffers == 1000 {
                    let backup_pages = once.page_reads;
                    assert!(report.page_reads <= backup_pages, "each page once at most");
                    assert!(report.page_writes <= once.page_reads + once.pages);
                    all += report.page_reads;
                    let env = env(&disk, STREAMS);
                    let core = Core::open(env, small(), Arc::new(Progress::default()));
                    core.expect("it opens").digest().expect("it is whole");
                }
                if buffers == 1 {
                    few += report.page_reads;
                }
            }
            taken_out += once.taken_out;
        }
    }
    (taken_out, few, all)
}

#[test]
fn replay_in_the_order_of_the_log_makes_the_same_pages_whatever_memory_it_has() {
    let (mut taken_out, mut few, mut all) = (0, 0, 0);
    for seed in 0..12 {
        let counts = compare(seed);
        taken_out += counts.0;
        few += counts.1;
        all += counts.2;
    }
    assert!(taken_out > 10, "{taken_out} records taken out");
    assert!(few > 3 * all, "{few} reads with one buffer, {all} with all");
}

#[test]
fn replay_without_a_buffer_is_refused_and_one_that_lacks_a_record_names_the_page() {
    let mut history = History::new(3);
    let mut rng = fastrand::Rng::with_seed(3);
    history.run(&mut rng, 300);
    let backup = history.backups[0];
    let plan = history.plan(backup, None).expect("a plan");
    let refused = replay(&plan, 0).map(drop).expect_err("no buffer");
    assert!(
        refused.to_string().contains("at least one page"),
        "{refused}"
    );
    let runs = history.open_runs().expect("the runs");
    let mut found = 0;
    for lost in 0..runs.len() {
        let mut runs = runs.clone();
        runs[lost] = tampered(&history, &runs[lost], 0, lost % 2 == 0);
        let backup = history.backup(backup).expect("a backup");
        let plan = RestorePlan::new(backup, runs, None).expect("the runs tile");
        let once = single_pass(&plan).map(drop);
        let replayed = replay(&plan, 2).map(drop);
        assert_eq!(once.is_err(), replayed.is_err(), "run {lost}");
        if let Err(error) = replayed {
            assert!(error.to_string().contains("the updates of page"), "{error}");
            found += 1;
        }
    }
    assert!(found > 5, "{found} gaps were found");
}
