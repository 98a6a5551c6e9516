//! A node's ring of one stream, in the node's own memory or in memory shared with the writer.

use std::sync::Arc;

use perdura_base::{Pos, StreamId};

use super::Refusal;
use crate::ids::Generation;
use crate::mapped::MappedRing;
use crate::message::{Reason, RingState};
use crate::ring::{Ring, RingRefusal};
use crate::shared::{Memories, Shared};

/// A ring that a node keeps.
pub(super) enum NodeRing {
    /// A ring in the node's own memory. The writer appends by messages.
    Own(Ring),
    /// A ring in memory that the writer maps.
    Mapped(MappedRing),
    /// A mapped ring with memory that lacks appended bytes. The number is the sequence number of the damage report.
    Spoiled(MappedRing, u64),
}

impl NodeRing {
    /// Returns the first position of the ring and the ring's end.
    ///
    /// # Errors
    /// [`RingRefusal::Damaged`]
    pub fn extent(&self) -> Result<(Pos, Pos), RingRefusal> {
        match self {
            NodeRing::Own(ring) => Ok((ring.low(), ring.end())),
            NodeRing::Mapped(ring) | NodeRing::Spoiled(ring, _) => ring.extent(),
        }
    }

    pub fn size(&self) -> u64 {
        match self {
            NodeRing::Own(ring) => ring.size(),
            NodeRing::Mapped(ring) | NodeRing::Spoiled(ring, _) => ring.size(),
        }
    }

    /// Returns the number of bytes in the ring.
    pub fn len(&self) -> u64 {
        self.extent().map_or(0, |(low, end)| end.0 - low.0)
    }

    /// Appends bytes of the ring to `out`, like [`Ring::read`].
    ///
    /// # Errors
    /// [`RingRefusal::Outside`], [`RingRefusal::Damaged`].
    pub fn read(&self, from: Pos, len: u64, out: &mut Vec<u8>) -> Result<(), RingRefusal> {
        match self {
            NodeRing::Own(ring) => ring.read(from, len, out),
            NodeRing::Mapped(ring) | NodeRing::Spoiled(ring, _) => ring.read(from, len, out),
        }
    }

    /// Seals a mapped ring against later appends, because the writer of generation `by` has replaced the ring's writer.
    /// Other rings need no seal: appends by messages are refused because of their generation.
    pub fn seal(&mut self, by: Generation) {
        if let NodeRing::Mapped(ring) = self {
            ring.seal(by);
        }
    }

    /// Checks the memory of a mapped ring. Returns the sequence number of the ring's damage report; `None` if the ring
    /// is not damaged. If the memory lacks appended bytes, the ring becomes spoiled. Its damage report then gets number
    /// `next`, and its writer cannot append any more.
    pub fn damage(&mut self, next: u64) -> Option<u64> {
        match self {
            NodeRing::Own(_) => None,
            NodeRing::Spoiled(_, damage) => Some(*damage),
            NodeRing::Mapped(ring) => {
                ring.check().err()?;
                *self = NodeRing::Spoiled(ring.closed(), next);
                Some(next)
            }
        }
    }

    /// Moves the ring to the node's own memory. Its writer then appends by messages. If the ring ends before `start`,
    /// it is emptied and begins at `start`.
    ///
    /// # Errors
    /// The reason why the ring cannot be moved out of shared memory.
    pub fn own(&mut self, start: Pos) -> Result<(), RingRefusal> {
        if let NodeRing::Mapped(ring) = self {
            *self = NodeRing::Own(ring.take_back()?);
        }
        match self {
            NodeRing::Own(ring) if ring.end() < start => ring.restart(start),
            NodeRing::Own(_) => {}
            NodeRing::Mapped(_) => unreachable!("it was taken back"),
            NodeRing::Spoiled(..) => unreachable!("the caller has looked for damage"),
        }
        Ok(())
    }

    /// Moves the ring to memory that can be shared, and returns the memory. If the ring ends before `start`, it is
    /// emptied and begins at `start`. `None`: the memory could not be made.
    pub fn share(&mut self, start: Pos, memories: &Memories) -> Option<Arc<dyn Shared>> {
        if let NodeRing::Own(ring) = self {
            *self = NodeRing::Mapped(MappedRing::of(ring, memories)?);
        }
        let NodeRing::Mapped(ring) = self else {
            unreachable!("it was moved, and the caller has looked for damage");
        };
        if ring.extent().is_ok_and(|(_, end)| end < start) {
            ring.restart(start);
        }
        Some(ring.memory())
    }

    /// Returns the state of the ring for a reply.
    ///
    /// # Errors
    /// [`RingRefusal::Damaged`]
    pub fn state(
        &self,
        generation: Generation,
        stream: StreamId,
    ) -> Result<RingState, RingRefusal> {
        let (low, end) = self.extent()?;
        Ok(RingState {
            generation,
            stream,
            low,
            end,
        })
    }
}

pub(super) fn refusal_of(refusal: RingRefusal, at: Pos, size: u64) -> Refusal {
    let (reason, pos, text) = match refusal {
        RingRefusal::Position(end) => {
            let why = format!("a block at {at}, and the ring ends at {end}");
            (Reason::Position, end, why)
        }
        RingRefusal::Full => {
            let why = format!("no room for the block at {at} in a ring of {size} bytes");
            (Reason::Full, at, why)
        }
        RingRefusal::Outside { low, end } => {
            let why = format!("bytes at {at}, and the ring holds {low} to {end}");
            (Reason::Position, end, why)
        }
        RingRefusal::Damaged(pos) => {
            let why = format!("the memory does not hold what was appended at {pos}");
            (Reason::Damaged, pos, why)
        }
    };
    Refusal { reason, pos, text }
}
