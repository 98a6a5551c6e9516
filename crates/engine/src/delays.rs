//! Work that fails because of a disk. It is reported and retried with growing pauses. Such a failure does not stop the
//! database.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use perdura_base::{Error, Result, StreamId};

/// The number of nanoseconds that the pause after the first failure lasts. Each later failure doubles the pause.
const FIRST_NS: u64 = 100_000_000;
/// The maximum pause, in nanoseconds, for work that clients may wait for.
const URGENT_NS: u64 = 2_000_000_000;
/// The maximum pause, in nanoseconds, for work that no client waits for.
const LONGEST_NS: u64 = 60_000_000_000;
/// The pause of a flusher between two attempts on a full disk.
pub(crate) const FULL_RETRY: Duration = Duration::from_millis(100);

/// The work that can be delayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Work {
    /// The next segment of a stream's log.
    Segment(StreamId),
    /// Writing a stream's log.
    Flush(StreamId),
    /// Reporting to the anchor how far the log is durable.
    Vouch,
    /// A checkpoint.
    Checkpoint,
    /// The removal of files that a checkpoint could not remove.
    Removal,
    /// Archiving the log.
    Archive,
    /// Writing to the backlog while the archive cannot be reached.
    Backlog,
    /// A backup that an archive needs: its first one, or one after many increments.
    Backup,
    /// An increment of the archive's newest backup.
    Increment,
    /// Changing the view of the mirror.
    View,
    /// Merging the runs of the archive.
    Merge,
    /// Checking the files of the archive for damage.
    Objects,
}

impl Work {
    fn name(self) -> String {
        match self {
            Work::Segment(stream) => format!("preparing a segment of log stream {stream}"),
            Work::Flush(stream) => format!("writing log stream {stream}"),
            Work::Vouch => "writing the anchor".into(),
            Work::Checkpoint => "a checkpoint".into(),
            Work::Removal => "removing old files".into(),
            Work::Archive => "archiving the log".into(),
            Work::Backlog => "writing the archive's backlog".into(),
            Work::Backup => "a backup that the archive needs".into(),
            Work::Increment => "an increment of the archive's backup".into(),
            Work::View => "changing the view of the mirror".into(),
            Work::Merge => "merging the archive".into(),
            Work::Objects => "finding the archive's files whole".into(),
        }
    }

    fn longest_ns(self) -> u64 {
        match self {
            Work::Segment(_)
            | Work::Flush(_)
            | Work::Vouch
            | Work::View
            | Work::Archive
            | Work::Backlog => URGENT_NS,
            Work::Checkpoint
            | Work::Removal
            | Work::Backup
            | Work::Increment
            | Work::Merge
            | Work::Objects => LONGEST_NS,
        }
    }
}

/// Work that failed and is retried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delayed {
    /// The work.
    pub work: String,
    /// The error of the last attempt.
    pub error: String,
    /// Count of failed attempts.
    pub attempts: u32,
}

struct Failure {
    error: String,
    attempts: u32,
    pause_ns: u64,
    next_ns: u64,
}

/// The delayed work.
#[derive(Default)]
pub(crate) struct Delays {
    table: Mutex<BTreeMap<Work, Failure>>,
    /// The number of entries in `table`, so that frequent callers need no lock.
    count: AtomicUsize,
}

impl Delays {
    /// Returns whether the work may be tried now.
    pub fn is_due(&self, work: Work, now_ns: u64) -> bool {
        self.count.load(Ordering::Relaxed) == 0
            || (self.table.lock().get(&work)).is_none_or(|entry| entry.next_ns <= now_ns)
    }

    /// Notes a failure and returns the pause before the next attempt.
    pub fn failed(&self, work: Work, error: &Error, now_ns: u64) -> Duration {
        let mut table = self.table.lock();
        let entry = table.entry(work).or_insert(Failure {
            error: String::new(),
            attempts: 0,
            pause_ns: FIRST_NS,
            next_ns: 0,
        });
        let pause_ns = entry.pause_ns;
        assert!(
            pause_ns <= work.longest_ns(),
            "a pause is within its work's bound"
        );
        entry.error = error.to_string();
        entry.attempts = entry.attempts.saturating_add(1);
        entry.next_ns = now_ns.saturating_add(pause_ns);
        entry.pause_ns = (pause_ns * 2).min(work.longest_ns());
        self.count.store(table.len(), Ordering::Relaxed);
        Duration::from_nanos(pause_ns)
    }

    /// Notes the outcome of extending or writing a stream's log. After a failure, returns the pause before the next
    /// attempt. For a full disk this pause does not grow, so that writes continue soon after the disk has space.
    pub fn note_log(&self, work: Work, done: Result<()>, now_ns: u64) -> Duration {
        match done {
            Err(error) if !error.is_disk_full() => self.failed(work, &error, now_ns),
            Ok(()) => {
                self.done(work);
                Duration::ZERO
            }
            Err(_) => {
                self.done(work);
                FULL_RETRY
            }
        }
    }

    /// Returns the last error of the work. `None` if the work is not delayed.
    pub fn why(&self, work: Work) -> Option<String> {
        let table = self.table.lock();
        table.get(&work).map(|entry| entry.error.clone())
    }

    /// Notes that the work was done.
    pub fn done(&self, work: Work) {
        if self.count.load(Ordering::Relaxed) > 0 {
            let mut table = self.table.lock();
            assert_eq!(
                self.count.load(Ordering::Relaxed),
                table.len(),
                "the count changes under the table's lock"
            );
            table.remove(&work);
            self.count.store(table.len(), Ordering::Relaxed);
        }
    }

    /// Returns all delayed work.
    pub fn list(&self) -> Vec<Delayed> {
        if self.count.load(Ordering::Relaxed) == 0 {
            return Vec::new();
        }
        let table = self.table.lock();
        let delayed = |(work, entry): (&Work, &Failure)| Delayed {
            work: work.name(),
            error: entry.error.clone(),
            attempts: entry.attempts,
        };
        table.iter().map(delayed).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_doubles_up_to_its_bound_and_begins_anew_after_a_success() {
        let delays = Delays::default();
        let error = Error::LogFull("no".into());
        let work = Work::Segment(StreamId(1));
        let mut now = 0;
        let mut pauses = Vec::new();
        for _ in 0..7 {
            assert!(delays.is_due(work, now));
            let pause = delays.failed(work, &error, now);
            pauses.push(pause.as_millis());
            assert!(!delays.is_due(work, now));
            assert!(delays.is_due(Work::Removal, now));
            now += u64::try_from(pause.as_nanos()).unwrap();
        }
        assert_eq!(pauses, [100, 200, 400, 800, 1600, 2000, 2000]);
        assert_eq!(delays.list()[0].attempts, 7);
        delays.done(work);
        assert!(delays.list().is_empty());
        assert_eq!(delays.failed(work, &error, now).as_millis(), 100);
    }
}
