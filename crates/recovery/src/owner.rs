//! The owners of log records: everything that a restart plays, in one written order.
//!
//! | owner | frames | order it needs | its redo leaves |
//! |---|---|---|---|
//! | [`pages`] | groups and records of page changes | none, or by number | pages, catalog and indexes in memory |
//! | [`ordered`] | effects and commands | each partition's numbers | rows of key-addressed tables |
//! | [`tree`] | operations, changes of structure, notes | one number over all streams | pages of trees on disk, and the losers |
//!
//! A restart decides the log's end. Each owner plays its frames, in the order of [`OWNERS`]. The log becomes durable
//! before the first owner that writes pages in place. Then the anchor names the new life, and the log opens. Only now
//! are losers undone: a compensation in a life without a name would be made twice.
//!
//! # To add an owner
//! Give its frames a kind in `perdura_wal::FrameKind`. Implement [`Owner`] in a file of this folder, and add it to
//! [`OWNERS`] at its place in the order. Nothing else asks which owners there are.

mod ordered;
mod pages;
mod tree;

use perdura_base::Result;

use crate::anchor::Anchor;
use crate::claims::Claims;
use crate::options::RestartOptions;
use crate::report::RestartReport;
use crate::tree::{RestartedTree, TreeMeans};

pub(crate) use pages::Loaded;
#[cfg(test)]
pub(crate) use pages::load;

/// Every owner, in the order in which a restart plays their frames.
pub(crate) const OWNERS: [&dyn Owner; 3] = [&pages::Pages, &ordered::Ordered, &tree::Trees];

/// An owner of records.
pub(crate) trait Owner: Sync {
    /// Returns the frames that it plays behind the first pass, in a database with this anchor.
    fn claims(&self, anchor: &Anchor) -> Claims;

    /// Returns whether its redo writes pages on the disks of a database with this anchor: the log must be durable
    /// before.
    fn writes_in_place(&self, anchor: &Anchor) -> bool;

    /// Fails if the restart was given nothing that plays its frames, or may not play them.
    ///
    /// # Errors
    /// [`perdura_base::Error::Usage`].
    fn check(&self, restart: &RestartRun<'_>) -> Result<()>;

    /// Plays its frames, as far as the database has any.
    ///
    /// # Errors
    /// Those of the log, its pages and its player.
    fn redo(&self, restart: &mut RestartRun<'_>) -> Result<()>;
}

/// A restart on its way from one owner to the next.
pub(crate) struct RestartRun<'a> {
    pub options: &'a RestartOptions<'a>,
    pub anchor: &'a Anchor,
    /// What a tree is restarted with, if the caller has that.
    pub means: Option<&'a TreeMeans>,
    /// Pages in memory and the log's end, from the first owner on.
    pub loaded: Option<Loaded>,
    /// The tree, behind its owner.
    pub tree: Option<RestartedTree>,
    pub report: RestartReport,
}

impl<'a> RestartRun<'a> {
    /// Makes a restart that no owner has seen.
    pub fn new(
        options: &'a RestartOptions<'a>,
        anchor: &'a Anchor,
        means: Option<&'a TreeMeans>,
        report: RestartReport,
    ) -> RestartRun<'a> {
        RestartRun {
            options,
            anchor,
            means,
            loaded: None,
            tree: None,
            report,
        }
    }

    /// Asks every owner whether it can play.
    ///
    /// # Errors
    /// The first refusal.
    pub fn check(&self) -> Result<()> {
        OWNERS.iter().try_for_each(|owner| owner.check(self))
    }

    /// Returns what the first owner has loaded.
    ///
    /// # Panics
    /// If it has not.
    pub fn loaded(&self) -> &Loaded {
        self.loaded.as_ref().expect("pages are the first owner's")
    }
}

/// Returns what the owners of a database claim behind the first pass.
pub(crate) fn claims(anchor: &Anchor) -> Claims {
    let claims = OWNERS.iter().map(|owner| owner.claims(anchor));
    claims.fold(Claims::default(), Claims::and)
}
