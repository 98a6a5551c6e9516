//! The owners of log records. Everything that a restart plays has an owner, and [`OWNERS`] lists the owners in the
//! order of a restart.
//!
//! | owner | frames | order in which it plays them | result of its redo |
//! |---|---|---|---|
//! | [`pages`] | groups and records of page changes | any, or by number | pages, catalog and indexes in memory |
//! | [`ordered`] | effects and commands | by number within each partition | rows of key-addressed tables |
//! | [`tree`] | operations, changes of structure, notes | by number over all streams | pages of trees on disk, and a list of losers |
//!
//! A restart decides where the log ends. Then each owner plays its frames, in the order of [`OWNERS`]. The log is made
//! durable before the first owner that writes pages in place. Then the anchor names the new life, and the log opens.
//! Losers are undone only after that. Otherwise a crash before the anchor names the life would make the next restart
//! log the same compensations again.
//!
//! # To add an owner
//! Give its frames a kind in `perdura_wal::FrameKind`. Implement [`Owner`] in a file of this folder, and add it to
//! [`OWNERS`] at its place in the order. No other code depends on the set of owners.

mod ordered;
mod pages;
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

/// Every owner, in the order in which a restart plays their frames.
pub(crate) const OWNERS: [&dyn Owner; 3] = [&pages::Pages, &ordered::Ordered, &tree::Trees];

/// An owner of records.
pub(crate) trait Owner: Sync {
    /// Returns its name in reports.
    fn name(&self) -> &'static str;

    /// Returns the kinds of frames that it plays after the first pass, in a database with this anchor.
    fn claims(&self, _: &Anchor) -> Claims {
        Claims::default()
    }

    /// Returns whether its redo writes pages on the disks of a database with this anchor. If so, the log must be
    /// durable first.
    fn writes_in_place(&self, _: &Anchor) -> bool {
        false
    }

    /// Returns the method by which the owner plays its frames in a database with this anchor. `None`: the database has
    /// no frames of the owner.
    fn method<'a>(&self, methods: &'a Methods, anchor: &Anchor) -> Option<&'a Method>;

    /// Fails if the method that was given for the owner's frames cannot play the frames of a database with this anchor
    /// at this level.
    ///
    /// # Errors
    /// The reason.
    fn fits(&self, methods: &Methods, anchor: &Anchor, level: Level) -> Result<(), String>;

    /// Fails if the restart may not play the owner's frames. Called before anything is loaded.
    ///
    /// # Errors
    /// [`Error::Usage`].
    fn check(&self, _: &RestartRun<'_>) -> Result<()> {
        Ok(())
    }

    /// Plays its frames, if the database has any.
    ///
    /// # Errors
    /// Those of the log, its pages and its player.
    fn redo(&self, restart: &mut RestartRun<'_>) -> Result<()>;

    /// Counts the records of a frame. Returns whether its payload parses; `None` for another owner's frame.
    fn parses(&self, frame: Frame<'_>, counts: &mut FrameCounts) -> Option<bool>;

    /// Returns a frame as text; `None` for another owner's frame.
    fn dump(&self, frame: Frame<'_>) -> Option<FrameDump>;

    /// Undoes the transactions that the last life left open in the owner's pages. The new life, which the anchor now
    /// names, logs the undo. Returns the number of changes that were undone. An owner whose redo leaves nothing open
    /// does nothing.
    ///
    /// # Errors
    /// The log's and its pages'.
    fn settle(&self, _: &mut Open<'_>) -> Result<u64> {
        Ok(0)
    }

    /// As [`settle`](Self::settle), after a restart that changes nothing on the disks: in memory and without logging.
    /// The [`Gsn`] is the last number in the log.
    ///
    /// # Errors
    /// Its pages'.
    fn settle_in_memory(&self, _: &mut Option<RestartedTree>, _: Gsn) -> Result<u64> {
        Ok(0)
    }
}

/// The transactions that the last life left open, with the trees that the new life undoes them in.
pub(crate) struct Open<'a> {
    /// The trees, with the log of this life.
    pub trees: &'a [Arc<LiveTree>],
    /// The open transactions on rows of a tree.
    pub losers: Vec<Loser>,
}

/// The numbers of groups, records and ordered frames in a stream.
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
    /// The pages in memory and the log's end. Set by the first owner.
    pub loaded: Option<Loaded>,
    /// The tree. Set by the tree's owner.
    pub tree: Option<RestartedTree>,
    pub report: RestartReport,
}

impl<'a> RestartRun<'a> {
    /// Makes the state of a restart before the first owner.
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

    /// Checks with every owner that its frames can be played.
    ///
    /// # Errors
    /// The first refusal.
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
    /// The owner's.
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

    /// Returns the reads of the log since the decision about its end.
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

/// Fails if a given method cannot restart a database with this anchor at this level.
///
/// # Errors
/// The reason.
pub fn check_methods(methods: &Methods, anchor: &Anchor, level: Level) -> Result<(), String> {
    let mut owners = OWNERS.iter();
    owners.try_for_each(|owner| owner.fits(methods, anchor, level))
}

/// Returns whether a restart of a database with this anchor writes pages to its disks, in addition to log and anchor.
#[must_use]
pub fn writes_in_place(anchor: &Anchor) -> bool {
    OWNERS.iter().any(|owner| owner.writes_in_place(anchor))
}

/// Returns the names of the methods by which a database with this anchor is restarted. These are the given methods, if
/// there are any. Otherwise they are the methods of the owners after the first, or of the first owner if no other owner
/// has frames.
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

/// Returns a frame as text. Its owner writes the text, except for frames without an owner: these describe the log or a
/// checkpoint.
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

/// Returns the kinds of frames that the owners claim for passes after the first, in a database with this anchor.
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
