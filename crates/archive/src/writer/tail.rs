//! The end of writing a run: the rest of the file, and its publication.

use perdura_base::Result;

use super::RunSummary;
use crate::output::{Ending, Progress};
use crate::run::Digests;

/// The end of writing a run: a machine of one I/O a step.
pub struct Tail {
    pub(super) summary: RunSummary,
    pub(super) digests: Digests,
    pub(super) ending: Ending,
}

impl Tail {
    /// Returns the digests of the run's records.
    #[must_use]
    pub fn digests(&self) -> &Digests {
        &self.digests
    }

    /// Returns the number of update numbers that the run's records account for.
    #[must_use]
    pub fn updates(&self) -> u64 {
        self.summary.updates
    }

    /// Returns the path of the file as long as the run does not exist.
    #[must_use]
    pub fn temporary(&self) -> &str {
        self.ending.temporary()
    }

    /// Makes the next I/O. The run exists when this has returned [`Progress::Done`].
    ///
    /// # Errors
    /// The disk's; after one, [`perdura_base::Error::Stopped`]. [`perdura_base::Error::Usage`] if a run of that name
    /// exists.
    pub fn step(&mut self) -> Result<Progress<RunSummary>> {
        let Progress::Done((bytes, crc)) = self.ending.step()? else {
            return Ok(Progress::More);
        };
        debug_assert_eq!(bytes, self.summary.bytes, "all bytes are written");
        self.summary.crc = crc;
        Ok(Progress::Done(self.summary.clone()))
    }

    /// Takes all steps that are left.
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
