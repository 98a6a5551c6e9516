//! Appending frames. A transaction asks for admission before it takes latches, so that an append never waits or fails.

use perdura_base::{CkptEpoch, Epoch, Error, PartitionSet, Pos, Result, StreamId};

use crate::frame::{FrameKind, RestartRecord};
use crate::lane::LaneId;
use crate::log::{Stream, Wal};
use crate::rung::Rung;
use crate::stream::{FrameMeta, StreamInner};
use crate::sync::Ordering;

/// The result of an append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    /// The commit epoch of the frame.
    pub epoch: Epoch,
    /// The position of the frame's first block.
    pub pos: Pos,
}

impl Wal {
    /// Returns the stream with the fewest bytes that wait to be written. The next transaction should use it.
    #[must_use]
    pub fn idlest(&self) -> StreamId {
        if self.streams.len() == 1 {
            return StreamId(0);
        }
        (0u8..)
            .zip(&self.streams)
            .min_by_key(|(_, stream)| stream.unsynced_bytes())
            .map_or(StreamId(0), |(number, _)| StreamId(number))
    }

    /// Returns `Ok` if a transaction of about `bytes` may append to `stream` now. The caller calls it before taking
    /// latches, because an append itself never waits and never fails.
    ///
    /// # Errors
    /// [`Error::LogFull`] if the flusher is late, the next segment is not ready or the disk is full; [`Error::Stopped`]
    /// after a failure.
    pub fn admit(&self, stream: StreamId, bytes: usize) -> Result<()> {
        if self.has_failed.load(Ordering::Relaxed) != 0 {
            return self.check();
        }
        let s = &self.streams[usize::from(stream.0)];
        if s.unsynced_bytes() >= self.beyond_tail(self.options.queue_bytes_max) {
            self.check()?;
            if self.is_stuck() {
                return self.admit_slowly(stream, bytes);
            }
            return Err(Error::LogFull(
                "writes arrive faster than the disk can write them. Try again later".into(),
            ));
        }
        if self.is_short() || !self.has_room(s, bytes) {
            return self.admit_slowly(stream, bytes);
        }
        Ok(())
    }

    /// Appends one frame. Returns the frame's commit epoch and position. The caller holds the latches of everything
    /// that the frame describes.
    pub fn append(
        &self,
        stream: StreamId,
        kind: FrameKind,
        payload: &[u8],
        partitions: &PartitionSet,
        ckpt_epoch: CkptEpoch,
    ) -> Appended {
        self.append_together(stream, [(kind, &[payload][..])], partitions, ckpt_epoch)
    }

    /// Appends one group for a thread that uses lane `id`, with the group's payload in parts. Returns the group's commit
    /// epoch. A thread's groups keep their order. The caller holds the latches of everything that the group describes.
    pub fn append_group(
        &self,
        id: LaneId,
        payload: &[&[u8]],
        partitions: &PartitionSet,
        ckpt_epoch: CkptEpoch,
    ) -> Epoch {
        let mine = self.streams[usize::from(id.stream.0)].lanes.of(id.lane);
        let kind = FrameKind::Group;
        let meta = FrameMeta {
            partitions,
            ckpt_epoch,
        };
        if let Some(mine) = mine {
            let mut lane = mine.lock();
            // The epoch is read under the lane's lock, as `append_at` reads it under the stream's.
            let epoch = Epoch(self.epoch.load(Ordering::SeqCst));
            if lane.add(epoch, payload, meta) {
                self.note_appended(epoch, kind);
                return epoch;
            }
        }
        let appended = self.append_at(id.stream, meta, |inner, epoch, meta| {
            if let Some(mine) = mine {
                mine.lock().move_into(inner, epoch);
            }
            let pos = inner.append(epoch, kind, payload, meta);
            self.note_appended(epoch, kind);
            pos
        });
        appended.epoch
    }

    /// Returns the current epoch, after the lanes' frames of older epochs have entered the stream's blocks. The caller
    /// holds the stream's lock. Until it releases the lock, it may append frames of the returned epoch.
    fn begin_epoch(&self, s: &Stream, inner: &mut StreamInner) -> Epoch {
        let epoch = Epoch(self.epoch.load(Ordering::SeqCst));
        if inner.newest_epoch() < epoch {
            s.lanes.empty(inner, Epoch(epoch.0 - 1));
        }
        epoch
    }

    /// Appends the frames of one transaction, each with its payload in parts. The frames are consecutive and in one
    /// epoch, so a restart keeps all of them or none. Returns the position of the first frame.
    pub fn append_together<const N: usize>(
        &self,
        stream: StreamId,
        frames: [(FrameKind, &[&[u8]]); N],
        partitions: &PartitionSet,
        ckpt_epoch: CkptEpoch,
    ) -> Appended {
        const { assert!(N > 0, "a transaction appends a frame") };
        let meta = FrameMeta {
            partitions,
            ckpt_epoch,
        };
        self.append_at(stream, meta, |inner, epoch, meta| {
            let mut first = None;
            for (kind, payload) in frames {
                let pos = inner.append(epoch, kind, payload, meta);
                self.note_appended(epoch, kind);
                assert!(first <= Some(pos), "frames follow each other");
                first = first.or(Some(pos));
            }
            first.expect("a transaction appends a frame")
        })
    }

    /// Calls `append` with a stream and the current epoch. `append` must return the position of the first frame that it
    /// has appended.
    #[inline]
    pub(crate) fn append_at(
        &self,
        stream: StreamId,
        meta: FrameMeta<'_>,
        append: impl FnOnce(&mut StreamInner, Epoch, FrameMeta<'_>) -> Pos,
    ) -> Appended {
        let s = &self.streams[usize::from(stream.0)];
        let mut inner = s.inner.lock();
        // The epoch is read under the stream's lock. So once an epoch has been closed in this stream, no frame of that
        // epoch can be appended to the stream.
        let epoch = self.begin_epoch(s, &mut inner);
        let pos = append(&mut inner, epoch, meta);
        s.note_filled(&inner);
        debug_assert!(
            Rung::ALL
                .iter()
                .all(|rung| s.reached[*rung].load(Ordering::Relaxed) <= pos.0),
            "a frame is appended behind all that is durable"
        );
        Appended { epoch, pos }
    }

    pub(crate) fn note_appended(&self, epoch: Epoch, kind: FrameKind) {
        self.note_epoch(epoch);
        if kind != FrameKind::Beacon && self.last_data.load(Ordering::Relaxed) < epoch.0 {
            self.last_data.fetch_max(epoch.0, Ordering::Relaxed);
        }
    }

    /// Records that this epoch has a frame, so that the flusher will close the epoch.
    pub(crate) fn note_epoch(&self, epoch: Epoch) {
        // In nearly all cases an earlier frame has recorded the epoch, and this read suffices.
        if self.last_appended.load(Ordering::SeqCst) < epoch.0
            && self.last_appended.fetch_max(epoch.0, Ordering::SeqCst) < epoch.0
        {
            self.ages.note(epoch, self.clock.mono_ns(), self.slowest());
        }
    }

    /// Marks the beginning of checkpoint `k` in every stream. Returns the positions of the marks and the lowest of
    /// their commit epochs. A restart from image `k` reads the log from these positions on. No frame there has an epoch
    /// below the returned one. Each mark starts a block.
    pub fn begin_checkpoint(&self, k: CkptEpoch) -> (Vec<Pos>, Epoch) {
        let mut at = Vec::new();
        let mut lowest = None;
        for stream in (0..self.streams()).map(StreamId) {
            let (pos, epoch) = self.mark(FrameKind::BeginCheckpoint, stream, k, &[]);
            assert!(
                *lowest.get_or_insert(epoch) <= epoch,
                "epochs never go back between two marks"
            );
            at.push(pos);
        }
        (at, lowest.expect("a log has a stream"))
    }

    /// Marks the end of checkpoint `k` in every stream. Returns the positions of the marks and the highest of their
    /// commit epochs. When that epoch is durable, every record in the image is durable too.
    pub fn end_checkpoint(&self, k: CkptEpoch) -> (Vec<Pos>, Epoch) {
        let mut at = Vec::new();
        let mut newest = Epoch(0);
        for stream in (0..self.streams()).map(StreamId) {
            let (pos, epoch) = self.mark_end(stream, k, &[]);
            assert!(newest <= epoch, "epochs never go back between two marks");
            at.push(pos);
            newest = epoch;
        }
        (at, newest)
    }

    /// Marks the end of checkpoint `k` in one stream. The payload is `k` followed by `extra`. Returns the mark's
    /// position and commit epoch.
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
        let epoch = self.begin_epoch(s, &mut inner);
        s.lanes.empty(&mut inner, epoch);
        let at = inner.split(epoch);
        let begins = inner.append(epoch, kind, &[&payload], meta);
        assert_eq!(begins, at, "a mark starts a block");
        self.note_appended(epoch, kind);
        s.note_filled(&inner);
        (at, epoch)
    }

    /// Appends the record of the restart at the start of this incarnation. Returns the record's epoch.
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

    /// Appends a beacon: an empty frame in a block that names the durable epoch. Does so only if all data is durable,
    /// but no durable block proves this. Returns whether it appended a beacon.
    pub fn append_beacon(&self) -> bool {
        let data = self.last_data.load(Ordering::Relaxed);
        let due = data > self.evidenced.load(Ordering::Relaxed)
            && self.durable(Rung::Disk).0 >= data
            && self.last_appended.load(Ordering::SeqCst) <= data;
        if due {
            let none = PartitionSet::empty();
            let beacon = self.append(StreamId(0), FrameKind::Beacon, &[], &none, CkptEpoch(0));
            assert!(
                data < beacon.epoch.0,
                "a beacon names a D that covers epoch {data}"
            );
        }
        due
    }
}
