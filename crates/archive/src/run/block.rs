//! The blocks of a run: each block has a head, a checksum and a codec.

use perdura_base::checksum::{crc32c, crc32c_append};
use perdura_base::cursor::{Reader, Writer};
use perdura_base::num::{to_u32, to_usize};
use perdura_base::{CkptEpoch, Epoch, PartitionId, Result};

use super::{BLOCK_BYTES_MAX, FrameAt, damage};
use crate::record::PageAt;

/// The size of a block's head, bytes.
pub const HEAD_BYTES: usize = 44;
/// The maximum size of the records in a block, bytes.
pub const RAW_BYTES_MAX: usize = BLOCK_BYTES_MAX - HEAD_BYTES;

const CRC_AT: usize = 40;
const ZSTD_LEVEL: i32 = 1;

/// The encoding of a block's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Codec {
    /// Not compressed.
    None,
    /// An LZ4 block: fast to compress and to decompress.
    #[default]
    Lz4,
    /// A zstd frame of level 1: smaller than LZ4.
    Zstd,
}

impl Codec {
    /// All codecs.
    pub const ALL: [Codec; 3] = [Codec::None, Codec::Lz4, Codec::Zstd];

    fn code(self) -> u8 {
        match self {
            Codec::None => 0,
            Codec::Lz4 => 1,
            Codec::Zstd => 2,
        }
    }

    fn from_code(code: u8) -> Option<Codec> {
        Codec::ALL.into_iter().find(|codec| codec.code() == code)
    }
}

/// Returns the end of a block in the file.
pub(super) fn end(offset: u64, bytes: u32) -> u64 {
    debug_assert!(
        offset < u64::MAX - u64::from(bytes),
        "the file's length was checked"
    );
    offset + u64::from(bytes)
}

/// The content of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    /// Records of the pages of one partition.
    Records,
    /// Entries of ordered frames.
    Frames,
}

impl Content {
    fn magic(self) -> &'static [u8; 4] {
        match self {
            Content::Records => b"PRBK",
            Content::Frames => b"PFBK",
        }
    }

    /// Returns whether a block of `records` records or entries may have this size before it is compressed.
    fn allows(self, records: u32, raw: usize) -> bool {
        raw > 0 && (raw <= RAW_BYTES_MAX || (self == Content::Frames && records == 1))
    }
}

/// The place of a block. The block's checksum also covers its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlockPlace {
    /// The content of the block.
    pub(crate) content: Content,
    /// The checksum of the run's header.
    pub(crate) header_crc: u32,
    /// The offset of the block in the file.
    pub(crate) offset: u64,
}

/// The fields of a block's head, except the codec, the lengths and the checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockHead {
    /// The page of the first record.
    pub first: PageAt,
    /// The number of records in the block.
    pub records: u32,
    /// The lowest tag in the block. The tags of the records are stored relative to it.
    pub tag_min: CkptEpoch,
    /// The lowest epoch in the block. The epochs of the records are stored relative to it.
    pub epoch_min: Epoch,
}

impl BlockHead {
    /// Returns the head of a frame block as the place of its first entry. In such a block, the field of the lowest tag
    /// has the entry's number.
    pub(crate) fn frame(&self) -> FrameAt {
        FrameAt {
            partition: self.first.partition,
            number: self.tag_min.0,
        }
    }
}

/// The smallest saving that makes a body worth compressing: 1/8 of the body's bytes.
const WORTH: usize = 8;
/// The maximum number of consecutive blocks that are stored without an attempt to compress them.
const PASSES_MAX: u32 = 15;

/// A compressor of bodies that reuses its buffers. If compressing a block saves too little, the attempt has failed:
/// this block is stored uncompressed, and the next blocks are stored without an attempt. Each failed attempt in a row
/// about doubles the number of these blocks.
pub(crate) struct Coder {
    codec: Codec,
    packed: Vec<u8>,
    zstd: Option<zstd::bulk::Compressor<'static>>,
    /// Two counts of blocks that are stored without an attempt. The first is the number of such blocks still to come.
    /// The second is the total number of such blocks after the last failed attempt.
    passes: (u32, u32),
}

impl Coder {
    /// Makes a coder that compresses blocks with `codec`.
    pub(crate) fn new(codec: Codec) -> std::io::Result<Coder> {
        let zstd = (codec == Codec::Zstd)
            .then(|| zstd::bulk::Compressor::new(ZSTD_LEVEL))
            .transpose()?;
        Ok(Coder {
            codec,
            packed: vec![0; lz4_flex::block::get_maximum_output_size(RAW_BYTES_MAX)],
            zstd,
            passes: (0, 0),
        })
    }

    /// Returns the body of a block with the records `raw`, and the body's codec. The body is compressed only if that
    /// saves at least 1/[`WORTH`] of its bytes.
    fn pack<'a>(&'a mut self, raw: &'a [u8]) -> (Codec, &'a [u8]) {
        if raw.len() > RAW_BYTES_MAX {
            let room = lz4_flex::block::get_maximum_output_size(raw.len());
            self.packed.resize(room.max(self.packed.len()), 0);
        }
        let is_passed = self.passes.0 > 0;
        self.passes.0 = self.passes.0.saturating_sub(1);
        let packed = match self.codec {
            Codec::None => None,
            _ if is_passed => None,
            Codec::Lz4 => lz4_flex::block::compress_into(raw, &mut self.packed).ok(),
            Codec::Zstd => self
                .zstd
                .as_mut()
                .and_then(|zstd| zstd.compress_to_buffer(raw, &mut self.packed[..]).ok()),
        };
        match packed.filter(|len| *len <= raw.len() - raw.len().div_ceil(WORTH)) {
            Some(len) => {
                self.passes = (0, 0);
                (self.codec, &self.packed[..len])
            }
            None => {
                if !is_passed {
                    let next = (2 * self.passes.1 + 1).min(PASSES_MAX);
                    self.passes = (next, next);
                }
                (Codec::None, raw)
            }
        }
    }

    /// Appends a block to `out`. `at` must be the block's position in the file, which is the position of the end of
    /// `out`. Returns the block's length.
    pub(crate) fn append(
        &mut self,
        out: &mut Vec<u8>,
        head: &BlockHead,
        raw: &[u8],
        at: BlockPlace,
    ) -> u32 {
        assert!(
            at.content.allows(head.records, raw.len()) && head.records > 0,
            "{} bytes of records fit a block",
            raw.len()
        );
        let (codec, body) = self.pack(raw);
        let from = out.len();
        out.put(at.content.magic());
        out.put_u8(codec.code());
        out.put_u8(0);
        out.put_u16(head.first.partition.0);
        out.put_u32(head.first.local);
        out.put_u32(head.records);
        out.put_u32(to_u32(raw.len()));
        out.put_u32(to_u32(body.len()));
        out.put_u64(head.tag_min.0);
        out.put_u64(head.epoch_min.0);
        assert_eq!(out.len() - from, CRC_AT, "the fields fill the head");
        let crc = checksum(at, &out[from..], body);
        out.put_u32(crc);
        out.put(body);
        debug_assert!(
            out.len() - from <= HEAD_BYTES + raw.len(),
            "packing makes no block longer"
        );
        to_u32(out.len() - from)
    }
}

/// Returns the checksum of a block. It covers the block's place, head and body.
fn checksum(at: BlockPlace, head: &[u8], body: &[u8]) -> u32 {
    let mut place = [0; 12];
    place[..4].copy_from_slice(&at.header_crc.to_le_bytes());
    place[4..].copy_from_slice(&at.offset.to_le_bytes());
    crc32c_append(crc32c_append(crc32c(&place), head), body)
}

/// Reads and checks the block that fills `bytes`. Appends the block's records to `raw` and returns the block's head.
///
/// # Errors
/// [`Error::Corrupt`](perdura_base::Error::Corrupt).
pub(crate) fn open(
    file: &str,
    bytes: &[u8],
    at: BlockPlace,
    unpacker: &mut Unpacker,
    raw: &mut Vec<u8>,
) -> Result<BlockHead> {
    let offset = at.offset;
    let Some((head, stored_crc, codec, raw_len, body)) = parse(bytes, at.content) else {
        return Err(damage(file, offset, "the head of a block", "other bytes"));
    };
    let crc = checksum(at, &bytes[..CRC_AT], body);
    if crc != stored_crc {
        let found = format!("checksum {stored_crc:08x} of bytes with {crc:08x}");
        return Err(damage(file, offset, "a block with its checksum", found));
    }
    if !unpacker.unpack(codec, body, raw_len, raw) {
        let expected = format!("{raw_len} bytes, packed by {codec:?}");
        return Err(damage(
            file,
            offset,
            expected,
            "bytes that do not unpack to that",
        ));
    }
    Ok(head)
}

/// Splits a block into the head, checksum, codec, length of the uncompressed records, and body. `None`: a field is out
/// of range, or two lengths contradict each other.
fn parse(bytes: &[u8], content: Content) -> Option<(BlockHead, u32, Codec, usize, &[u8])> {
    let mut r = Reader::new(bytes);
    if r.array()? != *content.magic() {
        return None;
    }
    let codec = Codec::from_code(r.u8()?)?;
    r.zeros(1)?;
    let first = PageAt {
        partition: PartitionId(r.u16()?),
        local: r.u32()?,
    };
    let records = r.u32()?;
    let raw_len = to_usize(u64::from(r.u32()?));
    let body_len = to_usize(u64::from(r.u32()?));
    let head = BlockHead {
        first,
        records,
        tag_min: CkptEpoch(r.u64()?),
        epoch_min: Epoch(r.u64()?),
    };
    let crc = r.u32()?;
    let body = r.bytes(body_len)?;
    let is_packed = codec != Codec::None;
    let is_sound = r.remaining() == 0
        && head.records > 0
        && content.allows(head.records, raw_len)
        && body_len <= raw_len
        && is_packed == (body_len < raw_len);
    is_sound.then_some((head, crc, codec, raw_len, body))
}

/// A decompressor of bodies that reuses its state.
#[derive(Default)]
pub(crate) struct Unpacker {
    zstd: Option<zstd::bulk::Decompressor<'static>>,
}

impl Unpacker {
    /// Appends the uncompressed records of a body to `raw`. Returns whether their length is `raw_len`, the length in
    /// the head.
    fn unpack(&mut self, codec: Codec, body: &[u8], raw_len: usize, raw: &mut Vec<u8>) -> bool {
        debug_assert!(raw_len > 0, "the head was checked");
        if codec == Codec::None {
            raw.extend_from_slice(body);
            return body.len() == raw_len;
        }
        let from = raw.len();
        raw.resize(from + raw_len, 0);
        let out = &mut raw[from..];
        let unpacked = match codec {
            Codec::None => None,
            Codec::Lz4 => lz4_flex::block::decompress_into(body, out).ok(),
            Codec::Zstd => self.zstd(body, out),
        };
        unpacked == Some(raw_len)
    }

    fn zstd(&mut self, body: &[u8], out: &mut [u8]) -> Option<usize> {
        if self.zstd.is_none() {
            self.zstd = zstd::bulk::Decompressor::new().ok();
        }
        let zstd = self.zstd.as_mut()?;
        zstd.decompress_to_buffer(body, out).ok()
    }
}
