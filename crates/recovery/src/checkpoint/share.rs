//! The share of a component in a checkpoint.

use perdura_base::{Pos, Result};

use super::{CheckpointParts, Checkpointer, Phase, Sweep, Taken};
use crate::anchor::Anchor;

/// A component's share in a checkpoint.
pub(crate) trait Share: Sync {
    /// Takes one step of a checkpoint, in a phase that belongs to the component.
    ///
    /// # Errors
    /// The disk's: the checkpoint is cancelled.
    fn step(&self, machine: &mut Checkpointer, sweep: &mut Sweep, phase: Phase) -> Result<Taken>;

    /// Gives up its part of a checkpoint: marks pages dirty again that may not be on disk.
    fn cancel(&self, machine: &mut Checkpointer, sweep: &Sweep);

    /// Enters its part of a checkpoint in the anchor. Called once everything that the part reflects is durable.
    ///
    /// # Panics
    /// If the component's part has not ended.
    fn name_in(&self, anchor: &mut Anchor, parts: &CheckpointParts, sweep: &Sweep);

    /// Returns, for each stream, the position from which the component needs the log, apart from the window's cover.
    /// Empty: it needs no more. Called before the end marks are appended.
    fn needs(&self, _: &CheckpointParts) -> Vec<Option<Pos>> {
        Vec::new()
    }
}
