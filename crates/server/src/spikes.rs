//! Latency spikes: events that took longer than `latency-monitor-threshold`. For each kind of event, at most one spike
//! a second is kept.

use std::collections::{BTreeMap, VecDeque};

/// The maximum number of samples of each kind.
const SAMPLES_MAX: usize = 160;

/// The samples of one kind of event.
#[derive(Debug, Default)]
pub(crate) struct Spike {
    /// The samples, the newest last. Each is a time in seconds since 1970 and a duration in milliseconds.
    pub samples: VecDeque<(u64, u64)>,
    /// The longest duration so far, milliseconds.
    pub max_ms: u64,
}

/// All kinds of events that have happened.
#[derive(Debug, Default)]
pub(crate) struct Spikes {
    kinds: BTreeMap<&'static str, Spike>,
}

impl Spikes {
    /// Notes an event. Of several events of one kind within a second, only the longest is kept.
    pub(crate) fn note(&mut self, kind: &'static str, at_seconds: u64, ms: u64) {
        let spike = self.kinds.entry(kind).or_default();
        spike.max_ms = spike.max_ms.max(ms);
        match spike.samples.back_mut() {
            Some(last) if last.0 == at_seconds => last.1 = last.1.max(ms),
            _ => spike.samples.push_back((at_seconds, ms)),
        }
        if spike.samples.len() > SAMPLES_MAX {
            spike.samples.pop_front();
        }
        debug_assert!(
            spike.samples.len() <= SAMPLES_MAX,
            "no more samples are kept than may be"
        );
        debug_assert!(
            spike.samples.iter().all(|(_, ms)| *ms <= spike.max_ms),
            "no sample is above the greatest"
        );
    }

    /// Returns the kinds with their samples.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&'static str, &Spike)> {
        self.kinds.iter().map(|(kind, spike)| (*kind, spike))
    }

    /// Returns the samples of a kind.
    pub(crate) fn find(&self, kind: &[u8]) -> Option<&Spike> {
        let found = self.iter().find(|(name, _)| name.as_bytes() == kind);
        found.map(|(_, spike)| spike)
    }

    /// Forgets a kind. Returns whether it had samples.
    pub(crate) fn forget(&mut self, kind: &[u8]) -> bool {
        let before = self.kinds.len();
        self.kinds.retain(|name, _| name.as_bytes() != kind);
        self.kinds.len() < before
    }

    /// Forgets all kinds. Returns their number.
    pub(crate) fn clear(&mut self) -> usize {
        let count = self.kinds.len();
        self.kinds.clear();
        count
    }
}
