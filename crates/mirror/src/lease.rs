//! The lease: the time after a successful question to the arbiter for which a writer may acknowledge by its disk.
//!
//! A node refuses a writer that was replaced, and a disk does not. If every process that can open the disk also sees
//! the lock of the data directory, the lock is enough. But another machine may reach the disk without seeing the
//! lock. Then the writer regularly asks the arbiter which view is in force, and stops if it has had no answer for the
//! length of the lease. A takeover waits longer than that before it reads the disk. While both nodes of a mirror
//! acknowledge, no lease is needed, because the takeover seals the nodes.
//!
//! # Invariants
//! * No acknowledgement by the disk is given after the end of the lease, or before the first answer of the arbiter.
//! * The lease counts from before the question was sent. The wait of a takeover counts from after its claim was
//!   stored. So the lease ends before the wait does, if no clock runs faster than another by more than an eighth.

use perdura_base::flaw::{Flaw, armed};

use crate::options::MirrorOptions;
use crate::view::{Mode, View};

/// The number of questions that the writer sends in the time of a lease.
const ASKS: u64 = 4;

/// A writer's record of its lease.
pub(crate) struct Lease {
    /// The length of the lease, nanoseconds. 0: it never ends.
    lease_ns: u64,
    /// The time of the last question to which the arbiter answered that this writer's view is in force, nanoseconds.
    /// `None`: no question was answered so.
    asked_ns: Option<u64>,
    /// The time of the last question, answered or not, nanoseconds.
    tried_ns: Option<u64>,
}

impl Lease {
    pub fn new(lease_ns: u64) -> Lease {
        Lease {
            lease_ns,
            asked_ns: None,
            tried_ns: None,
        }
    }

    /// Returns whether the writer needs a lease at all.
    pub fn is_needed(&self) -> bool {
        self.lease_ns > 0
    }

    /// Returns whether it is time to ask the arbiter. If so, notes the question as sent.
    pub fn take_due(&mut self, now_ns: u64) -> bool {
        let is_early = |tried: u64| now_ns < tried.saturating_add(self.lease_ns / ASKS);
        if !self.is_needed() || self.tried_ns.is_some_and(is_early) {
            return false;
        }
        self.tried_ns = Some(now_ns);
        true
    }

    /// Notes that the arbiter has answered the question of `asked_ns`: this writer's view is in force.
    pub fn note_in_force(&mut self, asked_ns: u64) {
        self.asked_ns = self.asked_ns.max(Some(asked_ns));
    }

    /// Returns whether the writer may acknowledge by the disk.
    pub fn holds(&self, now_ns: u64) -> bool {
        let is_in_time = |asked: u64| now_ns < asked.saturating_add(self.lease_ns);
        !self.is_needed() || self.asked_ns.is_some_and(is_in_time) || armed(Flaw::LeaseIgnored)
    }

    /// Returns the time since the question that began the lease, nanoseconds. `None`: the lease is not over, or has
    /// not begun.
    pub fn over_ns(&self, now_ns: u64) -> Option<u64> {
        let asked_ns = self.asked_ns.filter(|_| !self.holds(now_ns))?;
        assert!(self.is_needed(), "what is for ever is not over");
        Some(now_ns - asked_ns)
    }
}

/// Returns whether acknowledgements of any stream depend on the disk, alone or together with one node.
pub(crate) fn rests_on_disk(view: &View) -> bool {
    let mut homes = view.homes.iter();
    homes.any(|home| !Mode::is_mirror(&view.groups[usize::from(*home)]))
}

impl MirrorOptions {
    /// Returns the time that a takeover must wait before it reads the last writer's disk, nanoseconds. The wait
    /// begins when the takeover has claimed the database. `claimed` is the view of that claim, in which only the
    /// writer's generation has changed.
    #[must_use]
    pub fn takeover_wait_ns(&self, claimed: &View) -> u64 {
        let is_first = claimed.generation.0 <= 1;
        if is_first || !rests_on_disk(claimed) || armed(Flaw::LeaseNotAwaited) {
            return 0;
        }
        self.lease_ns.saturating_add(self.lease_ns / 8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_begins_with_an_answer_and_counts_from_its_question() {
        let mut lease = Lease::new(100);
        assert!(!lease.holds(0) && lease.over_ns(0).is_none());
        assert!(lease.take_due(10) && !lease.take_due(34) && lease.take_due(35));
        lease.note_in_force(10);
        assert!(lease.holds(109) && !lease.holds(110));
        assert_eq!((lease.over_ns(109), lease.over_ns(130)), (None, Some(120)));
        lease.note_in_force(35);
        lease.note_in_force(20);
        assert!(lease.holds(134) && !lease.holds(135));
    }

    #[test]
    fn without_a_time_it_is_never_asked_for_and_never_over() {
        let mut lease = Lease::new(0);
        assert!(!lease.take_due(u64::MAX) && lease.holds(u64::MAX));
        assert_eq!(lease.over_ns(u64::MAX), None);
    }
}
