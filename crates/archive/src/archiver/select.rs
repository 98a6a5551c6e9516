//! What of the log goes into a run: the page records of its groups.

use perdura_base::flaw::{Flaw, armed};
use perdura_base::{Epoch, Error, Result};
use perdura_page::for_each_record;
use perdura_wal::{Frame, FrameKind, Origin};

use crate::quick::Quick;

/// The records of the run that is being collected.
pub(super) struct Selection {
    pub quick: Quick,
    /// Ordered frames that were passed over.
    pub ordered: u64,
    /// The epoch of the last frame.
    pub epoch: Epoch,
}

impl Selection {
    pub fn new(quick: Quick) -> Selection {
        Selection {
            epoch: quick.begin(),
            quick,
            ordered: 0,
        }
    }

    /// Takes a frame of the log.
    #[inline]
    pub fn take(&mut self, frame: &Frame<'_>, origin: &Origin) -> Result<()> {
        self.epoch = origin.epoch;
        match frame.kind {
            FrameKind::Group => self.take_group(frame.payload, origin),
            FrameKind::Effects | FrameKind::Command => {
                self.ordered += 1;
                Ok(())
            }
            FrameKind::BeginCheckpoint
            | FrameKind::EndCheckpoint
            | FrameKind::Restart
            | FrameKind::Beacon => Ok(()),
            FrameKind::Record => Err(Error::Usage(
                "the log is one of steal mode, which is not archived".into(),
            )),
        }
    }

    #[inline]
    fn take_group(&mut self, payload: &[u8], origin: &Origin) -> Result<()> {
        let quick = &mut self.quick;
        let mut epoch = origin.epoch;
        if armed(Flaw::RunCutInsideEpoch) {
            epoch = epoch.max(quick.begin());
        }
        let mut added = Ok(());
        let whole = for_each_record(payload, |record| {
            if added.is_ok() {
                added = quick.add(epoch, &record);
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
            format!("{} bytes that are none", payload.len()),
            "The checksums hold, so this is a bug in the writer. Keep a copy and report it.",
        ))
    }

    /// The seeded bug: whether the run is cut in the middle of an epoch.
    pub fn is_within(&self, begin: Epoch) -> bool {
        self.quick.is_full() && self.epoch >= begin
    }
}
