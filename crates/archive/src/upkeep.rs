//! The upkeep of an archive: it merges runs, and removes the files that no promised moment needs. One I/O a step.
//!
//! One process does both, the one with the right to merge: the database's, or an archive agent. It looks for files to
//! remove once a minute, between two merges.

use std::sync::Arc;

use perdura_base::Result;
use perdura_page::RegionDigest;

use crate::merger::{Merger, MergerOptions, MergerStep};
use crate::output::Progress;
use crate::retention::Retention;
use crate::retention::retaining::{Removed, Retaining};
use crate::store::Store;

/// The interval of the looks for files to remove, microseconds.
pub const LOOK_EVERY_US: u64 = 60_000_000;

/// The result of a step.
#[derive(Debug)]
pub enum UpkeepStep {
    /// A step of the merger.
    Merger(MergerStep),
    /// An I/O of a look for files to remove.
    Looked,
    /// The end of a look, with the removed files.
    Removed(Removed),
}

/// The machine that maintains an archive.
pub struct Upkeep {
    store: Arc<Store>,
    merger: Merger,
    retention: Retention,
    retaining: Option<Retaining>,
    /// The time of its next look, microseconds since 1970.
    next_us: u64,
}

impl Upkeep {
    /// Takes the right to merge. The merger keeps the moments that its options name. Nothing is removed that
    /// `retention` promises.
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

    /// Makes one I/O. `now_us` is the wall clock, microseconds since 1970.
    ///
    /// # Errors
    /// Those of [`Merger::step`] and [`Retaining::step`]. The next step begins anew.
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
        // A clock that was set back makes it look sooner, not later.
        let is_time = now_us >= self.next_us || self.next_us - now_us > LOOK_EVERY_US;
        if is_between && is_time {
            self.next_us = now_us.saturating_add(LOOK_EVERY_US);
            self.retaining = Retaining::new(Arc::clone(&self.store), &self.retention, now_us);
        }
        Ok(UpkeepStep::Merger(step))
    }
}
