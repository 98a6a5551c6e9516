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
    /// The means to restart a tree, if the caller has them.
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

#[cfg(test)]
mod tests {
    use perdura_base::{CkptEpoch, Gsn, Uuid};
    use perdura_heap::Geometry;
    use perdura_wal::{FrameKind, History, Role, Scheme, SegmentSizes};

    use super::*;
    use crate::families::Family;
    use crate::sections::tree::TreeAnchor;

    fn anchor() -> Anchor {
        let sizes = SegmentSizes::fixed(64 << 10);
        let history = History::begin(Uuid([1; 16]), 1, Scheme::Differential, 1, sizes);
        let geometry = Geometry {
            partitions: 2,
            chunk_pages: 2,
            hash_seed: 1,
        };
        Anchor::new(history, geometry, 1)
    }

    #[test]
    fn an_owner_claims_what_the_anchor_declares_and_all_kinds_have_owners() {
        let mut anchor = anchor();
        assert!(claims(&anchor).is_empty(), "nothing is declared");
        for family in Family::ALL {
            anchor.families = anchor.families.with(family);
            assert!(claims(&anchor).has(family.kind()));
        }
        assert!(!claims(&anchor).has(FrameKind::Operations));
        anchor.tree = Some(TreeAnchor {
            page_bytes: 1024,
            rssp: Gsn(0),
            k: CkptEpoch(0),
        });
        for kind in FrameKind::ALL {
            let of_first_pass = match kind.role() {
                Role::Records | Role::BeginMark | Role::EndMark | Role::Log => true,
                Role::Ordered | Role::Numbered => false,
            };
            assert_ne!(claims(&anchor).has(kind), of_first_pass, "{}", kind.code());
        }
    }

    #[test]
    fn the_log_is_durable_before_pages_are_written_in_place_and_no_memory_owner_comes_later() {
        let mut anchor = anchor();
        assert!(OWNERS.iter().all(|owner| !owner.writes_in_place(&anchor)));
        anchor.tree = Some(TreeAnchor {
            page_bytes: 1024,
            rssp: Gsn(0),
            k: CkptEpoch(0),
        });
        let in_place = OWNERS.map(|owner| owner.writes_in_place(&anchor));
        assert_eq!(in_place, [false, false, true]);
        assert!(
            in_place.is_sorted(),
            "a pass in memory may still refuse the log"
        );
    }
}
