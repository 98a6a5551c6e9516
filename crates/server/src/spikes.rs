//! Latency spikes: for each kind of event the times when it took longer than
//! `latency-monitor-threshold` says, at most one a second.

use std::collections::{BTreeMap, VecDeque};

/// So many of each kind are kept.
const SAMPLES_MAX: usize = 160;

/// One kind of event.
#[derive(Debug, Default)]
pub(crate) struct Spike {
    /// When, in seconds since 1970, and how long, in milliseconds; the newest last.
    pub samples: VecDeque<(u64, u64)>,
    /// The longest ever, milliseconds.
    pub max_ms: u64,
}

/// All kinds that have happened.
#[derive(Debug, Default)]
pub(crate) struct Spikes {
    kinds: BTreeMap<&'static str, Spike>,
}

impl Spikes {
    /// Notes an event; of one second the longest stands.
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

    /// The kinds with their samples.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&'static str, &Spike)> {
        self.kinds.iter().map(|(kind, spike)| (*kind, spike))
    }

    /// One kind.
    pub(crate) fn find(&self, kind: &[u8]) -> Option<&Spike> {
        let found = self.iter().find(|(name, _)| name.as_bytes() == kind);
        found.map(|(_, spike)| spike)
    }

    /// Forgets a kind; answers whether there was anything.
    pub(crate) fn forget(&mut self, kind: &[u8]) -> bool {
        let before = self.kinds.len();
        self.kinds.retain(|name, _| name.as_bytes() != kind);
        self.kinds.len() < before
    }

    /// Forgets all; answers how many kinds there were.
    pub(crate) fn clear(&mut self) -> usize {
        let count = self.kinds.len();
        self.kinds.clear();
        count
    }
}
