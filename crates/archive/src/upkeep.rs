//! The upkeep of an archive: merging runs, and removing the files that no promised moment needs, one I/O a step.
//!
//! One process does both: the database's or that of an archive agent, whichever holds the right to merge. Once a
//! minute, between two merges, it looks for files to remove.

use std::sync::Arc;

use perdura_base::Result;
use perdura_page::RegionDigest;

use crate::merger::{Merger, MergerOptions, MergerStep};
use crate::output::Progress;
use crate::retention::Retention;
use crate::retention::retaining::{Removed, Retaining};
use crate::store::Store;

/// The time between two searches for files to remove, microseconds.
pub const LOOK_EVERY_US: u64 = 60_000_000;

/// The result of a step.
#[derive(Debug)]
pub enum UpkeepStep {
    /// The merger took a step.
    Merger(MergerStep),
    /// The search for files to remove took a step.
    Looked,
    /// A search for files to remove has ended. These were removed.
    Removed(Removed),
}

/// The machine that maintains an archive.
pub struct Upkeep {
    store: Arc<Store>,
    merger: Merger,
    retention: Retention,
    retaining: Option<Retaining>,
    /// The wall clock of the next search for files to remove, microseconds since 1970.
    next_us: u64,
}

impl Upkeep {
    /// Takes the right to merge. Merges keep the moments that the merger's options name. No file is removed that a
    /// moment promised by `retention` needs.
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
    /// Those of [`Merger::step`] and [`Retaining::step`]. The next step begins another merge or search.
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
        // If the clock was set back, the next search comes earlier, not later.
        let is_time = now_us >= self.next_us || self.next_us - now_us > LOOK_EVERY_US;
        if is_between && is_time {
            self.next_us = now_us.saturating_add(LOOK_EVERY_US);
            self.retaining = Retaining::new(Arc::clone(&self.store), &self.retention, now_us);
        }
        Ok(UpkeepStep::Merger(step))
    }
}
