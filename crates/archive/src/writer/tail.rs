//! The end of writing a run: the last writes and the publication.

use perdura_base::Result;

use super::RunSummary;
use crate::output::{Ending, Progress};
use crate::run::{Digests, Frames};

/// A state machine that finishes the file of a run, one I/O a step.
pub struct Tail {
    pub(super) summary: RunSummary,
    pub(super) digests: Digests,
    pub(super) frames: Frames,
    pub(super) ending: Ending,
}

impl Tail {
    /// Returns the digests of the run's records.
    #[must_use]
    pub fn digests(&self) -> &Digests {
        &self.digests
    }

    /// Returns the description of the run's ordered frames.
    #[must_use]
    pub fn frames(&self) -> &Frames {
        &self.frames
    }

    /// Returns the number of updates in the run's records.
    #[must_use]
    pub fn updates(&self) -> u64 {
        self.summary.updates
    }

    /// Returns the temporary path, which the file has until it is published.
    #[must_use]
    pub fn temporary(&self) -> &str {
        self.ending.temporary()
    }

    /// Makes the next I/O. After [`Progress::Done`] the run is durable under its name.
    ///
    /// # Errors
    /// Errors of the disk; [`perdura_base::Error::Usage`] if a run of that name exists. Every step after a failed one
    /// returns [`perdura_base::Error::Stopped`].
    pub fn step(&mut self) -> Result<Progress<RunSummary>> {
        let Progress::Done((bytes, crc)) = self.ending.step()? else {
            return Ok(Progress::More);
        };
        debug_assert_eq!(bytes, self.summary.bytes, "all bytes are written");
        self.summary.crc = crc;
        Ok(Progress::Done(self.summary.clone()))
    }

    /// Takes the remaining steps.
    ///
    /// # Errors
    /// Those of [`step`](Self::step).
    pub fn run(mut self) -> Result<RunSummary> {
        loop {
            if let Progress::Done(summary) = self.step()? {
                return Ok(summary);
            }
        }
    }
}
