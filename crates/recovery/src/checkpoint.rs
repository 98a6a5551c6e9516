//! The checkpoint, fuzzy or consistent: a state machine that takes one latch or performs one I/O per step.
//!
//! ```text
//! Idle ─ begin ─► Copy ⇄ Write ─ last partition ─► SyncPages ─► Directory ─► Trees ─► Mark ─► Await ─► Anchor ─► Truncate ─► Idle
//! ```
//! * *begin*: the anchor marks the older slot as BUILDING, because the checkpoint will overwrite it. No restart falls
//!   back to a slot with this mark. Begin marks are appended to every stream. Then the heap's checkpoint epoch `G`
//!   becomes `k`. The transaction layer adds its own conditions through a [`Window`]. With a *cut* the begin happens
//!   under all latches, and the image holds the pages as of that instant. Such an image is *consistent*; ordered frames
//!   need a consistent image. The begin closes the epoch, so a cut lies between two epochs.
//! * *Copy*: under the partition's latch, pages get `epoch := k`. A page that changed since the slot's last image is
//!   *dirty* for the slot, and is copied to a staging buffer. The copy never has only a part of a transaction's
//!   changes, because a transaction holds the latch until it ends.
//! * *Write*: the staged pages are written, outside the latch. If there are several image disks, a thread for each
//!   disk writes, and the sweep visits the partitions of all disks in turn. After the last page of a partition, the
//!   directory's section for this partition is written. The section has the hash index as it was at the latch's last
//!   release.
//! * *Trees*: the pages of trees that were dirty at the begin are written ([`crate::tree::live`]).
//! * *Mark*, *Await*: end marks are appended. The image counts after the epoch of the end marks is durable. Then every
//!   record in the image is durable too.
//! * *Anchor*, *Truncate*: the anchor names the image. The anchor drops unneeded chain links (records of closed lives).
//!   The log is cut after that.
//!
//! | module | one idea |
//! |---|---|
//! | `phase` | the states, and the table of their successors |
//! | `cut` | the additions for a consistent image |
//! | `naming` | the anchor names the image, and then the log is cut |
//! | `pin` | an image that is being copied is not overwritten |
//! | `pages` | copying pages from memory to the pages files |
//! | `lanes` | the order of the partitions of several image disks |
//! | `writer` | the writer of one image disk |
//! | `share` | a component's part in a checkpoint |
//! | `trees` | the share of the trees, whose pages are on disk |
//! | `progress` | a step's result, and statistics |
//! | `seeded` | seeded bugs that need code |
//!
//! The pages of partition p are on the image disk with number p modulo the number of disks. The image's directory,
//! which the anchor names, is on the data disk; it is completed after all pages are synced.
//!
//! A failed read or write of an image marks the staged pages dirty again and cancels the checkpoint. Nothing else has
//! to be undone, because the checkpoint epochs that pages already have remain correct. A failed sync of pages, or a
//! failed update of the anchor, stops the database, because the contents of the disk are unknown. The image counts even
//! if an old log segment or directory cannot be removed. [`Checkpointer::clear_away`] tries again later.
//!
//! # Source
//! *Differential Logging* (000), algorithm 2.
//!
//! # Deviations
//! The paper copies pages "asynchronously". Here the pages are copied to memory under the latch. If a live page changed
//! during its I/O, the image of the page would mix two states. No tag could distinguish these states. A page that is
//! allocated between the begin marks and the end marks carries tag `k` and is not swept. Image `k` has zeros in place
//! of this page, and a restart replays the page's records.

use std::sync::Arc;

use parking_lot::Mutex;
use perdura_base::flaw::{Flaw, armed};
use perdura_base::limits::PAGE_BYTES;
use perdura_base::num::to_u64;
use perdura_base::{CkptEpoch, Epoch, Gsn, ImageSlot, PageId, Pos, Result, Uuid};
use perdura_device::{AlignedBuf, Clock, Disk};
use perdura_heap::{Cut, Heap, MemoryUse};
use perdura_wal::Wal;

use crate::anchor_cell::AnchorCell;
use crate::cover::{Cover, Covering};
use crate::disks::Disks;
use crate::image::{Directory, DirectoryWriter, ImageFile, PageSummer, Places};
use crate::sweep_digest::SweepDigest;
use crate::tree::live::LiveTree;
use crate::window::{Beginning, Window};

mod cut;
mod lanes;
mod naming;
mod pages;
mod phase;
mod pin;
mod progress;
#[cfg(feature = "flaws")]
mod seeded;
mod share;
mod trees;
mod writer;

pub use pin::Pin;
pub use progress::{CheckpointProgress, CheckpointStats};

use lanes::Lanes;
pub(crate) use phase::Phase;
use phase::{Event, Stage};
pub(crate) use share::Share;
use writer::Writer;

/// The maximum number of pages that one step visits under a latch.
pub const VISIT_PAGES: u32 = 16;
/// The maximum number of bytes of a batch: the pages that one step copies.
const BATCH_BYTES: usize = 16 * PAGE_BYTES;

/// The sweep that is running.
pub(crate) struct Sweep {
    slot: ImageSlot,
    pub k: CkptEpoch,
    begin_us: u64,
    begin_ns: u64,
    /// The writers, one for each image disk.
    writers: Vec<Writer>,
    /// The order of the partitions.
    lanes: Lanes,
    /// The writer of the image's directory. `None`: the directory is complete.
    writer: Option<DirectoryWriter>,
    directory_crc: u32,
    covering: Covering,
    /// The lowest commit epoch of the begin marks. A cut has all earlier epochs, and nothing of this one.
    begin_epoch: Epoch,
    /// The cut: the image holds every page as it was at this instant. If a page changes before the sweep visits it,
    /// memory keeps the overwritten bytes for the image. `None`: the sweep is fuzzy.
    cut: Option<Cut>,
    /// For each tree that the checkpoint has finished, the start of the tree's redo. A restart redoes the operations
    /// with higher numbers.
    pub redo_starts: Vec<Gsn>,
    /// The digests of the partitions whose sections are already in the directory.
    digests: Vec<u64>,
    pages: u64,
    bytes: u64,
}

/// The state of the checkpointer.
enum Activity {
    Idle,
    Running { sweep: Box<Sweep>, phase: Phase },
}

impl Activity {
    fn stage(&self) -> Stage {
        match self {
            Activity::Idle => Stage::Idle,
            Activity::Running { phase, .. } => phase.stage(),
        }
    }
}

/// The result of a step: the event, the next phase, and the progress that the caller gets.
pub(crate) struct Taken {
    event: Event,
    next: Option<Phase>,
    progress: CheckpointProgress,
}

impl Taken {
    /// Returns the result of a step that wrote nothing to the image.
    fn worked(event: Event, next: Phase) -> Taken {
        Taken {
            event,
            next: Some(next),
            progress: CheckpointProgress::Working(0),
        }
    }
}

/// A complete image. It made old log segments and directories unneeded, and some of them may still exist.
struct Leftover {
    slot: ImageSlot,
    k: CkptEpoch,
    floor: Vec<Pos>,
}

/// A page in the staging buffer.
#[derive(Clone, Copy)]
struct Staged {
    local: u32,
    page: PageId,
}

/// The parts of a database that a checkpoint works on.
pub struct CheckpointParts {
    /// The components' shares, in the order of their phases.
    pub(crate) shares: [&'static dyn Share; 2],
    /// The pages in memory.
    pub heap: Arc<Heap>,
    /// The trees.
    pub trees: Vec<Arc<LiveTree>>,
    /// The log.
    pub wal: Arc<Wal>,
    /// The anchor.
    pub anchor: Arc<AnchorCell>,
    /// The disks.
    pub disks: Disks,
    /// The work of the transaction layer at the begin and the end of the window.
    pub window: Arc<dyn Window>,
    /// The clock, for reports only.
    pub clock: Arc<dyn Clock>,
    /// True if each of several image disks gets a thread that writes.
    pub threads: bool,
}

/// The checkpointer of a database.
pub struct Checkpointer {
    parts: CheckpointParts,
    places: Places,
    directories: [Directory; 2],
    activity: Activity,
    /// The bytes of the staged pages.
    staging: Arc<AlignedBuf>,
    /// Other staging buffers. The writers' threads still write from some of them.
    spare: Vec<Arc<AlignedBuf>>,
    staged: Vec<Staged>,
    sidecar: Vec<u8>,
    summer: PageSummer,
    stats: CheckpointStats,
    /// The newest complete image, while files that it made unneeded still have to be removed.
    leftover: Option<Leftover>,
    /// A copy of the statistics for callers that must not wait for a step's I/O.
    published: Arc<Mutex<CheckpointStats>>,
    /// The digest of the newest image, for the standing proof. `None`: the digest is not known.
    newest: Arc<Mutex<Option<Arc<SweepDigest>>>>,
    pins: pin::Pins,
}

impl Checkpointer {
    /// Makes a checkpointer from the parts and the directories of the two images on disk.
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
        let known = newest
            .newest_image()
            .filter(|slot| directories[slot.index()].pages() > 0);
        let known = known.and_then(|slot| {
            let directory = &directories[slot.index()];
            SweepDigest::of_image(newest.image(slot), directory, &newest.geometry)
        });
        Checkpointer {
            places: Places::of(&newest),
            parts,
            directories,
            activity: Activity::Idle,
            staging: Arc::new(AlignedBuf::with_room(0)),
            spare: Vec::new(),
            staged: Vec::new(),
            sidecar: Vec::new(),
            summer: PageSummer::new(),
            stats,
            leftover: None,
            published: Arc::new(Mutex::new(stats)),
            newest: Arc::new(Mutex::new(known.map(Arc::new))),
            pins: pin::Pins::default(),
        }
    }

    /// Returns the shared statistics. They are updated after every step, and reading them never waits for a step.
    #[must_use]
    pub fn published(&self) -> Arc<Mutex<CheckpointStats>> {
        Arc::clone(&self.published)
    }

    /// Returns a shared cell with the digest of the newest image. Each new image updates the cell. `None`: the digest
    /// is not known yet.
    #[must_use]
    pub fn newest_digest(&self) -> Arc<Mutex<Option<Arc<SweepDigest>>>> {
        Arc::clone(&self.newest)
    }

    fn publish(&self) {
        *self.published.lock() = CheckpointStats {
            running: self.is_running(),
            ..self.stats
        };
    }

    /// Returns whether a checkpoint is running.
    #[must_use]
    pub fn is_running(&self) -> bool {
        !matches!(self.activity, Activity::Idle)
    }

    /// Starts a checkpoint; nothing happens if one is running.
    ///
    /// # Errors
    /// After an error no checkpoint is running, and nothing is lost. The caller begins again later, for instance when
    /// the image that the checkpoint would overwrite is no longer [held](Pin). A failed update of the anchor has
    /// stopped the log, unless the update was refused for want of space.
    pub fn begin(&mut self) -> Result<()> {
        if self.is_running() {
            return Ok(());
        }
        let CheckpointParts {
            heap,
            wal,
            anchor,
            disks,
            window,
            clock,
            ..
        } = &self.parts;
        wal.check()?;
        let slot = self.next_slot();
        self.check_pin(slot)?;
        let record = anchor.get();
        let k = CkptEpoch(heap.ckpt_epoch().0 + 1);
        let writers = open_images(&disks.images, slot, &record.uuid)?;
        assert!(
            k > record.ckpt_max,
            "checkpoint {k} was begun before: the anchor knows {}",
            record.ckpt_max
        );
        let geometry = heap.geometry();
        let mut writer = DirectoryWriter::create(&disks.data, slot, k, &record.uuid, geometry)?;
        let begin_ns = clock.mono_ns();
        if !armed(Flaw::NoBuildingMark) {
            anchor.update_running(wal, |record| {
                record.image_mut(slot).mark_building(k);
            })?;
        }
        // The marks are appended to all streams before G is published, so every record tagged k lies behind them.
        let at = Beginning::new(heap, slot, k, !record.families.is_empty());
        let mut begin_epoch = None;
        let begun = window.begin(at, &mut || {
            wal.close_epoch(); // Under the latches of a cut, so a cut has whole epochs.
            let (marks, lowest) = wal.begin_checkpoint(k);
            begin_epoch = Some(lowest);
            heap.set_ckpt_epoch(k);
            marks
        });
        if begun.cut.is_some() {
            writer.mark_consistent();
        }
        let mut sweep = Sweep {
            slot,
            k,
            begin_us: clock.wall_us(),
            begin_ns,
            lanes: Lanes::new(geometry.partitions, writers.len()),
            writers,
            writer: Some(writer),
            directory_crc: 0,
            covering: Covering::Open { marks: begun.marks },
            begin_epoch: begin_epoch.expect("a window sets its begin marks"),
            cut: begun.cut,
            redo_starts: Vec::new(),
            digests: Vec::with_capacity(usize::from(geometry.partitions)),
            pages: 0,
            bytes: 0,
        };
        if self.parts.threads && sweep.writers.len() > 1 {
            sweep.writers.iter_mut().for_each(Writer::start_thread);
        }
        self.stats.partitions_done = 0;
        self.enter(Event::Begin, Box::new(sweep), Phase::Copy);
        self.publish();
        Ok(())
    }

    /// Makes `staging` a buffer from which no thread writes.
    fn make_staging(&mut self) {
        let is_free = |buffer: &Arc<AlignedBuf>| Arc::strong_count(buffer) == 1;
        if self.staging.room() > 0 && is_free(&self.staging) {
            return;
        }
        let next = match self.spare.iter().position(is_free) {
            Some(at) => self.spare.swap_remove(at),
            None => {
                let memory = self.parts.heap.memory();
                memory.add(MemoryUse::Staging, to_u64(BATCH_BYTES));
                Arc::new(AlignedBuf::with_room(BATCH_BYTES))
            }
        };
        let busy = std::mem::replace(&mut self.staging, next);
        if busy.room() > 0 {
            self.spare.push(busy);
        }
    }

    /// Takes one step.
    ///
    /// # Errors
    /// An error means that the checkpoint is cancelled. Nothing is lost, and the caller begins again later. A failed
    /// sync of pages, or a failed update of the anchor, has also stopped the log. One exception: if the anchor's update
    /// is refused for want of space, nothing is cancelled, and the next step tries again to name the image.
    pub fn step(&mut self) -> Result<CheckpointProgress> {
        let Activity::Running { mut sweep, phase } =
            std::mem::replace(&mut self.activity, Activity::Idle)
        else {
            return Ok(CheckpointProgress::Idle);
        };
        let from = phase.stage();
        let result = self.take(&mut sweep, phase);
        let (event, next) = match &result {
            Ok(taken) => (taken.event, taken.next),
            Err(_) if from == Stage::Anchor && self.parts.wal.failure().is_none() => {
                (Event::Refused, Some(phase))
            }
            Err(_) => (Event::Fail, None),
        };
        let to = from.advance(event);
        assert_eq!(
            to,
            next.map_or(Stage::Idle, Phase::stage),
            "after {event:?}"
        );
        match next {
            Some(phase) => self.activity = Activity::Running { sweep, phase },
            None if event == Event::Truncated => self.complete(*sweep),
            None => self.cancel(&mut sweep),
        }
        self.publish();
        result.map(|taken| taken.progress)
    }

    /// Moves an idle checkpointer to the first phase of a checkpoint.
    fn enter(&mut self, event: Event, sweep: Box<Sweep>, phase: Phase) {
        assert_eq!(self.activity.stage().advance(event), phase.stage());
        self.activity = Activity::Running { sweep, phase };
    }

    /// Gives up the running checkpoint, unless the anchor may name its image already. Returns whether a checkpoint was
    /// given up.
    pub fn abandon(&mut self) -> bool {
        if self.activity.stage().after(Event::Abandon).is_none() {
            return false;
        }
        if let Activity::Running { mut sweep, .. } =
            std::mem::replace(&mut self.activity, Activity::Idle)
        {
            self.cancel(&mut sweep);
        }
        self.publish();
        true
    }

    /// Takes one step of `phase`.
    fn take(&mut self, sweep: &mut Sweep, phase: Phase) -> Result<Taken> {
        if let Some(at) = phase.share() {
            return self.parts.shares[at].step(self, sweep, phase);
        }
        match phase {
            Phase::Mark => {
                let cover = self.end_window(sweep);
                sweep.covering = Covering::Closed(cover);
                Ok(Taken::worked(Event::Marked, Phase::Await))
            }
            Phase::Await => self.await_log(sweep),
            Phase::Anchor => {
                self.name_sweep(sweep)?;
                Ok(Taken::worked(Event::Named, Phase::Truncate))
            }
            Phase::Truncate => Ok(self.cut_log(sweep)),
            Phase::Copy
            | Phase::Write { .. }
            | Phase::SyncPages
            | Phase::Directory
            | Phase::Trees => unreachable!("a component's phase"),
        }
    }

    /// Ends the checkpoint's window and returns the cover. If a component needs log before the cover, the cover is
    /// extended back to the position that the component needs.
    fn end_window(&self, sweep: &Sweep) -> Cover {
        let parts = &self.parts;
        let needs = parts.shares.map(|share| share.needs(parts));
        let cover = parts
            .window
            .end(&parts.wal, sweep.k, sweep.covering.marks());
        needs.iter().fold(cover, |cover, from| cover.keeping(from))
    }

    /// Checks whether the cover is durable. If so, the next phase follows. If not, the checkpoint waits for the log.
    fn await_log(&self, sweep: &Sweep) -> Result<Taken> {
        self.parts.wal.check()?;
        if self.is_durable(sweep.covering.closed()) {
            return Ok(Taken::worked(Event::Durable, Phase::Anchor));
        }
        Ok(Taken {
            progress: CheckpointProgress::Waiting,
            ..Taken::worked(Event::NotDurable, Phase::Await)
        })
    }

    fn complete(&mut self, sweep: Sweep) {
        let clock = &self.parts.clock;
        let newest = self.parts.anchor.get().newest_image();
        assert!(sweep.lanes.has_ended(), "the sweep came to its end");
        assert_eq!(
            newest,
            Some(sweep.slot),
            "the anchor's newest image is the one that was completed"
        );
        self.stats.completed += 1;
        self.stats.last_k = sweep.k.0;
        self.stats.last_pages = sweep.pages;
        self.stats.last_bytes = sweep.bytes;
        self.stats.last_us = clock.mono_ns().saturating_sub(sweep.begin_ns) / 1000;
        self.stats.last_end_us = clock.wall_us().max(sweep.begin_us);
        let partitions = usize::from(self.parts.heap.geometry().partitions);
        assert_eq!(sweep.digests.len(), partitions, "each section has a digest");
        let image = self.parts.anchor.get().image(sweep.slot).cover.end_epoch;
        *self.newest.lock() = Some(Arc::new(SweepDigest {
            k: sweep.k,
            begin: sweep.begin_epoch,
            end: image,
            partitions: sweep.digests,
        }));
    }

    /// Cancels a sweep in every component.
    fn cancel(&mut self, sweep: &mut Sweep) {
        self.stats.cancelled += 1;
        if sweep.covering.is_open() {
            self.parts.window.cancel();
        }
        for share in self.parts.shares {
            share.cancel(self, sweep);
        }
    }

    /// Returns the trees.
    pub(crate) fn trees(&self) -> &[Arc<LiveTree>] {
        &self.parts.trees
    }
}

impl Drop for Checkpointer {
    fn drop(&mut self) {
        let buffers = self.spare.iter().chain([&self.staging]);
        let room: usize = buffers.map(|buffer| buffer.room()).sum();
        let memory = self.parts.heap.memory();
        memory.sub(MemoryUse::Staging, to_u64(room));
    }
}

/// Opens the pages files of an image, to overwrite it.
fn open_images(disks: &[Arc<dyn Disk>], slot: ImageSlot, uuid: &Uuid) -> Result<Vec<Writer>> {
    let numbered = disks.iter().zip(0u8..);
    let opened = numbered
        .map(|(disk, number)| ImageFile::open_to_rewrite(disk.as_ref(), slot, uuid, number));
    opened.map(|image| Ok(Writer::new(image?))).collect()
}
