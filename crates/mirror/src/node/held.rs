//! A node's ring of one stream, either its own or one that it shares with the writer on its machine.

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
    /// In the node's own memory: appends are messages.
    Own(Ring),
    /// In memory that the writer maps.
    Mapped(MappedRing),
    /// In memory that was mapped and does not hold the appended bytes. The number names the damage.
    Spoiled(MappedRing, u64),
}

impl NodeRing {
    /// Returns the first position of the ring and the position behind its last byte.
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

    /// Returns the number of bytes held.
    pub fn len(&self) -> u64 {
        self.extent().map_or(0, |(low, end)| end.0 - low.0)
    }

    /// Copies bytes of the ring, like [`Ring::read`].
    ///
    /// # Errors
    /// [`RingRefusal::Outside`], [`RingRefusal::Damaged`].
    pub fn read(&self, from: Pos, len: u64, out: &mut Vec<u8>) -> Result<(), RingRefusal> {
        match self {
            NodeRing::Own(ring) => ring.read(from, len, out),
            NodeRing::Mapped(ring) | NodeRing::Spoiled(ring, _) => ring.read(from, len, out),
        }
    }

    /// Seals the ring, which takes no more appends: `by` has replaced the writer. Messages are refused by their
    /// generation.
    pub fn seal(&mut self, by: Generation) {
        if let NodeRing::Mapped(ring) = self {
            ring.seal(by);
        }
    }

    /// Returns the number of the ring's damage. Mapped memory is checked first. If it does not hold the appended bytes,
    /// the ring is spoiled from now on, by the damage `next`, and its writer appends nothing more. `None`: the ring is
    /// in order.
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

    /// Moves the ring to the node's own memory, where its writer continues by messages. A ring that ended before
    /// `start` begins again there.
    ///
    /// # Errors
    /// The reason why it cannot be moved from memory that is shared.
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

    /// Moves the ring to memory that can be shared. A ring that ended before `start` begins again there. `None`: no
    /// such memory could be had.
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

    /// Returns the ring's state for a reply.
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
