//! Descriptions of the files of a hard copy in a directory.

use perdura_base::num::{to_u64, to_usize};
use perdura_base::{Pos, Result, StreamId, Uuid};
use perdura_device::{Access, Disk};

use super::codec::{HEAD_BYTES, Head, PIECE_HEAD_BYTES, Piece, is_name};
use super::{FILE_BYTES, PIECE_BYTES_MAX};
use crate::ids::{Generation, NodeInc};

/// The maximum length of a hard copy's file, in bytes. The last piece in a file may end after `FILE_BYTES`.
const LEN_MAX: u64 = FILE_BYTES + (1 << 20);

/// A file in the directory of a hard copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The name of the file.
    pub name: String,
    /// The size of the file, bytes.
    pub bytes: u64,
    /// The part of a ring that the file has. For other files, a description of why the file is not part of a hard copy.
    pub ring: std::result::Result<FoundRing, String>,
}

/// The part of a ring that a file has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FoundRing {
    /// The database.
    pub uuid: Uuid,
    /// The writer's generation.
    pub generation: Generation,
    /// The stream.
    pub stream: StreamId,
    /// The incarnation of the node that wrote the file.
    pub inc: NodeInc,
    /// The position of the first byte.
    pub start: Pos,
    /// The position after the last valid piece.
    pub end: Pos,
    /// The stream's end on the writer's disk, according to the last valid piece.
    pub low: Pos,
    /// The number of bytes after the last valid piece. An unfinished write or damage has left them.
    pub torn: u64,
}

impl FoundRing {
    fn of(head: &Head) -> FoundRing {
        FoundRing {
            uuid: head.uuid,
            generation: head.generation,
            stream: head.stream,
            inc: head.inc,
            start: head.start,
            end: head.start,
            low: Pos(0),
            torn: 0,
        }
    }
}

/// Lists and verifies the files of a hard copy in the root of a disk, sorted by name. So the files of one ring are
/// adjacent.
///
/// # Errors
/// Errors of the disk. Damage is not an error: the result describes it.
pub fn list(disk: &dyn Disk) -> Result<Vec<Found>> {
    let names = disk.list("")?;
    let copies = names.into_iter().filter(|name| is_name(name));
    copies
        .map(|name| read_back(disk, &name).map(|(found, _)| found))
        .collect()
}

/// Reads a file of a hard copy. Returns its description, and the ring's bytes from `start` to `end`.
///
/// # Errors
/// Errors of the disk. Damage is not an error: the result describes it.
pub fn read_back(disk: &dyn Disk, name: &str) -> Result<(Found, Vec<u8>)> {
    let file = disk.open(name, Access::Buffered)?;
    let len = file.len()?;
    let mut found = Found {
        name: name.to_owned(),
        bytes: len,
        ring: Err(format!("{len} bytes, more than a file has")),
    };
    if len > LEN_MAX {
        return Ok((found, Vec::new()));
    }
    let mut head = [0; HEAD_BYTES];
    let got = file.read_at(0, &mut head)?;
    let (head, crc) = match Head::decode(&head[..got]) {
        Ok(decoded) => decoded,
        Err(why) => {
            found.ring = Err(why);
            return Ok((found, Vec::new()));
        }
    };
    if head.name() != name {
        found.ring = Err(format!("the file is {}", head.name()));
        return Ok((found, Vec::new()));
    }
    let mut ring = FoundRing::of(&head);
    let (mut at, mut bytes) = (to_u64(HEAD_BYTES), Vec::new());
    let mut buf = vec![0; PIECE_HEAD_BYTES + PIECE_BYTES_MAX];
    while at < len {
        let got = file.read_at(at, &mut buf)?;
        let piece = Piece::decode(crc, &buf[..got]).filter(|piece| piece.pos == ring.end);
        let Some(piece) = piece else { break };
        bytes.extend_from_slice(piece.bytes);
        ring.end = piece.end();
        ring.low = ring.low.max(piece.low);
        at += to_u64(PIECE_HEAD_BYTES + piece.bytes.len());
    }
    assert!(
        to_usize(ring.end.0 - ring.start.0) == bytes.len(),
        "a file holds what lies between its positions"
    );
    ring.torn = len.saturating_sub(at);
    found.ring = Ok(ring);
    Ok((found, bytes))
}
