//! The counts of records and transactions in a replay.

use std::collections::BTreeMap;

use crate::rule::Gate;

/// The counts of a replay.
#[derive(Debug, Clone, Default)]
pub struct ReplayStats {
    /// Count of committed transactions seen.
    pub groups: u64,
    /// Records seen.
    pub seen: u64,
    /// Records applied.
    pub applied: u64,
    /// Records of unfinished transactions that a second pass undid.
    pub undone: u64,
    /// Records skipped, by the reason for skipping.
    pub skipped: BTreeMap<&'static str, u64>,
    /// Bytes of frames read.
    pub bytes: u64,
}

impl ReplayStats {
    /// Adds the counts of the player `other`.
    pub fn merge(&mut self, other: ReplayStats) {
        self.groups += other.groups;
        self.seen += other.seen;
        self.applied += other.applied;
        self.undone += other.undone;
        self.bytes += other.bytes;
        for (reason, count) in other.skipped {
            *self.skipped.entry(reason).or_default() += count;
        }
    }

    pub(crate) fn decided(&mut self, gate: Gate) -> bool {
        self.seen += 1;
        match gate {
            Gate::Apply => {
                self.applied += 1;
                true
            }
            Gate::Skip(why) => {
                *self.skipped.entry(why.name()).or_default() += 1;
                false
            }
        }
    }
}
