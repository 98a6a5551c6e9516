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

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use perdura_base::flaw::{Flaw, armed};
use perdura_base::num::to_u64;
use perdura_base::{
    CkptEpoch, Epoch, Error, ImageSlot, Incarnation, PartitionId, Pos, Result, StreamId, TableId,
    Uuid,
};
use perdura_device::{Clock, Disk};
use perdura_store::{Geometry, Heap, MemoryAccount};
use perdura_wal::anchor::{Anchor, AnchorFile};
use perdura_wal::segment::LOG_DIR;
use perdura_wal::{
    ChainLink, Cut, ImageState, ImageStatus, StreamScan, WalStart, decide_cut, scan_stream,
};

use crate::anchor_cell::AnchorCell;
use crate::image::{Directory, ImageFile, folder};
use crate::load::{LoadedImage, load_image, run_threads};
use crate::method::Method;
use crate::replay::{ReplayStats, replay};
use crate::report::{Bytes, Progress, Records, RestartReport};

/// Tables by id, with whether each keeps its keys in order.
pub type Catalog = BTreeMap<TableId, bool>;

/// What a new database fixes for ever.
#[derive(Debug, Clone)]
pub struct NewDatabase {
    /// Its identity.
    pub uuid: Uuid,
    /// Partitions, chunk size, hash seed.
    pub geometry: Geometry,
    /// Number of log streams.
    pub streams: u8,
    /// Size of a log segment, bytes.
    pub segment_bytes: u64,
}

/// What a restart works with.
pub struct RestartOptions<'a> {
    /// The disk of anchor and images.
    pub data: Arc<dyn Disk>,
    /// The disk of each log stream.
    pub logs: Vec<Arc<dyn Disk>>,
    /// Time, for the report.
    pub clock: Arc<dyn Clock>,
    /// How many threads read and play.
    pub threads: usize,
    /// The method.
    pub method: &'static Method,
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
pub fn create(
    data: &Arc<dyn Disk>,
    logs: &[Arc<dyn Disk>],
    clock: &dyn Clock,
    new: &NewDatabase,
) -> Result<()> {
    for slot in ImageSlot::ALL {
        match ImageFile::open(data.as_ref(), slot, &new.uuid) {
            Ok(_) => {}
            Err(Error::Io { .. }) => ImageFile::create(data.as_ref(), slot, &new.uuid)?,
            // Left by a creation that did not get as far as the anchor: another uuid.
            Err(_) => {
                data.remove(&format!("{}/pages", folder(slot)))?;
                ImageFile::create(data.as_ref(), slot, &new.uuid)?;
            }
        }
    }
    for log in logs {
        log.make_dir(LOG_DIR)?;
    }
    let streams = new.streams;
    let anchor = Anchor {
        seq: 1,
        uuid: new.uuid,
        created_us: clock.wall_us(),
        chunk_pages: new.geometry.chunk_pages,
        partitions: new.geometry.partitions,
        hash_seed: new.geometry.hash_seed,
        segment_bytes: new.segment_bytes,
        streams,
        clean: true,
        incarnation: Incarnation(0),
        epoch_floor: Epoch(0),
        ckpt_max: CkptEpoch(0),
        images: [ImageStatus::empty(streams), ImageStatus::empty(streams)],
        chain: Vec::new(),
    };
    AnchorFile::create(data.as_ref(), &anchor).map(drop)
}

/// Brings a database back. `Ok(None)` if there is none on these disks.
///
/// # Errors
/// [`Error::Corrupt`] if anything acknowledged is missing or damaged beyond repair: then nothing
/// was changed.
pub fn restart(options: &RestartOptions<'_>) -> Result<Option<Restarted>> {
    let clock = options.clock.as_ref();
    let progress = options.progress.as_ref();
    let begin = clock.mono_ns();
    progress.start(begin);
    let Some((file, anchor, notes)) = AnchorFile::open(options.data.as_ref())? else {
        return Ok(None);
    };
    if usize::from(anchor.streams) != options.logs.len() {
        return Err(Error::Usage(format!(
            "the database has {} log stream(s), {} log director(ies) were given",
            anchor.streams,
            options.logs.len()
        )));
    }
    let geometry = Geometry {
        partitions: anchor.partitions,
        chunk_pages: anchor.chunk_pages,
        hash_seed: anchor.hash_seed,
    };
    let heap = Arc::new(Heap::new(geometry, Arc::clone(&options.memory)));
    let mut report = RestartReport {
        method: options.method.name,
        level: 2,
        threads: options.threads,
        clean: anchor.clean,
        created: anchor.incarnation == Incarnation(0),
        notes,
        ..RestartReport::default()
    };
    let seconds = |since| seconds_since(clock, since);

    progress.enter(1);
    let Sources { image, mut scans } = read_sources(options, &heap, &anchor, &mut report)?;

    progress.enter(2);
    let since = clock.mono_ns();
    let cut = decide_cut(&anchor, &scans)?;
    check_image(&anchor, &image, &cut)?;
    for scan in &mut scans {
        let blocks = scan.blocks.len();
        scan.cut_at(cut.cut[usize::from(scan.stream.0)]);
        report.void_blocks += to_u64(blocks - scan.blocks.len());
        report.notes.append(&mut scan.notes);
        let log_bytes = scan.blocks.iter().map(|b| u64::from(b.body_len)).sum();
        progress.add_total(log_bytes);
    }
    report.seconds.log_read += seconds(since);

    progress.enter(3);
    let since = clock.mono_ns();
    let (method, threads) = (options.method, options.threads);
    let stats = replay(
        &heap,
        &scans,
        &image,
        method,
        cut.durable,
        threads,
        progress,
    )?;
    check_useq(&heap)?;
    report.seconds.log_play = seconds(since);

    progress.enter(4);
    let since = clock.mono_ns();
    heap.set_ckpt_epoch(next_ckpt_base(&anchor, &image, &cut));
    let catalog = build_indexes(options, &heap, &image, &mut report)?;
    report.seconds.index = seconds(since);

    let mut record = anchor.clone();
    close_incarnation(&mut record, &cut, &image.damaged);
    let anchor_cell = if options.dry_run {
        None
    } else {
        let cell = AnchorCell::new(file, anchor);
        cell.update(|durable| {
            let seq = durable.seq;
            durable.clone_from(&record);
            durable.seq = seq;
        })?;
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
    fill_report(&mut report, &image, &cut, &stats, &record);
    let mut directories = [
        Directory::empty(record.partitions),
        Directory::empty(record.partitions),
    ];
    if let Some(slot) = image.trusted_slot() {
        directories[slot.index()] = image.directory;
    }
    report.notes.extend(image.notes);
    report.seconds.total = seconds(begin);
    progress.enter(5);
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

/// Epochs seen anywhere, void ones included, are never used again.
fn first_epoch(cut: &Cut) -> Epoch {
    if armed(Flaw::EpochReused) {
        return Epoch(cut.durable.0 + 1);
    }
    Epoch(cut.epoch_max.max(cut.durable).0 + 1)
}

/// `G` after the restart: the next checkpoint's number is one more, and unused.
fn next_ckpt_base(anchor: &Anchor, image: &LoadedImage, cut: &Cut) -> CkptEpoch {
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

/// The two things a restart reads.
struct Sources {
    image: LoadedImage,
    scans: Vec<StreamScan>,
}

/// Loads the image and scans the log, beside each other if there is more than one thread: both
/// mostly wait for a disk.
fn read_sources(
    options: &RestartOptions<'_>,
    heap: &Heap,
    anchor: &Anchor,
    report: &mut RestartReport,
) -> Result<Sources> {
    let clock = options.clock.as_ref();
    let begin = match anchor.newest_image() {
        Some(slot) => anchor.image(slot).begin.clone(),
        None => vec![Pos(0); usize::from(anchor.streams)],
    };
    let load = || {
        let since = clock.mono_ns();
        let image = load_image(
            heap,
            &options.data,
            anchor,
            options.threads,
            &options.progress,
        );
        (image, seconds_since(clock, since))
    };
    let scan = || {
        let since = clock.mono_ns();
        (
            scan_all(options, anchor, &begin),
            seconds_since(clock, since),
        )
    };
    let ((image, image_seconds), (scans, scan_seconds)) = if options.threads > 1 {
        std::thread::scope(|scope| {
            let scanning = scope.spawn(scan);
            let loaded = load();
            let scanned = scanning.join();
            (
                loaded,
                scanned.unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            )
        })
    } else {
        (load(), scan())
    };
    report.seconds.backup_read = image_seconds;
    report.seconds.log_read = scan_seconds;
    let image = image?;
    // An older image, or a page of one, needs the log from further back.
    let scans = if image.begin == begin {
        scans?
    } else {
        scan_all(options, anchor, &image.begin)?
    };
    Ok(Sources { image, scans })
}

fn seconds_since(clock: &dyn Clock, since_ns: u64) -> f64 {
    let ns = clock.mono_ns().saturating_sub(since_ns);
    std::time::Duration::from_nanos(ns).as_secs_f64()
}

fn scan_all(
    options: &RestartOptions<'_>,
    anchor: &Anchor,
    begin: &[Pos],
) -> Result<Vec<StreamScan>> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    run_threads(options.threads.min(options.logs.len()), || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(disk) = options.logs.get(at) else {
                return Ok(());
            };
            let stream = StreamId(u8::try_from(at).expect("at most 16 streams"));
            let scan = scan_stream(disk.as_ref(), anchor, stream, begin[at])?;
            done.lock().push(scan);
        }
    })?;
    let mut scans = done.into_inner();
    scans.sort_by_key(|scan| scan.stream);
    Ok(scans)
}

/// An image counted only once its records were durable; a log that ends before that has lost them.
fn check_image(anchor: &Anchor, image: &LoadedImage, cut: &Cut) -> Result<()> {
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

fn check_useq(heap: &Heap) -> Result<()> {
    for id in (0..heap.geometry().partitions).map(PartitionId) {
        if let Some(gap) = heap.lock(id).useq_gaps().into_iter().next() {
            return Err(Error::corrupt(
                format!("page {}", gap.page),
                0,
                format!("every update after number {} once", gap.image_useq.0),
                format!("{gap:?}"),
                "The log lost or repeated a record of this page. Restore a backup.",
            ));
        }
    }
    Ok(())
}

fn build_indexes(
    options: &RestartOptions<'_>,
    heap: &Heap,
    image: &LoadedImage,
    report: &mut RestartReport,
) -> Result<Catalog> {
    let partitions = heap.geometry().partitions;
    for id in (0..partitions).map(PartitionId) {
        let mut part = heap.lock(id);
        part.finish_restart(image.k, image.trusted_slot());
        part.build_catalog_index()?;
    }
    let catalog = (options.catalog)(heap)?;
    let next = AtomicU64::new(0);
    let rows = AtomicU64::new(0);
    let from_sidecar = AtomicU64::new(0);
    run_threads(options.threads, || {
        loop {
            let taken = next.fetch_add(1, Ordering::Relaxed);
            let Some(id) = u16::try_from(taken).ok().filter(|id| *id < partitions) else {
                return Ok(());
            };
            let sidecar = &image.sidecars[usize::from(id)];
            let sidecar = (!sidecar.is_empty()).then_some(sidecar.as_slice());
            let ordered = |table: TableId| catalog.get(&table).copied();
            let stats = heap
                .lock(PartitionId(id))
                .build_indexes(&ordered, sidecar)?;
            rows.fetch_add(stats.rows, Ordering::Relaxed);
            from_sidecar.fetch_add(stats.from_sidecar, Ordering::Relaxed);
        }
    })?;
    report.rows = rows.into_inner();
    report.rows_from_sidecar = from_sidecar.into_inner();
    Ok(catalog)
}

/// Ends the incarnation that crashed and begins the next: in the anchor, before any work.
fn close_incarnation(record: &mut Anchor, cut: &Cut, damaged: &[ImageSlot]) {
    for slot in damaged {
        record.image_mut(*slot).state = ImageState::Empty;
    }
    let start = record.open_start();
    if start != cut.cut {
        record.chain.push(ChainLink {
            incarnation: record.incarnation,
            durable: cut.durable,
            start,
            cut: cut.cut.clone(),
        });
    }
    record.incarnation = Incarnation(record.incarnation.0 + 1);
    record.epoch_floor = cut.epoch_max.max(cut.durable);
    record.ckpt_max = cut.ckpt_max;
    record.clean = false;
}

fn fill_report(
    report: &mut RestartReport,
    image: &LoadedImage,
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
    };
    report.bytes = Bytes {
        log: stats.bytes,
        backup: image.bytes,
    };
    report.pages_fetched = image.pages;
    report.pages_rebuilt = to_u64(image.rebuilt.len());
}
