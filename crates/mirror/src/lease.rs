//! The lease: a time after the arbiter's confirmation of the writer's view. Within this time the writer's
//! acknowledgements may depend on the writer's disk.
//!
//! A node refuses a writer that was replaced, but a disk does not. If every process that can open the disk also sees
//! the lock of the data directory, the lock is enough. But a second machine may reach the disk without seeing the lock.
//! In this case the writer regularly asks the arbiter which view is in force. Each confirmation of the writer's view
//! renews the lease. The writer stops when the lease ends. A takeover waits longer than a lease before it reads the
//! disk. A mirror with two acknowledging nodes needs no lease, because the takeover seals the nodes.
//!
//! # Invariants
//! * An acknowledgement that depends on the disk is given only between the arbiter's first answer and the end of the
//!   lease.
//! * The lease begins before the question is sent. The wait of a takeover begins after the takeover's claim was stored.
//!   So the lease is over when the wait ends, if the clocks' speeds differ by at most an eighth.

use perdura_base::flaw::{Flaw, armed};

use crate::options::MirrorOptions;
use crate::view::{Mode, View};

/// The number of questions that the writer sends to the arbiter during one lease.
const ASKS: u64 = 4;

/// A writer's record of its lease.
pub(crate) struct Lease {
    /// The length of the lease, nanoseconds. 0: it never ends.
    lease_ns: u64,
    /// The time of a question to the arbiter, nanoseconds: the last one whose answer confirmed this writer's view.
    /// `None`: the view was never confirmed.
    asked_ns: Option<u64>,
    /// The time of the last question to the arbiter, nanoseconds. The question may be unanswered.
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

    /// Returns whether the writer needs a lease.
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

    /// Notes the arbiter's answer to the question that was sent at `asked_ns`: this writer's view is in force.
    pub fn note_in_force(&mut self, asked_ns: u64) {
        self.asked_ns = self.asked_ns.max(Some(asked_ns));
    }

    /// Returns whether acknowledgements of the writer may depend on the disk.
    pub fn holds(&self, now_ns: u64) -> bool {
        let is_in_time = |asked: u64| now_ns < asked.saturating_add(self.lease_ns);
        !self.is_needed() || self.asked_ns.is_some_and(is_in_time) || armed(Flaw::LeaseIgnored)
    }

    /// Returns the time since the beginning of a lease that is over, nanoseconds. The lease began when its question was
    /// sent. `None`: the lease is not over, or no lease has begun.
    pub fn over_ns(&self, now_ns: u64) -> Option<u64> {
        let asked_ns = self.asked_ns.filter(|_| !self.holds(now_ns))?;
        assert!(self.is_needed(), "what is for ever is not over");
        Some(now_ns - asked_ns)
    }
}

/// Returns whether acknowledgements of any stream depend on the disk alone, or on the disk together with one node.
pub(crate) fn rests_on_disk(view: &View) -> bool {
    let mut homes = view.homes.iter();
    homes.any(|home| !Mode::is_mirror(&view.groups[usize::from(*home)]))
}

impl MirrorOptions {
    /// Returns the time that a takeover must wait before it reads the last writer's disk, nanoseconds. The wait begins
    /// when the takeover has claimed the database. `claimed` is the view that the claim stored. It differs from the
    /// last writer's view only in the generation.
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
