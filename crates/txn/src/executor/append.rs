//! The append of a transaction's frames.

use perdura_base::{Epoch, PartitionSet, StreamId};
use perdura_heap::GroupBuilder;
use perdura_wal::{FrameKind, LaneId, Wal};
use smallvec::SmallVec;

use crate::lane::lane;

/// Appends a transaction's group and ordered frame in one epoch. Returns the epoch.
pub(super) fn append(
    wal: &Wal,
    stream: StreamId,
    partitions: &PartitionSet,
    group: &mut GroupBuilder,
    rows: Option<(FrameKind, &[u8])>,
) -> Epoch {
    let tag = group.tag_max();
    let is_large = group.is_large();
    let parts: SmallVec<[&[u8]; 1]> = match (group.is_empty(), is_large) {
        (true, _) => SmallVec::new(),
        (false, true) => group.parts().into(),
        (false, false) => SmallVec::from_slice(&[group.finish()]),
    };
    let Some((kind, payload)) = rows else {
        let lane = lane();
        return wal.append_group(LaneId { stream, lane }, &parts, partitions, tag);
    };
    let rows = (kind, &[payload][..]);
    let appended = match parts.is_empty() {
        true => wal.append_together(stream, [rows], partitions, tag),
        false => {
            let group = (FrameKind::Group, parts.as_slice());
            wal.append_together(stream, [group, rows], partitions, tag)
        }
    };
    appended.epoch
}
