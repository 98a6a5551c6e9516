//! The facts that the blocks of a stream prove about the durable epoch.

use std::collections::BTreeMap;

use perdura_base::{CkptEpoch, Epoch, Gsn, Pos};

use crate::block::BlockHeader;

/// Facts that the blocks of a stream prove. Blocks beyond the stream's valid end count too.
#[derive(Debug, Clone, Default)]
pub struct Evidence {
    /// The highest durable epoch that a block names, and the position of that block.
    pub durable: Option<(Epoch, Pos)>,
    /// The highest epoch that a block names as acknowledged, and the position of that block.
    pub acked: Option<(Epoch, Pos)>,
    /// The ends of epochs, from the last block of each.
    pub ends: BTreeMap<Epoch, Vec<Pos>>,
    /// The highest commit epoch in any block.
    pub epoch_max: Epoch,
    /// The highest checkpoint epoch in any block.
    pub ckpt_max: CkptEpoch,
    /// The latest wall clock in any block, microseconds since 1970.
    pub wall_us: u64,
    /// The highest operation number in any block.
    pub gsn_max: Gsn,
    /// The position of a valid block that lies so far beyond the end that a sync must have passed the end before the
    /// block was written. Such a block proves that durable blocks are missing.
    pub out_of_reach: Option<Pos>,
}

impl Evidence {
    /// Adds the facts that a block's header proves. The header is whole.
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
