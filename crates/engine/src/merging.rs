//! Upkeep of an open database's archive: merging runs and removing unneeded data, without delaying the archiver.
//!
//! The archiver opens the archive and shares it through [`Lent`]. The merger has threads and steps that are separate
//! from the archiver's. After a failure the archiver may open the archive again. A merge that was under way is then
//! given up. Its inputs still exist, so nothing is lost.
//!
//! The right to merge may belong to an archive agent, which is a separate process. The database then does not merge,
//! and reports no error. It checks every second whether the agent still has that right.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use perdura_archive::merger::MergedRun;
use perdura_archive::retention::retaining::Removed;
use perdura_archive::{MergerOptions, MergerStep, Retention, Upkeep, UpkeepStep};
use perdura_base::num::to_u64;
use perdura_base::{Error, Result};
use perdura_device::Clock;
use perdura_page::RegionDigest;

use crate::archiver::AtArchive;
use crate::delays::Work;
use crate::pace::thread_cpu_ns;
use crate::yielding::{Side, Yielding, urgency_of_runs};

pub use crate::lent::Lent;

/// While there is nothing to merge, the merger checks for work this often.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A waiting thread checks this often whether the database is being closed.
const TICK: Duration = Duration::from_millis(20);

/// The outcome of a step of merging.
#[derive(Debug)]
pub enum MergingStep {
    /// Nothing is to be merged now, or the archive is not open.
    Idle,
    /// Another process merges the archive.
    Elsewhere,
    /// One I/O was done.
    Worked,
    /// Runs were replaced.
    Merged(MergedRun),
    /// Data was removed, because the moments that the archive keeps do not need it.
    Removed(Removed),
}

/// Merges the archive of an open database, one I/O a step. Taking the right to merge counts as one
/// step.
pub struct Merging {
    lent: Lent,
    options: MergerOptions,
    retention: Retention,
    digest: Arc<RegionDigest>,
    running: Option<Upkeep>,
}

impl Merging {
    /// Returns a merger of the archive in `lent`. It keeps all data that `retention` promises to keep.
    #[must_use]
    pub fn new(lent: Lent, options: MergerOptions, retention: Retention) -> Merging {
        Merging {
            lent,
            options,
            retention,
            digest: Arc::new(RegionDigest::new()),
            running: None,
        }
    }

    /// Takes one step. `now_us` is the wall clock, microseconds since 1970.
    ///
    /// # Errors
    /// As [`Upkeep::new`] and [`Upkeep::step`]. The next step begins anew.
    pub fn step(&mut self, now_us: u64) -> Result<MergingStep> {
        let running = self.running.take();
        let Some(store) = self.lent.get() else {
            return Ok(MergingStep::Idle);
        };
        let is_same = |own: &Upkeep| Arc::ptr_eq(own.store(), &store);
        let Some(mut upkeep) = running.filter(is_same) else {
            let (options, retention) = (self.options.clone(), self.retention.clone());
            return match Upkeep::new(store, options, retention, Arc::clone(&self.digest)) {
                Ok(upkeep) => {
                    self.running = Some(upkeep);
                    Ok(MergingStep::Worked)
                }
                Err(Error::Locked { .. }) => Ok(MergingStep::Elsewhere),
                Err(error) => Err(error),
            };
        };
        let step = upkeep.step(now_us)?;
        debug_assert!(is_same(&upkeep), "it is the archive's");
        self.running = Some(upkeep);
        Ok(match step {
            UpkeepStep::Merger(MergerStep::Idle) => MergingStep::Idle,
            UpkeepStep::Merger(MergerStep::Merged(merged)) => MergingStep::Merged(merged),
            UpkeepStep::Merger(MergerStep::Worked | MergerStep::GivenUp(..))
            | UpkeepStep::Looked => MergingStep::Worked,
            UpkeepStep::Removed(removed) => MergingStep::Removed(removed),
        })
    }
}

impl AtArchive {
    /// Runs one of the merger's two threads; `side` says which.
    pub(crate) fn merger(&self, merging: &Mutex<Merging>, side: Side) {
        side.begin();
        let mut look_ns = 0;
        let mut yielding = Yielding::default();
        while !self.ground.is_stopping() {
            let now_ns = self.ground.now_ns();
            let before_ns = thread_cpu_ns();
            let is_due = look_ns <= now_ns && self.ground.delays.is_due(Work::Merge, now_ns);
            let urgency = urgency_of_runs(self.runs_now());
            let is_turn = yielding.is_turn(side, now_ns, urgency);
            if !is_due || !is_turn || self.ground.core.wal().failure().is_some() {
                std::thread::park_timeout(TICK);
            } else if self.merge_step(&mut merging.lock()) {
                look_ns = now_ns + u64::try_from(LOOK_EVERY.as_nanos()).unwrap_or(u64::MAX);
            } else if side == Side::High {
                let used_ns = thread_cpu_ns().saturating_sub(before_ns);
                let pause_ns = yielding.pause_ns(now_ns, used_ns, urgency);
                if pause_ns > 0 {
                    std::thread::sleep(Duration::from_nanos(pause_ns));
                }
            }
        }
    }

    /// Returns the number of runs of the archive, 0 if it is not open.
    fn runs_now(&self) -> usize {
        let store = self.lent.get();
        store.map_or(0, |store| store.manifest().runs().count())
    }

    /// Takes a step of the merger. Returns true if the merger has no work for a while.
    fn merge_step(&self, merging: &mut Merging) -> bool {
        assert!(self.archives, "there is an archive to merge");
        match merging.step(self.ground.clock.wall_us()) {
            Ok(MergingStep::Worked) => return false,
            Ok(MergingStep::Merged(merged)) => {
                assert!(merged.inputs >= 2, "runs were replaced by fewer");
                self.ground.delays.done(Work::Merge);
                self.stats.lock().add_merge(&merged);
                return false;
            }
            Ok(MergingStep::Removed(removed)) => {
                let mut stats = self.stats.lock();
                stats.removed_runs += to_u64(removed.runs);
                stats.removed_backups += to_u64(removed.backups);
                return false;
            }
            Ok(idle) => {
                self.ground.delays.done(Work::Merge);
                let is_elsewhere = matches!(idle, MergingStep::Elsewhere);
                self.stats.lock().merged_elsewhere = is_elsewhere;
            }
            Err(error) => {
                self.ground
                    .delays
                    .failed(Work::Merge, &error, self.ground.now_ns());
            }
        }
        true
    }
}
