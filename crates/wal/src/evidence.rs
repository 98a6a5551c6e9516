//! The facts that the blocks of a stream prove about the durable epoch.

use std::collections::BTreeMap;

use perdura_base::{CkptEpoch, Epoch, Gsn, Pos};

use crate::block::BlockHeader;

/// The facts that the blocks of a stream prove, those beyond its valid end included.
#[derive(Debug, Clone, Default)]
pub struct Evidence {
    /// The highest durable epoch any block names, and the block's position.
    pub durable: Option<(Epoch, Pos)>,
    /// The highest epoch that any block names as acknowledged, and the block's position.
    pub acked: Option<(Epoch, Pos)>,
    /// The ends of epochs, as their last blocks give them.
    pub ends: BTreeMap<Epoch, Vec<Pos>>,
    /// The highest commit epoch seen.
    pub epoch_max: Epoch,
    /// The highest checkpoint epoch seen.
    pub ckpt_max: CkptEpoch,
    /// The latest wall clock seen, microseconds.
    pub wall_us: u64,
    /// The highest number of an operation seen.
    pub gsn_max: Gsn,
    /// The position of a valid block so far beyond the end that a sync must have passed the end before the block was
    /// written. It proves that durable blocks are missing.
    pub out_of_reach: Option<Pos>,
}

impl Evidence {
    /// Adds the facts that a whole header proves.
    pub(crate) fn note(&mut self, header: &BlockHeader) {
        if self.durable.is_none_or(|(d, _)| header.durable > d) {
            self.durable = Some((header.durable, header.pos));
        }
        if self.acked.is_none_or(|(acked, _)| header.acked > acked) {
            self.acked = Some((header.acked, header.pos));
        }
        if let Some(ends) = &header.ends {
            self.ends.insert(header.epoch, ends.clone());
        }
        self.epoch_max = self.epoch_max.max(header.epoch);
        self.ckpt_max = self.ckpt_max.max(header.ckpt_epoch);
        self.wall_us = self.wall_us.max(header.wall_us);
        self.gsn_max = self.gsn_max.max(header.gsn);
    }
}
