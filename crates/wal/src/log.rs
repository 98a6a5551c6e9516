//! The log as transactions and checkpoints see it: append, close an epoch, learn what is durable.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

use crossbeam_utils::CachePadded;
use perdura_base::flaw::{Flaw, armed};
use perdura_base::limits::IN_FLIGHT_BYTES_MAX;
use perdura_base::num::{to_u64, to_usize};
use perdura_base::{
    CkptEpoch, Epoch, Error, Incarnation, PartitionSet, Pos, Result, StreamId, Uuid,
};
use perdura_device::{Clock, Disk};

use crate::age::Ages;
use crate::anchor::Vouched;
use crate::flush::FlushState;
use crate::frame::{FrameKind, RestartRecord};
use crate::room::{NOWHERE, Troubles, WakePreparer};
use crate::segment::{SegmentId, SegmentShelf, ShelfPlace};
use crate::sizes::SegmentSizes;
use crate::stream::{FrameMeta, StreamInner};
use crate::sync::{AtomicU64, Mutex, Ordering};

/// Settings of a log that its creation did not fix.
#[derive(Debug, Clone)]
pub struct WalOptions {
    /// Sizes of the segments; fixed at creation, repeated here from the anchor.
    pub segments: SegmentSizes,
    /// The longest block, bytes.
    pub block_bytes_max: usize,
    /// Bytes that may wait for a stream's flusher before appends are refused.
    pub queue_bytes_max: u64,
}

impl Default for WalOptions {
    fn default() -> Self {
        WalOptions {
            segments: SegmentSizes::fixed(64 << 20),
            block_bytes_max: 256 << 10,
            queue_bytes_max: 8 << 20,
        }
    }
}

/// What an append decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    /// The commit epoch the frame belongs to.
    pub epoch: Epoch,
    /// Where the block stands that the frame begins in.
    pub pos: Pos,
}

/// Where a new incarnation starts: what restart decided.
#[derive(Debug, Clone)]
pub struct WalStart {
    /// The database.
    pub uuid: Uuid,
    /// The new incarnation.
    pub incarnation: Incarnation,
    /// Where each stream starts.
    pub start: Vec<Pos>,
    /// The first commit epoch to use.
    pub epoch: Epoch,
    /// The durable epoch restart kept.
    pub durable: Epoch,
    /// The latest wall clock in any block.
    pub wall_us: u64,
}

/// The ends of one closed epoch.
pub(crate) struct EpochEnds {
    pub epoch: Epoch,
    pub ends: Vec<Pos>,
}

impl EpochEnds {
    fn vouched(self, wall_us: u64) -> Vouched {
        Vouched {
            epoch: self.epoch,
            wall_us,
            ends: self.ends,
        }
    }
}

/// The closed epochs that are not durable yet, in order, and the newest that is.
pub(crate) struct Ends {
    pub closed: VecDeque<EpochEnds>,
    durable: Vouched,
}

/// An epoch that is being closed: where each visited stream's part of it ends.
struct Closing {
    epoch: Epoch,
    ends: Vec<Option<Pos>>,
}

pub(crate) struct Stream {
    pub inner: Mutex<StreamInner>,
    pub flush: Mutex<FlushState>,
    pub shelf: Mutex<SegmentShelf>,
    /// Everything below is durable.
    pub synced: AtomicU64,
    /// The end of the last sealed block.
    pub sealed_end: AtomicU64,
    /// The position up to which there are files, prepared or placed.
    pub room_end: AtomicU64,
    /// How far writers have asked for files.
    pub wanted_end: AtomicU64,
    /// The `room_end` behind which no file could be made when it was tried last.
    pub unextended_at: AtomicU64,
    /// Held by the one thread that prepares a file, during its I/O.
    pub preparing: Mutex<()>,
}

/// Figures for INFO and the benches.
#[derive(Debug, Clone, Copy, Default)]
pub struct WalStats {
    /// Payload and frame bytes appended, without block padding.
    pub log_bytes: u64,
    /// Bytes of blocks written.
    pub device_bytes: u64,
    /// Blocks written.
    pub blocks: u64,
    /// Syncs of segments.
    pub syncs: u64,
    /// Bytes waiting for the flushers.
    pub queued_bytes: u64,
    /// Bytes of all segment files.
    pub file_bytes: u64,
}

#[derive(Default)]
pub(crate) struct Counters {
    pub log_bytes: AtomicU64,
    pub device_bytes: AtomicU64,
    pub blocks: AtomicU64,
    pub syncs: AtomicU64,
}

/// The log: N streams under one commit epoch.
pub struct Wal {
    pub(crate) uuid: Uuid,
    pub(crate) incarnation: Incarnation,
    pub(crate) start: Vec<Pos>,
    pub(crate) options: WalOptions,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) streams: Vec<CachePadded<Stream>>,
    /// `E`: the epoch that commits join.
    epoch: CachePadded<AtomicU64>,
    /// `D`: every epoch up to it is durable in every stream.
    durable: CachePadded<AtomicU64>,
    /// The newest epoch with a frame; the newest with one that is not a beacon.
    last_appended: AtomicU64,
    last_data: AtomicU64,
    /// When the epochs beyond D began.
    pub(crate) ages: Ages,
    /// The highest D that a durable block names.
    pub(crate) evidenced: AtomicU64,
    /// Serializes epoch closing, and holds one that was begun.
    closing: Mutex<Option<Closing>>,
    pub(crate) ends: Mutex<Ends>,
    pub(crate) wall_us: AtomicU64,
    failed: Mutex<Option<String>>,
    /// 1 once `failed` is set, for those who ask with every write.
    has_failed: AtomicU64,
    /// What keeps streams from being written or extended.
    pub(crate) troubles: Troubles,
    /// Set if a thread prepares segments.
    pub(crate) preparer: OnceLock<WakePreparer>,
    pub(crate) counters: Counters,
}

impl Wal {
    /// Opens the log for a new incarnation. `disks[s]` holds stream s. Segments for which
    /// `is_live` is false are recycled: restart has just made them void in the anchor.
    pub fn open(
        disks: &[Arc<dyn Disk>],
        clock: Arc<dyn Clock>,
        options: WalOptions,
        start: WalStart,
        is_live: impl Fn(&SegmentId) -> bool,
    ) -> Result<Wal> {
        let sizes = options.segments;
        let mut streams = Vec::new();
        for (number, (disk, from)) in (0u8..).zip(disks.iter().zip(&start.start)) {
            let stream = StreamId(number);
            let place = ShelfPlace {
                stream,
                uuid: start.uuid,
                sizes,
                life: *from,
            };
            let shelf = SegmentShelf::open(Arc::clone(disk), place, &is_live)?;
            let room_end = shelf.next_span().start.0;
            streams.push(CachePadded::new(Stream {
                inner: Mutex::new(StreamInner::new(*from, sizes, options.block_bytes_max)),
                flush: Mutex::new(FlushState::new()),
                shelf: Mutex::new(shelf),
                synced: AtomicU64::new(from.0),
                sealed_end: AtomicU64::new(from.0),
                room_end: AtomicU64::new(room_end),
                wanted_end: AtomicU64::new(0),
                unextended_at: AtomicU64::new(NOWHERE),
                preparing: Mutex::new(()),
            }));
        }
        let durable = Vouched {
            epoch: start.durable,
            wall_us: start.wall_us,
            ends: start.start.clone(),
        };
        Ok(Wal {
            uuid: start.uuid,
            incarnation: start.incarnation,
            start: start.start,
            options,
            clock,
            streams,
            epoch: CachePadded::new(AtomicU64::new(start.epoch.0)),
            durable: CachePadded::new(AtomicU64::new(start.durable.0)),
            last_appended: AtomicU64::new(0),
            last_data: AtomicU64::new(0),
            ages: Ages::new(),
            evidenced: AtomicU64::new(0),
            closing: Mutex::new(None),
            ends: Mutex::new(Ends {
                closed: VecDeque::new(),
                durable,
            }),
            wall_us: AtomicU64::new(start.wall_us),
            failed: Mutex::new(None),
            has_failed: AtomicU64::new(0),
            troubles: Troubles::none(),
            preparer: OnceLock::new(),
            counters: Counters::default(),
        })
    }

    /// Number of streams.
    #[must_use]
    pub fn streams(&self) -> u8 {
        u8::try_from(self.streams.len()).expect("at most 16 streams")
    }

    /// The stream with the least waiting to be written: where the next transaction should go.
    #[must_use]
    pub fn idlest(&self) -> StreamId {
        if self.streams.len() == 1 {
            return StreamId(0);
        }
        let waiting = |s: &Stream| {
            s.sealed_end
                .load(Ordering::Relaxed)
                .saturating_sub(s.synced.load(Ordering::Relaxed))
        };
        (0u8..)
            .zip(&self.streams)
            .min_by_key(|(_, stream)| waiting(stream))
            .map_or(StreamId(0), |(number, _)| StreamId(number))
    }

    /// Whether a transaction of about `bytes` may append to `stream` now. Call it before taking
    /// latches: an append never waits and never fails.
    ///
    /// # Errors
    /// [`Error::LogFull`] if the flusher is behind, the next segment is not ready or the disk is
    /// full; [`Error::Stopped`] after a failure.
    pub fn admit(&self, stream: StreamId, bytes: usize) -> Result<()> {
        if self.has_failed.load(Ordering::Relaxed) != 0 {
            return self.check();
        }
        let s = &self.streams[usize::from(stream.0)];
        let sealed_end = s.sealed_end.load(Ordering::Relaxed);
        let waiting = sealed_end.saturating_sub(s.synced.load(Ordering::Relaxed));
        if waiting >= self.options.queue_bytes_max {
            self.check()?;
            return Err(Error::LogFull(
                "writes arrive faster than the disk takes them".into(),
            ));
        }
        if self.is_short() || !self.has_room(s, bytes) {
            return self.admit_slowly(stream, bytes);
        }
        Ok(())
    }

    /// Appends one frame and returns the commit epoch it belongs to and where it begins. The caller
    /// holds the latches of everything the frame describes.
    pub fn append(
        &self,
        stream: StreamId,
        kind: FrameKind,
        payload: &[u8],
        partitions: &PartitionSet,
        ckpt_epoch: CkptEpoch,
    ) -> Appended {
        self.append_parts(stream, kind, &[payload], partitions, ckpt_epoch)
    }

    /// As [`append`](Self::append), of a payload that lies in parts.
    pub fn append_parts(
        &self,
        stream: StreamId,
        kind: FrameKind,
        payload: &[&[u8]],
        partitions: &PartitionSet,
        ckpt_epoch: CkptEpoch,
    ) -> Appended {
        let s = &self.streams[usize::from(stream.0)];
        let mut inner = s.inner.lock();
        // Read under the stream's lock: once an epoch's closing has passed this stream, no frame
        // of that epoch can be appended here.
        let epoch = Epoch(self.epoch.load(Ordering::SeqCst));
        let pos = inner.append(
            epoch,
            kind,
            payload,
            FrameMeta {
                partitions,
                ckpt_epoch,
            },
        );
        self.note_appended(epoch, kind, payload.iter().map(|part| part.len()).sum());
        if let Some(block) = inner.sealed.back() {
            s.sealed_end.store(block.end().0, Ordering::Relaxed);
        }
        Appended { epoch, pos }
    }

    fn note_appended(&self, epoch: Epoch, kind: FrameKind, payload_len: usize) {
        // Nearly always an epoch's first frame was noted long ago; then a read is all it takes.
        if self.last_appended.load(Ordering::SeqCst) < epoch.0
            && self.last_appended.fetch_max(epoch.0, Ordering::SeqCst) < epoch.0
        {
            self.ages.note(epoch, self.clock.mono_ns(), self.durable());
        }
        if kind != FrameKind::Beacon && self.last_data.load(Ordering::Relaxed) < epoch.0 {
            self.last_data.fetch_max(epoch.0, Ordering::Relaxed);
        }
        let framed = payload_len + 1 + perdura_base::cursor::varint_len(to_u64(payload_len));
        self.counters
            .log_bytes
            .fetch_add(to_u64(framed), Ordering::Relaxed);
    }

    /// Marks the begin of checkpoint `k` in every stream and returns where: a restart from image
    /// `k` reads the log from there. Each mark starts a block.
    pub fn begin_checkpoint(&self, k: CkptEpoch) -> Vec<Pos> {
        (0..self.streams())
            .map(|stream| {
                self.mark(FrameKind::BeginCheckpoint, StreamId(stream), k, &[])
                    .0
            })
            .collect()
    }

    /// Marks the end of checkpoint `k` in every stream. Returns where, and the newest commit
    /// epoch of the marks: once it is durable, so is every record the image reflects.
    pub fn end_checkpoint(&self, k: CkptEpoch) -> (Vec<Pos>, Epoch) {
        let mut at = Vec::new();
        let mut newest = Epoch(0);
        for stream in (0..self.streams()).map(StreamId) {
            let (pos, epoch) = self.mark_end(stream, k, &[]);
            at.push(pos);
            newest = newest.max(epoch);
        }
        (at, newest)
    }

    /// Marks the end of checkpoint `k` in one stream: the frame holds `k` and then `extra`. Returns
    /// where, and the mark's commit epoch.
    pub fn mark_end(&self, stream: StreamId, k: CkptEpoch, extra: &[u8]) -> (Pos, Epoch) {
        self.mark(FrameKind::EndCheckpoint, stream, k, extra)
    }

    fn mark(&self, kind: FrameKind, stream: StreamId, k: CkptEpoch, extra: &[u8]) -> (Pos, Epoch) {
        let mut payload = Vec::new();
        perdura_base::cursor::Writer::put_varint(&mut payload, k.0);
        payload.extend_from_slice(extra);
        let none = PartitionSet::empty();
        let meta = FrameMeta {
            partitions: &none,
            ckpt_epoch: k,
        };
        let s = &self.streams[usize::from(stream.0)];
        let mut inner = s.inner.lock();
        let epoch = Epoch(self.epoch.load(Ordering::SeqCst));
        let at = inner.split(epoch);
        inner.append(epoch, kind, &[&payload], meta);
        self.note_appended(epoch, kind, payload.len());
        if let Some(block) = inner.sealed.back() {
            s.sealed_end.store(block.end().0, Ordering::Relaxed);
        }
        (at, epoch)
    }

    /// Appends the record of the restart that began this incarnation.
    pub fn append_restart(&self, record: &RestartRecord) -> Epoch {
        let none = PartitionSet::empty();
        self.append(
            StreamId(0),
            FrameKind::Restart,
            &record.encode(),
            &none,
            record.ckpt_max,
        )
        .epoch
    }

    /// Appends a beacon if the newest durable data has no evidence yet: no durable block names a
    /// durable epoch that covers it. Returns whether it did.
    pub fn append_beacon(&self) -> bool {
        let data = self.last_data.load(Ordering::Relaxed);
        let due = data > self.evidenced.load(Ordering::Relaxed)
            && self.durable().0 >= data
            && self.last_appended.load(Ordering::SeqCst) <= data;
        if due {
            let none = PartitionSet::empty();
            self.append(StreamId(0), FrameKind::Beacon, &[], &none, CkptEpoch(0));
        }
        due
    }

    /// Closes the current epoch if anything was appended in it, and returns it. Its blocks are
    /// ready for the flushers then.
    pub fn close_epoch(&self) -> Option<Epoch> {
        let mut closing = self.closing.lock();
        self.finish_closing(&mut closing);
        let begun = self.begin_closing(&mut closing);
        self.finish_closing(&mut closing);
        begun
    }

    /// The first half of [`close_epoch`](Self::close_epoch), for those who interleave by hand:
    /// later appends join the next epoch, streams not visited yet still hold the old one open.
    pub fn close_begin(&self) -> Option<Epoch> {
        let mut closing = self.closing.lock();
        self.finish_closing(&mut closing);
        self.begin_closing(&mut closing)
    }

    /// Visits one stream of a closing that [`close_begin`](Self::close_begin) began; the last
    /// visit completes it.
    pub fn close_visit(&self, stream: StreamId) {
        let mut closing = self.closing.lock();
        if let Some(begun) = closing.as_mut() {
            self.visit(begun, usize::from(stream.0));
        }
        self.complete_closing(&mut closing);
    }

    /// An epoch without a frame is never closed: it would leave no evidence, and D must not name
    /// one.
    fn begin_closing(&self, closing: &mut Option<Closing>) -> Option<Epoch> {
        let epoch = Epoch(self.epoch.load(Ordering::SeqCst));
        if self.last_appended.load(Ordering::SeqCst) < epoch.0 {
            return None;
        }
        self.epoch.store(epoch.0 + 1, Ordering::SeqCst);
        *closing = Some(Closing {
            epoch,
            ends: vec![None; self.streams.len()],
        });
        Some(epoch)
    }

    fn finish_closing(&self, closing: &mut Option<Closing>) {
        if let Some(begun) = closing.as_mut() {
            for stream in 0..self.streams.len() {
                self.visit(begun, stream);
            }
        }
        self.complete_closing(closing);
    }

    fn visit(&self, closing: &mut Closing, stream: usize) {
        if closing.ends[stream].is_some() {
            return;
        }
        let s = &self.streams[stream];
        let mut inner = s.inner.lock();
        closing.ends[stream] = Some(inner.close(closing.epoch));
        if let Some(block) = inner.sealed.back() {
            s.sealed_end.store(block.end().0, Ordering::Relaxed);
        }
    }

    fn complete_closing(&self, closing: &mut Option<Closing>) {
        let ends = closing
            .as_ref()
            .and_then(|begun| begun.ends.iter().copied().collect());
        if let (Some(ends), Some(done)) = (ends, closing.as_ref()) {
            self.ends.lock().closed.push_back(EpochEnds {
                epoch: done.epoch,
                ends,
            });
            *closing = None;
        }
    }

    /// Raises D as far as the streams' synced positions allow.
    pub(crate) fn advance_durable(&self) {
        let mut ends = self.ends.lock();
        while let Some(front) = ends.closed.front() {
            let mut held = self
                .streams
                .iter()
                .zip(&front.ends)
                .map(|(s, end)| s.synced.load(Ordering::SeqCst) >= end.0);
            let durable = if armed(Flaw::OneStreamSuffices) {
                held.any(|h| h)
            } else {
                held.all(|h| h)
            };
            if !durable {
                return;
            }
            self.durable.store(front.epoch.0, Ordering::SeqCst);
            if let Some(newest) = ends.closed.pop_front() {
                let wall_us = self.wall_us.load(Ordering::Relaxed);
                ends.durable = newest.vouched(wall_us);
            }
        }
    }

    /// D, when it came to be, and where each stream's part of it ends.
    #[must_use]
    pub fn durable_end(&self) -> Vouched {
        let ends = self.ends.lock();
        match ends.closed.back() {
            Some(newest) if armed(Flaw::VouchedBeforeDurable) => EpochEnds {
                epoch: newest.epoch,
                ends: newest.ends.clone(),
            }
            .vouched(0),
            _ => ends.durable.clone(),
        }
    }

    /// Everything below is durable in this stream.
    #[must_use]
    pub fn synced(&self, stream: StreamId) -> Pos {
        let s = &self.streams[usize::from(stream.0)];
        Pos(s.synced.load(Ordering::SeqCst))
    }

    /// `D`: every transaction up to this epoch survives.
    #[must_use]
    pub fn durable(&self) -> Epoch {
        Epoch(self.durable.load(Ordering::SeqCst))
    }

    /// `E`: the epoch that the next commit joins.
    #[must_use]
    pub fn current(&self) -> Epoch {
        Epoch(self.epoch.load(Ordering::SeqCst))
    }

    /// The newest epoch with a frame; 0 before the first append. Unlike [`current`](Self::current)
    /// it will be closed even if nothing more is appended.
    #[must_use]
    pub fn last_appended(&self) -> Epoch {
        Epoch(self.last_appended.load(Ordering::SeqCst))
    }

    /// Whether something was appended that no closed epoch holds yet.
    #[must_use]
    pub fn has_open_frames(&self) -> bool {
        self.last_appended.load(Ordering::SeqCst) >= self.epoch.load(Ordering::SeqCst)
    }

    /// Whether everything appended is durable.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.last_appended.load(Ordering::SeqCst) <= self.durable().0
    }

    /// Latches a failure: from now on nothing is acknowledged.
    pub fn fail(&self, why: &str) {
        self.failed.lock().get_or_insert_with(|| why.to_owned());
        self.has_failed.store(1, Ordering::SeqCst);
    }

    /// Why the log has stopped, if it has.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        self.failed.lock().clone()
    }

    /// [`Error::Stopped`] if the log has stopped.
    pub fn check(&self) -> Result<()> {
        self.failure()
            .map_or(Ok(()), |why| Err(Error::Stopped(why)))
    }

    /// A wall clock that never repeats and never goes back within the log.
    pub(crate) fn stamp(&self) -> u64 {
        let now = self.clock.wall_us();
        let step = |last: u64| Some(now.max(last + 1));
        let last = self
            .wall_us
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, step);
        now.max(last.unwrap_or(now).saturating_add(1))
    }

    /// Bytes appended to all streams since `from` (a checkpoint's begin), padding included.
    #[must_use]
    pub fn bytes_since(&self, from: &[Pos]) -> u64 {
        let end = |s: &Stream| s.sealed_end.load(Ordering::Relaxed);
        self.streams
            .iter()
            .zip(from)
            .map(|(s, from)| end(s).saturating_sub(from.0))
            .sum()
    }

    /// Frees segments that lie wholly below `floor` in their stream. The caller has made sure
    /// that no restart needs them; see the truncation rule in the recovery crate.
    ///
    /// # Errors
    /// The first of the log disks'; what could not be freed is met again by the next call.
    pub fn truncate(&self, floor: &[Pos]) -> Result<usize> {
        let mut freed = Ok(0);
        for (s, floor) in self.streams.iter().zip(floor) {
            let mut shelf = s.shelf.lock();
            let here = shelf.truncate(*floor);
            s.note_room(&shelf);
            if !matches!(here, Ok(0)) {
                // What was removed may be the space that a file needs.
                s.unextended_at.store(NOWHERE, Ordering::SeqCst);
            }
            freed = freed.and_then(|so_far| Ok(so_far + here?));
        }
        freed
    }

    /// Figures so far.
    #[must_use]
    pub fn stats(&self) -> WalStats {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let queued = |s: &Stream| load(&s.sealed_end).saturating_sub(load(&s.synced));
        WalStats {
            log_bytes: load(&self.counters.log_bytes),
            device_bytes: load(&self.counters.device_bytes),
            blocks: load(&self.counters.blocks),
            syncs: load(&self.counters.syncs),
            queued_bytes: self.streams.iter().map(|s| queued(s)).sum(),
            file_bytes: self.streams.iter().map(|s| s.shelf.lock().bytes()).sum(),
        }
    }

    /// Bytes a flusher may have written but not synced; see [`IN_FLIGHT_BYTES_MAX`].
    pub(crate) fn batch_bytes_max(&self) -> usize {
        to_usize(IN_FLIGHT_BYTES_MAX / 2)
    }
}
