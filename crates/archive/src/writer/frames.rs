//! The writing of ordered frames into a run. They follow the records.

use perdura_base::num::to_u64;
use perdura_base::{Error, Result};

use super::{RunWriter, WRITE_BYTES};
use crate::run::block::{BlockPlace, Content};
use crate::run::frames::FrameBody;
use crate::run::{FrameBlock, FrameEntry, Frames};

/// The frames of the run that is being written.
#[derive(Default)]
pub(super) struct FrameWriting {
    body: FrameBody,
    pub(super) frames: Frames,
}

/// Returns the error for an entry that does not have the next number of its partition.
#[cold]
pub(crate) fn gap(file: &str, expected: u64, entry: &FrameEntry<'_>) -> Error {
    let partition = entry.at.partition;
    Error::corrupt(
        file,
        0,
        format!("the ordered frame with number {expected} of partition {partition}"),
        format!("the one with number {}", entry.at.number),
        "An ordered frame is missing, or is there twice, and no restore leads across it. If the archiver reports this, run \
         `perdura archive end` and begin a new archive in another directory.",
    )
}

impl RunWriter {
    /// Adds an entry of an ordered frame, after all records. Makes at most one write.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the entry does not have the next number of its partition; errors of the disk.
    ///
    /// # Panics
    /// If the header says that the run carries no frames. Also if the entry sorts before the last added entry, or has an
    /// epoch outside the run.
    pub fn push_frame(&mut self, entry: &FrameEntry<'_>) -> Result<()> {
        let epochs = self.header.id.epochs;
        assert!(
            self.header.carries_frames && epochs.contains(entry.epoch),
            "a frame of epoch {} is the run's",
            entry.epoch
        );
        if !self.body.is_empty() {
            self.end_block();
        }
        let frames = &mut self.frames;
        if !frames.frames.note(entry) {
            let numbers = &frames.frames.numbers[&entry.at.partition];
            return Err(gap(self.out.temporary(), numbers.last() + 1, entry));
        }
        if !frames.body.add(entry, epochs.begin) {
            self.end_frame_block();
            let is_added = self.frames.body.add(entry, epochs.begin);
            assert!(is_added, "an empty block has room for an entry");
        }
        if self.out.pending.len() < WRITE_BYTES {
            return Ok(());
        }
        self.out.write()
    }

    /// Makes a write if enough bytes are pending. Returns whether it made one. A caller with long frames calls this before
    /// each frame, so that few frames wait in memory.
    ///
    /// # Errors
    /// Errors of the disk.
    pub fn catch_up(&mut self) -> Result<bool> {
        let is_behind = self.out.pending.len() >= WRITE_BYTES;
        if is_behind {
            self.out.write()?;
        }
        Ok(is_behind)
    }

    /// Encodes the frame block that is being filled.
    fn end_frame_block(&mut self) {
        let writing = &mut self.frames;
        let (head, epoch_max) = writing.body.finish();
        let offset = self.out.offset();
        let place = BlockPlace {
            content: Content::Frames,
            header_crc: self.header_crc,
            offset,
        };
        let bytes = self
            .coder
            .append(&mut self.out.pending, &head, &writing.body.raw, place);
        writing.body.raw.clear();
        writing.frames.blocks.push(FrameBlock {
            first: head.frame(),
            offset,
            bytes,
            entries: head.records,
            epochs: (head.epoch_min, epoch_max),
        });
        debug_assert_eq!(
            self.out.offset(),
            offset + u64::from(bytes),
            "the next block follows"
        );
    }

    /// Ends the frames. Returns their description.
    pub(super) fn end_frames(&mut self) -> Frames {
        if !self.frames.body.is_empty() {
            self.end_frame_block();
        }
        let frames = std::mem::take(&mut self.frames.frames);
        let entries = frames.blocks.iter().map(|block| u64::from(block.entries));
        debug_assert!(
            entries.sum::<u64>() >= frames.count && to_u64(frames.numbers.len()) <= 256,
            "each frame has an entry"
        );
        frames
    }
}
