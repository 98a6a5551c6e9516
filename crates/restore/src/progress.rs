//! The progress of a restore.

use std::sync::atomic::{AtomicU64, Ordering};

/// The counters of a restore's progress. Another thread can read them during the restore.
///
/// The database may have grown since the backup was made, so the backup does not show how many pages the restore will
/// write. Keys are spread evenly over the partitions. So each unfinished partition is expected to get as many pages as
/// the finished partitions have on average.
#[derive(Debug, Default)]
pub struct RestoreProgress {
    pages: AtomicU64,
    in_backup: AtomicU64,
    partitions: AtomicU64,
    finished: AtomicU64,
    pages_of_finished: AtomicU64,
}

impl RestoreProgress {
    /// Begins a restore of `partitions` partitions from a backup with `in_backup` pages.
    pub(crate) fn begin(&self, in_backup: u64, partitions: u16) {
        self.in_backup.store(in_backup, Ordering::Relaxed);
        self.partitions
            .store(u64::from(partitions), Ordering::Relaxed);
    }

    pub(crate) fn add_page(&self) {
        self.pages.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a finished partition, which has `pages` pages.
    pub(crate) fn finish_partition(&self, pages: u64) {
        self.pages_of_finished.fetch_add(pages, Ordering::Relaxed);
        let finished = self.finished.fetch_add(1, Ordering::Relaxed) + 1;
        debug_assert!(
            finished <= self.partitions.load(Ordering::Relaxed),
            "a partition is finished once"
        );
    }

    /// Returns the number of pages that were written.
    #[must_use]
    pub fn pages(&self) -> u64 {
        self.pages.load(Ordering::Relaxed)
    }

    /// Returns an estimate of all pages that the restore will write, or `None` if no estimate is possible yet.
    #[must_use]
    pub fn expected(&self) -> Option<u64> {
        let finished = self.finished.load(Ordering::Relaxed);
        let each = self.pages_of_finished.load(Ordering::Relaxed);
        let all = each.saturating_mul(self.partitions.load(Ordering::Relaxed));
        let by_partitions = all.checked_div(finished);
        let expected = by_partitions.unwrap_or_else(|| self.in_backup.load(Ordering::Relaxed));
        (expected > 0).then(|| expected.max(self.pages()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An earlier version reported "N of about N pages, 0 s left" for every page of a restore without a backup.
    #[test]
    fn finished_partitions_say_how_many_pages_the_others_will_have() {
        let progress = RestoreProgress::default();
        progress.begin(0, 4);
        assert_eq!(progress.expected(), None);
        (0..100).for_each(|_| progress.add_page());
        assert_eq!(progress.expected(), None, "no partition is finished");
        progress.finish_partition(100);
        assert_eq!(progress.expected(), Some(400));
        (0..80).for_each(|_| progress.add_page());
        progress.finish_partition(80);
        assert_eq!(progress.expected(), Some(360));
        let with_backup = RestoreProgress::default();
        with_backup.begin(1000, 4);
        assert_eq!(with_backup.expected(), Some(1000));
    }
}
