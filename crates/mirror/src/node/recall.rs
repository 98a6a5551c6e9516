//! The rings that earlier starts of a node have left in its hard copy. A takeover can request them.

use perdura_base::Uuid;

use super::{Node, Refusal};
use crate::hard_copy::Earlier;
use crate::ids::{Generation, NodeInc};
use crate::message::{READ_BYTES_MAX, Reason, Reply, Request, RingState, Sealed};

impl Node {
    /// Stores the rings that earlier starts of the node have left. A takeover can request them later.
    pub fn remember(&mut self, earlier: Vec<Earlier>) {
        let inc = self.options.inc;
        assert!(
            earlier.iter().all(|of| of.inc != inc),
            "what this start holds is in memory"
        );
        self.earlier = earlier;
    }

    /// Seals the rings of older generations. Returns the rings that the node's earlier start `inc` has left.
    pub(super) fn recall(
        &mut self,
        uuid: Uuid,
        generation: Generation,
        inc: NodeInc,
    ) -> Result<Reply<'static>, Refusal> {
        self.check_generation(uuid, generation)?;
        let left = self.earlier.iter();
        let left = left.filter(|of| (of.uuid, of.inc) == (uuid, inc));
        let rings: Vec<RingState> = left.map(Earlier::state).collect();
        if rings.is_empty() {
            let why = format!("no hard copy of {inc} has anything of this database");
            return Err(Refusal::new(Reason::NoRing, why));
        }
        let database = self.database(uuid)?;
        database.raise(generation);
        Ok(Reply::Sealed(Sealed {
            inc,
            generation: database.generation,
            rings,
        }))
    }

    /// Returns bytes of a ring that an earlier start has left.
    pub(super) fn reread<'a>(
        &self,
        uuid: Uuid,
        reread: &Request<'_>,
        bytes: &'a mut Vec<u8>,
    ) -> Result<Reply<'a>, Refusal> {
        let Request::Reread {
            inc,
            generation,
            stream,
            from,
            len,
        } = *reread
        else {
            unreachable!("the caller has matched a reread");
        };
        let of = (uuid, inc, generation, stream);
        let mut left = self.earlier.iter();
        let left = left.find(|left| (left.uuid, left.inc, left.generation, left.stream) == of);
        let read = left.and_then(|left| left.read(from, len.min(READ_BYTES_MAX)));
        let Some(read) = read else {
            let why = format!("no hard copy of {inc} has stream {stream} at {from}");
            return Err(Refusal::new(Reason::NoRing, why));
        };
        bytes.extend_from_slice(read);
        Ok(Reply::Bytes {
            generation,
            stream,
            from,
            bytes,
        })
    }
}
