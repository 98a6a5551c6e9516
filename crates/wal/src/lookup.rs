//! Finds one block of a segment by its position.

use perdura_base::num::{to_u64, to_usize};
use perdura_base::{Error, Incarnation, Pos, Result, StreamId, Uuid};
use perdura_device::{File, read_exact_at};

use crate::block::{self, BlockHeader, HEADER_BYTES};
use crate::segment::{SEGMENT_HEADER_BYTES, SegmentId};

impl BlockHeader {
    /// Returns whether this is the header of the block at `pos` in this stream and life of this database.
    pub(crate) fn is_of(
        &self,
        uuid: &Uuid,
        stream: StreamId,
        incarnation: Incarnation,
        pos: Pos,
    ) -> bool {
        (self.database, self.stream, self.incarnation, self.pos)
            == (uuid.short(), stream, incarnation, pos)
    }
}

/// Returns the header and the bytes of the block at `pos`; `None` if no whole block of the segment's life is there. The
/// segment has `bytes` bytes.
///
/// # Errors
/// [`Error::Corrupt`] for a block that a newer build wrote; the disk's error.
pub(crate) fn block_at(
    file: &dyn File,
    id: SegmentId,
    bytes: u64,
    uuid: &Uuid,
    pos: Pos,
) -> Result<Option<(BlockHeader, Vec<u8>)>> {
    let Some(offset) = pos.0.checked_sub(id.start.0) else {
        return Ok(None);
    };
    let offset = offset + SEGMENT_HEADER_BYTES;
    let rest = bytes.saturating_sub(offset);
    if rest < to_u64(HEADER_BYTES) {
        return Ok(None);
    }
    let mut whole = vec![0; HEADER_BYTES];
    read_exact_at(file, offset, &mut whole)?;
    let is_it = |header: &BlockHeader| header.is_of(uuid, id.stream, id.incarnation, pos);
    let Some((header, _)) = block::decode_header(&whole) else {
        let newer = block::decode_newer(&whole);
        return match newer.is_some_and(|header| is_it(&header)) {
            true => Err(newer_block(id.path(), offset)),
            false => Ok(None),
        };
    };
    let len = header.block_len();
    debug_assert!(
        len <= to_u64(block::BLOCK_BYTES_MAX),
        "a header is well formed"
    );
    if !is_it(&header) || len > rest {
        return Ok(None);
    }
    whole.resize(to_usize(len), 0);
    read_exact_at(file, offset, &mut whole)?;
    Ok(block::decode(&whole).map(|header| (header, whole)))
}

/// Returns the error for a block of a newer build. The block's header is undamaged, but uses bytes that this build
/// requires to be zero.
pub(crate) fn newer_block(place: String, offset: u64) -> Error {
    Error::corrupt(
        place,
        offset,
        "a block header whose reserved room is zero",
        "a whole header that uses it",
        "A newer build wrote this block, and this build cannot read it. Nothing is lost, and \
         nothing was changed. Use the newer build.",
    )
}
