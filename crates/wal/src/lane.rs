//! Lanes: small buffers in front of a stream's blocks. With lanes, threads on several processors seldom need the stream's
//! lock at the same time.
//!
//! ```text
//! group ──► lane of the thread ──lane full, or epoch closed──► open block of the stream
//! ```
//! A group goes to the lane that its thread names. The frames of a lane enter the stream's blocks together, so one use of
//! the stream's lock serves many groups. Other kinds of frames, and a group for which the lane has no room, enter the
//! blocks directly. Within an epoch, groups of different threads may have any order in the log.
//!
//! # Invariants
//! * A lane's frames are of one epoch.
//! * A group's epoch is read under the lane's lock. The closing of an epoch raises E and then empties the lanes. So once
//!   an epoch is closed in a stream, no lane of that stream has or gets a frame of the epoch.
//! * A frame enters the blocks only when no lane has a frame of an older epoch.
//! * The groups of a lane enter the blocks in the order of their appends. A group for which the lane has no room enters
//!   the blocks after them.
//! * A thread that holds a lane's lock does not take the stream's lock or the lock of another lane.
//!
//! # Source
//! The log buffers of Silo's worker threads: S. Tu et al., "Speedy Transactions in Multicore In-Memory Databases",
//! section 4.10.

use crossbeam_utils::CachePadded;
use perdura_base::flaw::{Flaw, armed};
use perdura_base::num::to_u64;
use perdura_base::{CkptEpoch, Epoch, PartitionSet, StreamId};

use crate::frame::{FrameKind, put_frame_head};
use crate::stream::{FrameMeta, Frames, StreamInner};
use crate::sync::Mutex;

/// The part of the longest block that a lane may have. The lanes of a stream together have at most one such block.
const LANE_SHARE: usize = 8;
/// The maximum number of lanes of a stream.
pub const LANES_MAX: usize = 8;

/// The frames of one lane that have not entered the stream's blocks.
pub(crate) struct Lane {
    /// The limit of the frames, bytes.
    bytes_max: usize,
    /// The epoch of the frames, if there are any.
    epoch: Epoch,
    frames: Frames,
    partitions: PartitionSet,
    ckpt_epoch: CkptEpoch,
}

impl Lane {
    /// Returns an empty lane that takes up to `bytes_max` bytes.
    fn new(bytes_max: usize) -> Lane {
        Lane {
            bytes_max,
            epoch: Epoch(0),
            frames: Frames::default(),
            partitions: PartitionSet::empty(),
            ckpt_epoch: CkptEpoch(0),
        }
    }

    fn is_empty(&self) -> bool {
        self.frames.starts.is_empty()
    }

    /// Adds a group, unless the lane lacks room or has frames of another epoch. Returns whether it did.
    pub fn add(&mut self, epoch: Epoch, payload: &[&[u8]], meta: FrameMeta<'_>) -> bool {
        let len: usize = payload.iter().map(|part| part.len()).sum();
        assert!(self.epoch <= epoch, "epochs go back in a lane");
        let is_other = self.epoch != epoch && !armed(Flaw::LaneOfTwoEpochs);
        if self.frames.bytes.len() + len > self.bytes_max || (is_other && !self.is_empty()) {
            return false;
        }
        self.epoch = epoch;
        let Frames { bytes, starts } = &mut self.frames;
        starts.push(bytes.len());
        put_frame_head(FrameKind::Group, to_u64(len), bytes);
        for part in payload {
            bytes.extend_from_slice(part);
        }
        self.partitions.union(meta.partitions);
        self.ckpt_epoch = self.ckpt_epoch.max(meta.ckpt_epoch);
        true
    }

    /// Moves the frames into the stream's blocks, unless they are newer than `newest`.
    pub fn move_into(&mut self, inner: &mut StreamInner, newest: Epoch) {
        if self.is_empty() || self.epoch > newest {
            return;
        }
        let meta = FrameMeta {
            partitions: &self.partitions,
            ckpt_epoch: self.ckpt_epoch,
        };
        inner.append_groups(self.epoch, &self.frames, meta);
        self.frames.bytes.clear();
        self.frames.starts.clear();
        self.partitions = PartitionSet::empty();
        self.ckpt_epoch = CkptEpoch(0);
    }
}

/// The lane of a stream for a thread's groups.
#[derive(Debug, Clone, Copy)]
pub struct LaneId {
    /// The stream.
    pub stream: StreamId,
    /// The number of the lane, modulo the stream's number of lanes.
    pub lane: usize,
}

/// The lanes of a stream. With a single lane, groups enter the blocks directly.
pub(crate) struct Lanes {
    each: Vec<CachePadded<Mutex<Lane>>>,
    /// The limit of each lane's frames, bytes.
    bytes_max: usize,
}

impl Lanes {
    /// Returns `lanes` empty lanes, or none instead of one.
    pub fn new(lanes: usize, block_bytes_max: usize) -> Lanes {
        let lanes = if lanes > 1 { lanes.min(LANES_MAX) } else { 0 };
        let bytes_max = block_bytes_max / LANE_SHARE;
        let lane = || CachePadded::new(Mutex::new(Lane::new(bytes_max)));
        Lanes {
            each: (0..lanes).map(|_| lane()).collect(),
            bytes_max,
        }
    }

    /// Returns the number of bytes that the lanes can have.
    pub fn capacity(&self) -> u64 {
        to_u64(self.each.len() * self.bytes_max)
    }

    /// Returns the number of bytes in the lanes.
    pub fn bytes(&self) -> u64 {
        let each = self.each.iter();
        each.map(|lane| to_u64(lane.lock().frames.bytes.len()))
            .sum()
    }

    /// Returns lane `lane`, modulo the number of lanes. `None`: there are no lanes.
    pub fn of(&self, lane: usize) -> Option<&Mutex<Lane>> {
        let lane = self.each.get(lane % self.each.len().max(1));
        lane.map(|lane| &**lane)
    }

    /// Moves all frames of epoch `newest` and of older epochs into the stream's blocks. The caller has made sure that these
    /// frames are of one epoch.
    pub fn empty(&self, inner: &mut StreamInner, newest: Epoch) {
        for lane in &self.each {
            lane.lock().move_into(inner, newest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sizes::SegmentSizes;
    use crate::stream::FilledBlock;
    use perdura_base::{PartitionId, Pos};

    fn stream() -> StreamInner {
        StreamInner::new(Pos(0), SegmentSizes::fixed(64 << 10), 4096)
    }

    /// The facts about a block that a restart reads.
    fn facts(block: &FilledBlock) -> (Pos, Pos, Epoch, bool, u32, &[u8]) {
        let end = crate::block::HEADER_BYTES + usize::try_from(block.body_len).expect("a length");
        let body = &block.buf[crate::block::HEADER_BYTES..end];
        let Pos(at) = block.pos;
        (
            Pos(at),
            block.prev_pos,
            block.epoch,
            block.last,
            block.first_frame,
            body,
        )
    }

    /// A stream that gets the groups of a lane together, and a stream that gets them one by one, have equal blocks. The
    /// groups have all lengths, so frames begin and end at every place of a block.
    #[test]
    fn groups_through_a_lane_fill_the_same_blocks_as_single_ones() {
        let mut rng = fastrand::Rng::with_seed(11);
        for bytes_max in [600, 2048, 9000] {
            let (mut together, mut single) = (stream(), stream());
            let mut lane = Lane::new(bytes_max);
            for epoch in (1..40).map(Epoch) {
                for _ in 0..rng.usize(1..30) {
                    let len = rng.usize(0..=bytes_max.min(1200));
                    let payload: Vec<u8> = (0..len).map(|_| rng.u8(..)).collect();
                    let mut touched = PartitionSet::empty();
                    touched.insert(PartitionId(rng.u16(..200)));
                    let meta = FrameMeta {
                        partitions: &touched,
                        ckpt_epoch: CkptEpoch(rng.u64(..9)),
                    };
                    if !lane.add(epoch, &[&payload], meta) {
                        lane.move_into(&mut together, epoch);
                        assert!(lane.add(epoch, &[&payload], meta), "it is empty");
                    }
                    single.append(epoch, FrameKind::Group, &[&payload], meta);
                }
                lane.move_into(&mut together, epoch);
                assert_eq!(together.close(epoch), single.close(epoch));
            }
            assert_eq!(together.filled.len(), single.filled.len());
            assert_eq!(together.frame_bytes, single.frame_bytes);
            for (a, b) in together.filled.iter().zip(&single.filled) {
                assert_eq!(facts(a), facts(b));
                assert!(b.partitions.iter().all(|id| a.partitions.contains(id)));
                assert!(a.ckpt_epoch >= b.ckpt_epoch && a.holds == b.holds);
            }
        }
    }

    #[test]
    fn a_lane_has_groups_of_one_epoch_and_keeps_newer_ones() {
        let mut inner = stream();
        let mut lane = Lane::new(100);
        let none = PartitionSet::empty();
        let meta = FrameMeta {
            partitions: &none,
            ckpt_epoch: CkptEpoch(0),
        };
        assert!(lane.add(Epoch(5), &[b"one"], meta));
        assert!(!lane.add(Epoch(6), &[b"two"], meta), "another epoch");
        lane.move_into(&mut inner, Epoch(4));
        assert_eq!(inner.frame_bytes, 0, "epoch 5 is not due yet");
        lane.move_into(&mut inner, Epoch(5));
        assert_ne!(inner.frame_bytes, 0);
        assert!(lane.add(Epoch(6), &[b"two"], meta));
        assert!(!lane.add(Epoch(6), &[&[0; 100]], meta), "it is full");
    }
}
