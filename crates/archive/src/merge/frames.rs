//! Merging the ordered frames of neighbouring runs. Frames are never combined.
//!
//! In each partition, the numbers of a run follow those of the run before it. So the merged run has the partition's
//! entries of the first input, then those of the second, and so on.

use std::sync::Arc;

use perdura_base::{Epoch, PartitionId, Result};

use crate::reader::{FrameCursor, Run};
use crate::run::{FrameEntry, FrameOrPlace, Frames};
use crate::writer::{Progress, RunWriter};

/// The ordered frames of several runs, in the order of the merged run.
pub(super) struct MergedFrames {
    cursors: Vec<FrameCursor>,
    /// The number of cursors that are at their first entry.
    primed: usize,
    /// The number of frames of epochs before the merged run's first one.
    pub left_out: u64,
}

impl MergedFrames {
    /// Returns the frames of neighbouring runs, which are in the order of their epochs.
    pub fn new(inputs: &[Arc<Run>]) -> MergedFrames {
        MergedFrames {
            cursors: inputs.iter().map(Run::frame_cursor).collect(),
            primed: 0,
            left_out: 0,
        }
    }

    /// Returns the input with the next entry. `None`: no entry is left.
    fn next(&self) -> Option<usize> {
        let places = self.cursors.iter().map(FrameCursor::entry);
        let of = |(i, entry): (usize, Option<FrameEntry<'_>>)| {
            entry.map(|entry| (entry.at.partition, i))
        };
        let next: Option<(PartitionId, usize)> = places.enumerate().filter_map(of).min();
        debug_assert!(
            next.is_none_or(|(_, i)| i < self.cursors.len()),
            "an input has it"
        );
        next.map(|(_, i)| i)
    }

    /// Writes entries until an I/O has been made or no entry is left. Leaves out the frames of epochs before `begin`.
    ///
    /// # Errors
    /// Those of [`FrameCursor::advance`] and [`RunWriter::push_frame`].
    pub fn step(&mut self, writer: &mut RunWriter, begin: Epoch) -> Result<Progress<()>> {
        while let Some(cursor) = self.cursors.get_mut(self.primed) {
            self.primed += 1;
            if cursor.advance()? {
                return Ok(Progress::More);
            }
        }
        if writer.catch_up()? {
            return Ok(Progress::More);
        }
        let writes = writer.writes();
        while let Some(i) = self.next() {
            let cursor = &mut self.cursors[i];
            let reads = cursor.reads();
            if let Some(entry) = cursor.entry() {
                if begin <= entry.epoch {
                    writer.push_frame(&entry)?;
                } else {
                    self.left_out += u64::from(matches!(entry.carried, FrameOrPlace::Frame { .. }));
                }
            }
            cursor.advance()?;
            if cursor.reads() > reads || writer.writes() > writes {
                return Ok(Progress::More);
            }
        }
        Ok(Progress::Done(()))
    }
}

/// Returns whether the merged run has all frames of the inputs, except those that were left out.
pub(super) fn are_proven(inputs: &[Arc<Run>], merged: &Frames, left_out: u64) -> bool {
    let all = || inputs.iter().filter_map(|run| run.frames());
    let count = all()
        .map(|frames| frames.count)
        .fold(0, u64::saturating_add);
    if count != merged.count.saturating_add(left_out) {
        return false;
    }
    // Without the frames that were left out, the digests of an input are not those of its entries.
    left_out > 0
        || merged.numbers.iter().all(|(partition, numbers)| {
            let of = all().filter_map(|frames| frames.numbers.get(partition));
            let (counts, digests) = of.fold((0, 0u64), |(count, digest), of| {
                (count + of.count, digest.wrapping_add(of.digest))
            });
            (counts, digests) == (numbers.count, numbers.digest)
        })
}
