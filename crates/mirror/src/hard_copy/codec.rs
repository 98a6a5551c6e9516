//! Encoding and decoding of the heads and pieces in a hard copy's files.

use perdura_base::checksum::{crc32c, crc32c_append};
use perdura_base::cursor::{Reader, Writer};
use perdura_base::num::{to_u32, to_u64, to_usize};
use perdura_base::{Pos, StreamId, Uuid};

use super::PIECE_BYTES_MAX;
use crate::ids::{Generation, NodeInc, RingName};

const MAGIC: &[u8; 4] = b"PHCF";
const PIECE_MAGIC: &[u8; 4] = b"PHCP";
const VERSION: u16 = 1;
pub(super) const HEAD_BYTES: usize = 64;
pub(super) const PIECE_HEAD_BYTES: usize = 32;
const PREFIX: &str = "hard-";
const SUFFIX: &str = ".copy";

/// The head of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    pub uuid: Uuid,
    pub generation: Generation,
    pub stream: StreamId,
    pub inc: NodeInc,
    pub start: Pos,
}

/// A piece: bytes of a ring written together.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Piece<'a> {
    pub pos: Pos,
    pub low: Pos,
    pub bytes: &'a [u8],
}

/// Returns whether `name` can be the name of a hard copy's file.
pub(super) fn is_name(name: &str) -> bool {
    name.starts_with(PREFIX) && name.ends_with(SUFFIX)
}

impl Head {
    /// Returns the name of the ring.
    pub fn ring(&self) -> RingName {
        RingName {
            uuid: self.uuid,
            generation: self.generation,
            stream: self.stream,
        }
    }

    /// Returns the name of the file.
    pub fn name(&self) -> String {
        let (uuid, generation, start) = (self.uuid, self.generation.0, self.start.0);
        let (stream, inc) = (self.stream.0, self.inc);
        format!("{PREFIX}{uuid}-g{generation:020}-s{stream:02}-p{start:020}-{inc}{SUFFIX}")
    }

    /// Returns the encoded head and its checksum.
    pub fn encode(&self) -> (Vec<u8>, u32) {
        let mut out = Vec::with_capacity(HEAD_BYTES);
        out.put(MAGIC);
        out.put_u16(VERSION);
        out.put_u8(self.stream.0);
        out.put_zeros(1);
        out.put(&self.uuid.0);
        out.put_u64(self.generation.0);
        out.put_u64(self.inc.0);
        out.put_u64(self.start.0);
        out.put_zeros(12);
        let crc = crc32c(&out);
        out.put_u32(crc);
        assert!(out.len() == HEAD_BYTES, "a head of {} bytes", out.len());
        (out, crc)
    }

    /// Returns the head at the beginning of a file, and its checksum.
    ///
    /// # Errors
    /// A description of why the bytes are not a head.
    pub fn decode(bytes: &[u8]) -> Result<(Head, u32), String> {
        let Some(head) = bytes.first_chunk::<HEAD_BYTES>() else {
            return Err(format!(
                "{} bytes, and a head has {HEAD_BYTES}",
                bytes.len()
            ));
        };
        let mut r = Reader::new(head);
        let decoded = Head::fields(&mut r);
        let crc = crc32c(&head[..HEAD_BYTES - 4]);
        match decoded {
            Some((head, said)) if said == crc => Ok((head, crc)),
            _ if !head.starts_with(MAGIC) => Err("no magic".into()),
            _ if head[4..6] != VERSION.to_le_bytes() => Err("another version".into()),
            _ => Err("a head whose checksum does not match".into()),
        }
    }

    fn fields(r: &mut Reader<'_>) -> Option<(Head, u32)> {
        (r.bytes(4)? == MAGIC && r.u16()? == VERSION).then_some(())?;
        let stream = StreamId(r.u8()?);
        r.zeros(1)?;
        let head = Head {
            stream,
            uuid: Uuid(r.array()?),
            generation: Generation(r.u64()?),
            inc: NodeInc(r.u64()?),
            start: Pos(r.u64()?),
        };
        r.zeros(12)?;
        Some((head, r.u32()?))
    }
}

impl<'a> Piece<'a> {
    /// Appends the encoded piece to `out`. `file` is the checksum of the file's head.
    pub fn encode(&self, file: u32, out: &mut Vec<u8>) {
        assert!(
            (1..=PIECE_BYTES_MAX).contains(&self.bytes.len()),
            "a piece of {} bytes",
            self.bytes.len()
        );
        let begin = out.len();
        out.put(PIECE_MAGIC);
        out.put_u32(to_u32(self.bytes.len()));
        out.put_u64(self.pos.0);
        out.put_u64(self.low.0);
        out.put_zeros(4);
        let crc = checksum(file, &out[begin..], self.bytes);
        out.put_u32(crc);
        out.put(self.bytes);
    }

    /// Returns the piece at the beginning of `bytes`. `file` is the checksum of the file's head. `None`: the bytes do
    /// not begin with a piece of that file.
    pub fn decode(file: u32, bytes: &'a [u8]) -> Option<Piece<'a>> {
        let head = bytes.first_chunk::<PIECE_HEAD_BYTES>()?;
        let mut r = Reader::new(head);
        (r.bytes(4)? == PIECE_MAGIC).then_some(())?;
        let len = to_usize(u64::from(r.u32()?));
        (1..=PIECE_BYTES_MAX).contains(&len).then_some(())?;
        let (pos, low) = (Pos(r.u64()?), Pos(r.u64()?));
        r.zeros(4)?;
        let crc = r.u32()?;
        let bytes = bytes[PIECE_HEAD_BYTES..].get(..len)?;
        (checksum(file, &head[..PIECE_HEAD_BYTES - 4], bytes) == crc).then_some(())?;
        pos.0.checked_add(to_u64(len))?;
        Some(Piece { pos, low, bytes })
    }

    /// Returns the position after the last byte of the piece.
    pub fn end(&self) -> Pos {
        Pos(self.pos.0 + to_u64(self.bytes.len()))
    }
}

fn checksum(file: u32, head: &[u8], bytes: &[u8]) -> u32 {
    let crc = crc32c_append(crc32c(&file.to_le_bytes()), head);
    crc32c_append(crc, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> (Head, Vec<u8>) {
        let mut uuid = [0; 16];
        (0_u8..).zip(&mut uuid).for_each(|(n, byte)| *byte = n);
        let head = Head {
            uuid: Uuid(uuid),
            generation: Generation(3),
            stream: StreamId(1),
            inc: NodeInc(0x1122_3344_5566_7788),
            start: Pos(8192),
        };
        let (mut bytes, crc) = head.encode();
        let piece = Piece {
            pos: Pos(8192),
            low: Pos(4096),
            bytes: &[1, 2, 3],
        };
        piece.encode(crc, &mut bytes);
        (head, bytes)
    }

    #[test]
    fn the_example_of_the_page_is_what_the_codec_writes() {
        let page = include_str!("../../../../docs/formats/hard-copy.md");
        let hex = page.split("```text hex").nth(1).unwrap();
        let hex = hex.split("```").next().unwrap();
        let shown: String = hex.chars().filter(char::is_ascii_hexdigit).collect();
        let (head, bytes) = example();
        let written: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(shown, written);
        assert_eq!(
            head.name(),
            "hard-00010203-0405-0607-0809-0a0b0c0d0e0f-g00000000000000000003-s01-p00000000000000008192-1122334455667788.copy"
        );
        assert!(is_name(&head.name()));
    }

    #[test]
    fn every_changed_byte_and_every_cut_is_noticed() {
        let (head, bytes) = example();
        let (decoded, crc) = Head::decode(&bytes).unwrap();
        assert_eq!(decoded, head);
        let piece = Piece::decode(crc, &bytes[HEAD_BYTES..]).unwrap();
        assert_eq!(
            (piece.pos, piece.low, piece.end()),
            (Pos(8192), Pos(4096), Pos(8195))
        );
        assert!(Piece::decode(crc ^ 1, &bytes[HEAD_BYTES..]).is_none());
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 0x10;
            if at < HEAD_BYTES {
                assert!(Head::decode(&changed).is_err(), "byte {at}");
            } else {
                assert!(
                    Piece::decode(crc, &changed[HEAD_BYTES..]).is_none(),
                    "byte {at}"
                );
            }
            let cut = &bytes[..at];
            assert!(
                at >= HEAD_BYTES || Head::decode(cut).is_err(),
                "cut at {at}"
            );
            let rest = cut.get(HEAD_BYTES..).unwrap_or(&[]);
            assert!(Piece::decode(crc, rest).is_none(), "cut at {at}");
        }
    }
}
