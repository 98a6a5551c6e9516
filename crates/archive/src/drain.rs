//! A backlog becomes part of the archive: its runs are written into it, one after the other, each once.
//!
//! ```text
//!  oldest run of the backlog ──► a run of level 0 that follows the archive's ── manifest of the archive ──► no run of the backlog any more
//!                    (epochs that the archive has are left out)
//! ```
//!
//! The backlog is an archive of its own, in another place: runs that could not be written into the archive while that was away. It
//! begins where the archive ended as far as was known then. The archive may hold more: a manifest or a run may have become durable
//! although the disk said that it failed. So a run is not copied as it is, but written again without the epochs that the archive
//! has; what was left out and what was written must have the digests of the run.
//!
//! A machine of one I/O a step, but for the step that opens a run. It makes runs; the caller adds each to the archive, and
//! says so with [`Drain::added`].
//!
//! # Invariants
//! * A run leaves the backlog only when a durable manifest of the archive has its epochs.
//! * The runs of the backlog keep each epoch, so each moment of theirs is one of the archive's.

use std::sync::Arc;

use perdura_base::flaw::{Flaw, armed};
use perdura_base::{Epoch, Error, Pos, Result};
use perdura_page::RegionDigest;

use crate::manifest::Edit;
use crate::merge::{Follows, Merge, MergeOptions};
use crate::name::RunId;
use crate::output::Progress;
use crate::reader::Run;
use crate::run::Codec;
use crate::store::{Publication, Store};
use crate::writer::RunSummary;

/// What a step did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DrainStep {
    /// The backlog has no run that the archive lacks.
    Empty,
    /// An I/O.
    Working,
    /// A run exists that follows the archive's, and ends at these positions of the log's streams. It is to be added.
    Run(RunSummary, Vec<Pos>),
}

enum Stage {
    Idle,
    Write(Box<Merge>, Arc<Run>),
    /// The run exists, and its caller adds it.
    Adding,
    /// What the archive has goes.
    Forget(Box<Publication>),
}

/// Moves the runs of a backlog into an archive.
pub struct Drain {
    backlog: Arc<Store>,
    archive: Arc<Store>,
    region: Arc<RegionDigest>,
    /// The latest moment of the archive, microseconds since 1970.
    wall_us: u64,
    stage: Stage,
}

impl Drain {
    /// From one store into the other. `wall_us` is the latest moment of the archive. Nobody else adds runs to it, and nobody
    /// else changes the backlog but by adding runs to its end.
    ///
    /// # Errors
    /// [`Error::ArchiveBehind`] if there are epochs between the archive's end and the backlog's begin.
    pub fn new(
        backlog: Arc<Store>,
        archive: Arc<Store>,
        region: Arc<RegionDigest>,
        wall_us: u64,
    ) -> Result<Drain> {
        assert_eq!(backlog.uuid(), archive.uuid(), "both are of one database");
        let begin = backlog.manifest().begin;
        archive
            .manifest()
            .check_not_behind(Epoch(begin.0.saturating_sub(1)))?;
        Ok(Drain {
            backlog,
            archive,
            region,
            wall_us,
            stage: Stage::Idle,
        })
    }

    /// The archive.
    #[must_use]
    pub fn archive(&self) -> &Arc<Store> {
        &self.archive
    }

    /// Goes on by one I/O.
    ///
    /// # Errors
    /// As [`Merge::step`] and [`Publication::step`]. The drain is over: another one begins where the archive ends by then.
    pub fn step(&mut self) -> Result<DrainStep> {
        match std::mem::replace(&mut self.stage, Stage::Adding) {
            Stage::Idle => {
                let manifest = self.backlog.manifest();
                let end = self.archive.manifest().end;
                let Some(oldest) = manifest.runs().next() else {
                    self.stage = Stage::Idle;
                    return Ok(DrainStep::Empty);
                };
                self.stage = if oldest.epochs.end <= end {
                    self.forget(end)
                } else {
                    self.write(oldest, end)?
                };
            }
            Stage::Write(mut merge, run) => match merge.step()? {
                Progress::More => self.stage = Stage::Write(merge, run),
                Progress::Done(summary) => {
                    let moments = run.moments().list();
                    self.wall_us = self.wall_us.max(moments.last().map_or(0, |m| m.wall_us));
                    return Ok(DrainStep::Run(summary, run.ends().to_vec()));
                }
            },
            Stage::Adding => {
                return Err(Error::Stopped(
                    "the drain waits for its run to be added, or has failed".into(),
                ));
            }
            Stage::Forget(mut publication) => {
                if let Progress::More = publication.step()? {
                    self.stage = Stage::Forget(publication);
                } else {
                    self.stage = Stage::Idle;
                }
            }
        }
        Ok(DrainStep::Working)
    }

    /// Goes on behind a run that was added: a durable manifest of the archive names it.
    pub fn added(&mut self) {
        assert!(
            matches!(self.stage, Stage::Adding),
            "a run is added once it exists"
        );
        self.stage = self.forget(self.archive.manifest().end);
    }

    /// Takes the runs that end before `end` out of the backlog.
    fn forget(&self, before: Epoch) -> Stage {
        let edit = Edit::RemoveRuns { before };
        Stage::Forget(Box::new(self.backlog.publish(edit)))
    }

    fn write(&self, oldest: RunId, end: Epoch) -> Result<Stage> {
        assert!(
            oldest.epochs.contains(end),
            "the backlog goes on where the archive ends"
        );
        let run = self.backlog.open_run(oldest)?;
        if armed(Flaw::BacklogForgottenEarly) {
            let before = oldest.epochs.end;
            self.backlog.publish(Edit::RemoveRuns { before }).run()?;
        }
        let options = MergeOptions {
            codec: Codec::Lz4,
            follows: Some(Follows {
                begin: end,
                wall_us: self.wall_us,
            }),
            ..MergeOptions::default()
        };
        let merge = Merge::new(
            Arc::clone(self.archive.disk()),
            &self.archive.runs_dir(),
            vec![Arc::clone(&run)],
            options,
            Arc::clone(&self.region),
        )?;
        Ok(Stage::Write(Box::new(merge), run))
    }
}
