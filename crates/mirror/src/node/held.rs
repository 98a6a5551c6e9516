//! What a node has of one stream: a ring of its own, or one that it shares with the writer on its machine.

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
    /// In memory that was mapped and does not hold what was appended. The number names the damage.
    Spoiled(MappedRing, u64),
}

impl NodeRing {
    /// From where to where it reaches.
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

    /// Bytes held.
    pub fn len(&self) -> u64 {
        self.extent().map_or(0, |(low, end)| end.0 - low.0)
    }

    /// As [`Ring::read`].
    ///
    /// # Errors
    /// [`RingRefusal::Outside`], [`RingRefusal::Damaged`].
    pub fn read(&self, from: Pos, len: u64, out: &mut Vec<u8>) -> Result<(), RingRefusal> {
        match self {
            NodeRing::Own(ring) => ring.read(from, len, out),
            NodeRing::Mapped(ring) | NodeRing::Spoiled(ring, _) => ring.read(from, len, out),
        }
    }

    /// Takes no append any more: `by` has replaced the writer. Messages are refused by their generation.
    pub fn seal(&mut self, by: Generation) {
        if let NodeRing::Mapped(ring) = self {
            ring.seal(by);
        }
    }

    /// The number of the ring's damage, if it has one. Mapped memory is looked at: if it does not hold what was appended, the ring is
    /// spoiled from now on, by the damage `next`, and its writer appends nothing more.
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

    /// The ring in the node's own memory, where its writer goes on by messages; it begins at `start` if it ended before.
    ///
    /// # Errors
    /// Why it cannot be taken back from memory that is shared.
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

    /// The ring in memory that can be shared, which begins at `start` if it ended before; `None` if there is no such memory.
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

    /// What a reply says of it.
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
