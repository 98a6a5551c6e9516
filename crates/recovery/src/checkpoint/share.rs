//! The *share* of a component in a checkpoint: the component's steps, and the component's entry in the anchor.

use perdura_base::{Pos, Result};

use super::{CheckpointParts, Checkpointer, Phase, Sweep, Taken};
use crate::anchor::Anchor;

/// A component's share in a checkpoint.
pub(crate) trait Share: Sync {
    /// Takes one step of a checkpoint, in a phase that belongs to the component.
    ///
    /// # Errors
    /// Errors of the disk, which cancel the checkpoint.
    fn step(&self, machine: &mut Checkpointer, sweep: &mut Sweep, phase: Phase) -> Result<Taken>;

    /// Gives up the component's part of a checkpoint. Marks each page that is perhaps not on disk as
    /// dirty again.
    fn cancel(&self, machine: &mut Checkpointer, sweep: &mut Sweep);

    /// Updates `anchor` with the component's part of a checkpoint. Called after everything that the part reflects has
    /// become durable.
    ///
    /// # Panics
    /// If the component's part has not ended.
    fn name_in(&self, anchor: &mut Anchor, parts: &CheckpointParts, sweep: &Sweep);

    /// Returns, for each stream, the first log position that the component needs. The checkpoint extends its cover back
    /// to this position. Empty: the cover is enough. Called before the end marks are appended.
    fn needs(&self, _: &CheckpointParts) -> Vec<Option<Pos>> {
        Vec::new()
    }
}
