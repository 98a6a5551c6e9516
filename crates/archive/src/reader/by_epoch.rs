//! The ordered frames of a run, epoch by epoch: the order in which a log has them.
//!
//! A run has its frames sorted by partition. Within a partition, epochs do not descend. So a *window* of epochs is a
//! short piece of each partition. The reader reads the blocks of one window, sorts their frames by epoch, and then goes
//! to the next window. A window has about [`WINDOW_BYTES`] of blocks, or one epoch if that is larger.

use std::sync::Arc;

use perdura_base::num::to_u64;
use perdura_base::{Epoch, Result};
use perdura_wal::FrameKind;

use super::Run;
use super::frames::weight;
use crate::run::{FrameAt, FrameBlock, FrameOrPlace};

/// The approximate size of the frames that the reader holds in memory, bytes.
const WINDOW_BYTES: u64 = 64 * 1024 * 1024;

/// A frame in memory.
struct HeldFrame {
    epoch: Epoch,
    at: FrameAt,
    kind: FrameKind,
    /// The bounds of the payload in the window's bytes.
    from: usize,
    to: usize,
}

/// A reader of the frames of a run.
pub struct FramesByEpoch {
    run: Arc<Run>,
    /// The first epoch that was not read, and the last wanted one.
    next: Epoch,
    last: Epoch,
    window_bytes: u64,
    bytes: Vec<u8>,
    /// The frames of the window, the first ones at the end.
    held: Vec<HeldFrame>,
}

/// A frame that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameOfEpoch<'a> {
    /// The frame's commit epoch.
    pub epoch: Epoch,
    /// The frame's lowest partition, and its number there.
    pub at: FrameAt,
    /// The frame's kind.
    pub kind: FrameKind,
    /// The frame's payload.
    pub payload: &'a [u8],
}

impl Run {
    /// Returns a reader of the frames of the epochs `first` to `last`, inclusive.
    #[must_use]
    pub fn frames_by_epoch(self: &Arc<Run>, first: Epoch, last: Epoch) -> FramesByEpoch {
        let epochs = self.header.id.epochs;
        FramesByEpoch {
            run: Arc::clone(self),
            next: first.max(epochs.begin),
            last: last.min(epochs.last()),
            window_bytes: WINDOW_BYTES,
            bytes: Vec::new(),
            held: Vec::new(),
        }
    }
}

impl FramesByEpoch {
    /// Holds at most about `bytes` of frames in memory.
    #[must_use]
    pub fn within(self, bytes: u64) -> FramesByEpoch {
        FramesByEpoch {
            window_bytes: bytes,
            ..self
        }
    }

    /// Calls `each` with all frames of the next epoch that has any, sorted by their lowest partition and number. Returns
    /// `false` if no frame is left.
    ///
    /// # Errors
    /// [`perdura_base::Error::Corrupt`]; errors of the disk; the errors of `each`.
    pub fn next_epoch(
        &mut self,
        mut each: impl FnMut(FrameOfEpoch<'_>) -> Result<()>,
    ) -> Result<bool> {
        while self.held.is_empty() {
            if self.next > self.last || !self.fill()? {
                return Ok(false);
            }
        }
        let epoch = self.held.last().map(|frame| frame.epoch);
        while let Some(frame) = self.held.pop_if(|frame| Some(frame.epoch) == epoch) {
            each(FrameOfEpoch {
                epoch: frame.epoch,
                at: frame.at,
                kind: frame.kind,
                payload: &self.bytes[frame.from..frame.to],
            })?;
        }
        Ok(true)
    }

    /// Reads the next window. Returns `false` if the run has no frame of the rest.
    fn fill(&mut self) -> Result<bool> {
        let frames = self.run.frames.as_ref();
        let blocks = frames.map_or(&[][..], |frames| &frames.blocks);
        let (from, last) = (self.next, self.last);
        let is_wanted = |block: &FrameBlock| from <= block.epochs.1 && block.epochs.0 <= last;
        let numbered = blocks.iter().enumerate();
        let mut wanted: Vec<(usize, FrameBlock)> = numbered
            .filter(|(_, block)| is_wanted(block))
            .map(|(i, block)| (i, *block))
            .collect();
        if wanted.is_empty() {
            self.next = Epoch(last.0 + 1);
            return Ok(false);
        }
        // The window ends before the first block that does not fit. It has at least one epoch.
        wanted.sort_by_key(|(_, block)| block.epochs.0);
        let mut room = self.window_bytes;
        let beyond = wanted.iter().find(|(_, block)| {
            let takes = weight(block);
            let fits = takes <= room;
            room = room.saturating_sub(takes);
            !fits && block.epochs.0 > from
        });
        let to = beyond.map_or(last, |(_, block)| Epoch(block.epochs.0.0 - 1).min(last));
        wanted.retain(|(_, block)| block.epochs.0 <= to);
        self.bytes.clear();
        for (i, _) in wanted {
            self.read_block(i, from, to)?;
        }
        self.held
            .sort_unstable_by_key(|frame| (frame.epoch, frame.at));
        self.held.reverse();
        assert!(from <= to && to <= last, "a window has an epoch");
        self.next = Epoch(to.0 + 1);
        Ok(true)
    }

    /// Reads the frames of one block that are of the window.
    fn read_block(&mut self, block: usize, from: Epoch, to: Epoch) -> Result<()> {
        let mut cursor = self.run.block_of_frames(block);
        while cursor.advance()? {
            let Some(entry) = cursor.entry() else { break };
            let FrameOrPlace::Frame { kind, payload } = entry.carried else {
                continue;
            };
            if (from..=to).contains(&entry.epoch) {
                let start = self.bytes.len();
                self.bytes.extend_from_slice(payload);
                self.held.push(HeldFrame {
                    epoch: entry.epoch,
                    at: entry.at,
                    kind,
                    from: start,
                    to: self.bytes.len(),
                });
            }
        }
        debug_assert!(
            to_u64(self.held.len()) <= self.run.frames.as_ref().map_or(0, |frames| frames.count),
            "no frame is read twice"
        );
        Ok(())
    }
}
