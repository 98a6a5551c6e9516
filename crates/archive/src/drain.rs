//! The draining of a backlog. Each run of the backlog is written into the archive once, the oldest run first.
//!
//! ```text
//!  oldest run of the backlog ──► new run at the archive's end ──► manifest names it ──► backlog's run removed
//!                    (without the archive's epochs)
//! ```
//!
//! The backlog is a separate archive on a second disk. It receives the runs while the archive is unavailable. The last
//! manifest known to be durable gives the archive's end, and the backlog begins there. The archive may hold later
//! epochs, because a manifest or a run may have become durable although the disk reported a failure. So a run is not
//! copied unchanged. It is written again without the epochs that the archive already has. The omitted and the written
//! records together must have the digests of the run.
//!
//! The drain makes one I/O in each step, except in the step that opens a run. It only writes the runs. The caller adds
//! each run to the archive, and then calls [`Drain::added`].
//!
//! # Invariants
//! * A run is removed from the backlog only when a durable manifest of the archive covers its epochs.
//! * Records of a backlog are never combined. So every moment of the backlog's runs becomes a moment of the archive.

use std::sync::Arc;

use perdura_base::flaw::{Flaw, armed};
use perdura_base::{Epoch, Error, Pos, Result};
use perdura_page::RegionDigest;

use crate::manifest::Edit;
use crate::merge::{Merge, MergeOptions};
use crate::name::RunId;
use crate::output::Progress;
use crate::reader::Run;
use crate::run::{Codec, Moment, Moments};
use crate::store::{Publication, Store};
use crate::writer::RunSummary;

/// A run that the drain has written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drained {
    /// The run.
    pub summary: RunSummary,
    /// The position of its end in each stream of the log.
    pub ends: Vec<Pos>,
    /// The moments that it lists.
    pub moments: Moments,
}

/// The result of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DrainStep {
    /// The backlog has no run left.
    Empty,
    /// The drain made an I/O.
    Working,
    /// The drain has written a run that follows the archive's last run. The caller must add it to the archive.
    Run(Drained),
}

enum Stage {
    Idle,
    Write(Box<Merge>, Arc<Run>),
    /// A run was written, and the caller is adding it to the archive.
    Adding,
    /// The drain removes the backlog's runs up to the archive's end.
    Forget(Box<Publication>),
}

/// A state machine that moves the runs of a backlog into an archive.
pub struct Drain {
    backlog: Arc<Store>,
    archive: Arc<Store>,
    region: Arc<RegionDigest>,
    stage: Stage,
}

impl Drain {
    /// Begins to move the runs of `backlog` into `archive`.
    /// While the drain exists, no other process may add runs to the archive, and the backlog may only grow at its end.
    ///
    /// # Errors
    /// [`Error::ArchiveBehind`] if epochs are missing between the archive's end and the backlog's begin.
    pub fn new(
        backlog: Arc<Store>,
        archive: Arc<Store>,
        region: Arc<RegionDigest>,
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
            stage: Stage::Idle,
        })
    }

    /// Returns the archive.
    #[must_use]
    pub fn archive(&self) -> &Arc<Store> {
        &self.archive
    }

    /// Makes one I/O.
    ///
    /// # Errors
    /// Those of [`Merge::step`] and [`Publication::step`]. After an error this drain cannot be used. A new drain begins
    /// at the archive's end.
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
                    let moments = run.moments().list().iter().copied();
                    let epochs = summary.id.epochs;
                    let own = moments.filter(|moment| epochs.contains(moment.epoch));
                    return Ok(DrainStep::Run(Drained {
                        summary,
                        ends: run.ends().to_vec(),
                        moments: Moments::sampled(&own.collect::<Vec<Moment>>()),
                    }));
                }
            },
            Stage::Adding => {
                return Err(Error::Stopped(
                    "the backlog waits for its run to be added, or has failed".into(),
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

    /// Continues the drain after the run that was written last. The caller calls this when a durable manifest of the
    /// archive names that run.
    pub fn added(&mut self) {
        assert!(
            matches!(self.stage, Stage::Adding),
            "a run is added once it exists"
        );
        self.stage = self.forget(self.archive.manifest().end);
    }

    /// Removes the runs that end at or before epoch `before` from the backlog.
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
            begin: Some(end),
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
