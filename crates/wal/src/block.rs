//! The log is written in blocks. The format page below is the only description of their layout.
#![doc = include_str!("../../../docs/formats/block.md")]

use perdura_base::checksum::crc32c;
use perdura_base::cursor::{Reader, Writer};
use perdura_base::limits::{FORMAT_VERSION, SECTOR_BYTES, STREAMS_MAX};
use perdura_base::num::{round_up, to_u32, to_u64, to_usize};
use perdura_base::{CkptEpoch, Epoch, Gsn, Incarnation, PartitionSet, Pos, StreamId};

use crate::frame::{FrameKind, Role};

/// The size of a block's header, bytes.
pub const HEADER_BYTES: usize = 288;
/// The longest block, bytes.
pub const BLOCK_BYTES_MAX: usize = 4 * 1024 * 1024;

const MAGIC: &[u8; 4] = b"PBLK";
const FLAG_LAST: u8 = 1;
const FLAG_ORDERED: u8 = 2;
const FLAG_ONLY: u8 = 4;
const FLAG_OPERATIONS: u8 = 8;
const FLAG_TREE: u8 = 16;
const FLAGS: u8 = FLAG_LAST | FLAG_ORDERED | FLAG_ONLY | FLAG_OPERATIONS | FLAG_TREE;
const BODY_CRC_AT: usize = 280;
const HEADER_CRC_AT: usize = 284;
/// Reserved bytes after `streams`: an alignment gap, and space for more flags.
const GAP_BYTES: usize = 3 + 4;
/// Reserved bytes after `eosl`.
const ROOM_BYTES: usize = 8;

/// The kinds of frames in a block. A pass over the log uses this set to skip the blocks that the pass does not need.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Holds {
    /// True if the block has bytes of frames that the second pass of a restart replays in order.
    pub ordered: bool,
    /// True if the block has bytes of operations on a tree's rows.
    pub operations: bool,
    /// True if the block has bytes of frames about a tree's pages.
    pub tree: bool,
    /// True if the block has bytes of other frames, which the first pass needs.
    pub others: bool,
}

impl Holds {
    /// Returns the set for a block with a single frame of this kind.
    #[must_use]
    pub fn of(kind: FrameKind) -> Holds {
        let mut holds = Holds::default();
        match kind.role() {
            Role::Ordered => holds.ordered = true,
            Role::Numbered => {
                holds.tree = kind == FrameKind::Tree;
                holds.operations = !holds.tree;
            }
            Role::Records | Role::BeginMark | Role::EndMark | Role::Log => holds.others = true,
        }
        holds
    }

    /// Adds the kinds of another frame or block to the set.
    pub fn add(&mut self, more: Holds) {
        self.ordered |= more.ordered;
        self.operations |= more.operations;
        self.tree |= more.tree;
        self.others |= more.others;
        debug_assert!(
            !more.is_empty(),
            "a block holds what each of its frames makes it hold"
        );
    }

    /// Returns whether the set is empty.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self == Holds::default()
    }

    fn flags(self) -> u8 {
        let passes = [
            (self.ordered, FLAG_ORDERED),
            (self.operations, FLAG_OPERATIONS),
            (self.tree, FLAG_TREE),
        ];
        let set = passes.iter().filter(|(holds, _)| *holds);
        let flags = set.fold(0, |flags, (_, flag)| flags | flag);
        match self.others {
            false if flags != 0 => flags | FLAG_ONLY,
            _ => flags,
        }
    }

    /// Decodes the flags of a header. Returns `None` for a combination that no writer makes.
    fn from_flags(flags: u8) -> Option<Holds> {
        let only = flags & FLAG_ONLY != 0;
        let holds = Holds {
            ordered: flags & FLAG_ORDERED != 0,
            operations: flags & FLAG_OPERATIONS != 0,
            tree: flags & FLAG_TREE != 0,
            others: !only,
        };
        (!holds.is_empty()).then_some(holds)
    }
}

/// The decoded header of a block, without its checksums.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockHeader {
    /// The stream of the block.
    pub stream: StreamId,
    /// The first 8 bytes of the database's uuid.
    pub database: u64,
    /// The life of the database that wrote the block.
    pub incarnation: Incarnation,
    /// The block's position in its stream.
    pub pos: Pos,
    /// The position of the previous block; `pos` itself for the first block of an incarnation.
    pub prev_pos: Pos,
    /// The commit epoch of all frames in the block.
    pub epoch: Epoch,
    /// The durable epoch when the block was written.
    pub durable: Epoch,
    /// The wall-clock time at which the block was written, in microseconds since 1970.
    pub wall_us: u64,
    /// A checkpoint epoch that no tag of the block's records exceeds.
    pub ckpt_epoch: CkptEpoch,
    /// The length of the frames in the body, in bytes.
    pub body_len: u32,
    /// The offset of the first frame that starts in this block, from the body's start; `body_len` if no frame starts
    /// here.
    pub first_frame: u32,
    /// The number of streams of the database.
    pub streams: u8,
    /// The partitions that the block's frames touch, and perhaps others.
    pub partitions: PartitionSet,
    /// The kinds of frames in the block.
    pub holds: Holds,
    /// For the last block of its epoch in this stream: the epoch's end position in each stream. Otherwise `None`.
    pub ends: Option<Vec<Pos>>,
    /// The highest number assigned to an operation before the block was sealed.
    pub gsn: Gsn,
    /// The highest epoch that was durable on the mirror when the block was sealed; 0 in a log without a mirror.
    pub acked: Epoch,
    /// The number of an operation. All operations up to this number belong to the block's epoch or to earlier epochs.
    /// The field is 0 in all blocks except the last block of an epoch.
    pub eosl: Gsn,
}

impl BlockHeader {
    /// Returns the number of bytes from the header's start to the block's end.
    #[must_use]
    pub fn block_len(&self) -> u64 {
        block_len(to_usize(u64::from(self.body_len)))
    }

    /// Returns the end position of the block.
    #[must_use]
    pub fn end(&self) -> Pos {
        Pos(self.pos.0 + self.block_len())
    }
}

/// Returns the length of a block with `body_len` bytes of frames.
#[must_use]
pub fn block_len(body_len: usize) -> u64 {
    round_up(to_u64(HEADER_BYTES + body_len), to_u64(SECTOR_BYTES))
}

/// Completes a block in place: writes its header. `bytes` is the whole block, with the body filled and padded with
/// zeros.
pub(crate) fn seal(header: &BlockHeader, bytes: &mut [u8]) {
    assert_eq!(
        to_u64(bytes.len()),
        header.block_len(),
        "a block is as long as it says"
    );
    assert!(
        header.first_frame <= header.body_len && header.prev_pos <= header.pos,
        "the header of the block at {} contradicts itself",
        header.pos
    );
    assert!(header.stream.0 < header.streams, "a stream of the database");
    let expected = header.ends.as_ref().map(|_| usize::from(header.streams));
    assert_eq!(
        header.ends.as_ref().map(Vec::len),
        expected,
        "an end for each stream"
    );
    assert!(
        !header.holds.is_empty(),
        "block {} holds frames",
        header.pos
    );
    let body_crc = crc32c(&bytes[HEADER_BYTES..]);
    let mut out = Vec::with_capacity(HEADER_BYTES);
    out.put(MAGIC);
    out.put_u16(FORMAT_VERSION);
    out.put_u8(header.stream.0);
    let last = if header.ends.is_some() { FLAG_LAST } else { 0 };
    out.put_u8(last | header.holds.flags());
    out.put_u64(header.database);
    out.put_u32(header.incarnation.0);
    out.put_u32(header.body_len);
    out.put_u64(header.pos.0);
    out.put_u64(header.prev_pos.0);
    out.put_u64(header.epoch.0);
    out.put_u64(header.durable.0);
    out.put_u64(header.wall_us);
    out.put_u64(header.ckpt_epoch.0);
    out.put_u32(to_u32(bytes.len()));
    out.put_u32(header.first_frame);
    out.put_u8(header.streams);
    out.put_zeros(GAP_BYTES);
    out.put(&header.partitions.to_bytes());
    let ends = header.ends.as_deref().unwrap_or(&[]);
    for stream in 0..usize::from(STREAMS_MAX) {
        out.put_u64(ends.get(stream).map_or(0, |pos| pos.0));
    }
    assert!(header.eosl <= header.gsn && (header.ends.is_some() || header.eosl == Gsn(0)));
    out.put_u64(header.gsn.0);
    out.put_u64(header.acked.0);
    out.put_u64(header.eosl.0);
    out.put_zeros(ROOM_BYTES);
    assert_eq!(out.len(), BODY_CRC_AT, "the fields fill the header");
    out.put_u32(body_crc);
    out.put_u32(crc32c(&out));
    bytes[..HEADER_BYTES].copy_from_slice(&out);
}

/// Decodes and checks a header. Returns it with the body's checksum, for [`body_is_whole`]. Returns `None` if these
/// bytes are not a header that this build understands.
#[must_use]
pub(crate) fn decode_header(bytes: &[u8]) -> Option<(BlockHeader, u32)> {
    let parsed = parse(bytes)?;
    parsed
        .understood
        .then_some((parsed.header, parsed.body_crc))
}

/// Decodes the header of a block that a newer build wrote. In such a header a reserved bit is set. Returns `None` for
/// bytes without a whole header, and for a header that [`decode_header`] understands.
#[must_use]
pub(crate) fn decode_newer(bytes: &[u8]) -> Option<BlockHeader> {
    let parsed = parse(bytes)?;
    (!parsed.understood).then_some(parsed.header)
}

/// A header with a correct checksum.
struct Parsed {
    header: BlockHeader,
    body_crc: u32,
    /// True if all reserved bits of the header are zero.
    understood: bool,
}

fn parse(bytes: &[u8]) -> Option<Parsed> {
    let bytes = bytes.get(..HEADER_BYTES)?;
    let (covered, _) = bytes.split_at(HEADER_CRC_AT);
    let mut r = Reader::new(bytes);
    if r.bytes(4)? != MAGIC || r.u16()? != FORMAT_VERSION {
        return None;
    }
    let stream = StreamId(r.u8()?);
    let flags = r.u8()?;
    let database = r.u64()?;
    let incarnation = Incarnation(r.u32()?);
    let body_len = r.u32()?;
    let pos = Pos(r.u64()?);
    let prev_pos = Pos(r.u64()?);
    let epoch = Epoch(r.u64()?);
    let durable = Epoch(r.u64()?);
    let wall_us = r.u64()?;
    let ckpt_epoch = CkptEpoch(r.u64()?);
    let block_len = r.u32()?;
    let first_frame = r.u32()?;
    let streams = r.u8()?;
    let gap = r.bytes(GAP_BYTES)?;
    let partitions = PartitionSet::from_bytes(&r.array::<32>()?);
    let ends = r.bytes(usize::from(STREAMS_MAX) * 8)?;
    let gsn = Gsn(r.u64()?);
    let acked = Epoch(r.u64()?);
    let eosl = Gsn(r.u64()?);
    let room = r.bytes(ROOM_BYTES)?;
    let body_crc = r.u32()?;
    if r.u32()? != crc32c(covered) {
        return None;
    }
    let last = flags & FLAG_LAST != 0;
    let mut reserved = gap.iter().chain(room);
    let understood = flags & !FLAGS == 0 && reserved.all(|byte| *byte == 0);
    let holds = Holds::from_flags(flags)?;
    let ends = match last {
        true => Some(ends_of(ends, streams)?),
        false if ends.iter().any(|byte| *byte != 0) => return None,
        false => None,
    };
    let header = BlockHeader {
        stream,
        database,
        incarnation,
        pos,
        prev_pos,
        epoch,
        durable,
        wall_us,
        ckpt_epoch,
        body_len,
        first_frame,
        streams,
        partitions,
        holds,
        ends,
        gsn,
        acked,
        eosl,
    };
    is_well_formed(&header, block_len).then_some(Parsed {
        header,
        body_crc,
        understood,
    })
}

/// Returns the epoch's end position in each stream; `None` for fewer than `streams` positions.
fn ends_of(bytes: &[u8], streams: u8) -> Option<Vec<Pos>> {
    let mut r = Reader::new(bytes);
    let ends = (0..streams).map(|_| r.u64().map(Pos));
    ends.collect()
}

/// Returns whether the fields of a header are consistent and fit the block's length.
fn is_well_formed(header: &BlockHeader, block_len: u32) -> bool {
    (1..=STREAMS_MAX).contains(&header.streams)
        && header.stream.0 < header.streams
        && header.first_frame <= header.body_len
        && u64::from(block_len) == header.block_len()
        && to_usize(u64::from(block_len)) <= BLOCK_BYTES_MAX
        && (header.ends.is_some() || header.eosl == Gsn(0))
        && header.eosl <= header.gsn
}

/// Returns whether the bytes after the header, including the padding, are unchanged since the block was sealed.
#[must_use]
pub(crate) fn body_is_whole(body_and_padding: &[u8], body_crc: u32) -> bool {
    crc32c(body_and_padding) == body_crc
}

/// Returns the header of a complete block; `None` unless the checksums of header and body are correct.
#[must_use]
pub fn decode(bytes: &[u8]) -> Option<BlockHeader> {
    let (header, body_crc) = decode_header(bytes)?;
    let whole = bytes.get(HEADER_BYTES..to_usize(header.block_len()))?;
    body_is_whole(whole, body_crc).then_some(header)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hex_example::{digits_of, digits_on};
    use perdura_base::PartitionId;

    fn example() -> (BlockHeader, Vec<u8>) {
        let mut ends = vec![Pos(8192)];
        ends.truncate(1);
        let header = BlockHeader {
            stream: StreamId(0),
            database: u64::from_le_bytes([1, 2, 3, 4, 5, 6, 7, 8]),
            incarnation: Incarnation(2),
            pos: Pos(4096),
            prev_pos: Pos(0),
            epoch: Epoch(7),
            durable: Epoch(6),
            wall_us: 1000,
            ckpt_epoch: CkptEpoch(3),
            body_len: 2,
            first_frame: 0,
            streams: 1,
            partitions: [0, 2].map(PartitionId).into_iter().collect(),
            holds: Holds::of(FrameKind::Beacon),
            ends: Some(ends),
            gsn: Gsn(0),
            acked: Epoch(0),
            eosl: Gsn(0),
        };
        let mut bytes = vec![0; 4096];
        bytes[HEADER_BYTES..HEADER_BYTES + 2].copy_from_slice(&[5, 0]);
        seal(&header, &mut bytes);
        (header, bytes)
    }

    #[test]
    fn the_example_on_the_format_page_is_what_the_codec_writes() {
        let page = include_str!("../../../docs/formats/block.md");
        let (header, bytes) = example();
        assert_eq!(digits_on(page), digits_of(&bytes[..HEADER_BYTES + 2]));
        assert_eq!(decode(&bytes), Some(header));
    }

    #[test]
    fn a_block_names_an_acknowledged_epoch_where_the_page_says() {
        let (mut header, mut bytes) = example();
        header.acked = Epoch(0x0506);
        seal(&header, &mut bytes);
        assert_eq!(bytes[256..264], [6, 5, 0, 0, 0, 0, 0, 0]);
        assert_eq!(decode(&bytes), Some(header));
    }

    #[test]
    fn a_block_with_numbers_is_read_as_it_was_written() {
        let (mut header, mut bytes) = example();
        (header.gsn, header.eosl) = (Gsn(300), Gsn(258));
        seal(&header, &mut bytes);
        assert_eq!(decode(&bytes), Some(header.clone()));
        header.ends = None;
        header.eosl = Gsn(0);
        seal(&header, &mut bytes);
        assert_eq!(decode(&bytes), Some(header));
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let (_, bytes) = example();
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << (at % 8);
            assert_eq!(decode(&damaged), None, "byte {at}");
        }
    }

    #[test]
    fn a_header_that_uses_reserved_room_is_a_newer_builds() {
        let (header, bytes) = example();
        for (at, bits) in [7]
            .into_iter()
            .map(|at| (at, !FLAGS))
            .chain((81..88).chain(272..280).map(|at| (at, u8::MAX)))
        {
            for bit in (0..8).map(|bit| 1 << bit).filter(|bit| bits & bit != 0) {
                let mut newer = bytes.clone();
                newer[at] |= bit;
                assert_eq!(decode_newer(&newer), None, "no whole header");
                let crc = crc32c(&newer[..HEADER_CRC_AT]).to_le_bytes();
                newer[HEADER_CRC_AT..HEADER_BYTES].copy_from_slice(&crc);
                assert_eq!(decode_header(&newer), None, "byte {at}");
                assert_eq!(decode_newer(&newer).as_ref(), Some(&header), "byte {at}");
            }
        }
        assert_eq!(decode_newer(&bytes), None);
    }

    #[test]
    fn a_header_says_which_frames_are_in_its_block() {
        let (ordered, others) = (Holds::of(FrameKind::Command), Holds::of(FrameKind::Group));
        let (operations, tree) = (Holds::of(FrameKind::Operations), Holds::of(FrameKind::Tree));
        let all = |parts: &[Holds]| {
            let mut all = Holds::default();
            parts.iter().for_each(|part| all.add(*part));
            all
        };
        for (holds, flags) in [
            (others, 1),
            (all(&[ordered, others]), 3),
            (ordered, 7),
            (operations, 13),
            (tree, 21),
            (all(&[operations, tree]), 29),
            (all(&[operations, tree, others]), 25),
            (all(&[operations, ordered]), 15),
        ] {
            let (mut header, mut bytes) = example();
            header.holds = holds;
            seal(&header, &mut bytes);
            assert_eq!(bytes[7], flags);
            assert_eq!(decode(&bytes), Some(header));
        }
        let (_, mut bytes) = example();
        bytes[7] |= FLAG_ONLY;
        let crc = crc32c(&bytes[..HEADER_CRC_AT]).to_le_bytes();
        bytes[HEADER_CRC_AT..HEADER_BYTES].copy_from_slice(&crc);
        assert_eq!(decode(&bytes), None, "only frames that are not there");
    }

    #[test]
    fn a_cut_block_is_no_block() {
        let (_, bytes) = example();
        for len in (0..bytes.len()).step_by(17) {
            assert_eq!(decode(&bytes[..len]), None);
        }
    }
}
