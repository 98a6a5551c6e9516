//! The easy way of the paper's section 3.2: the memory of one node acknowledges a block, and the block is copied to
//! disk afterwards.
//!
//! **It is not a mode of the database.** If this node ends, all data not yet on disk are lost, and no record of the
//! lost data remains. The paper rejects the easy way for that reason. Here the easy way is measured, and the data that
//! it would lose are counted. This shows the cost of the second memory. A database with only one remaining node
//! acknowledges a block when the node *and* the disk have the block.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{channel, sync_channel};
use std::time::Instant;

use anyhow::{Context, Result};
use hdrhistogram::Histogram;
use perdura_base::num::to_u64;
use perdura_device::AlignedBuf;
use serde::Serialize;

use crate::latency::{LatencyUs, histogram, micros, record};
use crate::num::{f64_of, ratio};
use crate::written::Written;

/// The maximum number of blocks that may wait for the disk. While this many blocks wait, the next append waits, too.
const BEHIND_MAX: usize = 64;

/// The times of the easy way, and the data that it would have lost.
#[derive(Debug, Serialize)]
pub struct EasyRow {
    /// The latency of an append. It ends when one node has acknowledged the block and the copier has it.
    pub latency_us: LatencyUs,
    /// The median latency, divided by the median latency of a durable write.
    pub of_disk: f64,
    /// The age of the oldest acknowledged block that was not yet on disk. It is measured at each acknowledgement. If
    /// the node had ended then, this block would have been lost.
    pub lost_with_the_node_us: LatencyUs,
    /// The maximum number of bytes that would have been lost if the node had ended.
    pub lost_with_the_node_bytes_max: u64,
}

/// The results of the easy way so far.
pub(super) struct Easy {
    latencies: Histogram<u64>,
    behind_us: Histogram<u64>,
    behind_bytes_max: u64,
}

impl Easy {
    pub fn new() -> Easy {
        Easy {
            latencies: histogram(),
            behind_us: histogram(),
            behind_bytes_max: 0,
        }
    }

    /// Calls `append` with `block`, `count` times. Each call returns when the node has the block. Another thread then
    /// copies each block to the disk. Returns when all blocks are on disk.
    pub fn turn(
        &mut self,
        (count, measured): (u32, bool),
        block: &[u8],
        disk: &mut Written,
        mut append: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let (blocks, copied) = sync_channel::<AlignedBuf>(BEHIND_MAX);
        let (back, spare) = channel();
        let durable = &AtomicU64::new(0);
        std::thread::scope(|scope| {
            let copier = scope.spawn(move || disk.follow(&copied, &back, durable));
            let mut appended = || {
                let (mut acknowledged, mut known) = (VecDeque::new(), 0);
                for _ in 0..count {
                    let begin = Instant::now();
                    append(block)?;
                    acknowledged.push_back(Instant::now());
                    let mut copy = spare
                        .try_recv()
                        .unwrap_or_else(|_| AlignedBuf::zeroed(block.len()));
                    copy.copy_from_slice(block);
                    blocks.send(copy).ok().context("the copy has ended")?;
                    let now = Instant::now();
                    while known < durable.load(Ordering::SeqCst) {
                        acknowledged.pop_front();
                        known += 1;
                    }
                    if measured {
                        record(&mut self.latencies, micros(now - begin), 1);
                        let age = acknowledged
                            .front()
                            .map_or(0, |oldest| micros(now - *oldest));
                        record(&mut self.behind_us, age, 1);
                        let bytes = to_u64(acknowledged.len() * block.len());
                        self.behind_bytes_max = self.behind_bytes_max.max(bytes);
                    }
                }
                Ok(())
            };
            let appended: Result<()> = appended();
            drop(blocks);
            let copied = copier.join();
            copied.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            appended
        })
    }

    pub fn outcome(&self, disk_p50: u64) -> EasyRow {
        let latency_us = LatencyUs::of(&self.latencies);
        EasyRow {
            latency_us,
            of_disk: ratio(f64_of(latency_us.p50), f64_of(disk_p50.max(1))),
            lost_with_the_node_us: LatencyUs::of(&self.behind_us),
            lost_with_the_node_bytes_max: self.behind_bytes_max,
        }
    }
}
