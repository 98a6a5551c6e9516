//! Makes an archive in memory: the backup of a database, and the whole log of the updates after it.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use perdura::Options;
use perdura_archive::list_archives;
use perdura_base::Uuid;
use perdura_device::{Disk, FileDisk};

use super::super::scratch::Scratch;
use crate::drive::{DriveOptions, Limit, LogScheme, ModelledDisk, RunReport, Site};
use crate::restoring::Restoring;
use crate::update::Rows;
use crate::update::bench::UpdateBench;

/// The size of a row in its page, bytes.
const SLOT_BYTES: usize = 256;
/// The approximate number of rows in a page of 16 KiB.
const ROWS_PER_PAGE: u64 = 63;
/// The approximate size of a record without the changed bytes.
const RECORD_BYTES: u64 = 12;
/// The least size of a partition, bytes. With smaller partitions, a database in memory would take many times the size
/// of its pages.
const PARTITION_BYTES: u64 = 8 << 20;

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
}

/// An archive in a separate directory. Dropping this removes the directory.
pub struct ArchiveStand {
    scratch: Scratch,
    uuid: Uuid,
}

impl ArchiveStand {
    /// Makes a database in memory, backs it up, and updates it.
    ///
    /// # Errors
    /// Errors of the engine; a directory that cannot be made.
    pub fn new(shape: &Shape, seed: u64) -> Result<ArchiveStand> {
        let scratch = Scratch::in_memory()?;
        // This directory is not used, because the disks are in memory.
        let mut options = Options::new("archived");
        let partitions = (shape.image_mb * 1_000_000 / PARTITION_BYTES).next_power_of_two();
        options.partitions = u16::try_from(partitions.clamp(4, 256)).expect("at most 256");
        options.checkpoint_log_bytes = u64::MAX;
        options.checkpoint_seconds_max = 1;
        options.first_backup = false;
        let bench = UpdateBench {
            site: Site::new(options, true, LogScheme::Differential),
            rows: shape.rows(),
            seed,
            drive: DriveOptions {
                workers: 1,
                clients: 1_000,
                rate: None,
                limit: Limit::Txns(shape.updates),
            },
            digest: false,
        };
        let disks = bench.site.memory();
        // The population is not archived, so that the archive begins with the backup.
        let db = bench.site.open_on(disks.clone(), None, |builder| builder)?;
        bench.populate(&db)?;
        db.close().context("closing the database")?;
        let archive: Arc<dyn Disk> = Arc::new(FileDisk::new(&archive_in(&scratch))?);
        let db = bench
            .site
            .open_on(disks, Some(Arc::clone(&archive)), |builder| builder)?;
        db.back_up().context("backing the database up")?;
        bench.measure(&db, &bench.drive, &mut RunReport::default())?;
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
