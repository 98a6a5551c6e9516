//! Where closed epochs end in each stream, until every rung has passed them.

use std::collections::VecDeque;

use perdura_base::{Epoch, Pos};

use crate::anchor::Vouched;
use crate::rung::{PerRung, Rung};

/// The ends of one closed epoch.
pub(crate) struct EpochEnds {
    pub epoch: Epoch,
    pub ends: Vec<Pos>,
}

impl EpochEnds {
    pub fn vouched(&self, wall_us: u64) -> Vouched {
        Vouched {
            epoch: self.epoch,
            wall_us,
            ends: self.ends.clone(),
        }
    }
}

/// The closed epochs that the slowest rung has not passed, in order, and the newest epoch that each
/// rung has passed.
pub(crate) struct Ends {
    pub closed: VecDeque<EpochEnds>,
    pub passed: PerRung<Vouched>,
}

impl Ends {
    /// Epochs are closed in order, and in no stream does an epoch end before the one before it.
    pub fn assert_follows(&self, epoch: Epoch, ends: &[Pos]) {
        if let Some(last) = self.closed.back() {
            assert!(
                last.epoch < epoch,
                "{} is closed before {epoch}",
                last.epoch
            );
            assert!(
                last.ends.iter().zip(ends).all(|(last, end)| last <= end),
                "epoch {epoch} ends before epoch {}",
                last.epoch
            );
        }
        let durable = &self.passed[Rung::Disk];
        assert!(
            durable.epoch < epoch && durable.ends.len() == ends.len(),
            "epoch {epoch} is closed after epoch {} is durable",
            durable.epoch
        );
    }
}

/// An epoch that is being closed: where each visited stream's part of it ends.
pub(crate) struct Closing {
    pub epoch: Epoch,
    pub ends: Vec<Option<Pos>>,
}
