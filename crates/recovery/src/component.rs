//! The components: everything that holds pages, and its part in a checkpoint, in verify, and in what a client reads.
//!
//! | component | its pages | its part of a checkpoint |
//! |---|---|---|
//! | [`heap`] | in memory; an image on disk has a copy of each | a sweep, which copies pages to the older image |
//! | [`tree`] | on disk; a pool in memory has some | the pages that were dirty at its begin are written in place |
//!
//! Their records are the owners' ([`crate::owner`]): the kind of a frame chooses the player, and a player replays into
//! the component whose records it reads.
//!
//! # To add a component
//! Implement [`Component`] in a file of this folder, give it phases of a checkpoint, and add it to [`COMPONENTS`].

mod contents;
pub mod heap;
mod tree;

use perdura_base::{Gsn, Pos, Result, TableId};
use perdura_heap::Heap;
use perdura_tree::tree::Tree;

use crate::anchor::Anchor;
use crate::checkpoint::{CheckpointParts, Checkpointer, Phase, Sweep, Taken};
use crate::options::RestartOptions;
use crate::verify::Findings;

pub use contents::{Element, Elements, KeyContent, Value};

/// Every component, in the order of their parts of a checkpoint.
pub(crate) const COMPONENTS: [&dyn Component; 2] = [HEAP, TREES];
/// The pages in memory.
pub(crate) const HEAP: &dyn Component = &heap::HeapPages;
/// The trees.
pub(crate) const TREES: &dyn Component = &tree::TreePages;

/// A component.
pub(crate) trait Component: Sync {
    /// Takes a step of a checkpoint in a phase that is the component's.
    ///
    /// # Errors
    /// The disk's: the checkpoint is cancelled.
    fn step(&self, machine: &mut Checkpointer, sweep: &mut Sweep, phase: Phase) -> Result<Taken>;

    /// Gives its part of a checkpoint up: what may not be on disk is dirty again.
    fn cancel(&self, machine: &mut Checkpointer, sweep: &Sweep);

    /// Enters its part of a checkpoint in the anchor, once all that it reflects is durable.
    ///
    /// # Panics
    /// If its part has not ended.
    fn name_in(&self, anchor: &mut Anchor, parts: &CheckpointParts, sweep: &Sweep);

    /// Returns where the log must be kept from, in each stream, beside what the window covers. Asked before the end
    /// marks are appended.
    fn needs(&self, _: &CheckpointParts) -> Vec<Option<Pos>> {
        Vec::new()
    }

    /// Checks each of its pages on disk.
    fn check_disk(&self, options: &RestartOptions, anchor: &Anchor, found: &mut Findings);

    /// Checks its pages as a restart leaves them, all together, as far as [`contents`](Self::contents) does not.
    ///
    /// # Errors
    /// The error of the first page that is not what it must be.
    fn check_data(&self, _: &Data<'_>, _: &mut Findings) -> Result<()> {
        Ok(())
    }

    /// Lists what a client reads.
    ///
    /// # Errors
    /// The first error of `take`; [`Error::Corrupt`](perdura_base::Error::Corrupt) if a row cannot be read.
    fn contents(&self, data: &Data<'_>, take: &mut Take<'_>) -> Result<()>;
}

/// A reader of contents.
pub type Take<'a> = dyn FnMut(TableId, KeyContent<'_>) -> Result<()> + 'a;

/// The pages of a database that is back.
#[derive(Clone)]
pub struct Data<'a> {
    /// Those in memory.
    pub heap: &'a Heap,
    /// Those of trees.
    pub trees: Vec<&'a Tree>,
    /// The end of the stable log, up to which pages of trees may be written to make room.
    pub eosl: Gsn,
}

impl Data<'_> {
    /// Checks pages together, as far as reading all [`contents`](Self::contents) does not.
    ///
    /// # Errors
    /// The error of the first page that is not what it must be.
    pub fn check(&self, found: &mut Findings) -> Result<()> {
        let mut components = COMPONENTS.iter();
        components.try_for_each(|component| component.check_data(self, found))
    }

    /// Passes every key of every table to `take`, with what a client reads of it. Tables of the heap come first, in
    /// ascending order and at one moment, so that table 0, the catalog, is the first of all.
    ///
    /// # Errors
    /// The first error of `take`; [`Error::Corrupt`](perdura_base::Error::Corrupt) if a row cannot be read;
    /// [`Error::LogFull`](perdura_base::Error::LogFull) if pages in memory wait for the log.
    pub fn contents(&self, take: &mut Take<'_>) -> Result<()> {
        let mut components = COMPONENTS.iter();
        components.try_for_each(|component| component.contents(self, take))
    }
}
