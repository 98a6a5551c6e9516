//! The fuzzy checkpoint: a machine that takes one latch or performs one I/O per step.
//!
//! ```text
//! Idle ─ begin ─► Copy ⇄ Write ─ last partition ─► SyncPages ─► Directory ─► Mark ─► Await ─► Anchor ─► Truncate ─► Idle
//! ```
//! * *begin*: the anchor says BUILDING for the slot about to be overwritten, so that it is no
//!   fallback from then on; begin marks are appended to every stream; then `G := k` is published.
//!   Who runs transactions says through a [`Window`] what else must hold around that.
//! * *Copy*: under the partition's latch, pages get `epoch := k`; those dirty for the slot are
//!   copied to a staging buffer. Never in the middle of a transaction: the latch is its latch.
//! * *Write*: the staged pages, outside the latch. At the partition's end its section of the
//!   directory, with the hash index as it stood under the last latch.
//! * *Mark*, *Await*: end marks; the image counts once their epoch is durable, because then every
//!   record it reflects is.
//! * *Anchor*: names the image, drops chain links that nothing needs, and only then the log is cut.
//!
//! The pages of partition p are on image disk p modulo the number of disks; the directory, which the
//! anchor names, is on the data disk and written after all of them are synced.
//!
//! A failed read or write of an image marks the pages in hand dirty again and cancels: cancelling is
//! just stopping, since the epochs already assigned stay right. A failed sync of pages, or a failed
//! update of the anchor, stops the database: what the disk holds is not known any more. A log
//! segment or directory that cannot be removed is left for [`Checkpointer::clear_away`]: the image
//! counts without that.
//!
//! # Source
//! *Differential Logging* (000), algorithm 2.
//!
//! # Deviations
//! Pages are copied to memory under the latch where the paper copies "asynchronously": a live page
//! that changes during its I/O mixes states that no tag can tell apart. A page born within the
//! window carries tag `k` and is not swept: it is zeros in image `k`, and its records are replayed.

use std::sync::Arc;

use parking_lot::Mutex;
use perdura_base::flaw::{Flaw, armed};
use perdura_base::limits::PAGE_BYTES;
use perdura_base::num::to_u64;
use perdura_base::{CkptEpoch, ImageSlot, PageId, PartitionId, Pos, Result};
use perdura_device::{AlignedBuf, Clock, Disk};
use perdura_heap::{MemoryUse, Visit};
use perdura_wal::{Rung, Wal};
use serde::Serialize;

use crate::anchor_cell::AnchorCell;
use crate::component::{Component, Contract};
use crate::image::{
    DirEntry, Directory, DirectoryWriter, ImageFile, PageSummer, Places, directory_path, folder,
    remove_old_directories,
};
use crate::images::Completion;
use crate::truncate::truncation_floor;
use crate::window::{Window, WindowEnd};

/// Pages visited under one latch.
pub const VISIT_PAGES: u32 = 16;
const STAGING_BYTES: usize = 16 * PAGE_BYTES;

/// What a step did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckpointProgress {
    /// No checkpoint is running.
    Idle,
    /// A step was taken; this many bytes were written to the image in it.
    Working(u64),
    /// Waits for the log to become durable; close the epoch and flush.
    Waiting,
    /// The checkpoint is complete.
    Done,
}

/// Figures of checkpoints.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct CheckpointStats {
    /// Completed since the database was opened.
    pub completed: u64,
    /// Cancelled since then, for instance because the disk was full.
    pub cancelled: u64,
    /// The newest complete checkpoint epoch.
    pub last_k: u64,
    /// Pages the newest one wrote.
    pub last_pages: u64,
    /// Bytes the newest one wrote.
    pub last_bytes: u64,
    /// How long it took, microseconds.
    pub last_us: u64,
    /// When it ended, microseconds since 1970; 0 if none since the start.
    pub last_end_us: u64,
    /// Whether one is running.
    pub running: bool,
    /// Partitions the running one has swept.
    pub partitions_done: u64,
}

enum Phase {
    Idle,
    Copy {
        partition: u16,
        local: u32,
    },
    /// `next_local` is `None` once the partition's last page was visited.
    Write {
        partition: u16,
        next_local: Option<u32>,
        run: usize,
    },
    SyncPages,
    Directory,
    Mark,
    Await(WindowEnd),
    Anchor(WindowEnd),
    Truncate,
}

/// The sweep that is running.
struct Sweep {
    slot: ImageSlot,
    k: CkptEpoch,
    begin: Vec<Pos>,
    begin_us: u64,
    begin_ns: u64,
    /// The pages files, one on each image disk.
    images: Vec<ImageFile>,
    /// `None` once the file has been completed.
    writer: Option<DirectoryWriter>,
    directory_crc: u32,
    /// The end marks are not appended yet.
    window_open: bool,
    pages: u64,
    bytes: u64,
}

/// A page in the staging buffer.
#[derive(Clone, Copy)]
struct Staged {
    local: u32,
    page: PageId,
}

/// What a checkpoint works on.
pub struct CheckpointParts {
    /// The pages.
    pub component: Component,
    /// The log.
    pub wal: Arc<Wal>,
    /// The anchor.
    pub anchor: Arc<AnchorCell>,
    /// The disk of anchor and directories.
    pub disk: Arc<dyn Disk>,
    /// The disks of the images' pages, at least one: partition p is on disk p modulo their number.
    pub images: Vec<Arc<dyn Disk>>,
    /// What the transactions need around the window's ends.
    pub window: Arc<dyn Window>,
    /// Time, for the report only.
    pub clock: Arc<dyn Clock>,
}

/// The checkpointer of a database.
pub struct Checkpointer {
    parts: CheckpointParts,
    places: Places,
    directories: [Directory; 2],
    phase: Phase,
    sweep: Option<Sweep>,
    staging: AlignedBuf,
    staged: Vec<Staged>,
    sidecar: Vec<u8>,
    summer: PageSummer,
    stats: CheckpointStats,
    /// The image behind which not everything old could be removed yet.
    leftover: Option<(ImageSlot, CkptEpoch)>,
    /// A copy of the figures for others, who must not wait for a step's I/O.
    published: Arc<Mutex<CheckpointStats>>,
}

impl Checkpointer {
    /// A checkpointer that knows what the images on disk list.
    #[must_use]
    pub fn new(parts: CheckpointParts, directories: [Directory; 2]) -> Self {
        let newest = parts.anchor.get();
        let last_k = newest
            .newest_image()
            .map_or(0, |slot| newest.image(slot).k.0);
        let stats = CheckpointStats {
            last_k,
            ..CheckpointStats::default()
        };
        Checkpointer {
            places: Places::of(&newest),
            parts,
            directories,
            phase: Phase::Idle,
            sweep: None,
            staging: AlignedBuf::zeroed(0),
            staged: Vec::new(),
            sidecar: Vec::new(),
            summer: PageSummer::new(),
            stats,
            leftover: None,
            published: Arc::new(Mutex::new(stats)),
        }
    }

    /// The figures, kept up to date after every step; reading them never waits for one.
    #[must_use]
    pub fn published(&self) -> Arc<Mutex<CheckpointStats>> {
        Arc::clone(&self.published)
    }

    fn publish(&self) {
        *self.published.lock() = CheckpointStats {
            running: self.is_running(),
            ..self.stats
        };
    }

    /// Whether a checkpoint is running.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.sweep.is_some()
    }

    /// Starts a checkpoint; nothing happens if one is running.
    ///
    /// # Errors
    /// Nothing was begun, and nothing is lost: begin again later. A failed update of the anchor has
    /// stopped the log, unless it was refused for want of space.
    pub fn begin(&mut self) -> Result<()> {
        if self.is_running() {
            return Ok(());
        }
        let CheckpointParts {
            component,
            wal,
            anchor,
            disk,
            images,
            window,
            clock,
        } = &self.parts;
        wal.check()?;
        let record = anchor.get();
        let slot = record.newest_image().map_or(ImageSlot::A, ImageSlot::other);
        let k = CkptEpoch(component.ckpt_epoch().0 + 1);
        let images = (0u8..)
            .zip(images)
            .map(|(number, disk)| {
                ImageFile::open_to_rewrite(disk.as_ref(), slot, &record.uuid, number)
            })
            .collect::<Result<Vec<_>>>()?;
        let writer = DirectoryWriter::create(disk, slot, k, &record.uuid, component.geometry())?;
        if self.staging.is_empty() {
            self.staging = AlignedBuf::zeroed(STAGING_BYTES);
            let staging = to_u64(STAGING_BYTES);
            component.memory().add(MemoryUse::Staging, staging);
        }
        let begin_ns = clock.mono_ns();
        if !armed(Flaw::NoBuildingMark) {
            anchor.update_running(wal, |record| {
                record.image_mut(slot).mark_building(k);
            })?;
        }
        // The marks of all streams come before G is published: a record tagged k lies behind them.
        let begin = window.begin(&mut || {
            let begin = wal.begin_checkpoint(k);
            component.set_ckpt_epoch(k);
            begin
        });
        self.sweep = Some(Sweep {
            slot,
            k,
            begin,
            begin_us: clock.wall_us(),
            begin_ns,
            images,
            writer: Some(writer),
            directory_crc: 0,
            window_open: true,
            pages: 0,
            bytes: 0,
        });
        self.stats.partitions_done = 0;
        self.phase = Phase::Copy {
            partition: 0,
            local: 0,
        };
        self.publish();
        Ok(())
    }

    /// Takes one step.
    ///
    /// # Errors
    /// A failure has cancelled the checkpoint and nothing is lost; begin again later. A failed sync
    /// of pages or update of the anchor has stopped the log. An anchor that is refused for want of
    /// space cancels nothing: the next step tries again to name the image.
    pub fn step(&mut self) -> Result<CheckpointProgress> {
        let phase = std::mem::replace(&mut self.phase, Phase::Idle);
        let Some(mut sweep) = self.sweep.take() else {
            return Ok(CheckpointProgress::Idle);
        };
        let result = self.advance(&mut sweep, phase);
        match &result {
            Ok(CheckpointProgress::Done) => self.complete(&sweep),
            Ok(_) => self.sweep = Some(sweep),
            Err(_) if matches!(self.phase, Phase::Anchor(_)) => self.sweep = Some(sweep),
            Err(_) => self.cancel(&sweep),
        }
        self.publish();
        result
    }

    /// Gives the running checkpoint up, unless its image is being named already: cancelling is just
    /// stopping. Returns whether one was given up.
    pub fn abandon(&mut self) -> bool {
        if matches!(self.phase, Phase::Anchor(_) | Phase::Truncate) {
            return false;
        }
        let Some(sweep) = self.sweep.take() else {
            return false;
        };
        self.cancel(&sweep);
        self.publish();
        true
    }

    fn advance(&mut self, sweep: &mut Sweep, phase: Phase) -> Result<CheckpointProgress> {
        let mut written = 0;
        self.phase = match phase {
            Phase::Idle => return Ok(CheckpointProgress::Idle),
            Phase::Copy { partition, local } => self.copy(sweep, partition, local),
            Phase::Write {
                partition,
                next_local,
                run,
            } if run < self.staged.len() => {
                let end = self.write_run(sweep, PartitionId(partition), run)?;
                written = to_u64((end - run) * PAGE_BYTES);
                Phase::Write {
                    partition,
                    next_local,
                    run: end,
                }
            }
            Phase::Write {
                partition,
                next_local,
                ..
            } => self.finish_batch(sweep, partition, next_local)?,
            Phase::SyncPages => {
                if !armed(Flaw::AnchorBeforeImage) {
                    self.sync(sweep)?;
                }
                Phase::Directory
            }
            Phase::Directory => {
                if let Some(writer) = sweep.writer.take() {
                    sweep.directory_crc = writer.finish()?;
                }
                if armed(Flaw::ListRace) {
                    self.parts.window.list_early();
                }
                Phase::Mark
            }
            Phase::Mark => {
                let end = self.parts.window.end(&self.parts.wal, sweep.k);
                sweep.window_open = false;
                Phase::Await(end)
            }
            Phase::Await(end) => {
                self.parts.wal.check()?;
                if self.parts.wal.durable(Rung::Disk) < end.epoch && !armed(Flaw::AnchorBeforeLog) {
                    self.phase = Phase::Await(end);
                    return Ok(CheckpointProgress::Waiting);
                }
                Phase::Anchor(end)
            }
            Phase::Anchor(end) => {
                if let Err(error) = self.name_image(sweep, &end) {
                    if self.parts.wal.failure().is_none() {
                        self.phase = Phase::Anchor(end);
                    }
                    return Err(error);
                }
                Phase::Truncate
            }
            Phase::Truncate => {
                self.leftover = Some((sweep.slot, sweep.k));
                // The image counts; what cannot be removed now waits, and whoever drives the
                // checkpoints learns of it from `clear_away`.
                let _later = self.remove_old();
                return Ok(CheckpointProgress::Done);
            }
        };
        Ok(CheckpointProgress::Working(written))
    }

    /// Removes log segments and directories that the last checkpoint could not remove. Does nothing
    /// while another one runs, whose end does it.
    ///
    /// # Errors
    /// The disk's: they are in the way of nothing but space, so try again later.
    pub fn clear_away(&mut self) -> Result<()> {
        if self.is_running() {
            return Ok(());
        }
        self.remove_old()
    }

    fn remove_old(&mut self) -> Result<()> {
        let Some((slot, k)) = self.leftover else {
            return Ok(());
        };
        let floor = truncation_floor(&self.parts.anchor.get(), None);
        let segments = self.parts.wal.truncate(&floor);
        remove_old_directories(self.parts.disk.as_ref(), slot, k)?;
        segments?;
        self.leftover = None;
        Ok(())
    }

    /// Visits up to [`VISIT_PAGES`] pages of a partition under its latch.
    fn copy(&mut self, sweep: &mut Sweep, partition: u16, local: u32) -> Phase {
        let id = PartitionId(partition);
        self.staged.clear();
        self.sidecar.clear();
        let Checkpointer {
            parts,
            directories,
            staging,
            staged,
            sidecar,
            ..
        } = self;
        let pages = local..local.saturating_add(VISIT_PAGES);
        let kind = (sweep.slot, sweep.k);
        let take = |local: u32, page: PageId, visit: Visit<'_>| match visit {
            Visit::Born | Visit::Untouched => {
                directories[sweep.slot.index()].set(id, local, DirEntry::default());
            }
            Visit::Clean => {}
            Visit::Dirty(bytes) => {
                let room = staged.len() * PAGE_BYTES;
                staging[room..room + PAGE_BYTES].copy_from_slice(bytes);
                staged.push(Staged { local, page });
            }
        };
        let next_local = parts.component.visit(id, pages, kind, sidecar, take);
        Phase::Write {
            partition,
            next_local,
            run: 0,
        }
    }

    /// Writes staged pages from `run` on that lie side by side; returns the first not written.
    fn write_run(&mut self, sweep: &mut Sweep, id: PartitionId, run: usize) -> Result<usize> {
        let first = self.staged[run];
        let place = self.places.place(first.page);
        let side_by_side = self.staged[run..]
            .iter()
            .zip(place.0..)
            .take_while(|(staged, expected)| self.places.place(staged.page).0 == *expected)
            .count();
        let end = run + side_by_side;
        if armed(Flaw::CopyAfterLatch) {
            self.recopy(id, run..end);
        }
        for at in run..end {
            let Staged { local, page } = self.staged[at];
            let bytes = &self.staging[at * PAGE_BYTES..(at + 1) * PAGE_BYTES];
            let entry = DirEntry::describe(page, bytes, sweep.k, &self.summer);
            self.directories[sweep.slot.index()].set(id, local, entry);
        }
        let image = &sweep.images[usize::from(id.0) % sweep.images.len()];
        image.write(place, &self.staging[run * PAGE_BYTES..end * PAGE_BYTES])?;
        sweep.pages += to_u64(side_by_side);
        sweep.bytes += to_u64(side_by_side * PAGE_BYTES);
        Ok(end)
    }

    /// The seeded bug of copying a page "asynchronously": as it is when it is written.
    #[cold]
    fn recopy(&mut self, id: PartitionId, staged: std::ops::Range<usize>) {
        for at in staged {
            let copy = &mut self.staging[at * PAGE_BYTES..(at + 1) * PAGE_BYTES];
            self.parts
                .component
                .copy_page(id, self.staged[at].local, copy);
        }
    }

    /// After a batch: the next batch, or the partition's section and the next partition.
    fn finish_batch(
        &mut self,
        sweep: &mut Sweep,
        partition: u16,
        next_local: Option<u32>,
    ) -> Result<Phase> {
        self.staged.clear();
        if let Some(local) = next_local {
            return Ok(Phase::Copy { partition, local });
        }
        let directory = &self.directories[sweep.slot.index()];
        let section = directory.encode_section(PartitionId(partition), &self.sidecar);
        self.sidecar.clear();
        if let Some(writer) = &mut sweep.writer {
            writer.add_section(&section)?;
        }
        self.stats.partitions_done += 1;
        if partition + 1 < self.parts.component.geometry().partitions {
            return Ok(Phase::Copy {
                partition: partition + 1,
                local: 0,
            });
        }
        Ok(Phase::SyncPages)
    }

    fn sync(&self, sweep: &Sweep) -> Result<()> {
        for image in &sweep.images {
            image.sync().inspect_err(|error| {
                self.parts.wal.stop(folder(sweep.slot), error);
            })?;
        }
        Ok(())
    }

    fn name_image(&mut self, sweep: &Sweep, end: &WindowEnd) -> Result<()> {
        if armed(Flaw::TruncateBeforeAnchor) {
            self.parts.wal.truncate(&sweep.begin)?;
        }
        let now = self.parts.clock.wall_us();
        let named = self.parts.anchor.update_running(&self.parts.wal, |record| {
            let completion = Completion {
                directory_crc: sweep.directory_crc,
                end_epoch: end.epoch,
                wall_us: now,
                begin: reach(&sweep.begin, end.undo_low.as_deref()),
                end: end.ends.clone(),
            };
            let image = record.image_mut(sweep.slot);
            if armed(Flaw::NoBuildingMark) {
                image.mark_building(sweep.k);
            }
            image.mark_complete(sweep.k, completion);
            record.ckpt_max = record.ckpt_max.max(sweep.k);
            let floor = truncation_floor(record, None);
            // The last link stays: it says where the open incarnation starts.
            let last = record.chain.last().map(|link| link.incarnation);
            record.chain.retain(|link| {
                Some(link.incarnation) == last
                    || link.cut.iter().zip(&floor).any(|(cut, floor)| cut > floor)
            });
        });
        named.map(drop)
    }

    fn complete(&mut self, sweep: &Sweep) {
        let clock = &self.parts.clock;
        self.stats.completed += 1;
        self.stats.last_k = sweep.k.0;
        self.stats.last_pages = sweep.pages;
        self.stats.last_bytes = sweep.bytes;
        self.stats.last_us = clock.mono_ns().saturating_sub(sweep.begin_ns) / 1000;
        self.stats.last_end_us = clock.wall_us().max(sweep.begin_us);
    }

    /// Pages that were copied but perhaps not written are dirty again for the slot.
    fn cancel(&mut self, sweep: &Sweep) {
        self.stats.cancelled += 1;
        self.phase = Phase::Idle;
        if sweep.window_open {
            self.parts.window.cancel();
        }
        let tmp = format!("{}.tmp", directory_path(sweep.slot, sweep.k));
        // On a full disk it would be in the way; if it cannot go now, the next complete checkpoint
        // of this slot removes it.
        let _gone_or_later = self.parts.disk.remove(&tmp);
        if armed(Flaw::FailedWriteClean) {
            return;
        }
        for staged in self.staged.drain(..) {
            let component = &self.parts.component;
            let id = component.geometry().partition_of_page(staged.page);
            component.mark_dirty(id, staged.local, sweep.slot);
        }
    }
}

/// How far back a restart from an image reads each stream: to the window's begin, or to the first
/// record of a transaction that the window's end found active.
fn reach(begin: &[Pos], undo_low: Option<&[Pos]>) -> Vec<Pos> {
    match undo_low {
        None => begin.to_vec(),
        Some(low) => begin.iter().zip(low).map(|(a, b)| *a.min(b)).collect(),
    }
}

impl Drop for Checkpointer {
    fn drop(&mut self) {
        self.parts
            .component
            .memory()
            .sub(MemoryUse::Staging, to_u64(self.staging.len()));
    }
}
