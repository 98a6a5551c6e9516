//! The answers of a node to a client with a proven key.

use perdura_base::Uuid;
use perdura_base::flaw::{Flaw, armed};
use perdura_base::num::to_u64;

use super::held::{NodeRing, refusal_of};
use super::{Node, Refusal};
use crate::ids::{Generation, RingName};
use crate::message::{Held, POS_MAX, READ_BYTES_MAX, Reason, Reply, Request, RingState, Sealed};

impl Node {
    /// Answers a request.
    pub(super) fn serve<'a>(
        &mut self,
        uuid: Uuid,
        request: &Request<'_>,
        bytes: &'a mut Vec<u8>,
    ) -> Result<Reply<'a>, Refusal> {
        let inc = self.options.inc;
        match *request {
            Request::Hello { .. } | Request::Proof(_) => {
                let why = "hello and proof are said once";
                Err(Refusal::new(Reason::Malformed, why.into()))
            }
            Request::Map { .. } => {
                let why = "memory is shared over the node's Unix socket alone";
                Err(Refusal::new(Reason::Malformed, why.into()))
            }
            Request::Ping => Ok(Reply::Pong { inc }),
            Request::Open {
                generation,
                stream,
                start,
            } => {
                let ring = RingName {
                    uuid,
                    generation,
                    stream,
                };
                Ok(self.opened(ring, start, None)?.0)
            }
            Request::Renew {
                generation,
                stream,
                start,
                damage,
            } => {
                let ring = RingName {
                    uuid,
                    generation,
                    stream,
                };
                self.renew(ring, damage)?;
                Ok(self.opened(ring, start, None)?.0)
            }
            Request::Append { .. } => self.append(uuid, request),
            Request::Seal { generation } => self.seal(uuid, generation),
            Request::Read { .. } => self.read(uuid, request, bytes),
            Request::Recall { generation, inc } => self.recall(uuid, generation, inc),
            Request::Reread { .. } => self.reread(uuid, request, bytes),
            Request::Retire { generation } => self.retire(uuid, generation),
        }
    }

    /// Appends a block to a ring in the node's own memory.
    fn append(&mut self, uuid: Uuid, append: &Request<'_>) -> Result<Reply<'static>, Refusal> {
        let Request::Append {
            generation,
            stream,
            pos,
            low,
            bytes,
            pad,
        } = *append
        else {
            unreachable!("the caller has matched an append");
        };
        self.check_generation(uuid, generation)?;
        if low > pos {
            let why = format!("a block at {pos} of a stream that is synced up to {low}");
            return Err(Refusal::new(Reason::Malformed, why));
        }
        if pos.0 + to_u64(bytes.len()) + u64::from(pad) > POS_MAX {
            let why = format!("a block at {pos} ends behind the last position, {POS_MAX}");
            return Err(Refusal::new(Reason::Malformed, why));
        }
        let name = RingName {
            uuid,
            generation,
            stream,
        };
        let NodeRing::Own(ring) = self.ring(name)? else {
            let why = format!("the ring of stream {stream} is mapped, or was");
            return Err(Refusal::new(Reason::NoRing, why));
        };
        ring.forget(low);
        let size = ring.size();
        ring.append(pos, bytes, pad)
            .map_err(|refusal| refusal_of(refusal, pos, size))?;
        let ring = RingState {
            generation,
            stream,
            low: ring.low(),
            end: ring.end(),
        };
        assert!(
            ring.low >= low && ring.end > pos || bytes.is_empty(),
            "a block that was taken is held"
        );
        self.appends += 1;
        Ok(Reply::Held(Held {
            inc: self.options.inc,
            ring,
        }))
    }

    /// Returns some bytes of a ring.
    fn read<'a>(
        &mut self,
        uuid: Uuid,
        read: &Request<'_>,
        bytes: &'a mut Vec<u8>,
    ) -> Result<Reply<'a>, Refusal> {
        let Request::Read {
            generation,
            stream,
            from,
            len,
        } = *read
        else {
            unreachable!("the caller has matched a read");
        };
        let ring = self.ring(RingName {
            uuid,
            generation,
            stream,
        })?;
        let size = ring.size();
        let len = u64::from(len.min(READ_BYTES_MAX));
        ring.read(from, len, bytes)
            .map_err(|refusal| refusal_of(refusal, from, size))?;
        Ok(Reply::Bytes {
            generation,
            stream,
            from,
            bytes,
        })
    }

    /// Seals the rings of generations below `generation`. Returns all rings of the database.
    fn seal(&mut self, uuid: Uuid, generation: Generation) -> Result<Reply<'static>, Refusal> {
        let inc = self.options.inc;
        self.check_generation(uuid, generation)?;
        let database = self.database(uuid)?;
        if !armed(Flaw::SealForgotten) {
            database.raise(generation);
        }
        // A ring whose memory has contradictory fields is left out.
        let rings = database.rings.iter();
        let rings = rings.filter_map(|(name, ring)| ring.state(name.0, name.1).ok());
        Ok(Reply::Sealed(Sealed {
            inc,
            generation: database.generation,
            rings: rings.collect(),
        }))
    }

    /// Drops the rings of older generations.
    fn retire(&mut self, uuid: Uuid, generation: Generation) -> Result<Reply<'static>, Refusal> {
        let inc = self.options.inc;
        self.check_generation(uuid, generation)?;
        let database = self.database(uuid)?;
        assert!(
            database.generation <= generation,
            "a writer that was replaced retires nothing"
        );
        // This also closes the mapped rings that are dropped next.
        database.raise(generation);
        database.retired = database.retired.max(generation);
        database.rings.retain(|(of, _), _| *of >= generation);
        self.earlier
            .retain(|of| of.uuid != uuid || of.generation >= generation);
        Ok(Reply::Retired { inc, generation })
    }
}
