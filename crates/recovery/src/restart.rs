//! The phases of a restart, in order. Nothing durable is written before all of them are done, so a
//! crash during a restart changes nothing and the restart is simply taken again.
//!
//! # Source
//! *Differential Logging* (000), algorithm 3, in its order-free form: the image is loaded, the
//! durable epoch decided from block headers, every record of every stream held against the rule.
//!
//! # Deviations
//! The paper ends where the state is right. A restart must also make sure of the next one: all
//! pages are dirty for the other image, whose slot may hold half a checkpoint; pages that the log
//! touched are dirty for this one; epochs and incarnation numbers seen anywhere are never used
//! again; what lies beyond the cut is void for ever, in the anchor, before new work is accepted.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use perdura_base::flaw::{Flaw, armed};
use perdura_base::num::to_u64;
use perdura_base::{CkptEpoch, Epoch, Error, ImageSlot, Incarnation, PartitionId, Result, Uuid};
use perdura_device::{Clock, Disk};
use perdura_heap::{Geometry, Heap, MemoryAccount};
use perdura_wal::anchor::AnchorFile;
use perdura_wal::scheme::Scheme;
use perdura_wal::segment::LOG_DIR;
use perdura_wal::{ChainLink, Cut, History, SegmentSizes, StreamScan, Vouched, WalStart};

use crate::anchor::Anchor;
use crate::anchor_cell::AnchorCell;
use crate::component::{Component, Contract};
use crate::found::find;
use crate::given::check_given;
use crate::image::{Directory, create_images, folder};
use crate::images::IMAGE_DISKS_MAX;
use crate::level::{Busy, Schedule};
use crate::load::{BadPage, ImagePlan, plan_image};
use crate::method::Method;
use crate::replay::{Attempt, Decided, Replay, ReplayParts, ReplayStats};
use crate::report::{Bytes, Progress, Records, RestartReport};
use crate::schedule::{self, run_threads};

pub use crate::tables::Catalog;

/// What a new database fixes for ever.
#[derive(Debug, Clone)]
pub struct NewDatabase {
    /// Its identity.
    pub uuid: Uuid,
    /// Partitions, chunk size, hash seed.
    pub geometry: Geometry,
    /// Number of log streams.
    pub streams: u8,
    /// Sizes of the log's segments.
    pub segments: SegmentSizes,
    /// What its log's records are.
    pub scheme: Scheme,
}

/// What a restart works with.
pub struct RestartOptions<'a> {
    /// The disk of the anchor and the images' directories.
    pub data: Arc<dyn Disk>,
    /// The disks of the images' pages: partition p's are on disk `p % images.len()`.
    pub images: Vec<Arc<dyn Disk>>,
    /// The disk of each log stream.
    pub logs: Vec<Arc<dyn Disk>>,
    /// Time, for the report.
    pub clock: Arc<dyn Clock>,
    /// Level, threads, memory.
    pub schedule: Schedule,
    /// The method.
    pub method: &'a Method,
    /// Leave the data as it is.
    pub dry_run: bool,
    /// The account that the heap is on.
    pub memory: Arc<MemoryAccount>,
    /// Reads the catalog from a heap whose table 0 is indexed.
    pub catalog: &'a (dyn Fn(&Heap) -> Result<Catalog> + Sync),
    /// Where to say how far it is.
    pub progress: Arc<Progress>,
}

/// A database that is back.
pub struct Restarted {
    /// The pages, indexed.
    pub heap: Arc<Heap>,
    /// The anchor, updated; `None` after a dry run.
    pub anchor: Option<AnchorCell>,
    /// The anchor's record as it is now, or would be.
    pub record: Anchor,
    /// What the images list.
    pub directories: [Directory; 2],
    /// Where the log goes on.
    pub wal_start: WalStart,
    /// The tables.
    pub catalog: Catalog,
    /// What happened.
    pub report: RestartReport,
}

/// Makes the files of a new database. The anchor comes last: without it there is no database.
///
/// # Errors
/// The disks'.
pub fn create(
    data: &Arc<dyn Disk>,
    images: &[Arc<dyn Disk>],
    logs: &[Arc<dyn Disk>],
    clock: &dyn Clock,
    new: &NewDatabase,
) -> Result<()> {
    let image_disks = u8::try_from(images.len()).ok();
    let image_disks = image_disks
        .filter(|disks| (1..=IMAGE_DISKS_MAX).contains(disks))
        .ok_or_else(|| Error::Usage(format!("{} disks for images", images.len())))?;
    create_images(data.as_ref(), images, &new.uuid)?;
    for log in logs {
        log.make_dir(LOG_DIR)?;
    }
    let meaning = (new.scheme, new.streams);
    let history = History::begin(new.uuid, clock.wall_us(), meaning, new.segments);
    let anchor = Anchor::new(history, new.geometry, image_disks);
    AnchorFile::create(data.as_ref(), &anchor.to_record()).map(drop)
}

/// Brings a database back. `Ok(None)` if there is none on these disks.
///
/// # Errors
/// [`Error::Corrupt`] if anything acknowledged is missing or damaged beyond repair;
/// [`Error::Stopped`] if log or anchor cannot be written at its end, after which it is simply taken
/// again; [`Error::Usage`] if the method or level is not for this log: then nothing was changed.
pub fn restart(options: &RestartOptions<'_>) -> Result<Option<Restarted>> {
    let clock = options.clock.as_ref();
    let progress = options.progress.as_ref();
    let begin = clock.mono_ns();
    progress.start(begin);
    let Some((file, anchor, notes)) = find(options.data.as_ref(), &options.logs)? else {
        return Ok(None);
    };
    check_given(options, &anchor)?;
    let mut report = RestartReport {
        method: options.method.name,
        scheme: anchor.scheme.name(),
        level: options.schedule.level.number(),
        threads: options.schedule.threads,
        clean: anchor.clean,
        vouched_epoch: anchor.vouched.epoch.0,
        vouched_us: anchor.vouched.wall_us,
        created: anchor.incarnation == Incarnation(0),
        notes,
        ..RestartReport::default()
    };

    progress.enter(1);
    let Loaded {
        heap,
        image,
        attempt,
        busy,
    } = load(options, &anchor, Tolerance::None)?;
    let Decided {
        mut scans,
        cut,
        void_blocks,
        ..
    } = attempt.decided;
    for scan in &mut scans {
        report.notes.append(&mut scan.notes);
    }
    report.void_blocks = void_blocks;
    report.seconds.backup_read = busy.backup_read;
    report.seconds.backup_play = busy.backup_play;
    report.seconds.log_read = busy.log_read;
    report.seconds.log_play = busy.log_play;
    report.seconds.backup_span = busy.backup_span;
    report.seconds.log_span = busy.log_span + attempt.undo_seconds;
    report.seconds.undo = attempt.undo_seconds;

    progress.enter(2);
    let since = clock.mono_ns();
    heap.set_ckpt_epoch(next_ckpt_base(&anchor, &image, &cut));
    let catalog = finish_pages(options, anchor.scheme, &heap, &image, &mut report)?;
    report.seconds.index = seconds_since(clock, since);

    let mut record = anchor.clone();
    close_incarnation(&mut record, &cut, &image.damaged)?;
    let anchor_cell = if options.dry_run {
        None
    } else {
        make_durable(options, &anchor, &scans)?;
        let cell = AnchorCell::new(file, anchor);
        let updated = cell.update(|durable| {
            let seq = durable.seq;
            durable.clone_from(&record);
            durable.seq = seq;
        });
        updated.map_err(|failure| Error::from(failure).stopping("anchor"))?;
        Some(cell)
    };
    let wal_start = WalStart {
        uuid: record.uuid,
        incarnation: record.incarnation,
        start: cut.cut.clone(),
        epoch: first_epoch(&cut),
        durable: cut.durable,
        wall_us: cut.wall_us,
    };
    fill_report(&mut report, &image, &cut, &attempt.stats, &record);
    let mut directories = [
        Directory::empty(record.geometry.partitions),
        Directory::empty(record.geometry.partitions),
    ];
    if let Some(slot) = image.trusted_slot() {
        directories[slot.index()] = image.directory;
    }
    report.notes.extend(image.notes);
    report.seconds.total = seconds_since(clock, begin);
    progress.enter(3);
    Ok(Some(Restarted {
        heap,
        anchor: anchor_cell,
        record,
        directories,
        wal_start,
        catalog,
        report,
    }))
}

/// What this restart believed is on the disks before the anchor says so: a dead process may have
/// written blocks, and given files their names, without having synced either.
fn make_durable(options: &RestartOptions<'_>, anchor: &Anchor, scans: &[StreamScan]) -> Result<()> {
    for scan in scans {
        let disk = options.logs[usize::from(scan.stream.0)].as_ref();
        scan.write_again(disk, anchor)?;
    }
    for slot in ImageSlot::ALL {
        for disk in &options.images {
            disk.sync_dir(folder(slot))?;
        }
        options.data.sync_dir(folder(slot))?;
    }
    options.data.sync_dir("")
}

/// What a restart does about pages that no image has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tolerance {
    /// It fails.
    None,
    /// It leaves them empty, skips their records, and lists them.
    LostPages,
}

/// Pages in memory, as the log leaves them.
pub(crate) struct Loaded {
    pub heap: Arc<Heap>,
    pub image: ImagePlan,
    pub attempt: Attempt,
    pub busy: Busy,
}

/// Loads the image and plays the log. If pages of the image turn out to be damaged it begins anew,
/// with those taken from the older image.
pub(crate) fn load(
    options: &RestartOptions<'_>,
    anchor: &Anchor,
    tolerance: Tolerance,
) -> Result<Loaded> {
    let geometry = anchor.geometry;
    let (mut bad, mut lost) = (BTreeSet::<BadPage>::new(), BTreeSet::new());
    loop {
        let heap = Arc::new(Heap::new(geometry, Arc::clone(&options.memory)));
        let (data, images) = (options.data.as_ref(), &options.images);
        let image = match plan_image(&heap, data, images, anchor, &bad, &lost) {
            Err(_) if tolerance == Tolerance::LostPages && !bad.is_empty() => {
                lost.extend(std::mem::take(&mut bad).into_iter().map(|(_, page)| page));
                continue;
            }
            planned => planned?,
        };
        options
            .progress
            .add_total(image.pages * to_u64(perdura_base::limits::PAGE_BYTES));
        let check = |cut: &Cut| check_image(anchor, &image, cut);
        let replay = Replay::new(ReplayParts {
            heap: &heap,
            image: &image,
            method: options.method,
            anchor,
            logs: &options.logs,
            clock: options.clock.as_ref(),
            progress: &options.progress,
            check: &check,
        });
        let busy = schedule::run(&replay, &options.schedule, options.clock.as_ref())?;
        let attempt = replay.finish(options.schedule.threads)?;
        if attempt.bad.is_empty() {
            if anchor.scheme.counts_updates() {
                heap.check_replayed()?;
            }
            return Ok(Loaded {
                heap,
                image,
                attempt,
                busy,
            });
        }
        // What stood in for damaged pages is damaged too: a third image there is not.
        let stood_in = attempt
            .bad
            .iter()
            .filter(|(slot, _)| Some(*slot) != image.slot);
        let hopeless: BTreeSet<_> = stood_in.map(|(_, page)| *page).collect();
        lost.extend(&hopeless);
        if !hopeless.is_empty() && tolerance == Tolerance::None {
            let why = "the same page of the other image is damaged too";
            return Err(image.give_up(&hopeless, why));
        }
        bad.extend(attempt.bad);
    }
}

/// Epochs seen anywhere, void ones included, are never used again.
pub(crate) fn first_epoch(cut: &Cut) -> Epoch {
    if armed(Flaw::EpochReused) {
        return Epoch(cut.durable.0 + 1);
    }
    Epoch(cut.epoch_max.max(cut.durable).0 + 1)
}

/// `G` after the restart: the next checkpoint's number is one more, and unused.
pub(crate) fn next_ckpt_base(anchor: &Anchor, image: &ImagePlan, cut: &Cut) -> CkptEpoch {
    if armed(Flaw::CkptEpochReused) {
        return image.k;
    }
    let building = anchor
        .images
        .iter()
        .map(|image| image.k)
        .max()
        .unwrap_or_default();
    cut.ckpt_max.max(building).max(image.k)
}

fn seconds_since(clock: &dyn Clock, since_ns: u64) -> f64 {
    let ns = clock.mono_ns().saturating_sub(since_ns);
    std::time::Duration::from_nanos(ns).as_secs_f64()
}

/// An image counted only once its records were durable; a log that ends before that has lost them.
fn check_image(anchor: &Anchor, image: &ImagePlan, cut: &Cut) -> Result<()> {
    let Some(slot) = image.slot else {
        return Ok(());
    };
    let needs = anchor.image(slot).end_epoch;
    if cut.durable >= needs || armed(Flaw::AnchorBeforeLog) || armed(Flaw::OneStreamSuffices) {
        return Ok(());
    }
    Err(Error::corrupt(
        "log",
        0,
        format!("the log up to epoch {needs}, which image {slot} rests on"),
        format!("nothing valid beyond epoch {}", cut.durable),
        "Acknowledged transactions are missing. Restore the log's files from a backup.",
    ))
}

/// Ends the replay in every partition and builds the indexes of a scheme that has tables.
pub(crate) fn finish_pages(
    options: &RestartOptions<'_>,
    scheme: Scheme,
    heap: &Arc<Heap>,
    image: &ImagePlan,
    report: &mut RestartReport,
) -> Result<Catalog> {
    let component = Component::Heap(Arc::clone(heap));
    let partitions = component.geometry().partitions;
    let has_tables = scheme.has_tables();
    for id in (0..partitions).map(PartitionId) {
        component.end_replay(id, image.k, image.trusted_slot());
        if has_tables {
            component.index_catalog(id)?;
        }
    }
    if !has_tables {
        return Ok(Catalog::new());
    }
    let catalog = (options.catalog)(heap)?;
    let next = AtomicU64::new(0);
    let rows = AtomicU64::new(0);
    let from_sidecar = AtomicU64::new(0);
    run_threads(options.schedule.threads, || {
        loop {
            let taken = next.fetch_add(1, Ordering::Relaxed);
            let Some(id) = u16::try_from(taken).ok().filter(|id| *id < partitions) else {
                return Ok(());
            };
            let sidecar = &image.sidecars[usize::from(id)];
            let sidecar = (!sidecar.is_empty()).then_some(sidecar.as_slice());
            let stats = component.index(PartitionId(id), &catalog, sidecar)?;
            rows.fetch_add(stats.rows, Ordering::Relaxed);
            from_sidecar.fetch_add(stats.from_sidecar, Ordering::Relaxed);
        }
    })?;
    component.settle()?;
    report.rows = rows.into_inner();
    report.rows_from_sidecar = from_sidecar.into_inner();
    Ok(catalog)
}

/// Ends the incarnation that crashed and begins the next: in the anchor, before any work.
///
/// # Errors
/// [`Error::LogFull`] if so many incarnations ended without a checkpoint that the anchor cannot name
/// another.
fn close_incarnation(record: &mut Anchor, cut: &Cut, damaged: &[ImageSlot]) -> Result<()> {
    for slot in damaged {
        record.image_mut(*slot).discard();
    }
    let incarnation = record.incarnation;
    let start = record.open_start();
    if start != cut.cut {
        let max = record.chain_max();
        if record.chain.len() >= max {
            return Err(Error::LogFull(format!(
                "the anchor names {max} lives that no checkpoint has left behind, and has no \
                 room for another. Nothing is lost; keep a copy of the directory and report it"
            )));
        }
        record.chain.push(ChainLink {
            incarnation,
            durable: cut.durable,
            start,
            cut: cut.cut.clone(),
        });
    }
    record.incarnation = Incarnation(incarnation.0 + 1);
    record.epoch_floor = cut.epoch_max.max(cut.durable);
    record.ckpt_max = cut.ckpt_max;
    record.vouched = Vouched {
        epoch: cut.durable,
        wall_us: cut.wall_us,
        ends: cut.cut.clone(),
    };
    record.clean = false;
    Ok(())
}

fn fill_report(
    report: &mut RestartReport,
    image: &ImagePlan,
    cut: &Cut,
    stats: &ReplayStats,
    record: &Anchor,
) {
    report.image = image.slot.map_or("none".into(), |slot| slot.to_string());
    report.checkpoint = image.k.0;
    report.durable_epoch = cut.durable.0;
    report.cut = cut.cut.iter().map(|pos| pos.0).collect();
    report.transactions = stats.groups;
    report.incarnation = record.incarnation.0;
    report.records = Records {
        seen: stats.seen,
        applied: stats.applied,
        skipped: stats.skipped.clone(),
        undone: stats.undone,
    };
    report.bytes = Bytes {
        log: stats.bytes,
        backup: image.bytes,
    };
    report.pages_fetched = image.pages;
    report.pages_rebuilt = to_u64(image.rebuilt.len());
}
