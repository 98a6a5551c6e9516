//! The log as a whole. This module defines the log's parts and statistics, and opens, stops and truncates the log.
//! Module `append` appends frames, and `epochs` decides when they are durable.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

use crossbeam_utils::CachePadded;
use perdura_base::flaw::{Flaw, armed};
use perdura_base::limits::IN_FLIGHT_BYTES_MAX;
use perdura_base::num::to_u64;
use perdura_base::{Epoch, Error, Gsn, Incarnation, Pos, Result, StreamId, Uuid};
use perdura_device::{Clock, Disk, DurableQueue};

use crate::age::Ages;
use crate::anchor::Vouched;
use crate::ends::{Closing, Ends};
use crate::flusher::{FlushState, Segment};
use crate::lane::Lanes;
use crate::lineage::Lineage;
use crate::mirror::TailOptions;
use crate::rung::{DurableEpochs, PerRung, Rung};
use crate::segment::SegmentId;
use crate::shelf::{SegmentShelf, StreamLife};
use crate::sizes::SegmentSizes;
use crate::stream::StreamInner;
use crate::sync::{AtomicU64, Mutex, Ordering, RwLock};
use crate::tail::Ship;
use crate::trouble::Troubles;

/// Settings of a log. All but `segments` may differ from one life to the next.
#[derive(Debug, Clone)]
pub struct WalOptions {
    /// The sizes of the segments. They were fixed when the log was created; the caller copies them from the anchor.
    pub segments: SegmentSizes,
    /// The maximum size of a block, in bytes.
    pub block_bytes_max: usize,
    /// The number of lanes of each stream, at most [`LANES_MAX`](crate::LANES_MAX); see module `lane`. With 1, groups enter
    /// the blocks directly.
    pub lanes: usize,
    /// The number of bytes that may wait for a stream's flusher. If more wait, appends are refused. With a mirror,
    /// bytes in the tail are not counted.
    pub queue_bytes_max: u64,
    /// The limit of the tail (sealed blocks that wait for the disk), if the log has a mirror; `None` without a mirror.
    pub mirror: Option<TailOptions>,
}

impl Default for WalOptions {
    fn default() -> Self {
        WalOptions {
            segments: SegmentSizes::fixed(64 << 20),
            block_bytes_max: 256 << 10,
            lanes: 1,
            queue_bytes_max: 8 << 20,
            mirror: None,
        }
    }
}

/// The start of a new incarnation, as the restart has decided it.
#[derive(Debug, Clone)]
pub struct WalStart {
    /// The uuid of the database.
    pub uuid: Uuid,
    /// The new incarnation.
    pub incarnation: Incarnation,
    /// The new incarnation's start in each stream.
    pub start: Vec<Pos>,
    /// The first commit epoch that the new incarnation uses.
    pub epoch: Epoch,
    /// The durable epoch that the restart kept.
    pub durable: Epoch,
    /// The latest wall clock in any block.
    pub wall_us: u64,
    /// The highest operation number in any block, including void blocks.
    pub gsn: Gsn,
    /// The new incarnation and the ones before it, by their random numbers.
    pub lives: Lineage,
}

/// The value of `unextended_at` if the last attempt to create a file did not fail.
const NOWHERE: u64 = u64::MAX;

/// A function that wakes the preparer of segments.
type WakePreparer = Box<dyn Fn() + Send + Sync>;

pub(crate) struct Stream {
    pub inner: Mutex<StreamInner>,
    /// The groups that have not entered the blocks of `inner`.
    pub lanes: Lanes,
    pub flush: Mutex<FlushState>,
    /// The queue that makes the stream's writes durable.
    pub queue: Box<dyn DurableQueue>,
    /// Held by the thread that collects completed writes, also while it waits for them.
    pub collecting: Mutex<()>,
    /// Held for reading by each thread that executes a write itself, also while it waits for the device.
    pub in_place: RwLock<()>,
    /// Held by the thread that places the next segment. The value is a segment that has its name but is not completely
    /// placed.
    pub placing: Mutex<Option<Segment>>,
    /// The number of writes in flight.
    pub in_flight: AtomicU64,
    pub shelf: Mutex<SegmentShelf>,
    /// The position below which the stream is durable on a rung, for each rung.
    pub reached: PerRung<AtomicU64>,
    /// The end of the last filled block.
    pub filled_end: AtomicU64,
    /// The end of the last sealed block.
    pub sealed_end: AtomicU64,
    /// The end of the segment files, prepared or placed.
    pub room_end: AtomicU64,
    /// The highest position up to which writers have requested segment files.
    pub wanted_end: AtomicU64,
    /// The `room_end` at the last attempt to create a file, if that attempt failed.
    pub unextended_at: AtomicU64,
    /// Held by the thread that prepares a file, during its I/O.
    pub preparing: Mutex<()>,
}

impl Stream {
    /// Returns a stream that begins at `from` and is empty.
    fn new(
        from: Pos,
        options: &WalOptions,
        flush: FlushState,
        queue: Box<dyn DurableQueue>,
        shelf: SegmentShelf,
    ) -> Stream {
        let room_end = shelf.next_span().start.0;
        let block_bytes_max = options.block_bytes_max;
        let inner = StreamInner::new(from, options.segments, block_bytes_max);
        Stream {
            inner: Mutex::new(inner),
            lanes: Lanes::new(options.lanes, block_bytes_max),
            flush: Mutex::new(flush),
            queue,
            collecting: Mutex::new(()),
            in_place: RwLock::new(()),
            placing: Mutex::new(None),
            in_flight: AtomicU64::new(0),
            shelf: Mutex::new(shelf),
            reached: PerRung::new(|_| AtomicU64::new(from.0)),
            filled_end: AtomicU64::new(from.0),
            sealed_end: AtomicU64::new(from.0),
            room_end: AtomicU64::new(room_end),
            wanted_end: AtomicU64::new(0),
            unextended_at: AtomicU64::new(NOWHERE),
            preparing: Mutex::new(()),
        }
    }

    /// Publishes the end of the filled blocks. The caller holds the lock of `inner`.
    pub fn note_filled(&self, inner: &StreamInner) {
        if let Some(end) = inner.filled_end() {
            self.filled_end.store(end.0, Ordering::Relaxed);
        }
    }

    /// Returns the number of bytes in filled blocks that are not synced on disk.
    pub fn unsynced_bytes(&self) -> u64 {
        let synced = self.reached[Rung::Disk].load(Ordering::Relaxed);
        let filled_end = self.filled_end.load(Ordering::Relaxed);
        filled_end.saturating_sub(synced)
    }

    /// Returns the number of bytes in sealed blocks that are not synced on disk.
    fn tail_bytes(&self) -> u64 {
        let synced = self.reached[Rung::Disk].load(Ordering::Relaxed);
        let sealed_end = self.sealed_end.load(Ordering::Relaxed);
        sealed_end.saturating_sub(synced)
    }
}

/// Figures for INFO and for benchmarks.
#[derive(Debug, Clone, Copy, Default)]
pub struct WalStats {
    /// The number of bytes in the appended frames, payloads included. The padding of blocks is not counted.
    pub log_bytes: u64,
    /// Bytes of blocks written.
    pub device_bytes: u64,
    /// Blocks written.
    pub blocks: u64,
    /// Durable writes that have completed.
    pub syncs: u64,
    /// Bytes that wait for the flushers.
    pub queued_bytes: u64,
    /// Bytes of sealed blocks that are not synced on disk.
    pub tail_bytes: u64,
    /// The size of all segment files together, in bytes.
    pub file_bytes: u64,
}

#[derive(Default)]
pub(crate) struct Counters {
    pub device_bytes: AtomicU64,
    pub blocks: AtomicU64,
    pub syncs: AtomicU64,
}

/// Why the log has stopped.
enum Stop {
    /// After a failure: the disks' contents are unknown.
    Failed(String),
    /// Another process owns the log.
    Fenced(String),
    /// Files of the database are gone.
    Displaced(String),
}

/// The log: several streams with common commit epochs.
pub struct Wal {
    pub(crate) uuid: Uuid,
    pub(crate) incarnation: Incarnation,
    /// The incarnation and the ones before it, by their random numbers.
    pub(crate) lives: Lineage,
    pub(crate) start: Vec<Pos>,
    pub(crate) options: WalOptions,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) streams: Vec<CachePadded<Stream>>,
    /// `E`: the epoch that commits join.
    pub(crate) epoch: CachePadded<AtomicU64>,
    /// `D` of each rung: every epoch up to it is durable on the rung in every stream.
    pub(crate) durable: DurableEpochs,
    /// The highest assigned operation number.
    pub(crate) gsn: CachePadded<AtomicU64>,
    /// EOSL of each rung: every operation up to it is durable on the rung.
    pub(crate) eosl: DurableEpochs,
    /// The newest epoch that has a frame. `last_data` is the newest epoch that has a frame other than a beacon.
    pub(crate) last_appended: AtomicU64,
    pub(crate) last_data: AtomicU64,
    /// The start times of the epochs above D.
    pub(crate) ages: Ages,
    /// The highest D that a durable block names.
    pub(crate) evidenced: AtomicU64,
    /// Lets only one thread at a time close epochs. The value is the unfinished closing.
    pub(crate) closing: Mutex<Option<Closing>>,
    pub(crate) ends: Mutex<Ends>,
    pub(crate) wall_us: AtomicU64,
    /// The newest epoch of which a block was sealed, and the stamp of its last block.
    stamped: Mutex<(Epoch, u64)>,
    stopped: Mutex<Option<Stop>>,
    /// 1 once `stopped` is set. Admission reads this for every write.
    pub(crate) has_failed: AtomicU64,
    /// The reasons why streams cannot be written or extended at the moment.
    pub(crate) troubles: Troubles,
    /// Set if a device is to receive the sealed blocks.
    pub(crate) ship: OnceLock<Ship>,
    /// Set if there is a thread that prepares segments.
    pub(crate) preparer: OnceLock<WakePreparer>,
    pub(crate) counters: Counters,
    /// 1 while the log may not grow; see [`Wal::hold_growth`].
    pub(crate) is_held: AtomicU64,
    /// 1 if the last refused write lacked memory or descriptors, 0 if it lacked space.
    pub(crate) shortages: AtomicU64,
    /// 1 while D of the mirror rises together with D of the disk.
    pub(crate) follows_disk: AtomicU64,
}

/// Opens the segments of each stream, for a new incarnation that begins at `start`.
fn open_streams(
    disks: &[Arc<dyn Disk>],
    options: &WalOptions,
    start: &WalStart,
    tail_bytes_max: u64,
    is_live: impl Fn(&SegmentId) -> bool,
) -> Result<Vec<CachePadded<Stream>>> {
    let sizes = options.segments;
    let mut streams = Vec::new();
    for (number, (disk, from)) in (0u8..).zip(disks.iter().zip(&start.start)) {
        let stream = StreamId(number);
        let owner = StreamLife {
            stream,
            uuid: start.uuid,
            sizes,
            incarnation: start.incarnation,
            life: *from,
            has_deposed: options.mirror.is_some(),
        };
        let flush = FlushState::new(*from, tail_bytes_max);
        let shelf = SegmentShelf::open(Arc::clone(disk), owner, &is_live)?;
        let queue = disk.durable_queue()?;
        let stream = Stream::new(*from, options, flush, queue, shelf);
        streams.push(CachePadded::new(stream));
    }
    Ok(streams)
}

impl Wal {
    /// Opens the log for a new incarnation. `disks[s]` is the disk of stream s. `is_live` is false for segments that
    /// the restart has just voided in the anchor. These segments are recycled, or removed if the log has a mirror.
    pub fn open(
        disks: &[Arc<dyn Disk>],
        clock: Arc<dyn Clock>,
        options: WalOptions,
        start: WalStart,
        is_live: impl Fn(&SegmentId) -> bool,
    ) -> Result<Wal> {
        assert!(
            start.durable < start.epoch,
            "epoch {} is durable before it begins",
            start.epoch
        );
        assert_eq!(disks.len(), start.start.len(), "a disk for each stream");
        let tail_bytes_max = match options.mirror {
            Some(mirror) => mirror.tail_bytes_max,
            None => IN_FLIGHT_BYTES_MAX,
        };
        assert!(
            to_u64(options.block_bytes_max) <= tail_bytes_max,
            "a tail of {tail_bytes_max} bytes holds no block"
        );
        let streams = open_streams(disks, &options, &start, tail_bytes_max, is_live)?;
        let passed = Vouched {
            epoch: start.durable,
            wall_us: start.wall_us,
            ends: start.start.clone(),
        };
        Ok(Wal {
            uuid: start.uuid,
            incarnation: start.incarnation,
            lives: start.lives,
            start: start.start,
            options,
            clock,
            streams,
            epoch: CachePadded::new(AtomicU64::new(start.epoch.0)),
            durable: DurableEpochs::all_at(start.durable),
            gsn: CachePadded::new(AtomicU64::new(start.gsn.0)),
            eosl: PerRung::new(|_| CachePadded::new(AtomicU64::new(start.gsn.0))),
            last_appended: AtomicU64::new(0),
            last_data: AtomicU64::new(0),
            ages: Ages::new(),
            evidenced: AtomicU64::new(0),
            closing: Mutex::new(None),
            ends: Mutex::new(Ends {
                closed: VecDeque::new(),
                passed: PerRung::new(|_| passed.clone()),
            }),
            wall_us: AtomicU64::new(start.wall_us),
            stamped: Mutex::new((Epoch(0), start.wall_us)),
            stopped: Mutex::new(None),
            has_failed: AtomicU64::new(0),
            troubles: Troubles::none(),
            ship: OnceLock::new(),
            preparer: OnceLock::new(),
            counters: Counters::default(),
            is_held: AtomicU64::new(0),
            shortages: AtomicU64::new(0),
            follows_disk: AtomicU64::new(1),
        })
    }

    /// Returns the number of streams.
    #[must_use]
    pub fn streams(&self) -> u8 {
        u8::try_from(self.streams.len()).expect("at most 16 streams")
    }

    /// Returns the position below which the stream is synced on disk.
    #[must_use]
    pub fn synced(&self, stream: StreamId) -> Pos {
        let s = &self.streams[usize::from(stream.0)];
        Pos(s.reached[Rung::Disk].load(Ordering::SeqCst))
    }

    /// Stops the log because of a failure. From now on nothing is acknowledged.
    pub fn fail(&self, why: &str) {
        self.latch(Stop::Failed(why.to_owned()));
    }

    /// Stops the log because of an error that `what` has reported; see [`Error::stopping`].
    pub fn stop(&self, what: &str, error: &Error) {
        self.latch(match error.stopping(what) {
            Error::Fenced(why) => Stop::Fenced(why),
            Error::Displaced(why) => Stop::Displaced(why),
            Error::Stopped(why) => Stop::Failed(why),
            other => Stop::Failed(other.to_string()),
        });
    }

    fn latch(&self, stop: Stop) {
        self.stopped.lock().get_or_insert(stop);
        self.has_failed.store(1, Ordering::SeqCst);
    }

    /// Returns why the log has stopped; `None` if it has not.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        let stop = self.stopped.lock();
        stop.as_ref().map(|stop| match stop {
            Stop::Failed(why) => why.clone(),
            Stop::Fenced(why) => format!("another process owns the log now: {why}"),
            Stop::Displaced(why) => Error::Displaced(why.clone()).to_string(),
        })
    }

    /// Returns `Ok` unless the log has stopped.
    ///
    /// # Errors
    /// [`Error::Stopped`] after a failure. [`Error::Fenced`] if another process owns the log. [`Error::Displaced`] if
    /// the log's files are gone.
    pub fn check(&self) -> Result<()> {
        match &*self.stopped.lock() {
            None => Ok(()),
            Some(Stop::Failed(why)) => Err(Error::Stopped(why.clone())),
            Some(Stop::Fenced(why)) => Err(Error::Fenced(why.clone())),
            Some(Stop::Displaced(why)) => Err(Error::Displaced(why.clone())),
        }
    }

    /// Returns the time by the log's monotone clock, nanoseconds.
    #[must_use]
    pub fn mono_ns(&self) -> u64 {
        self.clock.mono_ns()
    }

    /// Returns the wall clock for a block of an epoch. If the clock was set back, it is lower than that of an earlier
    /// block.
    ///
    /// A stream may seal its part of an epoch after another stream has sealed a later epoch. Such a block gets the stamp of
    /// the later epoch. So the stamps of the epochs are in the order in which the clock showed them.
    pub(crate) fn stamp(&self, epoch: Epoch) -> u64 {
        let mut newest = self.stamped.lock();
        if newest.0 <= epoch {
            *newest = (epoch, self.clock.wall_us());
        }
        self.wall_us.store(newest.1, Ordering::Relaxed);
        newest.1
    }

    /// Returns whether every filled block is before `durable`. A block that is sealed later has a later stamp than a clock
    /// that was read before this call.
    #[must_use]
    pub fn is_all_before(&self, durable: &Vouched) -> bool {
        assert_eq!(
            durable.ends.len(),
            self.streams.len(),
            "an end in each stream"
        );
        let mut streams = self.streams.iter().zip(&durable.ends);
        streams.all(|(stream, end)| stream.filled_end.load(Ordering::SeqCst) == end.0)
    }

    /// Returns the number of bytes by which all streams together have grown since a checkpoint began at `from`. The
    /// number includes padding.
    #[must_use]
    pub fn bytes_since(&self, from: &[Pos]) -> u64 {
        assert_eq!(from.len(), self.streams.len(), "a begin for each stream");
        let end = |s: &Stream| s.filled_end.load(Ordering::Relaxed);
        self.streams
            .iter()
            .zip(from)
            .map(|(s, from)| end(s).saturating_sub(from.0))
            .sum()
    }

    /// Frees the segments that lie wholly below `floor` in their stream. The caller guarantees that no restart needs
    /// them (`recovery::truncate`).
    ///
    /// # Panics
    /// Panics if a floor is beyond the durable end of its stream, because no durable image can begin there.
    ///
    /// # Errors
    /// Fails with the first error of the log's disks. The next call tries again to free the remaining segments.
    pub fn truncate(&self, floor: &[Pos]) -> Result<usize> {
        assert_eq!(floor.len(), self.streams.len(), "a floor for each stream");
        let durable = self.durable_end(Rung::Disk).ends;
        let mut reached = floor.iter().zip(&durable);
        assert!(
            reached.all(|(floor, end)| floor <= end),
            "the log is cut at {floor:?}, and durable up to {durable:?}"
        );
        let mut freed = Ok(0);
        for (s, floor) in self.streams.iter().zip(floor) {
            let mut shelf = s.shelf.lock();
            let here = shelf.truncate(match armed(Flaw::RecycledInFlight) {
                true => Pos(s.filled_end.load(Ordering::Relaxed)),
                false => *floor,
            });
            s.note_room(&shelf);
            if !matches!(here, Ok(0)) {
                // The freed space may now suffice for the file that could not be created.
                s.unextended_at.store(NOWHERE, Ordering::SeqCst);
            }
            freed = freed.and_then(|so_far| Ok(so_far + here?));
        }
        self.note_fence(freed)
    }

    /// Stops the log if `done` failed because another process owns the log. Any other failure only delays the work, and
    /// the caller tries again.
    pub(crate) fn note_fence<T>(&self, done: Result<T>) -> Result<T> {
        done.inspect_err(|error| {
            if error.is_fenced() {
                self.stop("the log's segments", error);
            }
        })
    }

    /// Returns the number of bytes that are not durable on a rung. Open blocks and lanes count too. The number is the sum
    /// over all streams.
    #[must_use]
    pub fn waiting_bytes(&self, rung: Rung) -> u64 {
        let rung = self.in_force(rung);
        let of_stream = |s: &CachePadded<Stream>| {
            let end = s.inner.lock().end().0 + s.lanes.bytes();
            let reached = s.reached[rung].load(Ordering::SeqCst);
            // Other threads may have appended and flushed since `end` was read, up to a position beyond it. Then
            // nothing waits.
            end.saturating_sub(reached)
        };
        self.streams.iter().map(of_stream).sum()
    }

    /// Returns the figures of the log so far.
    #[must_use]
    pub fn stats(&self) -> WalStats {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        WalStats {
            log_bytes: self
                .streams
                .iter()
                .map(|s| s.inner.lock().frame_bytes + s.lanes.bytes())
                .sum(),
            device_bytes: load(&self.counters.device_bytes),
            blocks: load(&self.counters.blocks),
            syncs: load(&self.counters.syncs),
            queued_bytes: self.streams.iter().map(|s| s.unsynced_bytes()).sum(),
            tail_bytes: self.streams.iter().map(|s| s.tail_bytes()).sum(),
            file_bytes: self.streams.iter().map(|s| s.shelf.lock().bytes()).sum(),
        }
    }
}
