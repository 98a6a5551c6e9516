//! The end of writing a run: what is left of the file, and its publication.

use perdura_base::flaw::{Flaw, armed};
use perdura_base::{Error, Result};
use perdura_device::Access;

use super::{Output, Progress, RunSummary};
use crate::name::RunId;
use crate::run::Digests;

/// What a run that has all its records does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    Write,
    Sync,
    Publish,
    SyncDir,
    Done,
    /// An I/O failed: nothing more is done.
    Failed,
}

/// The end of writing a run: one I/O a step.
pub struct Tail {
    pub(super) summary: RunSummary,
    pub(super) digests: Digests,
    pub(super) out: Output,
    pub(super) stage: Stage,
}

impl Tail {
    /// The digests of the run's records.
    #[must_use]
    pub fn digests(&self) -> &Digests {
        &self.digests
    }

    /// The update numbers that the run's records account for.
    #[must_use]
    pub fn updates(&self) -> u64 {
        self.summary.updates
    }

    /// The path of the file as long as the run does not exist.
    #[must_use]
    pub fn temporary(&self) -> &str {
        &self.out.temporary
    }

    /// Makes the next I/O. The run exists when this has returned [`Progress::Done`].
    ///
    /// # Errors
    /// The disk's; after one, [`Error::Stopped`]. [`Error::Usage`] if there is a run of that name.
    pub fn step(&mut self) -> Result<Progress<RunSummary>> {
        let stage = std::mem::replace(&mut self.stage, Stage::Failed);
        self.stage = match stage {
            Stage::Write => {
                self.out.write()?;
                if self.out.pending.is_empty() {
                    Stage::Sync
                } else {
                    Stage::Write
                }
            }
            Stage::Sync => {
                if !armed(Flaw::RenameBeforeSync) {
                    self.out.file.sync()?;
                }
                Stage::Publish
            }
            Stage::Publish => {
                publish(&self.out, self.summary.id)?;
                Stage::SyncDir
            }
            Stage::SyncDir => {
                self.out.disk.sync_dir(&self.out.dir)?;
                Stage::Done
            }
            Stage::Done => Stage::Done,
            Stage::Failed => {
                return Err(Error::Stopped(format!(
                    "{} was given up after a failed write",
                    self.out.temporary
                )));
            }
        };
        if self.stage != Stage::Done {
            return Ok(Progress::More);
        }
        self.summary.crc = self.out.crc;
        debug_assert_eq!(
            self.out.written, self.summary.bytes,
            "all bytes are written"
        );
        Ok(Progress::Done(self.summary.clone()))
    }

    /// Takes all steps that are left.
    ///
    /// # Errors
    /// As [`step`](Self::step).
    pub fn run(mut self) -> Result<RunSummary> {
        loop {
            if let Progress::Done(summary) = self.step()? {
                return Ok(summary);
            }
        }
    }
}

/// Gives the temporary file the run's name. A run that has the name already is not replaced.
fn publish(out: &Output, id: RunId) -> Result<()> {
    let path = id.path(&out.dir);
    match out.disk.open(&path, Access::Buffered) {
        Err(error) if error.is_not_found() => out.disk.rename(&out.temporary, &path),
        Err(error) => Err(error),
        Ok(_) => Err(Error::Usage(format!(
            "{path} exists and is not replaced: give the new run a higher generation"
        ))),
    }
}
