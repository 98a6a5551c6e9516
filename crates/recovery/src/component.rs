//! The components: everything that holds pages. Each component takes part in checkpoints, in `verify`, and in listing
//! the contents that clients read.
//!
//! | component | its pages | its part of a checkpoint |
//! |---|---|---|
//! | [`heap`] | in memory; an image on disk has a copy of each page | a sweep, which copies pages to the older image |
//! | `tree` | on disk; a pool in memory caches some | pages that were dirty at the checkpoint's begin are written in place |
//!
//! The records of components belong to the owners (`owner`): the kind of a frame chooses the player, and the player
//! replays the frame into the component that logged it.
//!
//! # To add a component
//! Implement `Component` and `Share` in a file of this folder, give it phases of a checkpoint, and add it to
//! `COMPONENTS`.

mod contents;
pub mod heap;
mod tree;

use perdura_base::{Gsn, Result, TableId};
use perdura_heap::Heap;
use perdura_tree::tree::Tree;

use crate::anchor::Anchor;
use crate::checkpoint::Share;
use crate::findings::Findings;
use crate::options::RestartOptions;

pub use contents::{Element, Elements, KeyContent, Value};

/// Every component, in the order in which a checkpoint runs their shares.
pub(crate) const COMPONENTS: [&dyn Component; 2] = [&heap::HeapPages, &tree::TreePages];

/// Returns the components' shares in a checkpoint, in the order of [`COMPONENTS`].
pub(crate) fn shares() -> [&'static dyn Share; 2] {
    COMPONENTS.map(|component| -> &'static dyn Share { component })
}

/// A component. Its part of a checkpoint is its [`Share`].
pub(crate) trait Component: Share {
    /// Checks each of its pages on disk.
    fn check_disk(&self, options: &RestartOptions, anchor: &Anchor, found: &mut Findings);

    /// Checks that its pages, as a restart leaves them, agree with each other. Does not repeat the checks of
    /// [`contents`](Self::contents).
    ///
    /// # Errors
    /// The error of the first page that fails a check.
    fn check_data(&self, _: &Data<'_>, _: &mut Findings) -> Result<()> {
        Ok(())
    }

    /// Lists the keys and values that a client reads.
    ///
    /// # Errors
    /// The first error of `take`; [`Error::Corrupt`](perdura_base::Error::Corrupt) if a row cannot be read.
    fn contents(&self, data: &Data<'_>, take: &mut Take<'_>) -> Result<()>;
}

/// The callback of [`Data::contents`]; called with a table and one key of it.
pub type Take<'a> = dyn FnMut(TableId, KeyContent<'_>) -> Result<()> + 'a;

/// The pages of a database after its restart.
#[derive(Clone)]
pub struct Data<'a> {
    /// The pages in memory.
    pub heap: &'a Heap,
    /// The pages of trees.
    pub trees: Vec<&'a Tree>,
    /// The end of the stable log, up to which pages of trees may be written to make room.
    pub eosl: Gsn,
}

impl Data<'_> {
    /// Checks that the pages agree with each other. Does not repeat the checks that [`contents`](Self::contents) makes
    /// while it reads.
    ///
    /// # Errors
    /// The error of the first page that fails a check.
    pub fn check(&self, found: &mut Findings) -> Result<()> {
        let mut components = COMPONENTS.iter();
        components.try_for_each(|component| component.check_data(self, found))
    }

    /// Passes every key of every table to `take`, with the value that a client reads. The heap's tables come first, in
    /// ascending order and all as of one moment. So table 0, the catalog, is the first of all.
    ///
    /// # Errors
    /// The first error of `take`; [`Error::Corrupt`](perdura_base::Error::Corrupt) if a row cannot be read;
    /// [`Error::LogFull`](perdura_base::Error::LogFull) if pages in memory wait for the log.
    pub fn contents(&self, take: &mut Take<'_>) -> Result<()> {
        let mut components = COMPONENTS.iter();
        components.try_for_each(|component| component.contents(self, take))
    }
}
