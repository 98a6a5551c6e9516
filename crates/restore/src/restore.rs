//! The restore: makes a new database from a backup and an archive's runs, in one pass.
//!
//! The backup and the runs are sorted by partition and local page, so restoring is a merge join. Each page is read once
//! and written once, into an image of a new database. All records of the page are applied while the page is in the
//! processor's cache. Several threads work simultaneously, each on a separate partition. While one thread waits for the
//! backup or the runs, another thread merges or writes.
//!
//! A record is *wanted* if its epoch is at most the target. A wanted record is applied if the backup does not reflect
//! it. A record that is not wanted is *taken out* if the backup reflects it: XOR is its own inverse. That is the rule
//! of [`perdura_recovery::rule`]. Because records can be taken out, the target may be before the end of the backup's
//! sweep. A page that is not in the backup begins as zeros. If the backup's page has the update number u, the applied
//! records must have exactly the numbers u + 1, u + 2 and so on. The records taken out must have consecutive numbers
//! that end with u. All other numbers are reported as damage.
//!
//! The new database has a new identity, one complete image, and a log that begins after the target. The log has the
//! ordered frames that the image lacks (`frames`); without ordered frames it is empty. The image's
//! checkpoint epoch is above every tag in the backup and the runs. An interrupted restore is never continued. The new
//! directory stays marked as unfinished and does not open.
//!
//! # Source
//! C. Sauer, G. Graefe, T. Härder, "Single-pass restore after a media failure", section 3.2.
//! # Deviations
//! * The paper restores the old database onto a replacement device. Here a restore makes a new database and never
//!   overwrites the old database.
//! * The paper undoes losers afterwards. Our log holds only committed transactions.
//! * In the paper, a record's LSN shows whether the backup has the record. Here the record's tag and epoch show it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use parking_lot::Mutex;
use perdura_archive::backup::BackupHeader;
use perdura_base::num::to_u64;
use perdura_base::{CkptEpoch, Epoch, Error, Incarnation, PartitionId, Pos, Result, Uuid};
use perdura_device::Clock;
use perdura_heap::Geometry;
use perdura_recovery::found::{mark_finished, mark_unfinished};
use perdura_recovery::image::{DirectoryWriter, ImageFile};
use perdura_recovery::images::Completion;
use perdura_recovery::threads::run_threads;
use perdura_recovery::{
    AnchorCell, Cover, Directory, Disks, Families, NewDatabase, RestoredRows, create, open_anchor,
};
use perdura_wal::{Parent, Scheme, Vouched};

use crate::buffers::Buffers;
use crate::deadlines::{Deadlines, Settling};
use crate::frames::{CarriedFrames, LogPlace, write_frames};
use crate::part::{Merging, Part};
use crate::plan::RestorePlan;
use crate::progress::RestoreProgress;
use crate::scratch::{SLOT, VERB};
use crate::sink::ImageSink;

/// The number of threads that a restore should have for each core: while some wait for the disks, others merge.
/// Measured with two cores, a source of 1,200 MB/s and a target of 400 MB/s (`perdura bench restore --threads`): two
/// threads take 1.28 times the time of a copy. Four threads take 1.03 times, and eight threads 0.99 times the time of a
/// copy.
pub const THREADS_A_CORE: usize = 4;

/// Returns the number of threads that a restore on this machine should have.
#[must_use]
pub fn default_threads() -> usize {
    THREADS_A_CORE * std::thread::available_parallelism().map_or(1, usize::from)
}

/// The report of a restore.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RestoreReport {
    /// The restored epoch.
    pub epoch: Epoch,
    /// The time of the last listed moment up to `epoch`, in microseconds since 1970. It is 0 if there is no such
    /// moment.
    pub wall_us: u64,
    /// The identity of the new database.
    pub uuid: Uuid,
    /// The identity of the database in the backup.
    pub parent: Uuid,
    /// The checkpoint epoch of the new database's image.
    pub k: CkptEpoch,
    /// Pages of the new database.
    pub pages: u64,
    /// Pages read.
    pub page_reads: u64,
    /// Pages written.
    pub page_writes: u64,
    /// Bytes read from backup and runs.
    pub bytes_read: u64,
    /// Bytes of pages and directory that were written.
    pub bytes_written: u64,
    /// Records that were applied.
    pub applied: u64,
    /// Records taken out of the backup's pages.
    pub taken_out: u64,
    /// Skipped records. A wanted record is skipped if the backup reflects it. An unwanted record is skipped if the
    /// backup does not reflect it.
    pub skipped: u64,
    /// Keys whose deadline had passed.
    pub deadlines_passed: u64,
    /// Keys whose deadline was changed.
    pub deadlines_changed: u64,
    /// The ordered frames in the new log. The first open replays them.
    pub carried: CarriedFrames,
}

/// The inputs of a restore other than its plan.
pub struct RestoreMeans<'a> {
    /// The disks of the new database, which are empty.
    pub disks: Disks,
    /// The identity of the new database.
    pub uuid: Uuid,
    /// The number of threads that merge.
    pub threads: usize,
    /// The clock.
    pub clock: &'a Arc<dyn Clock>,
    /// The counters of the restore's progress.
    pub progress: &'a RestoreProgress,
    /// The treatment of the keys' deadlines.
    pub deadlines: Deadlines,
}

/// Makes the new database. When this function returns, the database is complete and durable.
///
/// # Errors
/// [`Error::Corrupt`] for a damaged page of the backup or a damaged record of the runs; [`Error::Foreign`] for disks
/// that are not empty; errors of the disks.
pub fn restore(plan: &RestorePlan, means: &RestoreMeans<'_>) -> Result<RestoreReport> {
    restore_by(plan, means, Buffers::most(means.threads))
}

/// Makes the same new database as [`restore`], with at most `buffer_pages` pages in memory at the same time, in the
/// buffers of all threads together. Buffers for reading the runs are extra. A small bound makes reads and writes short,
/// and leaves fewer threads.
///
/// # Errors
/// As [`restore`]. [`Error::Usage`] if `buffer_pages` is less than 2: a page is read into one buffer and made in
/// another.
pub fn restore_within(
    plan: &RestorePlan,
    means: &RestoreMeans<'_>,
    buffer_pages: usize,
) -> Result<RestoreReport> {
    let buffers = Buffers::within(buffer_pages, means.threads);
    let buffers =
        buffers.ok_or_else(|| Error::Usage("a restore buffers at least two pages".into()))?;
    restore_by(plan, means, buffers)
}

fn restore_by(
    plan: &RestorePlan,
    means: &RestoreMeans<'_>,
    buffers: Buffers,
) -> Result<RestoreReport> {
    let settling = Settling::of(means.deadlines, plan.wall_us, means.clock.wall_us())?;
    make_database(plan, means, |images, k| {
        let merging = |sink| Merging::new(sink, k, k).settling(settling);
        restore_parts(plan, means, buffers, images, &merging)
    })
}

/// Makes the new database. `make_parts` gets the image files and a checkpoint epoch. It writes the pages to the files,
/// tagged with that checkpoint epoch, and makes them durable. All other work is done by this function.
pub(crate) fn make_database(
    plan: &RestorePlan,
    means: &RestoreMeans<'_>,
    make_parts: impl FnOnce(&[ImageFile], CkptEpoch) -> Result<Vec<Part>>,
) -> Result<RestoreReport> {
    let header = plan.backup.header();
    let new = new_database(header, means)?;
    if plan.scratch.is_none() {
        mark_unfinished(means.disks.data.as_ref(), VERB)?;
    }
    create(&means.disks, means.clock.as_ref(), &new, None)?;
    let k = plan.image_number()?;
    let open =
        |disk: &Arc<dyn perdura_device::Disk>| ImageFile::open(disk.as_ref(), SLOT, &means.uuid);
    let images: Vec<ImageFile> = means.disks.images.iter().map(open).collect::<Result<_>>()?;
    let parts = make_parts(&images, k)?;
    let (directory_crc, directory_bytes) = write_directory(plan, means, k, &parts)?;
    let cell = name_image(plan, means, k, directory_crc)?;
    let numbers = parts.iter().map(|part| part.pseq.unwrap_or(0));
    let place = LogPlace {
        logs: &means.disks.logs,
        uuid: means.uuid,
        clock: means.clock,
    };
    let carried = write_frames(plan, &place, &cell, numbers.collect())?;
    if let Some(scratch) = &plan.scratch {
        scratch.clear()?;
    }
    mark_finished(means.disks.data.as_ref())?;
    assert_eq!(
        parts.len(),
        usize::from(header.chunks.partitions),
        "every partition is in the image"
    );
    let mut report = RestoreReport {
        epoch: plan.target,
        wall_us: plan.wall_us,
        uuid: means.uuid,
        parent: header.uuid,
        k,
        bytes_read: plan.bytes(),
        bytes_written: directory_bytes + carried.bytes,
        carried,
        ..RestoreReport::default()
    };
    for part in &parts {
        report.pages += to_u64(part.entries.len());
        report.bytes_written += to_u64(part.entries.len() * perdura_base::limits::PAGE_BYTES);
        report.page_reads += part.page_reads;
        report.applied += part.applied;
        report.taken_out += part.taken_out;
        report.skipped += part.skipped;
        report.deadlines_passed += part.settled.passed;
        report.deadlines_changed += part.settled.changed;
    }
    report.page_writes = report.pages;
    Ok(report)
}

pub(crate) fn geometry(header: &BackupHeader) -> Geometry {
    Geometry {
        partitions: header.chunks.partitions,
        chunk_pages: header.chunks.pages,
        hash_seed: header.hash_seed,
    }
}

fn new_database(header: &BackupHeader, means: &RestoreMeans<'_>) -> Result<NewDatabase> {
    let scheme = Scheme::from_code(header.scheme).filter(|scheme| *scheme == Scheme::Differential);
    let scheme = scheme.ok_or_else(|| {
        Error::Usage(format!(
            "the backup is of a database with logging scheme {}, which cannot be restored",
            header.scheme
        ))
    })?;
    let streams = u8::try_from(means.disks.logs.len()).unwrap_or(u8::MAX);
    if streams != header.streams {
        return Err(Error::Usage(format!(
            "the database had {} log stream(s), but {streams} were given. Give as many",
            header.streams
        )));
    }
    Ok(NewDatabase {
        uuid: means.uuid,
        geometry: geometry(header),
        streams,
        segments: header.segments,
        scheme,
    })
}

/// Merges all partitions. Each thread takes one partition at a time.
pub(crate) fn restore_parts<'i>(
    plan: &RestorePlan,
    means: &RestoreMeans<'_>,
    buffers: Buffers,
    images: &'i [ImageFile],
    merging: &(dyn Fn(ImageSink<'i>) -> Merging<ImageSink<'i>> + Sync),
) -> Result<Vec<Part>> {
    let partitions = plan.backup.header().chunks.partitions;
    means.progress.begin(plan.backup.pages(), partitions);
    let next = AtomicU16::new(0);
    let parts = Mutex::new(vec![None; usize::from(partitions)]);
    run_threads(buffers.threads.min(usize::from(partitions)), || {
        let sink = ImageSink::new(images, geometry(plan.backup.header()), buffers.write);
        let mut merging = merging(sink).reading(buffers.read);
        loop {
            let partition = next.fetch_add(1, Ordering::Relaxed);
            if partition >= partitions {
                return Ok(());
            }
            let part = merging.merge(plan, PartitionId(partition), means.progress);
            // After a failure no thread takes another partition.
            let part = part.inspect_err(|_| next.store(partitions, Ordering::Relaxed))?;
            parts.lock()[usize::from(partition)] = Some(part);
        }
    })?;
    for image in images {
        image.sync()?;
    }
    let parts: Option<Vec<Part>> = parts.into_inner().into_iter().collect();
    Ok(parts.expect("every partition was taken"))
}

/// Writes the image's directory. Returns its checksum and length.
fn write_directory(
    plan: &RestorePlan,
    means: &RestoreMeans<'_>,
    k: CkptEpoch,
    parts: &[Part],
) -> Result<(u32, u64)> {
    let header = plan.backup.header();
    let data = &means.disks.data;
    let mut writer = DirectoryWriter::create(data, SLOT, k, &means.uuid, &geometry(header))?;
    if plan.is_consistent() {
        writer.mark_consistent();
    }
    let mut directory = Directory::empty(header.chunks.partitions);
    let mut bytes = 0;
    for (partition, part) in (0..).map(PartitionId).zip(parts) {
        for (local, entry) in &part.entries {
            directory.set(partition, *local, *entry);
        }
        let pseq = plan.is_consistent().then(|| part.pseq.unwrap_or(0));
        let section = directory.encode_section(partition, pseq, &part.sidecar);
        bytes += to_u64(section.len());
        writer.add_section(&section)?;
    }
    Ok((writer.finish()?, bytes))
}

/// Writes into the anchor that the database consists of the image and the new log. The log begins after the target.
/// Returns the anchor.
fn name_image(
    plan: &RestorePlan,
    means: &RestoreMeans<'_>,
    k: CkptEpoch,
    directory_crc: u32,
) -> Result<AnchorCell> {
    let header = plan.backup.header();
    // The backup may be older than the first key-addressed table, and its increment is not.
    let bits = header.families | plan.cut().families;
    let families = Families::from_bits(bits).ok_or_else(|| {
        Error::Usage("the backup is of a newer build. Restore with that build".into())
    })?;
    let opened = open_anchor(means.disks.data.as_ref())?;
    let (file, made, _) = opened.expect("the anchor was written just now");
    let cell = AnchorCell::new(file, made);
    let zeros = vec![Pos(0); means.disks.logs.len()];
    assert!(
        plan.highest_epoch() >= plan.target,
        "no epoch of the parent's is used again"
    );
    assert!(
        header.id.k < k && plan.cut().rows_k() < k,
        "the image's number is above those of its sources"
    );
    let update = cell.update(|record| {
        record.families = families;
        record.parent = Some(Parent {
            uuid: header.uuid,
            epoch: plan.target,
        });
        // The new database must not reuse epochs that the parent may have used after the target.
        record.epoch_floor = plan.highest_epoch();
        record.ckpt_max = k;
        record.restored = plan.has_frames().then_some(RestoredRows {
            image: k,
            backup: plan.cut().rows_k(),
        });
        record.vouched = Vouched {
            epoch: plan.target,
            wall_us: header.wall_us,
            ends: zeros.clone(),
        };
        let image = record.image_mut(SLOT);
        image.mark_building(k);
        image.mark_complete(
            k,
            Completion {
                directory_crc,
                wall_us: means.clock.wall_us(),
                cover: Cover::of_window(&zeros, zeros.clone(), plan.target),
                consistent: plan.is_consistent(),
                // The new log has no records of the target epoch, so the target is the first moment in an archive of
                // the new database. A cut lacks only later epochs.
                begin_epoch: Some(match plan.is_consistent() {
                    true => Epoch(plan.target.0 + 1),
                    false => plan.target.max(Epoch(1)),
                }),
            },
        );
        record.incarnation = Incarnation(1);
        record.clean = true;
    });
    update.map_err(Error::from)?;
    Ok(cell)
}
