//! The upkeep of an archive: merging runs, and removing the files that no promised moment needs. Each step makes one
//! I/O.
//!
//! The process with the right to merge also removes files. This is the database's process or an archive agent's
//! process. Once a minute, between two merges, the process searches for files to remove.

use std::sync::Arc;

use perdura_base::Result;
use perdura_page::RegionDigest;

use crate::merger::{Merger, MergerOptions, MergerStep};
use crate::output::Progress;
use crate::retention::Retention;
use crate::retention::retaining::{Removed, Retaining};
use crate::store::Store;

/// The time, in microseconds, between two searches for files to remove.
pub const LOOK_EVERY_US: u64 = 60_000_000;

/// The result of a step.
#[derive(Debug)]
pub enum UpkeepStep {
    /// The merger took a step.
    Merger(MergerStep),
    /// The search for files to remove took a step.
    Looked,
    /// A search for files to remove has ended. The counts tell how many files it removed.
    Removed(Removed),
}

/// The state machine that maintains an archive.
pub struct Upkeep {
    store: Arc<Store>,
    merger: Merger,
    retention: Retention,
    retaining: Option<Retaining>,
    /// The time of the next search for files to remove, by the wall clock, in microseconds since 1970.
    next_us: u64,
}

impl Upkeep {
    /// Takes the right to merge. The policy in `options` chooses the moments that a merge keeps. `retention` promises
    /// moments: the upkeep removes no file that a promised moment needs.
    ///
    /// # Errors
    /// Those of [`Merger::new`].
    pub fn new(
        store: Arc<Store>,
        options: MergerOptions,
        retention: Retention,
        digest: Arc<RegionDigest>,
    ) -> Result<Upkeep> {
        Ok(Upkeep {
            merger: Merger::new(Arc::clone(&store), options, digest)?,
            store,
            retention,
            retaining: None,
            next_us: 0,
        })
    }

    /// Returns the archive.
    #[must_use]
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Makes one I/O. `now_us` is the time by the wall clock, in microseconds since 1970.
    ///
    /// # Errors
    /// Those of [`Merger::step`] and [`Retaining::step`]. The next step begins a new merge or search.
    pub fn step(&mut self, now_us: u64) -> Result<UpkeepStep> {
        if let Some(mut retaining) = self.retaining.take() {
            return Ok(match retaining.step()? {
                Progress::Done(removed) => UpkeepStep::Removed(removed),
                Progress::More => {
                    self.retaining = Some(retaining);
                    UpkeepStep::Looked
                }
            });
        }
        let step = self.merger.step()?;
        let is_between = matches!(step, MergerStep::Idle | MergerStep::Merged(_));
        // If the clock was set back, the next search comes early, not late.
        let is_time = now_us >= self.next_us || self.next_us - now_us > LOOK_EVERY_US;
        if is_between && is_time {
            self.next_us = now_us.saturating_add(LOOK_EVERY_US);
            self.retaining = Retaining::new(Arc::clone(&self.store), &self.retention, now_us);
        }
        Ok(UpkeepStep::Merger(step))
    }
}
