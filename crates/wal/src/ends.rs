//! The position in each stream at which a closed epoch ends. An epoch's positions are kept until the epoch is durable
//! on every rung.

use std::collections::VecDeque;

use perdura_base::{Epoch, Error, Gsn, Pos, Result};

use crate::anchor::Vouched;
use crate::rung::{PerRung, Rung};

/// A closed epoch, with the epoch's end in each stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EpochEnds {
    /// The epoch.
    pub epoch: Epoch,
    /// The epoch's end in each stream.
    pub ends: Vec<Pos>,
}

impl EpochEnds {
    /// Checks that a log reaches this epoch, the end of an archive. `durable` is the durable end of the log. An archive
    /// contains only durable epochs, so a log that ends earlier has lost epochs.
    ///
    /// # Errors
    /// [`Error::LostLog`] with the archive's and the log's epoch. [`Error::Corrupt`] if the log reaches the epoch but
    /// not the positions.
    pub fn check_durable(&self, durable: &Vouched) -> Result<()> {
        if self.ends.len() != durable.ends.len() {
            return Err(Error::corrupt(
                "the archive",
                0,
                format!("an end in each of {} streams", durable.ends.len()),
                format!("{} ends", self.ends.len()),
                "This archive belongs to another log. Nothing was changed. Give the archive of \
                 this database.",
            ));
        }
        if self.epoch > durable.epoch {
            return Err(Error::LostLog {
                archived: self.epoch,
                durable: durable.epoch,
            });
        }
        let mut streams = (0u8..).zip(self.ends.iter().zip(&durable.ends));
        match streams.find(|(_, (archived, end))| archived > end) {
            None => Ok(()),
            Some((stream, (archived, end))) => Err(Error::corrupt(
                format!("log stream {stream}"),
                end.0,
                format!(
                    "the end of epoch {} at {archived}, as the archive has it",
                    self.epoch
                ),
                format!("the end of epoch {} at {end}", durable.epoch),
                "The log is not the one that was archived. Restore the database from the archive.",
            )),
        }
    }

    pub(crate) fn vouched(&self, wall_us: u64) -> Vouched {
        Vouched {
            epoch: self.epoch,
            wall_us,
            ends: self.ends.clone(),
        }
    }
}

/// A closed epoch, as the log keeps it.
pub(crate) struct Closed {
    pub ends: EpochEnds,
    /// The highest assigned operation number when the log began to close the epoch. All operations up to this number
    /// belong to this epoch or an older one.
    pub eosl: Gsn,
}

/// The closed epochs and the progress of the rungs. A rung has *passed* an epoch if the epoch is durable on the rung.
/// `closed` has, in order, the epochs that some rung has not passed yet. `passed` has the newest epoch that each rung
/// has passed.
pub(crate) struct Ends {
    pub closed: VecDeque<Closed>,
    pub passed: PerRung<Vouched>,
}

impl Ends {
    /// Returns a closed epoch; `None` if it is no longer kept.
    pub fn of(&self, epoch: Epoch) -> Option<&Closed> {
        let by_epoch = |closed: &Closed| closed.ends.epoch;
        let at = self.closed.binary_search_by_key(&epoch, by_epoch).ok()?;
        self.closed.get(at)
    }

    /// Checks that epochs are closed in order. In every stream, an epoch may not end before its predecessor.
    pub fn assert_follows(&self, epoch: Epoch, ends: &[Pos]) {
        if let Some(Closed { ends: last, .. }) = self.closed.back() {
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
        for durable in Rung::ALL.map(|rung| &self.passed[rung]) {
            assert!(
                durable.epoch < epoch && durable.ends.len() == ends.len(),
                "epoch {epoch} is closed after epoch {} is durable",
                durable.epoch
            );
        }
    }
}

/// An epoch that is being closed. `ends` has the epoch's end in each visited stream, and `None` for the rest.
pub(crate) struct Closing {
    pub epoch: Epoch,
    pub ends: Vec<Option<Pos>>,
    pub eosl: Gsn,
}
