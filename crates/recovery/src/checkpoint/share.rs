//! The share of a component in a checkpoint.

use perdura_base::{Pos, Result};

use super::{CheckpointParts, Checkpointer, Phase, Sweep, Taken};
use crate::anchor::Anchor;

/// A component's share in a checkpoint.
pub(crate) trait Share: Sync {
    /// Takes a step of a checkpoint in a phase of the component.
    ///
    /// # Errors
    /// The disk's: the checkpoint is cancelled.
    fn step(&self, machine: &mut Checkpointer, sweep: &mut Sweep, phase: Phase) -> Result<Taken>;

    /// Gives up its part of a checkpoint: pages that may not be on disk are dirty again.
    fn cancel(&self, machine: &mut Checkpointer, sweep: &Sweep);

    /// Enters its part of a checkpoint in the anchor, once everything that it reflects is durable.
    ///
    /// # Panics
    /// If its part has not ended.
    fn name_in(&self, anchor: &mut Anchor, parts: &CheckpointParts, sweep: &Sweep);

    /// Returns the position from which the log must be kept in each stream, besides the window's cover. Called before
    /// the end marks are appended.
    fn needs(&self, _: &CheckpointParts) -> Vec<Option<Pos>> {
        Vec::new()
    }
}
