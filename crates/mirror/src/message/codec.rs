//! Encoding and decoding of frames.

use perdura_base::checksum::{crc32c, crc32c_append};
use perdura_base::cursor::{Reader, Writer};
use perdura_base::num::{to_u32, to_u64};
use perdura_base::{Pos, StreamId, Uuid};

use super::{
    FRAME_BYTES_MAX, FRAME_BYTES_MIN, Greeting, Held, MAGIC, Malformed, POS_MAX, RINGS_MAX, Reason,
    Refused, Reply, Request, RingState, Sealed, TEXT_BYTES_MAX, VERSION,
};
use crate::auth::Nonce;
use crate::ids::{Generation, Machine, NodeInc};

/// The offset of the kind in a frame. The checksum covers the bytes from there on.
const KIND_AT: usize = 8;

/// Begins a frame with an empty head. The caller appends the body.
fn begin() -> Vec<u8> {
    let mut out = Vec::with_capacity(128);
    out.put_zeros(KIND_AT + 4);
    out
}

/// Fills in the head of a frame. The frame's last bytes are in `tail`.
fn finish(out: &mut [u8], kind: u8, tail: &[u8]) {
    let len = out.len() + tail.len();
    assert!(
        (FRAME_BYTES_MIN..=FRAME_BYTES_MAX).contains(&len),
        "a frame of {len} bytes"
    );
    assert!(
        kind > 0 && out[..KIND_AT + 4] == [0; KIND_AT + 4],
        "a frame of a kind, without its head"
    );
    out[KIND_AT] = kind;
    let crc = crc32c_append(crc32c(&out[KIND_AT..]), tail);
    out[..4].copy_from_slice(&to_u32(len).to_le_bytes());
    out[4..KIND_AT].copy_from_slice(&crc.to_le_bytes());
}

/// Checks a frame. Returns the frame's kind, and a reader of the frame's body.
fn open_frame(bytes: &[u8]) -> Result<(u8, Reader<'_>), Malformed> {
    let mut r = Reader::new(bytes);
    let mut read = || Some((r.u32()?, r.u32()?, r.u8()?, r.zeros(3)));
    let Some((len, crc, kind, zeros)) = read() else {
        return Err(Malformed::because("a frame shorter than its head"));
    };
    if u64::from(len) != to_u64(bytes.len()) {
        return Err(Malformed(format!(
            "a frame of {len} bytes in {}",
            bytes.len()
        )));
    }
    if crc != crc32c(&bytes[8..]) {
        return Err(Malformed::because("a frame whose checksum does not match"));
    }
    zeros.ok_or_else(|| Malformed::because("a frame with reserved bytes set"))?;
    Ok((kind, r))
}

fn put_ring(out: &mut Vec<u8>, ring: &RingState) {
    out.put_u64(ring.generation.0);
    put_stream(out, ring.stream, 7);
    out.put_u64(ring.low.0);
    out.put_u64(ring.end.0);
}

/// Appends the generation and the stream of a ring.
fn put_name(out: &mut Vec<u8>, generation: Generation, stream: StreamId) {
    out.put_u64(generation.0);
    put_stream(out, stream, 7);
}

/// Appends a ring's generation and stream, and then the length of a part of the ring.
fn put_part(out: &mut Vec<u8>, generation: Generation, stream: StreamId, len: u32) {
    out.put_u64(generation.0);
    put_stream(out, stream, 3);
    out.put_u32(len);
}

fn put_stream(out: &mut Vec<u8>, stream: StreamId, zeros: usize) {
    out.put_u8(stream.0);
    out.put_zeros(zeros);
}

/// Appends the part of a stream that a node holds.
fn put_held(out: &mut Vec<u8>, held: &Held) {
    out.put_u64(held.inc.0);
    put_ring(out, &held.ring);
}

/// Appends a node's greeting.
fn put_greeting(out: &mut Vec<u8>, greeting: &Greeting) {
    out.put(MAGIC);
    out.put_u16(greeting.version);
    out.put_u8(u8::from(greeting.keyed));
    out.put_zeros(1);
    out.put_u64(greeting.inc.0);
    out.put(&greeting.machine.0);
    out.put_u64(greeting.ring_bytes);
    out.put(&greeting.nonce);
    out.put(&greeting.proof);
}

/// Appends the rings that a node has of a database.
fn put_sealed(out: &mut Vec<u8>, sealed: &Sealed) {
    assert!(sealed.rings.len() <= RINGS_MAX, "a node keeps fewer rings");
    out.put_u64(sealed.inc.0);
    out.put_u64(sealed.generation.0);
    out.put_u16(u16::try_from(sealed.rings.len()).expect("at most 4,096"));
    out.put_zeros(6);
    sealed.rings.iter().for_each(|ring| put_ring(out, ring));
}

/// Appends a refusal. A text that is too long is truncated.
fn put_refused(out: &mut Vec<u8>, refused: &Refused) {
    out.put_u8(refused.reason.code());
    out.put_zeros(7);
    out.put_u64(refused.generation.0);
    out.put_u64(refused.pos.0);
    let text = &refused.text;
    let ends = text.char_indices().map(|(at, char)| at + char.len_utf8());
    let end = ends.take_while(|end| *end <= TEXT_BYTES_MAX).last();
    out.put(&text.as_bytes()[..end.unwrap_or(0)]);
}

fn generation(r: &mut Reader<'_>) -> Option<Generation> {
    r.u64().map(Generation)
}

fn pos(r: &mut Reader<'_>) -> Option<Pos> {
    r.u64().filter(|at| *at <= POS_MAX).map(Pos)
}

fn stream(r: &mut Reader<'_>, zeros: usize) -> Option<StreamId> {
    let stream = StreamId(r.u8()?);
    r.zeros(zeros)?;
    Some(stream)
}

fn ring(r: &mut Reader<'_>) -> Option<RingState> {
    let ring = RingState {
        generation: generation(r)?,
        stream: stream(r, 7)?,
        low: pos(r)?,
        end: pos(r)?,
    };
    (ring.low <= ring.end).then_some(ring)
}

fn held(r: &mut Reader<'_>) -> Option<Held> {
    Some(Held {
        inc: NodeInc(r.u64()?),
        ring: ring(r)?,
    })
}

fn rest<'a>(r: &mut Reader<'a>) -> Option<&'a [u8]> {
    r.bytes(r.remaining())
}

/// Decodes a body. Fails unless `decode` uses all its bytes.
fn whole<'a, T>(
    kind: u8,
    mut r: Reader<'a>,
    decode: impl FnOnce(u8, &mut Reader<'a>) -> Option<T>,
) -> Result<T, Malformed> {
    let decoded = decode(kind, &mut r).filter(|_| r.remaining() == 0);
    decoded.ok_or_else(|| Malformed(format!("a frame of the unknown kind {kind}")))
}

impl<'a> Request<'a> {
    /// Returns the hello of a client that speaks the present version of the protocol.
    #[must_use]
    pub fn hello(uuid: Uuid, nonce: Nonce) -> Request<'a> {
        Request::Hello {
            version: VERSION,
            uuid,
            nonce,
        }
    }

    /// Returns the frame without the bytes of its [`tail`](Self::tail).
    #[must_use]
    pub fn head(&self) -> Vec<u8> {
        let mut body = begin();
        match self {
            Request::Hello {
                version,
                uuid,
                nonce,
            } => {
                body.put(MAGIC);
                body.put_u16(*version);
                body.put_zeros(2);
                body.put(&uuid.0);
                body.put(nonce);
            }
            Request::Proof(proof) => body.put(proof),
            Request::Seal { generation } | Request::Retire { generation } => {
                body.put_u64(generation.0);
            }
            Request::Ping => {}
            Request::Recall { generation, inc } => {
                body.put_u64(generation.0);
                body.put_u64(inc.0);
            }
            Request::Open { .. }
            | Request::Map { .. }
            | Request::Renew { .. }
            | Request::Append { .. }
            | Request::Read { .. }
            | Request::Reread { .. } => self.put_of_ring(&mut body),
        }
        finish(&mut body, self.kind(), self.tail());
        body
    }

    /// Appends the body of a request that concerns one ring.
    fn put_of_ring(&self, body: &mut Vec<u8>) {
        match *self {
            Request::Open {
                generation,
                stream,
                start,
            }
            | Request::Map {
                generation,
                stream,
                start,
            } => {
                put_name(body, generation, stream);
                body.put_u64(start.0);
            }
            Request::Renew {
                generation,
                stream,
                start,
                damage,
            } => {
                put_name(body, generation, stream);
                body.put_u64(start.0);
                body.put_u64(damage);
            }
            Request::Append {
                generation,
                stream,
                pos,
                low,
                bytes: _,
                pad,
            } => {
                put_part(body, generation, stream, pad);
                body.put_u64(pos.0);
                body.put_u64(low.0);
            }
            Request::Read {
                generation,
                stream,
                from,
                len,
            } => {
                put_part(body, generation, stream, len);
                body.put_u64(from.0);
            }
            Request::Reread {
                inc,
                generation,
                stream,
                from,
                len,
            } => {
                body.put_u64(inc.0);
                put_part(body, generation, stream, len);
                body.put_u64(from.0);
            }
            _ => unreachable!("the caller has matched what is said of one ring"),
        }
    }

    /// Returns the number of the request's kind.
    fn kind(&self) -> u8 {
        match self {
            Request::Hello { .. } => 1,
            Request::Proof(_) => 3,
            Request::Open { .. } => 5,
            Request::Append { .. } => 7,
            Request::Seal { .. } => 8,
            Request::Read { .. } => 10,
            Request::Retire { .. } => 12,
            Request::Ping => 14,
            Request::Map { .. } => 17,
            Request::Recall { .. } => 19,
            Request::Reread { .. } => 20,
            Request::Renew { .. } => 21,
        }
    }

    /// Returns the last bytes of the frame. They can be sent from where they are, without a copy.
    #[must_use]
    pub fn tail(&self) -> &'a [u8] {
        match self {
            Request::Append { bytes, .. } => bytes,
            _ => &[],
        }
    }

    /// Returns the whole frame.
    #[must_use]
    pub fn frame(&self) -> Vec<u8> {
        [&self.head(), self.tail()].concat()
    }

    /// Decodes a frame.
    ///
    /// # Errors
    /// [`Malformed`] if the bytes are not a client's frame.
    pub fn decode(bytes: &'a [u8]) -> Result<Request<'a>, Malformed> {
        let (kind, r) = open_frame(bytes)?;
        whole(kind, r, Request::body)
    }

    fn body(kind: u8, r: &mut Reader<'a>) -> Option<Request<'a>> {
        Some(match kind {
            1 => {
                (r.bytes(4)? == MAGIC).then_some(())?;
                let version = r.u16()?;
                r.zeros(2)?;
                Request::Hello {
                    version,
                    uuid: Uuid(r.array()?),
                    nonce: r.array()?,
                }
            }
            3 => Request::Proof(r.array()?),
            8 => Request::Seal {
                generation: generation(r)?,
            },
            12 => Request::Retire {
                generation: generation(r)?,
            },
            14 => Request::Ping,
            19 => Request::Recall {
                generation: generation(r)?,
                inc: NodeInc(r.u64()?),
            },
            5 | 7 | 10 | 17 | 20 | 21 => return Request::of_ring(kind, r),
            _ => return None,
        })
    }

    /// Decodes the body of a request that concerns one ring.
    fn of_ring(kind: u8, r: &mut Reader<'a>) -> Option<Request<'a>> {
        Some(match kind {
            5 => Request::Open {
                generation: generation(r)?,
                stream: stream(r, 7)?,
                start: pos(r)?,
            },
            7 => {
                let (generation, stream, pad) = (generation(r)?, stream(r, 3)?, r.u32()?);
                Request::Append {
                    generation,
                    stream,
                    pos: pos(r)?,
                    low: pos(r)?,
                    bytes: rest(r)?,
                    pad,
                }
            }
            10 => {
                let (generation, stream, len) = (generation(r)?, stream(r, 3)?, r.u32()?);
                Request::Read {
                    generation,
                    stream,
                    from: pos(r)?,
                    len,
                }
            }
            17 => Request::Map {
                generation: generation(r)?,
                stream: stream(r, 7)?,
                start: pos(r)?,
            },
            20 => {
                let inc = NodeInc(r.u64()?);
                let (generation, stream, len) = (generation(r)?, stream(r, 3)?, r.u32()?);
                Request::Reread {
                    inc,
                    generation,
                    stream,
                    from: pos(r)?,
                    len,
                }
            }
            21 => Request::Renew {
                generation: generation(r)?,
                stream: stream(r, 7)?,
                start: pos(r)?,
                damage: r.u64()?,
            },
            _ => return None,
        })
    }
}

impl Greeting {
    /// Returns the version of the protocol that this build speaks.
    #[must_use]
    pub fn version() -> u16 {
        VERSION
    }
}

impl<'a> Reply<'a> {
    /// Returns the whole frame.
    #[must_use]
    pub fn frame(&self) -> Vec<u8> {
        let mut body = begin();
        match self {
            Reply::Greeting(greeting) => put_greeting(&mut body, greeting),
            Reply::Welcome { inc, generation } | Reply::Retired { inc, generation } => {
                body.put_u64(inc.0);
                body.put_u64(generation.0);
            }
            Reply::Held(held) => put_held(&mut body, held),
            Reply::Mapped(held, bytes) => {
                put_held(&mut body, held);
                body.put_u64(*bytes);
            }
            Reply::Spoiled {
                inc,
                generation,
                stream,
                damage,
            } => {
                body.put_u64(inc.0);
                put_name(&mut body, *generation, *stream);
                body.put_u64(*damage);
            }
            Reply::Sealed(sealed) => put_sealed(&mut body, sealed),
            Reply::Bytes {
                generation,
                stream,
                from,
                bytes: _,
            } => {
                put_name(&mut body, *generation, *stream);
                body.put_u64(from.0);
            }
            Reply::Pong { inc } => body.put_u64(inc.0),
            Reply::Refused(refused) => put_refused(&mut body, refused),
        }
        let tail = match self {
            Reply::Bytes { bytes, .. } => bytes,
            _ => &[][..],
        };
        finish(&mut body, self.kind(), tail);
        body.put(tail);
        body
    }

    /// Returns the number of the reply's kind.
    fn kind(&self) -> u8 {
        match self {
            Reply::Greeting(_) => 2,
            Reply::Welcome { .. } => 4,
            Reply::Held(_) => 6,
            Reply::Sealed(_) => 9,
            Reply::Bytes { .. } => 11,
            Reply::Retired { .. } => 13,
            Reply::Pong { .. } => 15,
            Reply::Refused(_) => 16,
            Reply::Mapped(..) => 18,
            Reply::Spoiled { .. } => 22,
        }
    }

    /// Decodes a frame.
    ///
    /// # Errors
    /// [`Malformed`] if the bytes are not a node's frame.
    pub fn decode(bytes: &'a [u8]) -> Result<Reply<'a>, Malformed> {
        let (kind, r) = open_frame(bytes)?;
        whole(kind, r, Reply::body)
    }

    fn body(kind: u8, r: &mut Reader<'a>) -> Option<Reply<'a>> {
        Some(match kind {
            2 => {
                (r.bytes(4)? == MAGIC).then_some(())?;
                let (version, keyed) = (r.u16()?, r.u8()?);
                r.zeros(1)?;
                Reply::Greeting(Greeting {
                    version,
                    keyed: (keyed <= 1).then_some(keyed == 1)?,
                    inc: NodeInc(r.u64()?),
                    machine: Machine(r.array()?),
                    ring_bytes: r.u64()?,
                    nonce: r.array()?,
                    proof: r.array()?,
                })
            }
            4 => Reply::Welcome {
                inc: NodeInc(r.u64()?),
                generation: generation(r)?,
            },
            6 => Reply::Held(held(r)?),
            18 => Reply::Mapped(held(r)?, r.u64()?),
            9 => {
                let (inc, generation, count) = (NodeInc(r.u64()?), generation(r)?, r.u16()?);
                r.zeros(6)?;
                let rings = (0..count).map(|_| ring(r));
                Reply::Sealed(Sealed {
                    inc,
                    generation,
                    rings: rings.collect::<Option<Vec<RingState>>>()?,
                })
            }
            22 => Reply::Spoiled {
                inc: NodeInc(r.u64()?),
                generation: generation(r)?,
                stream: stream(r, 7)?,
                damage: r.u64()?,
            },
            11 => Reply::Bytes {
                generation: generation(r)?,
                stream: stream(r, 7)?,
                from: pos(r)?,
                bytes: rest(r)?,
            },
            13 => Reply::Retired {
                inc: NodeInc(r.u64()?),
                generation: generation(r)?,
            },
            15 => Reply::Pong {
                inc: NodeInc(r.u64()?),
            },
            16 => {
                let reason = Reason::from_code(r.u8()?)?;
                r.zeros(7)?;
                let (generation, pos) = (generation(r)?, pos(r)?);
                let text = rest(r).filter(|text| text.len() <= TEXT_BYTES_MAX)?;
                Reply::Refused(Refused {
                    reason,
                    generation,
                    pos,
                    text: String::from_utf8(text.to_vec()).ok()?,
                })
            }
            _ => return None,
        })
    }
}
