//! Makes an archive in memory: the backup of a database, and the whole log of the updates after it. The database has
//! rows that are updated uniformly, or with the shares of TPC-C.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use perdura::{Db, Options};
use perdura_archive::list_archives;
use perdura_base::Uuid;
use perdura_device::{Disk, FileDisk};

use super::super::scratch::Scratch;
use crate::drive::{DriveOptions, Limit, LogScheme, ModelledDisk, RunReport, Site};
use crate::restoring::Restoring;
use crate::update::bench::UpdateBench;
use crate::update::orders::CHANGES_OF_HUNDRED;
use crate::update::{Draw, Rows};

/// The size of a row in its page, bytes.
const SLOT_BYTES: usize = 256;
/// The approximate number of rows in a page of 16 KiB.
const ROWS_PER_PAGE: u64 = 63;
/// The approximate size of a record without the changed bytes.
const RECORD_BYTES: u64 = 12;
/// The minimum size of a partition, bytes. With smaller partitions, a database in memory would take many times the size
/// of its pages.
const PARTITION_BYTES: u64 = 8 << 20;
/// The number of clients that change rows with the shares of TPC-C.
const ORDERS_CLIENTS: usize = 16;
/// The number of bytes that such a change changes.
const ORDERS_CHANGED_BYTES: usize = 100;

/// The shape of a database and its log.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// The size of the image, 10^6 bytes.
    pub image_mb: u64,
    /// The number of updates after the backup.
    pub updates: u64,
    /// The number of bytes that an update changes.
    pub changed_bytes: usize,
}

impl Shape {
    /// Returns a shape whose log is `log` times as long as the image.
    #[must_use]
    pub fn with_log(image_mb: u64, log: f64, changed_bytes: usize) -> Shape {
        let record = u64::try_from(changed_bytes).unwrap_or(u64::MAX) + RECORD_BYTES;
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss
        )]
        let updates = (log * (image_mb * 1_000_000) as f64 / record as f64) as u64;
        Shape {
            image_mb,
            updates: updates.max(1),
            changed_bytes,
        }
    }

    fn rows(&self) -> Rows {
        Rows {
            count: (self.image_mb * 1_000_000 / 16_384 * ROWS_PER_PAGE).max(ROWS_PER_PAGE),
            slot_bytes: SLOT_BYTES,
            changed_bytes: self.changed_bytes,
            zipf: None,
        }
    }

    fn bench(&self, clients: usize, seed: u64) -> UpdateBench {
        // This directory is not used, because the disks are in memory.
        let mut options = Options::new("archived");
        let partitions = (self.image_mb * 1_000_000 / PARTITION_BYTES).next_power_of_two();
        options.partitions = u16::try_from(partitions.clamp(4, 256)).expect("at most 256");
        options.checkpoint_log_bytes = u64::MAX;
        options.checkpoint_seconds_max = 1;
        options.first_backup = false;
        UpdateBench {
            site: Site::new(options, true, LogScheme::Differential),
            rows: self.rows(),
            seed,
            drive: DriveOptions {
                workers: 1,
                clients,
                rate: None,
                limit: Limit::Txns(self.updates),
            },
            digest: false,
        }
    }
}

/// The number of row changes for each 10^6 bytes of the database. The paper has 7.5 million transactions on 8 GB.
const CHANGES_PER_MB: u64 = 7_500_000 * CHANGES_OF_HUNDRED / 100 / 8_000;

/// Returns the number of row changes after the backup. The number for each byte of the database is that of the paper.
#[must_use]
pub const fn changes(image_mb: u64) -> u64 {
    image_mb * CHANGES_PER_MB
}

/// Returns the number of TPC-C's transactions that make these changes.
#[must_use]
pub fn txns_of(changes: u64) -> u64 {
    changes * 100 / CHANGES_OF_HUNDRED
}

/// An archive in a separate directory. Dropping this removes the directory.
pub struct ArchiveStand {
    scratch: Scratch,
    uuid: Uuid,
}

impl ArchiveStand {
    /// Makes a database in memory, backs it up, and updates rows that are chosen uniformly at random.
    ///
    /// # Errors
    /// Errors of the engine; a directory that cannot be made.
    pub fn of_updates(shape: &Shape, seed: u64) -> Result<ArchiveStand> {
        let bench = shape.bench(1_000, seed);
        ArchiveStand::make(&bench, |db| {
            bench.measure(db, &bench.drive, &mut RunReport::default())
        })
    }

    /// Makes a database in memory, backs it up, and changes its rows with the shares of TPC-C
    /// ([`orders`](crate::update::orders)). The archive's runs are not merged. So each record of the log is stored
    /// separately in the runs, as in a log that is replayed in its order.
    ///
    /// # Errors
    /// As [`of_updates`](Self::of_updates).
    pub fn of_orders(image_mb: u64, changes: u64, seed: u64) -> Result<ArchiveStand> {
        let shape = Shape {
            image_mb,
            updates: changes,
            changed_bytes: ORDERS_CHANGED_BYTES,
        };
        // With few clients an epoch has few updates, and the log keeps the order of all others.
        let mut bench = shape.bench(ORDERS_CLIENTS, seed);
        bench.site.options.archive_merge = false;
        let draw = |seed| Draw::orders(&bench.rows, shape.updates, seed);
        ArchiveStand::make(&bench, |db| {
            bench.measure_drawn(db, &bench.drive, &mut RunReport::default(), draw)
        })
    }

    fn make(bench: &UpdateBench, update: impl FnOnce(&Db) -> Result<()>) -> Result<ArchiveStand> {
        let site = &bench.site;
        let scratch = Scratch::in_memory()?;
        let disks = site.memory();
        // The population is not archived, so that the archive begins with the backup.
        let db = site.open_on(disks.clone(), None, |builder| builder)?;
        bench.populate(&db)?;
        db.close().context("closing the database")?;
        let archive: Arc<dyn Disk> = Arc::new(FileDisk::new(&archive_in(&scratch))?);
        let db = site.open_on(disks, Some(Arc::clone(&archive)), |builder| builder)?;
        db.back_up().context("backing the database up")?;
        update(&db)?;
        db.close().context("closing the database")?;
        let all = list_archives(archive.as_ref())?;
        ensure!(all.len() == 1, "one database was archived");
        Ok(ArchiveStand {
            scratch,
            uuid: all[0],
        })
    }

    /// Returns a restore of the archive, from and to these disks.
    #[must_use]
    pub fn restoring(
        &self,
        source: ModelledDisk,
        target: ModelledDisk,
        threads: usize,
    ) -> Restoring {
        Restoring {
            from: archive_in(&self.scratch),
            uuid: self.uuid,
            at: None,
            work: self.scratch.dir.join("work"),
            source,
            target,
            threads,
        }
    }
}

fn archive_in(scratch: &Scratch) -> PathBuf {
    scratch.dir.join("archive")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_reads_are_counted_at_the_disks() {
        let stand = ArchiveStand::of_orders(1, 2_000, 1).unwrap();
        let free = ModelledDisk::default();
        let restoring = stand.restoring(free, free, 2);
        let pages = restoring.inputs().unwrap().backup_pages;
        for pool in [2, 7, 1_000] {
            let (_, report, reads) = restoring.restore_within(pool).unwrap();
            assert_eq!((reads.backup, reads.database), (pages, 0), "{pool}");
            assert_eq!(report.page_reads, pages, "{pool}");
        }
        assert!(restoring.restore_within(1).is_err());
        let (report, reads) = restoring.replay(4).unwrap();
        assert_eq!((reads.backup, reads.database), (pages, report.page_reads));
        assert!(report.page_reads > pages, "a small pool reads pages again");
        assert_eq!(report.restored.page_reads, reads.all());
    }

    #[test]
    fn a_database_gets_the_papers_changes() {
        // 7.5 million transactions of 17.27 changes each, on 8 GB.
        assert_eq!(changes(8_000) / 1_000_000, 129);
        assert_eq!(txns_of(changes(8_000)) / 1_000, 7_499);
    }
}
