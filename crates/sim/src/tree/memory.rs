//! A memory that holds the log of a tree in addition to the disks, like the memory of nodes. A crash may destroy it.
//!
//! The memory gets each block when the block is sealed. The seed decides when the block counts as durable there. The
//! block's commits may then be acknowledged before a disk has the block. Before the next life, the memory's blocks are
//! written to the log. If the memory was destroyed, the operator accepts the loss. The pages of a tree never depend on
//! the memory, so the tree is whole with the memory or without.

use std::sync::Arc;

use parking_lot::Mutex;
use perdura_base::num::{to_u64, to_usize};
use perdura_base::{Error, Pos, StreamId};
use perdura_recovery::truncate::truncation_floor;
use perdura_recovery::{Disks, read_anchor};
use perdura_steal::Keyed;
use perdura_wal::drain::{DrainLife, KeptTail, drain};

/// The part of a stream that the memory holds.
struct Held {
    from: Pos,
    bytes: Vec<u8>,
}

impl Held {
    fn end(&self) -> Pos {
        Pos(self.from.0 + to_u64(self.bytes.len()))
    }
}

/// A memory that holds the log of one life in addition to the disks.
#[derive(Clone)]
pub(crate) struct Memory(Arc<Mutex<Vec<Held>>>);

impl Memory {
    /// Returns a memory that holds all blocks logged after this call. First makes the earlier log durable.
    ///
    /// # Errors
    /// Errors of the log.
    pub fn beside(keyed: &Keyed) -> Result<Memory, Error> {
        keyed.flush_all()?;
        let wal = keyed.wal();
        let held = |stream| Held {
            from: wal.sealed_end(StreamId(stream)),
            bytes: Vec::new(),
        };
        let memory = Memory(Arc::new(Mutex::new((0..wal.streams()).map(held).collect())));
        let shipped = memory.clone();
        wal.ship_by(move |block| {
            let held = &mut shipped.0.lock()[usize::from(block.stream.0)];
            assert_eq!(held.end(), block.pos, "blocks are shipped without a gap");
            held.bytes.extend_from_slice(block.bytes);
        });
        Ok(memory)
    }

    /// Returns where the held part of a stream ends.
    pub fn end(&self, stream: StreamId) -> Pos {
        self.0.lock()[usize::from(stream.0)].end()
    }

    /// Writes the part of the held log that the disks lack. Returns the number of written blocks.
    ///
    /// # Errors
    /// Errors of the disks and of [`drain`].
    pub fn drain(&self, disks: &Disks) -> Result<u64, Error> {
        let Some(anchor) = read_anchor(disks.data.as_ref())? else {
            return Ok(0);
        };
        let (floor, mut blocks) = (truncation_floor(&anchor), 0);
        for (number, held) in (0u8..).zip(self.0.lock().iter()) {
            let at = usize::from(number);
            let life = anchor.drain_life(StreamId(number));
            let life = DrainLife {
                vouched: life.vouched.max(floor[at]),
                ..life
            };
            let from = life.vouched.max(held.from);
            if from >= held.end() {
                continue;
            }
            let tail = KeptTail {
                holder: "a memory".to_owned(),
                from,
                bytes: &held.bytes[to_usize(from.0 - held.from.0)..],
            };
            blocks += drain(&disks.logs[at], &life, &[tail])?.blocks;
        }
        Ok(blocks)
    }
}
