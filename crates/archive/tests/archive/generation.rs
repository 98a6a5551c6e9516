//! Tests of the algorithms that generate runs. All algorithms archive one log, and each run has a contiguous piece of
//! the log.

use std::sync::Arc;

use perdura_archive::{
    ArchivedRun, Archiver, ArchiverOptions, ArchiverStep, Generation, RunTarget, Scope, unsorted,
};
use perdura_base::{Epoch, Error, Pos, Result};
use perdura_device::{Access, Disk, MemDisk};
use perdura_page::RegionDigest;
use perdura_wal::{EpochEnds, EpochSource, Vouched};

use crate::common::{CHUNKS, DIR, UUID, disk, open, records};
use crate::log;

/// The fields of a record: page, epoch, update number and fragments.
type Record = (u32, u64, u32, Vec<u8>);

struct Log {
    disk: Arc<dyn Disk>,
    history: perdura_wal::History,
    durable: Vouched,
    workspace_bytes: usize,
}

impl Log {
    /// Makes a log that fills several workspaces of `workspace_bytes` bytes.
    fn new(records: usize, bytes: usize, workspace_bytes: usize) -> Log {
        let disk: Arc<dyn Disk> = Arc::new(MemDisk::new());
        let history = log::history(UUID, 1 << 20);
        let shape = log::Shape {
            records,
            bytes,
            pages: 90,
            groups: 7,
        };
        let durable = log::write_log(&disk, &history, shape).expect("memory");
        Log {
            disk,
            history,
            durable,
            workspace_bytes,
        }
    }

    fn archiver(&self, archive: &Arc<dyn Disk>, row: Generation) -> Archiver {
        let begin = EpochEnds {
            epoch: Epoch(0),
            ends: vec![Pos(0)],
        };
        let source = EpochSource::open(&[Arc::clone(&self.disk)], &self.history, &begin);
        let options = ArchiverOptions {
            row,
            workspace_bytes: self.workspace_bytes,
            ..ArchiverOptions::new(self.history.uuid, CHUNKS)
        };
        let digest = Arc::new(RegionDigest::new());
        let source = source.expect("a log");
        let target = RunTarget {
            disk: Arc::clone(archive) as _,
            dir: DIR.to_owned(),
            digest,
        };
        Archiver::new(source, target, options)
    }

    /// Archives the whole log. Returns the runs.
    fn archived(&self, archive: &Arc<dyn Disk>, row: Generation) -> Vec<ArchivedRun> {
        let mut archiver = self.archiver(archive, row);
        archiver.cut_at(self.durable.epoch);
        let mut made = Vec::new();
        loop {
            match archiver.step(&self.durable, 0).expect("memory") {
                ArchiverStep::Working => {}
                ArchiverStep::Run(run) => made.push(run),
                ArchiverStep::Idle => return made,
            }
        }
    }

    /// Returns the records of a run, in the order of its file.
    fn read(&self, archive: &Arc<dyn Disk>, row: Generation, run: &ArchivedRun) -> Vec<Record> {
        let id = run.summary.id;
        if row.makes_runs() {
            let run = open(archive, id).expect("a run");
            run.verify(&RegionDigest::new()).expect("a whole run");
            let of_run = records(&run, &Scope::All).expect("whole");
            let page = |at: perdura_archive::PageAt| CHUNKS.page_id(at.partition, at.local);
            let owned = of_run.into_iter().map(|record| {
                let page = page(record.at).expect("a page");
                let useq = record.updates.first.0;
                (page.0, record.epochs.first.0, useq, record.bytes)
            });
            return owned.collect();
        }
        let mut copied = Vec::new();
        let each = |record: unsorted::CopiedRecord<'_>| {
            let bytes = record.bytes.to_vec();
            copied.push((record.page.0, record.epoch.0, record.useq.0, bytes));
        };
        unsorted::read(archive.as_ref(), DIR, &id, &self.history.uuid, each).expect("a copy");
        copied
    }
}

#[test]
fn every_row_archives_each_record_once_and_its_files_tile_the_log() {
    let log = Log::new(6000, 20, 20_000);
    let mut all: Vec<Vec<Record>> = Vec::new();
    for row in Generation::ALL {
        let archive = disk();
        let made = log.archived(&archive, row);
        assert!(made.len() > 5, "{}: {} files", row.name(), made.len());
        let (mut next, mut found) = (Epoch(1), Vec::new());
        for run in &made {
            let epochs = run.summary.id.epochs;
            assert_eq!(epochs.begin, next, "{}", row.name());
            next = epochs.end;
            let records = log.read(&archive, row, run);
            assert_eq!(u64::try_from(records.len()).ok(), Some(run.summary.records));
            let is_within = |record: &Record| epochs.contains(Epoch(record.1));
            assert!(records.iter().all(is_within), "{}", row.name());
            if !row.makes_runs() {
                assert!(
                    records.is_sorted_by_key(|record| record.1),
                    "the log's order"
                );
            }
            found.extend(records);
        }
        assert_eq!(next, Epoch(log.durable.epoch.0 + 1), "{}", row.name());
        found.sort();
        all.push(found);
    }
    assert_eq!(all[0].len(), 6000);
    assert!(all.iter().all(|found| *found == all[0]));
}

#[test]
fn the_selection_tree_reads_on_while_a_run_is_written_and_the_others_do_not() {
    // A run takes several writes. Between them the archiver reads the log, if the algorithm permits it.
    let log = Log::new(100_000, 60, 3 << 20);
    let mut along = Vec::new();
    for row in Generation::ALL {
        let archive = disk();
        let mut archiver = log.archiver(&archive, row);
        archiver.cut_at(log.durable.epoch);
        let mut collecting_at_run = 0;
        loop {
            match archiver.step(&log.durable, 0).expect("memory") {
                ArchiverStep::Working => {}
                ArchiverStep::Run(_) => collecting_at_run += u32::from(archiver.is_collecting()),
                ArchiverStep::Idle => break,
            }
        }
        along.push(collecting_at_run > 0);
    }
    assert_eq!(along, [false, true, false], "quick, selection, unsorted");
}

#[test]
fn a_run_is_cut_by_age_and_by_demand_in_every_row() {
    let log = Log::new(100, 20, 20_000);
    for row in Generation::ALL {
        let archive = disk();
        let mut archiver = log.archiver(&archive, row);
        let mut now = 0;
        let ended = loop {
            match archiver.step(&log.durable, now).expect("memory") {
                ArchiverStep::Working => {}
                ArchiverStep::Idle => {
                    assert_eq!(now, 0, "{}", row.name());
                    now = 2_000_000_000;
                }
                ArchiverStep::Run(run) => break run,
            }
        };
        assert_eq!(ended.end.epoch, log.durable.epoch, "{}", row.name());
        assert!(!archiver.is_collecting());
    }
}

#[test]
fn a_damaged_copy_is_an_error_at_every_byte() -> Result<()> {
    let log = Log::new(30, 20, 20_000);
    let archive = disk();
    let made = log.archived(&archive, Generation::Unsorted);
    let id = made[0].summary.id;
    let file = archive.open(&unsorted::path(DIR, &id), Access::Buffered)?;
    let mut whole = vec![0; usize::try_from(file.len()?).expect("short")];
    file.read_at(0, &mut whole)?;
    let read = || unsorted::read(archive.as_ref(), DIR, &id, &log.history.uuid, |_| {});
    read()?;
    for (at, byte) in (0..).zip(&whole) {
        file.write_at(at, &[byte ^ 0x41])?;
        let found = read();
        assert!(
            matches!(found, Err(Error::Corrupt(_) | Error::Version { .. })),
            "byte {at}: {found:?}"
        );
        file.write_at(at, &[*byte])?;
    }
    read()
}
