//! The facts that the blocks of a stream prove about the durable epoch.

use std::collections::BTreeMap;

use perdura_base::{CkptEpoch, Epoch, Gsn, Pos};

use crate::block::BlockHeader;

/// Facts that the blocks of a stream prove. Blocks beyond the stream's valid end count too.
#[derive(Debug, Clone, Default)]
pub struct Evidence {
    /// The highest durable epoch named in a block, and the block's position.
    pub durable: Option<(Epoch, Pos)>,
    /// The highest acknowledged epoch named in a block, and the block's position.
    pub acked: Option<(Epoch, Pos)>,
    /// The ends of each epoch, one for each stream. The epoch's last block in this stream names all of them.
    pub ends: BTreeMap<Epoch, Vec<Pos>>,
    /// The highest commit epoch in any block.
    pub epoch_max: Epoch,
    /// The highest checkpoint epoch in any block.
    pub ckpt_max: CkptEpoch,
    /// The latest wall clock in any block, in microseconds since 1970.
    pub wall_us: u64,
    /// The highest operation number in any block.
    pub gsn_max: Gsn,
    /// The position of a valid block that is farther beyond the stream's valid end than writes in flight can reach.
    /// When this block was written, the log was durable beyond that end. So durable blocks are missing.
    pub out_of_reach: Option<Pos>,
}

impl Evidence {
    /// Adds the facts that a block's header proves. The caller has checked that the header is whole.
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
