//! The components: everything that holds pages. Each component takes part in checkpoints, in `verify`, and in listing
//! the contents that clients read.
//!
//! | component | its pages | its part of a checkpoint |
//! |---|---|---|
//! | [`heap`] | in memory; an image on disk has a copy of each page | a sweep, which copies pages to the older image |
//! | `tree` | on disk; a pool in memory caches some | pages that were dirty at the checkpoint's begin are written in place |
//!
//! The log records of components belong to owners (`owner`). The kind of a frame determines the player of the frame.
//! The player replays the frame into the component that logged it.
//!
//! # To add a component
//! Implement `Component` and `Share` in a file of this folder. Give the component phases in a checkpoint, and add it to
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

/// Every component, in the order of the shares of a checkpoint.
pub(crate) const COMPONENTS: [&dyn Component; 2] = [&heap::HeapPages, &tree::TreePages];

/// Returns the components' shares in a checkpoint, in the order of [`COMPONENTS`].
pub(crate) fn shares() -> [&'static dyn Share; 2] {
    COMPONENTS.map(|component| -> &'static dyn Share { component })
}

/// A component. Its part of a checkpoint is its [`Share`].
pub(crate) trait Component: Share {
    /// Checks each of the component's pages on disk.
    fn check_disk(&self, options: &RestartOptions, anchor: &Anchor, found: &mut Findings);

    /// Checks after a restart that the component's pages are consistent. Does not repeat the checks of
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
    /// The end of the stable log. A tree's page may be written, to make room in memory, only if no operation on the
    /// page has a higher number.
    pub eosl: Gsn,
}

impl Data<'_> {
    /// Checks that the pages are consistent. Does not repeat the checks that [`contents`](Self::contents) makes while
    /// it reads.
    ///
    /// # Errors
    /// The error of the first page that fails a check.
    pub fn check(&self, found: &mut Findings) -> Result<()> {
        let mut components = COMPONENTS.iter();
        components.try_for_each(|component| component.check_data(self, found))
    }

    /// Passes every key of every table to `take`, with the value that a client reads. The heap's tables come first, in
    /// ascending order. So table 0, the catalog, is the first of all. All values in the heap's tables are from one
    /// moment.
    ///
    /// # Errors
    /// The first error of `take`; [`Error::Corrupt`](perdura_base::Error::Corrupt) for an unreadable row;
    /// [`Error::LogFull`](perdura_base::Error::LogFull) while pages in memory wait for the log.
    pub fn contents(&self, take: &mut Take<'_>) -> Result<()> {
        let mut components = COMPONENTS.iter();
        components.try_for_each(|component| component.contents(self, take))
    }
}
