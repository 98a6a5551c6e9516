//! The owners of log records. Each record that a restart plays has an owner. A restart calls the owners in the order of
//! [`OWNERS`].
//!
//! | owner | its frames | order in which it plays its frames | result of its redo |
//! |---|---|---|---|
//! | [`pages`] | groups and records of page changes | any, or by number | pages, catalog and indexes in memory |
//! | [`ordered`] | effects and commands | by number within each partition | rows of key-addressed tables |
//! | [`tree`] | operations, changes of structure, notes | by number over all streams | pages of trees on disk, and a list of losers |
//!
//! A restart decides where the log ends. Then each owner plays its frames, in the order of [`OWNERS`]. The log is made
//! durable before the first owner that writes pages in place. After all owners have played, the anchor names the new
//! life, and the log opens. After that, the new life undoes the *losers*, the open transactions of the last life. The
//! undo must not begin before the anchor names the new life. Suppose that it did, and that the database crashed before
//! the anchor's update. Then the next restart would log the losers' compensations a second time.
//!
//! # To add an owner
//! Give its frames a kind in `perdura_wal::FrameKind`. Implement [`Owner`] in a file of this folder, and insert the
//! owner into [`OWNERS`] in the right order. No other code depends on the set of owners.

mod ordered;
pub(crate) mod pages;
mod tree;

use std::sync::Arc;

use perdura_base::{Error, Gsn, Result};
use perdura_wal::{Frame, UnitReads};

use crate::anchor::Anchor;
use crate::claims::Claims;
use crate::dump::{DumpedFrame, FrameDump, log_frame};
use crate::level::Level;
use crate::method::{Method, Methods};
use crate::options::RestartOptions;
use crate::report::{OwnerReads, RestartReport};
use crate::tree::RestartedTree;
use crate::tree::live::LiveTree;
use crate::tree::losers::Loser;

pub(crate) use pages::Loaded;
#[cfg(test)]
pub(crate) use pages::load;

/// All owners, in the order of playing.
pub(crate) const OWNERS: [&dyn Owner; 3] = [&pages::Pages, &ordered::Ordered, &tree::Trees];

/// An owner of records.
pub(crate) trait Owner: Sync {
    /// Returns the owner's name in reports.
    fn name(&self) -> &'static str;

    /// Returns the kinds of frames that the owner plays after the first pass, in a database with this anchor.
    fn claims(&self, _: &Anchor) -> Claims {
        Claims::default()
    }

    /// Returns whether the owner's redo writes pages on the disks of a database with this anchor. If so, the log must
    /// be durable before the redo.
    fn writes_in_place(&self, _: &Anchor) -> bool {
        false
    }

    /// Returns the method that plays the owner's frames in a database with this anchor. `None`: the database has no
    /// frames of the owner.
    fn method<'a>(&self, methods: &'a Methods, anchor: &Anchor) -> Option<&'a Method>;

    /// Fails if the operator chose a method for the owner's frames, and this method cannot play them. `anchor` is the
    /// database's anchor. `level` is the level at which the method would play.
    ///
    /// # Errors
    /// The reason.
    fn fits(&self, methods: &Methods, anchor: &Anchor, level: Level) -> Result<(), String>;

    /// Fails if this restart is not allowed to play the owner's frames. Called before anything is loaded.
    ///
    /// # Errors
    /// [`Error::Usage`].
    fn check(&self, _: &RestartRun<'_>) -> Result<()> {
        Ok(())
    }

    /// Plays the owner's frames, if the database has any.
    ///
    /// # Errors
    /// Errors of the log, of the owner's pages and of the owner's player.
    fn redo(&self, restart: &mut RestartRun<'_>) -> Result<()>;

    /// Counts, in `counts`, the groups, records or ordered frames that a frame holds. Returns whether the frame's
    /// payload parses; `None` for a frame that does not belong to this owner.
    fn parses(&self, frame: Frame<'_>, counts: &mut FrameCounts) -> Option<bool>;

    /// Returns a frame as text; `None` for a frame that does not belong to this owner.
    fn dump(&self, frame: Frame<'_>) -> Option<FrameDump>;

    /// Undoes, in the owner's pages, the changes of transactions that the last life left open. Returns how many changes
    /// were undone. Called after the anchor names the new life. The new life's log records the undo. If the owner's
    /// redo leaves no transaction open, this method does nothing.
    ///
    /// # Errors
    /// Errors of the log and of the owner's pages.
    fn settle(&self, _: &mut Open<'_>) -> Result<u64> {
        Ok(0)
    }

    /// Undoes changes like [`settle`](Self::settle), but in memory and without logging. Called after a restart that
    /// changes nothing on the disks. The [`Gsn`] is the last number in the log.
    ///
    /// # Errors
    /// Those of the owner's pages.
    fn settle_in_memory(&self, _: &mut Option<RestartedTree>, _: Gsn) -> Result<u64> {
        Ok(0)
    }
}

/// The open transactions of the last life, and the trees with the changes of these transactions.
pub(crate) struct Open<'a> {
    /// The trees, each with the log of the new life.
    pub trees: &'a [Arc<LiveTree>],
    /// The open transactions on rows of a tree.
    pub losers: Vec<Loser>,
}

/// Counts of groups, records and ordered frames in a stream.
#[derive(Default)]
pub(crate) struct FrameCounts {
    pub groups: u64,
    pub records: u64,
    pub ordered: u64,
}

/// The state of a restart, which is passed from owner to owner.
pub(crate) struct RestartRun<'a> {
    pub options: &'a RestartOptions,
    pub anchor: &'a Anchor,
    /// The pages in memory and the log's end. The first owner sets this field.
    pub loaded: Option<Loaded>,
    /// The restarted tree. The tree's owner sets this field.
    pub tree: Option<RestartedTree>,
    pub report: RestartReport,
}

impl<'a> RestartRun<'a> {
    /// Makes the state of a restart in which no owner has played yet.
    pub fn new(
        options: &'a RestartOptions,
        anchor: &'a Anchor,
        report: RestartReport,
    ) -> RestartRun<'a> {
        RestartRun {
            options,
            anchor,
            loaded: None,
            tree: None,
            report,
        }
    }

    /// Checks that every owner is able and allowed to play its frames.
    ///
    /// # Errors
    /// The error of the first owner that refuses.
    pub fn check(&self) -> Result<()> {
        let options = self.options;
        let fits = check_methods(&options.methods, self.anchor, options.schedule.level);
        fits.map_err(Error::Usage)?;
        OWNERS.iter().try_for_each(|owner| owner.check(self))
    }

    /// Makes an owner play its frames. If the database has frames of the owner, also reports how much log the owner
    /// read.
    ///
    /// # Errors
    /// The owner's error.
    pub fn redo(&mut self, owner: &dyn Owner) -> Result<()> {
        let before = self.log_reads();
        owner.redo(self)?;
        if owner.method(&self.options.methods, self.anchor).is_some() {
            let after = self.log_reads();
            assert!(
                after.reads >= before.reads && after.bytes >= after.reads,
                "reads are counted up, and each has bytes"
            );
            let seen = &self.report.log_reads;
            assert!(
                seen.iter().all(|by| by.owner != owner.name()),
                "an owner plays once"
            );
            self.report.log_reads.push(OwnerReads {
                owner: owner.name(),
                reads: after.reads - before.reads,
                bytes: after.bytes - before.bytes,
            });
        }
        Ok(())
    }

    /// Notes the pages in memory and the log's end, also in the report.
    pub fn note_pages(&mut self, loaded: Loaded) {
        assert!(self.loaded.is_none(), "the pages are loaded once");
        pages::report(&mut self.report, &loaded);
        self.loaded = Some(loaded);
    }

    /// Counts how often the log was read since the log's end was decided, and how many bytes were read.
    fn log_reads(&self) -> UnitReads {
        let scans = self.loaded.iter().flat_map(|loaded| &loaded.log.scans);
        scans.fold(UnitReads::default(), |all, scan| {
            let of_scan = scan.unit_reads();
            UnitReads {
                reads: all.reads + of_scan.reads,
                bytes: all.bytes + of_scan.bytes,
            }
        })
    }

    /// Returns the pages and the log that the first owner has loaded.
    ///
    /// # Panics
    /// If the first owner has not run.
    pub fn loaded(&self) -> &Loaded {
        self.loaded.as_ref().expect("pages are the first owner's")
    }
}

/// Fails if a method that the operator chose cannot restart a database with this anchor at this level.
///
/// # Errors
/// The reason.
pub fn check_methods(methods: &Methods, anchor: &Anchor, level: Level) -> Result<(), String> {
    let mut owners = OWNERS.iter();
    owners.try_for_each(|owner| owner.fits(methods, anchor, level))
}

/// Returns whether a restart of a database with this anchor writes pages to disks. Writes to the log and to the anchor
/// do not count.
#[must_use]
pub fn writes_in_place(anchor: &Anchor) -> bool {
    OWNERS.iter().any(|owner| owner.writes_in_place(anchor))
}

/// Returns the names of the restart methods of a database with this anchor. If the operator chose methods, returns
/// their names. Otherwise returns the default methods of the owners after the first owner. If only the first owner has
/// frames, returns its default method.
pub(crate) fn method_names(methods: &Methods, anchor: &Anchor) -> String {
    let given = methods.names();
    if !given.is_empty() {
        return given;
    }
    let of_owners = OWNERS.iter().map(|owner| owner.method(methods, anchor));
    let names: Vec<&str> = of_owners.flatten().map(|method| method.name).collect();
    match names.as_slice() {
        [only] => (*only).to_owned(),
        [_, later @ ..] => later.join("+"),
        [] => unreachable!("page records have a method"),
    }
}

/// Returns a frame as text. The frame's owner writes the text. Frames about the log itself or about a checkpoint have
/// no owner. The module `dump` writes the text of frames without an owner.
#[must_use]
pub fn dump(frame: Frame<'_>) -> DumpedFrame {
    let by_owner = OWNERS.iter().find_map(|owner| owner.dump(frame));
    assert_eq!(
        by_owner.is_some(),
        !frame.kind.role().is_log(),
        "frames with data have an owner, and no others"
    );
    DumpedFrame {
        kind: frame.kind.name(),
        bytes: frame.payload.len(),
        contents: by_owner.unwrap_or_else(|| log_frame(frame)),
    }
}

/// Returns the kinds of frames that are played after the first pass, in a database with this anchor. The owners claim
/// these kinds.
pub(crate) fn claims(anchor: &Anchor) -> Claims {
    let claims = OWNERS.iter().map(|owner| owner.claims(anchor));
    claims.fold(Claims::default(), Claims::and)
}

#[cfg(test)]
mod tests {
    use perdura_base::{CkptEpoch, Gsn};
    use perdura_wal::{FrameKind, Role, Scheme};

    use super::*;
    use crate::families::Family;
    use crate::sections::tree::TreeAnchor;

    #[test]
    fn an_owner_claims_what_the_anchor_declares_and_all_kinds_have_owners() {
        let mut anchor = Anchor::for_tests(1);
        assert!(claims(&anchor).is_empty(), "nothing is declared");
        for family in Family::ALL {
            anchor.families = anchor.families.with(family);
            assert!(claims(&anchor).has(family.kind()));
        }
        assert!(!claims(&anchor).has(FrameKind::Operations));
        anchor.tree = Some(TreeAnchor {
            scheme: Scheme::Logical,
            page_bytes: 1024,
            rssp: Gsn(0),
            k: CkptEpoch(0),
        });
        for kind in FrameKind::ALL {
            let of_first_pass = kind.role() == Role::Records || kind.role().is_log();
            assert_ne!(claims(&anchor).has(kind), of_first_pass, "{}", kind.code());
        }
    }

    #[test]
    fn the_log_is_durable_before_pages_are_written_in_place_and_no_memory_owner_comes_later() {
        let mut anchor = Anchor::for_tests(1);
        assert!(OWNERS.iter().all(|owner| !owner.writes_in_place(&anchor)));
        anchor.tree = Some(TreeAnchor {
            scheme: Scheme::Logical,
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

    #[test]
    fn every_frame_is_dumped_by_its_owner_and_says_if_it_does_not_parse() {
        for kind in FrameKind::ALL {
            let frame = Frame { kind, payload: &[] };
            let owned = OWNERS.iter().filter(|owner| owner.dump(frame).is_some());
            let has_owner = !kind.role().is_log();
            assert_eq!(owned.count(), usize::from(has_owner), "{}", kind.name());
            let detail = dump(frame).contents.detail.unwrap_or_default();
            let is_malformed = detail.contains("does not parse");
            assert_eq!(is_malformed, kind != FrameKind::Beacon, "{detail}");
        }
    }
}
