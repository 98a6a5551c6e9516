//! A trial of a restore: merges some partitions and writes nothing, to estimate how long the restore takes.

use std::sync::atomic::{AtomicU16, Ordering};

use parking_lot::Mutex;
use perdura_archive::backup::READ_PAGES;
use perdura_base::limits::PAGE_BYTES;
use perdura_base::num::to_u64;
use perdura_base::{PageId, PartitionId, Result};
use perdura_device::{AlignedBuf, Clock};
use perdura_recovery::image::DirEntry;
use perdura_recovery::threads::run_threads;

use crate::part::{Merging, PageSink, Part};
use crate::plan::RestorePlan;
use crate::progress::RestoreProgress;

/// The result of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trial {
    /// The partitions that were merged.
    pub partitions: u16,
    /// The partitions of the database.
    pub of: u16,
    /// The pages of the merged partitions.
    pub pages: u64,
    /// The duration of the trial, nanoseconds.
    pub took_ns: u64,
}

impl Trial {
    /// Returns the expected number of pages of the restored database. Keys are spread evenly over the partitions.
    #[must_use]
    pub fn expected_pages(&self) -> u64 {
        self.scaled(self.pages)
    }

    /// Returns the expected time to read and merge everything, nanoseconds.
    #[must_use]
    pub fn expected_ns(&self) -> u64 {
        self.scaled(self.took_ns)
    }

    /// Returns the bytes of pages that the restore writes.
    #[must_use]
    pub fn expected_bytes(&self) -> u64 {
        self.expected_pages().saturating_mul(to_u64(PAGE_BYTES))
    }

    fn scaled(&self, measured: u64) -> u64 {
        let all = u128::from(measured) * u128::from(self.of);
        let scaled = all.checked_div(u128::from(self.partitions));
        scaled.map_or(measured, |all| u64::try_from(all).unwrap_or(u64::MAX))
    }
}

/// A sink that drops its pages.
struct Dropped(AlignedBuf);

impl PageSink for Dropped {
    fn page(&mut self, _: PageId) -> Result<&mut [u8]> {
        Ok(&mut self.0[..])
    }

    fn drop_last(&mut self) {}

    fn keep_last(&mut self, _: u32, _: &DirEntry) -> Result<()> {
        Ok(())
    }

    fn end_partition(&mut self, _: &mut Part) -> Result<()> {
        Ok(())
    }
}

/// Merges partitions for `limit_ns` nanoseconds, and at least one on each thread. Writes nothing.
///
/// # Errors
/// Damage of the backup or the runs; errors of the disk.
pub fn try_plan(
    plan: &RestorePlan,
    threads: usize,
    clock: &dyn Clock,
    limit_ns: u64,
) -> Result<Trial> {
    let of = plan.backup.header().chunks.partitions;
    let k = plan.image_number()?;
    let progress = RestoreProgress::default();
    progress.begin(plan.backup.pages(), of);
    let (next, merged) = (AtomicU16::new(0), Mutex::new((0_u16, 0_u64)));
    let begun_ns = clock.mono_ns();
    run_threads(threads.clamp(1, usize::from(of)), || {
        let sink = Dropped(AlignedBuf::zeroed(PAGE_BYTES));
        let mut merging = Merging::new(sink, k, k).reading(READ_PAGES);
        loop {
            let partition = next.fetch_add(1, Ordering::Relaxed);
            if partition >= of {
                return Ok(());
            }
            let part = merging.merge(plan, PartitionId(partition), &progress)?;
            {
                let mut merged = merged.lock();
                merged.0 += 1;
                merged.1 += to_u64(part.entries.len());
            }
            if clock.mono_ns().saturating_sub(begun_ns) >= limit_ns {
                return Ok(());
            }
        }
    })?;
    let (partitions, pages) = merged.into_inner();
    assert!(0 < partitions && partitions <= of, "each thread merges one");
    Ok(Trial {
        partitions,
        of,
        pages,
        took_ns: clock.mono_ns().saturating_sub(begun_ns),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trial_of_a_quarter_is_multiplied_by_four() {
        let trial = Trial {
            partitions: 4,
            of: 16,
            pages: 100,
            took_ns: 3_000,
        };
        assert_eq!(trial.expected_pages(), 400);
        assert_eq!(trial.expected_ns(), 12_000);
        assert_eq!(trial.expected_bytes(), 400 * 16_384);
    }
}
