//! The selection of the page records and the ordered frames from the log's frames. They become a run.

use perdura_base::flaw::{Flaw, armed};
use perdura_base::{Epoch, Error, Result};
use perdura_page::for_each_record;
use perdura_wal::{Archived, Frame, Origin};

use super::ArchiverOptions;
use super::frames::{FrameSpace, SortedFrames};
use crate::generation::Player;
use crate::name::EpochRange;

/// The records of the run that is being collected.
pub(super) struct Selection {
    pub player: Player,
    /// The ordered frames in the run's epochs.
    frames: FrameSpace,
    /// The epoch of the last frame that was read.
    pub epoch: Epoch,
}

impl Selection {
    pub fn new(player: Player) -> Selection {
        Selection {
            epoch: player.begin(),
            player,
            frames: FrameSpace::default(),
        }
    }

    /// Returns whether the run should end with the epoch that is being read.
    pub fn is_full(&self, options: &ArchiverOptions) -> bool {
        self.player.is_full() || self.frames.bytes() >= options.workspace_bytes
    }

    /// Ends the collected run with the epoch before `end`. The next run begins with `end`. Returns the ended run's
    /// epochs and the ordered frames in these epochs.
    pub fn cut(
        &mut self,
        end: Epoch,
        options: &ArchiverOptions,
    ) -> Result<(EpochRange, SortedFrames)> {
        let epochs = self.player.cut(end, options)?;
        self.epoch = end;
        Ok((epochs, std::mem::take(&mut self.frames).cut()))
    }

    /// Takes a frame of the log: keeps the page records of a group and ordered frames, and ignores other frames.
    #[inline]
    pub fn take(&mut self, frame: &Frame<'_>, origin: &Origin) -> Result<()> {
        self.epoch = origin.epoch;
        match frame.kind.archive() {
            Archived::Omitted => Ok(()),
            Archived::Runs => self.take_group(frame.payload, origin),
            Archived::Carried => self.frames.add(frame.kind, frame.payload, origin),
            Archived::Refused(why) => Err(Error::Usage(why.into())),
        }
    }

    #[inline]
    fn take_group(&mut self, payload: &[u8], origin: &Origin) -> Result<()> {
        let player = &mut self.player;
        let mut epoch = origin.epoch;
        if armed(Flaw::RunCutInsideEpoch) {
            epoch = epoch.max(player.begin());
        }
        let mut added = Ok(());
        let whole = for_each_record(payload, |record| {
            if added.is_ok() {
                added = player.add(epoch, &record);
            }
        });
        added?;
        if whole.is_some() {
            return Ok(());
        }
        Err(Error::corrupt(
            format!("log stream {}", origin.stream),
            origin.pos.0,
            format!("a whole group of epoch {}", origin.epoch),
            format!("{} other bytes", payload.len()),
            "The checksums match, so this is a bug in Perdura. Copy the files and report the bug.",
        ))
    }

    /// Returns whether the seeded bug `Flaw::RunCutInsideEpoch` may cut the run now, in the middle of an epoch.
    pub fn is_within(&self, begin: Epoch) -> bool {
        self.player.is_full() && self.epoch >= begin
    }
}
