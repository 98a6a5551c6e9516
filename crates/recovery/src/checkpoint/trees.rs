//! The trees' part of a checkpoint: pages that were dirty at its begin are written in place.

use perdura_base::Result;

use super::phase::{Event, Phase};
use super::{CheckpointProgress, Checkpointer, Sweep, Taken};
use crate::tree::live::Step;

impl Checkpointer {
    /// Writes pages of the first tree that is not finished. The step that finishes the last tree ends the phase.
    pub(crate) fn write_trees(&mut self, sweep: &mut Sweep) -> Result<Taken> {
        let clean = Taken::worked(Event::TreesClean, Phase::Mark);
        let Some(tree) = self.trees().get(sweep.redo_starts.len()) else {
            return Ok(clean);
        };
        let dirty = Taken::worked(Event::TreesDirty, Phase::Trees);
        Ok(match tree.checkpoint_step()? {
            Step::Worked => dirty,
            Step::Waits => {
                self.parts.wal.check()?;
                Taken {
                    progress: CheckpointProgress::Waiting,
                    ..dirty
                }
            }
            Step::Ended(rssp) => {
                sweep.redo_starts.push(rssp);
                let is_last = sweep.redo_starts.len() == self.trees().len();
                if is_last { clean } else { dirty }
            }
        })
    }
}
